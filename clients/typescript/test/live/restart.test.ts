/** Events while the server is restarted; `tests/clients/test_typescript.py` does that. */

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import { superuser } from "./here.ts";

const LAST = process.env["TOWPATH_LAST"] ?? ""; // a file that is made after the last restart

test("a server that is restarted loses and doubles no event", async () => {
  const towpath = await superuser();
  const readers = [towpath, await superuser({ WebSocket: null })].map((client) => {
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
  assert.ok(readers[1]!.errors.length > 0); // it was away indeed

  async function publish(n: number): Promise<void> {
    for (;;) {
      const published = towpath.events.publish("restarted", n, { key: `${n}` });
      if (await published.then(() => true, () => pause(20))) return;
    }
  }
});
