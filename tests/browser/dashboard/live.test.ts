/** L1, L2, L3: a page follows the server, also over its restart, and only while it is looked at. */

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { type TestContext, test } from "node:test";

import type { Page } from "playwright-core";

import { context, expectComplaints, open, settled, towpath } from "./here.ts";
import { given } from "../page.ts";

const state = (page: Page, text: string) => page.locator("button.live", { hasText: text }).waitFor();
const row = (page: Page, id: string) => page.locator(`tr[data-id="${id}"]`);

/** What a page asks its server for, besides its stream. */
function asked(page: Page): string[] {
  const urls: string[] = [];
  page.on("request", (request) => {
    if (/\/api\/(?!live)/.test(request.url())) urls.push(new URL(request.url()).pathname);
  });
  return urls;
}

/** Make a page believe that it is in a hidden tab, or in a shown one. */
async function hide(page: Page, isHidden: boolean): Promise<void> {
  await page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event("visibilitychange"));
  }, isHidden);
}

/** A page whose clock the test may move. */
async function openWithClock(path: string): Promise<Page> {
  const made = await context();
  await made.clock.install();
  return open(path, { context: made });
}

/** The jobs that wait or run, beside the link to the list. */
const waiting = (page: Page) => page.locator("nav.side a[href$='/jobs'] small");

test("a job that ends elsewhere changes its row in place, and one of another topic asks for nothing", async () => {
  /** L1 */
  const topic = "live-ends";
  const { id } = await towpath.jobs.enqueue(topic, {});
  const page = await open(`/jobs?topic=${topic}`);
  await row(page, id).locator(".mark:text-is('ready')").waitFor();
  await state(page, "live");
  await settled(page);
  const before = Number((await waiting(page).innerText()).replace(",", ""));
  const urls = asked(page);
  await towpath.jobs.enqueue("live-other", {});
  await waiting(page).filter({ hasText: (before + 1).toLocaleString("en") }).waitFor();
  await settled(page);
  assert.ok(!urls.includes("/api/jobs"), String(urls));

  const [lease] = await towpath.jobs.reserve([topic]);
  await row(page, id).locator(".mark:text-is('processing')").waitFor();
  await lease?.complete();

  await row(page, id).locator(".mark:text-is('completed')").waitFor();
  await state(page, "live");
});

test("a running job tells its progress, though no count changes", async () => {
  const topic = "live-progress";
  const { id } = await towpath.jobs.enqueue(topic, {}, { ttr: 3600 });
  const [lease] = await towpath.jobs.reserve([topic]);
  const page = await openWithClock(`/jobs?topic=${topic}`);
  await row(page, id).locator(".mark:text-is('processing')").waitFor();

  await lease?.say({ progress: 0.25 });
  await page.clock.runFor(5_000);

  await row(page, id).locator("text=25 %").waitFor();
});

test("a hidden tab has no stream and asks for nothing; shown again, it reads once", async () => {
  /** L2 */
  const topic = "live-hidden";
  await towpath.jobs.enqueue(topic, {});
  const page = await openWithClock(`/jobs?topic=${topic}`);
  await page.locator("table.jobs tbody tr").waitFor();
  await state(page, "live");
  await settled(page);
  const urls = asked(page);
  const closed = page.waitForEvent("requestfailed", (request) => request.url().endsWith("/api/live"));
  await hide(page, true);
  await closed;
  await towpath.jobs.enqueue(topic, {});
  await page.clock.runFor(300_000);
  assert.deepEqual(urls, []);
  await hide(page, false);

  await page.locator("button.fresh", { hasText: "1 new job" }).waitFor();
  await state(page, "live");
  assert.deepEqual([...urls].sort(), ["/api/jobs", "/api/jobs/stats", "/api/jobs/throughput"]);
});

test("without a stream the page asks every 5 s, and says so; paused, it asks for nothing", async () => {
  const topic = "live-asking";
  const { id } = await towpath.jobs.enqueue(topic, {});
  const made = await context();
  await made.clock.install();
  await made.route("**/api/live", (route) => route.abort());
  const page = await open(`/jobs?topic=${topic}`, { context: made });
  await state(page, "asks every 5 s");
  await row(page, id).waitFor();
  await page.click("button.live");
  await state(page, "paused");
  await settled(page);
  const urls = asked(page);
  await towpath.jobs.cancel(id);
  await page.clock.runFor(60_000);
  assert.deepEqual(urls, []);
  assert.equal(await row(page, id).locator(".mark").innerText(), "ready");

  await page.click("button.live");
  await page.clock.runFor(5_000);
  await row(page, id).locator(".mark:text-is('cancelled')").waitFor();
  await towpath.jobs.requeue(id);
  await page.clock.runFor(5_000);
  await row(page, id).locator(".mark:text-is('ready')").waitFor();
  await page.close(); // it logs no more
  expectComplaints(/ERR_FAILED/);
});

test("a page that is paused has no stream, and goes on", async () => {
  const topic = "live-paused";
  const { id } = await towpath.jobs.enqueue(topic, {});
  const page = await open(`/jobs?topic=${topic}`);
  await row(page, id).waitFor();
  await state(page, "live");
  const closed = page.waitForEvent("requestfailed", (request) => request.url().endsWith("/api/live"));
  await page.click("button.live");
  await state(page, "paused");
  await closed;

  await towpath.jobs.cancel(id);
  assert.equal(await row(page, id).locator(".mark").innerText(), "ready");
  await page.click("button.live");

  await row(page, id).locator(".mark:text-is('cancelled')").waitFor();
});

test("after a restart of the server the page is live again by itself, and offers a newer dashboard", async (t) => {
  /** L3 */
  const topic = "live-restarted";
  const { id } = await towpath.jobs.enqueue(topic, {});
  const port = await freePort();
  const first = await serve(t, port);
  const page = await open("/login");
  await page.goto(`http://127.0.0.1:${port}/jobs?topic=${topic}`);
  await row(page, id).waitFor();
  await state(page, "live");
  await page.evaluate("window.isSamePage = true");

  first.kill("SIGKILL");
  await page.locator("button.live", { hasText: /^reconnecting, as of \d\d:\d\d:\d\d$/ }).waitFor();
  await towpath.jobs.cancel(id);
  assert.equal(await row(page, id).locator(".mark").innerText(), "ready");
  const second = await serve(t, port);

  await row(page, id).locator(".mark:text-is('cancelled')").waitFor();
  await state(page, "live");
  assert.equal(await page.evaluate("window.isSamePage"), true);
  assert.equal(await page.locator(".toast").count(), 0);
  assert.equal(await page.locator("text=New version").count(), 0);

  await page.route("**/api/me", async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, json: { ...(await answer.json()), dashboard: "another" } });
  });
  second.kill("SIGKILL");
  await state(page, "reconnecting");
  await serve(t, port);
  await page.locator("button:text-is('New version, reload')").waitFor();
  await page.click("text=New version, reload");
  await page.waitForFunction(() => !("isSamePage" in window));
  await state(page, "live");
  await page.unrouteAll({ behavior: "ignoreErrors" });
  await page.close(); // it logs no more
  expectComplaints(/ERR_|status of 5/);
});

test("a page whose network is cut says so, and is live again with the network", async () => {
  /** L4 */
  const topic = "live-cut";
  const { id } = await towpath.jobs.enqueue(topic, {});
  const page = await open(`/jobs?topic=${topic}`);
  await row(page, id).waitFor();
  await state(page, "live");

  await page.context().setOffline(true);
  await state(page, "reconnecting");
  await row(page, id).locator("button:text-is('Cancel')").click();
  await page.locator(".toast.bad", { hasText: "it may not be done" }).waitFor();
  await towpath.jobs.cancel(id);
  await page.context().setOffline(false);

  await row(page, id).locator(".mark:text-is('cancelled')").waitFor();
  await state(page, "live");
  await page.close(); // it logs no more
  expectComplaints(/ERR_/);
});

/** A second server of the same database, which the test may end. */
async function serve(t: TestContext, port: number): Promise<ChildProcess> {
  const words = ["-m", "towpath", "serve", "--database", given("TOWPATH_TEST_DATABASE"), "--port", String(port), "--json"];
  const process = spawn(given("TOWPATH_TEST_PYTHON"), words, { stdio: ["ignore", "pipe", "ignore"] });
  t.after(() => process.kill("SIGKILL"));
  await once(process.stdout, "data");
  return process;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  assert.ok(address !== null && typeof address === "object");
  return address.port;
}
