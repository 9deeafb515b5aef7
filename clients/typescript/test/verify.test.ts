import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Webhook as Official } from "standardwebhooks";

import { Invalid, InvalidSignature, TowpathError, verify } from "../src/index.ts";

interface Vector {
  name: string;
  accepted: boolean;
  secrets: string[];
  now: number;
  headers: Record<string, string>;
  body: string;
}

const file = new URL("../../../tests/webhooks/vectors.json", import.meta.url);
const VECTORS = JSON.parse(readFileSync(file, "utf8")) as Vector[];
const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const BODY = '{"test": 2432232314}';
const isRefusal = (error: unknown) =>
  error instanceof InvalidSignature && error instanceof TowpathError && error.code === "invalid_signature";

function signedNow(body = BODY): Record<string, string> {
  const at = new Date();
  const signature = new Official(SECRET).sign("msg_1", at, body);
  return {
    "webhook-id": "msg_1",
    "webhook-timestamp": String(Math.floor(at.getTime() / 1000)),
    "webhook-signature": signature,
  };
}

for (const vector of VECTORS) {
  test(`a vector that all our verifiers share: ${vector.name}`, async (t) => {
    t.mock.timers.enable({ apis: ["Date"], now: vector.now * 1000 });
    const { headers, body, secrets } = vector;
    const received = verify(headers, body, secrets);
    if (!vector.accepted) return assert.rejects(received, isRefusal);
    assert.equal(new TextDecoder().decode((await received).body), body);
  });
}

test("what the official library signs is accepted, in every form of headers and body", async () => {
  const headers = signedNow();
  const bytes = new TextEncoder().encode(BODY);
  const node = { "Webhook-Id": headers["webhook-id"], ...headers, "x-other": undefined };
  for (const [names, body] of [
    [headers, BODY],
    [new Headers(headers), bytes],
    [node, bytes.buffer],
    [node, Buffer.from(BODY)],
  ] as const) {
    const webhook = await verify<{ test: number }>(names, body, [SECRET]);
    assert.equal(webhook.id, "msg_1");
    assert.equal(webhook.payload.test, 2432232314);
    assert.ok(Math.abs(Date.now() - webhook.at.getTime()) < 60_000);
  }
});

test("a body need not be JSON", async () => {
  const received = await verify(signedNow("text"), "text", SECRET);
  assert.equal(received.body.length, 4);
  assert.throws(() => received.payload, Invalid);
});

test("a body that was parsed before is refused", async () => {
  const parsed = JSON.parse(BODY) as string;
  await assert.rejects(verify(signedNow(), parsed, SECRET), isRefusal);
});

test("an error does not repeat the secret", async () => {
  await assert.rejects(verify(signedNow(), BODY, "whsec_c2hvcnQ"), (error: Error) => {
    return isRefusal(error) && !error.message.includes("c2hvcnQ");
  });
});

// A request that the Python sender has made, if a test gives one.
const given = process.env["TOWPATH_REQUEST"];
test("the official library accepts what Towpath sends", { skip: !given }, async () => {
  const { headers, body, secret } = JSON.parse(given ?? "") as {
    headers: Record<string, string>;
    body: string;
    secret: string;
  };
  new Official(secret).verify(body, headers);
  await verify(headers, body, secret);
});
