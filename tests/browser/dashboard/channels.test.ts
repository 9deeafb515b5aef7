/** Channels: P8, the events as they come, and consumers with their lags. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Page } from "playwright-core";

import { SERVER, isTooWide, open, towpath } from "./here.ts";

const events = (page: Page) => page.locator(".events li");
const isCount = (page: Page, selector: string, count: number) =>
  page.waitForFunction(([text, wanted]) => document.querySelectorAll(String(text)).length === wanted, [selector, count]);
const HOSTILE = `<script>alert(1)</script>javascript:alert(1)\u001b[31m\u202e${"w".repeat(200)}`;

test("channels are listed with their events, and found by the beginning of the name", async () => {
  await towpath.events.publishMany("listed:1", [{ payload: 1 }, { payload: 2 }]);
  await towpath.events.publish("other:1", 1);
  const page = await open("/channels");

  await page.fill("[name=find]", "listed:");
  await page.keyboard.press("Enter");
  await page.waitForURL(/find=listed%3A/);
  await isCount(page, ".channels tbody tr", 1);
  assert.match(await page.locator(".channels tbody tr").innerText(), /listed:1\s+2\s/);
  await page.click("text=listed:1");
  await page.waitForURL(/\/channels\/listed%3A1/);
  await events(page).nth(1).waitFor();
});

test("events appear as they come, the newest first, also after a pause", async () => {
  await towpath.events.publish("tail:1", { nth: 1 }, { type: "said" });
  const page = await open("/channels/tail:1");
  await events(page).first().waitFor();

  await towpath.events.publish("tail:1", { nth: 2 }, { type: "said" });
  await page.locator(".events li:first-child", { hasText: '{"nth":2}' }).waitFor();
  await page.click("button:text-is('Pause')");
  await page.click("button:text-is('Go on')");
  await towpath.events.publish("tail:1", { nth: 3 }, { type: "said" });
  await page.locator(".events li:first-child", { hasText: '{"nth":3}' }).waitFor();
  assert.equal(await events(page).count(), 3);
});

test("only the chosen types are shown, and the address holds them", async () => {
  await towpath.events.publishMany("typed:1", [
    { type: "order.paid", payload: 1 },
    { type: "ping", payload: 2 },
    { type: "order.sent", payload: 3 },
  ]);
  const page = await open("/channels/typed:1?from=start");
  await events(page).nth(2).waitFor();

  await page.fill("[name=types]", "order.*");
  await page.keyboard.press("Enter");
  await page.waitForURL(/types=order/);
  await isCount(page, ".events li", 2);
  assert.match(await events(page).first().innerText(), /order\.sent/);
});

test("an event shows every digit that is stored", async () => {
  const stored = '{"b":12345678901234567890,"1":1.1,"huge":1e300}';
  const published = async () => {
    const headers = { Authorization: `Bearer ${towpath.token}`, "Content-Type": "application/json" };
    const body = `{"events":[{"type":"said","payload":${stored}}]}`;
    const answer = await fetch(`${SERVER}/api/channels/exact:1/events`, { method: "POST", headers, body });
    assert.ok(answer.ok, await answer.text());
  };
  await published();
  const page = await open("/channels/exact:1");
  await events(page).first().waitFor();
  await published(); // this one comes while the page is open
  await isCount(page, ".events li", 2);
  for (const nth of [0, 1]) assert.equal(await events(page).nth(nth).locator(".preview").textContent(), stored);

  await events(page).first().locator("summary").click();

  assert.match(await page.locator(".json").innerText(), /12345678901234567890[^]*1\.1[^]*1e300/);
});

test("an open event stays in its place while others come", async () => {
  await towpath.events.publish("open:1", { nth: 1 });
  const page = await open("/channels/open:1");
  await events(page).first().locator("summary").click();
  await page.locator("[aria-label^=Payload]").waitFor();

  await towpath.events.publish("open:1", { nth: 2 });
  await page.locator("button", { hasText: "1 new event" }).waitFor();
  assert.equal(await events(page).count(), 1);
  await page.click("button:has-text('1 new event')");
  await isCount(page, ".events li", 2);
});

test("no more than 500 events are on the page", async () => {
  const many = Array.from({ length: 700 }, (_, nth) => ({ payload: nth }));
  await towpath.events.publishMany("many:1", many);
  const page = await open("/channels/many:1?from=start");

  await page.locator("button:text-is('Go on')").waitFor();
  assert.ok((await events(page).count()) <= 500);
  await page.click("button:text-is('Go on')");
  await page.locator(".events li:first-child", { hasText: "699" }).waitFor();
  assert.equal(await events(page).count(), 500);
});

test("consumers tell how far behind they are, and can be moved", async () => {
  /** P8 */
  await towpath.events.publishMany("read:1", [{ payload: 1 }, { payload: 2 }, { payload: 3 }]);
  await towpath.events.attach("read:1", "mailer", { from: "start" });
  const page = await open("/channels/read:1");
  await page.locator(".consumers", { hasText: "3 behind" }).waitFor();

  await page.click(".consumers button:has-text('Move')");
  await page.click("[role=menu] >> text=from now on");
  await page.locator(".consumers", { hasText: "up to date" }).waitFor();
});

test("whatever is published is shown as text", async () => {
  const key = HOSTILE.replace("\u001b[31m", "");
  await towpath.events.publish("hostile:1", { [HOSTILE]: HOSTILE }, { type: "x", key, headers: { h: "<b>" } });
  const page = await open("/channels/hostile:1", { width: 390 });
  await events(page).first().locator("summary").click();
  await page.locator("[aria-label^=Payload]").waitFor();

  assert.match(await page.locator("[aria-label^=Payload]").innerText(), /<script>alert\(1\)<\/script>/);
  assert.equal(await page.locator(".events a, .events script, .events b").count(), 0);
  assert.equal(await isTooWide(page), false);
});
