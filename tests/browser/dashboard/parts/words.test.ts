/** Numbers, durations and times in words, without a page. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { atLeast, counted, depth, duration, number, percent, plain, relative, short } from "../../../../dashboard/src/words.ts";

const NOW = Date.parse("2026-11-18T10:00:00Z");
const MINUTE = 60_000;

test("numbers are grouped, and count their noun", () => {
  assert.equal(number(48210), "48,210");
  assert.equal(counted(1, "job"), "1 job");
  assert.equal(counted(1204, "job"), "1,204 jobs");
  assert.equal(percent(0.9917), "99.2 %");
});

test("a count that is cut says that there may be more", () => {
  assert.deepEqual([atLeast(1204, true), atLeast(100_000, false)], ["1,204", "100,000+"]);
  // One topic of 20 with 350,000 ready jobs: each of its counts ends at 5,000.
  const cut = { ready: 5000, delayed: 3, blocked: 0, buried: 4999, exact: false };
  assert.deepEqual([cut.ready, cut.delayed, cut.blocked, cut.buried].map((each) => depth(each, cut)), ["5,000+", "3", "0", "4,999"]);
  assert.equal(depth(5000, { ...cut, exact: true }), "5,000");
});

test("durations have two units at most", () => {
  assert.deepEqual(
    [0, 35, 1200, 12_400, 4 * MINUTE + 3000, 125 * MINUTE, 76 * 60 * MINUTE, -5].map(duration),
    ["0 ms", "35 ms", "1.2 s", "12 s", "4 min 3 s", "2 h 5 min", "3 d 4 h", "0 ms"],
  );
});

test("instants are relative for a day", () => {
  assert.equal(relative(NOW - 8000, NOW), "8 s ago");
  assert.equal(relative(NOW + 4 * MINUTE, NOW), "in 4 min");
  assert.equal(relative(NOW - 300, NOW), "now");
  assert.match(relative(NOW - 48 * 60 * MINUTE, NOW), /^16 Nov 2026, \d\d:\d\d:\d\d$/);
});

test("an id is shown by its end", () => {
  assert.equal(short("0199c1de-7d52-7c7f-b0f4-4f5a25678903"), "…5678903");
});

test("foreign text has no colours of a terminal, and shows its control signs", () => {
  assert.equal(plain("\u001b[1;31mred\u001b[0m \u001b]8;;http://x\u0007link"), "red link");
  assert.equal(plain("a\u0000b\u001bc\u007f\nd\te"), "a␀b␛c␡\nd\te");
  assert.equal(plain("by \u202enna\u202c and \u2067x\u2069"), "by \ufffdnna\ufffd and \ufffdx\ufffd");
});
