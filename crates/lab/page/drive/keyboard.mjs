// Every view by keyboard alone.

import { check, open, until } from "./browser.mjs";

/** Presses keys where the focus is. */
async function press(page, ...keys) {
  for (const key of keys) await page.keyboard.press(key);
}

/** Tabs until a selector has the focus. */
async function tabTo(page, selector, what) {
  for (let i = 0; i < 200; i++) {
    await page.keyboard.press("Tab");
    if (await page.evaluate((selector) => document.activeElement?.matches(selector), selector)) return;
  }
  check(false, `${what}: ${selector} is not reached by Tab`);
}

export async function keyboard(name, address, isSaved) {
  const heads = await open(address, "heads");
  await tabTo(heads, ".thumb", `${name} heads`);
  await tabTo(heads, '.thumb[aria-pressed="false"]', `${name} heads`);
  const place = await heads.evaluate(() => document.activeElement.dataset.place);
  await press(heads, "Enter");
  await until(heads, `${name} heads: a head by Enter`, (place) =>
    document.querySelector('.thumb[aria-pressed="true"]')?.dataset.place === place, place);
  await tabTo(heads, ".one .tokens [role=option]", `${name} heads`);
  await press(heads, "Home", "ArrowRight", "Enter");
  await until(heads, `${name} heads: a token by Enter`, () => location.hash.includes("rows=1"));
  await heads.close();

  const split = await open(address, "split");
  await tabTo(split, ".tokens [role=option]", `${name} split`);
  await press(split, "Home", "ArrowRight", "ArrowRight", "Enter");
  await until(split, `${name} split: who looks by Enter`, () => location.hash.includes("at=2"));
  await tabTo(split, "ol.heads button", `${name} split`);
  await press(split, "Tab", "Enter");
  await until(split, `${name} split: a head by Enter`, () => location.hash.includes("head=1"));
  await split.close();

  const choices = await open(address, "choices");
  await tabTo(choices, ".axis .segments button", `${name} choices`);
  await press(choices, "Tab", "Enter");
  await until(choices, `${name} choices: an encoding by Enter`, () => location.hash.includes("position="));
  await choices.close();
  if (isSaved) return;

  const slid = await open(address, "choices", { also: { position: "rotary" } });
  await tabTo(slid, 'input[type=range][aria-label="base"]', `${name} choices`);
  await press(slid, "ArrowRight");
  await until(slid, `${name} choices: a slider by an arrow`, () => location.hash.includes("base"));
  const first = await slid.evaluate(() => location.hash);
  await slid.waitForTimeout(300);
  await press(slid, "ArrowRight");
  await until(slid, `${name} choices: and on, the focus stays`, (first) => location.hash !== first, first);
  await slid.close();

  const runs = await open(address, "runs");
  await tabTo(runs, "ul.runs input", `${name} runs`);
  await press(runs, "Space");
  await until(runs, `${name} runs: a run by Space`, () => location.hash.includes("follow="));
  check(await runs.evaluate(() => document.activeElement?.matches("ul.runs input")), `${name} runs: the focus stays on its box`);
  await tabTo(runs, "th button", `${name} runs`);
  await press(runs, "Enter");
  await until(runs, `${name} runs: sorted by Enter`, () => location.hash.includes("sort=name"));
  await runs.close();
}
