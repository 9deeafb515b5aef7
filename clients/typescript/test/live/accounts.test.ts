import assert from "node:assert/strict";
import { test } from "node:test";

import {
  type AccountRecord,
  Forbidden,
  Invalid,
  NotFound,
  Towpath,
  Unauthorized,
} from "../../src/index.ts";
import { email, newTopic, newUser, password, superuser, url } from "./here.ts";

const towpath = await superuser();

test("a login tells who it is, and every later call is made by it", async () => {
  const told: [string, AccountRecord | null][] = [];
  const client = new Towpath(url);
  const forget = client.onAuthChange((token, record) => told.push([token, record]));

  const login = await client.authWithPassword(email, password, { collection: "_superusers" });

  assert.equal(login.record.email, email);
  assert.equal(client.token, login.token);
  assert.deepEqual(client.record, login.record);
  assert.deepEqual(told, [[login.token, login.record]]);
  await client.jobs.stats();

  await client.authRefresh();
  assert.equal(told.length, 2);
  forget();
  const { token } = client;
  await client.logout();
  assert.equal(client.token, "");
  assert.equal(client.record, null);
  assert.equal(told.length, 2);
  await assert.rejects(new Towpath(url, { token }).jobs.stats(), Unauthorized);
});

test("a superuser learns when its login ends, and which server this is", async () => {
  const client = await superuser();

  const me = await client.me();

  assert.equal(me.record.email, email);
  assert.ok(new Date(me.expiresAt) > new Date());
  assert.match(me.version, /^\d/);
  assert.ok(["sqlite", "postgresql", "memory"].includes(me.database.kind));
  assert.deepEqual(client.record, me.record);
  await assert.rejects(new Towpath(url).me(), Unauthorized);
});

test("a kept token is as good as a login", async () => {
  const again = new Towpath(url, { token: (await superuser()).token });

  const { record } = await again.authRefresh({ collection: "_superusers" });

  assert.equal(record.email, email);
  assert.deepEqual(again.record, record);
});

test("a wrong password is refused, and nobody is logged in", async () => {
  const client = new Towpath(url);

  await assert.rejects(client.authWithPassword("nobody@example.com", "wrong"), (error) => {
    return error instanceof Invalid && error.code === "login_refused";
  });
  assert.equal(client.token, "");
});

test("a login by cookie leaves no token in the hands of scripts", async () => {
  const client = new Towpath(url);

  await client.authWithPassword(email, password, { collection: "_superusers", cookie: true });

  assert.equal(client.token, "");
  assert.equal(client.record?.email, email);
});

test("users are made, found, changed and deleted", async () => {
  const users = towpath.collection("users");
  const made = await users.create({
    email: `${newTopic()}@example.com`,
    password: "correct horse",
    name: "Ann",
    plan: "pro",
  });

  assert.equal(made["plan"], "pro");
  assert.equal((await users.get(made.id)).name, "Ann");
  assert.equal((await users.update(made.id, { name: "Bea" })).name, "Bea");
  const page = await users.list({ page: 1, perPage: 1 });
  assert.equal(page.items.length, 1);
  assert.ok(page.totalItems >= 1);
  await users.delete(made.id);
  await assert.rejects(users.get(made.id), NotFound);
});

test("rules decide what a user may enqueue, at once", async () => {
  const user = await newUser();
  const topic = newTopic();
  const before = await towpath.access.get();
  await assert.rejects(user.jobs.enqueue(topic, 1), Forbidden);

  const rules = { enqueue_rule: "@request.auth.id != ''" };
  const now = await towpath.access.set({ topics: { ...before.topics, [topic]: rules } });

  assert.equal(now.topics[topic]?.enqueue_rule, rules.enqueue_rule);
  assert.equal((await user.jobs.enqueue(topic, 1)).topic, topic);
  await assert.rejects(new Towpath(url).jobs.enqueue(topic, 1), Unauthorized);
  const wrong = towpath.access.set({
    topics: { [topic]: { enqueue_rule: "@request.auth.id = " } },
  });
  await assert.rejects(wrong, (error) => {
    assert.ok(error instanceof Invalid);
    assert.equal(error.code, "invalid_rule");
    assert.equal(typeof error.details["position"], "number");
    return true;
  });
});

test("a key may do what its scopes and topics say, until it is revoked", async () => {
  const topic = newTopic();
  const key = await towpath.keys.create({ name: topic, scopes: ["enqueue"], topics: [topic] });
  const client = new Towpath(url, { token: key.secret });

  await client.jobs.enqueue(topic, 1);
  await assert.rejects(client.jobs.enqueue(newTopic(), 1), Forbidden);
  await assert.rejects(client.jobs.reserve([topic]), Forbidden);
  const listed = (await towpath.keys.list()).find((each) => each.id === key.id);
  assert.equal(listed?.name, topic);
  assert.ok(!("secret" in listed));
  await towpath.keys.revoke(key.id);
  await assert.rejects(client.jobs.enqueue(topic, 1), Unauthorized);
});

test("workers that live are listed", async () => {
  assert.ok(Array.isArray(await towpath.workers.list()));
});
