/** Writes a picture of each page, empty, usual and hostile, in both themes and widths: `./dev screenshots [PATH ...]`. */

import { mkdirSync } from "node:fs";
import { join } from "node:path";

import type { Page } from "playwright-core";

import { type Look, THEMES, WIDTHS, open, settled } from "./here.ts";
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
/** The pages of a server on which nothing has happened yet. */
const EMPTY = {
  ...Object.fromEntries(["jobs", "topics", "workers", "schedules", "flows", "channels", "webhooks", "activity"].map((page) => [`empty-${page}`, `/${page}`])),
  "empty-overview": "/",
  "empty-deliveries": "/webhooks/deliveries",
  "empty-dead-letters": "/webhooks/dead-letters",
  "empty-users": "/settings/users",
  "empty-keys": "/settings/keys",
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
await pictures(EMPTY);
await pictures({ ...PAGES, ...(await everyPage()) });
process.exit(0);

async function pictures(of: Record<string, string>): Promise<void> {
  for (const [name, path] of Object.entries(of)) {
    if (chosen.length && !chosen.includes(name)) continue;
    const looks = THEMES.flatMap((theme) => WIDTHS.map((width) => ({ theme, width, isLoggedIn: !OPEN.has(name) })));
    await Promise.all(looks.map((look) => picture(name, path, look)));
  }
}

async function picture(name: string, path: string, look: Required<Look>): Promise<void> {
  const { theme, width } = look;
  const page = await open(path, look);
  await settled(page);
  await FIRST[name]?.(page);
  await page.waitForTimeout(300);
  const height = Number(await page.evaluate("document.documentElement.scrollHeight"));
  await page.setViewportSize({ width, height: Math.min(Math.max(height, 860), TALLEST) });
  await page.screenshot({ path: join(folder, `${name}-${theme}-${width}.png`) });
  await page.context().close();
}
