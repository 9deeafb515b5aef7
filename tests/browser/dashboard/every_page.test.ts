/** Every page, with usual and hostile texts: K2, K3, M1, X1. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Page } from "playwright-core";

import { given } from "../page.ts";
import { context, expectComplaints, open, settled } from "./here.ts";
import { problems, watched } from "./looks.ts";
import { everyPage } from "./world.ts";

/** What a page shows after an act: menus, dialogs, and the palette. */
const ACTS: Record<string, (page: Page) => Promise<unknown>> = {
  "/jobs?topic=reports menu": (page) => page.click("main button:text-is('View')"),
  "/jobs?topic=reports preview": async (page) => {
    await page.locator("thead input").click();
    await page.click("button:text-is('Choose all 60 that fit')");
    await page.click(".chosen-bar button:text-is('Cancel')");
    await page.locator("dialog .sample li").nth(9).waitFor();
  },
  "/jobs?topic=hostile keys": async (page) => {
    for (const key of ["j", "x", "?"]) await page.keyboard.press(key);
    await page.locator("dialog .key-sheet").waitFor();
  },
  "/ palette": (page) => find(page, "hostile"),
  "/ nothing in the palette": (page) => find(page, "nothing like this"),
  "/jobs/new?topic=mail mistake": async (page) => {
    await page.fill("textarea[name=payload]", '{"a": 1, }');
    await page.locator(".mistake").waitFor();
  },
  "/topics/hostile purge": (page) => page.click("button:text-is('Purge …')"),
  "/webhooks form": (page) => page.click("button:text-is('New subscription')"),
  "/settings/access tried": async (page) => {
    await page.fill("[name=what]", "mail");
    await page.click("button:text-is('Try')");
    await page.locator("[aria-label='With the rules as saved']").waitFor();
  },
};

async function find(page: Page, text: string): Promise<void> {
  await page.keyboard.press("Control+k");
  await page.fill("[role=combobox]", text);
  await page.locator(".palette", { hasText: /Topic|No page/ }).waitFor();
}

test("every page is readable on each screen, and shows the texts of others as text", async () => {
  /** K2, K3, M1, X1 */
  const inside = await context();
  const outside = await context({ isLoggedIn: false });
  const looked = async (path: string, act?: (page: Page) => Promise<unknown>) => {
    const page = await open(path, { context: /^\/(login|setup)/.test(path) ? outside : inside });
    const seen = watched(page);
    await settled(page);
    for (const each of await page.locator("main :is(summary, td .fold)").all()) await each.click();
    await act?.(page);
    await settled(page);
    const found = [...(await problems(page)), ...seen].map((each) => `${path}: ${each}`);
    await page.close();
    return found;
  };
  const plain = [...Object.values(await everyPage()), "/login", "/setup"].map((path) => [path, undefined] as const);
  const pages = [...plain, ...Object.entries(ACTS)].filter((_, nth) => nth % 2 === Number(given("TOWPATH_HALF")));
  const found: string[] = [];
  for (const [name, act] of pages) found.push(...(await looked(name.split(" ")[0] ?? "", act)));

  assert.deepEqual(found, []);
  expectComplaints(/404/);
});
