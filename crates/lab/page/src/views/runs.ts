// Runs of a folder while they learn, and what comparisons found.

import type { App, Shown } from "../app";
import { plot, type Curve } from "../charts";
import { h, notice } from "../dom";
import { apology } from "../said";
import { json } from "../source";
import { go, state } from "../state";
import { say } from "../words";
import { Compared, type Written } from "./compared";

interface Listed {
  name: string; written: number | null; steps: number | null;
  position: string[] | null; pattern: string | null; score: string | null;
}

interface Found { runs: Listed[]; comparisons: Written[] }

interface Followed { train: [number, number][]; valid: [number, number][]; next: number }

/** Curves that are drawn at once, and of these without a choice: those that were written last. */
const DRAWN = 8;
const FIRST = 4;

/** Milliseconds between looks at what is being learned, and looks of which one asks what there is by now. */
const PACE = 2000;
const LOOKS = 2;

/** Points of a smoothed curve's window. */
const SMOOTH = 25;

export function runs(app: App, root: HTMLElement): Shown {
  const list = h("section", { class: "list" });
  const charts = h("section", { class: "figures" });
  const compared = new Compared(app.source);
  root.append(h("div", { class: "columns" }, list, charts), compared.element);
  const followed = new Map<string, Followed>();
  let all: Listed[] = [];
  let timer = 0;
  let looks = 0;
  let turn = Promise.resolve();
  let drawn = "";
  let listed = "";
  let ended = false;

  const chosen = (): string[] => {
    const named = (state().follow ?? "").split(",").filter((name) => all.some((run) => run.name === name));
    if (named.length) return named;
    const last = [...all].sort((a, b) => (b.written ?? 0) - (a.written ?? 0)).slice(0, FIRST);
    return all.filter((run) => last.includes(run)).map((run) => run.name);
  };

  /** What there is by now: runs begin and comparisons end while they are looked at. */
  async function find(): Promise<Written[]> {
    const found = json<Found>(await app.source.folder("list", []));
    if (ended) return [];
    const changed = JSON.stringify(found.runs) !== listed;
    listed = JSON.stringify(found.runs);
    all = found.runs;
    if (!all.length && !found.comparisons.length) list.replaceChildren(notice(say("noFolder")));
    else if (changed) rows();
    return found.comparisons;
  }

  /** One look after the other, so that nothing is read twice. */
  function look(): void {
    turn = turn.then(once);
  }

  async function once(): Promise<void> {
    clearTimeout(timer);
    if (ended) return;
    try {
      const comparisons = looks++ % LOOKS ? null : await find();
      await follow();
      if (comparisons && !ended) await compared.show(comparisons);
    } catch (error) {
      // A server that is away for a moment leaves what was shown; without anything shown it is said.
      if (!all.length && !ended) list.replaceChildren(apology(error));
    }
    if (!ended) timer = window.setTimeout(look, PACE);
  }

  function rows(): void {
    const shown = new Set(chosen());
    const words = (state().filter ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const about = (run: Listed) =>
      [...(run.position ?? []), run.pattern, run.score, run.steps && `${run.steps} ${say("updates")}`].filter(Boolean).join(" · ");
    const fitting = all.filter((run) => words.every((word) => `${run.name} ${about(run)}`.toLowerCase().includes(word)));
    const box = list.querySelector<HTMLInputElement>("input[type=search]") ?? h("input", {
      type: "search", placeholder: say("filter"), "aria-label": say("filter"), value: state().filter ?? "",
      oninput: (event: Event) => go({ filter: (event.target as HTMLInputElement).value }),
    });
    const items = h("ul", { class: "runs" }, fitting.map((run) => h("li", {}, h("label", {},
      h("input", { type: "checkbox", value: run.name, checked: shown.has(run.name), onchange: (event: Event) => {
        const next = new Set(chosen());
        if ((event.target as HTMLInputElement).checked) next.add(run.name);
        else next.delete(run.name);
        go({ follow: [...next].slice(-DRAWN).join(",") });
      } }), h("span", {}, h("strong", {}, run.name), h("span", { class: "dim" }, about(run)))))));
    // A box that was being set stays under the keyboard.
    const focused = list.contains(document.activeElement) ? document.activeElement?.getAttribute("value") : null;
    const before = list.querySelector("ul.runs");
    if (before && list.contains(box)) {
      const top = before.scrollTop;
      before.replaceWith(items);
      items.scrollTop = top;
    } else {
      list.replaceChildren(box, items);
    }
    if (focused) items.querySelector<HTMLInputElement>(`input[value="${CSS.escape(focused)}"]`)?.focus();
  }

  async function follow(): Promise<void> {
    const names = chosen();
    let changed = drawn !== names.join();
    for (const name of names) {
      const own = followed.get(name) ?? { train: [], valid: [], next: 0 };
      followed.set(name, own);
      try {
        for (;;) {
          const { points, next } = json<{ points: [number, number | null, number | null][]; next: number }>(
            await app.source.folder("curve", [["name", name], ["from", own.next]]));
          if (next < own.next) own.train.length = own.valid.length = 0;
          own.next = next;
          for (const [step, loss, valid] of points) {
            if (loss !== null) own.train.push([step, loss]);
            if (valid !== null) own.valid.push([step, valid]);
          }
          if (!points.length) break;
          changed = true;
        }
      } catch {
        // A run that was removed while it was looked at.
      }
    }
    if (!ended && changed && names.length) draw(names);
  }

  function draw(names: string[]): void {
    drawn = names.join();
    const curves = (of: "train" | "valid"): Curve[] => names.map((name, color) => {
      const points = followed.get(name)?.[of] ?? [];
      return { name, color, points: of === "train" ? smooth(points) : points };
    });
    charts.replaceChildren(
      plot({ title: `${say("learning")} (${say("live")})`, x: say("step"), y: say("loss"), curves: curves("train"), height: 260 }),
      plot({ title: `${say("learning")}, ${say("valid")}`, x: say("step"), y: say("loss"), curves: curves("valid"), height: 260 }));
  }

  look();
  return {
    update: (before) => {
      rows();
      if (before.follow !== state().follow) {
        draw(chosen());
        look();
      }
      if (before.sort !== state().sort || before.filter !== state().filter) compared.update();
    },
    end: () => {
      ended = true;
      clearTimeout(timer);
    },
  };
}

/** A running mean, so that curves of single batches can be told apart. */
function smooth(points: [number, number][]): [number, number][] {
  const window = Math.max(1, Math.min(SMOOTH, Math.floor(points.length / 20)));
  let sum = 0;
  return points.map(([step, loss], i) => {
    sum += loss - (i >= window ? points[i - window]![1] : 0);
    return [step, sum / Math.min(i + 1, window)];
  });
}
