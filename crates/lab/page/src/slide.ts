// How far a setting's slider goes, and what it says at each place.

import type { Setting } from "./source";

export interface Slide {
  low: number; high: number; step: number;
  /** What it begins with where the schema has no default. */
  start: string;
  /** Where it stands for what is written, and back. */
  place(written: string): number;
  value(place: number): string;
}

/** How far a slider goes to both sides of what a number is without it, as a power of two. */
const FAR = 4;

/** An eighth of a doubling. */
const STEP = 0.125;

/** How far one goes that begins at nothing. */
const REACH = 128;

/** What settings without a default begin at. */
const STARTS: Record<string, number> = {
  factor: 4, length: 256, attention_factor: 1, mscale: 1, mscale_all_dim: 1, grid: 16, positions: 4,
};

/** Of these, and of others, what need not be whole. */
const PARTS = new Set(["factor", "attention_factor", "mscale", "mscale_all_dim"]);

/** Lists with a number for each pair of channels, and what the last of them begins at. */
const LISTS: Record<string, number> = { short_factor: 1, long_factor: 4 };

/** The slider of a setting; nothing where it is no number. */
export function numeric(setting: Setting, usual: unknown, pairs: number): Slide | null {
  const name = setting.key.split(".").at(-1)!;
  if (name in LISTS) return list(LISTS[name]!, pairs);
  const found = usual ?? STARTS[name];
  if (/^Share of/.test(setting.doc)) return share(Array.isArray(found) ? 1 : Number(found));
  if (typeof found !== "number") return null;
  if (found === 0) {
    // Few settings have a sense below nothing; those say so.
    const low = /negative/.test(setting.doc) ? -REACH : 0;
    return { low, high: REACH, step: 1, start: "0", place: (written) => Number(written) || 0, value: String };
  }
  return power(found, Number.isInteger(found) && !PARTS.has(name));
}

/** A size, by its logarithm. */
function power(usual: number, whole: boolean): Slide {
  // Larger sizes are even: some must be, and none is harmed.
  const rounded = (size: number) => (size < 8 ? Math.max(1, Math.round(size)) : 2 * Math.round(size / 2));
  const written = (size: number) => String(whole ? rounded(size) : +size.toPrecision(4));
  return {
    // Below one there is no whole number; what it is without a change is one of the steps.
    low: whole ? Math.max(-FAR, -Math.floor(Math.log2(usual) / STEP) * STEP) : -FAR, high: FAR, step: STEP, start: written(usual),
    place: (text) => Math.log2((Number(text) || usual) / usual),
    value: (place) => written(usual * 2 ** place),
  };
}

/** Of a head's channels, or of the heads. */
function share(usual: number): Slide {
  return {
    low: 0.125, high: 1, step: 0.125, start: String(usual),
    // Of `[from, to]` the end.
    place: (text) => Number(text.replace(/[[\]\s]/g, "").split(",").at(-1)) || usual, value: String,
  };
}

/** A number for each pair, growing from 1 to the last, which is what slides. */
function list(last: number, pairs: number): Slide {
  const written = (end: number) =>
    `[${Array.from({ length: pairs }, (_, i) => +(end ** (pairs > 1 ? i / (pairs - 1) : 1)).toPrecision(3)).join(", ")}]`;
  return {
    low: 0, high: 2 * FAR, step: STEP, start: written(last),
    place: (text) => Math.log2(Number(text.replace(/[[\]\s]/g, "").split(",").at(-1)) || last),
    value: (place) => written(2 ** place),
  };
}
