/** The dashboard under a prefix, in an application of others: S4. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { SERVER, expectComplaints, failedJob, logIn, open, towpath } from "./here.ts";

test("login, links, files, acts and reloads stay under the prefix", async () => {
  const job = await failedJob("mounted", "it broke");
  const page = await open("/jobs?topic=mounted", { isLoggedIn: false });
  const asked: string[] = [];
  page.on("request", (request) => asked.push(request.url()));
  await page.waitForURL(`${SERVER}/login?next=*`);
  await logIn(page);
  await page.waitForURL(`${SERVER}/jobs?topic=mounted`);

  await page.click(`tr[data-id="${job.id}"] button:text-is('Re-queue')`);
  await page.locator(".mark:text-is('ready')").waitFor();
  await page.click("nav.side a:has-text('Jobs')");
  await page.waitForURL(`${SERVER}/jobs`);
  await page.goBack();
  await page.waitForURL(`${SERVER}/jobs?topic=mounted`);
  await page.reload();
  await page.locator(`tr[data-id="${job.id}"]`).waitFor();
  await page.click("nav.side .brand");
  await page.waitForURL(`${SERVER}/`);

  assert.deepEqual(asked.filter((url) => !url.startsWith(`${SERVER}/`)), []);
});

test("the form knows the arguments of a task, and the server checks them", async () => {
  /** J4 */
  await towpath.jobs.enqueue("letters", { to: "ann" });
  const page = await open("/jobs/new?topic=letters");
  const known = page.locator(".card", { hasText: "Arguments of the task" });
  await known.getByText("text, required").waitFor();
  await known.getByText("whole number").waitFor();
  await known.locator("text=Fill in").click();
  assert.deepEqual(JSON.parse(await page.locator("textarea").inputValue()), { to: "" });

  await page.fill("textarea", '{"copies": 2, "too": "bob"}');
  await known.getByText("to is missing.").waitFor();
  await known.getByText("The task does not know too.").waitFor();
  await page.fill("textarea", '{"to": "bob", "copies": "two"}');
  await page.click("button:text-is('Enqueue')");
  await page.locator(".problem", { hasText: "copies" }).waitFor();
  expectComplaints(/400/);
  await page.fill("textarea", '{"to": "bob", "copies": 2}');
  await page.click("button:text-is('Enqueue')");
  await page.waitForURL(/\/jobs\/[0-9a-f-]{36}$/);
  assert.deepEqual((await towpath.jobs.get(page.url().slice(-36))).payload, { to: "bob", copies: 2 });
});
