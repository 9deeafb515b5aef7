/** Topics: their figures, and what can be done to them. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Page } from "playwright-core";

import { SERVER, expectComplaints, failedJob, jobOfEachState, open, towpath, violations } from "./here.ts";

const rows = (page: Page) => page.locator("table.topics tbody tr");
const row = (page: Page, topic: string) => rows(page).filter({ has: page.locator(`td:first-child bdi:text-is("${topic}")`) });

test("a topic is paused for a time, which is shown, and resumed", async () => {
  /** P2 */
  await towpath.jobs.enqueue("held", {});
  const page = await open("/topics");
  await row(page, "held").locator("button", { hasText: "Pause" }).click();
  await page.click("[role=menuitem]:has-text('for 1 minute')");

  await row(page, "held").locator("text=/paused, ends in \\d+ s/").waitFor();
  assert.equal((await towpath.jobs.reserve(["held"])).length, 0);
  await row(page, "held").locator("button", { hasText: "Resume" }).click();
  await row(page, "held").locator("button", { hasText: "Pause" }).waitFor();
  assert.equal((await towpath.jobs.reserve(["held"])).length, 1);
});

test("a pause can be undone", async () => {
  await towpath.jobs.enqueue("undone", {});
  const page = await open("/topics/undone");
  await page.click("button:has-text('Pause')");
  await page.click("[role=menuitem]:has-text('until it is resumed')");
  await page.locator("text=paused until resumed").waitFor();

  await page.click(".toast button:text-is('Undo')");

  await page.locator("text=paused until resumed").waitFor({ state: "detached" });
});

test("a topic tells its figures, and failed jobs are re-queued", async () => {
  await jobOfEachState("figures");
  const page = await open("/topics/figures");
  await page.locator("dl.strip").waitFor();
  for (const [name, count] of Object.entries({ Ready: 1, Delayed: 1, Blocked: 1, Running: 1, Failed: 1 })) {
    await page.locator(`dl.strip div:has(dt:text-is("${name}")) dd`, { hasText: new RegExp(`^${count}`) }).waitFor();
  }

  await page.route("**/api/bulk", (route) => route.continue({ postData: { ...route.request().postDataJSON(), delay: 0 } }));
  await page.click("button:text-is('Re-queue 1 failed job …')");
  await page.click("dialog button:text-is('Re-queue 1 job')");

  await page.getByText("Re-queued 1 job.").waitFor();
  await page.locator('dl.strip div:has(dt:text-is("Failed")) dd', { hasText: /^0/ }).waitFor();
  assert.equal((await towpath.topics.get("figures")).ready, 2);
});

test("a job that is planned for tomorrow is not run in the place of a failed one that has gone", async () => {
  const failed = await failedJob("re-queued", "no");
  const planned = await towpath.jobs.enqueue("re-queued", {}, { delay: 86_400 });
  const page = await open("/topics/re-queued");
  const button = page.locator("button:text-is('Re-queue 1 failed job …')");
  await button.waitFor();
  await page.click("button.live"); // paused: the page does not see what follows
  await towpath.jobs.requeue(failed.id);

  await button.click();

  await page.locator("dialog", { hasText: "No such job is left." }).waitFor();
  assert.equal((await towpath.jobs.get(planned.id)).state, "delayed");
});

test("a purge wants the name of the topic", async () => {
  /** B2 */
  await jobOfEachState("purged");
  const page = await open("/topics/purged");
  await page.click("button:text-is('Purge …')");
  const purge = page.locator("dialog button:text-is('Purge')");
  await page.fill("dialog input", "purge");
  assert.ok(await purge.isDisabled());
  assert.deepEqual(await violations(page), []);
  await page.fill("dialog input", "purged");
  await purge.click();

  await page.locator("dialog").waitFor({ state: "detached" });
  const left = await towpath.topics.get("purged");
  assert.deepEqual([left.ready, left.delayed, left.blocked, left.buried, left.reserved], [0, 0, 0, 0, 1]);
});

test("a topic shows the limits of its jobs", async () => {
  const limit = { key: "mailer <b>", concurrency: 1 };
  await towpath.jobs.enqueueMany([1, 2, 3].map((payload) => ({ topic: "limited", payload, limit })));
  await towpath.jobs.reserve(["limited"]);
  assert.equal((await towpath.jobs.reserve(["limited"])).length, 0);
  const page = await open("/topics/limited");

  await page.locator("section:has-text('Limits in use') li", { hasText: /mailer <b>.*1 of 1 running, 2 wait/ }).waitFor();
});

test("a topic that does not exist says so", async () => {
  const page = await open("/topics/nothing-here");
  await page.locator("[role=alert]", { hasText: "nothing-here" }).waitFor();
  expectComplaints(/404/);
});

test("a thousand topics are shown, found and sorted", async () => {
  /** P2 */
  const jobs = Array.from({ length: 1000 }, (_, nth) => ({ topic: `many-${String(nth).padStart(4, "0")}`, payload: nth }));
  for (let at = 0; at < jobs.length; at += 100) await towpath.jobs.enqueueMany(jobs.slice(at, at + 100));
  await towpath.jobs.enqueue("many-0777", {});
  const page = await open("/topics?sort=name");
  await rows(page).nth(99).waitFor();
  await page.click("button:has-text('more')");
  await rows(page).nth(999).waitFor();

  await page.fill("input[type=search]", "many-07");
  await page.locator("[role=status]", { hasText: /^100 of 1,\d+ topics$/ }).waitFor();
  assert.equal(await rows(page).count(), 100);
  await page.selectOption("label:has-text('Sort') select", "waiting");
  await page.waitForURL(`${SERVER}/topics?sort=waiting&find=many-07`);
  assert.equal(await rows(page).first().locator("td a").first().innerText(), "many-0777");
  await page.reload();
  await row(page, "many-0777").waitFor();
  assert.equal(await rows(page).count(), 100);

  await page.fill("input[type=search]", "no such topic");
  await page.click("button:text-is('Clear the filter')");
  await page.waitForURL(`${SERVER}/topics?sort=waiting`);
});
