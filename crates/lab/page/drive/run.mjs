// Drives every view of the page in a real browser: node drive/run.mjs PICTURES NAME=ADDRESS…
// Looks for errors, for what must be seen, for findings of axe, and leaves pictures in light and dark at three widths.

import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const [pictures, ...pages] = process.argv.slice(2);
mkdirSync(pictures, { recursive: true });

const WIDTHS = [360, 900, 1600];
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

/** What must be seen in a view, by what is written or drawn. */
const VIEWS = {
  text: { see: ".tokens [role=option]", and: ".told li" },
  heads: { see: ".thumb canvas", and: ".map canvas" },
  split: { see: "table.split tbody tr", and: ".plot svg path.curve" },
  choices: { see: ".figures svg path.curve", and: "canvas.pattern" },
  runs: { see: "ul.runs li", and: ".plot svg" },
};

async function open(address, view, width, colorScheme, lang) {
  // axe is put into the page, which a server's policy forbids; at the other widths the policy holds.
  const page = await browser.newPage({
    viewport: { width, height: 900 }, colorScheme, locale: "en", bypassCSP: width === 900,
  });
  page.on("pageerror", (error) => check(false, `${view}: ${error.message}`));
  page.on("console", (line) => {
    if (line.type() === "error") check(false, `${view}: ${line.text()}`);
  });
  const [base, more = ""] = address.split("#");
  await page.goto(`${base}#${new URLSearchParams({ view, lang, ...Object.fromEntries(new URLSearchParams(more)) })}`);
  await page.waitForSelector(VIEWS[view].see, { timeout: 30000 });
  await page.waitForSelector(VIEWS[view].and, { timeout: 30000 });
  await page.waitForFunction(() => !document.querySelector(".busy"), null, { timeout: 30000 });
  await page.waitForTimeout(150);
  return page;
}

/** Whether a canvas has more than one color. */
const drawn = (page, selector) => page.$eval(selector, (canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size > 1;
});

async function accessible(page, what) {
  await page.addScriptTag({ path: axe });
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  const serious = violations.filter((found) => ["serious", "critical"].includes(found.impact));
  for (const found of serious) console.error(found.id, found.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)));
  check(serious.length === 0, `${what}: ${serious.map((found) => found.id)}`);
}

for (const named of pages) {
  const [name, ...rest] = named.split("=");
  const address = rest.join("=");
  const isSaved = address.startsWith("file:");
  const views = Object.keys(VIEWS).filter((view) => view !== "runs" || !isSaved);
  for (const view of views) {
    for (const colors of ["light", "dark"]) {
      for (const width of WIDTHS) {
        const page = await open(address, view, width, colors, "en");
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        check(wide <= width, `${name} ${view} at ${width}: ${wide} pixels wide`);
        await page.screenshot({ path: `${pictures}/${name}-${view}-${width}-${colors}.png`, fullPage: width < 900 });
        if (width === 900) await accessible(page, `${name} ${view} ${colors}`);
        await page.close();
      }
    }
    const page = await open(address, view, 900, "light", "ko");
    check(await page.$eval("html", (html) => html.lang) === "ko", `${name} ${view}: the language is said`);
    check(/[가-힣]/.test(await page.innerText("h1, .intro p")), `${name} ${view}: Korean`);
    await page.close();
  }
  await text(name, address);
  await heads(name, address);
  await split(name, address);
  await choices(name, address, isSaved);
  if (!isSaved) await live(name, address);
}

/** A token is chosen by keyboard, temperature changes the bars, and the link shows the same. */
async function text(name, address) {
  const page = await open(address, "text", 900, "light", "en");
  await page.locator(".tokens").last().locator("[role=option]").nth(0).focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Enter");
  await page.waitForSelector('.tokens [aria-selected="true"]');
  check(page.url().includes("at=2"), `${name} text: the link says what is chosen: ${page.url()}`);
  await page.waitForSelector(".actual");
  const first = () => page.locator(".told .number").first().innerText();
  const before = await first();
  await page.locator(".slider input").first().fill("0.1");
  check(await first() !== before, `${name} text: temperature`);
  await page.locator(".slider input").first().fill("1");
  check(await first() === before, `${name} text: back at 1`);
  await page.locator(".slider input").nth(1).fill("0.05");
  check(await page.locator(".told .out").count() > 0, `${name} text: top-p leaves some out`);
  const again = await browser.newPage();
  await again.goto(page.url());
  await again.waitForSelector('.tokens [aria-selected="true"]');
  check(await again.locator('.tokens [aria-selected="true"]').getAttribute("data-i") === "2", `${name} text: the link`);
  await again.close();
  await page.close();
}

/** A thumbnail is chosen, tokens are summed, the map zooms. */
async function heads(name, address) {
  const page = await open(address, "heads", 1600, "light", "en");
  await page.waitForFunction(() => document.querySelector(".thumb canvas").width > 1);
  check(await drawn(page, ".thumb canvas"), `${name} heads: thumbnails are drawn`);
  await page.locator(".thumb").nth(1).click();
  check(page.url().includes("head=1"), `${name} heads: the link says which: ${page.url()}`);
  await page.waitForTimeout(300);
  check(await drawn(page, ".map canvas"), `${name} heads: the map is drawn`);
  const token = page.locator(".one .tokens [role=option]");
  await token.nth(0).click();
  await page.waitForSelector(".strongest .told li");
  const one = await page.locator(".strongest .told").innerText();
  await token.nth(2).click();
  await page.waitForFunction((one) => document.querySelector(".strongest .told")?.innerText !== one, one);
  check(page.url().includes("rows=0%2C2"), `${name} heads: two are summed: ${page.url()}`);
  await page.locator(".one .segments button").nth(1).click();
  await page.waitForSelector(".strongest .told li");
  await page.locator(".map canvas").focus();
  await page.keyboard.press("+");
  await page.keyboard.press("ArrowDown");
  const box = await page.locator(".map canvas").boundingBox();
  await page.mouse.move(box.x + 20, box.y + box.height / 2);
  check(/→/.test(await page.innerText(".readout")), `${name} heads: what is under the pointer`);
  await page.close();
}

/** Terms add up to the score in what is shown. */
async function split(name, address) {
  const page = await open(address, "split", 1600, "light", "en");
  const cells = await page.locator("table.split tbody tr").first().locator("td").allInnerTexts();
  const [content, position, interaction, score] = cells.slice(-5, -1).map((text) => Number(text.replace("−", "-")));
  check(Math.abs(content + position + interaction - score) < 0.04, `${name} split: ${cells}`);
  await page.locator("ol.heads button").nth(1).click();
  check(page.url().includes("head=1"), `${name} split: a head is chosen`);
  await page.close();
}

/** Another encoding is chosen, and a setting moved where something can be computed. */
async function choices(name, address, isSaved) {
  const page = await open(address, "choices", 1600, "light", "en");
  const curve = () => page.locator(".figures svg path.curve").first().getAttribute("d");
  const before = await curve();
  await page.locator(".axis").first().locator(".segments button", { hasText: "alibi" }).click();
  await page.waitForFunction((d) => {
    const now = document.querySelector(".figures svg path.curve");
    return now && now.getAttribute("d") !== d;
  }, before);
  if (!isSaved) {
    await page.locator(".axis").first().locator(".segments button", { hasText: "rotary" }).click();
    const base = page.locator(".axis").first().locator("label.field", { hasText: "base" }).locator("input[type=text]");
    await base.fill("50");
    await base.press("Enter");
    await page.waitForFunction(() => location.hash.includes("base%3D50"));
    await page.waitForFunction((d) => {
      const now = document.querySelector(".figures svg path.curve");
      return now && now.getAttribute("d") !== d;
    }, before);
  }
  await page.close();
}

/** What a server adds: reading a text, moving it, and going on. */
async function live(name, address) {
  const page = await open(address, "split", 1600, "light", "en");
  await page.locator("details.beside summary").click();
  await page.locator("details.beside button", { hasText: "+" }).click();
  await page.waitForSelector("tr.second");
  check(page.url().includes("bfirst=1000"), `${name}: a moved text stands beside`);
  await page.screenshot({ path: `${pictures}/${name}-beside.png` });
  await page.close();
  const other = await open(address, "text", 1600, "light", "en");
  await other.locator("textarea").fill("To be, or not to be");
  await other.locator("button.primary").click();
  await other.waitForFunction(() => document.querySelectorAll(".tokens [role=option]").length < 20);
  check(other.url().includes("To+be"), `${name}: the link holds the text`);
  const tokens = () => other.locator(".tokens [role=option]").count();
  const before = await tokens();
  const goOn = other.locator(".told button").first();
  await goOn.click();
  await other.waitForFunction((n) => document.querySelectorAll(".tokens [role=option]").length > n, before, { timeout: 30000 });
  await other.close();
  const runs = await open(address, "runs", 1600, "light", "en");
  await runs.waitForSelector("table tbody tr");
  const rows = () => runs.locator("table tbody tr").allInnerTexts();
  const sorted = await rows();
  await runs.locator("th button", { hasText: "name" }).first().click();
  await runs.locator("th button", { hasText: "name" }).first().click();
  check((await rows())[0] > (await rows())[1], `${name} runs: sorted by name, backwards`);
  await runs.locator("input[type=search]").fill("alibi");
  await runs.waitForFunction((n) => document.querySelectorAll("table tbody tr").length < n, sorted.length);
  await runs.locator(".plot svg").first().hover();
  await runs.waitForSelector('.plot .value[visibility="visible"]');
  await runs.close();
}

await browser.close();
console.log(`page: ${checks} checks, ${failures} failed; pictures in ${pictures}`);
process.exit(failures ? 1 : 0);
