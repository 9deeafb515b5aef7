/** A worker whose server, or whose line to it, misbehaves in ways that a live one rarely does. */

import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { setTimeout as passed } from "node:timers/promises";

import { type Handler, Towpath, type WorkerOptions } from "../src/index.ts";

interface Asked {
  word: string;
  body: any;
}
type Answering = (asked: Asked) => Response | undefined | Promise<Response | undefined>;

const JOB = { id: "01998000-0000-7000-8000-000000000000", encoding: "json", ttr: 60, timeout: 3600 };
const refusal = (status: number, headers: Record<string, string> = {}) =>
  Response.json({ code: "refused", message: "a test" }, { status, headers });

/** Have a worker run one job; what is not answered hangs until it is given up. */
function work(
  t: TestContext,
  handler: Handler,
  answer: Answering,
  { ttr, ...options }: WorkerOptions & { ttr?: number } = {},
) {
  const asked: Asked[] = [];
  let token: number | undefined; // under which the job is leased
  let heard = false;
  const reserve = (said: number) => {
    token ??= said;
    if (heard || said !== token) return undefined;
    heard = true;
    return Response.json({ leases: [{ job: { ...JOB, ttr: ttr ?? 60 }, epoch: 1, until: null }] });
  };
  const towpath = new Towpath("http://localhost", {
    fetch: async (address, request) => {
      const word = String(address).split("/").pop() ?? "";
      const body = JSON.parse(String(request?.body));
      asked.push({ word, body });
      if (word === "reserve") token ??= body.token;
      if (word === "reserve" && !body.timeout) return Response.json({ leases: [] }); // it ends
      const given = await answer({ word, body });
      const answered = given ?? (word === "reserve" ? reserve(body.token) : undefined);
      if (answered) return answered;
      return new Promise((_, reject) => {
        request?.signal?.addEventListener("abort", () => reject(new Error("given up")));
      });
    },
  });
  const worker = towpath.worker("t", handler, { onError: () => {}, ...options });
  t.after(() => worker.stop({ grace: 0 }));
  return { words: () => asked.map(({ word }) => word).filter((word) => word !== "reserve"), asked };
}

async function eventually(condition: () => boolean): Promise<void> {
  for (let tried = 0; !condition(); tried += 1) {
    assert.ok(tried < 1000, "it did not happen");
    await passed(10);
  }
}

for (const status of [401, 403]) {
  test(`a job that is done has not failed because its word is answered ${status}`, async (t) => {
    let refused = 0;
    const { words } = work(
      t,
      () => "precious",
      ({ word }) => {
        if (word === "complete") return refused++ ? Response.json({}) : refusal(status);
        return word === "reserve" ? undefined : Response.json({});
      },
    );

    await eventually(() => words().length === 2);
    assert.deepEqual(words(), ["complete", "complete"]);
  });
}

test("a touch whose line is dead without a word leaves time for another", async (t) => {
  const touched = { until: null, cancelRequested: false };
  let dead = true;
  let lost = false;
  const { words } = work(
    t,
    (_, { signal }) => new Promise(() => signal.addEventListener("abort", () => (lost = true))),
    ({ word }) => {
      if (word !== "touch") return word === "reserve" ? undefined : Response.json({});
      if (!dead) return Response.json(touched);
      dead = false;
      return undefined;
    },
    { ttr: 1.5 },
  );

  await eventually(() => words().length >= 4);
  assert.equal(lost, false);
});

test("a job is told that its lease is over when it is, not when a touch has failed", async (t) => {
  let took = Infinity;
  work(
    t,
    (_, { signal }) => {
      const begun = performance.now();
      signal.addEventListener("abort", () => (took = performance.now() - begun));
      return new Promise(() => {});
    },
    ({ word }) => (["reserve", "touch"].includes(word) ? undefined : Response.json({})),
    { ttr: 0.5 },
  );

  await eventually(() => took < Infinity);
  assert.ok(took >= 450, `${took}`);
});

test("a reservation whose answer is lost again and again is asked for until it is heard", async (t) => {
  let lost = 0;
  const { words } = work(
    t,
    () => "done",
    ({ word }) => {
      if (word === "reserve" && lost++ < 4) throw new TypeError("fetch failed");
      return word === "reserve" ? undefined : Response.json({});
    },
  );

  await eventually(() => words().length === 1);
  assert.deepEqual(words(), ["complete"]);
});

test("a worker goes on though onError throws", async (t) => {
  t.mock.method(console, "error", () => {});
  let refused = 0;
  const { words } = work(
    t,
    () => "done",
    ({ word }) => {
      if (word === "reserve") return refused++ < 1 ? refusal(500) : undefined;
      return Response.json({});
    },
    {
      onError: () => {
        throw new Error("the log is full");
      },
    },
  );

  await eventually(() => words().length === 1);
});

test("a server that wants to be asked again in a month is not asked a thousand times", async (t) => {
  const { asked } = work(
    t,
    () => "done",
    () => refusal(503, { "Retry-After": "3000000" }),
  );

  await passed(200);
  assert.equal(asked.length, 1);
});
