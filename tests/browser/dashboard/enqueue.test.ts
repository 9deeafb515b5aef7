/** The form that enqueues a job, new or edited: J4, J5. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Page } from "playwright-core";

import { expectComplaints, failedJob, open, towpath } from "./here.ts";

const payload = (page: Page) => page.locator("textarea[name=payload]");
const idOf = async (page: Page) => {
  await page.waitForURL(/\/jobs\/[0-9a-f-]{36}$/);
  return page.url().slice(-36);
};

test("a job is enqueued by hand, with its options, and is found", async () => {
  /** J4 */
  await towpath.jobs.enqueue("form-known", {});
  const page = await open("/jobs/new");
  await page.locator("datalist option[value=form-known]").waitFor({ state: "attached" });
  await page.fill("[name=topic]", "form-known");
  await payload(page).fill('{"id": 12345678901234567890, "price": 1.10}');
  await page.selectOption("[name=when]", "after");
  await page.fill("[name=delay]", "2");
  await page.selectOption("[name=unit]", "h");
  await page.fill("[name=priority]", "7");
  await page.fill("[name=maxRetries]", "9");
  await page.fill("[name=key]", "by-hand");
  await page.click("button:text-is('Enqueue')");

  const id = await idOf(page);
  const job = await towpath.jobs.get(id);
  assert.equal(await towpath.jobs.payload(id), '{"id":12345678901234567890,"price":1.10}');
  assert.deepEqual([job.topic, job.state, job.priority, job.maxRetries, job.key], ["form-known", "delayed", 7, 9, "by-hand"]);
  const away = Date.parse(job.runAt) - Date.parse(job.createdAt);
  assert.ok(Math.abs(away - 7_200_000) < 1_000, `${away}`);
  await page.locator(".top .mark", { hasText: "delayed" }).waitFor();

  // The key is taken: the page leads to the job that has it.
  await page.goBack();
  await page.fill("[name=topic]", "form-known");
  await page.fill("[name=key]", "by-hand");
  await page.click("button:text-is('Enqueue')");
  await page.getByText("Nothing was enqueued").waitFor();
  assert.equal(await idOf(page), id);
});

test("a mistake in the payload is shown at its place, and nothing is sent", async () => {
  /** J4 */
  const page = await open("/jobs/new?topic=form-wrong");
  await payload(page).fill('{\n  "a": 1,\n  "b" 2\n}');
  const mistake = page.locator(".mistake");
  await mistake.getByText("Line 3, column 7:").waitFor();
  assert.equal(await mistake.locator("mark").innerText(), "2");
  await mistake.locator("text=Go there").click();
  assert.equal(await payload(page).evaluate((area) => (area as HTMLTextAreaElement).selectionStart), 18);
  await page.click("button:text-is('Enqueue')");
  await page.getByText("The payload is not JSON").waitFor();
  assert.deepEqual((await towpath.jobs.list({ topic: "form-wrong" })).items, []);

  await page.fill("[name=topic]", "not a topic");
  await payload(page).fill("{}");
  await page.click("button:text-is('Enqueue')");
  await page.locator(".problem", { hasText: "topic" }).waitFor();
  expectComplaints(/400/);
});

test("a job is edited and enqueued again; the difference is exactly the change", async () => {
  /** J5 */
  const old = await failedJob("form-edit", "ValueError: no", { to: "ann", big: 1, list: [1, 2] });
  const page = await open(`/jobs/${old.id}`);
  await page.click("button:text-is('Edit and enqueue again')");
  await page.getByText("The payload is the same").waitFor();
  assert.equal(await page.locator("[name=topic]").inputValue(), "form-edit");
  const text = await payload(page).inputValue();
  await payload(page).fill(text.replace('"ann"', '"bob"'));
  const changes = page.locator(".diff");
  const lines = await changes.locator(".gone, .new").allInnerTexts();
  assert.deepEqual(lines.map((line) => line.replace(/\s+/g, " ").trim()), ['gone: − "to": "ann",', 'new: + "to": "bob",']);
  await page.click("button:text-is('Enqueue')");

  const id = await idOf(page);
  assert.notEqual(id, old.id);
  assert.deepEqual((await towpath.jobs.get(id)).payload, { to: "bob", big: 1, list: [1, 2] });
  assert.equal((await towpath.jobs.get(id)).maxRetries, old.maxRetries);
  assert.deepEqual(await towpath.jobs.get(old.id), old);
});

test("what was typed stays, though the job that is edited has gone", async () => {
  const old = await towpath.jobs.enqueue("form-gone", { apiToken: "hunter2" });
  const page = await open(`/jobs/new?from=${old.id}`);
  await page.fill("[name=key]", "typed");
  await towpath.jobs.delete(old.id);
  await page.click("button:text-is('Reveal 1 hidden value')");
  await page.getByText("The job is gone").waitFor();
  assert.equal(await page.inputValue("[name=key]"), "typed");
  expectComplaints(/404/);
});

test("an edited job never carries the mark of a hidden value", async () => {
  /** J2 */
  const payloadText = '{"apiToken":"hunter2","big":12345678901234567890}';
  const headers = { authorization: "Bearer hunter2", "x-trace": "7" };
  const old = await towpath.jobs.enqueue("form-hidden", undefined, { payloadText, headers });
  const page = await open(`/jobs/new?from=${old.id}`);
  await payload(page).waitFor();
  assert.doesNotMatch(await payload(page).inputValue(), /hunter2/);
  await page.click("button:text-is('Enqueue')");
  await page.locator(".problem", { hasText: "hidden" }).waitFor();
  await payload(page).fill('{"apiToken":"hunter3"}');
  await page.click("button:text-is('Enqueue')");
  await page.locator(".problem", { hasText: "1 header of the job is hidden" }).waitFor();
  await page.click("button:text-is('Reveal 1 hidden value')");
  await page.click(".confirm button:text-is('Reveal 1 hidden value')");
  await page.waitForFunction(() => document.querySelector("textarea")?.value.includes("hunter2"));
  await page.click("button:text-is('Enqueue')");
  const id = await idOf(page);
  assert.equal(await towpath.jobs.payload(id, { reveal: true }), payloadText);
  assert.deepEqual((await towpath.jobs.get(id)).headers, headers);
});
