// Drives every view of the page in a real browser: node drive/run.mjs PICTURES NAME=ADDRESS…
// Looks for errors, for what must be seen, for findings of axe, and leaves pictures in light and dark at three widths.
// A server may have the folders of $RUNS, in which $WHATWHERE then trains while the page is open.

import { accessible, browser, check, drawn, finish, open, pictures, until, VIEWS } from "./browser.mjs";
import { keyboard } from "./keyboard.mjs";
import { served } from "./served.mjs";

const pages = process.argv.slice(3);

/** A phone, a tablet and a wide screen, in light and dark; Korean on two of them. */
const LOOKS = [
  ...[360, 900, 1600].flatMap((width) => [[width, "light", "en"], [width, "dark", "en"]]),
  [360, "light", "ko"], [900, "dark", "ko"],
];

for (const named of pages) {
  const [name, ...rest] = named.split("=");
  const address = rest.join("=");
  const isSaved = address.startsWith("file:");
  const views = Object.keys(VIEWS).filter((view) => view !== "runs" || !isSaved);
  for (const view of views) {
    for (const [width, colors, lang] of LOOKS) {
      // At the widest the server's policy holds.
      const isAxed = width < 1600;
      const page = await open(address, view, { width, colors, lang, isAxed });
      const what = `${name} ${view} at ${width}, ${colors}, ${lang}`;
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      check(wide <= width, `${what}: ${wide} pixels wide`);
      check(await page.$eval("html", (html) => html.lang) === lang, `${what}: the language is said`);
      if (lang === "ko") await korean(page, what);
      await page.screenshot({ path: `${pictures}/${name}-${view}-${width}-${colors}-${lang}.png`, fullPage: width < 900 });
      if (isAxed) await accessible(page, what);
      await page.close();
    }
  }
  await text(name, address);
  await heads(name, address);
  await split(name, address);
  await choices(name, address, isSaved);
  await keyboard(name, address, isSaved);
  if (!isSaved) {
    await live(name, address);
    await served(name, address);
  }
}

/** The view's sentence, the model, and what terms and encodings are, are said in Korean. */
async function korean(page, what) {
  const said = await page.locator(".intro p, .bench .about, .terms dd, .axis .summary:nth-of-type(1)").allInnerTexts();
  const english = said.filter((text) => text && !/[가-힣]/.test(text));
  check(said.length > 0 && english.length === 0, `${what}: not in Korean: ${english}`);
}

/** A token is chosen by keyboard, temperature changes the bars, and the link shows the same. */
async function text(name, address) {
  const page = await open(address, "text", { width: 900 });
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
  check(page.url().includes("t=0.1"), `${name} text: the link holds the temperature: ${page.url()}`);
  const sharp = await first();
  await page.locator(".tokens").last().locator("[role=option]").nth(1).click();
  await page.waitForFunction(() => location.hash.includes("at=1"));
  await page.locator(".tokens").last().locator("[role=option]").nth(2).click();
  await page.waitForFunction((sharp) => document.querySelector(".told .number")?.innerText === sharp, sharp);
  check(await page.locator(".slider input").first().inputValue() === "0.1", `${name} text: the next token keeps the temperature`);
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
  const page = await open(address, "heads");
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
  const page = await open(address, "split");
  const cells = await page.locator("table.split tbody tr").first().locator("td").allInnerTexts();
  const [content, position, interaction, score] = cells.slice(-5, -1).map((text) => Number(text.replace("−", "-")));
  check(Math.abs(content + position + interaction - score) < 0.04, `${name} split: ${cells}`);
  await page.locator("ol.heads button").nth(1).click();
  check(page.url().includes("head=1"), `${name} split: a head is chosen`);
  await page.close();
}

/** Another encoding is chosen, and a setting moved where something can be computed. */
async function choices(name, address, isSaved) {
  const page = await open(address, "choices");
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
  const page = await open(address, "split");
  await page.locator("details.beside summary").click();
  await page.locator("details.beside button", { hasText: "+" }).click();
  await page.waitForSelector("tr.second");
  check(page.url().includes("bfirst=1000"), `${name}: a moved text stands beside`);
  await page.screenshot({ path: `${pictures}/${name}-beside.png` });
  await page.close();
  const other = await open(address, "text");
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
  const runs = await open(address, "runs");
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

await finish();
