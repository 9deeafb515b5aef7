/** B1: one verb for many jobs, with a preview, an undo, progress and a stop. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Page } from "playwright-core";

import { open, towpath, violations } from "./here.ts";

const act = (page: Page) => page.locator(".bulk-act");
const total = async (topic: string, status: "pending" | "cancelled") =>
  (await towpath.jobs.page({ topic, status, count: true, limit: 1 })).total?.count;

/** So many cancelled jobs. */
async function cancelled(topic: string, count: number): Promise<void> {
  for (let made = 0; made < count; made += 1_000) {
    const jobs = Array.from({ length: Math.min(1_000, count - made) }, (_, nth) => ({ topic, payload: { nth } }));
    await towpath.jobs.enqueueMany(jobs);
  }
  await ended(await towpath.bulk.begin("cancel", { topic }, { upTo: 2 ** 31, delay: 0 }));
}

async function ended({ id }: { id: string }): Promise<void> {
  for (;;) {
    if ((await towpath.bulk.get(id)).endedAt) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Let the acts of a page begin after 10 min, so that a slow machine has the time for Undo. */
async function slow(page: Page): Promise<void> {
  await page.route("**/api/bulk", async (route) => {
    const asked = route.request();
    if (asked.method() !== "POST") return route.continue();
    return route.continue({ postData: { ...asked.postDataJSON(), delay: 600 } });
  });
}

/** Choose all that fit, and ask for the preview of a verb. */
async function preview(page: Page, verb: string, all: string): Promise<void> {
  await page.locator("thead input").click();
  await page.click(`button:text-is('Choose all ${all} that fit')`);
  await page.locator(".chosen-bar", { hasText: `All ${all} that fit are chosen` }).waitFor();
  await page.click(`.chosen-bar button:text-is('${verb}')`);
}

test("all that fit are re-queued: previewed, undone, and done once more, without later jobs", async () => {
  /** B1 */
  const topic = "bulk-requeue";
  await cancelled(topic, 997);
  const lost = await towpath.jobs.enqueueMany([1, 2, 3].map((nth) => ({ topic, payload: {}, key: `key-${nth}` })));
  for (const { id } of lost) await towpath.jobs.cancel(id);
  await towpath.jobs.enqueueMany([1, 2, 3].map((nth) => ({ topic, payload: {}, key: `key-${nth}` })));
  const page = await open(`/jobs?topic=${topic}&status=cancelled`);

  await slow(page);
  await preview(page, "Re-queue", "1,000");
  const sheet = page.locator("dialog");
  await sheet.locator("h2:text-is('Re-queue 1,000 jobs?')").waitFor();
  assert.equal(await sheet.locator(".sample li").count(), 10);
  assert.match(await sheet.innerText(), /cancelled · topic bulk-requeue · created before \d\d:\d\d:\d\d/);
  assert.match(await sheet.innerText(), /3 jobs will be refused: another job has the key now\./);
  await sheet.locator("button:text-is('Re-queue 1,000 jobs')").click();
  await act(page).locator("text=/Begins in \\d+ min/").waitFor();
  assert.equal(await sheet.count(), 0);
  await page.reload(); // as a tab that was closed and opened again
  await act(page).locator("button:text-is('Undo')").click();
  await act(page).locator("text=Undone: no job was changed.").waitFor();
  assert.equal(await total(topic, "cancelled"), 1_000);
  await act(page).locator("button:text-is('Close')").click();
  await page.unroute("**/api/bulk");

  await preview(page, "Re-queue", "1,000");
  await sheet.locator("h2:text-is('Re-queue 1,000 jobs?')").waitFor();
  const later = await towpath.jobs.enqueueMany(Array.from({ length: 20 }, (_, nth) => ({ topic, payload: { later: nth } })));
  for (const { id } of later) await towpath.jobs.cancel(id);
  await sheet.locator("button:text-is('Re-queue 1,000 jobs')").click();
  await act(page).locator("text=Re-queued 997 jobs.").waitFor();

  await act(page).locator("summary", { hasText: "3 jobs refused" }).click();
  const refused = await act(page).locator("li a").evaluateAll((all) => all.map((each) => each.getAttribute("title")));
  assert.deepEqual(refused.sort(), lost.map(({ id }) => id).sort());
  assert.deepEqual(await violations(page), []);
  assert.equal(await total(topic, "cancelled"), 23);
  assert.equal(await total(topic, "pending"), 1_000); // 997, and the 3 that have the keys
  await page.locator("tr.left").first().waitFor(); // the rows have changed in place
});

test("a bulk act that runs can be stopped, and says how far it came", async () => {
  /** B1 */
  const topic = "bulk-stop";
  const count = 15_000;
  for (let made = 0; made < count; made += 1_000) {
    await towpath.jobs.enqueueMany(Array.from({ length: 1_000 }, (_, nth) => ({ topic, payload: { nth } })));
  }
  const page = await open("/topics"); // it is shown on every page
  await page.locator("button.live:text-is('live')").waitFor();
  await towpath.bulk.begin("cancel", { topic }, { upTo: 2 ** 31, delay: 0 });

  await act(page).locator("button:text-is('Stop')").click();
  await act(page).locator("text=/Stopped: cancelled [\\d,]+ jobs of 15,000\\./").waitFor();

  const [last] = await towpath.bulk.list({ limit: 1 });
  assert.equal(last?.state, "stopped");
  assert.equal(await total(topic, "cancelled"), last?.done);
});

test("more than a few chosen rows get a preview and an undo as well", async () => {
  const topic = "bulk-rows";
  await towpath.jobs.enqueueMany(Array.from({ length: 30 }, (_, nth) => ({ topic, payload: { nth } })));
  const page = await open(`/jobs?topic=${topic}`);
  await page.locator("table.jobs tbody tr").nth(0).locator("input").click();
  await page.locator("table.jobs tbody tr").nth(11).locator("input").click({ modifiers: ["Shift"] });
  await page.click(".chosen-bar button:text-is('Delete')");

  const sheet = page.locator("dialog");
  await sheet.locator("text=12 jobs chosen on this page").waitFor();
  await page.keyboard.press("Escape");
  await sheet.waitFor({ state: "detached" });
  await page.locator(".chosen-bar", { hasText: "12 chosen" }).waitFor(); // nothing was changed
  await page.click(".chosen-bar button:text-is('Delete')");
  await slow(page);
  await sheet.locator("button:text-is('Delete 12 jobs')").click();

  await act(page).locator("text=/Begins in \\d+ min/").waitFor();
  await page.setViewportSize({ width: 390, height: 860 });
  await page.locator("table.jobs tbody tr").nth(0).locator("input").click();
  await page.locator(".chosen-bar", { hasText: "1 chosen" }).waitFor(); // it does not cover the act
  await act(page).locator("button:text-is('Undo')").click();
  await act(page).locator("text=Undone: no job was changed.").waitFor();
  assert.equal(await total(topic, "pending"), 30);
});

test("without a filter, all jobs cannot be chosen", async () => {
  await towpath.jobs.enqueueMany(Array.from({ length: 60 }, (_, nth) => ({ topic: "bulk-none", payload: { nth } })));
  const page = await open("/jobs");
  await page.locator("thead input").click();
  await page.locator(".chosen-bar").waitFor();

  assert.equal(await page.locator("button:has-text('that fit')").count(), 0);
});
