// A real browser, and what every drive asks of a page in it.

import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
export const pictures = process.argv[2];
mkdirSync(pictures, { recursive: true });

export const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--enable-precise-memory-info",
    "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
let failures = 0;
let checks = 0;

export function check(holds, what) {
  checks += 1;
  if (holds) return;
  failures += 1;
  console.error(`FAILED: ${what}`);
}

/** What must be seen in a view, by what is written or drawn. */
export const VIEWS = {
  text: { see: ".tokens [role=option]", and: ".told li" },
  heads: { see: ".thumb canvas", and: ".map canvas" },
  split: { see: "table.split tbody tr", and: ".plot svg path.curve" },
  choices: { see: ".figures svg path.curve", and: "canvas.pattern" },
  runs: { see: "ul.runs li", and: ".plot svg" },
};

export async function open(address, view, { width = 1600, colors = "light", lang = "en", also = {}, isAxed = false } = {}) {
  // axe is put into the page, which a server's policy forbids; where it does not look, the policy holds.
  const page = await browser.newPage({
    viewport: { width, height: 900 }, colorScheme: colors, locale: "en", bypassCSP: isAxed,
  });
  page.on("pageerror", (error) => check(false, `${view}: ${error.message}`));
  page.on("console", (line) => {
    // A setting that is refused is said in the page, which is looked at there.
    if (line.type() === "error" && !/status of 400/.test(line.text())) check(false, `${view}: ${line.text()}`);
  });
  const [base, more = ""] = address.split("#");
  const state = { view, lang, ...Object.fromEntries(new URLSearchParams(more)), ...also };
  await page.goto(`${base}#${new URLSearchParams(state)}`);
  await settled(page, view);
  return page;
}

/** Until a view shows what it has to show. */
export async function settled(page, view) {
  await page.waitForSelector(VIEWS[view].see, { timeout: 60000 });
  await page.waitForSelector(VIEWS[view].and, { timeout: 60000 });
  await page.waitForFunction(() => !document.querySelector(".busy"), null, { timeout: 60000 });
  await page.waitForTimeout(150);
}

/** Whether a canvas has more than one color. */
export const drawn = (page, selector) => page.$eval(selector, (canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size > 1;
});

export async function accessible(page, what) {
  await page.addScriptTag({ path: axe });
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  const serious = violations.filter((found) => ["serious", "critical"].includes(found.impact));
  for (const found of serious) console.error(found.id, found.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)));
  check(serious.length === 0, `${what}: ${serious.map((found) => found.id)}`);
}

/** Until something in the page holds, or a failed check. */
export async function until(page, what, test, argument = null, timeout = 30000) {
  const holds = await page.waitForFunction(test, argument, { timeout }).then(() => true, () => false);
  check(holds, what);
  return holds;
}

export async function finish() {
  await browser.close();
  console.log(`page: ${checks} checks, ${failures} failed; pictures in ${pictures}`);
  process.exit(failures ? 1 : 0);
}
