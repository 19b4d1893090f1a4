// What comparisons found: a table that sorts, and the charts of the report with values under the pointer.

import { plot, type Curve } from "../charts";
import { h } from "../dom";
import { json, type Source } from "../source";
import { go, state } from "../state";
import { figure, say } from "../words";

interface Summary { mean: number; margin: number | null }

interface Point { step: number; loss: number }

interface AtLength { scaling: string | null; length: number; loss: Summary | null }

interface Cell {
  name: string; state: string; reason?: string; runs?: { curve: Point[] }[]; lengths: AtLength[];
  loss: Summary | null; accuracy: Summary | null; bits_per_byte: Summary | null; bleu: Summary | null;
  difference: Summary | null; tokens_per_second: Summary | null;
}

/** A comparison's name, and when its results were written. */
export interface Written { name: string; written: number | null }

interface Results { title: string; budget: string; baseline: string; cells: Cell[] }

const COLUMNS = ["name", "loss", "bitsPerByte", "accuracy", "bleu", "difference", "speed"] as const;
type Column = (typeof COLUMNS)[number];

/** Comparisons that are shown. */
const SHOWN = 20;

const summary = (cell: Cell, column: Column): Summary | null => ({
  name: null, loss: cell.loss, bitsPerByte: cell.bits_per_byte, accuracy: cell.accuracy, bleu: cell.bleu,
  difference: cell.difference, speed: cell.tokens_per_second,
})[column];

/** How many digits are worth reading. */
const digits = (column: Column): number => (column === "speed" || column === "bleu" ? 1 : 4);

interface Part { results: Results; part: HTMLElement; columns: Column[] }

interface Shown { written: number | null; section: HTMLElement; parts: Part[] }

export class Compared {
  readonly element = h("section", {});
  private readonly shown = new Map<string, Shown>();

  constructor(private readonly source: Source) {}

  /** Shows those that are new or were written anew; what is shown already stays as it is. */
  async show(all: Written[]): Promise<void> {
    const names = new Set(all.slice(0, SHOWN).map((one) => one.name));
    for (const [name, { section }] of this.shown) {
      if (names.has(name)) continue;
      section.remove();
      this.shown.delete(name);
    }
    for (const { name, written } of all.slice(0, SHOWN)) {
      const before = this.shown.get(name);
      if (before && before.written === written) continue;
      try {
        const found = json<Results[]>(await this.source.folder("comparison", [["name", name]]));
        this.put(name, written, found);
      } catch {
        // Taken away or being written; asked again with the next list.
      }
    }
  }

  private put(name: string, written: number | null, found: Results[]): void {
    const section = h("section", { "aria-label": name });
    const parts = found.map((results) => {
      const columns = COLUMNS.filter((column) =>
        column === "name" || results.cells.some((cell) => summary(cell, column)));
      const part = h("div", {});
      section.append(h("h2", {}, results.title), h("p", { class: "dim" }, `${name} · ${results.budget}`), part);
      return { results, part, columns };
    });
    const before = this.shown.get(name);
    if (before) before.section.replaceWith(section);
    else this.element.append(section);
    this.shown.set(name, { written, section, parts });
    this.update(parts);
  }

  /** Sorts and filters as the state says. */
  update(parts: Part[] = [...this.shown.values()].flatMap((shown) => shown.parts)): void {
    const asked = state().sort ?? "loss";
    const sign = asked.startsWith("-") ? -1 : 1;
    const by = asked.replace("-", "") as Column;
    const words = (state().filter ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    for (const { results, part, columns } of parts) {
      const cells = results.cells.filter((cell) => words.every((word) =>
        `${results.title} ${cell.name}`.toLowerCase().includes(word)));
      cells.sort((a, b) => {
        if (by === "name") return sign * a.name.localeCompare(b.name);
        const [x, y] = [summary(a, by)?.mean, summary(b, by)?.mean];
        if (x === undefined || y === undefined) return Number(x === undefined) - Number(y === undefined);
        return sign * (x - y);
      });
      part.replaceChildren(table(results, columns, cells, asked), h("div", { class: "figures" }, charts(cells)));
    }
  }
}

function table(results: Results, columns: Column[], cells: Cell[], asked: string): HTMLElement {
  const direction = (column: Column) =>
    asked === column ? "ascending" : asked === `-${column}` ? "descending" : "none";
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": results.title },
    h("table", {}, h("thead", {}, h("tr", {}, columns.map((column) =>
      h("th", { class: column === "name" ? "words" : false, "aria-sort": direction(column) }, h("button", {
        type: "button", class: "quiet", onclick: () => go({ sort: asked === column ? `-${column}` : column }),
      }, say(column)))))),
    h("tbody", {}, cells.map((cell) => h("tr", {}, columns.map((column) => {
      if (column === "name") return h("td", { class: "words" }, cell.name, cell.name === results.baseline ? " *" : "");
      const found = summary(cell, column);
      if (!found) return h("td", { class: "dim", title: cell.reason ?? "" }, cell.state === "trained" ? "–" : cell.state);
      return h("td", {}, figure(found.mean, digits(column)),
        found.margin !== null && h("span", { class: "dim" }, ` ± ${figure(found.margin, digits(column))}`));
    }))))));
}

/** Losses while cells learned, the mean over their seeds, and at other lengths. */
function charts(cells: Cell[]): HTMLElement[] {
  const trained = cells.filter((cell) => cell.runs?.length);
  const learned: Curve[] = trained.map((cell, color) => {
    const curves = cell.runs!.map((run) => run.curve);
    const length = Math.min(...curves.map((curve) => curve.length));
    const mean = (i: number) => curves.reduce((sum, curve) => sum + curve[i]!.loss, 0) / curves.length;
    return { name: cell.name, color, points: Array.from({ length }, (_, i) => [curves[0]![i]!.step, mean(i)]) };
  });
  const other: Curve[] = trained.flatMap((cell, color) =>
    [...new Set(cell.lengths.map((at) => at.scaling))].map((scaling) => ({
      name: scaling ? `${cell.name}, ${scaling}` : cell.name, color, dashed: scaling !== null,
      points: cell.lengths.filter((at) => at.scaling === scaling && at.loss)
        .map((at): [number, number] => [at.length, at.loss!.mean]),
    })));
  const out = [];
  if (learned.length) out.push(plot({ title: say("learning"), x: say("step"), y: say("loss"), curves: learned, height: 260 }));
  if (other.some((curve) => curve.points.length > 1)) {
    out.push(plot({ title: say("otherLengths"), x: say("length"), y: say("loss"), curves: other, logX: true, height: 260 }));
  }
  return out;
}
