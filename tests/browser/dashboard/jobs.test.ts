/** The list of jobs: US6-1, US6-2, US6-3, US6-5, and rows that change in place. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";

import type { Page } from "playwright-core";

import {
  SERVER,
  THEMES,
  expectComplaints,
  failedJob,
  isTooWide,
  jobOfEachState,
  open,
  settled,
  towpath,
  violations,
} from "./here.ts";
import { given } from "../page.ts";

const rows = (page: Page) => page.locator("table.jobs tbody tr");
const row = (page: Page, id: string) => page.locator(`tr[data-id="${id}"]`);
const shown = (page: Page) =>
  rows(page).evaluateAll((all) => all.map((each) => (each as HTMLElement).dataset["id"]));
const isFound = (page: Page, where: string) => page.locator(".pager", { hasText: where }).waitFor();

/** Wait until the list has these jobs, in any order. */
async function isList(page: Page, ids: (string | undefined)[]): Promise<void> {
  await page.waitForFunction(
    (wanted) => {
      const rows = [...document.querySelectorAll<HTMLElement>("table.jobs tbody tr")];
      return JSON.stringify(rows.map((row) => row.dataset["id"]).sort()) === wanted;
    },
    JSON.stringify([...ids].sort()),
  );
}

async function enqueued(topic: string, count: number): Promise<string[]> {
  const jobs = Array.from({ length: count }, (_, nth) => ({ topic, payload: { nth } }));
  return (await towpath.jobs.enqueueMany(jobs)).map(({ id }) => id).reverse();
}

test("a list has pages, forward and back, also by the back button and after a reload", async () => {
  /** US6-1 */
  const ids = await enqueued("paged", 120);
  const page = await open("/jobs?topic=paged");
  await isFound(page, "Page 1 of 3");
  assert.deepEqual(await shown(page), ids.slice(0, 50));
  assert.ok(await page.locator("button:has-text('Prev')").isDisabled());

  await page.click("button:has-text('Next')");
  await isFound(page, "Page 2 of 3");
  assert.deepEqual(await shown(page), ids.slice(50, 100));
  await page.reload();
  await isFound(page, "Page 2 of 3");
  assert.deepEqual(await shown(page), ids.slice(50, 100));
  await page.click("button:has-text('Next')");
  await isFound(page, "Page 3 of 3");
  assert.deepEqual(await shown(page), ids.slice(100));
  assert.ok(await page.locator("button:has-text('Next')").isDisabled());

  await page.click("button:has-text('Prev')");
  await isFound(page, "Page 2 of 3");
  assert.deepEqual(await shown(page), ids.slice(50, 100));
  await page.goBack();
  await isFound(page, "Page 3 of 3");
  assert.deepEqual(await shown(page), ids.slice(100));
});

test("the oldest jobs come first if one wants, in pages as well", async () => {
  const ids = (await enqueued("oldest", 60)).reverse();
  const page = await open("/jobs?topic=oldest");
  await isFound(page, "Page 1 of 2");

  await page.click("button:has-text('newest first')");
  await page.click("[role=menu] >> text=oldest first");
  await page.waitForURL(/order=oldest/);
  await row(page, ids[0] ?? "").waitFor();
  assert.deepEqual(await shown(page), ids.slice(0, 50));
  await page.click("button:has-text('Next')");
  await isFound(page, "Page 2 of 2");
  assert.deepEqual(await shown(page), ids.slice(50));
  await page.click("button:has-text('Prev')");

  await isFound(page, "Page 1 of 2");
  assert.deepEqual(await shown(page), ids.slice(0, 50));
});

for (const theme of THEMES) {
  test(`a row tells topic, status, time, retries and the last error, ${theme}`, async () => {
    /** US6-2 */
    const topic = `told-${theme}`;
    const jobs = await jobOfEachState(topic);
    const page = await open(`/jobs?topic=${topic}`, { theme });
    await rows(page).first().waitFor();

    for (const [state, job] of Object.entries(jobs)) {
      // The time of the current second is "now"; a second later it is the time of day.
      const mine = row(page, job.id).filter({ hasText: state === "delayed" ? /in \d+ min/ : /\d\d:\d\d:\d\d/ });
      const text = (await mine.innerText()).replace(/\s+/g, " ");
      assert.ok(text.includes(topic), text);
      assert.ok(text.includes(state), text);
      assert.match(text, /\d+ \/ \d+/);
    }
    assert.match(await row(page, jobs["failed"]?.id ?? "").innerText(), /SMTPServerDisconnected: Connection/);
    assert.match(await row(page, jobs["processing"]?.id ?? "").innerText(), /62 %\s*page 31/);
    assert.match(await row(page, jobs["ready"]?.id ?? "").innerText(), /"userId"/);
    assert.equal(await row(page, jobs["completed"]?.id ?? "").locator("button").count(), 0);
  });
}

test("each status is a filter that the address holds, for others too", async () => {
  /** US6-3 */
  const jobs = await jobOfEachState("by-status");
  const page = await open("/jobs?topic=by-status");
  await rows(page).first().waitFor();
  const wanted = {
    pending: ["ready", "blocked", "delayed"],
    processing: ["processing"],
    completed: ["completed"],
    failed: ["failed"],
    cancelled: ["cancelled"],
  };

  for (const [status, states] of Object.entries(wanted)) {
    const ids = states.map((state) => jobs[state]?.id);
    await page.click(`nav.tabs a:has-text('${status}')`);
    await page.waitForURL(new RegExp(`status=${status}`));
    await isList(page, ids);
    const elsewhere = await open(page.url().slice(SERVER.length));
    await isList(elsewhere, ids);
    await elsewhere.context().close();
  }
});

test("an answer that arrives after a newer one is dropped", async () => {
  /** L4 */
  const jobs = await jobOfEachState("late");
  const page = await open("/jobs?topic=late");
  await rows(page).first().waitFor();
  let release: (value: unknown) => void = () => undefined;
  const isLate = new Promise((resolve) => (release = resolve));
  await page.route(/status=failed/, async (route) => {
    await isLate;
    await route.continue().catch(() => undefined); // the page may have given it up
  });
  await page.click("nav.tabs a:has-text('failed')");
  await page.waitForURL(/status=failed/);
  await page.click("nav.tabs a:has-text('completed')");
  await isList(page, [jobs["completed"]?.id]);

  release(null);
  await settled(page);

  assert.deepEqual(await shown(page), [jobs["completed"]?.id]);
});

test("a search finds a job by its payload, error, key, id and number", async () => {
  /** J1 */
  const job = await failedJob("searched", "OddError: the quick brown fox", { user: "ann@example.com" });
  const [other] = await enqueued("searched", 1);
  const keyed = await towpath.jobs.enqueue("searched", {}, { key: "order-4711" });
  const page = await open("/jobs?topic=searched");
  await row(page, other ?? "").waitFor();

  for (const [text, id] of [
    ["ann@example.com", job.id],
    ["quick brown", job.id],
    ["order-4711", keyed.id],
    [job.id, job.id],
    [String(job.seq), job.id],
  ] as const) {
    await page.fill("[name=text]", text);
    await page.click("button:text-is('Search')");
    await page.waitForURL(new RegExp(`text=${encodeURIComponent(text).replace("%40", "(%40|@)").replace("%20", "\\+")}`));
    await isList(page, [id]);
  }
  await page.fill("[name=text]", "no such text");
  await page.click("button:text-is('Search')");
  await page.locator("text=No job fits: topic searched · with “no such text”.").waitFor();
  assert.deepEqual(await violations(page), []);
  await page.click("text=Clear the filters");
  await page.waitForURL(`${SERVER}/jobs`);
});

test("a failed job is re-queued in its row, without a reload", async () => {
  /** US6-5 */
  const job = await failedJob("requeued", "it broke");
  const page = await open("/jobs?topic=requeued&status=failed");
  const mine = row(page, job.id);
  const sent: string[] = [];
  page.on("request", (request) => void (request.method() === "POST" && sent.push(request.url())));
  await mine.locator("button:text-is('Re-queue')").dblclick();

  await mine.locator(".mark:text-is('ready')").waitFor();
  assert.match(await mine.locator(".retries").innerText(), /^0 \/ 1$/);
  await page.locator(".toast", { hasText: "is ready again" }).waitFor();
  assert.equal(sent.length, 1, String(sent)); // of a double click: L4
  assert.equal((await towpath.jobs.get(job.id)).status, "pending");
});

test("a job that was re-queued elsewhere meanwhile is told, and its row is right", async () => {
  const job = await failedJob("meanwhile", "it broke");
  const page = await open("/jobs?topic=meanwhile");
  await page.click("button.live"); // pause, so that the row is old
  const button = row(page, job.id).locator("button:text-is('Re-queue')");
  await button.waitFor();
  await towpath.jobs.requeue(job.id);

  await button.click();

  await page.locator(".toast.bad", { hasText: "Nothing was changed." }).waitFor();
  await row(page, job.id).locator(".mark:text-is('ready')").waitFor();
  expectComplaints(/409/);
});

test("acts of a row: cancel with undo, run now, stop, delete after a question", async () => {
  const jobs = await jobOfEachState("acts");
  const page = await open("/jobs?topic=acts");
  const of = (state: string) => row(page, jobs[state]?.id ?? "");
  await of("ready").locator("button:text-is('Cancel')").click();
  await of("ready").locator(".mark:text-is('cancelled')").waitFor();
  await page.click(".toast button:text-is('Undo')");
  await of("ready").locator(".mark:text-is('ready')").waitFor();

  await of("delayed").locator("button:text-is('Run now')").click();
  await of("delayed").locator(".mark:text-is('ready')").waitFor();

  await of("processing").locator("button:text-is('Stop')").click();
  await of("processing").locator("button:text-is('Stopping')").waitFor();
  assert.equal((await towpath.jobs.get(jobs["processing"]?.id ?? "")).cancelRequested, true);

  await of("failed").locator("button:text-is('Delete')").click();
  assert.equal(await page.evaluate("document.activeElement.closest('.confirm') !== null"), true);
  await of("failed").locator("button:text-is('Keep')").click();
  assert.equal(await page.evaluate("document.activeElement.textContent"), "Delete");
  await of("failed").locator("button:text-is('Delete')").click();
  assert.deepEqual(await violations(page), []);
  await of("failed").locator(".confirm button:text-is('Delete')").click();
  await of("failed").locator(".mark:text-is('gone')").waitFor();
});

test("chosen jobs are cancelled together; those that cannot be are left", async () => {
  /** B2 */
  const jobs = await jobOfEachState("chosen");
  const page = await open("/jobs?topic=chosen");
  await rows(page).first().waitFor();
  await rows(page).nth(0).locator("input").click();
  await rows(page).nth(2).locator("input").click({ modifiers: ["Shift"] });
  await page.locator(".chosen-bar", { hasText: "3 chosen" }).waitFor();
  assert.deepEqual(await violations(page), []);

  await page.locator("thead input").click();
  await page.locator(".chosen-bar", { hasText: "7 chosen" }).waitFor();
  await page.click(".chosen-bar button:text-is('Cancel')");

  await page.locator(".toast", { hasText: "Cancel: 4 jobs." }).waitFor();
  for (const state of ["ready", "delayed", "blocked"]) {
    await row(page, jobs[state]?.id ?? "").locator(".mark:text-is('cancelled')").waitFor();
  }
});

test("a page that is changed from elsewhere moves no row, and new jobs wait behind a button", async () => {
  /** L1 */
  const ids = await enqueued("placed", 50);
  const page = await open("/jobs?topic=placed");
  const pointed = row(page, ids[9] ?? "");
  await pointed.waitFor();
  await pointed.hover();
  const before = await pointed.boundingBox();
  const box = rows(page).nth(1).locator("input");
  await box.check();
  await page.locator(".chosen-bar").waitFor();

  // 200 changes: each job is reserved, given back, reserved again, and completed.
  for (const end of ["release", "complete"] as const) {
    for (const lease of await towpath.jobs.reserve(["placed"], { limit: 50 })) await lease[end]();
  }
  await enqueued("placed", 12);
  await rows(page).nth(49).locator(".mark:text-is('completed')").waitFor();
  await rows(page).nth(0).locator(".mark:text-is('completed')").waitFor();
  await page.locator("button.fresh", { hasText: "12 new jobs" }).waitFor();

  assert.deepEqual(await pointed.boundingBox(), before);
  assert.deepEqual(await shown(page), ids);
  assert.equal(await page.locator("tr.chosen").count(), 1);
  assert.ok(await box.evaluate((each) => each === document.activeElement));
  await page.click("button.fresh");
  await page.locator(".note", { hasText: "50 of 62 jobs" }).waitFor();
});

test("a choice of all that fit ends when a filter changes, though the first row stays", async () => {
  await enqueued("chosen-all", 60);
  const page = await open("/jobs?topic=chosen-all&status=pending");
  await page.locator("thead input").click();
  await page.click("button:text-is('Choose all 60 that fit')");
  await page.locator(".chosen-bar", { hasText: "All 60 that fit are chosen" }).waitFor();
  await page.selectOption("label:has-text('State') select", "ready");
  await page.waitForURL(/state=ready/);
  await page.locator(".chosen-bar").waitFor({ state: "detached" });
});

test("a row that no longer fits stays until the next load", async () => {
  const job = await failedJob("leaving", "it broke");
  const page = await open("/jobs?topic=leaving&status=failed");
  await row(page, job.id).waitFor();

  await towpath.jobs.requeue(job.id);

  await page.locator(`tr.left[data-id="${job.id}"]`).waitFor();
  await page.click("button:text-is('Refresh')");
  await page.locator("text=No job fits: failed · topic leaving.").waitFor();
});

test("a time range is in the address, and leaves out what is older", async () => {
  const [id] = await enqueued("ranged", 1);
  const page = await open("/jobs?topic=ranged");
  await row(page, id ?? "").waitFor();

  await page.selectOption("label:has-text('Created') select", "5m");
  await page.waitForURL(/created=5m/);
  await row(page, id ?? "").waitFor();
  await page.goto(`${SERVER}/jobs?topic=ranged&created=between&until=2020-01-01T00:00:00Z`);

  await page.locator("text=No job fits").waitFor();
});

test("the counts are those of the lists, and the statistics those of the range", async () => {
  /** US6-6 */
  await jobOfEachState("counted");
  const page = await open("/jobs?range=all");
  const stats = await towpath.jobs.stats();
  const tab = (status: string) => page.locator("nav.tabs a", { hasText: status }).locator("small");
  for (const status of ["pending", "processing", "completed", "failed", "cancelled"] as const) {
    const { total } = await towpath.jobs.page({ status, count: true, limit: 1 });
    await tab(status).waitFor();
    assert.equal(await tab(status).innerText(), total?.count.toLocaleString("en"), status);
  }
  const rate = `${Number(((stats.successRate ?? 0) * 100).toFixed(1))} %`;
  await page.locator(".figures", { hasText: `Success rate ${rate}` }).waitFor();

  await page.goto(`${SERVER}/jobs?topic=counted`);
  await page.locator(".figures", { hasText: "Success rate 50 %" }).waitFor(); // one of two that ended
  assert.match(await page.locator(".figures").innerText(), /Average execution \d[\d.]* m?s/);
});

test("what others wrote is shown as text", async () => {
  /** X1 */
  const hostile = `<script>alert(1)</script><img src=x onerror=alert(1)>\u001b[31mred\u001b[0m \u202edesrever ${"w".repeat(300)}`;
  const job = await failedJob("hostile", hostile, { html: "<b>bold</b>" });
  const page = await open("/jobs?topic=hostile", { width: 390 });
  await row(page, job.id).waitFor();

  const text = await row(page, job.id).locator(".cut").innerText();
  assert.ok(text.startsWith("<script>alert(1)</script><img src=x onerror=alert(1)>red "), text);
  assert.equal(await page.locator("table.jobs img, table.jobs script, table.jobs b").count(), 0);
  assert.equal(await page.locator("a[href^='javascript']").count(), 0);
  assert.equal(await isTooWide(page), false);
});

/** Enqueue many jobs at once, by a program beside the server. */
async function fill(topic: string, count: number): Promise<void> {
  const program = `
import sys
from towpath import App
with App(sys.argv[1]) as app:
    app.jobs.enqueue_many(sys.argv[2], range(int(sys.argv[3])))
`;
  const words = ["-c", program, given("TOWPATH_TEST_DATABASE"), topic, String(count)];
  await promisify(execFile)(given("TOWPATH_TEST_PYTHON"), words);
}

// The last test: no other one of this file should look through so many jobs.
test("a search shows what it has found so far and how far it looked, and goes on by a button", async () => {
  /** J1: one request looks at 50,000 jobs. */
  const first = await towpath.jobs.enqueue("far", { needle: "needle-both" });
  const hidden = await towpath.jobs.enqueue("far", { needle: "needle-old" });
  await fill("filled", 50_000);
  const last = await towpath.jobs.enqueue("far", { needle: "needle-both" });
  const newer = await towpath.jobs.enqueue("far", { needle: "needle-new" });
  const note = (page: Page, text: string) => page.locator(".note", { hasText: text });

  const page = await open("/jobs?text=needle-both");
  await isList(page, [last.id]);
  await note(page, "Looked back to").waitFor();
  assert.deepEqual(await violations(page), []);
  await page.click("button:text-is('Look further')");
  await isList(page, [first.id]);
  assert.equal(await page.locator("button:text-is('Look further')").count(), 0);
  await page.goBack();
  await isList(page, [last.id]);

  await page.goto(`${SERVER}/jobs?text=needle-old`);
  await page.locator(".empty", { hasText: "No match so far: with “needle-old”." }).waitFor();
  await page.click("button:text-is('Look further')");
  await isList(page, [hidden.id]);

  await page.goto(`${SERVER}/jobs?text=needle-new&order=oldest`);
  await note(page, "newer jobs were not looked at").waitFor();
  await page.click("button:text-is('Look further')");
  await isList(page, [newer.id]);
});
