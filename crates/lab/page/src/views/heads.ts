// Every head at a glance, one of them as a map, and what chosen tokens look at.

import type { App, Shown } from "../app";
import { paint, strong } from "../color";
import { h, notice, segments } from "../dom";
import { chosenPlace, formatList, parseList, placeFields } from "../places";
import { apology, busy } from "../said";
import { packed, type Reading } from "../source";
import { go, link, state } from "../state";
import { SMALL, Tiles } from "../tiles";
import { Tokens } from "../tokens";
import { say, visible, weight, type Word } from "../words";

/** Keys that are named. */
const NAMED = 12;

export function heads(app: App, root: HTMLElement): Shown {
  const overview = h("section", { class: "overview" });
  const one = h("section", { class: "one" });
  root.append(overview, one);
  let ended = false;
  const reading = app.a!;
  void thumbnails(app, reading, overview, () => ended);
  let head = shown(app, reading, one);
  return {
    update: (before) => {
      const changed = (names: string[]) => names.some((name) => state()[name] !== before[name]);
      if (changed(["site", "layer", "head", "direction"])) {
        head.end();
        head = shown(app, reading, one);
        marked(overview, reading);
      } else if (changed(["rows"])) {
        head.update();
      }
    },
    end: () => {
      ended = true;
      head.end();
    },
  };
}

/** All heads, layer by layer as they come. */
async function thumbnails(
  app: App, reading: Reading, root: HTMLElement, ended: () => boolean,
): Promise<void> {
  root.append(h("h2", {}, say("overview")));
  for (const place of reading.about.sites) {
    if (reading.about.sites.length > 1) root.append(h("h3", {}, say(place.site as Word)));
    const grid = h("div", { class: "thumbnails", tabindex: 0, role: "region", "aria-label": say("overview") });
    root.append(grid);
    for (const [layer, of] of place.layers.entries()) {
      const row = h("div", { class: "thumbrow", role: "group", "aria-label": `${say("layer")} ${layer}` },
        h("span", { class: "rowname" }, String(layer)));
      grid.append(row);
      if (!of.scores) {
        row.append(h("span", { class: "dim" }, say("noScores")));
        continue;
      }
      const places = Array.from({ length: of.heads }, (_, head) => {
        const canvas = h("canvas", { width: 1, height: 1 });
        const button = h("button", {
          type: "button", class: "thumb", "data-place": `${place.site} ${layer} ${head}`,
          "aria-label": `${say("layer")} ${layer}, ${say("head")} ${head}`,
          title: `${say("layer")} ${layer}, ${say("head")} ${head}`,
          onclick: () => go({ site: place.site, layer, head }),
        }, canvas);
        row.append(button);
        return canvas;
      });
      try {
        const { header, arrays } = await packed(app.source, reading, "layer",
          [["site", place.site], ["layer", layer], ["cells", SMALL]]);
        if (ended()) return;
        const [rows, columns] = [Number(header.rows), Number(header.columns)];
        places.forEach((canvas, head) => {
          const values = arrays.get(String(head))!;
          Object.assign(canvas, { width: columns, height: rows });
          canvas.getContext("2d")!.putImageData(paint(values, columns, rows, strong(values)), 0, 0);
        });
      } catch (error) {
        if (ended()) return;
        row.append(apology(error));
      }
      marked(root, reading);
    }
  }
}

function marked(root: HTMLElement, reading: Reading): void {
  const { place, layer, head } = chosenPlace(reading.about);
  const name = `${place.site} ${layer} ${head}`;
  for (const button of root.querySelectorAll<HTMLElement>(".thumb")) {
    button.setAttribute("aria-pressed", String(button.dataset.place === name));
  }
}

/** The texts on both sides of an attention. */
export function sides(reading: Reading, site: string): { queries: string[]; keys: string[] } {
  const { tokens, source } = reading.text;
  if (site === "cross") return { queries: tokens, keys: source };
  if (site === "encoder" && source.length) return { queries: source, keys: source };
  return { queries: tokens, keys: tokens };
}

/** One head: its map, and the rows of chosen tokens. */
function shown(app: App, reading: Reading, root: HTMLElement): { update: () => void; end: () => void } {
  const at = chosenPlace(reading.about);
  root.replaceChildren();
  root.append(h("div", { class: "row" }, placeFields(reading.about),
    h("span", { class: "about" }, [at.of.score, at.of.pattern, ...at.of.position].join(" · "))));
  if (!at.of.scores) {
    root.append(notice(say("noScores")));
    return { update: () => undefined, end: () => undefined };
  }
  const names = sides(reading, at.place.site);
  const backwards = state().direction === "key";
  const choosing = backwards ? names.keys : names.queries;
  const answering = backwards ? names.queries : names.keys;
  // Without a choice the last token, which sees most.
  const asked = () => parseList(state().rows ?? String(choosing.length - 1), choosing.length);
  const toggle = (token: number, more: boolean) => {
    const rows = state().rows === undefined ? new Set<number>() : asked();
    const had = rows.has(token);
    if (!more) rows.clear();
    if (had && more) rows.delete(token);
    else rows.add(token);
    go({ rows: formatList(rows) });
  };
  const pair = h("p", { class: "pair" });
  const tiles = new Tiles(app.source, reading, at, names, (query, key) => {
    const found = names.keys[key];
    pair.replaceChildren(...found === undefined ? [] : [h("a", {
      href: link({ view: "split", at: String(query), keys: String(key) }),
    }, `${say("split")}: ${visible(names.queries[query]!)} → ${visible(found)}`)]);
    if (backwards) go({ direction: null, rows: String(query) });
    else toggle(query, false);
  });
  const both = at.place.site === "cross";
  let last = -1;
  const pick = (token: number, event: MouseEvent | KeyboardEvent) => {
    if (event.shiftKey && last >= 0) {
      const rows = asked();
      for (let i = Math.min(last, token); i <= Math.max(last, token); i++) rows.add(i);
      go({ rows: formatList([...rows].slice(0, 4096)) });
    } else {
      toggle(token, true);
    }
    last = token;
  };
  const choosers = new Tokens(choosing, say("pickToken"), pick);
  const answers = both ? new Tokens(answering, say("strongest"), () => undefined) : choosers;
  const list = h("div", { class: "strongest" });
  root.append(h("div", { class: "columns" }, h("div", {}, tiles.element, pair),
    h("div", {},
      h("div", { class: "row" }, segments(say("direction"),
        [["query", say("looksAt")], ["key", say("lookedAt")]], backwards ? "key" : "query",
        (direction) => go({ direction: direction === "key" ? "key" : null })),
        h("button", { type: "button", class: "quiet", onclick: () => go({ rows: null }) }, say("clear"))),
      choosers.element, both && answers.element, list)));

  let turn = 0;
  async function update(): Promise<void> {
    const own = ++turn;
    const rows = asked();
    choosers.mark(rows);
    if (!backwards) tiles.mark(rows);
    if (!rows.size) {
      answers.shade(new Float32Array(answering.length));
      return list.replaceChildren(notice(say("pickToken")));
    }
    if (!list.childElementCount) list.replaceChildren(busy(say("loading")));
    try {
      const { arrays } = await packed(app.source, reading, "rows", [
        ["site", at.place.site], ["layer", at.layer], ["head", at.head], ["at", formatList(rows)],
        ...(backwards ? [["of", "key"] as [string, string]] : []),
      ]);
      if (own !== turn) return;
      const weights = arrays.get("weights")!;
      const most = weights.reduce((a, b) => Math.max(a, b), 0) || 1;
      answers.shade(weights.map((weight) => weight / most), 0, "cool");
      list.replaceChildren(named(weights, answering, most, [...rows].map((i) => choosing[i]!), backwards));
    } catch (error) {
      if (own === turn) list.replaceChildren(apology(error));
    }
  }
  void update();
  return { update: () => void update(), end: () => tiles.end() };
}

function named(
  weights: Float32Array, tokens: string[], most: number, rows: string[], backwards: boolean,
): HTMLElement {
  const order = Array.from(weights.keys()).filter((i) => weights[i]! > 0)
    .sort((a, b) => weights[b]! - weights[a]!).slice(0, NAMED);
  const chosen = rows.slice(0, 6).map(visible).join(" ") + (rows.length > 6 ? " …" : "");
  return h("div", {},
    h("p", { class: "dim" }, h("code", {}, chosen), " ", say(backwards ? "lookedAt" : "looksAt")),
    h("ol", { class: "told" }, order.map((i) => h("li", {},
      h("code", {}, visible(tokens[i]!), h("sub", {}, String(i))),
      h("span", { class: "bar cool" }, h("i", { style: `width:${(100 * weights[i]! / most).toFixed(1)}%` })),
      h("span", { class: "number" }, weight(weights[i]!))))));
}

