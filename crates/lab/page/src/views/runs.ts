// Runs of a folder while they learn, and what comparisons found.

import type { App, Shown } from "../app";
import { plot, type Curve } from "../charts";
import { h, notice } from "../dom";
import { apology } from "../said";
import { json } from "../source";
import { go, state } from "../state";
import { say } from "../words";
import { Compared } from "./compared";

interface Listed { name: string; steps: number | null; position: string[] | null; pattern: string | null; score: string | null }

interface Followed { train: [number, number][]; valid: [number, number][]; next: number }

/** Curves that are drawn at once. */
const DRAWN = 8;

/** Milliseconds between looks at what is being learned. */
const PACE = 2000;

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
  let ended = false;

  const chosen = (): string[] => {
    const named = (state().follow ?? "").split(",").filter((name) => all.some((run) => run.name === name));
    return named.length ? named : all.slice(0, Math.min(4, all.length)).map((run) => run.name);
  };

  async function start(): Promise<void> {
    try {
      const found = json<{ runs: Listed[]; comparisons: string[] }>(await app.source.folder("list", []));
      all = found.runs;
      if (!all.length && !found.comparisons.length) return root.replaceChildren(notice(say("noFolder")));
      rows();
      void follow();
      await compared.show(found.comparisons);
    } catch (error) {
      root.replaceChildren(apology(error));
    }
  }

  function rows(): void {
    const shown = new Set(chosen());
    const words = (state().filter ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const about = (run: Listed) => [...(run.position ?? []), run.pattern, run.score].filter(Boolean).join(" · ");
    const fitting = all.filter((run) => words.every((word) => `${run.name} ${about(run)}`.toLowerCase().includes(word)));
    const box = list.querySelector<HTMLInputElement>("input[type=search]") ?? h("input", {
      type: "search", placeholder: say("filter"), "aria-label": say("filter"), value: state().filter ?? "",
      oninput: (event: Event) => go({ filter: (event.target as HTMLInputElement).value }),
    });
    const items = h("ul", { class: "runs" }, fitting.map((run) => h("li", {}, h("label", {},
      h("input", { type: "checkbox", checked: shown.has(run.name), onchange: (event: Event) => {
        const next = new Set(chosen());
        if ((event.target as HTMLInputElement).checked) next.add(run.name);
        else next.delete(run.name);
        go({ follow: [...next].slice(-DRAWN).join(",") });
      } }), h("span", {}, h("strong", {}, run.name), h("span", { class: "dim" }, about(run)))))));
    if (list.contains(box)) list.querySelector("ul")!.replaceWith(items);
    else list.replaceChildren(box, items);
  }

  async function follow(): Promise<void> {
    clearTimeout(timer);
    let changed = charts.childElementCount === 0;
    for (const name of chosen()) {
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
    if (ended) return;
    if (changed) draw();
    timer = window.setTimeout(() => void follow(), PACE);
  }

  function draw(): void {
    const curves = (of: "train" | "valid"): Curve[] => chosen().map((name, color) => {
      const points = followed.get(name)?.[of] ?? [];
      return { name, color, points: of === "train" ? smooth(points) : points };
    });
    charts.replaceChildren(
      plot({ title: `${say("learning")} (${say("live")})`, x: say("step"), y: say("loss"), curves: curves("train"), height: 260 }),
      plot({ title: `${say("learning")}, ${say("valid")}`, x: say("step"), y: say("loss"), curves: curves("valid"), height: 260 }));
  }

  void start();
  return {
    update: (before) => {
      rows();
      if (before.follow !== state().follow) {
        draw();
        void follow();
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
