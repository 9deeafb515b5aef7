/** Writes a picture of each page, in both themes and widths: `./dev screenshots [PATH ...]`. */

import { mkdirSync } from "node:fs";
import { join } from "node:path";

import type { Page } from "playwright-core";

import { THEMES, WIDTHS, open, settled } from "./here.ts";
import { everyPage } from "./world.ts";

/** The pages beside those of the world, by the names of their pictures. */
const PAGES: Record<string, string> = {
  palette: "/jobs",
  "palette-found": "/jobs",
  "palette-job": "/",
  "palette-none": "/",
  "key-sheet": "/jobs",
  "rows-chosen": "/jobs",
  login: "/login",
  setup: "/setup",
};
/** What is done on a page before its picture. */
const FIRST: Record<string, (page: Page) => Promise<unknown>> = {
  palette: (page) => find(page, "", "Overview"),
  "palette-found": (page) => find(page, "a", "answers"),
  "palette-job": (page) => find(page, "ann", "key ann"),
  "palette-none": (page) => find(page, "nothing like this", "No page, topic or job fits."),
  "key-sheet": (page) => page.keyboard.press("?"),
  "rows-chosen": async (page) => {
    for (const key of ["j", "x", "j", "j", "Shift+X"]) await page.keyboard.press(key);
  },
};

async function find(page: Page, text: string, found: string): Promise<void> {
  await page.keyboard.press("Control+k");
  await page.fill("[role=combobox]", text);
  await page.locator(".palette", { hasText: found }).waitFor();
}

const TALLEST = 1_400; // pixels of a picture
const OPEN = new Set(["login", "setup"]); // pages for browsers without a login

const folder = process.env["TOWPATH_SCREENSHOTS"] ?? "";
const chosen = process.argv.slice(2);

mkdirSync(folder, { recursive: true });
Object.assign(PAGES, await everyPage());

for (const [name, path] of Object.entries(PAGES)) {
  if (chosen.length && !chosen.includes(name)) continue;
  for (const theme of THEMES) {
    for (const width of WIDTHS) {
      const page = await open(path, { theme, width, isLoggedIn: !OPEN.has(name) });
      await settled(page);
      await FIRST[name]?.(page);
      await page.waitForTimeout(300);
      const height = Number(await page.evaluate("document.documentElement.scrollHeight"));
      await page.setViewportSize({ width, height: Math.min(Math.max(height, 860), TALLEST) });
      await page.screenshot({ path: join(folder, `${name}-${theme}-${width}.png`) });
      await page.context().close();
    }
  }
}
process.exit(0);
