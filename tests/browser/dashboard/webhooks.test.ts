/** Webhooks: P8, subscriptions with their health, deliveries with every attempt, dead letters. */

import assert from "node:assert/strict";
import { after, test } from "node:test";

import type { Page } from "playwright-core";

import type { CreatedWebhook, Saga } from "../../../clients/typescript/src/index.ts";
import { isTooWide, open, towpath, violations } from "./here.ts";
import { closeReceiver, mend, receiver } from "./receiver.ts";

after(closeReceiver);

const row = (page: Page, id: number) => page.locator(`tr[data-id="${id}"]`);
let made = 0;

/** A subscription of a channel of its own. */
async function subscribed(to: string, options = {}): Promise<CreatedWebhook> {
  made += 1;
  return towpath.webhooks.create({ channel: `hooks:${made}`, url: receiver(to), ...options });
}

/** Publish to the channel of a subscription; the saga, once it has a status. */
async function delivered(of: CreatedWebhook, status: Saga["status"], payload: unknown = { total: 9 }): Promise<Saga> {
  const event = await towpath.events.publish(of.channel, payload, { type: "order.paid" });
  for (let tried = 0; ; tried += 1) {
    const found = await towpath.webhooks.sagas.list({ subscription: of.id });
    const saga = found.find((each) => each.event === event.id && each.status === status);
    if (saga) return saga;
    assert.ok(tried < 600, `no delivery of ${event.id} is ${status}: ${JSON.stringify(found)}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

test("a subscription is made in the page, and its secret is shown once", async () => {
  const page = await open("/webhooks");
  await page.click("button:text-is('New subscription')");
  await page.fill("[name=channel]", "made:1");
  await page.fill("[name=url]", receiver("ok"));
  await page.fill("[name=types]", "order.*, ping");
  await page.click("button:text-is('Create subscription')");

  const secret = await page.locator("dialog pre").innerText();
  assert.match(secret, /^whsec_/);
  await page.click("button:text-is('I have copied it')");
  const [stored] = (await towpath.webhooks.list({ channel: "made:1" })).items;
  assert.deepEqual(stored?.types, ["order.*", "ping"]);
  await row(page, stored?.id ?? 0).waitFor();
  assert.ok(!(await page.content()).includes(secret));
});

test("an edit changes what was edited, and nothing else", async () => {
  const before = await subscribed("ok", { finalStatuses: [422], waits: [5, 7], rate: "10/s" });
  const page = await open("/webhooks");
  await row(page, before.id).locator("button:has-text('More')").click();
  await page.click("[role=menu] >> text=Edit");
  await page.fill("[name=description]", "a shop");
  await page.click("button:text-is('Save')");

  await row(page, before.id).locator("text=a shop").waitFor();
  const { secret: _, updatedAt: __, ...kept } = before;
  const { updatedAt: ___, ...after } = await towpath.webhooks.get(before.id);
  assert.deepEqual(after, { ...kept, description: "a shop" });
});

test("a ping is delivered, and each attempt is shown", async () => {
  const hook = await subscribed("ok");
  const page = await open("/webhooks");
  await row(page, hook.id).locator("button:text-is('Ping')").click();
  await page.click("button:text-is('Show it')");
  await page.waitForURL(/deliveries\?subscription=/);
  const first = page.locator(".deliveries tbody tr").first();
  await first.locator("text=completed").waitFor();

  await first.locator("button:has-text('1 attempt')").click();
  await page.locator("[aria-label^='Attempt 1 ']", { hasText: "answer 204" }).waitFor();
});

test("pause holds events, resume lets them go", async () => {
  const hook = await subscribed("ok");
  const page = await open("/webhooks");
  await row(page, hook.id).locator("button:text-is('Pause')").click();
  await row(page, hook.id).locator(".mark:text-is('paused')").waitFor();
  await delivered(hook, "Held");
  await page.reload();
  await row(page, hook.id).locator("text=1 held").waitFor();

  await row(page, hook.id).locator("button:text-is('Resume')").click();
  await row(page, hook.id).locator(".mark:text-is('on')").waitFor();
  await row(page, hook.id).locator("text=1 delivered").waitFor();
});

test("a stopped subscription says why, and is enabled", async () => {
  const hook = await subscribed("gone");
  await towpath.events.publish(hook.channel, 1);
  const page = await open("/webhooks");
  await row(page, hook.id).locator("text=stopped").waitFor();
  assert.match(await row(page, hook.id).innerText(), /answered 410/);

  await row(page, hook.id).locator("button:text-is('Enable')").click();
  await page.locator(".toast", { hasText: "is started again" }).waitFor();
});

test("a rotated secret is shown once, with the time until which both sign", async () => {
  /** P8 */
  const hook = await subscribed("ok");
  const page = await open("/webhooks");
  await row(page, hook.id).locator("button:has-text('More')").click();
  await page.click("[role=menu] >> text=Rotate");
  await page.selectOption("dialog select", { label: "a week" });
  await page.click("dialog button:text-is('Rotate')");

  const secret = await page.locator("dialog pre").innerText();
  assert.match(secret, /^whsec_/);
  assert.notEqual(secret, hook.secret);
  assert.match(await page.locator("dialog").innerText(), /old secret signs as well until/);
  await page.click("button:text-is('I have copied it')");
  assert.ok(!(await page.content()).includes(secret));
});

test("a subscription is deleted after a question", async () => {
  const hook = await subscribed("ok");
  const page = await open("/webhooks");
  await row(page, hook.id).locator("button:has-text('More')").click();
  await page.click("[role=menu] >> text=Delete");
  await page.click("dialog button:text-is('Delete')");
  await row(page, hook.id).waitFor({ state: "detached" });
});

test("deliveries are found by status, subscription and type, which the address holds", async () => {
  const hook = await subscribed("ok");
  const done = await delivered(hook, "Completed");
  const page = await open(`/webhooks/deliveries?subscription=${hook.id}`);
  await row(page, done.id).waitFor();

  await page.selectOption("label:has-text('Status') select", { label: "held" });
  await page.locator("text=No delivery fits.").waitFor();
  await page.selectOption("label:has-text('Status') select", { label: "completed" });
  await page.fill("[name=type]", "order.paid");
  await page.keyboard.press("Enter");
  await page.waitForURL(/type=order\.paid/);
  await row(page, done.id).waitFor();
  assert.match(page.url(), /status=Completed/);
});

test("a delivered event is sent once more only after a question", async () => {
  const hook = await subscribed("ok");
  const done = await delivered(hook, "Completed");
  const page = await open(`/webhooks/deliveries?subscription=${hook.id}`);
  await row(page, done.id).locator("button:text-is('Resend')").click();
  await row(page, done.id).locator("text=It was delivered. Once more?").waitFor();
  await row(page, done.id).locator(".confirm button:text-is('Resend')").click();

  await page.locator(".deliveries tbody tr").nth(1).waitFor();
  const [again] = await towpath.webhooks.sagas.list({ subscription: hook.id });
  assert.equal(again?.replayOf, done.id);
});

test("a delivery that waits for its next attempt is cancelled", async () => {
  const hook = await subscribed("broken", { waits: [3600] });
  const waiting = await delivered(hook, "PendingRetry");
  const page = await open(`/webhooks/deliveries?subscription=${hook.id}`);
  await row(page, waiting.id).locator(".mark:text-is('pending retry')").waitFor();
  assert.match(await row(page, waiting.id).innerText(), /next in \d+ /);

  await row(page, waiting.id).locator("button:text-is('Cancel')").click();
  await row(page, waiting.id).locator(".mark:text-is('cancelled')").waitFor();
});

test("answers, addresses and payloads of others are text", async () => {
  /** P8 */
  const hostile = await subscribed("hostile", { waits: [], description: "<img src=x onerror=alert(1)>" });
  const moved = await subscribed("moved", { waits: [] });
  const one = await delivered(hostile, "DeadLettered", { "<script>": "javascript:alert(1)" });
  const two = await delivered(moved, "DeadLettered");
  const page = await open(`/webhooks/deliveries?subscription=${hostile.id}`, { width: 390 });
  await row(page, one.id).locator("button:has-text('1 attempt')").click();
  await page.locator("[aria-label^='Answer to attempt 1 ']").waitFor();
  // Turned text stays within the answer, and the colours of a terminal are left out.
  const answer = page.locator("[aria-label^='Answer to attempt 1 '] > bdi");
  assert.match(await answer.innerText(), /^<script>alert\(1\)<\/script>javascript:alert\(1\)\ufffdw+$/);
  assert.equal(await isTooWide(page), false);
  assert.deepEqual(await violations(page), []);
  assert.equal(await page.locator("main table :is(script, img), main table a:not([href^='/webhooks/dead-letters'])").count(), 0);

  const other = await open(`/webhooks/deliveries?subscription=${moved.id}`);
  await row(other, two.id).locator("button:has-text('1 attempt')").click();
  await other.locator("text=javascript:alert(1)").waitFor();
  assert.equal(await other.locator("a[href^=javascript]").count(), 0);
});

test("a dead letter is requeued as a new delivery, and many by a replay with progress", async () => {
  /** P8 */
  const hook = await subscribed("broken", { waits: [] });
  const first = await delivered(hook, "DeadLettered");
  await delivered(hook, "DeadLettered");
  const page = await open(`/webhooks/dead-letters?subscription=${hook.id}`);
  const letters = page.locator(".letters tbody tr[data-id]");
  await letters.nth(1).waitFor();
  assert.match(await letters.first().innerText(), /order\.paid[\s\S]*http_500/);
  await letters.first().locator("button:has-text('Payload')").click();
  await page.locator("[role][aria-label^=Payload]", { hasText: '"total": 9' }).waitFor();

  mend();
  await letters.nth(1).locator("button:text-is('Re-queue')").click();
  await letters.nth(1).locator("text=/requeued as \\d+/").waitFor();
  const again = (await towpath.webhooks.sagas.list({ subscription: hook.id })).find((each) => each.replayOf === first.id);
  assert.equal(again?.event, first.event);

  await page.click("button:has-text('Replay many')");
  await page.click("button:text-is('Count them')");
  await page.click("button:has-text('Replay 1 delivery')");
  await page.locator("dialog", { hasText: "All of them are made again." }).waitFor();
});
