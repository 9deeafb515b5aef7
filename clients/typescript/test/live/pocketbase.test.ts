import assert from "node:assert/strict";
import { test } from "node:test";

import PocketBase from "pocketbase";

import { Unauthorized, withJobs } from "../../src/index.ts";
import { email, newTopic, password, url } from "./here.ts";

test("US8: a PocketBase client gets jobs, and keeps what it has", async () => {
  const pb = withJobs(new PocketBase(url));
  await assert.rejects(pb.jobs.stats(), Unauthorized);

  await pb.collection("_superusers").authWithPassword(email, password);
  const topic = newTopic();
  const job = await pb.jobs.enqueue(topic, { userId: "123" });

  assert.equal((await pb.jobs.get(job.id)).status, "pending");
  assert.deepEqual(
    (await pb.jobs.list({ topic })).items.map(({ id }) => id),
    [job.id],
  );
  await pb.jobs.delete(job.id);
  pb.authStore.clear();
  await assert.rejects(pb.jobs.stats(), Unauthorized);
});

test("US8: PocketBase's own calls of a superuser are answered", async () => {
  const pb = new PocketBase(url);
  const user = { email: `${newTopic()}@example.com`, password, passwordConfirm: password };

  assert.equal((await pb.health.check()).code, 200);
  await pb.collection("_superusers").authWithPassword(email, password);
  assert.equal(pb.authStore.isSuperuser, true);
  pb.authStore.save(pb.authStore.token); // without the record, the token tells
  assert.equal(pb.authStore.isSuperuser, true);

  const { id } = await pb.collection("users").create(user);
  const everyone = await pb.collection("users").getFullList({ batch: 1 });
  assert.equal(everyone.filter((each) => each.id === id).length, 1);
  assert.deepEqual(await pb.collection("users").getFullList(), everyone);

  await pb.collection("users").authWithPassword(user.email, password);
  assert.equal(pb.authStore.isSuperuser, false);
  pb.authStore.save(pb.authStore.token);
  assert.equal(pb.authStore.isSuperuser, false);
});

test("an older client, and a server elsewhere", async () => {
  const older = withJobs({ baseUrl: url, authStore: { token: "" }, custom: 7 });
  assert.equal(older.custom, 7);
  await assert.rejects(older.jobs.stats(), Unauthorized);

  const elsewhere = withJobs(
    { baseURL: "http://pocketbase.example", authStore: { token: "" } },
    { url },
  );
  await assert.rejects(elsewhere.jobs.stats(), Unauthorized);
});
