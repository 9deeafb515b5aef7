/** Durable consumers: what is acked, when, and by which reader. */

import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";

import { ConsumerFenced, CursorReset, Invalid, NotFound, Towpath } from "../src/index.ts";
import { type Peer, type Session, batch, closed, cursor, serveChannel } from "./channels.ts";
import { type Answer, type Received, json, refusal, serve } from "./server.ts";
import { type Asked, hasCode, subscribe, until, upTo } from "./subscribing.ts";

const consumer = "mailer";
const MAILER = "/api/channels/c/consumers/mailer";

/** The server's end of a consumer: its place, and the acks that it has answered. */
class Acks {
  readonly byFrame: string[] = [];
  readonly byRequest: unknown[] = [];
  attached = 0;

  /** Attach a peer at a number. */
  async attach(peer: Peer, at = 0): Promise<unknown> {
    await peer.answer("hello");
    const ok = { channel: "c", cursor: cursor(at), generation: 4 };
    return peer.answer("subscribe", { ok });
  }

  async frames(peer: Peer): Promise<void> {
    for (;;) {
      const asked = await peer.answer("ack", { ok: { cursor: cursor(9) } });
      if (!asked) return;
      this.byFrame.push(asked.cursor);
    }
  }

  /** Answers attaches and acks by requests. */
  readonly http: Answer = (response, request) => {
    if (request.url === MAILER) {
      this.attached += 1;
      return json(200, { cursor: cursor(0), generation: 4 })(response, request);
    }
    this.byRequest.push(request.body);
    return json(200, { cursor: request.body.cursor })(response, request);
  };
}

/** No second passes, so that nothing is acked in the middle of a batch. */
function standStill(t: TestContext): void {
  t.mock.method(performance, "now", () => 1_000);
}

async function consumed(t: TestContext, sessions: Session[], acks: Acks, asked: Asked = {}) {
  standStill(t);
  const server = await serveChannel(t, { sessions, http: acks.http });
  return { ...subscribe(t, server.url, { consumer, ...asked }), ...server };
}

test("a consumer attaches, and acks what is done at the end of each batch", async (t) => {
  const acks = new Acks();
  let asked: unknown;
  const session: Session = async (peer) => {
    asked = await acks.attach(peer);
    void acks.frames(peer);
    peer.send(batch(0, 2));
    await until(() => acks.byFrame.length === 1);
    peer.send(batch(2, 3), batch(3, 5));
  };
  const { seen, subscription } = await consumed(t, [session], acks, { from: "now" });

  await until(() => acks.byFrame.length === 3);
  assert.deepEqual(asked, { channel: "c", from: "now", consumer });
  assert.deepEqual(acks.byFrame, [2, 3, 5].map(cursor));
  assert.deepEqual([seen, subscription.cursor, acks.byRequest], [upTo(5), cursor(5), []]);
});

test("within a batch it acks once a second", async (t) => {
  const acks = new Acks();
  const session: Session = async (peer) => {
    await acks.attach(peer);
    void acks.frames(peer);
    peer.send(batch(0, 5));
  };
  let now = 1_000;
  const handler = () => {
    now += 600;
    t.mock.method(performance, "now", () => now);
  };
  await consumed(t, [session], acks, { handler });

  await until(() => acks.byFrame.length === 3);
  assert.deepEqual(acks.byFrame, [2, 4, 5].map(cursor));
});

test("a consumer begins at its last ack, whatever `from` says", async (t) => {
  const acks = new Acks();
  const session: Session = async (peer) => {
    await acks.attach(peer, 2);
    void acks.frames(peer);
    peer.send(batch(2, 5));
  };
  const { seen } = await consumed(t, [session], acks, { from: cursor(4) });

  await until(() => acks.byFrame.length === 1);
  assert.deepEqual(seen, [3, 4, 5]);
});

test("a handler that throws acks what was done before", async (t) => {
  const acks = new Acks();
  const session: Session = async (peer) => {
    await acks.attach(peer);
    void acks.frames(peer);
    peer.send(batch(0, 5));
  };
  const handler = ({ payload }: { payload: unknown }) => assert.notEqual(payload, 3);
  const { subscription } = await consumed(t, [session], acks, { handler });

  await assert.rejects(subscription.done, assert.AssertionError);
  assert.deepEqual(acks.byFrame, [cursor(2)]);
});

test("a subscription that is closed acks what was done, by a request", async (t) => {
  const acks = new Acks();
  const session: Session = async (peer) => {
    await acks.attach(peer);
    peer.send(batch(0, 5));
    await peer.answer("subscribe", { ok: { cursor: cursor(0) } }); // keeps the connection open
    await acks.frames(peer);
  };
  const { towpath, subscription } = await consumed(t, [session], acks, {
    handler: ({ payload }) => {
      if (payload !== 2) return;
      subscription.close();
      const other = towpath.events.subscribe("c", () => undefined);
      t.after(() => other.close());
    },
  });

  assert.equal(await subscription.done, null);
  assert.deepEqual(acks.byRequest, [{ cursor: cursor(2), generation: 4 }]);
  assert.deepEqual(acks.byFrame, []);
});

test("the last ack goes by a request, as the server is done with a channel that has ended", async (t) => {
  const acks = new Acks();
  const session: Session = async (peer) => {
    await acks.attach(peer);
    peer.send(batch(0, 5), closed(5));
    const error = { code: "invalid", message: "not subscribed to", details: {} };
    while (peer.isOpen) await peer.answer("ack", { error });
  };
  const { subscription } = await consumed(t, [session], acks);

  assert.equal(await subscription.done, "closed");
  assert.deepEqual(acks.byRequest, [{ cursor: cursor(5), generation: 4 }]);
});

test("a line that is cut before the answer to an ack does not repeat what is done", async (t) => {
  const acks = new Acks();
  const lose: Answer = (response) => response.socket?.destroy();
  const cut: Session = async (peer) => {
    await acks.attach(peer);
    peer.send(batch(0, 2));
    await until(() => peer.received.some((frame) => "ack" in frame));
    peer.cut();
  };
  const again: Session = async (peer) => {
    await acks.attach(peer); // it was not acked
    void acks.frames(peer);
    peer.send(batch(0, 5));
  };
  const server = await serveChannel(t, { sessions: [cut, again], http: lose });
  const { seen } = subscribe(t, server.url, { consumer, retries: 0 });

  await until(() => acks.byFrame.length > 0);
  assert.deepEqual(seen, upTo(5));
  assert.equal(acks.byFrame.at(-1), cursor(5));
});

test("a reader that was cut off goes on as the same attachment, and fences no other reader", async (t) => {
  const acks = new Acks();
  const asked: unknown[] = [];
  const cut: Session = async (peer) => {
    asked.push(await acks.attach(peer));
    void acks.frames(peer);
    peer.send(batch(0, 2));
    await until(() => acks.byFrame.length > 0);
    peer.cut();
  };
  const fenced: Session = async (peer) => {
    await peer.answer("hello");
    const error = { code: "consumer_fenced", message: "another reader has attached", details: {} };
    asked.push(await peer.answer("subscribe", { error }));
  };
  const server = await serveChannel(t, { sessions: [cut, cut, fenced], http: acks.http });
  const { subscription, seen } = subscribe(t, server.url, { consumer, retries: 0 });

  await assert.rejects(subscription.done, ConsumerFenced);
  const generations = asked.map((each) => (each as { generation?: number }).generation);
  assert.deepEqual([seen, generations], [[1, 2], [undefined, 4, 4]]);
});

test("a reader whose consumer another one has attached as is told", async (t) => {
  const acks = new Acks();
  const session: Session = async (peer) => {
    await acks.attach(peer);
    void acks.frames(peer);
    peer.send(batch(0, 2), { reset: { channel: "c", reason: "fenced" } });
  };
  const { subscription, seen, peers } = await consumed(t, [session], acks);

  await assert.rejects(subscription.done, (error) => {
    return error instanceof ConsumerFenced && hasCode("consumer_fenced")(error);
  });
  assert.deepEqual([seen, peers.length], [[1, 2], 1]);
});

test("an ack that is refused ends the subscription", async (t) => {
  const session: Session = async (peer) => {
    await new Acks().attach(peer);
    peer.send(batch(0, 2));
    await peer.answer("ack", { error: { code: "consumer_fenced", message: "no", details: {} } });
  };
  const http = refusal(409, "consumer_fenced");
  const { url } = await serveChannel(t, { sessions: [session], http });

  await assert.rejects(subscribe(t, url, { consumer }).subscription.done, ConsumerFenced);
});

for (const [what, error] of [
  ["was forgotten", { code: "not_found" }],
  ["was overtaken", { code: "cursor_reset", details: { reason: "retention", oldest: "", head: "" } }],
] as const) {
  test(`a consumer that ${what} ends the subscription`, async (t) => {
    const session: Session = async (peer) => {
      await peer.answer("hello");
      await peer.answer("subscribe", { error: { message: "no", details: {}, ...error } });
    };
    const { url } = await serveChannel(t, { sessions: [session] });
    const { done } = subscribe(t, url, { consumer }).subscription;

    await assert.rejects(done, what === "was forgotten" ? NotFound : CursorReset);
  });
}

// ------------------------------------------------------------------ by requests

const isServerSent = ({ headers }: Received) => headers.accept === "text/event-stream";
const after = ({ url }: Received) => new URL(url, "http://server").searchParams.get("after");

const sends = (...frames: object[]): Answer => (response) => {
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  response.end(frames.map((frame) => `data: ${JSON.stringify(frame)}\n\n`).join(""));
};

test("by requests, a consumer attaches once, and acks before and behind each batch", async (t) => {
  standStill(t);
  const acks = new Acks();
  const answers = [sends(batch(0, 2)), sends(batch(2, 5), closed(5))];
  const { url, received } = await serve(t, (response, request) => {
    return (isServerSent(request) ? answers.shift()! : acks.http)(response, request);
  });
  const { subscription, seen } = subscribe(t, url, { WebSocket: null, consumer, from: cursor(9) });

  assert.equal(await subscription.done, "closed");
  assert.deepEqual([seen, acks.attached], [upTo(5), 1]);
  assert.deepEqual(received[0]?.body, { from: cursor(9) });
  assert.deepEqual(received.filter(isServerSent).map(after), [cursor(0), cursor(2)]);
  const expected = [0, 2, 2, 5].map((n) => ({ cursor: cursor(n), generation: 4 }));
  assert.deepEqual(acks.byRequest, expected);
});

test("by requests, a reader that was fenced handles nothing more, and does not attach again", async (t) => {
  let isFenced = false;
  const acks = new Acks();
  const { url } = await serve(t, (response, request) => {
    if (isServerSent(request)) {
      isFenced = after(request) !== cursor(0);
      return sends(isFenced ? batch(2, 5) : batch(0, 2))(response, request);
    }
    return (isFenced ? refusal(409, "consumer_fenced") : acks.http)(response, request);
  });
  const { subscription, seen } = subscribe(t, url, { WebSocket: null, consumer });

  await assert.rejects(subscription.done, ConsumerFenced);
  assert.deepEqual([seen, acks.attached], [[1, 2], 1]);
});

// ------------------------------------------------------------------ verbs

test("what a consumer cannot have is refused at once", () => {
  const { events } = new Towpath("http://127.0.0.1");
  const handler = () => undefined;
  for (const options of [{ remember: "x" }, { onReset: "head" as const }, { from: { last: 2 } }]) {
    assert.throws(() => events.subscribe("c", { consumer, ...options }, handler), Invalid);
  }
});

test("the verbs of consumers and limits call the server", async (t) => {
  const { url, received } = await serve(t, json(200, { cursor: cursor(3), generation: 7, items: [] }));
  const { events } = new Towpath(url);
  const answers = [
    await events.consumers("c", { limit: 2 }),
    await events.attach("c", consumer, { from: "now" }),
    await events.ack("c", consumer, cursor(2), 7),
    await events.moveConsumer("c", consumer, "start"),
    await events.forgetConsumer("c", consumer),
    await events.limit("c", { maxCount: 10, dropAcked: true }),
  ];

  assert.deepEqual(answers.slice(0, 1), [[]]);
  assert.deepEqual(answers.slice(2), [cursor(3), cursor(3), undefined, undefined]);
  assert.deepEqual(
    received.map(({ method, url, body }) => [method, url.replace("/api/channels/c/", ""), body]),
    [
      ["GET", "consumers?limit=2", undefined],
      ["PUT", "consumers/mailer", { from: "now" }],
      ["POST", "consumers/mailer/ack", { cursor: cursor(2), generation: 7 }],
      ["POST", "consumers/mailer/move", { from: "start" }],
      ["DELETE", "consumers/mailer", undefined],
      ["PUT", "limits", { maxCount: 10, dropAcked: true }],
    ],
  );
});
