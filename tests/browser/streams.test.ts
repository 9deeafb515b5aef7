/** A browser's own EventSource on a stream; `tests/browser/test_chromium.py` starts the server. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
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

test("the snippet of docs/events.md shows what was said and what is said", async () => {
  const guide = readFileSync(new URL("../../docs/events.md", import.meta.url), "utf8");
  const snippets = [...guide.matchAll(/```js\n(.*?)```/gs)].map(([, snippet]) => snippet);
  assert.equal(snippets.length, 1);
  const page = await (await browser.newContext()).newPage();
  await page.route(/\/page$/, (route) => route.fulfill({ contentType: "text/html", body: HTML }));
  await page.goto(`${SERVER}/page`);
  const post = (path: string, body: unknown) => {
    const sent = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    return page.evaluate(`fetch("${path}", ${JSON.stringify(sent)}).then((answer) => answer.ok)`);
  };
  const say = (payload: string) => post("/api/channels/chat:42/events", { events: [{ payload }] });

  assert.ok(await post("/api/collections/_superusers/auth-with-password", ROOT));
  assert.ok(await say("before"));
  await page.addScriptTag({ content: `const shown = []; const show = (each) => shown.push(each);\n${snippets[0]}` });
  await page.waitForFunction("shown.length === 1");
  await say("after");
  await page.waitForFunction("shown.length === 2");

  assert.deepEqual(await page.evaluate("shown"), ["before", "after"]);
  await page.close(); // its connection would keep the server
});

test("from another origin it is let in once by a pass, and goes on with the next one", async (t) => {
  const page = await (await browser.newContext()).newPage();
  const origin = process.env["TOWPATH_OTHER_ORIGIN"] ?? "";
  const other = createServer((_, response) => response.setHeader("content-type", "text/html").end(HTML));
  await new Promise<void>((resolve) => other.listen(Number(new URL(origin).port), "127.0.0.1", resolve));
  t.after(() => other.close());
  t.after(() => page.close()); // its connections would keep the server of the page
  await page.goto(`${origin}/page`);

  const run = async (server: string, root: typeof ROOT) => {
    const json = { "content-type": "application/json" };
    const post = async (path: string, body: unknown, headers: Record<string, string> = json) => {
      const sent = { method: "POST", headers, body: JSON.stringify(body), credentials: "omit" } as const;
      return (await fetch(server + path, sent)).json();
    };
    const until = async (is: () => boolean) => {
      while (!is()) await new Promise((resolve) => setTimeout(resolve, 20));
    };
    const login = "/api/collections/_superusers/auth-with-password";
    const { token } = await post(login, { ...root, cookie: false });
    const known = { ...json, authorization: `Bearer ${token}` };
    const say = (payload: number) => post("/api/channels/talk/events", { events: [{ payload }] }, known);
    const found: number[] = [];
    let last = "";
    const listen = (pass: string) => {
      const query = new URLSearchParams({ pass, ...(last ? { after: last } : {}) });
      const source = new EventSource(`${server}/api/channels/talk/events?${query}`);
      source.onmessage = ({ data, lastEventId }) => {
        for (const item of JSON.parse(data).events?.items ?? []) found.push(item.payload);
        last = lastEventId || last;
      };
      return source;
    };
    const newPass = async () => (await post("/api/passes", { channels: ["talk"] }, known)).pass;

    await say(1);
    const pass = await newPass();
    const first = listen(pass);
    await until(() => found.length === 1);
    await say(2);
    await until(() => found.length === 2);
    // The server ends the answer after a moment; the browser comes back with a pass that is spent.
    await until(() => first.readyState === EventSource.CLOSED);
    await say(3);
    const stranger = listen(pass);
    await until(() => stranger.readyState === EventSource.CLOSED);
    const before = [...found];
    const second = listen(await newPass());
    await until(() => found.length === 3);
    second.close();
    return [before, found];
  };
  const found = await page.evaluate(`(${run})(${JSON.stringify(SERVER)}, ${JSON.stringify(ROOT)})`);

  assert.deepEqual(found, [[1, 2], [1, 2, 3]]);
});
