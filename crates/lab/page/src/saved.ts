// A page with its data inside.

import { bytes } from "./base64";
import { unpack } from "./packed";
import { json, NotSaved, query, type About, type Opening, type Pairs, type Reading, type Source, type Text } from "./source";

interface Data {
  version: string;
  readings: { name: string; opening: Opening; answers: Record<string, string> }[];
  choices: Record<string, string>;
}

/** Tokens each way that a tile of single tokens has. */
const CELLS = 128;

const key = (what: string, pairs: Pairs): string =>
  pairs.length ? `${what}?${query(pairs)}` : what;

export class Saved implements Source {
  readonly live = false;
  readonly folders = false;
  readonly sample = null;

  constructor(private readonly data: Data) {}

  async runs(): Promise<string[]> {
    return [];
  }

  async saved(): Promise<Reading[]> {
    return this.data.readings.map(({ name, opening, answers }, index) => ({
      id: String(index),
      run: name,
      opening,
      about: json<About>(bytes(answers.about ?? "")),
      text: json<Text>(bytes(answers.text ?? "")),
    }));
  }

  open(): Promise<Reading> {
    return Promise.reject(new NotSaved());
  }

  async ask(reading: Reading, what: string, pairs: Pairs): Promise<ArrayBuffer> {
    const answers = this.data.readings[Number(reading.id)]?.answers ?? {};
    const found = answers[key(what, pairs)];
    if (found !== undefined) return bytes(found);
    if (what === "rows") return rows(reading, answers, Object.fromEntries(pairs));
    throw new NotSaved();
  }

  async choices(what: string, pairs: Pairs): Promise<ArrayBuffer> {
    const found = this.data.choices[key(what, pairs)];
    if (found === undefined) throw new NotSaved();
    return bytes(found);
  }

  folder(): Promise<ArrayBuffer> {
    return Promise.reject(new NotSaved());
  }

  write(): Promise<string> {
    return Promise.reject(new NotSaved());
  }
}

/** Rows from the tiles of single tokens, where all of them were saved. */
function rows(
  reading: Reading, answers: Record<string, string>, asked: Record<string, string | number>,
): ArrayBuffer {
  const place = reading.about.sites.find((place) => place.site === asked.site);
  const layer = place?.layers[Number(asked.layer)];
  if (!place || !layer) throw new NotSaved();
  const ofKey = asked.of === "key";
  const chosen = String(asked.at).split(",").flatMap((part) => {
    const [first, last] = part.split("-").map(Number);
    return Array.from({ length: (last ?? first!) - first! + 1 }, (_, i) => first! + i);
  });
  const heads = asked.head === "all" ? [...Array(layer.heads).keys()] : [Number(asked.head)];
  const length = ofKey ? place.queries : place.keys;
  const out = new Float32Array(length);
  for (const head of heads) {
    for (const at of chosen) {
      for (let start = 0; start < length; start += CELLS) {
        const [query, of] = ofKey ? [start, at] : [at, start];
        const name = key("tile", [
          ["site", place.site], ["layer", Number(asked.layer)], ["head", head], ["zoom", 0],
          ["row", Math.floor(query / CELLS)], ["column", Math.floor(of / CELLS)],
        ]);
        const found = answers[name];
        if (found === undefined) throw new NotSaved();
        const { header, arrays } = unpack(bytes(found));
        const [map, columns] = [arrays.get("weights")!, Number(header.columns)];
        for (let i = 0; i < CELLS && start + i < length; i++) {
          const cell = ofKey ? i * columns + (at % CELLS) : (at % CELLS) * columns + i;
          out[start + i]! += map[cell] ?? 0;
        }
      }
    }
  }
  const share = heads.length * (ofKey ? 1 : chosen.length);
  return packRow(out.map((sum) => sum / share));
}

function packRow(values: Float32Array): ArrayBuffer {
  const arrays = [{ name: "weights", kind: "f32", length: values.length }];
  let header = JSON.stringify({ rows: 1, columns: values.length, arrays });
  header = header.padEnd(Math.ceil(header.length / 4) * 4);
  const out = new Uint8Array(4 + header.length + 4 * values.length);
  new DataView(out.buffer).setUint32(0, header.length, true);
  out.set(new TextEncoder().encode(header), 4);
  out.set(new Uint8Array(values.buffer), 4 + header.length);
  return out.buffer;
}
