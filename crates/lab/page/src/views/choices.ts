// Encodings and patterns, without a model.

import type { App, Shown } from "../app";
import { plot } from "../charts";
import { paint } from "../color";
import { h, segments } from "../dom";
import { summaryOf } from "../korean";
import { apology, busy } from "../said";
import { asked, changesOf, fields, type Changes } from "../settings";
import { json, type Choice, type Pairs } from "../source";
import { bounded, go, state } from "../state";
import { count, percent, say } from "../words";

interface Drawn { name: string; points: [number, number][] }

interface Encoding {
  similarity: Drawn[]; bias: Drawn[]; frequencies: { set: number[]; unscaled: number[] | null }[];
}

interface Cost { length: number; visible: number; computed: number; full: number; causal: number }

interface Pattern { length: number; cells: number; shares: number[]; costs: Cost[] }

const LENGTHS = [64, 128, 256, 512, 1024, 2048];

/** Multiplications and additions of one pair of a head of 64 channels. */
const FLOPS = 256;

/** Pairs of channels in a head that is drawn. */
const PAIRS = 16;

export function choices(app: App, root: HTMLElement): Shown {
  const parts = (["position", "pattern"] as const).map((axis) => {
    const part = h("section", { class: "axis" });
    root.append(part);
    return { axis, part, turn: 0 };
  });
  let all: Record<"position" | "pattern", Choice[]> | null = null;

  async function update(before?: Readonly<Record<string, string>>): Promise<void> {
    try {
      all ??= json<NonNullable<typeof all>>(await app.source.choices("choices", []));
    } catch (error) {
      return root.replaceChildren(apology(error));
    }
    for (const one of parts) {
      const { axis } = one;
      const same = before && [axis, `${axis}.set`, `${axis}.length`].every((key) => before[key] === state()[key]);
      if (!same) void draw(app, axis, all[axis], one);
    }
  }

  void update();
  return { update: (before) => void update(before) };
}

async function draw(
  app: App, axis: "position" | "pattern", all: Choice[], one: { part: HTMLElement; turn: number },
): Promise<void> {
  const own = ++one.turn;
  const usual = axis === "position" ? "rotary" : "causal";
  const choice = all.find((choice) => choice.name === (state()[axis] ?? usual)) ?? all[0]!;
  const given = changesOf((state()[`${axis}.set`] ?? "").split(";").filter(Boolean), "");
  const live = app.source.live;
  const length = Math.round(bounded(`${axis}.length`, [1, 2048], 256));
  const figures = one.part.querySelector<HTMLElement>(".figures") ?? h("div", { class: "figures" }, busy(say("loading")));
  const focused = one.part.contains(document.activeElement) ? document.activeElement?.getAttribute("aria-label") : null;
  const move = latest((changes: Changes) => show(changes));
  one.part.replaceChildren(
    h("h2", {}, say(axis === "position" ? "choices" : "patterns")),
    segments(say(axis === "position" ? "choices" : "patterns"), all.map((c) => [c.name, c.name]), choice.name,
      (name) => go({ [axis]: name, [`${axis}.set`]: null })),
    ...summaryOf(choice.name, choice.summary).map((line) => h("p", { class: "summary" }, linked(line))),
    live ? h("div", { class: "row top" },
      fields({
        settings: choice.fields, given, move, all, pairs: PAIRS,
        change: (changes) => go({
          [`${axis}.set`]: Object.entries(changes).map(([key, value]) => `${key}=${value}`).join(";") || null,
        }),
      }),
      segments(say("length"), LENGTHS.map((n) => [String(n), String(n)]), String(length),
        (n) => go({ [`${axis}.length`]: n }))) : "",
    figures);
  // A slider that was moved can be moved on.
  if (focused) one.part.querySelector<HTMLElement>(`input[aria-label="${CSS.escape(focused)}"]`)?.focus();
  await show(given);

  async function show(changes: Changes): Promise<void> {
    try {
      const pairs: Pairs = [["name", choice.name]];
      if (live) {
        for (const [key, value] of asked(choice.fields, {}, changes)) pairs.push(["set", `${key}=${value}`]);
        pairs.push(["length", length]);
      }
      const bytes = await app.source.choices(axis, pairs);
      if (own !== one.turn) return;
      figures.replaceChildren(...(axis === "position"
        ? encoding(json<Encoding>(bytes)) : pattern(json<Pattern>(bytes), choice.name)));
    } catch (error) {
      if (own === one.turn) figures.replaceChildren(apology(error));
    }
  }
}

/** Runs one at a time, and of what comes meanwhile the last. */
function latest<T>(run: (value: T) => Promise<void>): (value: T) => void {
  const waiting: T[] = [];
  let running = false;
  return async (value: T) => {
    waiting.splice(0, Infinity, value);
    if (running) return;
    running = true;
    for (let [now] = waiting.splice(0); now !== undefined; [now] = waiting.splice(0)) await run(now);
    running = false;
  };
}

/** Words with the addresses in them as links. */
function linked(line: string): (string | HTMLElement)[] {
  return line.split(/<?(https:\/\/[^\s>]+)>?/).map((part, i) =>
    i % 2 ? h("a", { href: part, rel: "noreferrer" }, part.replace(/^https:\/\/(arxiv\.org\/abs\/)?/, "")) : part.replaceAll("`", ""));
}

function encoding(of: Encoding): HTMLElement[] {
  const curves = (all: Drawn[]) => all.map((curve, color) => ({ ...curve, color }));
  const out = [plot({ title: say("similarity"), x: say("distance"), y: say("score"), curves: curves(of.similarity), rule: 0 })];
  if (of.bias.length) {
    out.push(plot({ title: say("bias"), x: say("distance"), y: say("score"), curves: curves(of.bias), rule: 0 }));
  }
  for (const { set, unscaled } of of.frequencies) {
    const turns = (all: number[]) => all.map((f, i): [number, number] => [i, 2 * Math.PI / f]);
    out.push(plot({
      title: say("wavelengths"), x: say("channel"), y: say("positions"), logY: true,
      curves: [{ name: unscaled ? say("scaled") : "", color: 0, points: turns(set) },
        ...(unscaled ? [{ name: say("unscaled"), color: 1, dashed: true, points: turns(unscaled) }] : [])],
    }));
  }
  return out;
}

function pattern(of: Pattern, name: string): HTMLElement[] {
  const canvas = h("canvas", { class: "pattern", width: of.cells, height: of.cells, role: "img",
    "aria-label": `${say("whoSees")}: ${name}` });
  canvas.getContext("2d")!.putImageData(paint(of.shares, of.cells, of.cells, 1), 0, 0);
  const map = h("figure", { class: "plot" }, h("figcaption", {}, `${say("whoSees")} (${of.length} ${say("tokens")})`),
    canvas, h("p", { class: "dim" }, `↓ ${say("query")}   → ${say("key")}`));
  const table = h("figure", { class: "plot" }, h("figcaption", {}, say("cost")), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": say("cost") },
    h("table", {}, h("thead", {}, h("tr", {}, ["length", "visible", "ofFull", "computed", "flops"].map((word) =>
      h("th", {}, say(word as "length"))))),
    h("tbody", {}, of.costs.map((cost) => h("tr", {},
      h("td", {}, String(cost.length)), h("td", {}, count(cost.visible)), h("td", {}, percent(cost.visible / cost.full)),
      h("td", {}, count(cost.computed)), h("td", {}, (cost.computed * FLOPS).toExponential(1))))))));
  return [map, table];
}
