/** What the stream of a job has said so far. */

import type { ChannelEvent, Piece } from "../../client.ts";

const MOST_EVENTS = 200; // that are shown

export interface Spoken {
  pieces: { cursor: string; text: string }[];
  /** The newest ones. */
  events: Pick<ChannelEvent, "cursor" | "type" | "payload" | "at">[];
  eventCount: number;
  /** The epoch of the try that speaks; null: the first one, or not known. */
  epoch: number | null;
  /** How many times another try has begun to speak. */
  restarts: number;
  /** How the try before ended. */
  after: string | null;
  ended: string | null;
}

/** A stream that has said nothing yet. */
export function silent(): Spoken {
  return { pieces: [], events: [], eventCount: 0, epoch: null, restarts: 0, after: null, ended: null };
}

/**
 * Add one piece. Another try drops what a lost one has said after the cursor `since`.
 *
 * The list of pieces grows in place: a copy for each of 100,000 tokens would take minutes.
 */
export function heard(before: Spoken, piece: Piece): Spoken {
  switch (piece.kind) {
    case "text":
      before.pieces.push(piece);
      return { ...before };
    case "event":
      return {
        ...before,
        events: [...before.events.slice(1 - MOST_EVENTS), piece],
        eventCount: before.eventCount + 1,
      };
    case "try": {
      const isKept = ({ cursor }: { cursor: string }) => cursor <= piece.since;
      const events = before.events.filter(isKept);
      return {
        ...before,
        pieces: before.pieces.filter(isKept),
        events,
        eventCount: before.eventCount - (before.events.length - events.length),
        epoch: piece.try,
        restarts: before.restarts + 1,
        after: piece.after,
      };
    }
    case "end":
      return { ...before, ended: piece.ended };
  }
}

export function textOf({ pieces }: Spoken): string {
  return pieces.map(({ text }) => text).join("");
}

/** Whether there is something to show. */
export function hasSpoken({ pieces, eventCount, restarts }: Spoken): boolean {
  return pieces.length > 0 || eventCount > 0 || restarts > 0;
}
