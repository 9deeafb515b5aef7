/** Which jobs of an answer are new to a list, without a page. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { newIn } from "../../../../dashboard/src/pages/jobs/fresh.ts";

const jobs = (...numbers: number[]) => numbers.map((seq) => ({ id: String(seq), seq }));

test("a job that moves up from the next page is not new", () => {
  // Of 60 failed jobs the newest three are shown; one of these is requeued.
  assert.equal(newIn(jobs(60, 58, 57), jobs(60, 59, 58), "newest", true), 0);
  assert.equal(newIn(jobs(1, 3, 4), jobs(1, 2, 3), "oldest", true), 0);
  assert.equal(newIn(jobs(9, 1, 4), jobs(9, 7, 1), "next", true), 0);
});

test("a job that comes before the last one shown is new, and each one where no more follow", () => {
  assert.equal(newIn(jobs(62, 61, 60), jobs(60, 59, 58), "newest", true), 2);
  assert.equal(newIn(jobs(65, 64, 63), jobs(60, 59, 58), "newest", true), 3);
  assert.equal(newIn(jobs(60, 59, 50), jobs(60, 58, 50), "newest", true), 1); // it has failed just now
  assert.equal(newIn(jobs(9, 2, 7), jobs(9, 7, 1), "next", true), 1);
  assert.equal(newIn(jobs(1, 2, 3), jobs(1, 2), "oldest", false), 1);
});
