/** The server's own pages; `tests/browser/test_chromium.py` starts the server. */

import assert from "node:assert/strict";
import { after, test } from "node:test";

import { launch } from "./chromium.ts";

const SERVER = process.env["TOWPATH_URL"] ?? "";

const browser = await launch();
after(() => browser.close());

async function page(path: string, width: number) {
  const context = await browser.newContext({ viewport: { width, height: 800 } });
  const opened = await context.newPage();
  await opened.goto(SERVER + path);
  return opened;
}

for (const width of [1280, 390]) {
  test(`the documentation is searched, at a width of ${width}`, async () => {
    const docs = await page("/api/docs", width);
    const routes = docs.locator("main details.route:visible");
    const all = await routes.count();

    await docs.fill("[type=search]", "schedule pause");
    assert.deepEqual(await routes.locator("summary code").allTextContents(), [
      "/api/schedules/{name}/pause",
      "/api/schedules/{name}/resume",
    ]);
    await docs.fill("[type=search]", "no such thing");
    assert.equal(await docs.locator("[role=status]").textContent(), "0 found");
    await docs.fill("[type=search]", "");
    assert.equal(await routes.count(), all);
  });

  test(`a link of the side bar opens its route, at a width of ${width}`, async () => {
    const docs = await page("/api/docs", width);
    if (width < 800) await docs.click("nav summary");

    await docs.click("nav a[href='#enqueue']");

    await docs.locator("#enqueue pre").waitFor({ state: "visible" });
    assert.equal(await docs.locator("nav a:visible").count() > 0, width > 800);
  });

  test(`no page is wider than the screen, at a width of ${width}`, async () => {
    for (const path of ["/", "/api/docs#JobInput", "/setup?token=used"]) {
      const opened = await page(path, width);
      const wide = await opened.evaluate("document.documentElement.scrollWidth");
      assert.equal(wide, width, path);
    }
  });
}
