// What every view is given.

import type { Reading, Source } from "./source";
import type { State } from "./state";

export interface App {
  source: Source;
  /** The run that has read the text, and the one beside it. */
  a: Reading | null;
  b: Reading | null;
  /** What stands beside without its settings changed. */
  unchanged: Reading | null;
  /** What can stand beside, on a saved page. */
  saved: Reading[];
  runs: string[];
}

export interface Shown {
  /** The state has changed, but neither the view nor what was read. */
  update?: (before: State) => void;
  /** It is shown no longer. */
  end?: () => void;
}

export type View = (app: App, root: HTMLElement) => Shown;

/** The text of the first tokens, without those that are no text. */
export function plain(reading: Reading, until = Infinity): string {
  const special = new Set(reading.text.special);
  return reading.text.tokens.filter((_, i) => i < until && !special.has(i)).join("");
}

/** A reading in a few words. */
export function named(reading: Reading): string {
  const { changes, first } = reading.opening;
  return [reading.run, ...(reading.changed ?? changes ?? []).map((change) => change.replace("model.attention.", "")),
    first ? `+${first}` : ""].filter(Boolean).join(" · ");
}
