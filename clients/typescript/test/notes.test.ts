import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { type TestContext, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import {
  type Context,
  type Handler,
  Invalid,
  Lease,
  LeaseLost,
  type Said,
  Towpath,
  TowpathError,
  type TowpathOptions,
  type Word,
} from "../src/index.ts";
import { Transport } from "../src/transport.ts";
import { type Answer, type Received, cutTheLine, hang, json, refusal, serve } from "./server.ts";

const ID = "01998000-0000-7000-8000-000000000000";
const JOB = { id: ID, encoding: "json", payload: null, ttr: 300, timeout: 3600 };
const LEASE = { job: JOB, epoch: 7, until: null };
const TOUCHED = { epoch: 7, until: null, cancelRequested: false };
const busy = refusal(503, "unavailable", { "Retry-After": "0" });

/** What a server has kept, by number: the same number again is the same thing. */
class Kept {
  readonly #lines = new Map<number, string>();
  readonly words: Word[] = [];
  progress: unknown[] = [];

  keep({ said = 0, logged = 0, lines = [], events = [], progress, message }: Said): void {
    for (const line of lines) this.#lines.set(logged++, line);
    assert.ok(said <= this.words.length, `${said} said, ${this.words.length} kept`);
    this.words.push(...events.slice(this.words.length - said));
    if (progress !== undefined) this.progress = message ? [progress, message] : [progress];
  }

  get lines(): string[] {
    return inOrder(this.#lines);
  }

  get events(): unknown[] {
    return this.words.map(({ payload }) => payload);
  }

  get text(): string {
    return this.words.map(({ type, payload }) => (type === "text" ? payload : `<${type}>`)).join("");
  }
}

function inOrder<T>(numbered: Map<number, T>): T[] {
  return [...numbered].toSorted(([a], [b]) => a - b).map(([, value]) => value);
}

/** Answers notes with this, once they are kept. */
const kept =
  (answer: Answer): Trouble =>
  (response, request, keep) => {
    keep();
    return answer(response, request);
  };

type Trouble = (...given: [...Parameters<Answer>, keep: () => void]) => unknown;

const fine: Trouble = kept(json(204));

interface Desk extends TowpathOptions {
  /** What becomes of the first notes, the second ones …; the last of these goes on for ever. */
  notes?: Trouble[];
  /** Answers all other words of the lease. */
  others?: Answer;
}

/** Run one job at a little server; it is over when its outcome has been told. */
async function run(t: TestContext, handler: Handler, desk: Desk = {}) {
  const { notes = [fine], others = json(200, TOUCHED), ...options } = desk;
  const server = new Kept();
  const words: string[] = [];
  const errors: unknown[] = [];
  const calls: Received[] = [];
  let leases = [LEASE];
  let told!: () => void;
  const outcome = new Promise<void>((resolve) => (told = resolve));
  const { url } = await serve(t, async (response, request) => {
    const word = request.url.split("/").at(-1) ?? "";
    if (word === "reserve") {
      if (!leases.length) await once(response, "close"); // a long poll
      json(200, { leases })(response, request);
      leases = [];
      return;
    }
    words.push(word);
    if (word === "notes") {
      calls.push(request);
      const trouble = notes[Math.min(calls.length, notes.length) - 1] ?? fine;
      await trouble(response, request, () => server.keep(request.body));
      return;
    }
    await others(response, request);
    if (word !== "touch" && response.statusCode < 500 && response.writableEnded) told();
  });
  const towpath = new Towpath(url, { retries: 0, ...options });
  const worker = towpath.worker("mail", handler, {
    concurrency: 1,
    onError: (error) => errors.push(error),
  });
  t.after(() => worker.stop({ grace: 0 }));
  return { worker, outcome, server, words, errors, calls };
}

test("what a job says is sent together, and before its outcome", async (t) => {
  const { outcome, server, words, errors } = await run(t, (_, { progress, log, publish }) => {
    progress(0.25);
    log("first");
    log("second");
    publish({ token: 1 });
    publish(undefined);
    progress(0.5, "half");
  });

  await outcome;
  assert.deepEqual(words, ["notes", "complete"]);
  assert.deepEqual(server.lines, ["first", "second"]);
  assert.deepEqual(server.events, [{ token: 1 }, null]);
  assert.deepEqual(server.progress, [0.5, "half"]);
  assert.deepEqual(errors, []);
});

test("a job that says nothing sends nothing", async (t) => {
  const { outcome, words } = await run(t, () => undefined);

  await outcome;
  assert.deepEqual(words, ["complete"]);
});

test("what is said while a job runs is sent about ten times a second", async (t) => {
  const begun = performance.now();
  const { outcome, server, calls } = await run(t, async (_, { log, progress }) => {
    for (let n = 0; n < 100; n += 1) {
      log(`${n}`);
      progress(n / 100);
      await pause(5);
    }
  });

  await outcome;
  const most = (performance.now() - begun) / 100 + 1;
  assert.ok(calls.length > 1 && calls.length <= most, `${calls.length} of ${most}`);
  assert.deepEqual(server.lines, Array.from({ length: 100 }, (_, n) => `${n}`));
  assert.deepEqual(server.progress, [0.99]);
});

for (const [what, trouble] of Object.entries<Trouble>({
  "is lost": cutTheLine,
  "arrives, and the answer is lost": kept(cutTheLine),
  "arrives, and hangs": kept(hang),
  "is answered 503": busy,
  "is answered 503 all the same": kept(busy),
  "is answered 429": refusal(429, "limit_reached", { "Retry-After": "0" }),
  "is answered 500": refusal(500, "internal"),
})) {
  for (const retries of [0, 3]) {
    const options = { retries, timeout: 300 };

    test(`nothing is lost or doubled if a call ${what}, with ${retries} retries`, async (t) => {
      const { outcome, server, words } = await run(
        t,
        async (_, { log, publish, progress }) => {
          for (let n = 0; n < 30; n += 1) {
            log(`${n}`);
            publish(n);
            progress(n / 30);
            await pause(20);
          }
        },
        { notes: [trouble, trouble, fine, trouble, fine], ...options },
      );

      await outcome;
      const all = Array.from({ length: 30 }, (_, n) => n);
      assert.deepEqual(server.lines, all.map(String));
      assert.deepEqual(server.events, all);
      assert.deepEqual(server.progress, [29 / 30]);
      assert.equal(words.at(-1), "complete");
    });

    test(`the outcome is told if every call ${what}, with ${retries} retries`, async (t) => {
      const handler: Handler = (_, { log }) => log("in vain");
      const { outcome, words, errors } = await run(t, handler, { notes: [trouble], ...options });

      await outcome;
      assert.equal(words.at(-1), "complete");
      assert.ok(errors.length > 0);
    });
  }
}

test("the outcome does not wait for an hour because notes should", async (t) => {
  const later = refusal(429, "limit_reached", { "Retry-After": "3600" });
  const { outcome, words } = await run(t, (_, { log }) => log("later"), { notes: [later] });

  await outcome;
  assert.deepEqual(words, ["notes", "touch", "notes", "complete"]);
});

test("what was said last waits with the outcome while the server is away", async (t) => {
  let away = 8;
  const outage =
    (there: Trouble): Trouble =>
    (response, request, keep) =>
      away-- > 0 ? cutTheLine(response, request) : there(response, request, keep);
  const { outcome, server, words } = await run(t, (_, { log }) => log("last"), {
    notes: [outage(fine)],
    others: (response, request) => outage(json(200, TOUCHED))(response, request, () => {}),
  });

  await outcome;
  assert.deepEqual(server.lines, ["last"]);
  assert.equal(words.indexOf("complete"), words.length - 1); // it was not even tried before
});

test("what the server refuses is reported and dropped, and the next is sent", async (t) => {
  const arrived = new EventEmitter();
  const picky: Trouble = (response, request, keep) => {
    arrived.emit("request");
    const takes = !request.body.lines.includes("refused");
    return (takes ? fine : refusal(413, "payload_too_large"))(response, request, keep);
  };
  const { outcome, server, words, errors } = await run(
    t,
    async (_, { log }) => {
      log("refused");
      await once(arrived, "request");
      log("fine");
    },
    { notes: [picky] },
  );

  await outcome;
  assert.deepEqual(server.lines, ["fine"]);
  assert.equal(words.at(-1), "complete");
  assert.deepEqual(
    errors.map((error) => error instanceof Invalid && error.code),
    ["payload_too_large"],
  );
});

test("a lost lease stops the job, as it does by a touch", async (t) => {
  let reason: unknown;
  const handler: Handler = async (_, { signal, log }) => {
    log("too late");
    await once(signal, "abort");
    reason = signal.reason;
    for (let n = 0; n < 10; n += 1) log("nobody hears this, and nothing is thrown");
    await pause(250);
  };
  const lost = refusal(409, "lease_lost");
  const { outcome, words, errors } = await run(t, handler, { notes: [lost], others: lost });

  await outcome;
  assert.ok(reason instanceof LeaseLost);
  assert.deepEqual(words, ["notes", "complete"]);
  assert.deepEqual(errors, []);
});

test("what was said is sent before a job is given back by a worker that stops", async (t) => {
  const begun = new EventEmitter();
  const running = once(begun, "run");
  const handler: Handler = async (_, context) => {
    context.log("last words");
    begun.emit("run", context);
    await new Promise(() => {});
  };
  const { worker, server, words } = await run(t, handler);
  const [context] = (await running) as [Context];

  await worker.stop({ grace: 0 });
  context.log("too late");
  await pause(200);

  assert.deepEqual(words, ["notes", "release"]);
  assert.deepEqual(server.lines, ["last words"]);
});

test("a worker that stops does not wait for a server that takes no notes", async (t) => {
  const begun = new EventEmitter();
  const running = once(begun, "run");
  const handler: Handler = async (_, { log }) => {
    log("in vain");
    begun.emit("run");
    await new Promise(() => {});
  };
  const { worker, words } = await run(t, handler, { notes: [cutTheLine] });
  await running;

  await worker.stop({ grace: 0 });

  assert.deepEqual(words, ["notes", "release"]);
});

test("of very many lines the oldest are dropped, of events none; no call is too large", async (t) => {
  const handler: Handler = (_, { log, publish }) => {
    for (let n = 0; n < 3_000; n += 1) log(`${n}`);
    for (let n = 0; n < 12_000; n += 1) void publish(n);
  };
  const { outcome, server, calls } = await run(t, handler);

  await outcome;
  assert.deepEqual(server.lines, Array.from({ length: 1_000 }, (_, n) => `${n + 2_000}`));
  assert.deepEqual(server.events, Array.from({ length: 12_000 }, (_, n) => n));
  assert.ok(calls.every(({ body }) => body.lines.length <= 1_000 && body.events.length <= 1_000));
  assert.equal(calls.length, 12);
});

test("adjacent text is joined, also where a piece ends within a character", async (t) => {
  const { outcome, server } = await run(t, async (_, { publish, stream }) => {
    for (const piece of ["He", "llo ", "\ud83d"]) void stream(piece);
    await pause(100); // the half is not sent alone
    void stream("\ude00!");
    void publish(1, "call");
    for (const piece of ["bye", "\ud83d"]) void stream(piece);
  });

  await outcome;
  assert.equal(server.text, "Hello 😀!<call>bye?");
  assert.ok(server.words.length <= 5, `${server.words.length}`);
});

test("text that is larger than an event may be is sent in pieces", async (t) => {
  const text = "x" + "😀".repeat(600_000);
  const { outcome, server } = await run(t, async (_, { stream }) => stream(text));

  await outcome;
  assert.equal(server.text, text);
  assert.ok(server.words.every(({ payload }) => String(payload).length <= 8_193));
});

test("where very much waits, publish waits for room and then throws", async (t) => {
  let isFull = false;
  const piece = "x".repeat(2 ** 18);
  const away = [cutTheLine, cutTheLine, fine];
  const { outcome, server } = await run(
    t,
    async (_, { publish, stream }) => {
      for (let n = 0; n < 4; n += 1) void publish(piece);
      await Promise.race([stream("waits"), pause(20).then(() => (isFull = true))]);
      assert.throws(() => {
        for (let n = 0; n < 40; n += 1) void publish(piece);
      }, { code: "stream_behind" });
      await publish("last");
    },
    { notes: away },
  );

  await outcome;
  assert.ok(isFull);
  assert.equal(server.events.at(4), "waits");
  assert.equal(server.events.at(-1), "last");
});

test("a cancel stops the job by the answer to what it says", async (t) => {
  let reason: unknown;
  const told = kept(json(200, { said: 1, cancelRequested: true }));
  const handler: Handler = async (_, { signal, publish }) => {
    void publish(1);
    await once(signal, "abort");
    reason = signal.reason;
  };
  const { outcome } = await run(t, handler, { notes: [told] });

  await outcome;
  assert.ok(reason instanceof TowpathError && reason.code === "job_cancelled");
});

test("events after some that the server refuses go on with the next number", async (t) => {
  const arrived = new EventEmitter();
  const picky: Trouble = (response, request, keep) => {
    arrived.emit("request");
    const takes = !request.body.events.some((word: Word) => word.payload === "refused");
    return (takes ? fine : refusal(413, "payload_too_large"))(response, request, keep);
  };
  const { outcome, server, errors } = await run(
    t,
    async (_, { publish }) => {
      void publish("refused");
      await once(arrived, "request");
      void publish("fine");
    },
    { notes: [picky] },
  );

  await outcome;
  assert.deepEqual(server.events, ["fine"]);
  assert.equal(errors.length, 1);
});

test("what is large goes in calls that the server takes", async (t) => {
  const event = (n: number) => `${n}`.repeat(300_000);
  const handler: Handler = (_, { log, publish }) => {
    for (let n = 0; n < 50; n += 1) log("é".repeat(20_000));
    for (let n = 0; n < 5; n += 1) publish(event(n));
  };
  const { outcome, server, calls } = await run(t, handler);

  await outcome;
  assert.deepEqual(server.lines, Array(16).fill("é".repeat(16_000)));
  assert.deepEqual(server.events, [0, 1, 2, 3, 4].map(event));
  const sizes = calls.map(({ body }) => Buffer.byteLength(JSON.stringify(body)));
  assert.ok(Math.max(...sizes) < 2 ** 20, `${sizes}`);
});

test("what is published is kept as it was then", async (t) => {
  const { outcome, server } = await run(t, (_, { publish }) => {
    const state = { step: 1 };
    publish(state);
    state.step = 2;
    publish(state);
  });

  await outcome;
  assert.deepEqual(server.events, [{ step: 1 }, { step: 2 }]);
});

test("what makes no sense is refused where it is said, and the rest is sent", async (t) => {
  const cycle: unknown[] = [];
  cycle.push(cycle);
  const { outcome, server, errors } = await run(t, (_, { progress, log, publish, stream }) => {
    for (const share of [-0.1, 1.1, Number.NaN, "half", Symbol("half"), undefined]) {
      assert.throws(() => progress(share as number), Invalid);
    }
    assert.throws(() => progress(0.5, 7 as never), Invalid);
    for (const line of [7, undefined, Symbol("line")]) {
      assert.throws(() => log(line as never), Invalid);
    }
    assert.throws(() => publish(1n), TypeError);
    assert.throws(() => publish(cycle), TypeError);
    assert.throws(() => publish("x".repeat(2 ** 20)), { code: "payload_too_large" });
    assert.throws(() => publish({ "\ud800": 1 }), { code: "invalid_payload" });
    assert.throws(() => publish("\\\udfff"), { code: "invalid_payload" });
    assert.throws(() => stream(7 as never), Invalid);
    publish("\\ud800 \\\\ud800 😀");
    log("half a pair \ud83d, a whole one 😀");
    progress(1, "\udc00");
  });

  await outcome;
  assert.deepEqual(errors, []);
  assert.deepEqual(server.events, ["\\ud800 \\\\ud800 😀"]);
  assert.deepEqual(server.lines, ["half a pair ?, a whole one 😀"]);
  assert.deepEqual(server.progress, [1, "?"]);
});

// ---------------------------------------------------------------- by hand

test("a lease counts what is said with it, and repeats it with the same count", async (t) => {
  const { url, received } = await serve(t, cutTheLine, json(204));
  const lease = new Lease(new Transport(url, () => ""), LEASE as never);

  await lease.say({ progress: 0.5, lines: ["a", "b"], events: [{ payload: 1 }] });
  await lease.say({ lines: ["c"], events: [{ payload: 2 }] });
  await lease.say({ said: 1, logged: 2, lines: ["c"], events: [{ payload: 2 }] });
  await lease.say({ progress: 1, message: "done" });

  assert.deepEqual([lease.said, lease.logged], [2, 3]);
  assert.equal(received[0]?.url, `/api/jobs/${ID}/notes`);
  assert.deepEqual(
    received.map(({ body }) => [body.epoch, body.said, body.logged, body.lines, body.progress]),
    [
      [7, 0, 0, ["a", "b"], 0.5],
      [7, 0, 0, ["a", "b"], 0.5],
      [7, 1, 2, ["c"], undefined],
      [7, 1, 2, ["c"], undefined],
      [7, 2, 3, undefined, 1],
    ],
  );
});

test("what a handler says by hand is counted with the rest", async (t) => {
  const { outcome, server } = await run(t, async (_, { lease, log }) => {
    log("a");
    await lease.say({ lines: ["by hand"] });
    log("b");
  });

  await outcome;
  assert.deepEqual(server.lines, ["by hand", "a", "b"]);
});

test("types say what may be said", () => {
  const wrong = (context: Context, lease: Lease) => [
    // @ts-expect-error -- a share is a number
    context.progress("half"),
    // @ts-expect-error -- a line is text
    context.log(7),
    // @ts-expect-error -- a stream takes text
    context.stream(7),
    // @ts-expect-error -- an event is an object with a payload
    lease.say({ events: [7] }),
    // @ts-expect-error -- lines are text
    lease.say({ lines: [7] }),
    // @ts-expect-error -- there is no such word
    lease.say({ share: 0.5 }),
  ];
  const right = ({ progress, log, publish, stream }: Context, lease: Lease) => [
    [0.1, 0.2].forEach((share) => progress(share)),
    ["a", "b"].forEach(log),
    [{ n: 1 }, null].map((payload) => publish(payload, "n")),
    ["a", "b"].map((text) => stream(text)),
    lease.say({ progress: 1, message: undefined, lines: ["a"], events: [{ payload: 1 }] }),
  ];

  assert.notEqual(wrong, right); // they are only looked at
});
