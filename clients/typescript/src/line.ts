/** What brings the events of a channel: a WebSocket, server-sent events, or requests that wait. */

import type { Attachment, ChannelEvent } from "./types.ts";

const FIRST_WAIT = 250; // milliseconds
const LONGEST_WAIT = 30_000;
const LASTED = 5_000; // milliseconds after which a connection was no failure
const REFUSED_FOR = 300_000; // milliseconds, after which a line that was refused is tried again

/** Where a subscription begins: a cursor, or one of these. */
export type From = string | { last: number } | { since: Date | string };

export interface Wanted {
  channel: string;
  from: From;
  types: readonly string[] | undefined;
  /** A durable consumer, which begins at its last ack; `from` is for a new one. */
  consumer?: string | undefined;
  /** Of its attachment, once there is one. */
  generation?: number | undefined;
}

/** The right to read as a consumer, until another reader attaches. */
export interface Attached {
  cursor: string;
  generation: number;
  ack(cursor: string): Promise<void>;
}

/** Attaches and acks by requests. */
export interface Acking {
  attach(channel: string, consumer: string, options: { from: string }): Promise<Attachment>;
  ack(channel: string, consumer: string, cursor: string, generation: number): Promise<unknown>;
}

/** Events in a row: nothing is between `from` and `to` but these, and those that are not wanted. */
export interface Batch {
  from: string;
  to: string;
  items: ChannelEvent[];
}

export interface Sink {
  /** The server begins here; it may say so again. */
  begin(cursor: string): void;
  /** The consumer is attached, and the server begins at its last ack. */
  attach(attached: Attached): void;
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

/** What is wanted, as a request says it. */
export function queryOf({ from, types }: Wanted) {
  if (typeof from === "string") return { after: from, types };
  if ("last" in from) return { last: from.last, types };
  const since = from.since instanceof Date ? from.since.toJSON() : from.since;
  return { since: String(since), types };
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

/** How long to stay away after a connection. */
export class Pauses {
  #failed = 0; // times in a row

  /** Milliseconds after a connection that lasted so many, and asked for so many. */
  next(lasted: number, asked = 0): number {
    if (lasted >= LASTED) this.#failed = 0;
    return asked && lasted >= LASTED ? asked : Math.max(asked, backOff(this.#failed++));
  }

  end(): void {
    this.#failed = 0;
  }
}

/** Whether something between here and the server lets requests pass, and a line not. */
export class Refusals {
  readonly #most: number;
  #inARow = 0;
  #until = 0;

  /** After so many in a row, the line counts as refused for a while. */
  constructor(most: number) {
    this.#most = most;
  }

  get areTooMany(): boolean {
    return performance.now() < this.#until;
  }

  end(): void {
    this.#inARow = 0;
  }

  add(): void {
    this.#inARow += 1;
    if (this.#inARow < this.#most) return;
    this.#inARow = 0;
    this.#until = performance.now() + REFUSED_FOR;
  }
}

/** The channels that a line follows by requests, which it may interrupt. */
export class Readings {
  readonly #running = new Set<AbortController>();

  get size(): number {
    return this.#running.size;
  }

  /** Read until the signal aborts, or until all are interrupted. */
  async run<T>(signal: AbortSignal, read: (reading: AbortController) => Promise<T>): Promise<T> {
    const reading = new AbortController();
    const close = () => reading.abort(signal.reason);
    signal.addEventListener("abort", close);
    // Not every system has this event; where it comes, an old connection is dead or slow to die.
    if (!this.#running.size) globalThis.addEventListener?.("online", this.interrupt);
    this.#running.add(reading);
    try {
      return await read(reading);
    } catch (error) {
      reading.signal.throwIfAborted(); // with the reason, however the request has put it
      throw error;
    } finally {
      this.#running.delete(reading);
      if (!this.#running.size) globalThis.removeEventListener?.("online", this.interrupt);
      signal.removeEventListener("abort", close);
    }
  }

  readonly interrupt = (): void => {
    for (const each of this.#running) each.abort(new Interrupted());
  };
}
