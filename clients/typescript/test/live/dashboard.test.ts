import assert from "node:assert/strict";
import { test } from "node:test";

import { Forbidden, Invalid, type Towpath, type BulkAct, type LiveTopic } from "../../src/index.ts";
import { eventually, newTopic, newUser, superuser } from "./here.ts";

const towpath: Towpath = await superuser();

test("a bulk act is previewed, begun, followed, and on record", async () => {
  const topic = newTopic();
  const jobs = await towpath.jobs.enqueueMany([{ topic }, { topic }, { topic }]);
  const seen = await towpath.bulk.preview("cancel", { topic });
  assert.deepEqual([seen.count, seen.exact, seen.sample.length], [3, true, 3]);
  const later = await towpath.jobs.enqueue(topic);
  const told: BulkAct[] = [];
  const watching = new AbortController();
  const live = towpath.live({ bulk: (act) => told.push(act) }, watching.signal);

  const act = await towpath.bulk.begin("cancel", { topic }, { upTo: seen.upTo, delay: 0 });
  const ended = await eventually(async () =>
    told.find(({ id, endedAt }) => id === act.id && endedAt),
  );

  assert.deepEqual([ended.state, ended.done, ended.refused], ["done", 3, []]);
  assert.equal((await towpath.jobs.get(jobs[0]!.id)).status, "cancelled");
  assert.equal((await towpath.jobs.get(later.id)).status, "pending");
  assert.equal((await towpath.bulk.get(act.id)).state, "done");
  assert.ok((await towpath.bulk.list()).some(({ id }) => id === act.id));
  const acts = await towpath.activity.list();
  assert.ok(acts.some(({ type, payload }) => type === "act.bulk.begun" && payload["bulk"] === act.id));
  watching.abort();
  await live;
});

test("a bulk act is undone", async () => {
  const topic = newTopic();
  const job = await towpath.jobs.enqueue(topic);

  const act = await towpath.bulk.begin("delete", { ids: [job.id] }, { upTo: 0 });
  const { state, done } = await towpath.bulk.stop(act.id);

  assert.deepEqual([state, done], ["stopped", 0]);
  assert.equal((await towpath.jobs.get(job.id)).status, "pending");
  await assert.rejects(towpath.bulk.preview("requeue", { status: "completed" }), Invalid);
});

test("counts come at first and when they change", async () => {
  const topic = newTopic();
  await towpath.jobs.enqueue(topic);
  const counts = new Map<string, LiveTopic>();
  const changed = new Set<string>();
  const firsts: boolean[] = [];
  const watching = new AbortController();
  const live = towpath.live(
    {
      counts: (topics, gone, isFirst) => {
        firsts.push(isFirst);
        for (const each of topics) counts.set(each.topic, each);
        for (const each of gone) counts.delete(each);
      },
      changed: (topics) => topics.forEach((each) => changed.add(each)),
    },
    watching.signal,
  );
  await eventually(async () => counts.get(topic)?.ready === 1);

  await towpath.jobs.enqueue(topic);

  await eventually(async () => counts.get(topic)?.ready === 2 && changed.has(topic));
  assert.deepEqual([firsts[0], firsts.slice(1).includes(true)], [true, false]);
  watching.abort();
  await live;
});

test("only superusers follow a server", async () => {
  const ada = await newUser();
  const states: boolean[] = [];

  const live = ada.live({ connected: (is) => states.push(is) }, new AbortController().signal);

  await assert.rejects(live, Forbidden);
  assert.deepEqual(states, [false]);
});

test("a rule is tried before it is saved", async () => {
  const manage_rule = "@request.auth.id != '' && @request.auth.verified = true";
  const question = { verb: "manage", topic: "mail", rules: { manage_rule } } as const;

  const said = await towpath.access.try({ ...question, as: { auth: { id: "ann" } } });

  assert.deepEqual([said.allowed, said.rule?.of], [false, "general"]);
  assert.deepEqual(said.parts.map(({ left, holds }) => [left, holds]), [
    ['"ann"', true],
    ["missing", false],
  ]);
});
