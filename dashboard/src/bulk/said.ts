/** Bulk acts in words. */

import type { BulkAct, BulkVerb } from "../client.ts";
import { LABELS } from "../pages/jobs/acts.ts";
import { described } from "../pages/jobs/filters.ts";
import { atLeast, counted } from "../words.ts";

const DONE: Record<BulkVerb, string> = {
  requeue: "Re-queued",
  kick: "Made ready",
  cancel: "Cancelled",
  delete: "Deleted",
};

const REFUSALS: Record<string, string> = {
  key_taken: "another job has the key now",
  invalid_state: "not in a state for this",
  not_found: "gone",
};

/** "Re-queue 1,000 jobs". */
export function intent(verb: BulkVerb, count: number, isExact: boolean): string {
  return `${LABELS[verb]} ${isExact ? counted(count, "job") : `${atLeast(count, isExact)} jobs`}`;
}

/** Which jobs an act is for. */
export function about({ filter }: BulkAct): string {
  return filter.ids ? "chosen one by one" : described(filter);
}

/** What came of an act that has ended. */
export function outcome({ verb, state, done, count, exact }: BulkAct): string {
  if (state === "done") return `${DONE[verb]} ${counted(done, "job")}.`;
  if (!done) return "Undone: no job was changed.";
  return `Stopped: ${DONE[verb].toLowerCase()} ${counted(done, "job")} of ${atLeast(count, exact)}.`;
}

/** Why a job is left as it is, by the code of its refusal. */
export function refusal(code: string): string {
  return REFUSALS[code] ?? code;
}
