import assert from "node:assert/strict";
import { test } from "node:test";

import { NotFound } from "../../src/index.ts";
import { newTopic, superuser } from "./here.ts";

const towpath = await superuser();

test("a flow is a graph, and stands in the list of flows", async () => {
  const first = await towpath.jobs.enqueue(newTopic());
  const last = await towpath.jobs.enqueue(newTopic(), null, { after: [first.id] });

  const flow = await towpath.jobs.flow(last.id);
  const { items } = await towpath.jobs.flows({ limit: 5 });

  assert.deepEqual(flow.edges, [{ parent: first.id, child: last.id }]);
  assert.deepEqual(
    flow.nodes.map((node) => node.id),
    [last.id, first.id],
  );
  assert.ok(items.some((each) => each.job.id === last.id && each.jobs["ready"] === 1));
});

test("limits, settings and what the doctor found are told", async () => {
  const topic = newTopic();
  await towpath.jobs.enqueue(topic, null, { limit: { key: topic, concurrency: 3 } });
  await towpath.jobs.reserve([topic]);

  const limits = await towpath.limits();
  const settings = await towpath.settings();
  const checkup = await towpath.doctor();

  assert.equal(limits.find((each) => each.key === topic)?.concurrency, 3);
  assert.equal(settings.find((each) => each.name === "max_retries")?.default, 3);
  assert.equal(checkup.items[0]?.name, "database");
});

test("workers are told beside leases without a name; one that has gone cannot be stopped", async () => {
  const topic = newTopic();
  await towpath.jobs.enqueue(topic);
  await towpath.jobs.reserve([topic]);

  const { unnamed } = await towpath.workers.overview();

  assert.equal(unnamed.find((each) => each.topic === topic)?.leases, 1);
  await assert.rejects(towpath.workers.stop("1"), NotFound);
});

test("an edit of a schedule loses no option, and its rule can be tried before", async () => {
  const name = newTopic();
  const { fires, words } = await towpath.schedules.preview({
    cron: "0 7 * * *",
    tz: "Europe/Zurich",
    from: new Date("2026-11-16T12:00:00Z"),
    count: 2,
  });
  const options = { key: "k", maxRetries: 7, limit: { key: name, concurrency: 2 } };
  const made = await towpath.schedules.set(name, { topic: name, every: 3600, options });

  const { topic, payload } = made;
  const edited = await towpath.schedules.set(name, {
    topic,
    payload,
    every: 7200,
    options: made.options,
  });

  assert.deepEqual(fires, ["2026-11-17T06:00:00Z", "2026-11-18T06:00:00Z"]);
  assert.equal(words, "at 07:00 every day, Europe/Zurich");
  assert.deepEqual(edited.options, made.options);
  assert.equal(edited.options.maxRetries, 7);
  assert.equal((await towpath.schedules.get(name)).nextFires.length, 5);
  await towpath.schedules.delete(name);
});
