// Where answers come from: a server, a module in the page, or answers in it. Views know this file and none of the three.

import { unpack, type Packed } from "./packed";

export type Pairs = [string, string | number][];

export interface Opening { text: string; target?: string; changes?: string[]; first?: number }

export interface Layer {
  heads: number; score: string; pattern: string; position: string[]; scores: boolean;
}

export interface Place { site: string; queries: number; keys: number; layers: Layer[] }

export interface About {
  family: "decoder" | "encoder" | "encoder-decoder";
  words: string[];
  parameters: number; step: number; layers: number; width: number; vocabulary: number;
  longest: number | null; classes: number; first: number;
  position: unknown[];
  sites: Place[];
}

export interface Text {
  tokens: string[]; ids: number[]; special: number[]; source: string[]; blank: boolean;
}

/** A run that has read a text. */
export interface Reading {
  id: string;
  run: string;
  opening: Opening;
  /** What was changed, in fewer words than the opening has. */
  changed?: string[];
  about: About;
  text: Text;
}

export interface Told { id: number; text: string; log: number; rank?: number }

export interface Next { top: Told[]; others: [number, number][]; actual: Told | null }

export interface Setting { key: string; doc: string; default?: unknown; choices?: Choice[] }
export interface Choice { name: string; summary: string[]; fields: Setting[] }

/** What may be asked, whoever answers. */
export interface Source {
  /** Whether texts can be read and settings be changed; otherwise there is what was saved. */
  readonly live: boolean;
  /** Whether there are runs and comparisons of folders. */
  readonly folders: boolean;
  /** A text to begin with, where there is none of the reader's. */
  readonly sample: string | null;
  /** Names of the runs that can be opened. */
  runs(): Promise<string[]>;
  /** What was saved; nothing on a server. */
  saved(): Promise<Reading[]>;
  open(run: string, opening: Opening): Promise<Reading>;
  ask(reading: Reading, what: string, pairs: Pairs): Promise<ArrayBuffer>;
  /** Encodings and patterns, without a model. */
  choices(what: string, pairs: Pairs): Promise<ArrayBuffer>;
  /** Runs and comparisons of a folder. */
  folder(what: string, pairs: Pairs): Promise<ArrayBuffer>;
  /** Goes on after a text. */
  write(run: string, prompt: string, tokens: number, temperature: number, topP: number):
    Promise<string>;
}

/** What a saved page does not hold. */
export class NotSaved extends Error {}

export const json = <T>(buffer: ArrayBuffer): T =>
  JSON.parse(new TextDecoder().decode(buffer)) as T;

export const query = (pairs: Pairs): string =>
  pairs.map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`).join("&");

/** Keeps the last answers, so that going back asks nothing again and memory stays flat. */
export class Kept<T> {
  private readonly found = new Map<string, Promise<T>>();
  constructor(private readonly most: number) {}

  get(key: string, make: () => Promise<T>): Promise<T> {
    const before = this.found.get(key);
    if (before) {
      this.found.delete(key);
      this.found.set(key, before);
      return before;
    }
    const made = make();
    this.found.set(key, made);
    made.catch(() => this.found.delete(key));
    for (const oldest of this.found.keys()) {
      if (this.found.size <= this.most) break;
      this.found.delete(oldest);
    }
    return made;
  }
}

const kept = new Kept<Packed>(96);

/** A packed answer, or the one of before. */
export function packed(
  source: Source, reading: Reading, what: string, pairs: Pairs,
): Promise<Packed> {
  const key = `${reading.id} ${what}?${query(pairs)}`;
  return kept.get(key, async () => unpack(await source.ask(reading, what, pairs)));
}
