/** Where the tries of a job lie in time, as shares of the whole span. */

import type { Try } from "../../client.ts";

export interface Bar {
  /** The number of the try. */
  epoch: number;
  /** Shares of the span, from 0 to 1. */
  from: number;
  width: number;
  /** Milliseconds; null: the try has no beginning. */
  took: number | null;
  /** Milliseconds between the end of the try before and the beginning of this one. */
  waited: number | null;
}

export interface Timeline {
  begin: number;
  end: number;
  bars: Bar[];
}

/** The bars of tries, oldest first; a running try ends now. */
export function timeline(tries: readonly Pick<Try, "epoch" | "startedAt" | "endedAt">[], now: number): Timeline {
  const spans = tries.map(({ epoch, startedAt, endedAt }) => {
    const end = endedAt === null ? now : Date.parse(endedAt);
    const begin = startedAt === null ? end : Math.min(Date.parse(startedAt), end);
    return { epoch, begin, end, isTimed: startedAt !== null };
  });
  const begin = Math.min(...spans.map((span) => span.begin), Infinity);
  const end = Math.max(...spans.map((span) => span.end), -Infinity);
  const whole = Math.max(1, end - begin);
  const bars = spans.map((span, nth) => {
    const before = spans[nth - 1];
    return {
      epoch: span.epoch,
      from: (span.begin - begin) / whole,
      width: (span.end - span.begin) / whole,
      took: span.isTimed ? span.end - span.begin : null,
      waited: before && span.isTimed ? Math.max(0, span.begin - before.end) : null,
    };
  });
  return { begin, end, bars };
}
