// The map of one head on a canvas: tiles of 128 × 128 cells, asked for when they come into sight.

import { paint, strong } from "./color";
import { h, paced } from "./dom";
import { packed, type Reading, type Source } from "./source";
import type { Chosen } from "./places";
import { say, visible, weight } from "./words";

const CELLS = 128;

/** Cells of a small picture of a head. */
export const SMALL = 48;

/** Tiles that are kept: about ten megabytes of pictures. */
const KEPT = 96;

/** Tiles that are asked for at once. */
const TOGETHER = 4;

interface Tile {
  picture: HTMLCanvasElement; values: Float32Array; rows: number; columns: number;
}

function picture(values: Float32Array, columns: number, rows: number): HTMLCanvasElement {
  const canvas = h("canvas", { width: columns, height: rows });
  canvas.getContext("2d")!.putImageData(paint(values, columns, rows, strong(values)), 0, 0);
  return canvas;
}

export interface Names { queries: string[]; keys: string[] }

export class Tiles {
  readonly element: HTMLElement;
  private readonly canvas: HTMLCanvasElement;
  private readonly readout = h("p", { class: "readout" }, "\u00a0");
  private readonly kept = new Map<string, Tile | null>();
  private readonly asked = new Set<string>();
  private wanted: [number, number, number][] = [];
  private ended = false;
  /** The head's small picture, which stands until tiles come: of a long text those of the whole take a while. */
  private small: HTMLCanvasElement | null = null;
  /** Pixels of a token, and the token at the upper left corner. */
  private scale = 1;
  private origin = { query: 0, key: 0 };
  private readonly longest: number;
  private chosen: ReadonlySet<number> = new Set();
  private readonly draw = paced(() => this.paint());
  private readonly watch: ResizeObserver;

  constructor(
    private readonly source: Source, private readonly reading: Reading,
    private readonly at: Chosen, private readonly names: Names,
    private readonly choose: (query: number, key: number) => void,
  ) {
    this.longest = Math.max(at.place.queries, at.place.keys);
    this.canvas = h("canvas", {
      tabindex: 0, role: "img", "aria-label": say("mapSaid"),
      onwheel: (event: WheelEvent) => this.wheel(event),
      onpointerdown: (event: PointerEvent) => this.drag(event),
      onpointermove: (event: PointerEvent) => this.hover(event),
      onpointerleave: () => { this.readout.textContent = "\u00a0"; },
      onkeydown: (event: KeyboardEvent) => this.key(event),
    });
    const button = (label: string, sign: string, run: () => void) =>
      h("button", { type: "button", class: "quiet", "aria-label": label, title: label, onclick: run }, sign);
    this.element = h("div", { class: "map" },
      h("div", { class: "tools" }, this.readout,
        button(say("zoomIn"), "+", () => this.zoom(2)),
        button(say("zoomOut"), "−", () => this.zoom(0.5)),
        button(say("whole"), "⤢", () => this.whole())),
      this.canvas);
    void this.begin();
    let before = 0;
    this.watch = new ResizeObserver(() => {
      if (this.canvas.clientWidth === before) return;
      const first = before === 0;
      before = this.canvas.clientWidth;
      const ratio = devicePixelRatio || 1;
      this.canvas.width = this.canvas.clientWidth * ratio;
      this.canvas.height = this.canvas.clientHeight * ratio;
      if (first) this.whole();
      this.draw();
    });
    this.watch.observe(this.canvas);
  }

  private async begin(): Promise<void> {
    const { place, layer, head } = this.at;
    try {
      const { header, arrays } = await packed(this.source, this.reading, "layer",
        [["site", place.site], ["layer", layer], ["cells", SMALL]]);
      this.small = picture(arrays.get(String(head))!, Number(header.columns), Number(header.rows));
      this.draw();
    } catch {
      // Said where the small pictures stand.
    }
  }

  end(): void {
    this.ended = true;
    this.watch.disconnect();
  }

  mark(chosen: ReadonlySet<number>): void {
    this.chosen = chosen;
    this.draw();
  }

  private size(): number {
    return this.canvas.clientWidth || 1;
  }

  private least(): number {
    return this.size() / this.longest;
  }

  private whole(): void {
    this.scale = this.least();
    this.origin = { query: 0, key: 0 };
    this.draw();
  }

  private zoom(by: number, x = this.size() / 2, y = this.size() / 2): void {
    const before = this.scale;
    this.scale = Math.max(this.least(), Math.min(Math.max(28, this.least()), before * by));
    this.origin.key += x / before - x / this.scale;
    this.origin.query += y / before - y / this.scale;
    this.bound();
  }

  private bound(): void {
    const room = Math.max(0, this.longest - this.size() / this.scale);
    this.origin.key = Math.max(0, Math.min(room, this.origin.key));
    this.origin.query = Math.max(0, Math.min(room, this.origin.query));
    this.draw();
  }

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    const box = this.canvas.getBoundingClientRect();
    this.zoom(2 ** (-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
  }

  private drag(down: PointerEvent): void {
    const [x, y, start] = [down.clientX, down.clientY, { ...this.origin }];
    let moved = false;
    this.canvas.setPointerCapture(down.pointerId);
    const move = (event: PointerEvent) => {
      const [dx, dy] = [event.clientX - x, event.clientY - y];
      moved ||= Math.hypot(dx, dy) > 4;
      if (!moved) return;
      this.origin = { key: start.key - dx / this.scale, query: start.query - dy / this.scale };
      this.bound();
    };
    const up = (event: PointerEvent) => {
      this.canvas.removeEventListener("pointermove", move);
      this.canvas.removeEventListener("pointerup", up);
      const { query, key } = this.under(event);
      if (!moved && query < this.at.place.queries) this.choose(query, key);
    };
    this.canvas.addEventListener("pointermove", move);
    this.canvas.addEventListener("pointerup", up);
  }

  private key(event: KeyboardEvent): void {
    const step = 60 / this.scale;
    const moves: Record<string, [number, number]> = {
      ArrowLeft: [0, -step], ArrowRight: [0, step], ArrowUp: [-step, 0], ArrowDown: [step, 0],
    };
    const move = moves[event.key];
    if (move) {
      this.origin.query += move[0];
      this.origin.key += move[1];
      this.bound();
    } else if (event.key === "+" || event.key === "=") this.zoom(2);
    else if (event.key === "-") this.zoom(0.5);
    else if (event.key === "0") this.whole();
    else return;
    event.preventDefault();
  }

  private under(event: PointerEvent): { query: number; key: number } {
    const box = this.canvas.getBoundingClientRect();
    return {
      query: Math.floor(this.origin.query + (event.clientY - box.top) / this.scale),
      key: Math.floor(this.origin.key + (event.clientX - box.left) / this.scale),
    };
  }

  private hover(event: PointerEvent): void {
    const { query, key } = this.under(event);
    const [from, to] = [this.names.queries[query], this.names.keys[key]];
    if (from === undefined || to === undefined) {
      this.readout.textContent = "\u00a0";
      return;
    }
    const level = this.level();
    const span = CELLS << level;
    const tile = this.kept.get(this.name(level, Math.floor(query / span), Math.floor(key / span)));
    const cell = tile && tile.values[((query % span) >> level) * tile.columns + ((key % span) >> level)];
    const about = level > 0 ? ` (${say("strongest")})` : "";
    this.readout.textContent = `${query} ${visible(from)} → ${key} ${visible(to)}`
      + (cell === null || cell === undefined ? "" : `  ${weight(cell)}${about}`);
  }

  /** The level at which a cell is about a pixel or more. */
  private level(): number {
    const levels = Math.max(0, Math.ceil(Math.log2(this.longest / CELLS)));
    const wanted = Math.round(Math.log2(1 / (this.scale * (devicePixelRatio || 1))));
    return Math.max(0, Math.min(levels, wanted));
  }

  private name(level: number, row: number, column: number): string {
    return `${level} ${row} ${column}`;
  }

  /** A tile if it is there; otherwise it is wanted. */
  private tile(level: number, row: number, column: number): Tile | null {
    const name = this.name(level, row, column);
    const found = this.kept.get(name);
    if (found === undefined) {
      this.wanted.push([level, row, column]);
      return null;
    }
    this.kept.delete(name);
    this.kept.set(name, found);
    return found;
  }

  /** Asks for what is in sight, a few at a time: what has been scrolled past is asked for no more. */
  private fetch(): void {
    for (const at of this.wanted) {
      if (this.asked.size >= TOGETHER) return;
      const name = this.name(...at);
      if (this.asked.has(name)) continue;
      this.asked.add(name);
      void this.ask(...at).then((tile) => {
        this.asked.delete(name);
        this.kept.set(name, tile);
        for (const oldest of this.kept.keys()) {
          if (this.kept.size <= KEPT) break;
          this.kept.delete(oldest);
        }
        this.draw();
      });
    }
  }

  private async ask(level: number, row: number, column: number): Promise<Tile | null> {
    const { place, layer, head } = this.at;
    try {
      const { header, arrays } = await packed(this.source, this.reading, "tile", [
        ["site", place.site], ["layer", layer], ["head", head], ["zoom", level], ["row", row], ["column", column],
      ]);
      const [rows, columns] = [Number(header.rows), Number(header.columns)];
      const values = arrays.get("weights")!;
      return { picture: picture(values, columns, rows), values, rows, columns };
    } catch {
      // A saved page has no finer tiles; the coarser picture stays.
      return null;
    }
  }

  private paint(): void {
    const context = this.canvas.getContext("2d");
    if (!context || !this.canvas.width) return;
    const ratio = devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.size(), this.size());
    context.imageSmoothingEnabled = false;
    const top = Math.max(0, Math.ceil(Math.log2(this.longest / CELLS)));
    const level = this.level();
    this.wanted = [];
    if (this.small) {
      const { queries, keys } = this.at.place;
      context.drawImage(this.small, -this.origin.key * this.scale, -this.origin.query * this.scale,
        keys * this.scale, queries * this.scale);
    }
    // The coarsest first, over which finer ones are laid as they come.
    for (const at of level === top ? [top] : [top, level]) this.layer(context, at);
    if (!this.ended) this.fetch();
    context.strokeStyle = getComputedStyle(this.canvas).getPropertyValue("--accent");
    context.lineWidth = 1.5;
    for (const query of [...this.chosen].slice(0, 200)) {
      const y = (query - this.origin.query) * this.scale;
      context.strokeRect(-2, y, this.at.place.keys * this.scale + 4, Math.max(1, this.scale));
    }
  }

  private layer(context: CanvasRenderingContext2D, level: number): void {
    const { queries, keys } = this.at.place;
    const span = CELLS << level;
    const shown = this.size() / this.scale;
    const range = (from: number, length: number): [number, number] =>
      [Math.floor(from / span), Math.min(Math.ceil(length / span), Math.ceil((from + shown) / span))];
    const [row0, row1] = range(this.origin.query, queries);
    const [column0, column1] = range(this.origin.key, keys);
    for (let row = row0; row < row1; row++) {
      for (let column = column0; column < column1; column++) {
        const tile = this.tile(level, row, column);
        if (!tile) continue;
        const [x, y] = [column * span - this.origin.key, row * span - this.origin.query];
        const wide = Math.min(tile.columns << level, keys - column * span);
        const high = Math.min(tile.rows << level, queries - row * span);
        context.drawImage(tile.picture, 0, 0, tile.columns, tile.rows,
          x * this.scale, y * this.scale, wide * this.scale, high * this.scale);
      }
    }
  }
}
