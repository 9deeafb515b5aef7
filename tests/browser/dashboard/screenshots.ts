/** Writes a picture of each page, in both themes and widths: `./dev screenshots [PATH ...]`. */

import { mkdirSync } from "node:fs";
import { join } from "node:path";

import type { Page } from "playwright-core";

import { THEMES, WIDTHS, failedJob, jobOfEachState, open, settled, speakingJob, towpath, triedJob } from "./here.ts";
import { channelScenes, settingScenes, webhookScenes } from "./scenes.ts";

/** The pages, by the names of their pictures; a new page is a line here. */
const PAGES: Record<string, string> = {
  overview: "/",
  "overview-week": "/?range=week",
  jobs: "/jobs",
  "jobs-failed": "/jobs?status=failed",
  "jobs-none": "/jobs?topic=nothing",
  topics: "/topics",
  "topics-none": "/topics?find=nothing",
  topic: "/topics/mail",
  workers: "/workers",
  schedules: "/schedules",
  "schedule-new": "/schedules?new=yes",
  schedule: "/schedules/digest",
  palette: "/jobs",
  "palette-found": "/jobs",
  "palette-job": "/",
  "palette-none": "/",
  "key-sheet": "/jobs",
  "rows-chosen": "/jobs",
  login: "/login",
  setup: "/setup",
  "not-found": "/elsewhere",
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

const HOSTILE = { "<b>name</b>": "javascript:alert(1)", "\u202eright to left": "\u001b[31mred", word: "w".repeat(300) };
const TALLEST = 1_400; // pixels of a picture
const OPEN = new Set(["login", "setup"]); // pages for browsers without a login

const folder = process.env["TOWPATH_SCREENSHOTS"] ?? "";
const chosen = process.argv.slice(2);

mkdirSync(folder, { recursive: true });
await towpath.jobs.enqueueMany(
  Array.from({ length: 60 }, (_, nth) => ({ topic: "reports", payload: { report: nth, big: "x".repeat(nth * 20) } })),
);
for (const topic of ["mail_digest", "pdf_embed", "check_pay"]) await jobOfEachState(topic);
const hostile = await failedJob("hostile", `<script>alert(1)</script>\u001b[31m red \u202e desrever ${"w".repeat(200)}`, HOSTILE);
const payload = { userId: 4711, email: "ann@example.com", apiToken: "hunter2", tags: ["news", "daily"], options: { retry: true } };
const tried = await triedJob("mail", payload);
for (let nth = 0; nth < 2; nth += 1) await triedJob("mail", payload, 1);
const speaking = await speakingJob("answers");
const waiting = await towpath.jobs.enqueue("mail", payload, { delay: 3600, key: "ann", limit: { key: "mailer", concurrency: 5 } });
const edited = await towpath.jobs.enqueue("mail", payload);
const fetched = await towpath.jobs.enqueue("fetch", {});
const [fetching] = await towpath.jobs.reserve(["fetch"]);
await fetching?.complete();
const resized = [];
for (let nth = 0; nth < 5; nth += 1) resized.push(await towpath.jobs.enqueue("resize", { nth }, { after: [fetched.id], ttr: 3600, maxRetries: 1 }));
const packed = await towpath.jobs.enqueue("pack", {}, { after: resized.map(({ id }) => id) });
const published = await towpath.jobs.enqueue("publish", {}, { after: [packed.id] });
const resizing = await towpath.jobs.reserve(["resize"], { limit: 2 });
await resizing[0]?.complete();
const broken = await towpath.jobs.enqueue("import", {}, { maxRetries: 1 });
await towpath.jobs.enqueue("report", {}, { after: [broken.id] });
const [breaking] = await towpath.jobs.reserve(["import"]);
await breaking?.fail("ValueError: row 7 has no date");
await towpath.schedules.set("digest", { topic: "mail", cron: "0 7 * * *", tz: "Europe/Zurich", payload });
await towpath.schedules.set("sweep", { topic: "clean", every: 1 });
await towpath.schedules.set("<b>old</b>", { topic: "clean", cron: "0 0 29 2 *", tz: "UTC" });
await towpath.schedules.pause("<b>old</b>");
Object.assign(PAGES, {
  enqueue: "/jobs/new?topic=mail",
  edit: `/jobs/new?from=${edited.id}`,
  flows: `/flows?flow=${published.id}`,
  "flows-stopped": "/flows?show=stopped",
  "job-flow": `/jobs/${packed.id}`,
  "job-failed": `/jobs/${tried.id}`,
  "job-running": `/jobs/${speaking.job.id}`,
  "job-delayed": `/jobs/${waiting.id}`,
  "job-hostile": `/jobs/${hostile.id}`,
  "job-gone": "/jobs/0199c1de-7d52-7c7f-b0f4-4f5a25678903",
});
Object.assign(PAGES, await channelScenes(), await webhookScenes(), await settingScenes());

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
