import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import {
  type ChannelEvent,
  CursorReset,
  Forbidden,
  Invalid,
  NetworkError,
  Towpath,
  Unauthorized,
} from "../src/index.ts";
import { backOff } from "../src/line.ts";
import { type Session, batch, closed, cursor, event, serveChannel } from "./channels.ts";
import { cutTheLine, json, refusal, serve } from "./server.ts";
import { hasCode, subscribe, until, upTo } from "./subscribing.ts";

/** Send five events in three frames, then the end. */
const wellBehaved: Session = async (peer) => {
  const from = await peer.begin();
  for (const to of [2, 3, 5]) if (from < to) peer.send(batch(Math.max(from, to - 2), to));
  peer.send({ current: { channel: "c", cursor: cursor(5) } }, closed(5));
};

test("a subscriber gets what is there and what comes, and is told the end", async (t) => {
  const { url, peers } = await serveChannel(t, { sessions: [wellBehaved] });
  const { subscription, seen, errors } = subscribe(t, url);

  assert.equal(await subscription.done, "closed");
  assert.deepEqual(seen, upTo(5));
  assert.equal(subscription.cursor, cursor(5));
  assert.deepEqual([peers.length, errors], [1, []]);
});

test("the first frame has the token, and the second says what is wanted", async (t) => {
  const heard: unknown[] = [];
  const session: Session = async (peer) => {
    heard.push(await peer.answer("hello"));
    heard.push(await peer.answer("subscribe", { ok: { cursor: cursor(3) } }));
    peer.send(closed(3));
  };
  const { url } = await serveChannel(t, { sessions: [session] });
  const { subscription } = subscribe(t, url, { from: { last: 2 }, types: ["odd"] });

  await subscription.done;
  assert.deepEqual(heard, [{ token: "key" }, { channel: "c", from: { last: 2 }, types: ["odd"] }]);
  assert.equal(subscription.cursor, cursor(3));
});

test("a line that is cut at any byte loses and doubles nothing", async (t) => {
  const session: Session = async (peer) => {
    const from = await peer.begin();
    const items = upTo(3).map((n) => ({ cursor: cursor(n), encoding: "json", payload: `é${n}` }));
    const told = (from: number, to: number) => ({
      events: { channel: "c", from: cursor(from), to: cursor(to), items: items.slice(from, to) },
    });
    if (from < 2) peer.send(told(from, 2));
    if (from < 3) peer.send(told(2, 3));
    peer.send(closed(3));
  };
  const whole = await serveChannel(t, { sessions: [session] });
  await subscribe(t, whole.url).subscription.done;
  const total = whole.peers[0]!.written;
  assert.ok(total > 700, `${total}`);

  const cutAt = async (bytes: number) => {
    const { url, peers, stop } = await serveChannel(t, { sessions: [session], cutAt: bytes });
    const { subscription, seen } = subscribe(t, url);
    assert.equal(await subscription.done, "closed", `cut at ${bytes}`);
    assert.deepEqual(seen, ["é1", "é2", "é3"], `cut at ${bytes}`);
    assert.equal(peers.length, 2, `cut at ${bytes}`);
    stop();
  };
  const places = Array.from({ length: total }, (_, at) => at);
  const run = async () => {
    for (let at = places.shift(); at !== undefined; at = places.shift()) await cutAt(at);
  };
  await Promise.all(Array.from({ length: 20 }, run));
});

test("events that come twice are handled once", async (t) => {
  const session: Session = async (peer) => {
    await peer.begin();
    peer.send(batch(0, 2), batch(0, 2), batch(1, 3), batch(0, 5), batch(2, 4), closed(5));
  };
  const { url } = await serveChannel(t, { sessions: [session] });
  const { subscription, seen, errors } = subscribe(t, url);

  assert.equal(await subscription.done, "closed");
  assert.deepEqual(seen, upTo(5));
  assert.deepEqual(errors, []);
});

for (const [what, frames] of Object.entries({
  events: [batch(0, 2), batch(3, 5), closed(5)],
  "the end": [batch(0, 2), closed(5)],
})) {
  test(`a hole before ${what} is reported, and filled from the last cursor`, async (t) => {
    const asked: number[] = [];
    const session: Session = async (peer) => {
      asked.push(await peer.begin());
      peer.send(...frames);
    };
    const again: Session = async (peer) => {
      asked.push(await peer.begin());
      peer.send(batch(2, 5), closed(5));
    };
    const { url } = await serveChannel(t, { sessions: [session, again] });
    const { subscription, seen, errors } = subscribe(t, url);

    assert.equal(await subscription.done, "closed");
    assert.deepEqual(seen, upTo(5));
    assert.deepEqual(asked, [0, 2]);
    assert.ok(errors.length === 1 && hasCode("missing_events")(errors[0]), String(errors));
  });
}

test("with types, events that are not wanted are no hole", async (t) => {
  const session: Session = async (peer) => {
    await peer.begin();
    const some = batch(0, 4);
    some.events.items = [event(1), event(3)];
    peer.send(some, closed(9));
  };
  const { url } = await serveChannel(t, { sessions: [session] });
  const { subscription, seen, errors } = subscribe(t, url, { types: ["odd"] });

  assert.equal(await subscription.done, "closed");
  assert.deepEqual(seen, [1, 3]);
  assert.equal(subscription.cursor, cursor(9));
  assert.deepEqual(errors, []);
});

test("a channel that did not exist begins anywhere", async (t) => {
  const session: Session = async (peer) => {
    await peer.answer("hello");
    await peer.answer("subscribe", { ok: { cursor: "0000000000000000_0000000000000000" } });
    peer.send(batch(0, 2), closed(2));
  };
  const { url } = await serveChannel(t, { sessions: [session] });
  const { subscription, seen, errors } = subscribe(t, url);

  assert.equal(await subscription.done, "closed");
  assert.deepEqual([seen, errors], [[1, 2], []]);
});

for (const from of [cursor(3), "now"]) {
  test(`from ${from}, a line that is cut before the first event keeps the cursor`, async (t) => {
    const asked: unknown[] = [];
    const cut: Session = async (peer) => {
      await peer.answer("hello");
      asked.push((await peer.answer("subscribe", { ok: { cursor: cursor(3) } })).from);
      peer.send({ current: { channel: "c", cursor: cursor(3) } });
      peer.close(4000);
    };
    const again: Session = async (peer) => {
      asked.push(cursor(await peer.begin()));
      peer.send(batch(3, 5), closed(5));
    };
    const { url } = await serveChannel(t, { sessions: [cut, cut, again] });
    const { subscription, seen } = subscribe(t, url, { from });

    await subscription.done;
    assert.deepEqual(asked, [from, cursor(3), cursor(3)]);
    assert.deepEqual(seen, [4, 5]);
  });
}

test("a handler that throws ends the subscription, and its event is not done", async (t) => {
  const { url } = await serveChannel(t, { sessions: [wellBehaved] });
  const { subscription, seen } = subscribe(t, url, {
    handler: async ({ payload }) => {
      if (payload === 3) throw new NetworkError("of another server", { code: "its" });
    },
  });

  await assert.rejects(subscription.done, hasCode("its"));
  assert.deepEqual(seen, [1, 2]);
  assert.equal(subscription.cursor, cursor(2));
});

test("the cursor moves, and the next event comes, when the handler has returned", async (t) => {
  const { url } = await serveChannel(t, { sessions: [wellBehaved] });
  let running = 0;
  const cursors: unknown[] = [];
  const { subscription } = subscribe(t, url, {
    handler: async () => {
      assert.equal(++running, 1);
      await pause(20);
      cursors.push(subscription.cursor);
      running -= 1;
    },
  });

  await subscription.done;
  assert.deepEqual(cursors, [0, 1, 2, 3, 4].map(cursor));
});

test("a slow handler does not make a cut line repeat its event", async (t) => {
  const cut: Session = async (peer) => {
    await peer.begin();
    peer.send(batch(0, 3));
    peer.close(4000);
  };
  const { url } = await serveChannel(t, { sessions: [cut, wellBehaved] });
  const { subscription, seen } = subscribe(t, url, { handler: () => pause(300) });

  await subscription.done;
  assert.deepEqual(seen, upTo(5));
});

test("what a slow handler leaves waiting is bounded, and read again later", async (t) => {
  const text = "x".repeat(2 ** 20);
  let unsubscribed = 0;
  const session: Session = async (peer) => {
    await peer.answer("hello");
    for (;;) {
      const from = await peer.subscribed();
      if (!peer.isOpen) return;
      void peer.answer("unsubscribe").then((asked) => asked && (unsubscribed += 1));
      for (let n = from; n < 20; n += 1) {
        const one = batch(n, n + 1);
        one.events.items = [event(n + 1, text)];
        peer.send(one);
      }
      peer.send(closed(20));
    }
  };
  const { url } = await serveChannel(t, { sessions: [session] });
  const { subscription } = subscribe(t, url, { handler: () => pause(30) });

  assert.equal(await subscription.done, "closed");
  assert.equal(subscription.cursor, cursor(20));
  assert.ok(unsubscribed > 0);
});

test("a server that is silent for 2.5 beats is left", async (t) => {
  let begun = 0;
  let ended = 0;
  const silent: Session = async (peer) => {
    await peer.begin(0.1);
    begun = performance.now();
    peer.send(batch(0, 1));
    await peer.answer("never");
    ended = performance.now();
  };
  const { url } = await serveChannel(t, { sessions: [silent, wellBehaved] });
  const { subscription, seen, errors } = subscribe(t, url);

  assert.equal(await subscription.done, "closed");
  assert.deepEqual(seen, upTo(5));
  assert.ok(hasCode("silent")(errors[0]));
  assert.ok(ended - begun >= 240, `${ended - begun}`);
});

test("a server that beats is not left", async (t) => {
  const beating: Session = async (peer) => {
    await peer.begin(0.2);
    for (let n = 0; n < 20; n += 1) {
      await pause(50);
      peer.send({ beat: n });
    }
    peer.send(batch(0, 5), closed(5));
  };
  const { url, peers } = await serveChannel(t, { sessions: [beating] });
  const { subscription, errors } = subscribe(t, url);

  await subscription.done;
  assert.deepEqual([peers.length, errors], [1, []]);
});

test("after a bye it comes back when the server said, and no error is reported", async (t) => {
  let said = 0;
  let back = 0;
  const leaving: Session = async (peer) => {
    await peer.begin();
    said = performance.now();
    peer.send(batch(0, 2), { bye: { code: "going_away", after: 0.4 } });
  };
  const { url } = await serveChannel(t, {
    sessions: [leaving, (peer) => ((back = performance.now()), wellBehaved(peer))],
  });
  const { subscription, seen, errors } = subscribe(t, url);

  await subscription.done;
  assert.deepEqual([seen, errors], [upTo(5), []]);
  assert.ok(back - said >= 390, `${back - said}`);
});

test("the wait before another try is random, doubles and is bounded", () => {
  for (let tried = 0; tried < 60; tried += 1) {
    const waits = Array.from({ length: 200 }, () => backOff(tried));
    const most = Math.min(250 * 2 ** tried, 30_000);
    assert.ok(Math.min(...waits) < most / 4 && Math.max(...waits) > most / 2);
    assert.ok(Math.min(...waits) >= 0 && Math.max(...waits) < most);
  }
});

for (const [what, session] of Object.entries<Session>({
  "cuts every line": (peer) => peer.cut(),
  "cuts every line behind the subscription": (peer) => peer.begin().then(() => peer.cut()),
  "says bye to every hello": (peer) => peer.send({ bye: { code: "going_away", after: 0 } }),
  "leaves a hole every time": async (peer) => {
    await peer.answer("hello");
    while (peer.isOpen) {
      await peer.subscribed();
      peer.send(batch(3, 4));
    }
  },
})) {
  test(`a server that ${what} is not stormed`, async (t) => {
    const { url, upgrades, peers } = await serveChannel(t, { sessions: [session] });
    const many = Array.from({ length: 20 }, () => 0);
    const { towpath, subscription } = subscribe(t, url, { from: cursor(1) });
    for (const _ of many) subscribe(t, url, { token: "another" }).subscription.close();
    const others = many.map((_, at) => towpath.events.subscribe(`other-${at}`, () => undefined));

    await until(() => upgrades() > 1 || peers.length === 1);
    await pause(1_000);
    subscription.close();
    for (const each of others) each.close();
    assert.ok(upgrades() < 40, `${upgrades()}`);
  });
}

const resets = (reason: string): Session => async (peer) => {
  await peer.begin();
  peer.send(batch(0, 2));
  peer.send({ reset: { channel: "c", reason, oldest: cursor(6), head: cursor(9) } });
};

for (const reason of ["retention", "channel", "era", "ahead"]) {
  test(`a reset for ${reason} ends the subscription, and says where it could go on`, async (t) => {
    const { url, peers } = await serveChannel(t, { sessions: [resets(reason)] });
    const { subscription, seen } = subscribe(t, url);

    await assert.rejects(subscription.done, (error) => {
      assert.ok(error instanceof CursorReset);
      assert.deepEqual([error.reason, error.oldest, error.head], [reason, cursor(6), cursor(9)]);
      return true;
    });
    assert.deepEqual([seen, subscription.cursor, peers.length], [[1, 2], cursor(2), 1]);
  });
}

for (const [onReset, from] of [["oldest", 6], ["head", 9]] as const) {
  test(`after a reset a subscription goes on at the ${onReset} if it may`, async (t) => {
    const asked: number[] = [];
    const session: Session = async (peer) => {
      await peer.answer("hello");
      await peer.answer("subscribe", {
        error: { code: "cursor_reset", message: "m", details: { reason: "era", oldest: cursor(6), head: cursor(9) } },
      });
    };
    const again: Session = async (peer) => {
      asked.push(await peer.begin());
      peer.send(batch(from, 11), closed(11));
    };
    const { url } = await serveChannel(t, { sessions: [session, again] });
    const { subscription, errors } = subscribe(t, url, { from: cursor(2), onReset });

    assert.equal(await subscription.done, "closed");
    assert.deepEqual([asked, subscription.cursor], [[from], cursor(11)]);
    assert.ok(errors.length === 1 && errors[0] instanceof CursorReset);
  });
}

for (const [code, kind] of [
  ["forbidden", Forbidden],
  ["http_disabled", Forbidden],
  ["login_required", Unauthorized],
  ["invalid_token", Unauthorized],
] as const) {
  test(`a right that is lost ends the subscription: ${code}`, async (t) => {
    const session: Session = async (peer) => {
      await peer.begin();
      peer.send(batch(0, 1), { reset: { channel: "c", reason: code } });
    };
    const { url, peers } = await serveChannel(t, { sessions: [session] });
    const { subscription, seen } = subscribe(t, url);

    await assert.rejects(subscription.done, (error) => error instanceof kind && hasCode(code)(error));
    assert.deepEqual([seen, peers.length], [[1], 1]);
  });

  test(`a right that is missing refuses the subscription: ${code}`, async (t) => {
    const session: Session = async (peer) => {
      await peer.answer("hello");
      await peer.answer("subscribe", { error: { code, message: "no", details: {} } });
    };
    const { url } = await serveChannel(t, { sessions: [session] });

    await assert.rejects(subscribe(t, url).subscription.done, kind);
  });
}

test("a token that is refused ends every subscription", async (t) => {
  const session: Session = async (peer) => {
    await peer.answer("hello", { error: { code: "invalid_token", message: "no", details: {} } });
  };
  const { url } = await serveChannel(t, { sessions: [session] });

  await assert.rejects(subscribe(t, url).subscription.done, Unauthorized);
});

for (const [code, kind] of [[4100, Unauthorized], [4403, Forbidden]] as const) {
  test(`a connection that is closed with ${code} is not opened again`, async (t) => {
    const session: Session = (peer) => peer.begin().then(() => peer.close(code));
    const { url, peers } = await serveChannel(t, { sessions: [session] });

    await assert.rejects(subscribe(t, url).subscription.done, kind);
    assert.equal(peers.length, 1);
  });
}

test("a database that is away for a while does not end the subscription", async (t) => {
  const code = "database_unavailable";
  const refused: Session = async (peer) => {
    await peer.answer("hello");
    await peer.answer("subscribe", { error: { code, message: "away", details: {} } });
  };
  const interrupted: Session = async (peer) => {
    await peer.begin();
    peer.send(batch(0, 2), { reset: { channel: "c", reason: code } });
  };
  const { url } = await serveChannel(t, { sessions: [refused, interrupted, wellBehaved] });
  const { subscription, seen, errors } = subscribe(t, url);

  assert.equal(await subscription.done, "closed");
  assert.deepEqual(seen, upTo(5));
  assert.ok(errors.length === 2 && errors.every(hasCode(code)));
});

test("a token is asked for with every connection, and again when it has ended", async (t) => {
  const tokens = ["old", "new", "new"];
  const heard: unknown[] = [];
  const session: Session = async (peer) => {
    heard.push((await peer.answer("hello")).token);
    await peer.subscribed();
    peer.send(batch(0, 1), { reset: { channel: "c", reason: "invalid_token" } });
  };
  const again: Session = async (peer) => {
    heard.push((await peer.answer("hello")).token);
    peer.send(batch(await peer.subscribed(), 5), closed(5));
  };
  const { url } = await serveChannel(t, { sessions: [session, again] });
  const token = async () => tokens.shift() ?? assert.fail("asked too often");
  const { subscription, seen } = subscribe(t, url, { token });

  assert.equal(await subscription.done, "closed");
  assert.deepEqual([heard, seen], [["old", "new"], upTo(5)]);
});

test("a token that cannot be had is asked for again", async (t) => {
  const { url } = await serveChannel(t, { sessions: [wellBehaved] });
  let asked = 0;
  const token = async () => {
    if (asked++ < 2) throw new TypeError("its server is away");
    return "key";
  };
  const { subscription, seen, errors } = subscribe(t, url, { token });

  assert.equal(await subscription.done, "closed");
  assert.deepEqual(seen, upTo(5));
  assert.ok(errors.length === 2 && errors.every((error) => error instanceof TypeError));
});

test("another login takes its subscriptions along", async (t) => {
  const heard: unknown[] = [];
  const session: Session = async (peer) => {
    heard.push((await peer.answer("hello")).token);
    const from = await peer.subscribed();
    peer.send(batch(from, from + 2));
  };
  const { url } = await serveChannel(t, {
    sessions: [session],
    http: json(200, { token: "of-ann", record: {} }),
  });
  const { towpath, seen } = subscribe(t, url);
  await until(() => seen.length === 2);

  await towpath.authWithPassword("ann@example.com", "password");
  await until(() => seen.length === 4);
  assert.deepEqual([heard, seen], [["key", "of-ann"], upTo(4)]);
});

test("all subscriptions of a client share a connection, but not those to one channel", async (t) => {
  const session: Session = async (peer) => {
    await peer.answer("hello");
    while (peer.isOpen) {
      const { channel } = (await peer.answer("subscribe", { ok: { cursor: cursor(0) } })) ?? {};
      peer.send({ events: { ...batch(0, 2).events, channel } });
    }
  };
  const { url, peers } = await serveChannel(t, { sessions: [session] });
  const towpath = new Towpath(url, { token: "key" });
  const seen: unknown[] = [];
  const all = ["a", "b", "c", "b"].map((name) => {
    return towpath.events.subscribe(name, ({ payload }) => seen.push([name, payload]));
  });

  await until(() => seen.length === 8);
  assert.equal(peers.length, 2);
  for (const each of all) each.close();
  assert.deepEqual(await Promise.all(all.map((each) => each.done)), [null, null, null, null]);
  await until(() => peers.every((peer) => !peer.isOpen));
});

test("a subscription that is closed handles nothing more", async (t) => {
  const { url } = await serveChannel(t, { sessions: [wellBehaved] });
  const signals = new AbortController();
  const { subscription, seen } = subscribe(t, url, {
    signal: signals.signal,
    handler: ({ payload }) => payload === 2 && signals.abort(),
  });

  assert.equal(await subscription.done, null);
  assert.deepEqual([seen, subscription.cursor], [[1, 2], cursor(2)]);
});

test("a subscription is closed while there is no server", async (t) => {
  const { url, stop } = await serveChannel(t, { sessions: [wellBehaved] });
  stop();
  const { subscription, errors } = subscribe(t, url);
  await until(() => errors.length > 2);

  subscription.close();
  assert.equal(await subscription.done, null);
  assert.ok(errors.every((error) => error instanceof NetworkError));
});

test("frames for a subscription that was closed are not those of the next one", async (t) => {
  const session: Session = async (peer) => {
    await peer.begin();
    peer.send(batch(0, 1));
    await until(() => peer.received.length === 2);
    peer.send(batch(1, 3)); // on its way when the client unsubscribed
    await peer.answer("unsubscribe");
    await peer.subscribed();
    peer.send(batch(0, 5), closed(5));
  };
  const { url } = await serveChannel(t, { sessions: [session] });
  const { towpath, subscription, seen } = subscribe(t, url);
  await until(() => seen.length === 1);

  subscription.close();
  const later: unknown[] = [];
  const next = towpath.events.subscribe("c", ({ payload }) => later.push(payload));
  assert.equal(await next.done, "closed");
  assert.deepEqual([seen, later], [[1], upTo(5)]);
});

test("a cursor is remembered by a name, as far as events are done", async (t) => {
  const asked: number[] = [];
  const session: Session = async (peer) => {
    const from = await peer.begin();
    asked.push(from);
    peer.send(batch(from, 5), closed(5));
  };
  const { url } = await serveChannel(t, { sessions: [session] });
  const kept = new Map<string, string>();
  const cursors = {
    getItem: (name: string) => kept.get(name) ?? null,
    setItem: (name: string, value: string) => void kept.set(name, value),
  };
  const handler = ({ payload }: ChannelEvent) => {
    if (payload === 4) throw new Error("no");
  };
  await assert.rejects(subscribe(t, url, { remember: "mine", cursors, handler }).subscription.done);
  const { subscription, seen } = subscribe(t, url, { remember: "mine", cursors, from: cursor(1) });
  await subscription.done;

  assert.deepEqual([asked, seen], [[0, 3], [4, 5]]);
  assert.deepEqual([...kept], [["towpath:mine", cursor(5)]]);
});

const stored = json(201, { items: [event(1, { a: 1 })] });

test("an event is published with its type, key and headers", async (t) => {
  const { url, received } = await serve(t, stored);
  const told = { type: "said", key: "k", headers: { h: "1" } };
  const published = await new Towpath(url).events.publish("c", { a: 1 }, told);

  assert.equal(published.cursor, cursor(1));
  assert.deepEqual(received[0]?.body, { events: [{ ...told, payload: { a: 1 } }] });
  assert.equal(received[0]?.url, "/api/channels/c/events");
});

test("an event with a key is published again after a lost answer", async (t) => {
  const { url, received } = await serve(t, cutTheLine, refusal(503, "unavailable"), stored);
  await new Towpath(url).events.publish("c", 1, { key: "k" });

  assert.equal(received.length, 3);
});

test("an event without a key is not published again after a lost answer", async (t) => {
  const { url, received } = await serve(t, cutTheLine);
  await assert.rejects(new Towpath(url).events.publish("c", 1), NetworkError);
  const some = [{ payload: 1, key: "k" }, { payload: 2 }];
  await assert.rejects(new Towpath(url).events.publishMany("c", some), NetworkError);

  assert.equal(received.length, 2);
});

test("an event without a key is published again if it surely was not stored", async (t) => {
  const { url, received } = await serve(t, refusal(429, "limit_reached", { "Retry-After": "0" }), stored);
  const gone = await serveChannel(t, { sessions: [] });
  gone.stop();
  let tried = 0;
  const towpath = new Towpath(url, {
    fetch: (address, request) => {
      return fetch(tried++ ? address : gone.url, request);
    },
  });
  await towpath.events.publish("c", 1);

  assert.deepEqual([tried, received.length], [3, 2]);
});

test("bytes cannot be published as JSON", async () => {
  const publishing = new Towpath("http://127.0.0.1").events.publish("c", new Uint8Array([1]));
  await assert.rejects(publishing, Invalid);
});
