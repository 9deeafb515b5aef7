import assert from "node:assert/strict";
import { test } from "node:test";

import {
  Conflict,
  Invalid,
  LeaseLost,
  NotFound,
  type Towpath,
  Unauthorized,
  Towpath as Client,
} from "../../src/index.ts";
import { eventually, newTopic, superuser, url } from "./here.ts";

const towpath: Towpath = await superuser();

async function failed(topic: string): Promise<string> {
  const job = await towpath.jobs.enqueue(topic, { userId: "123" }, { maxRetries: 0 });
  const [lease] = await towpath.jobs.reserve([topic]);
  await lease?.fail(new Error("SMTP connection failed"));
  return job.id;
}

test("US8-1: enqueue returns the job and its id", async () => {
  const topic = newTopic();
  const job = await towpath.jobs.enqueue(topic, { userId: "123" });

  assert.match(job.id, /^[0-9a-f-]{36}$/);
  assert.equal(job.topic, topic);
  assert.equal(job.status, "pending");
  assert.equal(job.payload.userId, "123");
});

test("US8-2: get returns everything about a job", async () => {
  const { id } = await towpath.jobs.enqueue(newTopic(), { userId: "123" }, { priority: 7 });

  const job = await towpath.jobs.get<{ userId: string }>(id);

  assert.equal(job.id, id);
  assert.equal(job.status, "pending");
  assert.equal(job.priority, 7);
  assert.deepEqual(job.payload, { userId: "123" });
  assert.equal(job.result, null);
  assert.ok(new Date(job.createdAt).getTime() > 0);
});

test("US6-1: pages of briefs go forward and back, and tell how many jobs there are", async () => {
  const topic = newTopic();
  for (const n of [1, 2, 3]) await towpath.jobs.enqueue(topic, { n, password: "s3cret" });

  const first = await towpath.jobs.page({ topic, limit: 2, count: true });
  assert.deepEqual(
    first.items.map((job) => job.preview),
    ['{"n":3,"password":"•••"}', '{"n":2,"password":"•••"}'],
  );
  assert.deepEqual(first.total, { count: 3, exact: true });
  assert.equal(first.prev, null);
  const second = await towpath.jobs.page({ topic, limit: 2, before: String(first.next) });
  assert.equal(second.items.length, 1);
  const back = await towpath.jobs.page({ topic, limit: 2, after: String(second.prev) });
  assert.deepEqual(back.items, first.items);

  const since = new Date(Date.now() - 3600_000);
  const oldest = await towpath.jobs.list({ topic, state: "ready", order: "oldest", since, limit: 1 });
  assert.deepEqual(
    oldest.items.map((job) => job.id),
    [second.items[0]?.id],
  );
  const ids = first.items.map((job) => job.id);
  assert.deepEqual(
    (await towpath.jobs.page({ ids })).items.map((job) => job.id),
    ids,
  );
  const all = [];
  for await (const job of towpath.jobs.iterate({ topic, order: "oldest", limit: 1 })) all.push(job.seq);
  assert.deepEqual(all, all.toSorted((a, b) => a - b));
  assert.equal(all.length, 3);
});

test("US6-6: failures by error, run times, the history and a topic in full", async () => {
  const topic = newTopic();
  const id = await failed(topic);
  await towpath.jobs.enqueue(topic);
  const [lease] = await towpath.jobs.reserve([topic]);
  await lease?.complete();

  const failures = await towpath.jobs.recentFailures({ topic });
  assert.deepEqual(
    failures.groups.map((group) => [group.error, group.count, group.sample]),
    [["Error: SMTP connection failed", 1, id]],
  );
  assert.equal(failures.items[0]?.id, id);
  const took = await towpath.jobs.durations({ topic });
  assert.equal(took.items.length, 1);
  const history = await towpath.jobs.history({ topic, minutes: 10, step: 300 });
  assert.equal(history.items.length, 2);
  const ended = (history.items ?? []).reduce((sum, each) => sum + each.completed + each.failed, 0);
  assert.equal(ended, 2);
  const { topics } = await towpath.jobs.history({ topic, minutes: 10, step: 300, by: "topic" });
  assert.ok(topics?.[topic]);
  const detail = await towpath.topics.get(topic);
  assert.deepEqual([detail.failed, detail.exact, detail.arguments], [1, true, null]);
  assert.deepEqual((await towpath.jobs.stats()).completedNow?.exact, true);
});

test("US8-3: list returns the jobs of a topic and status", async () => {
  const topic = newTopic();
  const waiting = await towpath.jobs.enqueue(topic, 1);
  const buried = await failed(newTopic());

  const page = await towpath.jobs.list({ topic, status: "pending", limit: 20, offset: 0 });

  assert.deepEqual(
    page.items.map((job) => job.id),
    [waiting.id],
  );
  assert.equal(page.next, null);
  assert.equal((await towpath.jobs.get(buried)).status, "failed");
});

test("US8-4: requeue runs a failed job again", async () => {
  const id = await failed(newTopic());

  const job = await towpath.jobs.requeue(id);

  assert.equal(job.status, "pending");
  assert.equal(job.retries, 0);
  const [failure] = await towpath.jobs.failures(id);
  assert.match(failure?.error ?? "", /SMTP connection failed/);
});

test("US8-5: a job with runAt waits for that instant, and then runs", async () => {
  const topic = newTopic();
  const later = new Date(Date.now() + 3_600_000);
  const job = await towpath.jobs.enqueue(topic, { orderId: "456" }, { runAt: later });

  assert.equal(new Date(job.runAt).getTime(), later.getTime());
  assert.equal(job.state, "delayed");
  assert.deepEqual(await towpath.jobs.reserve([topic]), []);

  const soon = newTopic();
  const next = await towpath.jobs.enqueue(soon, {}, { runAt: new Date(Date.now() + 200) });
  const [lease] = await towpath.jobs.reserve([soon], { timeout: 60 });
  assert.equal(lease?.job.id, next.id);
  assert.ok(Date.parse(lease.job.reservedAt ?? "") >= Date.parse(next.runAt));
});

test("delay is in seconds", async () => {
  const job = await towpath.jobs.enqueue(newTopic(), {}, { delay: 3600 });

  assert.equal(Date.parse(job.runAt) - Date.parse(job.createdAt), 3_600_000);
});

test("a second enqueue with the same id or key of the caller's returns the first job", async () => {
  const topic = newTopic();
  const first = await towpath.jobs.enqueue(topic, 1, { idempotencyKey: "order-7" });
  const again = await towpath.jobs.enqueue(topic, 1, { idempotencyKey: "order-7" });
  const byId = await towpath.jobs.enqueue(topic, 1, { id: first.id });

  assert.equal(again.id, first.id);
  assert.equal(byId.id, first.id);
  await assert.rejects(towpath.jobs.enqueue(topic, 2, { id: first.id }), (error) => {
    return error instanceof Conflict && error.code === "job_exists";
  });
});

test("an enqueue whose answer is lost is stored once", async () => {
  let lost = 0;
  const flaky = await superuser({
    fetch: async (address, request) => {
      const response = await fetch(address, request);
      if (String(address).endsWith("/enqueue") && lost++ < 2) throw new TypeError("lost");
      return response;
    },
  });
  const topic = newTopic();

  const job = await flaky.jobs.enqueue(topic, 1);

  assert.equal(lost, 3);
  assert.deepEqual(
    (await towpath.jobs.list({ topic })).items.map(({ id }) => id),
    [job.id],
  );
});

test("many jobs are stored together, or none of them", async () => {
  const topic = newTopic();
  const jobs = await towpath.jobs.enqueueMany([
    { topic, payload: { n: 1 }, priority: 1 },
    { topic, payload: new Uint8Array([0, 255]), runAt: new Date(Date.now() + 3_600_000) },
  ]);

  assert.deepEqual(
    jobs.map((job) => [job.payload, job.state]),
    [
      [{ n: 1 }, "ready"],
      [new Uint8Array([0, 255]), "delayed"],
    ],
  );
  const wrong = [{ topic }, { topic: "not a topic!" }];
  await assert.rejects(towpath.jobs.enqueueMany(wrong), Invalid);
  assert.equal((await towpath.jobs.list({ topic })).items.length, 2);
});

test("raw bytes are given back as they were", async () => {
  const topic = newTopic();
  const bytes = Uint8Array.from({ length: 256 }, (_, at) => at);

  const { id } = await towpath.jobs.enqueue(topic, bytes);

  assert.deepEqual((await towpath.jobs.get(id)).payload, bytes);
  assert.deepEqual((await towpath.jobs.list({ topic })).items[0]?.payload, bytes);
  assert.deepEqual((await towpath.jobs.reserve([topic]))[0]?.job.payload, bytes);
});

test("iterate goes through all pages", async () => {
  const topic = newTopic();
  const stored = await towpath.jobs.enqueueMany(
    Array.from({ length: 25 }, (_, n) => ({ topic, payload: n })),
  );

  const found: unknown[] = [];
  for await (const job of towpath.jobs.iterate({ topic, limit: 10 })) found.push(job.payload);

  assert.equal(stored.length, 25);
  assert.deepEqual(found.toSorted(), Array.from({ length: 25 }, (_, n) => n).toSorted());
  const [newest] = (await towpath.jobs.list({ topic, limit: 1 })).items;
  assert.equal(newest?.payload, found[0]);
});

test("a job is cancelled, kicked, changed and deleted", async () => {
  const topic = newTopic();
  const { id } = await towpath.jobs.enqueue(topic, 1, { delay: 3600 });

  assert.equal((await towpath.jobs.kick(id)).state, "ready");
  assert.equal((await towpath.jobs.update(id, { priority: 3 })).priority, 3);
  assert.equal((await towpath.jobs.update(id, { runAt: new Date("2099-01-01") })).state, "delayed");
  assert.equal((await towpath.jobs.update(id, { delay: 0 })).state, "ready");
  assert.equal((await towpath.jobs.cancel(id)).status, "cancelled");
  await towpath.jobs.delete(id);
  await assert.rejects(towpath.jobs.get(id), NotFound);
});

test("a job that was not begun in time is cancelled when its turn comes", async () => {
  const topic = newTopic();
  const expiresAt = new Date("2026-01-01T00:00:00Z");
  const { id } = await towpath.jobs.enqueue(topic, 1, { expiresAt });

  assert.deepEqual(await towpath.jobs.reserve([topic]), []);
  const job = await towpath.jobs.get(id);
  assert.equal(job.status, "cancelled");
  assert.equal(new Date(job.expiresAt ?? 0).getTime(), expiresAt.getTime());
});

test("statistics count jobs and time", async () => {
  const topic = newTopic();
  await towpath.jobs.enqueue(topic);
  const [lease] = await towpath.jobs.reserve([topic]);
  await lease?.complete();

  const stats = await towpath.jobs.stats();
  assert.ok(stats.completed >= 1);
  assert.ok((stats.successRate ?? 0) > 0);
  assert.equal(typeof stats.avgExecutionTime, "number");
  const minutes = await towpath.jobs.throughput({ topic });
  assert.equal(
    minutes.reduce((sum, minute) => sum + minute.completed, 0),
    1,
  );
});

test("a lease ends by its outcome, once", async () => {
  const topic = newTopic();
  const job = await towpath.jobs.enqueue(topic, 1);
  const [lease] = await towpath.jobs.reserve([topic], { limit: 10 });
  assert.ok(lease);

  assert.equal((await lease.touch()).cancelRequested, false);
  await lease.complete({ sent: true });
  await lease.complete({ sent: true }); // a repeated word holds

  const done = await towpath.jobs.get<number, { sent: boolean }>(job.id);
  assert.equal(done.status, "completed");
  assert.equal(done.result?.sent, true);
  await assert.rejects(lease.fail("too late"), LeaseLost);
});

test("a lease is released, failed, buried or deleted", async () => {
  const topic = newTopic();
  const { id } = await towpath.jobs.enqueue(topic, 1);
  const take = async () => {
    const [lease] = await towpath.jobs.reserve([topic], { timeout: 60 });
    assert.ok(lease);
    return lease;
  };

  await (await take()).release({ priority: 9 });
  assert.equal((await towpath.jobs.get(id)).priority, 9);
  await (await take()).fail(new RangeError("no"), { delay: 0 });
  const retried = await towpath.jobs.get(id);
  assert.equal(retried.retries, 1);
  assert.match(retried.lastError ?? "", /RangeError: no/);
  await (await take()).bury();
  assert.equal((await towpath.jobs.get(id)).state, "buried");
  assert.equal(await towpath.topics.kick(topic, 5), 1);
  await (await take()).delete();
  await assert.rejects(towpath.jobs.get(id), NotFound);
});

test("reserve waits for a job, until its caller leaves", async () => {
  const topic = newTopic();
  const waiting = towpath.jobs.reserve([topic], { timeout: 60 });
  await towpath.jobs.enqueue(topic, "here");
  assert.equal((await waiting)[0]?.job.payload, "here");

  const controller = new AbortController();
  const left = towpath.jobs.reserve([topic], { timeout: 60, signal: controller.signal });
  controller.abort(new Error("left"));
  await assert.rejects(left, /left/);
});

test("logs and runs of a job are lists", async () => {
  const { id } = await towpath.jobs.enqueue(newTopic(), 1);

  assert.deepEqual(await towpath.jobs.logs(id), []);
  assert.deepEqual(await towpath.jobs.runs(id), []);
});

test("topics are listed, paused, resumed and purged", async () => {
  const topic = newTopic();
  await towpath.jobs.enqueue(topic, 1);
  const mine = async () => (await towpath.topics.list()).find((each) => each.topic === topic);

  await towpath.topics.pause(topic);
  assert.equal((await mine())?.paused, true);
  assert.deepEqual(await towpath.jobs.reserve([topic]), []);
  await towpath.topics.resume(topic);
  assert.equal((await mine())?.paused, false);
  await towpath.topics.pause(topic, { duration: 0.1 });
  await eventually(async () => (await mine())?.paused === false);
  assert.equal(await towpath.topics.purge(topic), 1);
  assert.deepEqual((await towpath.jobs.list({ topic })).items, []);
});

test("schedules are set, paused, resumed, run and deleted", async () => {
  const topic = newTopic();
  const made = await towpath.schedules.set(topic, {
    topic,
    payload: { daily: true },
    cron: "0 7 * * *",
    tz: "Europe/Zurich",
  });
  assert.equal(made.cron, "0 7 * * *");
  assert.ok(made.nextAt);

  await towpath.schedules.pause(topic);
  assert.equal((await towpath.schedules.get(topic)).paused, true);
  await towpath.schedules.resume(topic);
  assert.ok((await towpath.schedules.list()).some((each) => each.name === topic && !each.paused));
  assert.deepEqual((await towpath.schedules.run(topic)).payload, { daily: true });
  await towpath.schedules.delete(topic);
  await assert.rejects(towpath.schedules.get(topic), NotFound);
});

test("nobody is asked to log in", async () => {
  await assert.rejects(new Client(url).jobs.stats(), Unauthorized);
});

test("a payload is read as it is stored, and hidden values only if they are revealed", async () => {
  const { id } = await towpath.jobs.enqueue(newTopic(), { price: 1.1, token: "abc" });

  assert.equal(await towpath.jobs.payload(id), '{"price":1.1,"token":"•••"}');
  assert.equal(await towpath.jobs.payload(id, { reveal: true }), '{"price":1.1,"token":"abc"}');
  assert.equal(await (await towpath.jobs.download(id)).text(), '{"price":1.1,"token":"•••"}');
  assert.equal((await towpath.jobs.get(id)).hidden, 1);
  await assert.rejects(towpath.jobs.payload(crypto.randomUUID()), NotFound);
});

test("a failed job tells its tries, and why it failed", async () => {
  const id = await failed(newTopic());

  const [tried] = await towpath.jobs.tries(id);
  const [reason] = await towpath.jobs.why(id);

  assert.equal(tried?.outcome, "error");
  assert.equal(tried.error, "Error: SMTP connection failed");
  assert.equal(reason?.code, "failed");
  assert.equal(reason.remedies[0]?.path, `/api/jobs/${id}/requeue`);
});

test("a payload of text is stored to the last digit, and cannot become another field", async () => {
  const payloadText = '{"big": 12345678901234567890, "price": 1.10}';
  const { id } = await towpath.jobs.enqueue(newTopic(), undefined, { payloadText, priority: 3 });

  assert.equal(await towpath.jobs.payload(id), payloadText);
  assert.equal((await towpath.jobs.get(id)).priority, 3);
  const bad = towpath.jobs.enqueue(newTopic(), undefined, { payloadText: '1, "topic": "other"' });
  await assert.rejects(bad, Invalid);
});

test("a remedy is applied as it is told", async () => {
  const id = await failed(newTopic());
  const [reason] = await towpath.jobs.why(id);
  const remedy = reason?.remedies.find(({ label }) => label === "Re-queue");
  assert.ok(remedy);

  await towpath.apply(remedy);

  assert.equal((await towpath.jobs.get(id)).state, "ready");
  await assert.rejects(towpath.apply({ ...remedy, path: "//elsewhere.example/api/" }), Invalid);
});
