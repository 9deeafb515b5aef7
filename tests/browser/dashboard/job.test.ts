/** The page of a job: US6-4, US6-5, payloads to the last digit, why, streams, hostile text. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import type { Page } from "playwright-core";

import {
  SERVER,
  context,
  expectComplaints,
  failedJob,
  isTooWide,
  open,
  pythonError,
  settled,
  speakingJob,
  towpath,
  triedJob,
  violations,
} from "./here.ts";

const card = (page: Page, title: string) => page.locator(".card", { has: page.locator(`h2:text-matches("^${title}")`) });
const isShown = (page: Page, text: string) => page.getByText(text).first().waitFor();
const fact = (page: Page, name: string) => page.locator(`.of-job dt:has(bdi:text-is("${name}")) + dd`);

/** A page that may use the clipboard. */
async function openWithClipboard(path: string): Promise<Page> {
  const made = await context();
  await made.grantPermissions(["clipboard-read", "clipboard-write"]);
  return open(path, { context: made });
}

const copied = (page: Page) => page.evaluate(() => navigator.clipboard.readText());

async function leaseOf(topic: string) {
  const [lease] = await towpath.jobs.reserve([topic], { timeout: 30 });
  assert.ok(lease);
  return lease;
}

test("a failed job shows the message and the traceback of every try", async () => {
  /** US6-4 */
  const job = await triedJob("job-tries", { userId: 1 });
  const page = await open(`/jobs/${job.id}`);
  await isShown(page, "It failed for good");
  await page.locator(".tries li").nth(2).waitFor();

  for (const [nth, worker] of ["web-1", "web-2", "web-3"].entries()) {
    const each = page.locator(".tries li").nth(nth);
    await each.locator("summary").click();
    const text = await each.innerText();
    assert.match(text, new RegExp(`Connection ${nth + 1} unexpectedly closed`));
    assert.match(text, new RegExp(`File "mail.py", line ${41 + nth}, in send_mail`));
    assert.match(text, new RegExp(`${worker} · error`));
  }
  assert.match(await card(page, "Last error").innerText(), /line 43, in send_mail/);
  assert.equal(await fact(page, "Retries").innerText(), "3 / 3");
});

test("a requeued job is ready, with its retries at 0, without a reload", async () => {
  /** US6-5 */
  const job = await failedJob("job-requeue", "TimeoutError: no answer");
  const page = await open(`/jobs/${job.id}`);
  await page.click("button:text-is('Re-queue')");
  await page.locator(".top .mark", { hasText: "ready" }).waitFor();
  assert.equal(await fact(page, "Retries").innerText(), "0 / 1");
  assert.equal((await towpath.jobs.get(job.id)).state, "ready");

  // The page says so if another person was faster, and shows the job as it is.
  const other = await failedJob("job-requeue-twice", "TimeoutError: no answer");
  const late = await open(`/jobs/${other.id}`);
  await late.locator("button:text-is('Re-queue')").waitFor();
  await late.route("**/requeue", async (route) => {
    await towpath.jobs.requeue(other.id);
    await route.continue();
  });
  await late.click("button:text-is('Re-queue')");
  await late.locator(".toast.bad").waitFor();
  await late.locator(".top .mark", { hasText: "ready" }).waitFor();
  expectComplaints(/409/);
});

test("a job that another client deletes is told as gone", async () => {
  const job = await towpath.jobs.enqueue("job-gone", {});
  const page = await open(`/jobs/${job.id}`);
  await isShown(page, "It is ready");
  await page.route("**/cancel", async (route) => {
    await towpath.jobs.delete(job.id); // not sooner: the page would hear of it and have no button
    await route.continue();
  });
  await page.click("button:text-is('Cancel')");
  await isShown(page, "is gone.");
  await settled(page);
  expectComplaints(/404/);
});

test("a job is deleted only after a second word", async () => {
  const job = await towpath.jobs.enqueue("job-delete", {});
  const page = await open(`/jobs/${job.id}`);
  await page.click("button:text-is('Delete')");
  await page.click("button:text-is('Keep')");
  assert.equal((await towpath.jobs.get(job.id)).status, "pending");
  await page.click("button:text-is('Delete')");
  await page.click(".confirm button:text-is('Delete')");
  await isShown(page, "is gone.");
  await assert.rejects(towpath.jobs.get(job.id), { code: "not_found" });
});

const EXACT = `{"big":12345678901234567890,"price":1.10,"huge":1E+300,"\u00e9":1,"e\u0301":2,"\\u0061":3,"中文":"😀","rtl":"אבג","apiToken":"hunter2"}`;

test("a payload is shown, copied and downloaded byte for byte; hidden values are revealed on demand", async () => {
  /** J2 */
  const job = await towpath.jobs.enqueue("job-exact", undefined, { payloadText: EXACT });
  const page = await openWithClipboard(`/jobs/${job.id}`);
  const payload = card(page, "Payload");
  await payload.locator(".json").waitFor();
  const hidden = EXACT.replace('"hunter2"', '"•••"');
  const text = (await payload.locator(".json").innerText()).replace(/[▾▸\s]/g, "");
  assert.equal(text, hidden);
  await payload.locator("button[aria-label='Copy the payload']").click();
  await payload.locator("text=Copied").waitFor();
  assert.equal(await copied(page), hidden);
  assert.doesNotMatch(await page.content(), /hunter2/);
  const answers: Promise<string>[] = [];
  page.on("response", (answer) => answer.url().includes("/api/jobs") && answers.push(answer.text().catch(() => "")));
  await page.reload();
  await payload.locator(".json").waitFor();
  const received = (await Promise.all(answers)).join();
  assert.ok(received.includes(job.id) && !received.includes("hunter2"), received);

  const [first] = await Promise.all([page.waitForEvent("download"), payload.locator("text=Download").click()]);
  assert.equal(readFileSync(await first.path(), "utf8"), hidden);

  await payload.locator("text=Reveal 1 hidden value").click();
  await payload.getByText('"hunter2"').waitFor();
  await payload.locator("button[aria-label='Copy the payload']").click();
  await payload.locator("text=Copied").waitFor();
  assert.equal(await copied(page), EXACT);
  const [second] = await Promise.all([page.waitForEvent("download"), payload.locator("text=Download").click()]);
  assert.equal(readFileSync(await second.path(), "utf8"), EXACT);

  const activity = await open("/activity");
  const acts = activity.locator(".acts-list tr", { hasText: "revealed a value of" });
  await acts.locator(`a[href$="${job.id}"]`).first().waitFor();
});

test("the runs of a job for several workers are shown, and the jobs of a worker are listed", async () => {
  const job = await towpath.jobs.enqueue("job-runs", {}, { workers: 2 });
  const page = await open(`/jobs/${job.id}`);
  await card(page, "Runs").getByText("No worker has begun it.").waitFor();
  const runs = card(page, "Runs").locator("tbody tr");
  const [done] = await towpath.jobs.reserve(["job-runs"], { worker: "runs-1", timeout: 30 });
  await done?.complete();
  await towpath.jobs.reserve(["job-runs"], { worker: "runs-2", timeout: 30 });
  await runs.filter({ hasText: "runs-1" }).filter({ hasText: "succeeded" }).waitFor();
  await runs.filter({ hasText: "runs-2" }).filter({ hasText: "running" }).waitFor();
  await card(page, "Runs").getByText("1 of 2 succeeded").waitFor();

  await page.goto(new URL("/jobs?topic=job-runs&worker=runs-2", SERVER).href);
  const rows = page.locator("table.jobs tbody tr");
  await rows.first().waitFor();
  assert.equal(await rows.count(), 1);
  await page.locator("button", { hasText: "worker runs-2" }).click();
  await rows.nth(2).waitFor();
  assert.equal(new URL(page.url()).search, "?topic=job-runs");
});

test("a huge payload is folded, and the rest of the page stays usable", async () => {
  /** J3 */
  const huge: Record<string, string> = {
    line: JSON.stringify({ text: "x".repeat(1_000_000) }),
    levels: "[".repeat(900) + "]".repeat(900),
    items: JSON.stringify(Array.from({ length: 100_000 }, (_, nth) => nth)),
  };
  for (const [name, payloadText] of Object.entries(huge)) {
    const job = await towpath.jobs.enqueue("job-huge", undefined, { payloadText });
    const page = await open(`/jobs/${job.id}`);
    await page.locator(".json").waitFor();
    const count = Number(await page.evaluate("document.querySelectorAll('*').length"));
    assert.ok(count <= 2_000, `${name}: ${count} elements`);
    await page.click("button:text-is('Cancel')");
    await page.locator(".top .mark", { hasText: "cancelled" }).waitFor();
    await page.context().close();
  }

  // Raw bytes, and 1 MiB in one line as error and as log line.
  const line = "x".repeat(2 ** 20);
  const raw = await towpath.jobs.enqueue("job-huge", new Uint8Array([0, 255, 60]), { maxRetries: 1 });
  const lease = await leaseOf("job-huge");
  await lease.say({ lines: [line] });
  await lease.fail(line);
  const page = await open(`/jobs/${raw.id}`);
  await card(page, "Payload").getByText("3 bytes that are not text.").waitFor();
  const [file] = await Promise.all([page.waitForEvent("download"), card(page, "Payload").locator("text=Download").click()]);
  assert.deepEqual([...readFileSync(await file.path())], [0, 255, 60]);
  await card(page, "Log").getByText("xxx").waitFor();
  assert.ok(!(await isTooWide(page)));
  const count = Number(await page.evaluate("document.querySelectorAll('*').length"));
  assert.ok(count <= 2_000, `${count} elements`);
});

test("the page says why a job waits, and its buttons change that", async () => {
  /** P6 */
  const job = await towpath.jobs.enqueue("job-why", {});
  await towpath.topics.pause("job-why");
  const page = await open(`/jobs/${job.id}`);
  await isShown(page, "Topic job-why is paused.");
  await page.click("button:has-text('Resume the topic')");
  await page.locator(".why", { hasText: "is paused" }).waitFor({ state: "detached" });
  assert.equal((await towpath.topics.list()).find(({ topic }) => topic === "job-why")?.paused, false);

  const delayed = await towpath.jobs.enqueue("job-why", {}, { delay: 3600 });
  await page.goto(`${SERVER}/jobs/${delayed.id}`);
  await isShown(page, "It is delayed: its time has not come.");
  await page.click("button:text-is('Run now')");
  await page.locator(".top .mark", { hasText: "ready" }).waitFor();
});

test("each reason is a sentence with its remedies", async () => {
  /** P6 */
  const enqueue = (name: string, options = {}) => towpath.jobs.enqueue(`why-${name}`, {}, { maxRetries: 1, ...options });
  const running = await enqueue("running", { ttr: 3600 });
  await towpath.jobs.reserve(["why-running"], { worker: "web-1" });
  const behind = await enqueue("behind", { after: [running.id] });
  const stopping = await enqueue("stopping", { ttr: 3600 });
  await leaseOf("why-stopping");
  await towpath.jobs.cancel(stopping.id);
  const again = await enqueue("again", { maxRetries: 3, backoff: 3600 });
  await (await leaseOf("why-again")).fail("TimeoutError: no answer");
  const limit = { key: "why", concurrency: 1 };
  await enqueue("limited", { limit, ttr: 3600 });
  await leaseOf("why-limited");
  const limited = await enqueue("limited", { limit });
  await towpath.jobs.reserve(["why-limited"]);
  const parent = await enqueue("parent");
  const orphan = await enqueue("orphan", { after: [parent.id] });
  await (await leaseOf("why-parent")).fail("ValueError: no");
  const unserved = await enqueue("unserved");
  const done = await enqueue("done");
  await (await leaseOf("why-done")).complete();
  const page = await open("/jobs");
  for (const [job, code, said] of [
    [running, "running", /^Worker web-1 runs it\.$/],
    [behind, "parents", /^It waits for 1 job to complete\.$/],
    [stopping, "cancel_requested", /stop/],
    [again, "backing_off", /^It waits before its next try: .*TimeoutError: no answer/],
    [limited, "limit", /^Limit why is reached: 1 of 1 jobs run\.$/],
    [orphan, "parent_failed", /failed/],
    [unserved, "no_worker", /^No live worker serves topic why-unserved/],
    [done, "completed", /completed/],
  ] as const) {
    const reasons = await towpath.jobs.why(job.id);
    const reason = reasons.find((each) => each.code === code);
    assert.ok(reason, `${code}: ${JSON.stringify(reasons)}`);
    assert.match(reason.message, said);
    await page.goto(`${SERVER}/jobs/${job.id}`);
    const shown = page.locator(".why .reason", { has: page.getByText(reason.message, { exact: true }) });
    await shown.waitFor();
    const head = page.locator("main header"); // it has the acts of the job itself
    for (const { label, path } of reason.remedies) {
      await (path.includes(job.id) ? head : shown).getByRole("button", { name: label, exact: true }).first().waitFor();
    }
    for (const { id } of reason.jobs) await shown.locator(`a[href$="${id}"]`).waitFor();
  }
});

test("a job that failed with others links to them", async () => {
  for (let nth = 0; nth < 3; nth += 1) await failedJob("job-alike", "ValueError: 7 is not a colour");
  const last = await failedJob("job-alike", "ValueError: 7 is not a colour");
  const page = await open(`/jobs/${last.id}`);
  await isShown(page, "3 other failed jobs of topic job-alike have the same error.");
  await page.click("text=Show them");
  await page.waitForURL(/error=ValueError/);
  await page.locator("table.jobs tbody tr").nth(3).waitFor();
});

test("the stream of a running job comes as it is said, survives a reload, and is stopped", async () => {
  /** P7 */
  const lease = await speakingJob("job-stream");
  const page = await open(`/jobs/${lease.job.id}`);
  const text = page.locator("pre[aria-label='Text so far']");
  const first = "A towpath is a road or trail on the bank of a canal. Horses walked on it and pulled the boats. ";
  await text.waitFor();
  assert.equal(await text.innerText(), first);

  await lease.say({ events: [{ type: "text", payload: "Today people cycle there." }] });
  await text.getByText("Today people cycle there.").waitFor();
  await page.reload();
  await text.getByText("Today people cycle there.").waitFor();
  assert.equal(await text.innerText(), `${first}Today people cycle there.`);
  await card(page, "Stream").getByText("1 event").first().waitFor();

  await page.click("button:text-is('Stop the job')");
  await page.locator(".top .mark", { hasText: "stopping" }).waitFor();
  assert.equal((await lease.touch()).cancelRequested, true);
  await lease.release();
  await card(page, "Stream").getByText("ended: cancelled").waitFor();
  await page.locator(".top .mark", { hasText: "cancelled" }).waitFor();
});

test("another try drops the text of a lost one, and is marked", async () => {
  /** P7 */
  const job = await towpath.jobs.enqueue("job-again", {}, { backoff: 0, maxRetries: 3 });
  const lost = await leaseOf("job-again");
  await lost.say({ events: [{ type: "text", payload: "Once upon a" }] });
  const page = await open(`/jobs/${job.id}`);
  await page.getByText("Once upon a").waitFor();
  await lost.fail(pythonError("Connection closed", 1));
  const second = await leaseOf("job-again");
  await second.say({ events: [{ type: "text", payload: "There was a canal." }] });
  await page.getByText("There was a canal.").waitFor();
  const stream = card(page, "Stream");
  await stream.getByText("try 2").waitFor();
  assert.equal(await page.getByText("Once upon a").count(), 0);
  await second.complete({ ok: true });
  await stream.getByText("ended: completed").waitFor();
  await card(page, "Result").filter({ hasText: '"ok": true' }).waitFor();
});

test("the log is searched and turned around", async () => {
  const lease = await speakingJob("job-log");
  const page = await open(`/jobs/${lease.job.id}`);
  const log = card(page, "Log");
  const lines = log.locator(".log > div");
  await lines.nth(11).waitFor();
  assert.match(await lines.first().innerText(), /page 31 took/);
  await log.locator("text=Newest first").click();
  await log.locator(".log > div:first-child:has-text('page 20')").waitFor();
  await log.locator("input").fill("page 25");
  await log.getByText("Log, 1 of 12 lines").waitFor();
});

const HOSTILE = `<script>alert(1)</script><img src=x onerror=alert(2)> javascript:alert(3) \u202edesrever \u001b[31mred ${"w".repeat(200)}`;

test("hostile text is text: in payload, error, log, progress and stream", async () => {
  /** X1 */
  const payload = { [HOSTILE]: HOSTILE };
  const job = await towpath.jobs.enqueue("job-hostile", payload, { key: HOSTILE.slice(0, 200), maxRetries: 1, ttr: 3600 });
  const lease = await leaseOf("job-hostile");
  await lease.say({ progress: 0.5, message: HOSTILE, lines: [HOSTILE], events: [{ type: "text", payload: HOSTILE }, { type: "x", payload: HOSTILE }] });
  const error = pythonError(HOSTILE, 1);

  for (const step of ["running", "failed"]) {
    if (step === "failed") await lease.fail(error);
    const page = await open(`/jobs/${job.id}`, { width: 390 });
    const hosts = new Set<string>();
    page.on("request", (request) => hosts.add(new URL(request.url()).host));
    page.on("dialog", () => assert.fail("a dialog was opened"));
    await page.locator(".json").waitFor();
    await page.locator(".log").waitFor();
    await isShown(page, "<script>alert(1)</script>");
    for (const summary of await page.locator("summary").all()) await summary.click();
    assert.equal(await page.locator("main script, main img").count(), 0);
    assert.equal(await page.locator("a[href^='javascript']").count(), 0);
    assert.doesNotMatch(await page.locator("main").innerText(), /\u001b/);
    assert.equal(await isTooWide(page), false);
    assert.deepEqual([...hosts].filter((host) => host !== new URL(SERVER).host), []);
    assert.deepEqual(await violations(page), []);
  }
});

test("a copied command is safe in a shell", async () => {
  /** X3 */
  const payload = { text: `'; rm -rf ~; ' $(id) \`id\` "$HOME" \\ !! \n` };
  const key = "-x'; exit 1; '";
  const job = await towpath.jobs.enqueue("job-shell", payload, { key });
  const page = await openWithClipboard(`/jobs/${job.id}`);
  await page.click("button:has-text('Copy'):not(:has-text('id')) >> nth=0");
  await page.click("[role=menu] >> text=enqueues it again");
  await page.getByText("Copied the command.").waitFor();
  const command = await copied(page);
  const script = `towpath() { for word in "$@"; do printf '%s\\0' "$word"; done; }\n${command}`;
  const words = execFileSync("sh", ["-c", script], { encoding: "utf8" }).split("\0");
  assert.deepEqual(words.slice(0, 3), ["jobs", "enqueue", "job-shell"]);
  assert.deepEqual(JSON.parse(words[3] ?? ""), payload);
  assert.ok(words.includes(`--key=${key}`));

  const hidden = await towpath.jobs.enqueue("job-shell", { apiToken: "hunter2" });
  await page.goto(new URL(`/jobs/${hidden.id}`, SERVER).href);
  await page.click("button:has-text('Copy'):not(:has-text('id')) >> nth=0");
  await page.click("[role=menu] >> text=enqueues it again");
  await page.getByText("1 value of the payload is hidden").waitFor();
  assert.equal(await copied(page), command);
});
