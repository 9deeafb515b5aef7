/** A browser's own EventSource on a stream; `tests/browser/test_chromium.py` starts the server. */

import assert from "node:assert/strict";
import { after, test } from "node:test";

import { launch } from "./chromium.ts";

const SERVER = process.env["TOWPATH_URL"] ?? "";
const ROOT = {
  identity: process.env["TOWPATH_EMAIL"],
  password: process.env["TOWPATH_PASSWORD"],
  cookie: true,
};
const HTML = "<!doctype html><title>a page</title>";

const browser = await launch();
after(() => browser.close());

test("it reads what comes, comes back where it was, and stops at the end", async () => {
  const page = await (await browser.newContext()).newPage();
  const asked: string[] = [];
  page.on("request", (each) => {
    if (each.url().includes("live=sse")) asked.push(each.headers()["last-event-id"] ?? "");
  });
  await page.route(/\/page$/, (route) => route.fulfill({ contentType: "text/html", body: HTML }));
  await page.goto(`${SERVER}/page`);

  const run = async (root: typeof ROOT) => {
    const login = "/api/collections/_superusers/auth-with-password";
    const json = { "content-type": "application/json" };
    await fetch(login, { method: "POST", headers: json, body: JSON.stringify(root) });
    const chat = "/v1/stream/chat";
    await fetch(chat, { method: "PUT", headers: json, body: "[1]" });
    const found: unknown[] = [];
    const source = new EventSource(`${chat}?offset=-1&live=sse`);
    source.addEventListener("data", (event) => found.push(...JSON.parse(event.data)));
    const until = async (is: () => boolean) => {
      while (!is()) await new Promise((resolve) => setTimeout(resolve, 20));
    };
    await until(() => found.length === 1);
    await fetch(chat, { method: "POST", headers: json, body: "[2]" });
    await until(() => found.length === 2);
    // Its connection ends by itself: the server was told to end it after a moment.
    await until(() => source.readyState === EventSource.CONNECTING);
    const closing = { ...json, "stream-closed": "true" };
    await fetch(chat, { method: "POST", headers: closing, body: "[3]" });
    await until(() => source.readyState === EventSource.CLOSED);
    return found;
  };
  const found = await page.evaluate(`(${run})(${JSON.stringify(ROOT)})`);

  assert.deepEqual(found, [1, 2, 3]);
  const before = asked.length;
  await new Promise((resolve) => setTimeout(resolve, 5_000));
  assert.equal(asked.length, before);
  assert.ok(asked.length >= 2);
});
