// The page in a browser alone: node drive/alone.mjs PICTURES PAGE.html ANSWERS RUN [TEXT]
// Asks the module in the page what `ANSWERS` (lab's example of that name) answers natively, and holds number against number;
// then looks at every view, changes settings, lets the model write, and says what it took.

import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const [pictures, html, answers, run] = process.argv.slice(2);
mkdirSync(pictures, { recursive: true });

/** How far a number may be from its native one, as a share of the larger of 1 and that. */
const NEAR = 1e-5;
/** Weights of maps come as f16, whose last digit may fall to either side. */
const HALF = 2 ** -10;

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
let failures = 0;
let checks = 0;

function check(holds, what) {
  checks += 1;
  if (holds) return;
  failures += 1;
  console.error(`FAILED: ${what}`);
}

async function open(view, { width = 900, colorScheme = "light", lang = "en" } = {}) {
  const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme, locale: "en" });
  page.on("pageerror", (error) => check(false, `${view}: ${error.message}`));
  page.on("console", (line) => {
    if (line.type() === "error") check(false, `${view}: ${line.text()}`);
  });
  page.on("request", (request) => {
    check(/^(file|blob|data):/.test(request.url()), `${view} asks ${request.url()}`);
  });
  await page.goto(`file://${html}#${new URLSearchParams({ view, lang })}`);
  return page;
}

const VIEWS = {
  text: [".tokens [role=option]", ".told li"],
  heads: [".thumb canvas", ".map canvas"],
  split: ["table.split tbody tr", ".plot svg path.curve"],
  choices: [".figures svg path.curve", "canvas.pattern"],
};

async function seen(page, view) {
  for (const what of VIEWS[view]) await page.waitForSelector(what, { timeout: 60000 });
  await page.waitForFunction(() => !document.querySelector(".busy"), null, { timeout: 60000 });
}

await compared();
await looked();
await used();
await browser.close();
console.log(`in a browser alone: ${checks} checks, ${failures} failed; pictures in ${pictures}`);
process.exit(failures ? 1 : 0);

/** What is asked on both sides: every encoding and pattern, with changes, and all about a text. */
async function questions(page) {
  const all = [];
  const ask = (of, what, pairs) => all.push({ of, what, pairs });
  const found = await page.evaluate(async () => {
    const bytes = await whatwhere.choices("choices", []);
    return JSON.parse(new TextDecoder().decode(bytes));
  });
  ask("choices", "choices", []);
  for (const { name } of found.position) ask("choices", "position", [["name", name]]);
  for (const { name } of found.pattern) {
    for (const length of ["64", "256"]) ask("choices", "pattern", [["name", name], ["length", length]]);
  }
  const changed = [
    ["rotary", "base=500"], ["rotary", "scaling.kind=ntk", "scaling.factor=4"], ["rotary", "scaling.kind=yarn", "scaling.factor=8", "scaling.length=128"],
    ["alibi", "length=512"], ["polar", "base=300"], ["t5", "buckets=16"],
  ];
  for (const [name, ...sets] of changed) {
    const pairs = sets.map((set) => (set.startsWith("length=") ? ["length", set.slice(7)] : ["set", set]));
    ask("choices", "position", [["name", name], ...pairs]);
  }
  for (const reach of ["8", "32"]) ask("choices", "pattern", [["name", "window"], ["set", `left=${reach}`], ["length", "128"]]);
  return all;
}

function ofReading({ about, text }) {
  const all = [];
  const ask = (what, pairs) => all.push({ of: "reading", what, pairs: pairs.map(([k, v]) => [k, String(v)]) });
  const length = text.tokens.length;
  ask("about", []);
  ask("text", []);
  ask("surprise", [["from", 0], ["to", length]]);
  for (let at = 1; at <= length; at += 7) ask("next", [["at", at], ["count", 40]]);
  for (const { site, layers } of about.sites) {
    layers.forEach(({ heads }, layer) => {
      const place = [["site", site], ["layer", layer]];
      ask("layer", [...place, ["cells", 48]]);
      ask("heads", place);
      for (let head = 0; head < heads; head++) {
        ask("tile", [...place, ["head", head], ["zoom", 0], ["row", 0], ["column", 0]]);
        for (const at of [1, 9, length - 1]) {
          ask("rows", [...place, ["head", head], ["at", at]]);
          ask("split", [...place, ["head", head], ["at", at]]);
        }
      }
    });
  }
  return all;
}

/** The module's numbers against the native ones. */
async function compared() {
  const page = await open("text");
  await seen(page, "text");
  const reading = await page.evaluate(async () => {
    const [run] = await whatwhere.runs();
    globalThis.reading = await whatwhere.open(run, { text: whatwhere.sample });
    return { ...globalThis.reading, sample: whatwhere.sample, module: await whatwhere.about() };
  });
  check(reading.module.instructions === "SIMD128", `the module computes with ${reading.module.instructions}`);
  const all = [...await questions(page), ...ofReading(reading)];
  const path = `${pictures}/questions.json`;
  writeFileSync(path, JSON.stringify(all));
  const native = JSON.parse(execFileSync(answers, [run, reading.sample, path], { maxBuffer: 1 << 30 }));
  let numbers = 0;
  const farthest = { exact: 0, half: 0 };
  for (const [i, { of, what, pairs }] of all.entries()) {
    const hex = await page.evaluate(async ({ of, what, pairs }) => {
      const asked = of === "reading" ? whatwhere.ask(globalThis.reading, what, pairs) : whatwhere.choices(what, pairs);
      return Array.from(new Uint8Array(await asked), (byte) => byte.toString(16).padStart(2, "0")).join("");
    }, { of, what, pairs });
    const [here, there] = [values(hex), values(native[i])];
    const said = `${what} ${JSON.stringify(pairs)}`;
    check(here.words === there.words, `${said}: words differ`);
    check(here.numbers.length === there.numbers.length, `${said}: ${here.numbers.length} numbers, ${there.numbers.length} natively`);
    const [kind, bound] = here.half ? ["half", HALF] : ["exact", NEAR];
    const far = here.numbers.reduce((most, value, j) => {
      const other = there.numbers[j];
      if (Object.is(value, other) || Number.isNaN(value) && Number.isNaN(other)) return most;
      // Not `Math.max`: what is no number on one side only must be seen.
      const off = Math.abs(value - other) / Math.max(1, Math.abs(other));
      return off <= most ? most : Number.isNaN(off) ? Infinity : off;
    }, 0);
    farthest[kind] = Math.max(farthest[kind], far);
    check(far <= bound, `${said}: ${far} from its native answer`);
    numbers += here.numbers.length;
  }
  console.log(`${all.length} questions, ${numbers} numbers: at most ${farthest.exact.toExponential(1)} from the native ones, ` +
    `maps in f16 ${farthest.half.toExponential(1)}`);
  await page.close();
}

/** The numbers of an answer in their order, and all else of it as words. */
function values(hex) {
  const bytes = Buffer.from(hex, "hex");
  const numbers = [];
  const taken = (_, value) => {
    if (typeof value !== "number") return value;
    numbers.push(value);
    return 0;
  };
  if (bytes[0] === 0x7b) return { words: JSON.stringify(JSON.parse(bytes), taken), numbers, half: false };
  const length = bytes.readUInt32LE(0);
  const header = JSON.parse(bytes.subarray(4, 4 + length));
  let at = 4 + length;
  let half = false;
  for (const array of header.arrays) {
    const isHalf = array.kind === "f16";
    half ||= isHalf;
    for (let i = 0; i < array.length; i++) {
      numbers.push(isHalf ? array.scale * ofHalf(bytes.readUInt16LE(at + 2 * i)) : bytes.readFloatLE(at + 4 * i));
    }
    at += isHalf ? Math.ceil(array.length / 2) * 4 : 4 * array.length;
  }
  return { words: JSON.stringify(header, taken), numbers, half };
}

function ofHalf(bits) {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  return (bits & 0x8000 ? -1 : 1) * (exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15));
}

/** Every view, in both languages, light and dark, on a phone and a desk, with axe. */
async function looked() {
  for (const view of Object.keys(VIEWS)) {
    for (const [width, colorScheme, lang] of [[360, "light", "ko"], [900, "light", "en"], [1600, "dark", "en"]]) {
      const page = await open(view, { width, colorScheme, lang });
      await seen(page, view);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      check(wide <= width, `${view} at ${width}: ${wide} pixels wide`);
      check(await page.locator("nav a").count() === 4, `${view}: the views that a page alone has`);
      if (lang === "ko") check(/[가-힣]/.test(await page.innerText(".intro p")), `${view}: Korean`);
      await page.waitForTimeout(150);
      await page.screenshot({ path: `${pictures}/alone-${view}-${width}.png`, fullPage: width === 360 });
      if (width === 900) {
        await page.addScriptTag({ path: axe });
        const { violations } = await page.evaluate(() => globalThis.axe.run());
        const serious = violations.filter((found) => ["serious", "critical"].includes(found.impact));
        check(serious.length === 0, `${view}: ${serious.map((found) => found.id)}`);
      }
      await page.close();
    }
  }
}

/** A slider by keyboard, a text of one's own, and the model that writes; how long it took. */
async function used() {
  const page = await open("choices");
  await seen(page, "choices");
  const curve = () => page.locator(".figures svg path.curve").first().getAttribute("d");
  const before = await curve();
  const base = page.locator(".axis").first().locator("label.field", { hasText: "base" }).locator("input[type=range]");
  await base.focus();
  for (let i = 0; i < 8; i++) await page.keyboard.press("ArrowLeft");
  await page.waitForFunction((d) => document.querySelector(".figures svg path.curve")?.getAttribute("d") !== d, before);
  check(page.url().includes("base"), `the link holds what was set: ${page.url()}`);
  check(await page.evaluate(() => document.activeElement?.getAttribute("type") === "range"), "the slider keeps the focus");
  await page.close();

  const began = performance.now();
  const text = await open("text");
  await seen(text, "text");
  const first = performance.now() - began;
  await text.locator("textarea").fill("ROMEO:\n");
  await text.locator("button.primary").click();
  await text.waitForFunction(() => document.querySelectorAll(".tokens [role=option]").length === 7);
  await text.locator("button", { hasText: "Write on" }).click();
  await text.waitForFunction(() => document.querySelectorAll(".tokens [role=option]").length > 100, null, { timeout: 60000 });
  const written = await text.locator("textarea").inputValue();
  check(written.startsWith("ROMEO:\n") && written.length > 100, `it wrote ${JSON.stringify(written)}`);
  await text.screenshot({ path: `${pictures}/alone-written.png` });
  const took = await text.evaluate(async () => {
    const [run] = await whatwhere.runs();
    const time = async (asked) => {
      const begun = performance.now();
      await asked();
      return performance.now() - begun;
    };
    const best = async (asked) => {
      const all = [];
      for (let i = 0; i < 3; i++) all.push(await time(asked));
      return Math.min(...all);
    };
    const long = "To be, or not to be, that is the question. ".repeat(6).slice(0, 256);
    return {
      read: await best(() => whatwhere.open(run, { text: long })),
      write: await best(() => whatwhere.write(run, "ROMEO:\n", 200, 0.8, 1)),
      encoding: await best(() => whatwhere.choices("position", [["name", "rotary"], ["length", 256]])),
      pattern: await best(() => whatwhere.choices("pattern", [["name", "window"], ["length", 256]])),
    };
  });
  console.log(`from opening the file to the text with alternatives: ${first.toFixed(0)} ms; 256 characters read in ` +
    `${took.read.toFixed(0)} ms; ${(200 / took.write * 1000).toFixed(0)} characters/s written; an encoding in ` +
    `${took.encoding.toFixed(0)} ms, a pattern in ${took.pattern.toFixed(0)} ms`);
  await text.close();
}
