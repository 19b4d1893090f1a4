// The text by surprise, and what else the model thought of.

import { plain, type App, type Shown } from "../app";
import { h, notice, slider } from "../dom";
import { apology, busy } from "../said";
import { json, packed, type Next, type Reading, type Told } from "../source";
import { bounded, go, index, SHARES, state, TEMPERATURES } from "../state";
import { Tokens } from "../tokens";
import { figure, percent, say, visible } from "../words";

/** Positions asked for at once. */
const TOGETHER = 4096;

/** Surprise that has full color: a chance of one in a thousand. */
const FULL = 10;

const NATS = Math.LN2;

export function text(app: App, root: HTMLElement): Shown {
  const reading = app.a!;
  const { about } = reading;
  const isEncoder = about.family === "encoder";
  const isPair = about.family === "encoder-decoder";
  const length = reading.text.tokens.length;
  const tokens = new Tokens(reading.text.tokens, isPair ? say("written") : say("text"),
    (at) => go({ at }));
  const source = isPair ? new Tokens(reading.text.source, say("source"), () => undefined) : null;
  const panel = h("aside", { class: "panel", "aria-live": "polite" });
  const legend = h("p", { class: "scale" }, say("expected"), h("i", { class: "ramp warm" }),
    say("surprising"), h("span", { class: "dim" }, ` ≥ ${FULL} ${say("bits")}`));
  root.append(h("div", { class: "columns" },
    h("div", {}, source && [h("h2", {}, say("source")), source.element,
      h("p", { class: "dim" }, say("alignment")), h("h2", {}, say("written"))],
    tokens.element, legend), panel));
  let ended = false;

  void color();
  async function color(): Promise<void> {
    if (about.classes > 0 || isEncoder && (!reading.text.blank || length > 512)) return legend.remove();
    try {
      for (let from = 0; from < length && !ended; from += TOGETHER) {
        const to = Math.min(from + TOGETHER, length);
        const { arrays } = await packed(app.source, reading, "surprise", [["from", from], ["to", to]]);
        const bits = arrays.get("surprise")!.map((nats) => nats / NATS);
        tokens.shade(bits.map((bits) => Math.min(1, bits / FULL)), from);
        bits.forEach((bits, i) => {
          if (Number.isFinite(bits)) tokens.title(from + i, `${figure(bits, 1)} ${say("bits")}`);
        });
      }
    } catch (error) {
      legend.replaceWith(apology(error));
    }
  }

  let turn = 0;
  async function choose(): Promise<void> {
    const own = ++turn;
    const end = isEncoder ? length : length + 1;
    const at = index("at", end, isEncoder ? 0 : length);
    tokens.mark(new Set(at < length ? [at] : []));
    if (source) void align(Math.min(at, length - 1));
    if (about.classes > 0) return panel.replaceChildren();
    if (at === 0 && !isEncoder) return panel.replaceChildren(notice(say("nothingBefore")));
    panel.replaceChildren(busy(say("loading")));
    try {
      const count = app.source.live ? 60 : 20;
      const found = json<Next>(await app.source.ask(reading, "next", [["at", at], ["count", count]]));
      if (own === turn) alternatives(found, at);
    } catch (error) {
      if (own === turn) panel.replaceChildren(apology(error));
    }
  }

  async function align(at: number): Promise<void> {
    const layers = about.sites.find((place) => place.site === "cross")?.layers.length ?? 0;
    if (!source || !layers) return;
    try {
      const { arrays } = await packed(app.source, reading, "rows",
        [["site", "cross"], ["layer", layers - 1], ["head", "all"], ["at", at]]);
      const weights = arrays.get("weights")!;
      const most = weights.reduce((a, b) => Math.max(a, b), 0);
      source.shade(weights.map((weight) => weight / most), 0, "cool");
    } catch {
      // A saved page of a long text has no rows.
    }
  }

  function alternatives(found: Next, at: number): void {
    let temperature = bounded("t", TEMPERATURES, 1);
    let topP = bounded("p", SHARES, 1);
    const list = h("ol", { class: "told" });
    const redraw = () => list.replaceChildren(...bars(found, temperature, topP, at));
    const title = at >= length ? say("next") : isEncoder ? say("blankSaid") : say("instead");
    const { actual } = found;
    panel.replaceChildren(
      h("h2", {}, title),
      actual && h("p", { class: "actual" }, h("code", {}, visible(actual.text)), " ",
        `${percent(Math.exp(actual.log))}, ${figure(-actual.log / NATS, 1)} ${say("bits")}, ${say("rank")} ${actual.rank}`) || "",
      h("div", { class: "controls" },
        slider(say("temperature"), [...TEMPERATURES, 0.05], temperature, (value) => {
          temperature = value;
          redraw();
        }, (value) => value.toFixed(2), (t) => go({ t })),
        slider(say("topP"), [...SHARES, 0.05], topP, (value) => {
          topP = value;
          redraw();
        }, (value) => value.toFixed(2), (p) => go({ p }))),
      list);
    redraw();
  }

  /** The distribution after temperature and top-p; what top-p leaves out is pale. */
  function bars(found: Next, temperature: number, topP: number, at: number): HTMLElement[] {
    const weights = found.top.map((told) => Math.exp(told.log / temperature));
    const rest = found.others.reduce((sum, [log, count]) => sum + count * Math.exp(log / temperature), 0);
    const all = weights.reduce((sum, weight) => sum + weight, rest);
    let before = 0;
    let kept = 0;
    const shares = weights.map((weight) => {
      const inside = before / all < topP - 1e-9;
      before += weight;
      if (inside) kept += weight;
      return { share: weight, inside };
    });
    const beyond = before / all < topP - 1e-9 ? rest : 0;
    kept += beyond;
    const most = (weights[0] ?? 1) / kept;
    const rows = shares.slice(0, 20).map(({ share, inside }, i) => {
      const told = found.top[i]!;
      const value = inside ? share / kept : 0;
      const isActual = told.id === found.actual?.id;
      return h("li", { class: `${inside ? "" : "out"}${isActual ? " own" : ""}` },
        h("code", {}, visible(told.text)),
        h("span", { class: "bar" }, h("i", { style: `width:${(100 * value / most).toFixed(1)}%` })),
        h("span", { class: "number" }, percent(value)),
        app.source.live && about.family === "decoder" && h("button", {
          class: "quiet", type: "button", title: say("goOn"), "aria-label": `${say("goOn")}: ${visible(told.text)}`,
          onclick: () => void goOn(reading, told, at, temperature, topP),
        }, "→"));
    });
    const hidden = shares.slice(20).reduce((sum, { share, inside }) => sum + (inside ? share : 0), beyond);
    rows.push(h("li", { class: "rest" }, h("span", {}, say("others")), h("span", {}),
      h("span", { class: "number" }, percent(hidden / kept))));
    return rows;
  }

  async function goOn(
    reading: Reading, told: Told, at: number, temperature: number, topP: number,
  ): Promise<void> {
    const prompt = plain(reading, at) + told.text;
    panel.prepend(busy(say("writing")));
    try {
      const more = await app.source.write(reading.run, prompt, 60, temperature, topP);
      go({ text: prompt + more, at }, false);
    } catch (error) {
      panel.prepend(apology(error));
    }
  }

  void choose();
  return {
    update: (before) => {
      if (before.at !== state().at) void choose();
    },
    end: () => {
      ended = true;
    },
  };
}
