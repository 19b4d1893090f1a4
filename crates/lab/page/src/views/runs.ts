// Runs of a folder while they learn, and what comparisons found.

import type { App, Shown } from "../app";
import { plot, type Curve } from "../charts";
import { h, notice } from "../dom";
import { said } from "../said";
import { json } from "../source";
import { go, state } from "../state";
import { figure, say } from "../words";

interface Listed { name: string; steps: number | null; position: string[] | null; pattern: string | null; score: string | null }

interface Followed { train: [number, number][]; valid: [number, number][]; next: number }

interface Summary { mean: number; low?: number; high?: number }

interface Cell { name: string; state: string; loss: Summary | null; accuracy: Summary | null; bits_per_byte: Summary | null }

interface Results { title: string; budget: string; cells: Cell[] }

/** Curves that are drawn at once. */
const DRAWN = 8;

/** Milliseconds between looks at what is being learned. */
const PACE = 2000;

/** Points of a smoothed curve's window. */
const SMOOTH = 25;

export function runs(app: App, root: HTMLElement): Shown {
  const list = h("section", { class: "list" });
  const charts = h("section", { class: "figures" });
  const comparisons = h("section", {});
  root.append(h("div", { class: "columns" }, list, charts), comparisons);
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
      await compared(app, found.comparisons, comparisons);
    } catch (error) {
      root.replaceChildren(notice(said(error), "error"));
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
      plot({ title: `${say("loss")}, ${say("valid")}`, x: say("step"), y: say("loss"), curves: curves("valid"), height: 260 }));
  }

  void start();
  return {
    update: (before) => {
      rows();
      if (before.follow !== state().follow) {
        draw();
        void follow();
      }
      if (before.sort !== state().sort) sorted(comparisons);
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

const COLUMNS = ["name", "loss", "bitsPerByte", "accuracy"] as const;

const value = (cell: Cell, column: (typeof COLUMNS)[number]): number | string | undefined =>
  column === "name" ? cell.name : column === "bitsPerByte" ? cell.bits_per_byte?.mean : cell[column]?.mean;

let tables: { results: Results; body: HTMLElement }[] = [];

/** The figures of comparisons as tables that sort. */
async function compared(app: App, names: string[], root: HTMLElement): Promise<void> {
  tables = [];
  for (const name of names.slice(0, 20)) {
    const found = json<Results[]>(await app.source.folder("comparison", [["name", name]]));
    for (const results of found) {
      const columns = COLUMNS.filter((column) => results.cells.some((cell) => value(cell, column) !== undefined));
      const body = h("tbody", {});
      root.append(h("h2", {}, results.title), h("p", { class: "dim" }, `${name} · ${results.budget}`),
        h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": results.title }, h("table", { class: "figures" }, h("thead", {}, h("tr", {}, columns.map((column) =>
          h("th", { class: column === "name" ? "words" : false }, h("button", {
            type: "button", class: "quiet", onclick: () => go({ sort: state().sort === column ? `-${column}` : column }),
          }, say(column)))))), body)));
      tables.push({ results, body });
    }
  }
  sorted(root);
}

function sorted(root: HTMLElement): void {
  const asked = state().sort ?? "loss";
  const sign = asked.startsWith("-") ? -1 : 1;
  const by = asked.replace("-", "") as (typeof COLUMNS)[number];
  for (const button of root.querySelectorAll("th")) {
    button.setAttribute("aria-sort", button.textContent === say(by) ? (sign > 0 ? "ascending" : "descending") : "none");
  }
  for (const { results, body } of tables) {
    const columns = COLUMNS.filter((column) => results.cells.some((cell) => value(cell, column) !== undefined));
    const cells = [...results.cells].sort((a, b) => {
      const [x, y] = [value(a, by), value(b, by)];
      if (typeof x === "string" && typeof y === "string") return sign * x.localeCompare(y);
      return sign * ((x as number ?? Infinity) - (y as number ?? Infinity)) || 0;
    });
    body.replaceChildren(...cells.map((cell) => h("tr", {}, columns.map((column) => {
      const found = value(cell, column);
      return h("td", { class: column === "name" ? "words" : false }, typeof found === "number" ? figure(found, 4)
        : found ?? (cell.state === "trained" ? "–" : cell.state));
    }))));
  }
}
