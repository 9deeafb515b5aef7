/** What brings the events of a channel: a WebSocket, or requests that wait. */

import type { ChannelEvent } from "./types.ts";

const FIRST_WAIT = 250; // milliseconds
const LONGEST_WAIT = 30_000;

/** Where a subscription begins: a cursor, or one of these. */
export type From = string | { last: number } | { since: Date | string };

export interface Wanted {
  channel: string;
  from: From;
  types: readonly string[] | undefined;
}

/** Events in a row: nothing is between `from` and `to` but these, and those that are not wanted. */
export interface Batch {
  from: string;
  to: string;
  items: ChannelEvent[];
}

export interface Sink {
  /** The server begins here. */
  begin(cursor: string): void;
  /** Handle a batch; rejects if the subscription cannot go on with it. */
  take(batch: Batch): Promise<void>;
}

export interface Line {
  /**
   * Follow a channel to its end; resolves with how it ended.
   *
   * It settles only when no `take` is running, so that a subscription may follow again at once.
   */
  follow(wanted: Wanted, sink: Sink, signal: AbortSignal): Promise<string>;
}

/** The line has ended, and not the subscription: follow again at once, the line itself waits. */
export class Interrupted extends Error {
  constructor(cause?: unknown) {
    super("the line has ended", { cause });
  }
}

/** Milliseconds to wait before the next try: any time up to a bound that doubles. */
export function backOff(tried: number): number {
  return Math.random() * Math.min(FIRST_WAIT * 2 ** tried, LONGEST_WAIT);
}
