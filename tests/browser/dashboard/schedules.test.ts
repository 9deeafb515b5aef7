/** Schedules: when they fire, how it went, and a form that loses nothing. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Page } from "playwright-core";

import { SERVER, expectComplaints, open, towpath } from "./here.ts";

const HOSTILE = `<script>alert(1)</script> "quoted" \u202e ${"w".repeat(100)}`;

const row = (page: Page, name: string) => page.locator("table.schedules tbody tr", { hasText: name });
const typed = (page: Page, label: string, text: string) => page.getByLabel(label, { exact: true }).fill(text);

test("a schedule shows its rule in words, its last fires and the next", async () => {
  /** P4 */
  await towpath.schedules.set("ticking", { topic: "ticks", every: 1 });
  await towpath.schedules.set("monthly", { topic: "ticks", cron: "0 7 1 * *", tz: "Europe/Zurich" });
  const page = await open("/schedules");
  const { words } = await towpath.schedules.get("monthly");
  await row(page, "monthly").locator("td", { hasText: words }).waitFor();
  await row(page, "monthly").locator("td", { hasText: "none yet" }).waitFor();

  const mark = row(page, "ticking").locator(".fires a").first();
  await mark.waitFor();
  const { history } = await towpath.schedules.get("ticking");
  const ids = history.map(({ job }) => job);
  const shown = (await mark.getAttribute("href"))?.split("/").at(-1);
  assert.ok(shown && ids.includes(shown), `${shown} ${ids}`);
  await towpath.schedules.pause("ticking");
});

test("a schedule is run, paused, resumed and deleted", async () => {
  await towpath.schedules.set("acted", { topic: "acted", cron: "0 0 1 1 *", tz: "UTC" });
  const page = await open("/schedules");
  await row(page, "acted").locator("button:text-is('Run now')").click();
  await page.locator(".toast", { hasText: "was enqueued" }).waitFor();
  assert.equal((await towpath.topics.get("acted")).ready, 1);

  await row(page, "acted").locator("button:text-is('Pause')").click();
  await row(page, "acted").locator("button:text-is('Resume')").click();
  await row(page, "acted").locator("button:text-is('Pause')").click();
  await row(page, "acted").locator("button:text-is('Delete')").click();
  await row(page, "acted").locator(".confirm button:text-is('Delete')").click();

  await row(page, "acted").waitFor({ state: "detached" });
  await assert.rejects(towpath.schedules.get("acted"));
});

test("a new schedule is made with a preview of its fires", async () => {
  /** P4 */
  const page = await open("/schedules");
  await page.click("button:text-is('New schedule')");
  await page.waitForURL(`${SERVER}/schedules?new=yes`);
  await typed(page, "Name", "made");
  await typed(page, "Topic", "made");
  await typed(page, "Cron: minute, hour, day, month, weekday", "99 7 * * *");
  await page.locator(".preview .problem", { hasText: "99 7" }).waitFor();
  await typed(page, "Cron: minute, hour, day, month, weekday", "30 2 * * *");
  await typed(page, "Time zone", "Europe/Zurich");
  await page.locator(".preview li").nth(4).waitFor();
  const { fires, words } = await towpath.schedules.preview({ cron: "30 2 * * *", tz: "Europe/Zurich" });
  await page.locator(".preview p", { hasText: words }).waitFor();
  const shown = await page.locator(".preview li").allInnerTexts();
  assert.deepEqual(shown.map((text) => Date.parse(text.replace(/^\w+, /, ""))), fires.map((at) => Date.parse(at)));
  await typed(page, "Payload, as JSON", '{"id": 12345678901234567890');
  await page.click("button:text-is('Create the schedule')");
  await page.locator("[role=alert]", { hasText: "The payload is no JSON" }).waitFor();

  await typed(page, "Payload, as JSON", '{"id": 12345678901234567890}');
  await page.click("button:text-is('Create the schedule')");

  await page.waitForURL(`${SERVER}/schedules`);
  await row(page, "made").waitFor();
  const job = await towpath.schedules.run("made");
  assert.equal(await towpath.jobs.payload(job.id), '{"id":12345678901234567890}');
  expectComplaints(/400/);
});

test("a change keeps the options that the form does not show", async () => {
  /** P4 */
  const options = { priority: 7, key: "only-one", ttr: 90, limit: { key: "mailer", concurrency: 3 }, headers: { trace: "yes" } };
  const before = await towpath.schedules.set("kept", { topic: "kept", every: 3600, payload: { a: 1 }, catchUp: "all", options });
  const page = await open("/schedules/kept");
  await typed(page, "Seconds", "7200");
  await typed(page, "Retries at most", "9");
  await page.click("button:text-is('Save the changes')");
  await page.locator(".toast", { hasText: "kept is saved" }).waitFor();

  const after = await towpath.schedules.get("kept");
  assert.deepEqual(after.options, { ...before.options, maxRetries: 9 });
  assert.deepEqual([after.every, after.catchUp, after.payload], [7200, "all", { a: 1 }]);
});

test("a hidden value of a payload stays hidden until it is revealed, and an edit keeps it", async () => {
  /** J2 */
  const stored = '{"user":12345678901234567890,"apiToken":"hunter2","n":1.10}';
  const headers = { Authorization: `Bearer ${towpath.token}`, "Content-Type": "application/json" };
  const body = `{"topic":"secret","every":3600,"payload":${stored}}`;
  assert.ok((await fetch(`${SERVER}/api/schedules/secret`, { method: "PUT", headers, body })).ok);
  const revealed = async () => (await towpath.events.read("system", { types: ["act.value.revealed"] })).events.length;
  const payload = () => towpath.schedules.payload("secret", { reveal: true });
  const page = await open("/schedules/secret");
  await page.locator(".json", { hasText: "12345678901234567890" }).waitFor();
  assert.ok(!(await page.content()).includes("hunter2"));
  await typed(page, "Seconds", "7200");
  await page.click("button:text-is('Save the changes')");
  await page.locator(".toast", { hasText: "secret is saved" }).waitFor();
  assert.equal(await revealed(), 0);
  assert.equal(await payload(), stored);

  await page.click("button:text-is('Reveal 1 hidden value and edit')");
  const text = page.getByLabel("Payload, as JSON");
  await text.waitFor();
  assert.equal(await revealed(), 2);
  await text.fill((await text.inputValue()).replace("hunter2", "hunter3"));
  await page.click("button:text-is('Save the changes')");

  await page.locator(".json").waitFor();
  assert.equal(await payload(), stored.replace("hunter2", "hunter3"));
});

test("a schedule with a hostile name has a page of its own", async () => {
  const name = `${HOSTILE} a/b?c#d%2e`;
  await towpath.schedules.set(name, { topic: "named", cron: "0 0 1 1 *", tz: "UTC" });
  const page = await open("/schedules");
  await row(page, "a/b?c#d%2e").locator("td:first-child a").click();
  await page.locator("h1", { hasText: "<script>" }).waitFor();
  await page.locator("form.schedule").waitFor();

  await page.reload();

  await page.locator("form.schedule").waitFor();
});
