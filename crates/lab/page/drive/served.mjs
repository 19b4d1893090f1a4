// What only a server answers: every setting moved, another run beside, any pair, runs that learn meanwhile, long texts.

import { spawn } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { accessible, browser, check, drawn, open, pictures, settled, until } from "./browser.mjs";

export async function served(name, address) {
  await sliders(name, address);
  await scaling(name, address);
  await pair(name, address);
  await beside(name, address);
  await classes(name, address);
  await unread(name, address);
  if (process.env.RUNS) await learning(name, address);
  for (const tokens of [8000, 32000]) await long(name, address, tokens);
}

/** What is drawn of an axis: the curves, or the picture of a pattern and its costs. */
const figures = (page, axis) => page.evaluate((axis) => {
  const root = document.querySelectorAll(".axis")[axis].querySelector(".figures");
  const curves = [...root.querySelectorAll("path.curve")].map((path) => path.getAttribute("d"));
  return curves.join() + root.innerText + (root.querySelector("canvas")?.toDataURL() ?? "");
}, axis);

/** What one setting says of another, such as that there are more distances than buckets, is refused in words at an end. */
const BOUND = /buckets|max_distance|truncate|ramp/;

/** Moves a slider as a hand would. */
const slide = (input, to) => input.evaluate((one, to) => {
  one.value = to === "max" || to === "min" ? one[to] : Number(one.value) + to;
  one.dispatchEvent(new Event("input"));
  one.dispatchEvent(new Event("change"));
}, to);

/** Moves every slider of every encoding and pattern to both ends, and by a little from where it begins. */
async function sliders(name, address) {
  for (const [axis, word] of [[0, "position"], [1, "pattern"]]) {
    const page = await open(address, "choices");
    const root = page.locator(".axis").nth(axis);
    const names = await root.locator(":scope > .segments button").allInnerTexts();
    const still = [];
    for (const choice of names) {
      await root.locator(":scope > .segments button", { hasText: new RegExp(`^${choice}$`) }).click();
      await until(page, `${name}: ${choice}`, ([word, choice]) => location.hash.includes(`${word}=${choice}`), [word, choice]);
      const labels = await root.locator("input[type=range]").evaluateAll((all) => all.map((one) => one.getAttribute("aria-label")));
      const boxes = await root.locator("label.field:has(input[type=text])").count();
      // Only words that are no numbers, such as tokens, are typed.
      if (labels.length < boxes) still.push(`${choice}: ${boxes - labels.length}`);
      for (const label of labels) {
        const input = root.locator(`input[type=range][aria-label="${label}"]`);
        for (const end of [0.5, "max", "min"]) {
          const asked = page.waitForResponse((answer) => answer.url().includes("set="), { timeout: 2000 }).catch(() => null);
          await slide(input, end);
          const answer = end === 0.5 ? null : await asked;
          if (answer && end !== 0.5 && answer.status() === 400 && BOUND.test(await answer.text())) continue;
          await page.waitForFunction(() => !document.querySelector(".busy"));
          await page.waitForTimeout(60);
          const refused = await root.locator(".notice.error").allInnerTexts();
          check(refused.length === 0, `${name}: ${choice}, ${label} at its ${end}: ${refused}`);
        }
        const reset = root.locator(`button[aria-label$=": ${label}"]`);
        if (await reset.count()) await reset.click();
      }
    }
    check(still.join() === (word === "pattern" ? "global: 1,or: 1" : ""), `${name}: settings without a slider: ${still}`);
    await page.close();
  }
}

/** Each scaling is drawn as it is chosen, and its factor moves the wavelengths; parts of a pattern are added and set. */
async function scaling(name, address) {
  const page = await open(address, "choices", { also: { position: "rotary" }, width: 900, isAxed: true });
  const box = page.locator(".axis").first().locator("label.field", { hasText: "scaling" }).locator("select");
  const kinds = await box.locator("option").allInnerTexts();
  check(kinds.length >= 6, `${name}: scalings ${kinds}`);
  let before = await figures(page, 0);
  for (const kind of kinds.filter((kind) => kind !== "none")) {
    await box.selectOption(kind);
    await until(page, `${name}: ${kind} is drawn dashed beside what it scales`, (before) => {
      const root = document.querySelector(".axis .figures");
      return !root.querySelector(".notice.error") && root.querySelector("path.curve.dashed")
        && [...root.querySelectorAll("path.curve")].map((path) => path.getAttribute("d")).join() !== before;
    }, before);
    before = await page.evaluate(() => [...document.querySelectorAll(".axis")[0].querySelectorAll("path.curve")]
      .map((path) => path.getAttribute("d")).join());
    const factor = page.locator('.axis input[type=range][aria-label="scaling.factor"]');
    await factor.focus();
    await page.keyboard.press("PageDown");
    await until(page, `${name}: the factor of ${kind}`, () => /scaling.factor%3D/.test(location.hash));
  }
  await accessible(page, `${name}: a scaling`);
  await page.screenshot({ path: `${pictures}/${name}-scaling.png`, fullPage: true });
  await page.close();
  const parts = await open(address, "choices", { also: { pattern: "or" }, width: 900, isAxed: true });
  const pattern = await figures(parts, 1);
  await parts.locator(".parts .segments button", { hasText: "strided" }).click();
  await until(parts, `${name}: a part joins`, () => location.hash.includes("strided"));
  await parts.waitForTimeout(300);
  const joined = await figures(parts, 1);
  check(joined !== pattern && !await parts.locator(".notice.error").count(), `${name}: what a part adds is drawn`);
  await slide(parts.locator('.parts input[type=range][aria-label="of.0.left"]'), "min");
  await parts.waitForTimeout(500);
  check(await figures(parts, 1) !== joined && !await parts.locator(".notice.error").count(), `${name}: a setting of a part`);
  await accessible(parts, `${name}: parts`);
  await parts.close();
}

/** Any key stands in the table, by a click, by its number, or from the map; a hidden one says so. */
async function pair(name, address) {
  const page = await open(address, "split", { also: { at: "30" } });
  const strongest = await page.locator("table.split tbody tr sub").allInnerTexts();
  const weak = [...Array(30).keys()].map(String).find((key) => !strongest.includes(key));
  await page.locator(".segments button", { hasText: "keys to compare" }).click();
  await page.locator(`.tokens [data-i="${weak}"]`).click();
  await page.waitForSelector("tr.picked");
  check(await page.locator("tr.picked sub").first().innerText() === weak, `${name}: key ${weak} by a click`);
  await page.locator("input[type=number]").fill("40");
  await page.locator("input[type=number]").press("Enter");
  await until(page, `${name}: key 40 by its number`, () => document.querySelectorAll("tr.picked").length === 2);
  check((await page.locator("tr.picked").last().innerText()).includes("hidden"), `${name}: a later key is hidden`);
  await page.screenshot({ path: `${pictures}/${name}-pair.png` });
  await page.close();
  const map = await open(address, "heads");
  const box = await map.locator(".map canvas").boundingBox();
  await map.mouse.click(box.x + box.width / 4, box.y + box.height / 2);
  await map.locator(".pair a").click();
  await settled(map, "split");
  check(await map.locator("tr.picked").count() === 1, `${name}: a pair of the map: ${map.url()}`);
  await map.close();
}

/** Another run and changed settings beside one. */
async function beside(name, address) {
  for (const also of [{ run: "rotary", brun: "polar" }, { run: "both" }]) {
    const page = await open(address, "split", { also, width: 900, isAxed: true });
    const what = `${name}: ${Object.values(also).join(" beside ")}`;
    if (also.brun) {
      await page.waitForSelector("tr.second");
      check((await page.innerText(".view")).includes("B = polar"), `${what} is named`);
      const magnitude = page.locator("details.beside label.field", { hasText: "magnitude" }).locator("select");
      await magnitude.selectOption("relu");
      await until(page, `${what}: what is set is the other run's`, () => document.querySelector("details.beside strong")?.innerText.includes("magnitude=relu"));
    } else {
      await page.locator("details.beside summary").click();
      const slider = (key) => page.locator(`input[type=range][aria-label="position.${key}"]`);
      await slide(slider("1.heads"), -0.5);
      await page.waitForSelector(".notice.error");
      await until(page, `${what}: what the weights forbid is said, and can be taken back`, () => document.querySelectorAll('.notice.error').length === 1 && document.querySelectorAll('input[type=range][aria-label="position.1.heads"]').length === 1);
      await page.locator('button[aria-label$="position.1.heads"]').click();
      await until(page, `${what}: taken back`, () => !document.querySelector(".notice.error, .busy"));
      if (await page.locator("details.beside:not([open]) summary").count()) await page.locator("details.beside summary").click();
      await slide(slider("0.base"), -2);
      await page.waitForSelector("tr.second");
      check((await page.innerText(".view")).includes("position.0.base=2500"), `${what}: the first of two encodings is set`);
    }
    await page.waitForSelector(".moved strong");
    const moved = await page.locator(".moved strong").allInnerTexts();
    check(moved.length === 3 && moved.some((text) => Number(text) > 0), `${what}: ${moved}`);
    await accessible(page, what);
    await page.screenshot({ path: `${pictures}/${name}-${Object.values(also).join("-")}.png`, fullPage: true });
    await page.close();
  }
}

/** A classifier says nothing of tokens, and its heads are seen. */
async function classes(name, address) {
  const page = await open(address, "heads", { also: { run: "classes" }, width: 900, isAxed: true });
  await page.waitForFunction(() => document.querySelector(".thumb canvas").width > 1);
  check(await drawn(page, ".map canvas"), `${name}: the map of a classifier`);
  await page.locator('nav a[href*="view=text"]').click();
  await until(page, `${name}: a classifier's text`, () => document.querySelector(".intro")?.innerText.includes("classes of whole texts"));
  await accessible(page, `${name}: a classifier's text`);
  await page.screenshot({ path: `${pictures}/${name}-classes.png`, fullPage: true });
  await page.close();
}

/** A link to what cannot be read says why, and leaves the way to the other views. */
async function unread(name, address) {
  const page = await browser.newPage();
  await page.goto(`${address.split("#")[0]}#view=heads&run=nobody&text=a`);
  await page.waitForSelector("main .notice.error");
  check((await page.innerText("main")).includes("nobody"), `${name}: why a link shows nothing`);
  check(await page.locator("header nav a").count() === 5, `${name}: the other views of a link that shows nothing`);
  await page.locator('nav a[href*="view=choices"]').click();
  await settled(page, "choices");
  await page.close();
}

/** A run that begins and a comparison that ends while the page is open. */
async function learning(name, address) {
  const page = await open(address, "runs");
  const had = await page.locator("ul.runs li").count();
  const small = ["--preset", "tiny", "--set", "model.width=32", "--set", "model.layers=1", "--set", "training.length=64",
    "--set", "training.log_every=5", "--set", "training.evaluate_every=50", "--set", "training.evaluate_batches=1"];
  const [run, comparison] = ["later", "compared"].map((folder) => join(process.env.RUNS, folder));
  const program = (...args) => {
    const child = spawn(process.env.WHATWHERE, args, { stdio: "ignore" });
    return { child, ended: new Promise((ended) => { child.on("exit", ended); }) };
  };
  const { child, ended } = program("train", ...small, "--set", "training.steps=100000", "--out", run);
  try {
    await until(page, `${name}: a run that began later is listed`, (had) => document.querySelectorAll("ul.runs li").length > had, had, 60000);
    // The chart's own axis says how far it is.
    const last = () => page.evaluate(() => Math.max(0, ...[...document.querySelectorAll(".plot path.curve")]
      .map((path) => path.getAttribute("d").length)));
    await until(page, `${name}: its losses are drawn`, () => [...document.querySelectorAll(".runs .legend li")]
      .some((item) => item.textContent.includes("later")), null, 60000);
    const before = await page.locator(".runs .figures svg").first().innerHTML();
    await until(page, `${name}: its curve grows`, (before) => document.querySelector(".runs .figures svg").innerHTML !== before, before, 60000);
    check(await last() > 0, `${name}: a curve`);
    await page.screenshot({ path: `${pictures}/${name}-learning.png` });
  } finally {
    child.kill();
    await ended;
  }
  const tables = await page.locator("table").count();
  await program("compare", ...small, "--set", "training.steps=10", "--over", "position=rotary,none", "--out", comparison).ended;
  await until(page, `${name}: a comparison that ended is shown`, (tables) => document.querySelectorAll("table").length > tables, tables, 60000);
  await page.close();
  for (const folder of [run, comparison]) rmSync(folder, { recursive: true, force: true });
}

/** A long text opens, its map scrolls, and the page's memory stays flat. Times are printed: other work may share the machine. */
async function long(name, address, tokens) {
  const page = await open(address, "heads");
  const text = "what a token looks at, and where it stands; ".repeat(Math.ceil(tokens / 44)).slice(0, tokens);
  const start = Date.now();
  await page.locator("textarea").fill(text);
  await page.locator("button.primary").click();
  await page.waitForFunction((tokens) => document.querySelectorAll(".one .tokens [role=option]").length === tokens, tokens, { timeout: 120000 });
  await page.waitForFunction(() => document.querySelector(".thumb canvas")?.width > 1, null, { timeout: 120000 });
  const first = Date.now() - start;
  await page.waitForFunction(() => !document.querySelector(".busy"), null, { timeout: 120000 });
  await page.waitForTimeout(500);
  check(await drawn(page, ".map canvas"), `${name}: the map of ${tokens} tokens`);
  await page.screenshot({ path: `${pictures}/${name}-long-${tokens}.png` });
  const session = await page.context().newCDPSession(page);
  const memory = async () => {
    await session.send("HeapProfiler.collectGarbage");
    const { metrics } = await session.send("Performance.getMetrics");
    return metrics.find((metric) => metric.name === "JSHeapUsedSize").value;
  };
  await session.send("Performance.enable");
  const canvas = page.locator(".map canvas");
  await canvas.focus();
  for (let i = 0; i < 20; i++) await page.keyboard.press("+");
  const scroll = async (screens) => {
    for (let i = 0; i < screens; i++) {
      for (let step = 0; step < 8; step++) await page.keyboard.press(step % 2 ? "ArrowDown" : "ArrowRight");
      await page.waitForTimeout(30);
    }
  };
  await scroll(40);
  const before = await memory();
  await scroll(120);
  // Here a tile of single tokens has more than one color, a coarser one has not.
  for (let i = 0; i < 60 && !await drawn(page, ".map canvas"); i++) await page.waitForTimeout(500);
  check(await drawn(page, ".map canvas"), `${name}: the map of ${tokens} tokens, far down`);
  // Down the text, too, whose end must be there.
  await page.locator(".one .tokens").first().evaluate((box) => { box.scrollTop = box.scrollHeight; });
  await page.locator(".one .tokens [role=option]").last().click();
  await until(page, `${name}: the last of ${tokens} tokens is chosen`, (last) => location.hash.includes(`rows=${last}`), tokens - 1);
  const after = await memory();
  const size = (bytes) => `${(bytes / 2 ** 20).toFixed(0)} MiB`;
  console.log(`page: ${tokens} tokens: first picture after ${first} ms; memory ${size(before)}, after scrolling ${size(after)}`);
  check(after < before + 24 * 2 ** 20, `${name}: memory of ${tokens} tokens: from ${size(before)} to ${size(after)}`);
  for (const view of ["split", "text"]) {
    await page.locator(`nav a[href*="view=${view}"]`).click();
    await settled(page, view);
  }
  await page.close();
}
