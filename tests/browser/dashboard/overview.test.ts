/** US6-6: the overview tells how much there is to do, and how it went. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Page } from "playwright-core";

import { SERVER, failedJob, jobOfEachState, open, towpath, violations } from "./here.ts";

const tile = (page: Page, name: string) => page.locator(".tile", { has: page.locator(`.mark:text-is("${name}")`) });
const figure = async (page: Page, name: string) => (await tile(page, name).locator("b").innerText()).replaceAll(",", "");
const plot = (page: Page) => page.locator(".plot[aria-label='Jobs ended: time']");

/** Wait until a tile shows a figure. */
async function isShown(page: Page, name: string, wanted: string | number): Promise<void> {
  await tile(page, name).locator(`b:text-is("${wanted}")`).waitFor();
}

test("a topic without a worker is a problem, whose remedy pauses the topic", async () => {
  /** P1 */
  await towpath.jobs.enqueue("unserved", {}, { runAt: new Date(Date.now() - 600_000) });
  const page = await open("/");
  const finding = page.locator(".finding.problem", { hasText: /No worker serves .*unserved/ });
  await finding.waitFor();
  assert.deepEqual(await violations(page), []);

  await finding.locator("button", { hasText: "Pause unserved" }).click();

  await page.locator(".toast", { hasText: "Pause unserved" }).waitFor();
  await finding.waitFor({ state: "detached" });
  assert.equal((await towpath.topics.get("unserved")).paused, true);
});

test("the tiles tell how many jobs the lists hold", async () => {
  /** US6-6 */
  await jobOfEachState("tiles");
  await towpath.jobs.enqueue("tiles", {});
  const page = await open("/");
  const waiting = (await towpath.jobs.stats()).ready;
  await isShown(page, "ready", waiting);

  const held = async (filter: object) => (await towpath.jobs.page({ ...filter, limit: 1, count: true })).total?.count;
  for (const state of ["ready", "delayed", "blocked"] as const) {
    assert.equal(Number(await figure(page, state)), await held({ state }), state);
  }
  for (const status of ["processing", "failed", "cancelled"] as const) {
    assert.equal(Number(await figure(page, status)), await held({ status }), status);
  }
  const stats = await towpath.jobs.stats();
  assert.equal(Number(await figure(page, "ready")) + Number(await figure(page, "delayed")) + Number(await figure(page, "blocked")), stats.pending);
});

test("the job that has been ready for the longest time is shown, with its age, topic and page", async () => {
  await towpath.jobs.enqueue("longest", {}, { runAt: new Date(Date.now() - 100_000) });
  const oldest = await towpath.jobs.enqueue("longest-of-all", {}, { runAt: new Date(Date.now() - 2 * 3_600_000) });
  await towpath.jobs.enqueue("longest-of-all", {});
  const page = await open("/");
  const line = page.locator("p", { hasText: "Oldest ready job" });
  await line.locator(`a[href$="/jobs/${oldest.id}"]`).waitFor();
  assert.match(await line.innerText(), /of longest-of-all has waited for 2 h/);

  await towpath.jobs.cancel(oldest.id);
  await line.locator(`a[href$="/jobs/${oldest.id}"]`).waitFor({ state: "detached" });
});

test("the success rate and the average are those of the range", async () => {
  /** US6-6 */
  await jobOfEachState("sums");
  const page = await open("/");
  const { items } = await towpath.jobs.history({ minutes: 60, step: 60 });
  const completed = items.reduce((sum, each) => sum + each.completed, 0);
  const failed = items.reduce((sum, each) => sum + each.failed, 0);
  await isShown(page, "completed", completed);
  const stats = await towpath.jobs.stats();

  assert.equal(completed / (completed + failed), stats.successRate);
  const rate = await figure(page, "success");
  assert.equal(Number.parseFloat(rate), Math.round((1000 * completed) / (completed + failed)) / 10);
  assert.ok((await tile(page, "failed").innerText()).includes(`${failed} in the last hour`));
  assert.match(await tile(page, "success").innerText(), /\d+ m?s on average/);
});

test("the tiles show the minute at which the pointer or the keyboard is", async () => {
  await jobOfEachState("minute");
  const page = await open("/");
  await plot(page).locator("svg").waitFor();
  const said = async () => (await plot(page).getAttribute("aria-valuetext")) ?? "";

  await plot(page).hover();
  await page.locator(".tiles.then").waitFor();
  assert.equal(await figure(page, "delayed"), "–");
  await page.mouse.move(0, 0);
  await page.locator(".tiles:not(.then)").waitFor();

  await plot(page).focus();
  await page.keyboard.press("Home");
  await page.locator(".tiles.then").waitFor();
  assert.match(await said(), /: 0 completed, 0 failed$/);
  assert.equal(await figure(page, "completed"), "0");
  await page.keyboard.press("End");
  for (let back = 0; back < 4 && (await said()).includes(": 0 completed"); back += 1) await page.keyboard.press("ArrowLeft");
  const [, completed, failed] = /: (\d+) completed, (\d+) failed$/.exec(await said()) ?? [];
  assert.ok(Number(completed) > 0, await said());
  await isShown(page, "completed", Number(completed));
  await isShown(page, "failed", Number(failed));
  await page.keyboard.press("Escape");
  await page.locator(".tiles:not(.then)").waitFor();
});

test("the range is in the address", async () => {
  const page = await open("/");
  await page.selectOption("label:has-text('Range') select", "week");
  await page.waitForURL(`${SERVER}/?range=week`);
  await page.locator("h2", { hasText: "Jobs ended each hour" }).waitFor();

  await page.reload();

  await page.locator("h2", { hasText: "Jobs ended each hour" }).waitFor();
  await page.selectOption("label:has-text('Range') select", "hour");
  await page.waitForURL(`${SERVER}/`);
});

test("every chart is also a table", async () => {
  await jobOfEachState("tables");
  const page = await open("/");
  await plot(page).locator("svg").waitFor();

  const rows = await page.locator(".chart table:has(caption:text-is('Jobs ended')) tbody tr").allTextContents();
  assert.equal(rows.length, 60);
  assert.ok(rows.some((text) => !text.endsWith("00")), rows.join());
});

test("failures are grouped by their errors, which lead to the jobs", async () => {
  for (const _ of [1, 2, 3]) await failedJob("alike", "SMTPServerDisconnected: closed");
  const page = await open("/");

  const line = page.locator("section:has-text('Failures, by error') li", { hasText: "SMTPServerDisconnected: closed" });
  await line.locator("b", { hasText: "3" }).waitFor();
  await line.locator("a").click();

  await page.waitForURL(/\/jobs\?.*error=SMTP/);
  await page.locator("table.jobs tbody tr").nth(2).waitFor();
});
