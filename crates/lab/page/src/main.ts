// The page: what is read, which view is shown, and in which language.

import { Alone } from "./alone";
import { named, plain, type App, type Shown, type View } from "./app";
import { h, notice, segments, select } from "./dom";
import { onTheme } from "./color";
import { about } from "./korean";
import { Saved } from "./saved";
import { Server } from "./server";
import { apology, busy } from "./said";
import { type Opening, type Reading, type Source } from "./source";
import { asked, changesOf } from "./settings";
import { bounded, go, link, listen, SHARES, state, TEMPERATURES } from "./state";
import { LANGUAGES, preferred, say, speak, type Word } from "./words";
import { choices } from "./views/choices";
import { heads } from "./views/heads";
import { runs } from "./views/runs";
import { split } from "./views/split";
import { text } from "./views/text";

const VIEWS: [Word, View, boolean][] = [
  ["text", text, true], ["heads", heads, true], ["split", split, true],
  ["choices", choices, false], ["runs", runs, false],
];

/** What the page has inside. */
const inside = (id: string) => JSON.parse(document.getElementById(id)?.textContent ?? "null");

const [alone, saved] = [inside("alone"), inside("data")];
const source: Source = alone ? new Alone(alone) : saved ? new Saved(saved) : new Server();
const app: App = { source, a: null, b: null, unchanged: null, saved: [], runs: [] };

const header = h("header", {});
const bench = h("section", { class: "bench" });
const main = h("main", { id: "content", tabindex: -1 });
let shown: Shown = {};

/** What decides which texts are read by what. */
const READ = ["run", "text", "target", "a", "b", "brun", "bset", "bfirst"];

const chosen = () => VIEWS.find(([name]) => name === state().view) ?? VIEWS[0]!;

function head(): void {
  const current = chosen()[0];
  const language = state().lang ?? preferred();
  header.replaceChildren(
    h("a", { class: "skip", href: "#content", onclick: (event: Event) => {
      event.preventDefault();
      main.focus();
    } }, say("skip")),
    h("span", { class: "brand" }, "what", h("em", {}, "where")),
    h("nav", { "aria-label": say("views") }, VIEWS.filter(([name]) => name !== "runs" || source.folders)
      .map(([name]) => h("a", {
        href: link({ view: name }), "aria-current": name === current ? "page" : false,
      }, say(name)))),
    segments(say("language"), LANGUAGES.map(([name, word]) => [name, name === "ko" ? word : "EN"]),
      language, (lang) => go({ lang })),
  );
  // On a phone the row of views is wider than the screen.
  const here = header.querySelector<HTMLElement>("nav [aria-current]");
  if (here?.parentElement) here.parentElement.scrollLeft = here.offsetLeft - here.parentElement.offsetLeft - 16;
}

function reader(): void {
  bench.replaceChildren();
  bench.hidden = !chosen()[2];
  if (bench.hidden) return;
  if (!source.live) {
    if (app.saved.length > 1) {
      bench.append(segments(say("run"), app.saved.map((r) => [r.id, named(r)]), app.a?.id ?? "0",
        (a) => go({ a })));
    } else if (app.a) {
      bench.append(h("p", { class: "about" }, h("strong", {}, app.a.run), " ", about(app.a.about)));
    }
    return;
  }
  const area = h("textarea", { rows: 3, "aria-label": say("yourText"), placeholder: say("nothingRead"), spellcheck: "false" });
  area.value = state().text ?? "";
  const isPair = app.a?.about.family === "encoder-decoder";
  const target = h("input", { type: "text", value: state().target ?? "", "aria-label": say("target"), placeholder: say("target") });
  const submit = () => go({ text: area.value, target: isPair ? target.value : null, at: null, rows: null }, false);
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit();
  });
  bench.append(
    h("form", { onsubmit: (event: Event) => {
      event.preventDefault();
      submit();
    } }, area, isPair && target,
    h("div", { class: "row" },
      select(say("run"), app.runs.map((run) => [run, run]), state().run ?? app.runs[0] ?? "",
        (run) => go({ run, layer: null, head: null })),
      h("button", { class: "primary", type: "submit" }, say("read")),
      app.a?.about.family === "decoder" && h("button", { type: "button", onclick: () => void write(area) }, say("goOnWriting")),
      app.a && h("span", { class: "about" }, about(app.a.about)))),
  );
}

/** Tokens that are written at once. */
const WRITTEN = 120;

/** Goes on after the text, and reads the whole. */
async function write(area: HTMLTextAreaElement): Promise<void> {
  const run = state().run ?? app.runs[0];
  if (!run) return;
  main.prepend(busy(say("writing")));
  try {
    const more = await source.write(run, area.value, WRITTEN, bounded("t", TEMPERATURES, 0.8), bounded("p", SHARES, 1));
    go({ text: area.value + more, at: null, rows: null }, false);
  } catch (error) {
    main.replaceChildren(apology(error));
  }
}

const opened = new Map<string, Promise<Reading>>();

/** A reading, or the one of before. */
function open(run: string, opening: Opening): Promise<Reading> {
  const key = JSON.stringify([run, opening]);
  let found = opened.get(key);
  if (!found) {
    found = source.open(run, opening);
    opened.set(key, found);
    found.catch(() => opened.delete(key));
    for (const oldest of opened.keys()) {
      if (opened.size <= 4) break;
      opened.delete(oldest);
    }
  }
  return found;
}

const POSITION = "model.attention.";

/** Settings of the state as they are asked for: those of several encodings together as one list. */
function changed(set: string | undefined, reading: Reading): string[] {
  const all = set ? set.split(";") : [];
  if (reading.about.position.length < 2) return all;
  const list = { key: "position", doc: "", default: reading.about.position };
  return asked([list], {}, changesOf(all, POSITION)).map(([key, value]) => `${POSITION}${key}=${value}`);
}

let turn = 0;

async function read(): Promise<void> {
  const own = ++turn;
  const now = state();
  if (!source.live) {
    app.a = app.saved[Number(now.a ?? 0)] ?? app.saved[0] ?? null;
    app.b = now.b === undefined ? null : app.saved[Number(now.b)] ?? null;
    return draw();
  }
  const run = now.run ?? app.runs[0];
  app.a = app.b = null;
  if (!run || !now.text || !chosen()[2]) return draw();
  const opening: Opening = { text: now.text, ...(now.target ? { target: now.target } : {}) };
  // A text that takes long, or cannot be read, leaves the way to the other views.
  head();
  reader();
  main.replaceChildren(busy(say("reading")));
  try {
    const a = await open(run, opening);
    if (own !== turn) return;
    const first = Number(now.bfirst ?? 0) || 0;
    const brun = now.brun ?? run;
    const same = a.about.family === "encoder-decoder" && !opening.target
      ? { target: plain(a).trim() } : {};
    let other = a;
    let b: Reading | null = null;
    let refused: unknown = null;
    try {
      // Another run as it is says what of it can be set.
      if (brun !== run) other = b = await open(brun, { ...opening, ...same, changes: [], first });
      const changes = changed(now.bset, other);
      if (changes.length || (first && !b)) b = await open(brun, { ...opening, ...same, changes, first });
    } catch (error) {
      // What cannot stand beside leaves the reading itself, and the fields that asked for it.
      [b, refused] = [null, error];
    }
    if (own !== turn) return;
    if (b && now.bset) b.changed = now.bset.split(";");
    [app.a, app.b, app.unchanged] = [a, b, other];
    draw();
    if (refused) main.querySelector(".view")?.prepend(apology(refused));
  } catch (error) {
    if (own === turn) {
      reader();
      main.replaceChildren(apology(error));
    }
  }
}

function draw(): void {
  shown.end?.();
  shown = {};
  head();
  reader();
  const [name, view, needsText] = chosen();
  document.title = `${say(name)} · whatwhere`;
  const isEncoder = app.a?.about.family === "encoder";
  const isClassifier = !!app.a?.about.classes;
  const sentence = name !== "text" ? `${name}Said` as Word
    : isClassifier ? "tellsClasses" : isEncoder ? "encoderSaid" : "textSaid";
  const intro = h("div", { class: "intro" }, h("h1", {}, say(name)), h("p", {}, say(sentence)));
  const body = h("div", { class: `view ${name}` });
  main.replaceChildren(intro, body);
  if (needsText && !app.a) {
    body.append(notice(source.live && !app.runs.length ? say("noRuns") : say("nothingRead")));
    return;
  }
  if ((name === "heads" || name === "split") && !app.a?.about.sites.length) {
    body.append(notice(say("noScores")));
    return;
  }
  shown = view(app, body);
}

/** Where the keyboard was, if what was there is drawn anew. */
let focus: string | null = null;

function refocus(): void {
  if (!focus || document.activeElement !== document.body) return;
  document.querySelector<HTMLElement>(`main input[aria-label="${CSS.escape(focus)}"]`)?.focus();
}

// Fields of a view come when they were asked for.
new MutationObserver(refocus).observe(main, { childList: true, subtree: true });
addEventListener("pointerdown", () => { focus = null; });
addEventListener("focusin", (event) => { focus = (event.target as Element).getAttribute("aria-label"); });

listen((now, before) => {
  const differs = (names: string[]) => names.some((name) => now[name] !== before[name]);
  if (differs(["lang"])) speak(now.lang ?? preferred());
  if (differs(READ)) void read();
  else if (differs(["view"])) app.a || !now.text ? draw() : void read();
  else if (differs(["lang"])) draw();
  else shown.update?.(before);
});

async function start(): Promise<void> {
  speak(state().lang ?? preferred());
  document.body.append(header, bench, main);
  onTheme(draw);
  try {
    [app.runs, app.saved] = await Promise.all([source.runs(), source.saved()]);
    if (source.sample && !state().text) go({ text: source.sample });
    else await read();
  } catch (error) {
    head();
    main.replaceChildren(apology(error));
  }
}

// For questions by hand: `await whatwhere.choices("position", [["name", "rotary"], ["set", "base=500"]])`.
Object.assign(globalThis, { whatwhere: source });

void start();
