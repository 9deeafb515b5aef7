import assert from "node:assert/strict";
import { type IncomingHttpHeaders, type Server, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";

import { Conflict, Forbidden, Invalid, NotFound, type Towpath, verify } from "../../src/index.ts";
import { eventually, newTopic, newUser, superuser } from "./here.ts";

const towpath: Towpath = await superuser();
const received: { headers: IncomingHttpHeaders; body: string }[] = [];
let server: Server;
let url: string;

before(async () => {
  server = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk) => (body += chunk));
    request.on("end", () => {
      received.push({ headers: request.headers, body });
      response.writeHead(request.url?.endsWith("?dead") ? 500 : 204).end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
});

after(() => {
  server.closeAllConnections();
  server.close();
});

test("WH-2: an event is delivered, signed, and seen from here", async () => {
  const channel = newTopic();
  const made = await towpath.webhooks.create({
    channel, url, types: ["order.*"], headers: { "x-tenant": "7" }, description: "a shop",
  });
  const event = await towpath.events.publish(channel, { total: 9 }, { type: "order.paid" });

  const request = await eventually(async () => find(event.id));

  assert.equal(request.headers["x-tenant"], "7");
  const genuine = await verify(request.headers as Record<string, string>, request.body, made.secret);
  assert.equal(genuine.id, event.id);
  const done = { subscription: made.id, status: "Completed" } as const;
  const [saga] = await eventually(async () => {
    const found = await towpath.webhooks.sagas.list(done);
    return found.length > 0 && found;
  });
  assert.equal(saga?.event, event.id);
  const [attempt] = await towpath.webhooks.sagas.attempts(saga.id);
  assert.equal(attempt?.responseStatus, 204);
  await assert.rejects(towpath.webhooks.sagas.resend(saga.id), Conflict);
  assert.equal(await towpath.webhooks.preview(made.id, { status: "Completed" }), 1);
  const again = await towpath.webhooks.sagas.resend(saga.id, { confirm: true });
  assert.equal(again.replayOf, saga.id);
  assert.equal((await towpath.webhooks.sagas.get(again.id)).event, event.id);
});

test("a subscription is changed, held, rotated and deleted", async () => {
  const channel = newTopic();
  const { id, secret } = await towpath.webhooks.create({ channel, url });
  assert.match(secret, /^whsec_/);
  assert.equal((await towpath.webhooks.update(id, { timeout: 5, rate: "10/s" })).pace, 0.1);
  assert.equal((await towpath.webhooks.get(id)).timeout, 5);
  assert.deepEqual(
    (await towpath.webhooks.list({ channel })).items.map((each) => each.id),
    [id],
  );
  assert.equal(await towpath.webhooks.pause(id), 0);
  await assert.rejects(towpath.webhooks.ping(id), Conflict);
  assert.equal((await towpath.webhooks.resume(id)).paused, false);
  assert.equal((await towpath.webhooks.enable(id)).id, id);
  assert.notEqual(await towpath.webhooks.rotate(id, { overlap: 60 }), secret);
  const ping = await towpath.webhooks.ping(id);
  assert.equal(ping.type, "ping");
  assert.equal((await towpath.webhooks.health(id)).failures, 0);
  await towpath.webhooks.delete(id);
  await assert.rejects(towpath.webhooks.get(id), NotFound);
});

test("WH-8: a dead letter is read, requeued and deleted", async () => {
  const channel = newTopic();
  const { id } = await towpath.webhooks.create({ channel, url: `${url}?dead`, waits: [] });
  const event = await towpath.events.publish(channel, { n: 1 });
  const [letter] = await eventually(async () => {
    const found = await towpath.webhooks.deadLetters.list({ subscription: id });
    return found.length > 0 && found;
  });
  assert.equal(letter?.errorCode, "http_500");
  const whole = await towpath.webhooks.deadLetters.get<{ n: number }>(letter.id);
  assert.deepEqual(whole.payload, { n: 1 });
  assert.equal(await towpath.webhooks.preview(id), 1);
  const since = new Date(Date.now() + 3_600_000);
  assert.equal(await towpath.webhooks.preview(id, { since }), 0);

  const saga = await towpath.webhooks.deadLetters.requeue(letter.id);

  assert.equal(saga.event, event.id);
  await towpath.webhooks.deadLetters.delete(letter.id);
  await assert.rejects(towpath.webhooks.deadLetters.get(letter.id), NotFound);
  assert.equal((await towpath.webhooks.replay(id, { status: "Cancelled" })).count, 0);
  await assert.rejects(towpath.webhooks.sagas.cancel(2 ** 40), NotFound);
});

test("what is wrong, and what is not allowed, is told", async () => {
  const channel = newTopic();
  await assert.rejects(towpath.webhooks.create({ channel, url: "https://10.0.0.1/" }), Invalid);
  await assert.rejects(towpath.webhooks.create({ channel, url: "ftp://example.com/" }), Invalid);
  const user = await newUser();
  await assert.rejects(user.webhooks.create({ channel, url }), Forbidden);
  await assert.rejects(user.webhooks.list(), Forbidden);
});

function find(id: string) {
  return received.find((each) => each.headers["webhook-id"] === id);
}
