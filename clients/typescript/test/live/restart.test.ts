/** Events and streams while the server is restarted; `tests/clients/test_typescript.py` does that. */

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { suite, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import { lines, newTopic, superuser } from "./here.ts";

const LAST = process.env["TOWPATH_LAST"] ?? ""; // a file that is made after the last restart

suite("a server is restarted", { concurrency: true }, () => {
  test("which loses and doubles no event", async () => {
    const towpath = await superuser();
    const readers = Object.values(await lines()).map((client) => {
      const seen: unknown[] = [];
      const errors: unknown[] = [];
      const options = { onError: (error: unknown) => errors.push(error) };
      const { done } = client.events.subscribe("restarted", options, async ({ payload }) => {
        await pause(1);
        seen.push(payload);
      });
      return { seen, errors, done };
    });

    let published = 0;
    for (; !existsSync(LAST); published += 1) await publish(published);
    await towpath.events.close("restarted");

    for (const { seen, done } of readers) {
      assert.equal(await done, "closed");
      assert.deepEqual(seen, Array.from({ length: published }, (_, n) => n));
    }
    // The server was away indeed; a reader that polls may not have asked meanwhile.
    assert.ok(readers.some(({ errors }) => errors.length > 0));

    async function publish(n: number): Promise<void> {
      for (;;) {
        const published = towpath.events.publish("restarted", n, { key: `${n}` });
        if (await published.then(() => true, () => pause(20))) return;
      }
    }
  });

  test("which loses and doubles no word of a job", async (t) => {
    const towpath = await superuser();
    const topic = newTopic();
    const { id } = await towpath.jobs.enqueue(topic);
    const texts = Object.values(await lines()).map(async (client) => {
      const stream = client.jobs.stream(id);
      const kinds = new Set<string>();
      for await (const { kind } of stream) kinds.add(kind);
      assert.deepEqual([...kinds], ["text", "end"]);
      return stream.text;
    });
    let said = "";
    const worker = towpath.worker(topic, async (_, { stream }) => {
      for (let n = 0; n === 0 || !existsSync(LAST); n += 1) {
        said += `${n} `;
        await stream(`${n} `);
        await pause(5);
      }
    });
    t.after(() => worker.stop());

    for (const text of await Promise.all(texts)) assert.equal(text, said);
  });
});
