import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";

import {
  Conflict,
  CursorReset,
  Forbidden,
  Invalid,
  NotFound,
  type SubscribeOptions,
  Towpath,
  Unauthorized,
} from "../../src/index.ts";
import { eventually, gate, lines, newUser, superuser, url } from "./here.ts";

const towpath = await superuser();
const newChannel = () => `c-${randomUUID()}`;
const clients = await lines();

/** Read a channel that is closed by a subscription, to its end. */
async function all(client: Towpath, channel: string, options: SubscribeOptions = {}) {
  const seen: unknown[] = [];
  const onError = (error: unknown) => assert.fail(String(error));
  const { done } = client.events.subscribe(channel, { onError, ...options }, ({ payload }) => {
    seen.push(payload);
  });
  assert.equal(await done, "closed");
  return seen;
}

test("what is published is read page by page", async () => {
  const channel = newChannel();
  const first = await towpath.events.publish(channel, { n: 1 }, { type: "said", headers: { h: "x" } });
  const more = await towpath.events.publishMany(channel, [{ payload: 2 }, { payload: "three" }]);

  const { events, cursor, head, ended } = await towpath.events.read(channel, { limit: 2 });
  assert.deepEqual(events.map(({ payload }) => payload), [{ n: 1 }, 2]);
  assert.deepEqual([events[0]?.type, events[0]?.headers, ended], ["said", { h: "x" }, null]);
  assert.deepEqual([events[0]?.id, cursor], [first.id, more[0]?.cursor]);
  assert.deepEqual((await towpath.events.read(channel, { after: head })).events, []);
  const { items: found, next } = await towpath.events.channels({ prefix: channel });
  assert.equal(next, null);
  assert.deepEqual(found.map(({ name, events }) => [name, events]), [[channel, 3]]);
  assert.deepEqual(await towpath.events.get(channel), found[0]);
});

test("an event with a key is stored once", async () => {
  const channel = newChannel();
  const [one, again] = [
    await towpath.events.publish(channel, 1, { key: "k" }),
    await towpath.events.publish(channel, 1, { key: "k" }),
  ];

  assert.deepEqual(one, again);
  assert.equal((await towpath.events.read(channel)).events.length, 1);
});

test("a read waits for the first event", async () => {
  const channel = newChannel();
  const reading = towpath.events.read(channel, { wait: 30 });
  await towpath.events.publish(channel, "came");

  assert.deepEqual((await reading).events.map(({ payload }) => payload), ["came"]);
});

test("a channel that is closed takes no event, and one that is deleted is gone", async () => {
  const channel = newChannel();
  await towpath.events.publish(channel, 1);
  await towpath.events.close(channel);

  await assert.rejects(towpath.events.publish(channel, 2), Conflict);
  assert.equal((await towpath.events.read(channel)).ended, "closed");
  await towpath.events.delete(channel);
  await assert.rejects(towpath.events.get(channel), NotFound);
});

for (const [line, client] of Object.entries(clients)) {
  test(`by ${line}, a subscription begins where it is told to`, async () => {
    const channel = newChannel();
    const numbers = Array.from({ length: 1_500 }, (_, n) => n);
    const before = numbers.slice(0, -6).map((payload) => ({ payload, type: "old.number" }));
    await towpath.events.publishMany(channel, before);
    await new Promise((resolve) => setTimeout(resolve, 20));
    const last = numbers.slice(-6).map((payload) => ({ payload, type: `t${payload % 2}` }));
    const [first] = await towpath.events.publishMany(channel, last);
    await towpath.events.close(channel);

    assert.deepEqual(await all(client, channel), numbers);
    assert.deepEqual(await all(client, channel, { from: "now" }), []);
    assert.deepEqual(await all(client, channel, { from: { last: 2 } }), [1498, 1499]);
    assert.deepEqual(await all(client, channel, { from: { last: 2_000 } }), numbers);
    assert.deepEqual(await all(client, channel, { from: { since: first!.at } }), numbers.slice(-6));
    const since = new Date(2020, 1, 1);
    assert.deepEqual(await all(client, channel, { from: { since } }), numbers);
    assert.deepEqual(await all(client, channel, { from: first!.cursor }), numbers.slice(-5));
    assert.deepEqual(await all(client, channel, { types: ["t1"] }), [1495, 1497, 1499]);
    assert.deepEqual(await all(client, channel, { types: ["old.*"] }), numbers.slice(0, -6));
    assert.deepEqual(await all(client, channel, { types: [] }), []);
  });

  test(`by ${line}, a cursor of its source goes on in a fork`, async () => {
    const [source, fork] = [newChannel(), newChannel()];
    const [first, second] = await towpath.events.publishMany(source, [{ payload: 1 }, { payload: 2 }]);
    const headers = { Authorization: `Bearer ${towpath.token}`, "Stream-Forked-From": `/v1/stream/${source}` };
    const made = await fetch(`${url}/v1/stream/${fork}`, { method: "PUT", headers });
    assert.equal(made.status, 201);
    await towpath.events.publish(fork, 3);
    await towpath.events.close(fork);

    assert.deepEqual(await all(client, fork, { from: first!.cursor }), [2, 3]);
    assert.deepEqual(await all(client, fork, { from: second!.cursor }), [3]);
    assert.deepEqual(await all(client, fork, { from: first!.cursor, types: ["none"] }), []);
  });

  test(`by ${line}, events are handled as they are published`, async () => {
    const channel = newChannel();
    const came = gate<unknown>();
    const { done } = client.events.subscribe(channel, ({ payload }) => came.open(payload));
    await new Promise((resolve) => setTimeout(resolve, 100));

    await towpath.events.publish(channel, "hello");
    assert.equal(await came.opened, "hello");
    await towpath.events.close(channel);
    assert.equal(await done, "closed");
  });

  test(`by ${line}, a deleted channel resets its subscribers`, async () => {
    const channel = newChannel();
    await towpath.events.publish(channel, 1);
    const came = gate();
    const { done } = client.events.subscribe(channel, () => came.open());
    // Before the deletion is answered, the subscription may have ended.
    const reset = assert.rejects(done, (error) => error instanceof CursorReset && error.reason === "channel");
    await came.opened;
    await towpath.events.delete(channel);

    await reset;
  });

  test(`by ${line}, a subscription may go on in the next channel of the name`, async () => {
    const channel = newChannel();
    await towpath.events.publish(channel, 1);
    const seen: unknown[] = [];
    const { done } = client.events.subscribe(channel, { onReset: "oldest" }, ({ payload }) => {
      seen.push(payload);
    });
    await eventually(async () => seen.length === 1);
    await towpath.events.delete(channel);
    await towpath.events.publish(channel, 2);
    await eventually(async () => seen.length === 2);
    await towpath.events.close(channel);

    assert.equal(await done, "closed");
    assert.deepEqual(seen, [1, 2]);
  });

  test(`by ${line}, a wrong request is refused once and for all`, async () => {
    const handler = () => assert.fail("there is nothing");
    const { events } = client;
    await assert.rejects(events.subscribe("c", { from: "nonsense" }, handler).done, Invalid);
    await assert.rejects(events.subscribe("no name", handler).done, Invalid);
  });
}

for (const line of Object.keys(clients)) {
  const as = async (token: string) => (await lines(token))[line]!;

  test(`by ${line}, a caller without the right is refused`, async () => {
    const handler = () => assert.fail("there is nothing to see");
    await assert.rejects((await as("")).events.subscribe("c", handler).done, Unauthorized);
    await assert.rejects((await as("tow_nonsense")).events.subscribe("c", handler).done, Unauthorized);
    const user = await as((await newUser()).token);
    await assert.rejects(user.events.subscribe("c", handler).done, Forbidden);
  });

  test(`by ${line}, a right that is lost ends the subscription`, async () => {
    const channel = newChannel();
    const key = await towpath.keys.create({ name: channel, scopes: ["subscribe"], channels: [channel] });
    const seen: unknown[] = [];
    const { done } = (await as(key.secret)).events.subscribe(channel, ({ payload }) => seen.push(payload));
    await towpath.events.publish(channel, 1);
    await eventually(async () => seen.length === 1);

    const ended = assert.rejects(done, Unauthorized); // it may end before the next event is published
    await towpath.keys.revoke(key.id);
    await towpath.events.publish(channel, 2);
    await ended;
    assert.deepEqual(seen, [1]);
  });
}

test("without WebSockets, one answer brings all events of a channel", async () => {
  const channel = newChannel();
  const asked: string[] = [];
  const counted: typeof fetch = (address, request) => {
    asked.push(String(new Headers(request?.headers).get("Accept")));
    return fetch(address, request);
  };
  const { token } = towpath;
  const client = new Towpath(url, { token, WebSocket: null, fetch: counted });
  const seen: unknown[] = [];
  const { done } = client.events.subscribe(channel, ({ payload }) => seen.push(payload));
  for (const payload of [1, 2, 3]) {
    await towpath.events.publish(channel, payload);
    await eventually(async () => seen.length === payload);
  }
  await towpath.events.close(channel);

  assert.equal(await done, "closed");
  assert.deepEqual(asked, ["text/event-stream"]);
});

test("another login of the same client reads with its own rights", async () => {
  const channel = newChannel();
  const client = await superuser();
  const came = gate();
  const { done } = client.events.subscribe(channel, () => came.open());
  await towpath.events.publish(channel, 1);
  await came.opened;

  await Promise.all([client.logout(), assert.rejects(done, Unauthorized)]);
});
