import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import { Forbidden, NotFound, type Piece, type StreamOptions, Towpath } from "../src/index.ts";
import { type Session, cursor, event, serveChannel } from "./channels.ts";
import { until } from "./subscribing.ts";

const START = "0000000000000000_0000000000000000";

type Word = ReturnType<typeof event>;

const text = (n: number, payload: unknown): Word => ({ ...event(n, payload), type: "text" });

const tried = (n: number, since: string, after = "crash"): Word => ({
  ...event(n, { towpath: { try: n, since, after } }),
  type: "towpath.try",
});

const words = (from: number, ...items: Word[]) => ({
  events: { channel: "job:j", from: cursor(from), to: cursor(from + items.length), items },
});

const ended = (n: number, how = "completed") => ({
  closed: { channel: "job:j", cursor: cursor(n), ended: how },
});

const reset = { channel: "job:j", reason: "channel", oldest: START, head: START };

/** Send frames to every subscriber. */
const says = (...frames: object[]): Session => async (peer) => {
  await peer.begin();
  peer.send(...frames);
};

function streamed(url: string, options: StreamOptions = {}) {
  return new Towpath(url, { token: "key" }).jobs.stream("j", options);
}

/** Read a stream to its end: each piece in short, and the whole text behind it. */
async function all(t: TestContext, sessions: Session[]) {
  const { url, peers } = await serveChannel(t, { sessions });
  const stream = streamed(url);
  const seen: unknown[] = [];
  for await (const piece of stream) seen.push([short(piece), stream.text]);
  return { seen, peers };
}

function short(piece: Piece): unknown {
  switch (piece.kind) {
    case "text":
      return piece.text;
    case "event":
      return [piece.type, piece.payload];
    case "try":
      return [piece.try, piece.after];
    case "end":
      return piece.ended;
  }
}

test("a loop gets the text, the events and the end of a job", async (t) => {
  const frames = [words(0, text(1, "It "), text(2, "is ")), words(2, event(3, { tokens: 3 })), words(3, text(4, "fine."))];
  const { seen } = await all(t, [says(...frames, ended(4, "failed"))]);

  assert.deepEqual(seen, [
    ["It ", "It "],
    ["is ", "It is "],
    [["odd", { tokens: 3 }], "It is "],
    ["fine.", "It is fine."],
    ["failed", "It is fine."],
  ]);
});

test("pieces carry their cursors, also the end", async (t) => {
  const { url } = await serveChannel(t, { sessions: [says(words(0, text(1, "a"), event(2)), ended(2))] });
  const pieces: Piece[] = [];
  for await (const piece of streamed(url)) pieces.push(piece);

  assert.deepEqual(pieces.map((piece) => piece.cursor), [1, 2, 2].map(cursor));
  assert.deepEqual(pieces[0], { kind: "text", text: "a", cursor: cursor(1), at: event(1).at });
  assert.deepEqual(pieces[1], { ...event(2), kind: "event" });
});

test("text that is no text is an event", async (t) => {
  const { seen } = await all(t, [says(words(0, text(1, { no: "text" })), ended(1))]);

  assert.deepEqual(seen, [[["text", { no: "text" }], ""], ["completed", ""]]);
});

test("a new try cuts the text back to where it says", async (t) => {
  const frames = words(
    0,
    ...[text(1, "kept "), text(2, "lost "), tried(3, cursor(1)), text(4, "new "), tried(5, START)],
    text(6, "again"),
  );
  const { seen } = await all(t, [says(frames, ended(6))]);

  assert.deepEqual(seen, [
    ["kept ", "kept "],
    ["lost ", "kept lost "],
    [[3, "crash"], "kept "],
    ["new ", "kept new "],
    [[5, "crash"], ""],
    ["again", "again"],
    ["completed", "again"],
  ]);
});

test("a line that is cut between pieces loses and doubles no text", async (t) => {
  const cut: Session = async (peer) => {
    await peer.begin();
    peer.send(words(0, text(1, "a"), text(2, "b")));
    peer.close(4000);
  };
  const again = says(words(1, text(2, "b"), text(3, "c")), ended(3));
  const { seen, peers } = await all(t, [cut, again]);

  assert.deepEqual(seen.at(-1), ["completed", "abc"]);
  assert.deepEqual([seen.length, peers.length], [4, 2]);
});

test("a job that was requeued shows as a new try without what was said before", async (t) => {
  const requeued: Session = async (peer) => {
    await peer.answer("hello");
    assert.equal((await peer.answer("subscribe", { ok: { cursor: START } })).from, START);
    peer.send(words(0, text(1, "new "), text(2, "words")), ended(2));
  };
  const { seen } = await all(t, [says(words(0, text(1, "old")), { reset }), requeued]);

  assert.deepEqual(seen, [
    ["old", "old"],
    [[null, "reset"], ""],
    ["new ", "new "],
    ["words", "new words"],
    ["completed", "new words"],
  ]);
});

test("a job that was deleted while the line was cut has ended so", async (t) => {
  const cut: Session = async (peer) => {
    await says(words(0, text(1, "a")))(peer);
    peer.close(4000);
  };
  const { seen } = await all(t, [cut, refuses("not_found")]);

  assert.deepEqual(seen, [["a", "a"], ["deleted", "a"]]);
});

const refuses = (code: string): Session => async (peer) => {
  await peer.answer("hello");
  await peer.answer("subscribe", { error: { code, message: "no", details: {} } });
};

for (const [code, kind] of [["not_found", NotFound], ["forbidden", Forbidden]] as const) {
  test(`a stream that may not be read throws: ${code}`, async (t) => {
    await assert.rejects(all(t, [refuses(code)]), kind);
  });
}

/** Keeps a cursor for as long as a test runs. */
function memory() {
  const kept = new Map<string, string>();
  const getItem = (name: string) => kept.get(name) ?? null;
  const setItem = (name: string, value: string) => void kept.set(name, value);
  return { kept, options: { remember: "mine", cursors: { getItem, setItem } } };
}

test("a loop that is left at the try of a requeued job gets it again", async (t) => {
  const { kept, options } = memory();
  const { url } = await serveChannel(t, { sessions: [says(words(0, text(1, "old")), { reset })] });
  for await (const { kind } of streamed(url, options)) if (kind === "try") break;
  await pause(50);

  assert.deepEqual([...kept.values()], [cursor(1)]);
});

test("leaving the loop unsubscribes, and the piece in hand comes again", async (t) => {
  const { kept, options } = memory();
  let left = false;
  const session: Session = async (peer) => {
    await peer.begin();
    peer.send(words(0, text(1, "a"), text(2, "b"), text(3, "c")));
    left = (await peer.answer("unsubscribe")) !== undefined || !peer.isOpen;
  };
  const again = says(words(1, text(2, "b"), text(3, "c")), ended(3));
  const { url, peers } = await serveChannel(t, { sessions: [session, again] });
  for await (const piece of streamed(url, options)) if (piece.cursor === cursor(2)) break;
  await until(() => left && !peers[0]!.isOpen);

  assert.deepEqual([...kept.values()], [cursor(1)]);
  const rest: unknown[] = [];
  for await (const piece of streamed(url, options)) rest.push(short(piece));
  assert.deepEqual(rest, ["b", "c", "completed"]);
});

test("a loop that throws unsubscribes", async (t) => {
  const { url, peers } = await serveChannel(t, { sessions: [says(words(0, text(1, "a")))] });
  const read = async () => {
    for await (const piece of streamed(url)) throw new TypeError(piece.kind);
  };

  await assert.rejects(read, TypeError);
  await until(() => !peers[0]!.isOpen);
});

test("a signal ends the loop, with a piece in hand and without", async (t) => {
  const { url, peers } = await serveChannel(t, { sessions: [says(words(0, text(1, "a")))] });
  const inHand = new AbortController();
  const seen: unknown[] = [];
  for await (const piece of streamed(url, { signal: inHand.signal })) {
    seen.push(short(piece));
    inHand.abort();
  }
  const waiting = new AbortController();
  for await (const piece of streamed(url, { signal: waiting.signal })) {
    seen.push(short(piece));
    setTimeout(() => waiting.abort(), 20);
  }
  for await (const _ of streamed(url, { signal: waiting.signal })) assert.fail("it is over");

  assert.deepEqual(seen, ["a", "a"]);
  await until(() => peers.every((peer) => !peer.isOpen));
});

test("a loop that is slow holds the next piece back", async (t) => {
  const { url } = await serveChannel(t, { sessions: [says(words(0, text(1, "a"), text(2, "b")), ended(2))] });
  const stream = streamed(url);
  const pieces = stream[Symbol.asyncIterator]();
  await pieces.next();
  await pause(50);

  assert.equal(stream.text, "a");
  await pieces.next();
  assert.equal(stream.text, "ab");
  assert.deepEqual((await pieces.next()).value, { kind: "end", ended: "completed", cursor: cursor(2) });
  assert.deepEqual(await pieces.next(), { value: undefined, done: true });
});
