// A score as content + position + interaction, for one reading or two side by side.

import { named, type App, type Shown } from "../app";
import { plot, type Curve } from "../charts";
import { h, notice, segments, select } from "../dom";
import { remark, term } from "../korean";
import { chosenPlace, formatList, parseList, placeFields } from "../places";
import { apology, busy } from "../said";
import { json, packed, type Choice, type Reading } from "../source";
import { go, index, state } from "../state";
import { Tokens } from "../tokens";
import { figure, say, visible, weight } from "../words";
import { sides } from "./heads";
import { changesOf, fields, partsOf, type Changes } from "../settings";

const KINDS = ["content", "position", "interaction"] as const;
type Kind = (typeof KINDS)[number];

/** Keys that are shown as bars, and those of them that a reader may pick. */
const SHOWN = 10;
const PICKED = 40;

/** Positions a text is moved by at a click. */
const SLIDE = 1000;

interface Row {
  kinds: Record<Kind, Float32Array>;
  score: Float32Array;
  weight: Float32Array;
  terms: { name: string; kind: Kind; meaning: string; values: Float32Array }[];
  note: string | null;
}

/** The keys that were picked, whatever their weight. */
const picked = (reading: Reading): Set<number> =>
  parseList(state().keys, chosenPlace(reading.about).place.keys);

export function split(app: App, root: HTMLElement): Shown {
  const controls = h("div", { class: "row" });
  const beside = h("details", { class: "beside", open: app.b !== null || !!state().bset });
  const body = h("div", {});
  const reading = app.a!;
  root.append(controls, beside, body);
  let turn = 0;
  let text: { query: Tokens; key: Tokens } | null = null;
  let site = "";

  function frame(): void {
    const at = chosenPlace(reading.about);
    controls.replaceChildren(...placeFields(reading.about),
      h("label", { class: "check" }, h("input", {
        type: "checkbox", checked: state().raw === undefined,
        onchange: (event: Event) => go({ raw: (event.target as HTMLInputElement).checked ? null : 1 }),
      }), say("centered")),
      h("ul", { class: "legend" }, KINDS.map((kind) => h("li", {}, h("i", { class: `swatch ${kind}` }), say(kind)))));
    const names = sides(reading, at.place.site);
    if (!text || site !== at.place.site) {
      site = at.place.site;
      text = {
        query: new Tokens(names.queries, say("pickToken"), (at) => go({ at })),
        key: new Tokens(names.keys, say("pickKey"), (key) => toggle(key)),
      };
    }
    const last = at.place.queries - 1;
    text.query.mark(new Set([index("at", at.place.queries, last)]));
    text.key.mark(picked(reading));
  }

  /** The text to choose in, and which of the two of a pair a click chooses. */
  function pair(): HTMLElement {
    const { place } = chosenPlace(reading.about);
    const isKey = state().pick === "key";
    const number = h("input", { type: "number", min: 0, max: place.keys - 1, size: 6, "aria-label": say("keyNumber"),
      onchange: () => {
        const key = Number(number.value);
        if (number.value && Number.isInteger(key) && key >= 0 && key < place.keys) toggle(key, true);
      } });
    return h("div", {},
      h("div", { class: "row" },
        segments(say("pair"), [["query", say("pickQuery")], ["key", say("pickKey")]], isKey ? "key" : "query",
          (pick) => go({ pick: pick === "key" ? pick : null })),
        h("label", { class: "field" }, h("span", {}, say("keyNumber")), number),
        picked(reading).size > 0 && h("button", { type: "button", class: "quiet", onclick: () => go({ keys: null }) }, say("clear"))),
      text![isKey ? "key" : "query"].element);
  }

  function toggle(key: number, stays = false): void {
    const keys = picked(reading);
    if (keys.has(key) && !stays) keys.delete(key);
    else keys.add(key);
    go({ keys: formatList([...keys].slice(-PICKED)) });
  }

  async function update(): Promise<void> {
    const own = ++turn;
    frame();
    const at = chosenPlace(reading.about);
    if (!at.of.scores) return body.replaceChildren(notice(say("noScores")));
    const query = index("at", at.place.queries, at.place.queries - 1);
    if (!body.childElementCount) body.replaceChildren(busy(say("loading")));
    try {
      const both = [reading, ...(app.b ? [app.b] : [])];
      const rows = await Promise.all(both.map((r) => row(app, r, query)));
      if (own !== turn) return;
      const shares = h("div", { class: "perhead" });
      body.replaceChildren(h("div", { class: "columns" },
        h("div", {}, pair(), shares),
        h("div", {}, bars(both, rows, query), along(both, rows), terms(rows[0]!))));
      void perHead(app, both, shares, () => own !== turn);
    } catch (error) {
      if (own === turn) body.replaceChildren(pair(), apology(error));
    }
  }

  fillBeside(app, beside);
  void update();
  return { update: () => void update() };
}

async function row(app: App, reading: Reading, query: number): Promise<Row> {
  const { place, layer, head } = chosenPlace(reading.about);
  const { header, arrays } = await packed(app.source, reading, "split",
    [["site", place.site], ["layer", layer], ["head", head], ["at", Math.min(query, place.queries - 1)]]);
  const score = arrays.get("score")!;
  const empty = () => new Float32Array(score.length);
  const kinds: Row["kinds"] = { content: empty(), position: empty(), interaction: empty() };
  const terms = (header.terms as Row["terms"]).map((term) => ({ ...term, values: arrays.get(term.name)! }));
  for (const { kind, values } of terms) {
    values.forEach((value, key) => { kinds[kind][key]! += value; });
  }
  if (state().raw === undefined) for (const values of [...Object.values(kinds), score]) center(values, arrays.get("score")!);
  return { kinds, score, weight: arrays.get("weight")!, terms, note: header.note as string | null };
}

/** Takes away the mean over the keys that are seen; kept answers are not touched. */
function center(values: Float32Array, score: Float32Array): void {
  let [sum, count] = [0, 0];
  values.forEach((value, key) => {
    if (Number.isFinite(score[key]!)) {
      sum += value;
      count += 1;
    }
  });
  values.forEach((value, key) => { values[key] = value - sum / (count || 1); });
}

/** The keys with most weight, each as stacked bars to both sides of zero. */
function bars(both: Reading[], rows: Row[], query: number): HTMLElement {
  const { place } = chosenPlace(both[0]!.about);
  const names = sides(both[0]!, place.site);
  const total = names.keys.map((_, key) => rows.reduce((sum, row) => sum + (row.weight[key] ?? 0), 0));
  const own = picked(both[0]!);
  const strongest = total.map((_, key) => key).filter((key) => Number.isFinite(rows[0]!.score[key]!) && !own.has(key))
    .sort((a, b) => total[b]! - total[a]!).slice(0, SHOWN);
  const shown = [...own, ...strongest];
  const seen = (row: Row, key: number) => Number.isFinite(row.score[key]!);
  const reach = Math.max(1e-6, ...rows.flatMap((row) => shown.filter((key) => seen(row, key)).map((key) => {
    const parts = KINDS.map((kind) => row.kinds[kind][key]!);
    const sum = (sign: number) => Math.abs(parts.reduce((s, v) => s + (v * sign > 0 ? v : 0), 0));
    return Math.max(sum(1), sum(-1));
  })));
  const line = (row: Row, key: number): HTMLElement => {
    let [right, left] = [50, 50];
    const parts = KINDS.map((kind) => {
      const wide = Math.abs(row.kinds[kind][key]!) / reach * 50;
      const isRight = row.kinds[kind][key]! >= 0;
      const at = isRight ? right : left - wide;
      if (isRight) right += wide;
      else left -= wide;
      return h("i", { class: kind, style: `left:${at.toFixed(2)}%;width:${wide.toFixed(2)}%`,
        title: `${say(kind)} ${figure(row.kinds[kind][key]!)}` });
    });
    return h("span", { class: "stack" }, parts);
  };
  return h("section", {},
    h("h2", {}, h("code", {}, visible(names.queries[query] ?? "")), " ", say("looksAt")),
    rows.length > 1 && h("p", { class: "dim" }, both.map((r, i) => `${"AB"[i]} = ${named(r)}`).join(", ")),
    rows.length > 1 && h("p", { class: "moved" }, `${say("moved")}: `, KINDS.map((kind) =>
      h("span", {}, h("i", { class: `swatch ${kind}` }), `${say(kind)} `, h("strong", {}, figure(moved(rows, kind)))))),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": say("strongestKeys") }, h("table", { class: "split" },
      h("thead", {}, h("tr", {}, rows.length > 1 && h("th", {}, ""), h("th", { class: "words" }, say("key")), h("th", {}, ""),
        ...KINDS.map((kind) => h("th", {}, say(kind))), h("th", {}, say("score")), h("th", {}, say("weight")))),
      h("tbody", {}, shown.map((key) => rows.map((row, i) => h("tr", {
        class: `${i ? "second" : "first"}${own.has(key) ? " picked" : ""}`,
      },
        rows.length > 1 && h("td", { class: "dim" }, "AB"[i]!),
        h("td", { class: "words" }, i === 0 && h("code", {}, visible(names.keys[key]!), h("sub", {}, String(key)))),
        seen(row, key) ? [
          h("td", { class: "stackcell" }, line(row, key)),
          KINDS.map((kind) => h("td", {}, figure(row.kinds[kind][key]!))),
          h("td", {}, h("strong", {}, figure(row.score[key]!))), h("td", {}, weight(row.weight[key]!)),
        ] : h("td", { class: "dim words", colspan: KINDS.length + 3 }, say("hidden")))))))),
    h("p", { class: "dim" }, state().raw === undefined ? say("centeredSaid") : ""));
}

/** How far a kind is from what it was, the root of the mean square over the keys that are seen. */
function moved([a, b]: Row[], kind: Kind): number {
  let [sum, count] = [0, 0];
  a!.kinds[kind].forEach((value, key) => {
    const other = b!.kinds[kind][key];
    if (other === undefined || !Number.isFinite(a!.score[key]!) || !Number.isFinite(b!.score[key]!)) return;
    sum += (value - other) ** 2;
    count += 1;
  });
  return Math.sqrt(sum / (count || 1));
}

/** The three kinds for every key; of a second reading dashed. */
function along(both: Reading[], rows: Row[]): HTMLElement {
  const curves: Curve[] = rows.flatMap((row, i) => KINDS.map((kind, color) => ({
    name: rows.length > 1 ? `${"AB"[i]} ${say(kind)}` : say(kind),
    color, dashed: i > 0,
    points: Array.from(row.kinds[kind], (value, key): [number, number] =>
      [key, Number.isFinite(row.score[key]!) ? value : NaN]),
  })));
  const { place } = chosenPlace(both[0]!.about);
  return plot({ title: `${say("alongText")} (${place.keys} ${say("tokens")})`, x: say("key"), y: say("score"), curves });
}

/** What the terms are, in the words of the program. */
function terms(row: Row): HTMLElement {
  return h("dl", { class: "terms" }, row.terms.map((of) => {
    const [name, meaning] = term(of.name, of.meaning);
    return [h("dt", {}, h("i", { class: `swatch ${of.kind}` }), name), h("dd", {}, meaning)];
  }), row.note && h("dd", { class: "note" }, remark(row.note)));
}

interface Spread { content: number; position: number; interaction: number; score: number }

/** How much each kind tells keys apart, for all heads of the layer. */
async function perHead(app: App, both: Reading[], root: HTMLElement, ended: () => boolean): Promise<void> {
  try {
    const found = await Promise.all(both.map(async (reading) => {
      const { place, layer } = chosenPlace(reading.about);
      return json<{ heads: Spread[] }>(await app.source.ask(reading, "heads", [["site", place.site], ["layer", layer]])).heads;
    }));
    if (ended()) return;
    const { head } = chosenPlace(both[0]!.about);
    const most = Math.max(1e-6, ...found.flat().map((s) => s.content + s.position + s.interaction));
    const bar = (spread: Spread) => h("span", { class: "stack plain" }, KINDS.map((kind) =>
      h("i", { class: kind, style: `width:${(100 * spread[kind] / most).toFixed(2)}%`, title: `${say(kind)} ${figure(spread[kind])}` })));
    root.replaceChildren(h("h2", {}, say("perHead")), h("ol", { class: "heads" },
      found[0]!.map((spread, i) => h("li", {}, h("button", {
        type: "button", "aria-pressed": String(i === head), onclick: () => go({ head: i }),
        "aria-label": `${say("head")} ${i}: ${KINDS.map((k) => `${say(k)} ${figure(spread[k])}`).join(", ")}`,
      }, String(i)), h("span", {}, bar(spread), found[1]?.[i] && bar(found[1][i]!))))));
  } catch {
    // A saved page of a long text has none.
  }
}

/** What stands beside: the text moved, other settings, or another run. */
function fillBeside(app: App, root: HTMLDetailsElement): void {
  const reading = app.a!;
  root.append(h("summary", {}, say("beside"), ": ", h("strong", {}, app.b ? named(app.b) : say("nothingBeside"))));
  if (!app.source.live) {
    const others = app.saved.filter((other) => other !== reading);
    if (!others.length) return root.remove();
    root.append(select(say("beside"), [["", say("nothingBeside")],
      ...others.map((r): [string, string] => [r.id, named(r)])], app.b?.id ?? "", (b) => go({ b: b || null })));
    return;
  }
  const first = Number(state().bfirst ?? 0);
  const row = h("div", { class: "row" },
    h("span", { class: "field" }, h("span", {}, say("slide")),
      h("button", { type: "button", "aria-label": `−${SLIDE}`, disabled: first < SLIDE, onclick: () => go({ bfirst: first - SLIDE || null }) }, "−"),
      h("output", {}, String(first)),
      h("button", { type: "button", "aria-label": `+${SLIDE}`, onclick: () => go({ bfirst: first + SLIDE }) }, "+"),
      h("span", { class: "dim" }, say("positions"))),
    app.runs.length > 1 && select(say("otherRun"), app.runs.map((run) => [run, run]), state().brun ?? reading.run,
      (run) => go({ brun: run === reading.run ? null : run, bset: null })),
    (app.b || state().bset) && h("button", { type: "button", class: "quiet", onclick: () => go({ brun: null, bset: null, bfirst: null }) }, say("clear")));
  root.append(row);
  void settings(app, app.unchanged ?? reading, root);
}

async function settings(app: App, reading: Reading, root: HTMLElement): Promise<void> {
  const parts = partsOf(reading.about.position);
  const all = json<{ position: Choice[] }>(await app.source.choices("choices", [])).position;
  const choices = parts.map((part) => all.find((choice) => choice.name === part.kind));
  if (!choices.some((choice) => choice?.fields.length)) return;
  // One is set by its own keys, several as a list.
  const isOne = parts.length === 1;
  const prefix = isOne ? "model.attention.position." : "model.attention.";
  const given = changesOf(state().bset?.split(";") ?? [], prefix);
  const change = (changes: Changes) => go({
    bset: Object.entries(changes).map(([key, value]) => `${prefix}${key}=${value}`).join(";") || null,
  });
  const { width, sites } = reading.about;
  const pairs = Math.max(1, Math.floor(width / (2 * (sites[0]?.layers[0]?.heads ?? 1))));
  const { kind: _, ...own } = parts[0]!;
  const shown = isOne ? { settings: choices[0]!.fields, now: own }
    : { settings: [{ key: "position", doc: "", default: parts }], free: false };
  root.append(h("fieldset", {}, h("legend", {}, `${say("settings")}: ${parts.map((part) => part.kind).join(" · ")}`),
    fields({ ...shown, given, change, all, pairs })));
}
