/** What the page of a job computes, without a page: timeline, stream, commands. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

import type { Piece } from "../../../../clients/typescript/src/index.ts";
import { enqueueCommand, quoted } from "../../../../dashboard/src/pages/job/command.ts";
import { hasSpoken, heard, silent, textOf } from "../../../../dashboard/src/pages/job/said.ts";
import { timeline } from "../../../../dashboard/src/pages/job/timeline.ts";

const at = (seconds: number) => new Date(seconds * 1000).toISOString();
const text = (cursor: string, said: string): Piece => ({ kind: "text", text: said, cursor, at: "" });
const event = (cursor: string) => ({ kind: "event", cursor, type: "x", payload: 1, at: "" }) as Piece;
const again = (since: string): Piece => ({ kind: "try", try: 2, since, after: "crash", cursor: "9" });

test("tries lie in time as shares of the whole, with the waits between", () => {
  const tries = [
    { epoch: 1, startedAt: at(0), endedAt: at(10) },
    { epoch: 2, startedAt: at(40), endedAt: at(50) },
    { epoch: 3, startedAt: at(90), endedAt: null },
  ];
  const { begin, end, bars } = timeline(tries, 100_000);
  assert.deepEqual([begin, end], [0, 100_000]);
  assert.deepEqual(bars.map(({ from, width }) => [from, width]), [[0, 0.1], [0.4, 0.1], [0.9, 0.1]]);
  assert.deepEqual(bars.map(({ waited }) => waited), [null, 30_000, 40_000]);
});

test("a try without a beginning, and clocks that differ, give no negative spans", () => {
  const { bars } = timeline(
    [
      { epoch: 1, startedAt: null, endedAt: at(5) },
      { epoch: 2, startedAt: at(9), endedAt: at(8) },
    ],
    0,
  );
  assert.deepEqual(bars.map(({ took }) => took), [null, 0]);
  assert.ok(bars.every(({ width, from }) => width >= 0 && from >= 0));
});

test("another try drops what the lost one said after the cursor, text and events", () => {
  let spoken = silent();
  assert.equal(hasSpoken(spoken), false);
  for (const piece of [text("1", "kept "), event("2"), text("3", "lost"), event("4"), again("2"), text("9", "new")]) {
    spoken = heard(spoken, piece);
  }
  assert.equal(textOf(spoken), "kept new");
  assert.equal(spoken.eventCount, 1);
  assert.equal(spoken.epoch, 2);
  spoken = heard(spoken, { kind: "end", ended: "completed", cursor: "9" });
  assert.equal(spoken.ended, "completed");
});

test("100,000 tokens are joined at once", () => {
  let spoken = silent();
  for (let nth = 0; nth < 100_000; nth += 1) spoken = heard(spoken, text(String(nth), "a"));
  assert.equal(textOf(spoken).length, 100_000);
});

test("a quoted word is one word for a shell", () => {
  /** X3 */
  for (const word of ["plain", "", "it's", "$HOME `id` $(id)", '"', "a\nb", "\\", "!!", "*", "-x", "'; rm -rf ~; '"]) {
    const out = execFileSync("sh", ["-c", `printf '%s|' ${quoted(word)}`], { encoding: "utf8" });
    assert.equal(out, `${word}|`);
  }
});

test("the command of a job names its options", () => {
  const job = { topic: "mail", priority: 7, key: "it's", task: null, maxRetries: 2 };
  assert.equal(
    enqueueCommand(job, '{"a": 1}'),
    `towpath jobs enqueue mail '{"a": 1}' --priority 7 --max-retries 2 '--key=it'\\''s'`,
  );
});
