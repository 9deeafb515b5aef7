import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";

import {
  Bury,
  type Handler,
  LeaseLost,
  Release,
  Towpath,
  TowpathError,
  type WorkerOptions,
} from "../../src/index.ts";
import { eventually, gate, newTopic, superuser, url } from "./here.ts";

const towpath = await superuser();
const { token } = towpath;

/** A worker that ends with its test. */
function work(
  t: TestContext,
  topic: string,
  handler: Handler<any>,
  options: WorkerOptions & { fetch?: typeof fetch } = {},
) {
  const errors: unknown[] = [];
  const client = new Towpath(url, { token, fetch: options.fetch });
  const worker = client.worker(topic, handler, {
    onError: (error) => errors.push(error),
    ...options,
  });
  t.after(() => worker.stop({ grace: 0 }));
  return { worker, errors };
}

const status = async (id: string) => (await towpath.jobs.get(id)).status;
const becomes = (id: string, wanted: string) =>
  eventually(async () => {
    const job = await towpath.jobs.get(id);
    return job.status === wanted && job;
  });

test("a worker runs jobs and keeps what they return", async (t) => {
  const topic = newTopic();
  work(t, topic, async (job) => ({ twice: job.payload.n * 2 }));

  const jobs = await towpath.jobs.enqueueMany([1, 2, 3].map((n) => ({ topic, payload: { n } })));

  for (const [at, job] of jobs.entries()) {
    assert.deepEqual((await becomes(job.id, "completed")).result, { twice: 2 * (at + 1) });
  }
});

test("no more run at once than it was told, and a free slot is filled", async (t) => {
  const topic = newTopic();
  const gates = Array.from({ length: 5 }, () => gate());
  let running = 0;
  let most = 0;
  let begun = 0;
  await towpath.jobs.enqueueMany(gates.map((_, payload) => ({ topic, payload })));
  work(
    t,
    topic,
    async (job) => {
      begun += 1;
      most = Math.max(most, ++running);
      await gates[job.payload]?.opened;
      running -= 1;
    },
    { concurrency: 2 },
  );

  await eventually(async () => begun === 2);
  for (const { open } of gates) open();
  await eventually(async () => begun === 5 && running === 0);
  assert.equal(most, 2);
});

test("a thrown error fails the job, with its stack", async (t) => {
  const topic = newTopic();
  const { id } = await towpath.jobs.enqueue(topic, 1, { maxRetries: 0 });
  work(t, topic, () => {
    throw new RangeError("out of stamps", { cause: new Error("the post office is closed") });
  });

  const job = await becomes(id, "failed");
  assert.match(job.lastError ?? "", /RangeError: out of stamps/);
  const [failure] = await towpath.jobs.failures(id);
  assert.match(
    `${failure?.error}${failure?.traceback}`,
    /worker\.test\.ts(.|\n)*Caused by: Error: the post office/,
  );
});

test("Release gives the job back uncounted, and Bury puts it aside", async (t) => {
  const topic = newTopic();
  const { id } = await towpath.jobs.enqueue(topic, 1);
  work(t, topic, (job) => {
    if (job.epoch === 1) throw new Release({ delay: 0.05, priority: 9 });
    throw new Bury("not for us");
  });

  const job = await becomes(id, "failed");
  assert.equal(job.state, "buried");
  assert.equal(job.releases, 1);
  assert.equal(job.lastError, "not for us");
  assert.equal(job.retries, 1);
  assert.equal(job.priority, 9);
});

test("a heartbeat keeps a lease that is longer than its ttr", async (t) => {
  const topic = newTopic();
  const { id } = await towpath.jobs.enqueue(topic, 1, { ttr: 3 });
  const { open, opened } = gate();
  work(t, topic, () => opened);

  const until = async () => (await towpath.jobs.get(id)).until ?? undefined;
  const first = await eventually(until);
  await eventually(async () => {
    const now = await until();
    return now !== undefined && now > first;
  });
  open();

  assert.equal((await becomes(id, "completed")).epoch, 1);
});

test("a cancel reaches the running job", async (t) => {
  const topic = newTopic();
  const { id } = await towpath.jobs.enqueue(topic, 1, { ttr: 3 });
  const stopped = gate<unknown>();
  work(t, topic, async (_, { signal }) => {
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    stopped.open(signal.reason);
    signal.throwIfAborted();
  });
  await becomes(id, "processing");

  await towpath.jobs.cancel(id);

  const reason = await stopped.opened;
  assert.ok(reason instanceof TowpathError && reason.code === "job_cancelled");
  const job = await becomes(id, "cancelled");
  assert.deepEqual(await towpath.jobs.failures(job.id), []);
});

test("a lost lease stops the job, and its outcome changes nothing", async (t) => {
  const topic = newTopic();
  const { id } = await towpath.jobs.enqueue(topic, 1, { ttr: 3 });
  const stopped = gate<unknown>();
  work(t, topic, async (_, { lease, signal }) => {
    // Behind the worker's back, as a rescue does.
    await lease.release({ delay: 3600 });
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    stopped.open(signal.reason);
    return "too late";
  });

  assert.ok((await stopped.opened) instanceof LeaseLost);
  const job = await towpath.jobs.get(id);
  assert.equal(job.state, "delayed");
  assert.equal(job.result, null);
});

test("what a job says is seen while it runs and afterwards", async (t) => {
  const topic = newTopic();
  const { id } = await towpath.jobs.enqueue(topic, 1);
  const { open, opened } = gate();
  const { errors } = work(t, topic, async (_, { progress, log, publish }) => {
    progress(0.4, "two of five");
    log("it begins");
    publish({ token: 1 });
    await opened;
    progress(1);
    log("it ends");
    publish("😀 \\ud800");
  });

  const seen = await eventually(async () => {
    const job = await towpath.jobs.get(id);
    return job.progress === 0.4 && job;
  });
  assert.equal(seen.progressMessage, "two of five");
  open();
  const job = await becomes(id, "completed");

  assert.deepEqual([job.progress, job.progressMessage], [1, null]);
  const lines = await towpath.jobs.logs(id);
  assert.deepEqual(
    lines.map(({ text }) => text),
    ["it begins", "it ends"],
  );
  const { events } = await towpath.events.read(`job:${id}`);
  assert.deepEqual(
    events.map(({ payload }) => payload),
    [{ token: 1 }, "😀 \\ud800"],
  );
  assert.deepEqual(errors, []);
});

test("what a job says is kept once, though answers are lost", async (t) => {
  const topic = newTopic();
  const { id } = await towpath.jobs.enqueue(topic, 1);
  let said = 0;
  const handler: Handler = async (_, { log, publish }) => {
    for (let n = 0; n < 20; n += 1) {
      log(`${n}`);
      publish(n);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  work(t, topic, handler, {
    fetch: async (address, request) => {
      const response = await fetch(address, request);
      if (String(address).endsWith("/notes") && said++ % 2 === 0) throw new TypeError("lost");
      return response;
    },
  });

  await becomes(id, "completed");
  const all = Array.from({ length: 20 }, (_, n) => n);
  const lines = await towpath.jobs.logs(id);
  assert.deepEqual(
    lines.map(({ text }) => text),
    all.map(String),
  );
  const { events } = await towpath.events.read(`job:${id}`);
  assert.deepEqual(
    events.map(({ payload }) => payload),
    all,
  );
});

test("as much as the server takes is what a worker sends", async (t) => {
  const topic = newTopic();
  const { id } = await towpath.jobs.enqueue(topic, 1);
  const { errors } = work(t, topic, (_, { progress, log, publish }) => {
    progress(1, "\u0001".repeat(20_000));
    for (let n = 0; n < 2_000; n += 1) log(`${n}`.padEnd(200, "\u0001"));
    for (let n = 0; n < 2_500; n += 1) publish(n);
    publish("x".repeat(2 ** 20 - 20_000));
  });

  await becomes(id, "completed");
  assert.deepEqual(errors, []);
  assert.equal((await towpath.jobs.logs(id)).at(-1)?.text.slice(0, 4), "1999");
  assert.equal((await towpath.jobs.get(id)).progressMessage?.length, 8_000);
});

test("a lease that was lost is noticed by what the job says", async (t) => {
  const topic = newTopic();
  const { id } = await towpath.jobs.enqueue(topic, 1);
  const stopped = gate<unknown>();
  const said: string[] = [];
  const handler: Handler = async (_, { lease, log, signal }) => {
    await lease.release({ delay: 3600 });
    log("too late");
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    stopped.open(signal.reason);
  };
  work(t, topic, handler, {
    fetch: (address, request) => {
      said.push(String(address).split("/").at(-1) ?? "");
      return fetch(address, request);
    },
  });

  assert.ok((await stopped.opened) instanceof LeaseLost);
  assert.ok(!said.includes("touch"));
  assert.deepEqual(await towpath.jobs.logs(id), []);
});

test("a lease says by hand what a job can", async () => {
  const topic = newTopic();
  const { id } = await towpath.jobs.enqueue(topic, 1);
  const [lease] = await towpath.jobs.reserve([topic]);
  assert.ok(lease);

  const events = [{ payload: { n: 1 }, type: "n" }];
  await lease.say({ progress: 0.5, message: "half", lines: ["a", "b"], events });
  await lease.say({ said: 0, logged: 0, lines: ["a", "b"], events }); // as after a lost answer
  await lease.say({ lines: ["c"] });
  await lease.complete();

  const lines = await towpath.jobs.logs(id);
  assert.deepEqual(
    lines.map(({ epoch, text }) => [epoch, text]),
    [
      [1, "a"],
      [1, "b"],
      [1, "c"],
    ],
  );
  const stream = await towpath.events.read(`job:${id}`);
  assert.deepEqual(
    stream.events.map(({ type, payload }) => [type, payload]),
    [["n", { n: 1 }]],
  );
  assert.equal(stream.ended, "completed");
  assert.equal((await towpath.jobs.get(id)).progressMessage, "half");
  await assert.rejects(lease.say({ progress: 1 }), LeaseLost);
});

test("EC-2: a job over its time limit is stopped and has failed", async (t) => {
  const topic = newTopic();
  const { id } = await towpath.jobs.enqueue(topic, 1, { timeout: 0.2, maxRetries: 0 });
  const stopped = gate<unknown>();
  const { open, opened } = gate();
  const said: string[] = [];
  const handler: Handler = async (_, { signal }) => {
    signal.addEventListener("abort", () => stopped.open(signal.reason));
    await opened; // it does not heed its signal
  };
  const { worker } = work(t, topic, handler, {
    fetch: (address, request) => {
      said.push(String(address).split("/").at(-1) ?? "");
      return fetch(address, request);
    },
  });

  const reason = await stopped.opened;
  assert.ok(reason instanceof TowpathError && reason.code === "time_limit_exceeded");
  assert.match((await becomes(id, "failed")).lastError ?? "", /longer than 0\.2 s/);
  open();
  await worker.stop();
  assert.deepEqual(
    said.filter((word) => !["reserve", "touch"].includes(word)),
    ["fail"],
  );
});

test("a stopping worker takes nothing new, and finishes what runs", async (t) => {
  const topic = newTopic();
  const { id } = await towpath.jobs.enqueue(topic, 1);
  const { open, opened } = gate();
  const begun = gate();
  const handler = async () => {
    begun.open();
    await opened;
    return "finished";
  };
  const { worker } = work(t, topic, handler, { concurrency: 1 });
  await begun.opened;

  const stopped = worker.stop();
  const later = await towpath.jobs.enqueue(topic, 2);
  open();
  await stopped;

  assert.equal((await towpath.jobs.get(id)).result, "finished");
  assert.equal(await status(later.id), "pending");
  assert.equal(worker.stop(), worker.stop());
});

test("what does not finish within the grace period is released, uncounted", async (t) => {
  const topic = newTopic();
  const { id } = await towpath.jobs.enqueue(topic, 1);
  const begun = gate<AbortSignal>();
  const handler: Handler = async (_, { signal }) => {
    begun.open(signal);
    await new Promise(() => {});
  };
  const { worker } = work(t, topic, handler, { concurrency: 1 });
  const signal = await begun.opened;

  await worker.stop({ grace: 0 });

  const job = await towpath.jobs.get(id);
  assert.equal(job.state, "ready");
  assert.equal(job.retries, 0);
  assert.ok(signal.aborted);
});

test("`await using` stops a worker at the end of its block", async () => {
  const topic = newTopic();
  const { id } = await towpath.jobs.enqueue(topic, 1);
  {
    await using _worker = towpath.worker(topic, () => "done");
    await becomes(id, "completed");
  }
  const later = await towpath.jobs.enqueue(topic, 2);
  assert.deepEqual((await towpath.jobs.reserve([topic]))[0]?.job.id, later.id);
});

test("a reservation whose answer is lost as the worker stops is given back at once", async (t) => {
  const topic = newTopic();
  const answered = gate();
  const { worker } = work(t, topic, () => assert.fail("it must not run"), {
    fetch: async (address, request) => {
      const asked = JSON.parse(String(request?.body));
      if (!String(address).endsWith("/reserve") || !asked.timeout) return fetch(address, request);
      await fetch(address, { ...request, signal: null });
      answered.open();
      return new Promise((_, reject) => {
        request?.signal?.addEventListener("abort", () => reject(new Error("lost")));
      });
    },
  });
  const { id } = await towpath.jobs.enqueue(topic, 1, { ttr: 3600 });
  await answered.opened;
  assert.equal(await status(id), "processing");

  await worker.stop();

  assert.equal(await status(id), "pending");
});

test("an outcome is told until the server has heard it", async (t) => {
  const topic = newTopic();
  const { id } = await towpath.jobs.enqueue(topic, 1);
  let refused = 0;
  const { errors } = work(t, topic, () => "done", {
    fetch: async (address, request) => {
      if (String(address).endsWith("/complete") && refused++ < 6) {
        return new Response(null, { status: 503, headers: { "Retry-After": "0" } });
      }
      return fetch(address, request);
    },
  });

  assert.equal((await becomes(id, "completed")).epoch, 1);
  assert.equal(errors.length, 1); // after the fourth try
});

test("an outcome that is refused at last fails the job", async (t) => {
  const topic = newTopic();
  const { id } = await towpath.jobs.enqueue(topic, 1, { maxRetries: 0 });
  const answers = [500, 500, 400];
  work(t, topic, () => "done", {
    fetch: async (address, request) => {
      if (!String(address).endsWith("/complete")) return fetch(address, request);
      return Response.json({ code: "its_code" }, { status: answers.shift() ?? 200 });
    },
  });

  assert.match((await becomes(id, "failed")).lastError ?? "", /answered 400/);
});

test("a result that cannot be stored fails the job", async (t) => {
  const topic = newTopic();
  const { id } = await towpath.jobs.enqueue(topic, 1, { maxRetries: 0 });
  work(t, topic, () => 1n);

  assert.match((await becomes(id, "failed")).lastError ?? "", /BigInt/);
});

test("a worker goes on after an outage", async (t) => {
  const topic = newTopic();
  let away = true;
  const { errors } = work(t, topic, () => "done", {
    fetch: (address, request) =>
      away ? Promise.reject(new TypeError("fetch failed")) : fetch(address, request),
  });
  await eventually(async () => errors.length > 0);

  away = false;
  const { id } = await towpath.jobs.enqueue(topic, 1);
  await becomes(id, "completed");
});

test("a job that waits for distinct workers is run by each", async (t) => {
  const topic = newTopic();
  const { id } = await towpath.jobs.enqueue(topic, 1, { workers: 2 });
  const seen: string[] = [];
  work(t, topic, () => seen.push("one"), { name: `${topic}-1` });
  work(t, topic, () => seen.push("two"), { name: `${topic}-2` });

  await becomes(id, "completed");
  assert.deepEqual(seen.toSorted(), ["one", "two"]);
  assert.equal((await towpath.jobs.runs(id)).length, 2);
});
