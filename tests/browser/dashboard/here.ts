/**
 * The dashboard in a real Chromium: pages that are logged in, jobs to look at, and what must hold on
 * every page. `tests/browser/test_dashboard.py` starts the server.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach } from "node:test";

import type { BrowserContext, Page, Request } from "playwright-core";

import { type Job, type Lease, Towpath } from "../../../clients/typescript/src/index.ts";
import { launch } from "../chromium.ts";
import { given } from "../page.ts";

export const SERVER = given("TOWPATH_URL");
export const WHO = {
  email: process.env["TOWPATH_EMAIL"] ?? "",
  password: process.env["TOWPATH_PASSWORD"] ?? "",
};
export const WIDTHS = [1280, 390] as const;
export const THEMES = ["light", "dark"] as const;

const AXE = readFileSync(
  join(import.meta.dirname, "../../../dashboard/node_modules/axe-core/axe.min.js"),
  "utf8",
);

export interface Look {
  width?: number;
  theme?: (typeof THEMES)[number];
  /** False: a browser without a login. */
  isLoggedIn?: boolean;
}

export const browser = await launch();
const opened = new Set<BrowserContext>();
const complaints: string[] = [];
const expected: RegExp[] = []; // complaints of this test
const asking = new WeakMap<Page, Set<Request>>(); // what a page waits for
let cookies: Awaited<ReturnType<BrowserContext["storageState"]>> | undefined;

after(() => browser.close());

// A page that logs an error or breaks the policy fails its test.
afterEach(async () => {
  for (const context of opened) await context.close();
  opened.clear();
  const patterns = expected.splice(0);
  const unexpected = complaints.splice(0).filter((each) => !patterns.some((pattern) => pattern.test(each)));
  assert.deepEqual(unexpected, []);
});

/** Errors of the console that the test provokes, also later; the others fail it. */
export function expectComplaints(pattern: RegExp): void {
  expected.push(pattern);
}

/** A new browser without pages. */
export async function context({ width = 1280, theme = "light", isLoggedIn = true }: Look = {}) {
  const made = await browser.newContext({
    viewport: { width, height: 860 },
    colorScheme: theme,
    ...(isLoggedIn ? { storageState: await loggedIn() } : {}),
  });
  made.setDefaultTimeout(60_000);
  opened.add(made);
  return made;
}

/** A page of the dashboard, in a new browser or in one that is given. */
export async function open(path: string, look: Look & { context?: BrowserContext } = {}): Promise<Page> {
  const page = await (look.context ?? (await context(look))).newPage();
  page.on("console", (message) => {
    // Without a login the first question is refused, and the browser logs that by itself.
    const isLoggedOut = message.location().url === `${SERVER}/api/me`;
    if (message.type() === "error" && !isLoggedOut) complaints.push(`${path}: ${message.text()}`);
  });
  page.on("pageerror", (error) => complaints.push(`${path}: ${error}`));
  const under = new Set<Request>();
  asking.set(page, under);
  page.on("request", (request) => {
    if (!isStream(request)) under.add(request);
  });
  page.on("requestfinished", (request) => under.delete(request));
  page.on("requestfailed", (request) => under.delete(request));
  await page.goto(SERVER + path);
  return page;
}

/** Wait until a page has had no question under way for half a second; its streams stay open. */
export async function settled(page: Page): Promise<void> {
  for (let since = Date.now(); Date.now() - since < 500; await page.waitForTimeout(25)) {
    if (asking.get(page)?.size) since = Date.now();
  }
}

function isStream(request: Request): boolean {
  return request.headers()["accept"] === "text/event-stream";
}

/** Fill in the login form of a page, or of the dialog over it. */
export async function logIn(page: Page, password = WHO.password): Promise<void> {
  await page.fill("[name=email]", WHO.email);
  await page.fill("[name=password]", password);
  await page.click("button:text-is('Log in')");
}

/** What axe finds on a page, as sentences; all its rules, without exceptions. */
export async function violations(page: Page): Promise<string[]> {
  if (!(await page.evaluate("'axe' in window"))) await page.evaluate(AXE);
  // Without the many results that are no violations, which take longer to send than to find.
  const run = "axe.run({ resultTypes: ['violations'] }).then(({ violations }) => violations)";
  const found = (await page.evaluate(run)) as {
    id: string;
    help: string;
    nodes: { html: string; failureSummary: string }[];
  }[];
  return found.flatMap(({ id, help, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id}: ${help}\n${html}\n${failureSummary}`),
  );
}

/** Whether a page is wider than the screen. */
export async function isTooWide(page: Page): Promise<boolean> {
  return (await page.evaluate("document.documentElement.scrollWidth > innerWidth")) as boolean;
}

/** The client of the tests themselves, as a superuser. */
export const towpath = new Towpath(SERVER);
if (WHO.email) await towpath.authWithPassword(WHO.email, WHO.password, { collection: "_superusers" });

/** One job in each state, of a topic of its own. */
export async function jobOfEachState(topic: string): Promise<Record<string, Job>> {
  const failed = await failedJob(topic, "SMTPServerDisconnected: Connection unexpectedly closed");
  const completed = await towpath.jobs.enqueue(topic, { userId: "77" });
  const [lease] = await towpath.jobs.reserve([topic]);
  await lease?.complete();
  const cancelled = await towpath.jobs.enqueue(topic, { userId: "5" });
  await towpath.jobs.cancel(cancelled.id);
  const processing = await towpath.jobs.enqueue(topic, { userId: "123" }, { ttr: 3600 });
  const [running] = await towpath.jobs.reserve([topic]);
  assert.equal(running?.job.id, processing.id);
  await running?.say({ progress: 0.62, message: "page 31" });
  const delayed = await towpath.jobs.enqueue(topic, { userId: "123" }, { delay: 240 });
  const blocked = await towpath.jobs.enqueue(topic, { userId: "123" }, { after: [processing.id] });
  const ready = await towpath.jobs.enqueue(topic, { userId: "123" });
  return { failed, completed, cancelled, processing, delayed, blocked, ready };
}

/** A job that has failed for good. */
export async function failedJob(topic: string, error: string, payload: unknown = {}): Promise<Job> {
  const job = await towpath.jobs.enqueue(topic, payload, { maxRetries: 1 });
  const [lease] = await towpath.jobs.reserve([topic]);
  assert.equal(lease?.job.id, job.id);
  await lease?.fail(error);
  return towpath.jobs.get(job.id);
}

/** An error with a traceback, as a worker in Python reports it. */
export function pythonError(message: string, line: number): Error {
  const error = new Error(message);
  error.name = "SMTPServerDisconnected";
  error.stack = `${error}\nTraceback (most recent call last):\n  File "mail.py", line ${line}, in send_mail\n    server.sendmail(sender, to, text)\n${error}`;
  return error;
}

/** A job that has failed for good after so many tries, each with a traceback of its own. */
export async function triedJob(topic: string, payload: unknown, tries = 3): Promise<Job> {
  const job = await towpath.jobs.enqueue(topic, payload, { maxRetries: tries, backoff: 0 });
  for (let nth = 1; nth <= tries; nth += 1) {
    const [lease] = await towpath.jobs.reserve([topic], { timeout: 30, worker: `web-${nth}` });
    assert.equal(lease?.job.id, job.id);
    await lease?.fail(pythonError(`Connection ${nth} unexpectedly closed`, 40 + nth));
  }
  return towpath.jobs.get(job.id);
}

/** A running job with progress, log lines and a stream; the lease is still held. */
export async function speakingJob(topic: string): Promise<Lease> {
  await towpath.jobs.enqueue(topic, { question: "What is a towpath?" }, { ttr: 3600 });
  const [lease] = await towpath.jobs.reserve([topic], { worker: "gpu-1" });
  assert.ok(lease);
  await lease.say({
    progress: 0.62,
    message: "page 31 of 50",
    lines: Array.from({ length: 12 }, (_, nth) => `page ${nth + 20} took ${nth * 7 + 12} ms`),
    events: [
      { type: "text", payload: "A towpath is a road or trail on the bank of a canal. " },
      { type: "text", payload: "Horses walked on it and pulled the boats. " },
      { type: "source", payload: { title: "Canals of Europe", page: 12 } },
    ],
  });
  return lease;
}

async function loggedIn() {
  if (cookies) return cookies;
  const made = await browser.newContext();
  const where = `${SERVER}/api/collections/_superusers/auth-with-password`;
  const data = { identity: WHO.email, password: WHO.password, cookie: true };
  const answer = await made.request.post(where, { data });
  assert.ok(answer.ok(), await answer.text());
  cookies = await made.storageState();
  await made.close();
  return cookies;
}
