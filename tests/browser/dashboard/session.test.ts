/** US6: logins, and what a page does when its login ends. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Page } from "playwright-core";

import { SERVER, WHO, context, expectComplaints, failedJob, logIn, open, towpath, violations } from "./here.ts";

const inside = (page: Page) => page.locator("nav.side").waitFor();

test("a login lasts over a reload, and leads to the page that was asked for", async () => {
  const page = await open("/jobs?status=failed", { isLoggedIn: false });
  await page.waitForURL(/\/login\?next=/);

  await logIn(page, "wrong horse");
  await page.locator("[role=alert]", { hasText: /password/ }).waitFor();
  await logIn(page);
  await page.waitForURL(`${SERVER}/jobs?status=failed`);
  await page.reload();

  await inside(page);
  expectComplaints(/400/);
});

test("the rows of a page are asked for in the third round trip", async () => {
  /** First the page; then the script, and beside it what the script asks first; then the rows. */
  const page = await (await context()).newPage();
  const asked: string[] = [];
  page.on("request", (request) => asked.push(new URL(request.url()).pathname));
  let release = () => {};
  const isHeld = new Promise<void>((resolve) => (release = resolve));
  await page.route("**/static/*.js", async (route) => {
    await isHeld;
    await route.continue();
  });
  const answered = page.waitForResponse(`${SERVER}/api/me`);
  await page.goto(`${SERVER}/jobs`, { waitUntil: "commit" });

  await answered; // while the script is held back
  release();
  await inside(page);

  assert.deepEqual(asked.filter((path) => path === "/api/me"), ["/api/me"]);
});

for (const next of ["//evil.example", "/\\evil.example", "/.//evil.example", "https://evil.example/", "javascript:alert(1)"]) {
  test(`a login does not lead to ${next}`, async () => {
    const page = await open(`/login?next=${encodeURIComponent(next)}`, { isLoggedIn: false });

    await logIn(page);
    await inside(page);

    assert.equal(new URL(page.url()).origin, SERVER);
    assert.equal(new URL(page.url()).pathname, "/");
  });
}

test("after the log-out the way back shows the login, not the data", async () => {
  const page = await open("/login", { isLoggedIn: false });
  await logIn(page);
  await inside(page);
  await page.goto(`${SERVER}/jobs`);
  await page.click("nav.side .menu button");
  await page.click("text=Log out");
  await page.waitForURL(/\/login/);

  await page.goBack();

  await page.locator("[name=password]").waitFor();
  assert.equal(await page.locator("table").count(), 0);
  assert.deepEqual((await page.context().cookies()).map(({ name }) => name), []);
  expectComplaints(/401/);
});

test("a login that ends is asked for over the page, which keeps what was typed and repeats no act", async () => {
  /** A3 */
  const job = await failedJob("ended", "it broke");
  const page = await open("/jobs?topic=ended");
  const button = page.locator("button:text-is('Re-queue')");
  await button.waitFor();
  await page.fill("[name=text]", "typed and not sent");
  await page.context().clearCookies();

  await button.click();
  await page.locator("dialog h2", { hasText: "Your login has ended" }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.locator(".toast", { hasText: "nothing was changed" }).waitFor();
  assert.equal(await page.inputValue("dialog [name=email]"), WHO.email);
  for (let nth = 0; nth < 3; nth += 1) await page.keyboard.press("Escape"); // a page can prevent the first one
  await page.evaluate(() => new Promise(requestAnimationFrame));
  assert.ok(await page.locator("dialog[open]").isVisible());
  assert.ok(await page.locator("dialog:modal").isVisible());
  await page.fill("dialog [name=password]", WHO.password);
  const readAgain = page.waitForResponse((answer) => answer.url().includes("/api/jobs?") && answer.ok());
  await page.click("dialog button:text-is('Log in')");
  await readAgain;
  await page.locator("dialog").waitFor({ state: "detached" });

  assert.equal(await page.inputValue("[name=text]"), "typed and not sent");
  assert.equal((await towpath.jobs.get(job.id)).status, "failed");
  await button.click();
  await page.locator(".mark", { hasText: "ready" }).waitFor();
  assert.equal((await towpath.jobs.get(job.id)).status, "pending");
  expectComplaints(/401/);
});

test("a second tab is logged in as well, and one log-out ends both", async () => {
  const both = await context({ isLoggedIn: false });
  const first = await open("/login", { context: both });
  await logIn(first);
  await inside(first);
  const second = await open("/jobs", { context: both });
  await inside(second);

  await first.click("nav.side .menu button");
  await first.click("text=Log out");
  await first.waitForURL(/\/login/);

  await second.locator("dialog h2", { hasText: "Your login has ended" }).waitFor();
  expectComplaints(/401/);
});

test("an address without a page says so", async () => {
  const page = await open("/elsewhere");
  await page.locator("text=There is no such page.").waitFor();
  assert.equal((await page.request.get(`${SERVER}/elsewhere`, { headers: { accept: "text/html" } })).status(), 404);

  await page.click("text=Go to the first page");

  await page.waitForURL(`${SERVER}/`);
  expectComplaints(/404/);
});
