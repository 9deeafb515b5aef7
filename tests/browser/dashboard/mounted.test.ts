/** The dashboard under a prefix, in an application of others: S4. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { SERVER, failedJob, logIn, open } from "./here.ts";

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
