/** What jobs say, as a loop reads it, on every line. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { type TestContext, test } from "node:test";

import { Forbidden, type Handler, NotFound, type Piece, type StreamOptions, Towpath } from "../../src/index.ts";
import { gate, lines, newTopic, newUser, superuser } from "./here.ts";

const towpath = await superuser();

function work(t: TestContext, topic: string, handler: Handler<any>): void {
  const worker = towpath.worker(topic, handler);
  t.after(() => worker.stop({ grace: 0 }));
}

/** Read a stream to its end: its pieces in short, and its text. */
async function all(client: Towpath, id: string, options: StreamOptions = {}) {
  const stream = client.jobs.stream(id, options);
  const seen: unknown[] = [];
  const pieces: Piece[] = [];
  for await (const piece of stream) {
    pieces.push(piece);
    if (piece.kind === "event") seen.push([piece.type, piece.payload]);
    if (piece.kind === "try") seen.push(`after ${piece.after}`);
    if (piece.kind === "end") seen.push(piece.ended);
  }
  return { seen, pieces, text: stream.text };
}

for (const [line, client] of Object.entries(await lines())) {
  test(`by ${line}, a loop reads what a job says while it runs`, async (t) => {
    const topic = newTopic();
    const { id } = await towpath.jobs.enqueue(topic);
    const stream = client.jobs.stream<{ tokens: number }>(id);
    const heard = gate();
    work(t, topic, async (_, { stream, publish }) => {
      await stream("It is ");
      await heard.opened; // so it is read before the job goes on
      await stream("fine. 😀");
      await publish({ tokens: 3 }, "usage");
    });

    const seen: unknown[] = [];
    for await (const piece of stream) {
      if (piece.kind === "text") heard.open();
      if (piece.kind === "event") seen.push([piece.type, piece.payload.tokens]);
      if (piece.kind === "end") seen.push(piece.ended);
    }
    assert.deepEqual([stream.text, seen], ["It is fine. 😀", [["usage", 3], "completed"]]);
  });

  test(`by ${line}, a try that failed is dropped, and the next one is told once`, async (t) => {
    const topic = newTopic();
    const { id } = await towpath.jobs.enqueue(topic, null, { maxRetries: 3, backoff: 0.1 });
    let tries = 0;
    work(t, topic, async (_, { stream }) => {
      await stream(`try ${++tries}`);
      if (tries < 3) throw new Error("not yet");
    });

    const { seen, text } = await all(client, id);
    assert.deepEqual([seen, text], [["after failure", "after failure", "completed"], "try 3"]);
  });

  test(`by ${line}, a job that says nothing has an end`, async (t) => {
    const topic = newTopic();
    const { id } = await towpath.jobs.enqueue(topic);
    const reading = all(client, id);
    work(t, topic, () => undefined);

    assert.deepEqual((await reading).seen, ["completed"]);
  });

  test(`by ${line}, leaving does not stop the job, and cancelling does`, async (t) => {
    const topic = newTopic();
    const { id } = await towpath.jobs.enqueue(topic);
    work(t, topic, async (_, { stream, signal }) => {
      while (!signal.aborted) {
        await stream("more ");
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      signal.throwIfAborted();
    });
    for await (const { kind } of client.jobs.stream(id)) if (kind === "text") break;

    const stream = client.jobs.stream(id);
    let last: Piece | undefined;
    for await (const piece of stream) {
      if (!last) await client.jobs.cancel(id);
      last = piece;
    }
    assert.ok(last?.kind === "end" && last.ended === "cancelled", JSON.stringify(last));
    assert.match(stream.text, /^(more )+$/);
  });

  test(`by ${line}, a reader goes on from a cursor, also into the stream of a requeued job`, async (t) => {
    const topic = newTopic();
    const { id } = await towpath.jobs.enqueue(topic, null, { maxRetries: 0 });
    let runs = 0;
    work(t, topic, async (_, { stream, publish }) => {
      runs += 1;
      await stream(`run ${runs} `);
      await publish(runs, "run");
      await stream("more");
      if (runs === 1) throw new Error("once");
    });
    const first = await all(client, id);
    assert.deepEqual([first.seen, first.text], [[["run", 1], "failed"], "run 1 more"]);
    const from = first.pieces.find(({ kind }) => kind === "event")!.cursor;
    const rest = await all(client, id, { from });
    assert.deepEqual([rest.seen, rest.text], [["failed"], "more"]);

    await towpath.jobs.requeue(id);
    const again = await all(client, id, { from });
    assert.deepEqual(again.seen, ["after reset", ["run", 2], "completed"]);
    assert.equal(again.text, "run 2 more");
  });

  test(`by ${line}, a job that is deleted ends its stream`, async () => {
    const { id } = await towpath.jobs.enqueue(newTopic());
    const begun = gate();
    const cursors = { getItem: () => null, setItem: () => begun.open() };
    const reading = all(client, id, { remember: "it", cursors });
    await begun.opened;
    await towpath.jobs.delete(id);

    assert.deepEqual((await reading).seen, ["deleted"]);
  });

  test(`by ${line}, the stream of a job is for those who may read it`, async () => {
    const unknown = "01998000-0000-7000-8000-000000000000";
    await assert.rejects(all(client, unknown), NotFound);
    const { id } = await towpath.jobs.enqueue(newTopic());
    const { token } = await newUser();
    const stranger = (await lines(token))[line]!;
    await assert.rejects(all(stranger, id), (error) => {
      return error instanceof Forbidden || error instanceof NotFound;
    });
  });
}

test("a worker that is killed shows as a try, and the text comes whole, on every line", async (t) => {
  const topic = newTopic();
  const payload = Array.from({ length: 60 }, (_, at) => `word-${at} `);
  const { id } = await towpath.jobs.enqueue(topic, payload, { ttr: 2 });
  const start = () => {
    const speaker = spawn(process.execPath, [join(import.meta.dirname, "speaker.ts"), topic]);
    t.after(() => speaker.kill("SIGKILL"));
    return speaker;
  };
  const readings = Object.values(await lines()).map((client) => all(client, id));
  const first = start();
  for await (const piece of towpath.jobs.stream(id)) {
    if (piece.kind === "text" && piece.text.includes("word-5 ")) break;
  }
  first.kill("SIGKILL");
  await once(first, "exit");
  start();

  for (const { seen, text } of await Promise.all(readings)) {
    assert.equal(text, payload.join(""));
    assert.ok(seen.length === 2 && seen[1] === "completed", String(seen));
  }
});
