/** Which jobs of a new answer are new to a list, and not only moved up in it. */

import type { JobBrief } from "../../client.ts";

/**
 * How many found jobs are new among those that are shown.
 *
 * Where more follow, a job that leaves the page lets another one move up behind the last one shown:
 * that one is not new.
 */
export function newIn(found: readonly Pick<JobBrief, "id" | "seq">[], shown: readonly Pick<JobBrief, "id" | "seq">[], order: string, hasMore: boolean): number {
  const known = new Set(shown.map(({ id }) => id));
  const last = shown.at(-1)?.seq ?? 0;
  const lastKnown = found.map(({ id }) => known.has(id)).lastIndexOf(true);
  const isBefore = ({ seq }: Pick<JobBrief, "seq">, nth: number) =>
    order === "newest" ? seq > last : order === "oldest" ? seq < last : nth < lastKnown;
  return found.filter((job, nth) => !known.has(job.id) && (!hasMore || isBefore(job, nth))).length;
}
