/** Events without WebSockets: server-sent ones, and requests that wait. */

import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { type TestContext, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import { CursorReset, Forbidden, Towpath, Unauthorized } from "../src/index.ts";
import { Messages, OPENING, SILENCE } from "../src/sse.ts";
import { batch, closed, cursor, event, serveChannel } from "./channels.ts";
import { type Answer, type Received, json, refusal, serve } from "./server.ts";
import { type Asked, hasCode, subscribe, until, upTo } from "./subscribing.ts";

const query = ({ url }: Received) => new URL(url, "http://server").searchParams;
const numberOf = (place: string | null) => Number(place?.split("_")[1] ?? 0);
const isServerSent = ({ headers }: Received) => headers.accept === "text/event-stream";
const current = (n: number) => ({ current: { channel: "c", cursor: cursor(n) } });
const reset = { channel: "c", reason: "retention", oldest: cursor(6), head: cursor(9) };

/** Server-sent events with these frames. */
const body = (...frames: object[]) => frames.map((frame) => `data: ${JSON.stringify(frame)}\n\n`).join("");

/** Begins an answer with these frames, and leaves it open. */
const sends = (...frames: object[]): Answer => (response) => {
  response.writeHead(200, { "Content-Type": "text/event-stream; charset=utf-8" });
  response.write(`:\n\n${body(...frames)}`);
};

/** Answers with all that is behind the cursor that is asked for, up to the end of the channel. */
const toTheEnd: Answer = (response, request) => {
  const after = numberOf(query(request).get("after"));
  sends(batch(after, 5), current(5), closed(5))(response, request);
};

/** Answers reads with pages of two, whatever is asked for. */
const pages = (last: number): Answer => (response, request) => {
  const after = numberOf(query(request).get("after"));
  const to = Math.min(after + 2, last);
  const page = { after: cursor(after), cursor: cursor(to), oldest: cursor(0), head: cursor(last) };
  const ended = to === last ? "closed" : null;
  const found = { ...page, events: batch(after, to).events.items, ended };
  json(200, request.url === "/healthz" ? { status: "ok" } : found)(response, request);
};

async function served(t: TestContext, answers: [Answer, ...Answer[]], asked: Asked = {}) {
  const { url, received } = await serve(t, ...answers);
  return { ...subscribe(t, url, { WebSocket: null, ...asked }), received };
}

// ------------------------------------------------------------------ server-sent events

test("without WebSockets, a subscriber gets events as the server sends them", async (t) => {
  const { subscription, seen, errors, received } = await served(t, [toTheEnd], { types: ["a", "b.*"] });

  assert.equal(await subscription.done, "closed");
  assert.deepEqual([seen, errors, subscription.cursor], [upTo(5), [], cursor(5)]);
  assert.deepEqual(received.map(({ url }) => url), ["/api/channels/c/events?after=start&types=a&types=b.*"]);
  const { accept, authorization } = received[0]!.headers;
  assert.deepEqual([accept, authorization], ["text/event-stream", "Bearer key"]);
});

for (const [from, said] of [
  [{ last: 3 }, "last=3"],
  [{ since: new Date(0) }, "since=1970-01-01T00%3A00%3A00.000Z"],
  ["now", "after=now"],
  [cursor(2), `after=${cursor(2)}`],
] as const) {
  test(`a request says where to begin: ${said}`, async (t) => {
    const { subscription, received } = await served(t, [sends(current(2), closed(2))], { from });

    assert.equal(await subscription.done, "closed");
    assert.equal(received[0]?.url, `/api/channels/c/events?${said}`);
  });
}

const MESSAGES = ["one", "two\nlines", "é😀"];
const WRITTEN = ": beat\n\nid: 1\ndata: one\n\nretry: 1\n\ndata:two\ndata: lines\nid\n\nevent: x\ndata: é😀\n\ndata: cut";

for (const end of ["\n", "\r\n", "\r"]) {
  test(`messages are read however their bytes are cut, with ${JSON.stringify(end)}`, () => {
    const bytes = new TextEncoder().encode(`\uFEFF${WRITTEN.replaceAll("\n", end)}`);
    for (let first = 0; first <= bytes.length; first += 1) {
      for (const second of [first, first + 1, first + 2, bytes.length]) {
        const reader = new Messages();
        const parts = [bytes.slice(0, first), bytes.slice(first, second), bytes.slice(second)];
        assert.deepEqual(parts.flatMap((part) => [...reader.of(part)]), MESSAGES, `${first}, ${second}`);
      }
    }
  });
}

test("an answer that is cut at any byte loses and doubles nothing", async (t) => {
  const items = upTo(3).map((n) => ({ ...event(n, `é${n}`), id: "" }));
  const told = (from: number, to: number) => ({
    events: { channel: "c", from: cursor(from), to: cursor(to), items: items.slice(from, to) },
  });
  const whole = (from: number) => {
    const frames = [...(from < 2 ? [told(from, 2)] : []), ...(from < 3 ? [told(2, 3)] : []), closed(3)];
    return Buffer.from(frames.map((frame) => `id: ${cursor(3)}\r\n${body(frame)}`).join(":\n\n"));
  };
  const total = whole(0).length;
  assert.ok(total > 700, `${total}`);
  const tried = new Map<string, number>();
  const { url } = await serve(t, (response, request) => {
    const part = request.headers.authorization ?? "";
    tried.set(part, (tried.get(part) ?? 0) + 1);
    const bytes = whole(numberOf(query(request).get("after")));
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.flushHeaders();
    if (tried.get(part)! > 1) return response.end(bytes);
    const cutAt = Number(part.split(" ")[1]);
    return response.write(bytes.subarray(0, cutAt), () => response.socket?.destroy());
  });

  const cutAt = async (bytes: number) => {
    const { subscription, seen } = subscribe(t, url, { WebSocket: null, token: `${bytes}` });
    assert.equal(await subscription.done, "closed", `cut at ${bytes}`);
    assert.deepEqual(seen, ["é1", "é2", "é3"], `cut at ${bytes}`);
    assert.equal(tried.get(`Bearer ${bytes}`), 2, `cut at ${bytes}`);
  };
  const places = Array.from({ length: total - 1 }, (_, at) => at + 1);
  const run = async () => {
    for (let at = places.shift(); at !== undefined; at = places.shift()) await cutAt(at);
  };
  await Promise.all(Array.from({ length: 30 }, run));
});

for (const from of [cursor(3), "now"]) {
  test(`from ${from}, an answer that is cut before the first event keeps the cursor`, async (t) => {
    const cut: Answer = (response, request) => {
      sends(current(3))(response, request);
      response.end();
    };
    const { subscription, seen, errors, received } = await served(t, [cut, cut, toTheEnd], { from });

    assert.equal(await subscription.done, "closed");
    assert.deepEqual(seen, [4, 5]);
    assert.deepEqual(received.map((each) => query(each).get("after")), [from, cursor(3), cursor(3)]);
    assert.ok(errors.length === 2 && errors.every(hasCode("disconnected")));
  });
}

test("events that come twice are handled once, and a hole is reported and filled", async (t) => {
  const wrong = sends(batch(0, 2), batch(1, 3), batch(0, 2), batch(4, 5), closed(5));
  const { subscription, seen, errors, received } = await served(t, [wrong, toTheEnd]);

  assert.equal(await subscription.done, "closed");
  assert.deepEqual(seen, upTo(5));
  assert.equal(query(received[1]!).get("after"), cursor(3));
  assert.ok(errors.length === 1 && hasCode("missing_events")(errors[0]), String(errors));
});

test("a handler that throws ends the answer too, and its event is not done", async (t) => {
  let isGone = false;
  const answer: Answer = (response, request) => {
    response.on("close", () => (isGone = true));
    sends(batch(0, 5))(response, request);
  };
  const { subscription, seen } = await served(t, [answer], {
    handler: ({ payload }) => assert.notEqual(payload, 3),
  });

  await assert.rejects(subscription.done, assert.AssertionError);
  assert.deepEqual([seen, subscription.cursor], [[1, 2], cursor(2)]);
  await until(() => isGone);
});

test("a subscription that is closed ends its answer", async (t) => {
  let isGone = false;
  const answer: Answer = (response, request) => {
    response.on("close", () => (isGone = true));
    sends(batch(0, 2))(response, request);
  };
  const { subscription, seen } = await served(t, [answer]);
  await until(() => seen.length === 2);

  subscription.close();
  assert.equal(await subscription.done, null);
  await until(() => isGone);
});

test("after a bye it comes back when the server said, and no error is reported", async (t) => {
  let [said, back] = [0, 0];
  const leaving: Answer = (response, request) => {
    said = performance.now();
    sends(batch(0, 2), { bye: { code: "going_away", after: 0.4 } })(response, request);
    response.end();
  };
  const again: Answer = (response, request) => {
    back = performance.now();
    toTheEnd(response, request);
  };
  const { subscription, seen, errors } = await served(t, [leaving, again]);

  assert.equal(await subscription.done, "closed");
  assert.deepEqual([seen, errors], [upTo(5), []]);
  assert.ok(back - said >= 390, `${back - said}`);
});

for (const [what, answer] of Object.entries<Answer>({
  "ends every answer": (response, request) => (sends()(response, request), response.end()),
  "says bye to every request": sends({ bye: { code: "going_away", after: 0 } }),
  "takes every token back": sends({ reset: { channel: "c", reason: "invalid_token" } }),
  "leaves a hole every time": sends(batch(3, 4)),
})) {
  test(`a server that ${what} is not stormed`, async (t) => {
    const { received } = await served(t, [answer], { from: cursor(1) });

    await until(() => received.length > 1);
    await pause(1_000);
    assert.ok(received.length < 25, `${received.length}`);
  });
}

test("a reset in an answer ends the subscription, and says where it could go on", async (t) => {
  const { subscription, seen } = await served(t, [sends(batch(0, 2), { reset })]);

  await assert.rejects(subscription.done, (error) => {
    return error instanceof CursorReset && error.oldest === cursor(6) && error.head === cursor(9);
  });
  assert.deepEqual([seen, subscription.cursor], [[1, 2], cursor(2)]);
});

test("a reset by status is the same as one by frame", async (t) => {
  const answer = json(410, { code: "cursor_reset", message: "m", details: reset });
  const { subscription } = await served(t, [answer], { from: cursor(1) });

  await assert.rejects(subscription.done, (error) => {
    return error instanceof CursorReset && error.oldest === cursor(6);
  });
});

test("a right that is missing or lost ends the subscription", async (t) => {
  const missing = await served(t, [refusal(403, "forbidden")]);
  await assert.rejects(missing.subscription.done, Forbidden);
  const lost = await served(t, [sends(batch(0, 1), { reset: { channel: "c", reason: "forbidden" } })]);
  await assert.rejects(lost.subscription.done, Forbidden);
  assert.deepEqual(lost.seen, [1]);
});

test("a token that has ended is asked for again, and refused if it is the same", async (t) => {
  const ended = sends(batch(0, 1), { reset: { channel: "c", reason: "invalid_token" } });
  const tokens = ["old", "new"];
  const token = async () => tokens.shift() ?? assert.fail("asked too often");
  const { subscription, received } = await served(t, [ended, toTheEnd], { token });
  assert.equal(await subscription.done, "closed");
  assert.deepEqual(received.map(({ headers }) => headers.authorization), ["Bearer old", "Bearer new"]);

  const same = await served(t, [ended, refusal(401, "invalid_token")]);
  await assert.rejects(same.subscription.done, Unauthorized);
});

test("an answer without a byte for 2.5 beats is left", async (t) => {
  const limits = heldTimers(t, SILENCE);
  const { subscription, seen, errors } = await served(t, [sends(batch(0, 2)), toTheEnd]);
  await until(() => seen.length === 2 && limits.running === 1);

  limits.fire();
  assert.equal(await subscription.done, "closed");
  assert.deepEqual(seen, upTo(5));
  assert.ok(errors.length === 1 && hasCode("silent")(errors[0]));
});

test("an answer that beats is not left, nor one that a slow handler keeps waiting", async (t) => {
  const limits = heldTimers(t, SILENCE);
  let send!: (text: string) => void;
  const answer: Answer = (response, request) => {
    sends(batch(0, 1))(response, request);
    send = (text) => response.write(text);
  };
  let free: (() => void) | undefined;
  const handler = () => new Promise<void>((resolve) => (free = resolve));
  const { subscription, errors, received } = await served(t, [answer], { handler });
  await until(() => free !== undefined);
  assert.equal(limits.running, 0);

  free!();
  for (let begun = limits.begun + 1; begun < 5; begun += 1) {
    await until(() => limits.begun === begun && limits.running === 1);
    send(":\n\n"); // each byte begins it again
  }
  free = undefined;
  send(body(batch(1, 2), closed(2)));
  await until(() => free !== undefined);
  assert.equal(limits.running, 0);
  free!();
  assert.equal(await subscription.done, "closed");
  assert.deepEqual([errors, received.length], [[], 1]);
});

/** Never sends a byte of an answer that goes on, as a proxy that waits for its end. */
const holding = (last: number): Answer => (response, request) => {
  return isServerSent(request) ? undefined : pages(last)(response, request);
};

test("where a proxy holds answers back, requests that wait bring the events", async (t) => {
  const limits = heldTimers(t, OPENING);
  const { subscription, seen, errors, received } = await served(t, [holding(5)]);
  await until(() => received.length === 1);

  limits.fire();
  assert.equal(await subscription.done, "closed");
  assert.deepEqual(seen, upTo(5));
  assert.ok(errors.length === 1 && hasCode("silent")(errors[0]));
  const asked = received.map((each) => (isServerSent(each) ? "answer" : each.url.slice(1, 4)));
  assert.deepEqual(asked, ["answer", "hea", "api", "api", "api"]);
});

test("an answer whose head alone has come is held back, too", async (t) => {
  const limits = heldTimers(t, OPENING);
  const { subscription, seen, received } = await served(t, [
    (response, request) => {
      if (!isServerSent(request)) return pages(5)(response, request);
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      return response.flushHeaders();
    },
  ]);
  await until(() => received.length === 1 && limits.begun === 2);

  limits.fire();
  assert.equal(await subscription.done, "closed");
  assert.deepEqual(seen, upTo(5));
  assert.equal(received.filter(isServerSent).length, 1);
});

test("an answer that begins at the last moment is not left", async (t) => {
  const limits = heldTimers(t, OPENING);
  let answer!: ServerResponse;
  const { subscription, seen, errors, received } = await served(t, [
    (response) => {
      answer = response;
    },
    async (response, request) => {
      sends(batch(0, 2))(answer, request);
      await until(() => seen.length === 2);
      json(200, { status: "ok" })(response, request);
    },
  ]);
  await until(() => received.length === 1);

  await Promise.all(limits.fire());
  answer.end(body(batch(2, 5), closed(5)));
  assert.equal(await subscription.done, "closed");
  assert.deepEqual([seen, errors, received.length], [upTo(5), [], 2]);
});

test("a server that is away is not taken for a proxy that holds answers back", async (t) => {
  const limits = heldTimers(t, OPENING);
  const answers: [Answer, ...Answer[]] = [() => undefined, refusal(503, "unavailable"), toTheEnd];
  const { subscription, received } = await served(t, answers);
  await until(() => received.length === 1);

  limits.fire();
  assert.equal(await subscription.done, "closed");
  assert.deepEqual(received.map(isServerSent), [true, false, true]);
});

test("with more channels than a browser has connections to spare, all take turns", async (t) => {
  const { url, received } = await serve(t, (response, request) => {
    if (isServerSent(request)) return sends(current(0))(response, request);
    const page = { after: cursor(0), cursor: cursor(0), oldest: cursor(0), head: cursor(0) };
    const answer = () => json(200, { ...page, events: [], ended: null })(response, request);
    return query(request).get("wait") === "0" ? answer() : setTimeout(answer, 20);
  });
  let running = 0;
  let most = 0;
  const counted: typeof fetch = async (address, request) => {
    const isWaiting = !/wait=0/.test(String(address));
    running += Number(isWaiting);
    most = Math.max(most, running);
    const done = () => {
      running -= Number(isWaiting);
    };
    if (/wait=/.test(String(address))) return fetch(address, request).finally(done);
    request?.signal?.addEventListener("abort", done);
    return fetch(address, request);
  };
  const towpath = new Towpath(url, { WebSocket: null, fetch: counted });
  const names = upTo(20).map((n) => `c${n}`);
  const subscribed = names.slice(0, 4).map((name) => towpath.events.subscribe(name, () => undefined));
  await until(() => received.filter(isServerSent).length === 4);

  subscribed.push(...names.slice(4).map((name) => towpath.events.subscribe(name, () => undefined)));
  const waits = () => received.map((each) => query(each).get("wait"));
  await until(() => waits().filter((wait) => wait === "1").length > 40);
  assert.ok(most <= 4, `${most}`);
  assert.equal(new Set(received.filter((each) => query(each).get("wait") === "1").map(({ url }) => url.split("?")[0])).size, 20);

  for (const each of subscribed.splice(4)) each.close();
  const before = received.filter(isServerSent).length;
  await until(() => received.filter(isServerSent).length === before + 4);
  for (const each of subscribed) each.close();
});

// ------------------------------------------------------------------ requests that wait

for (const [where, manners] of Object.entries<Asked>({
  "a proxy refuses WebSockets": {},
  "there are no WebSockets": { WebSocket: null },
})) {
  test(`where ${where} and no server-sent events, requests that wait bring the events`, async (t) => {
    const options = { sessions: [], http: pages(5), refuseUpgrades: true };
    const { url, requests, upgrades } = await serveChannel(t, options);
    const { subscription, seen, errors } = subscribe(t, url, manners);

    assert.equal(await subscription.done, "closed");
    assert.deepEqual([seen, subscription.cursor], [upTo(5), cursor(5)]);
    assert.equal(upgrades(), manners.WebSocket === null ? 0 : 2);
    assert.equal(errors.length, upgrades());
    const read = requests.filter((each) => each.startsWith("/api/channels/c/events"));
    const waits = read.map((each) => /wait=(\d+)/.exec(each)?.[1]);
    assert.deepEqual(waits, [undefined, "0", "25", "25"]);
  });
}

test("a server that is away is not taken for one that refuses WebSockets", async (t) => {
  const http = refusal(503, "unavailable");
  const { url, requests } = await serveChannel(t, { sessions: [], http, refuseUpgrades: true });
  const { errors } = subscribe(t, url);

  await until(() => errors.length > 3);
  assert.deepEqual(new Set(requests), new Set(["/healthz"]));
});

test("where no type is wanted, no event is handled", async (t) => {
  const { subscription, seen } = await served(t, [pages(5)], { types: [] });

  assert.equal(await subscription.done, "closed");
  assert.deepEqual([seen, subscription.cursor], [[], cursor(5)]);
});

test("another login does not wait for requests of the one before", async (t) => {
  const heard: unknown[] = [];
  const { towpath, seen } = await served(t, [
    (response, request) => {
      if (request.method === "POST") return json(200, { token: "of-ann", record: {} })(response, request);
      const wait = query(request).get("wait");
      if (wait !== null) heard.push([request.headers.authorization, wait]);
      return wait === "25" ? undefined : pages(9)(response, request);
    },
  ]);
  await until(() => heard.length === 2);

  await towpath.authWithPassword("ann@example.com", "password");
  await until(() => heard.length === 4);
  const [key, ann] = ["Bearer key", "Bearer of-ann"];
  assert.deepEqual(heard, [[key, "0"], [key, "25"], [ann, "0"], [ann, "25"]]);
  assert.deepEqual(seen, upTo(4));
});

test("another login does not read on by the answer of the one before", async (t) => {
  const { towpath, subscription, received } = await served(t, [
    sends(batch(0, 2)),
    json(200, { token: "of-ann", record: {} }),
    toTheEnd,
  ]);
  await until(() => subscription.cursor === cursor(2));

  await towpath.authWithPassword("ann@example.com", "password");
  assert.equal(await subscription.done, "closed");
  assert.equal(received[2]?.headers.authorization, "Bearer of-ann");
});

test("a token that cannot be had is asked for again", async (t) => {
  let asked = 0;
  const token = async () => {
    if (asked++ < 2) throw new TypeError("its server is away");
    return "key";
  };
  const { subscription, seen, errors } = await served(t, [toTheEnd], { token });

  assert.equal(await subscription.done, "closed");
  assert.deepEqual(seen, upTo(5));
  assert.ok(errors.length === 2 && errors.every((error) => error instanceof TypeError));
});

/** Timers of so many milliseconds, which fire when a test says so. */
function heldTimers(t: TestContext, milliseconds: number) {
  const { setTimeout, clearTimeout } = globalThis;
  const running = new Map<unknown, () => void>();
  let begun = 0;
  t.mock.method(globalThis, "setTimeout", (run: () => void, wait?: number) => {
    if (wait !== milliseconds) return setTimeout(run, wait);
    begun += 1;
    const timer = {};
    running.set(timer, run);
    return timer;
  });
  t.mock.method(globalThis, "clearTimeout", (timer: NodeJS.Timeout) => {
    if (!running.delete(timer)) clearTimeout(timer);
  });
  return {
    get running() {
      return running.size;
    },
    get begun() {
      return begun;
    },
    fire: () => Array.from(running.values(), (run) => run()),
  };
}
