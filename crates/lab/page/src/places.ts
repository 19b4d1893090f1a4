// Which attention, layer and head is looked at.

import { select } from "./dom";
import type { About, Layer, Place } from "./source";
import { go, index, state } from "./state";
import { say, type Word } from "./words";

export interface Chosen { place: Place; layer: number; head: number; of: Layer }

/** The attention that the state names; the first of the model where it names none. */
export function chosenPlace(about: About): Chosen {
  const usual = about.sites.find((place) => place.site === "decoder") ?? about.sites[0]!;
  const place = about.sites.find((place) => place.site === state().site) ?? usual;
  const layer = index("layer", place.layers.length);
  const of = place.layers[layer]!;
  return { place, layer, head: index("head", of.heads), of };
}

/** Fields to choose them by. */
export function placeFields(about: About): HTMLElement[] {
  const { place, layer, head, of } = chosenPlace(about);
  const numbers = (count: number): [string, string][] =>
    Array.from({ length: count }, (_, i) => [String(i), String(i)]);
  const fields = [];
  if (about.sites.length > 1) {
    fields.push(select(say("site"), about.sites.map((p) => [p.site, say(p.site as Word)]), place.site,
      (site) => go({ site, layer: null, head: null, at: null, rows: null })));
  }
  fields.push(select(say("layer"), numbers(place.layers.length), String(layer), (layer) => go({ layer })),
    select(say("head"), numbers(of.heads), String(head), (head) => go({ head })));
  return fields;
}

/** Numbers and ranges as the address has them, `3,7,10-12`. */
export function parseList(text: string | undefined, end: number): Set<number> {
  const found = new Set<number>();
  for (const part of (text ?? "").split(",").filter(Boolean)) {
    const [first, last = first] = part.split("-").map(Number);
    for (let i = first!; i <= Math.min(last!, end - 1); i++) if (i >= 0) found.add(i);
  }
  return found;
}

/** The same back, with neighbors as ranges. */
export function formatList(list: Iterable<number>): string {
  const sorted = [...list].sort((a, b) => a - b);
  const parts: [number, number][] = [];
  for (const at of sorted) {
    const last = parts[parts.length - 1];
    if (last && last[1] === at - 1) last[1] = at;
    else parts.push([at, at]);
  }
  return parts.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}
