/** The page of examples/agent; `tests/browser/test_chromium.py` starts its server and a worker. */

import assert from "node:assert/strict";
import { after, test } from "node:test";

import type { BrowserContext, Page } from "playwright-core";

import { launch } from "./chromium.ts";
import { given } from "./page.ts";

const SERVER = given("TOWPATH_AGENT");
const QUESTION = "How do you survive?";

const browser = await launch();
after(() => browser.close());

const complaints: string[] = [];

async function opened(context: BrowserContext, address = SERVER): Promise<Page> {
  const page = await context.newPage();
  await cutOff(page, 3);
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  await page.goto(address);
  return page;
}

/** Lose so many connections of a page, each after some frames: what comes behind never arrives. */
async function cutOff(page: Page, cuts: number): Promise<void> {
  await page.routeWebSocket(/\/api\/ws/, (near) => {
    let left = cuts-- > 0 ? 12 : Infinity;
    near.connectToServer().onMessage((frame) => {
      if (left-- > 0) near.send(frame);
      else void near.close({ code: 4000 });
    });
  });
}

async function ask(page: Page, question = QUESTION): Promise<void> {
  await page.fill("#question", question);
  await page.keyboard.press("Enter");
}

const answers = (page: Page) => page.locator(".answer");
const textOf = async (page: Page) => (await answers(page).last().textContent()) ?? "";

/** Wait until the last answer has so many characters. */
async function written(page: Page, length: number): Promise<void> {
  await page.waitForFunction(
    (length) => ([...document.querySelectorAll(".answer")].pop()?.textContent ?? "").length > length,
    length,
  );
}

async function ended(page: Page, how: string): Promise<void> {
  await page.locator(`.turn:last-child[data-state=${how}]`).waitFor();
}

/** What the database has. */
function stored(page: Page): Promise<(string | null)[]> {
  return page.evaluate(async () => {
    const found = await (await fetch(`${location.pathname}/turns`)).json();
    return found.turns.map(({ answer }: { answer: string | null }) => answer);
  });
}

test("an answer survives a reload, and other pages show the same", async () => {
  const context = await browser.newContext();
  const first = await opened(context);
  await ask(first);
  await written(first, 100);

  await first.reload();
  const second = await opened(context, first.url());
  const device = await opened(await browser.newContext(), first.url());
  const pages = [first, second, device];
  await Promise.all(pages.map((page) => ended(page, "completed")));

  const [whole] = await stored(first);
  assert.match(whole ?? "", /^You asked: “How do you survive\?”\. .* another is not\.$/s);
  assert.deepEqual(await Promise.all(pages.map(textOf)), [whole, whole, whole]);
  assert.equal(await first.locator(".turn").count(), 1);

  await ask(second, "word ".repeat(700)); // the others show it, too, and it takes long
  await Promise.all(pages.map((page) => page.locator(".turn").nth(1).waitFor()));
  await Promise.all(pages.map((page) => written(page, 20)));
  assert.deepEqual(await Promise.all(pages.map((page) => page.locator(".turn").count())), [2, 2, 2]);
  await device.click("#stop");
  await Promise.all(pages.map((page) => ended(page, "cancelled")));

  const [part, ...others] = await Promise.all(pages.map(textOf));
  assert.match(part ?? "", /^You asked: “(word )+$/);
  assert.deepEqual(others, [part, part]);
  assert.deepEqual(await stored(first), [whole, null]);
  await first.reload();
  await ended(first, "cancelled");
  assert.equal(await textOf(first), part);
  assert.deepEqual(complaints, []);
});

for (const width of [390, 1280]) {
  test(`a reader above the end stays there, at a width of ${width}`, async () => {
    const context = await browser.newContext({ viewport: { width, height: 300 } });
    const page = await opened(context);
    await ask(page);
    await written(page, 600);
    const top = () => page.evaluate(() => document.querySelector("#scroller")?.scrollTop);
    assert.ok(((await top()) ?? 0) > 0, "it follows the end");

    await page.evaluate(() => document.querySelector("#scroller")?.scrollTo(0, 10));
    await page.locator("#down").waitFor({ state: "visible" });
    await ended(page, "completed");
    assert.equal(await top(), 10);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width);
    await page.click("#down");
    await page.locator("#down").waitFor({ state: "hidden" });
    assert.equal(await page.evaluate(() => document.activeElement?.id), "scroller");
    assert.deepEqual(complaints, []);
  });
}
