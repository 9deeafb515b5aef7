/** Activity: who did what, live, with filters that the address holds; bulk acts with Stop. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Page } from "playwright-core";

import { WHO, failedJob, open, towpath } from "./here.ts";

const acts = (page: Page) => page.locator(".acts-list tbody tr");

test("an act tells who, what and from where, and appears as it is done", async () => {
  const job = await towpath.jobs.enqueue("acted", {}, { delay: 3600 });
  const page = await open("/activity");
  await acts(page).first().waitFor();

  await towpath.topics.pause("acted", { duration: 900 });
  await page.locator(".acts-list tbody tr:first-child", { hasText: "paused topic acted" }).waitFor();
  const text = await acts(page).first().innerText();
  assert.match(text, new RegExp(WHO.email));
  assert.match(text, /for 15 min/);
  assert.match(text, /127\.0\.0\.1/);
  await page.click(`a:has-text("job …${job.id.slice(-7)}")`);
  await page.waitForURL(new RegExp(job.id));
});

test("acts are found by who and what, which the address holds", async () => {
  await towpath.jobs.enqueue("found", {});
  await towpath.topics.pause("found");
  await towpath.topics.resume("found");
  const page = await open("/activity");
  await acts(page).first().waitFor();

  await page.selectOption("label:has-text('What') select", { label: "topics" });
  await page.waitForURL(/what=topic/);
  for (const text of await acts(page).allInnerTexts()) assert.match(text, /topic/);
  await page.selectOption("label:has-text('Who') select", { label: WHO.email });
  await page.waitForURL(/who=root/);
  await acts(page).first().waitFor();
  const other = await open("/activity?who=another");
  await other.locator("text=No act fits.").waitFor();
});

test("a bulk act is shown with its count, and undone before it begins", async () => {
  for (let nth = 0; nth < 3; nth += 1) await failedJob("bulky", "no");
  const choice = { topic: "bulky", status: "failed" } as const;
  const { upTo, count } = await towpath.bulk.preview("requeue", choice);
  assert.equal(count, 3);
  await towpath.bulk.begin("requeue", choice, { upTo, delay: 600 });
  const page = await open("/activity");
  const bulk = page.locator(".bulks li", { hasText: "Re-queue 3 jobs" });
  await bulk.locator("text=waiting").waitFor();

  await bulk.locator("button:text-is('Undo')").click();
  await bulk.locator("text=stopped").waitFor();
  assert.equal((await towpath.jobs.list({ topic: "bulky", status: "failed" })).items.length, 3);

  await towpath.bulk.begin("requeue", choice, { upTo, delay: 0 });
  await page.locator(".bulks li", { hasText: "3 of 3" }).waitFor();
});
