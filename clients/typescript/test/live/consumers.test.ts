/** Durable consumers, on every line. */

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";

import { ConsumerFenced, CursorReset, NotFound } from "../../src/index.ts";
import { eventually, lines, superuser } from "./here.ts";

const towpath = await superuser();
const consumer = "mailer";

async function newChannel(events: number): Promise<string> {
  const channel = `c-${randomUUID()}`;
  const payloads = Array.from({ length: events }, (_, payload) => ({ payload }));
  if (events) await towpath.events.publishMany(channel, payloads);
  return channel;
}

const lag = async (channel: string) => (await towpath.events.consumers(channel))[0]?.lag;

for (const [line, client] of Object.entries(await lines())) {
  test(`by ${line}, a consumer goes on from its last ack, to the end`, async () => {
    const channel = await newChannel(2_500);
    const seen: unknown[] = [];
    const failing = client.events.subscribe(channel, { consumer }, ({ payload }) => {
      if (payload === 1_200) throw new TypeError("not yet");
      seen.push(payload);
    });
    await assert.rejects(failing.done, TypeError);
    assert.equal(await lag(channel), 1_300);

    const next = client.events.subscribe(channel, { consumer }, ({ payload }) => seen.push(payload));
    await eventually(async () => (await lag(channel)) === 0);
    await towpath.events.publish(channel, 2_500);
    await towpath.events.close(channel);
    assert.equal(await next.done, "closed");
    assert.deepEqual(seen, Array.from({ length: 2_501 }, (_, n) => n));
    assert.equal(await lag(channel), 0);
  });

  test(`by ${line}, a subscription that is closed has acked what it has done`, async () => {
    const channel = await newChannel(10);
    const subscription = client.events.subscribe(channel, { consumer }, ({ payload }) => {
      if (payload === 4) subscription.close();
    });

    assert.equal(await subscription.done, null);
    assert.equal(await lag(channel), 5);
  });

  test(`by ${line}, a second reader fences the first`, async () => {
    const channel = await newChannel(1);
    const seen: unknown[] = [];
    const read = (name: string) =>
      client.events.subscribe(channel, { consumer }, ({ payload }) => seen.push([name, payload]));
    const first = read("first");
    const fenced = assert.rejects(first.done, ConsumerFenced);  // it may come at any time from now on
    await eventually(async () => seen.length === 1);
    await eventually(async () => (await lag(channel)) === 0);
    const second = read("second");
    await eventually(async () => (await towpath.events.consumers(channel))[0]!.generation > 1);

    await towpath.events.publish(channel, 1);
    await fenced;
    await eventually(async () => seen.length === 2);
    assert.deepEqual(seen, [["first", 0], ["second", 1]]);
    second.close();
    assert.equal(await second.done, null);
  });

  test(`by ${line}, a consumer that is moved back reads again, and one that is forgotten is new`, async () => {
    const channel = await newChannel(3);
    await towpath.events.close(channel);
    const all = async () => {
      const seen: unknown[] = [];
      await client.events.subscribe(channel, { consumer }, ({ payload }) => seen.push(payload)).done;
      return seen;
    };
    assert.deepEqual([await all(), await all()], [[0, 1, 2], []]);
    await towpath.events.moveConsumer(channel, consumer, "start");
    assert.deepEqual([await all(), await all()], [[0, 1, 2], []]);
    await towpath.events.forgetConsumer(channel, consumer);
    assert.deepEqual(await towpath.events.consumers(channel), []);
    assert.deepEqual(await all(), [0, 1, 2]);
  });

  test(`by ${line}, types that a consumer does not want are done`, async () => {
    const channel = await newChannel(0);
    const events = [0, 1, 2, 3].map((payload) => ({ payload, type: payload % 2 ? "odd" : "even" }));
    await towpath.events.publishMany(channel, events);
    const seen: unknown[] = [];
    const subscription = client.events.subscribe(channel, { consumer, types: ["even"] }, ({ payload }) => {
      seen.push(payload);
    });
    await towpath.events.close(channel);

    assert.equal(await subscription.done, "closed");
    assert.deepEqual([seen, await lag(channel)], [[0, 2], 0]);
  });
}

test("a consumer attaches and acks by hand", async () => {
  const channel = await newChannel(5);
  const { cursor, generation } = await towpath.events.attach(channel, consumer);
  const { events } = await towpath.events.read(channel, { after: cursor, limit: 2 });
  const done = await towpath.events.ack(channel, consumer, events[1]!.cursor, generation);
  assert.deepEqual([done, await lag(channel)], [events[1]!.cursor, 3]);

  await towpath.events.attach(channel, consumer);
  await assert.rejects(towpath.events.ack(channel, consumer, done, generation), ConsumerFenced);
  await assert.rejects(towpath.events.forgetConsumer(channel, "another"), NotFound);
});

test("a channel keeps what it is told to, and an overtaken consumer is reset", async () => {
  const channel = await newChannel(5);
  await towpath.events.attach(channel, consumer);
  await towpath.events.limit(channel, { maxCount: 2 });
  await eventually(async () => (await towpath.events.get(channel)).events === 2);

  const { done } = towpath.events.subscribe(channel, { consumer }, () => assert.fail("there is a hole"));
  await assert.rejects(done, (error) => error instanceof CursorReset && error.reason === "retention");
});
