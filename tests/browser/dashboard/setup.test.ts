/** US6: the first superuser, by the link that the server prints. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { given } from "../page.ts";
import { SERVER, expectComplaints, open, violations } from "./here.ts";

test("the link of the server makes the first superuser, once", async () => {
  const link = given("TOWPATH_SETUP").slice(SERVER.length);
  const page = await open(link, { isLoggedIn: false });
  await page.waitForURL(`${SERVER}/setup`); // the token is not left in the history

  await page.fill("[name=email]", "first@example.com");
  await page.fill("[name=password]", "correct horse");
  await page.fill("[name=again]", "another horse");
  await page.click("button");
  await page.locator("[role=alert]", { hasText: "The two passwords differ." }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.fill("[name=again]", "correct horse");
  await page.click("button");
  await page.locator("nav.side").waitFor();

  await page.goto(SERVER + link);
  await page.fill("[name=email]", "second@example.com");
  for (const name of ["password", "again"]) await page.fill(`[name=${name}]`, "correct horse");
  await page.click("button");
  await page.locator("[role=alert]", { hasText: "A superuser exists" }).waitFor();
  expectComplaints(/409/);
});
