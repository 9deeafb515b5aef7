import assert from "node:assert/strict";
import { EventEmitter, getEventListeners, once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";

import { TooMany, errorFrom } from "../src/errors.ts";
import * as sdk from "../src/index.ts";
import { Towpath } from "../src/index.ts";
import { path, waitAfter } from "../src/transport.ts";
import {
  type Answer,
  cutInTheMiddle,
  cutTheLine,
  hang,
  hangInTheMiddle,
  json,
  refusal,
  serve,
} from "./server.ts";

const STATS = { pending: 3 };
const ID = "01998000-0000-7000-8000-000000000000";
const stopped: Answer = json(
  503,
  { code: "unavailable", message: "later" },
  { "Retry-After": "0" },
);

for (const [what, trouble] of Object.entries({
  "answers 429": refusal(429, "limit_reached", { "Retry-After": "0" }),
  "answers 502": json(502, undefined, { "Retry-After": "0" }),
  "answers 503": stopped,
  "answers 504": json(504, undefined, { "Retry-After": "0" }),
  "cuts the line": cutTheLine,
  "cuts the line within an answer": cutInTheMiddle,
})) {
  test(`a GET is repeated when the server ${what}`, async (t) => {
    const { url, received } = await serve(t, trouble, json(200, STATS));

    assert.deepEqual(await new Towpath(url).jobs.stats(), STATS);
    assert.equal(received.length, 2);
  });

  test(`what is not safe to repeat is not, when the server ${what}`, async (t) => {
    const { url, received } = await serve(t, trouble, json(200, {}));

    await assert.rejects(new Towpath(url).jobs.requeue(ID), sdk.TowpathError);
    assert.equal(received.length, 1);
  });
}

test("it gives up after as many retries as were asked for", async (t) => {
  const { url, received } = await serve(t, stopped);

  await assert.rejects(new Towpath(url, { retries: 2 }).jobs.stats(), sdk.Unavailable);
  assert.equal(received.length, 3);
});

for (const status of [400, 401, 403, 404, 409, 500, 507]) {
  test(`an answer of ${status} is final`, async (t) => {
    const { url, received } = await serve(t, refusal(status, "x"), json(200, STATS));

    await assert.rejects(new Towpath(url).jobs.stats(), { status, code: "x" });
    assert.equal(received.length, 1);
  });
}

test("an enqueue is repeated with the same id, so that it is stored once", async (t) => {
  const { url, received } = await serve(t, cutTheLine, stopped, json(201, { encoding: "json" }));

  await new Towpath(url).jobs.enqueue("mail", { to: "a" });

  const ids = received.map((request) => request.body.id);
  assert.equal(ids.length, 3);
  assert.equal(new Set(ids).size, 1);
  assert.match(ids[0], /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

test("an enqueue with a key of the caller's is repeated with that key", async (t) => {
  const { url, received } = await serve(t, cutTheLine, json(201, { encoding: "json" }));

  await new Towpath(url).jobs.enqueue("mail", {}, { idempotencyKey: "order-7" });

  assert.deepEqual(
    received.map((request) => [request.headers["idempotency-key"], request.body.id]),
    [
      ["order-7", undefined],
      ["order-7", undefined],
    ],
  );
});

test("a reservation is repeated with the same token", async (t) => {
  const { url, received } = await serve(t, cutTheLine, json(200, { leases: [] }));

  await new Towpath(url).jobs.reserve(["mail"]);

  const [first, second] = received.map((request) => request.body.token);
  assert.ok(Number.isSafeInteger(first) && first > 0);
  assert.equal(first, second);
});

test("nobody listening is a NetworkError that says where", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");

  const { jobs } = new Towpath(`http://127.0.0.1:${port}`, { retries: 0 });
  await assert.rejects(jobs.stats(), (error) => {
    assert.ok(error instanceof sdk.NetworkError);
    assert.equal(error.code, "network_error");
    assert.equal(error.status, 0);
    assert.match(error.message, new RegExp(`127\\.0\\.0\\.1:${port}.*ECONNREFUSED`));
    return true;
  });
});

for (const [where, answer] of Object.entries({
  "at once": hang,
  "within an answer": hangInTheMiddle,
})) {
  test(`a server that hangs ${where} is a TimeoutError`, async (t) => {
    const { url, received } = await serve(t, answer);

    await assert.rejects(new Towpath(url, { timeout: 1_500 }).jobs.stats(), (error) => {
      assert.ok(error instanceof sdk.TimeoutError);
      assert.match(error.message, /1500 ms/);
      return true;
    });
    assert.equal(received.length, 1);
  });

  test(`the caller ends a call whose server hangs ${where}`, async (t) => {
    const arrived = new EventEmitter();
    const { url, received } = await serve(t, (response, request) => {
      answer(response, request);
      arrived.emit("request");
    });
    const controller = new AbortController();
    const call = new Towpath(url).jobs.stats({ signal: controller.signal });
    await once(arrived, "request");
    const reason = new Error("the user left");
    controller.abort(reason);

    await assert.rejects(call, (error) => error === reason);
    assert.equal(received.length, 1);
  });
}

test("time on purpose is no time lost: a long poll outlasts the time limit", async (t) => {
  const { url } = await serve(t, (response, received) => {
    setTimeout(() => json(200, { leases: [] })(response, received), 150);
  });

  assert.deepEqual(
    await new Towpath(url, { timeout: 100 }).jobs.reserve(["a"], { timeout: 30 }),
    [],
  );
});

test("a call whose signal has fired is never sent", async (t) => {
  const { url, received } = await serve(t, json(200, STATS));

  await assert.rejects(
    new Towpath(url).jobs.stats({ signal: AbortSignal.abort("no") }),
    (error) => {
      return error === "no";
    },
  );
  assert.equal(received.length, 0);
});

test("the caller ends a call that waits for its next try", async (t) => {
  const controller = new AbortController();
  const { url, received } = await serve(t, (response, request) => {
    refusal(503, "unavailable", { "Retry-After": "20" })(response, request);
    response.on("close", () => setTimeout(() => controller.abort("enough"), 50));
  });

  const call = new Towpath(url).jobs.stats({ signal: controller.signal });

  await assert.rejects(call, (error) => error === "enough");
  assert.equal(received.length, 1);
});

test("a call lets go of its caller's signal", async (t) => {
  const { url } = await serve(t, stopped, json(200, STATS));
  const { signal } = new AbortController();

  await new Towpath(url).jobs.stats({ signal });

  assert.deepEqual(getEventListeners(signal, "abort"), []);
});

test("a caller whose next try would come after the time limit is told at once", async (t) => {
  const { url, received } = await serve(
    t,
    refusal(429, "too_many_logins", { "Retry-After": "3600" }),
  );

  await assert.rejects(new Towpath(url).jobs.stats(), (error) => {
    assert.ok(error instanceof TooMany);
    assert.equal(error.retryAfter, 3600);
    return true;
  });
  assert.equal(received.length, 1);
});

test("the wait is what the server said, in seconds or as a date", () => {
  const told = (value: string) =>
    waitAfter(
      errorFrom(new Response(null, { status: 429, headers: { "Retry-After": value } }), {}),
      0,
    );

  assert.equal(told("7"), 7_000);
  assert.equal(told("Thu, 01 Jan 1970 00:00:00 GMT"), 0);
  const soon = told(new Date(Date.now() + 60_000).toUTCString());
  assert.ok(soon > 50_000 && soon <= 60_000);
  assert.ok(told("soon") <= 200);
});

test("the wait doubles, up to five seconds, and is not the same for everybody", () => {
  const error = new sdk.NetworkError("x", { code: "x" });
  for (const [tried, longest] of [200, 400, 800, 1600, 3200, 5000, 5000].entries()) {
    const waits = Array.from({ length: 50 }, () => waitAfter(error, tried));
    assert.ok(waits.every((wait) => wait >= longest / 2 && wait <= longest));
    assert.ok(new Set(waits).size > 1);
  }
});

for (const [status, kind] of Object.entries({
  400: sdk.Invalid,
  401: sdk.Unauthorized,
  403: sdk.Forbidden,
  404: sdk.NotFound,
  409: sdk.Conflict,
  413: sdk.Invalid,
  429: sdk.TooMany,
  503: sdk.Unavailable,
})) {
  test(`${status} is ${kind.name}, with the server's own words`, async (t) => {
    const { url } = await serve(t, refusal(Number(status), "its_code"));

    await assert.rejects(new Towpath(url, { retries: 0 }).jobs.stats(), (error) => {
      assert.ok(error instanceof kind && error instanceof sdk.TowpathError);
      assert.equal(error.name, kind.name);
      assert.equal(error.code, "its_code");
      assert.equal(error.message, "refused: its_code");
      assert.deepEqual(error.details, { why: "a test" });
      return true;
    });
  });
}

test("lease_lost is LeaseLost, which is a Conflict", async (t) => {
  const { url } = await serve(t, refusal(409, "lease_lost"));

  await assert.rejects(new Towpath(url).jobs.get(ID), (error) => {
    return error instanceof sdk.LeaseLost && error instanceof sdk.Conflict;
  });
});

for (const body of ["<html>Bad gateway</html>", "[1]", "null", "", '{"code": 7, "details": []}']) {
  test(`a proxy's own answer is an error too: ${body}`, async (t) => {
    const { url } = await serve(t, (response) => response.writeHead(502).end(body));

    await assert.rejects(new Towpath(url, { retries: 0 }).jobs.stats(), (error) => {
      assert.ok(error instanceof sdk.Unavailable);
      assert.equal(error.code, "http_502");
      assert.match(error.message, /502 Bad Gateway/);
      assert.deepEqual(error.details, {});
      return true;
    });
  });
}

for (const body of ["<html>Welcome!</html>", "", '{"pending": ']) {
  test(`an answer that is not JSON is refused: ${body}`, async (t) => {
    const { url } = await serve(t, (response) => response.writeHead(200).end(body));

    await assert.rejects(new Towpath(url).jobs.stats(), { code: "bad_answer", status: 200 });
  });
}

test("a token is sent with every call, and none where there is none", async (t) => {
  const { url, received } = await serve(t, json(200, STATS));

  await new Towpath(url, { token: "tow_key" }).jobs.stats();
  await new Towpath(url).jobs.stats();

  const sent = received.map((request) => request.headers.authorization);
  assert.deepEqual(sent, ["Bearer tow_key", undefined]);
});

test("calls are made by the fetch that was given", async () => {
  const asked: string[] = [];
  const towpath = new Towpath("http://example.com/towpath/", {
    fetch: async (url) => {
      asked.push(String(url));
      return Response.json(STATS);
    },
  });

  await towpath.jobs.stats();

  assert.deepEqual(asked, ["http://example.com/towpath/api/jobs/stats"]);
});

test("an id is one part of a path, whatever is in it", async (t) => {
  const { url, received } = await serve(t, json(200, { encoding: "json" }));

  await new Towpath(url).jobs.get("a/../b?c#d");

  assert.equal(received[0]?.url, "/api/jobs/a%2F..%2Fb%3Fc%23d");
  for (const part of ["", ".", ".."]) {
    await assert.rejects(new Towpath(url).jobs.delete(part), sdk.Invalid);
    assert.throws(() => path`/api/${part}`, sdk.Invalid);
  }
  assert.equal(received.length, 1);
});

for (const url of ["localhost:8090", "", "/", "ftp://example.com", "http://", "nonsense"]) {
  test(`"${url}" is not a server's address`, () => {
    assert.throws(() => new Towpath(url), { code: "invalid_url" });
  });
}

test("a password does not belong into an address, nor into an error", () => {
  assert.throws(
    () => new Towpath("http://me:secret@example.com"),
    (error: Error) => error instanceof sdk.Invalid && !error.message.includes("secret"),
  );
});

test("a query holds what was given, and nothing else", async (t) => {
  const { url, received } = await serve(t, json(200, { items: [], next: null }));

  await new Towpath(url).jobs.list({ topic: "a b", status: undefined, limit: 5, offset: 0 });

  assert.equal(received[0]?.url, "/api/jobs?topic=a+b&limit=5&offset=0");
});

test("a payload that JSON cannot hold is never sent", async (t) => {
  const { url, received } = await serve(t, json(201, {}));
  const { jobs } = new Towpath(url);

  await assert.rejects(jobs.enqueue("a", 1n), TypeError);
  await assert.rejects(jobs.enqueue("a", {}, { runAt: new Date(Number.NaN) }), RangeError);
  assert.equal(received.length, 0);
});

test("raw bytes travel as base64, whatever they are", async (t) => {
  const echo: Answer = (response, { body }) => json(201, body)(response, { body } as never);
  const { url, received } = await serve(t, echo);
  const bytes = Uint8Array.from({ length: 100_000 }, (_, at) => (at * 7) % 256);

  const job = await new Towpath(url).jobs.enqueue("files", bytes);

  assert.equal(received[0]?.body.encoding, "base64");
  assert.equal(received[0]?.body.payload, Buffer.from(bytes).toString("base64"));
  assert.deepEqual(job.payload, bytes);
  const text = json(200, { payload: "AAAA", encoding: "json" });
  const { url: other } = await serve(t, text);
  assert.equal((await new Towpath(other).jobs.get(ID)).payload, "AAAA");
  const said = json(200, { payload: "für \u{1F600}", encoding: "text" });
  const { url: third } = await serve(t, said);
  const { payload } = await new Towpath(third).jobs.get(ID);
  assert.deepEqual(payload, new TextEncoder().encode("für \u{1F600}"));
});

test("later ids sort behind earlier ones", async () => {
  const { newId } = await import("../src/ids.ts");
  const first = newId();
  await new Promise((resolve) => setTimeout(resolve, 2));
  const second = newId();

  assert.ok(first < second);
  const at = Number.parseInt(second.replaceAll("-", "").slice(0, 12), 16);
  assert.ok(Math.abs(Date.now() - at) < 60_000);
});
