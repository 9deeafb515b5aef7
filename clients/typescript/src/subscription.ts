/** A subscription: calls its handler with each event once and in order, on whatever line. */

import {
  Conflict,
  CursorReset,
  Forbidden,
  Invalid,
  NotFound,
  TowpathError,
  Unauthorized,
} from "./errors.ts";
import {
  type Attached,
  type Batch,
  type From,
  Interrupted,
  type Line,
  type Sink,
  backOff,
} from "./line.ts";
import type { Lines } from "./lines.ts";
import { decoded } from "./payloads.ts";
import { sleep } from "./transport.ts";
import type { ChannelEvent } from "./types.ts";

export const START = "0000000000000000_0000000000000000"; // of a channel that does not exist yet
const ACK_EVERY = 1_000; // milliseconds, within a batch
// The same subscription would be refused again.
const FINAL = [Invalid, Unauthorized, Forbidden, NotFound, Conflict];

export type EventHandler<Payload = unknown> = (event: ChannelEvent<Payload>) => unknown;

/** Where cursors are kept, such as `localStorage`. */
export interface CursorStore {
  getItem(name: string): string | null;
  setItem(name: string, cursor: string): void;
}

export interface SubscribeOptions {
  /** A cursor, `"start"` (the default), `"now"`, `{ last: 20 }` or `{ since: new Date(…) }`. */
  from?: From | undefined;
  /** Only events of these types; `order.*` stands for all that begin with `order.`. */
  types?: readonly string[] | undefined;
  /** Closes the subscription. */
  signal?: AbortSignal | undefined;
  /**
   * Read as a durable consumer: the server keeps its place under this name, and it goes on from
   * its last ack. What the handler has done is acked. `from` is for a consumer that is new.
   */
  consumer?: string | undefined;
  /** Keep the cursor under this name, and begin there next time instead of at `from`. */
  remember?: string | undefined;
  /** Where `remember` keeps it; by default in the `sessionStorage` of the tab, if there is one. */
  cursors?: CursorStore | undefined;
  /**
   * Go on there if the events behind the cursor are gone; a function gives the cursor, when it has
   * read again what it needs. Without it, `done` rejects.
   */
  onReset?: "oldest" | "head" | ((reset: CursorReset) => string | Promise<string>) | undefined;
  /** Called with errors after which the subscription goes on by itself. */
  onError?: ((error: unknown) => void) | undefined;
}

export class Subscription {
  readonly channel: string;
  /**
   * Resolves with how the channel ended, or with null after `close`. Rejects if the handler
   * throws, if the right to read is missing or lost, with `CursorReset`, and with
   * `ConsumerFenced` if another reader attaches as the same consumer.
   */
  readonly done: Promise<string | null>;
  readonly #closing = new AbortController();
  readonly #position: Position;

  constructor(lines: Lines, channel: string, options: SubscribeOptions, handler: EventHandler) {
    check(options);
    this.channel = channel;
    this.#position = new Position(channel, options);
    const { signal } = options;
    const close = () => this.close();
    if (signal?.aborted) close();
    signal?.addEventListener("abort", close);
    const leave = lines.join();
    const run = new Run(lines, this.#position, options, handler, this.#closing.signal);
    this.done = run.toTheEnd().finally(() => {
      signal?.removeEventListener("abort", close);
      leave();
    });
  }

  /** The cursor of the last event that was handled: pass it as `from` to go on behind it. */
  get cursor(): string | undefined {
    return this.#position.cursor;
  }

  /** Handle no further event. `done` resolves once the handler has returned. */
  close(): void {
    this.#closing.abort();
  }
}

/** The cursor of a subscription, which may outlive it. */
class Position {
  readonly channel: string;
  cursor: string | undefined;
  readonly #store: CursorStore | undefined;
  readonly #name: string;
  readonly #report: (error: unknown) => void;

  constructor(channel: string, options: SubscribeOptions) {
    const { remember, cursors, from, consumer, onError } = options;
    this.channel = channel;
    this.#name = `towpath:${remember}`;
    this.#report = onError ?? (() => undefined);
    this.#store = remember === undefined ? undefined : (cursors ?? storeOfTheTab());
    const isCursor = typeof from === "string" && !["start", "now"].includes(from);
    // Where a consumer stands, the server knows.
    const given = isCursor && consumer === undefined ? from : undefined;
    this.cursor = this.#store?.getItem(this.#name) ?? given;
  }

  move(cursor: string): void {
    this.cursor = cursor;
    try {
      this.#store?.setItem(this.#name, cursor);
    } catch (error) {
      this.#report(error); // it is full
    }
  }

  isBehind(cursor: string): boolean {
    return this.cursor === undefined || this.cursor < cursor;
  }

  /** Refuse a batch that does not join what was handled before. */
  check(from: string): void {
    if (this.cursor === undefined || this.cursor === START) return;
    if (numberOf(from) <= numberOf(this.cursor)) return;
    const message = `events of channel ${this.channel} are missing: ${this.cursor} to ${from}`;
    throw new TowpathError(message, { code: "missing_events" });
  }
}

/** What a fork and its source have in common: the number of the event, without that of the channel. */
function numberOf(cursor: string): string {
  return cursor.slice(cursor.indexOf("_") + 1);
}

class Run implements Sink {
  readonly #line: Line;
  readonly #position: Position;
  readonly #options: SubscribeOptions;
  readonly #handler: EventHandler;
  readonly #closing: AbortSignal;
  #thrown: { error: unknown } | undefined; // by the handler
  #failed = 0; // times in a row, without an event in between
  #attached: Attached | undefined;
  #acked: string | undefined;
  #ackedAt = 0;

  constructor(
    line: Line,
    position: Position,
    options: SubscribeOptions,
    handler: EventHandler,
    closing: AbortSignal,
  ) {
    this.#line = line;
    this.#position = position;
    this.#options = options;
    this.#handler = handler;
    this.#closing = closing;
  }

  async toTheEnd(): Promise<string | null> {
    const { channel } = this.#position;
    const { from = "start", types, consumer } = this.#options;
    while (!this.#closing.aborted) {
      try {
        const place = { from: this.#position.cursor ?? from, types };
        const wanted = { channel, ...place, consumer, generation: this.#attached?.generation };
        return await this.#line.follow(wanted, this, this.#closing);
      } catch (error) {
        if (this.#thrown) throw this.#thrown.error;
        if (!this.#closing.aborted) await this.#recover(error);
      }
    }
    return null;
  }

  begin(cursor: string): void {
    if (this.#position.cursor === undefined) this.#position.move(cursor);
  }

  attach(attached: Attached): void {
    this.#attached = attached;
    this.#acked = attached.cursor;
    this.#ackedAt = performance.now();
    this.begin(attached.cursor);
  }

  async take({ from, to, items }: Batch): Promise<void> {
    this.#position.check(from);
    try {
      // A request cannot say that no type is wanted.
      for (const event of this.#options.types?.length === 0 ? [] : items) {
        this.#closing.throwIfAborted();
        if (this.#position.isBehind(event.cursor)) await this.#handle(event);
        if (performance.now() - this.#ackedAt >= ACK_EVERY) await this.#ack();
      }
      if (this.#position.isBehind(to)) this.#position.move(to);
    } finally {
      await this.#ack();
    }
  }

  async #ack(): Promise<void> {
    const { cursor } = this.#position;
    if (!this.#attached || cursor === undefined || cursor === this.#acked) return;
    await this.#attached.ack(cursor);
    this.#acked = cursor;
    this.#ackedAt = performance.now();
  }

  async #handle(event: ChannelEvent): Promise<void> {
    try {
      await this.#handler(decoded(event));
    } catch (error) {
      this.#thrown = { error };
      throw error;
    }
    this.#position.move(event.cursor);
    this.#failed = 0;
  }

  /** Wait until it makes sense to follow again; rejects if it never does. */
  async #recover(error: unknown): Promise<void> {
    const { onReset, onError } = this.#options;
    if (error instanceof Interrupted) {
      if (error.cause !== undefined) onError?.(error.cause);
      return;
    }
    if (error instanceof CursorReset && onReset) {
      this.#position.move(typeof onReset === "string" ? error[onReset] : await onReset(error));
    } else if (FINAL.some((kind) => error instanceof kind)) throw error;
    onError?.(error);
    await sleep(backOff(this.#failed++), this.#closing).catch(() => undefined);
  }
}

function check({ consumer, remember, onReset, from }: SubscribeOptions): void {
  if (consumer === undefined) return;
  const wrong =
    remember !== undefined || onReset !== undefined
      ? "the server keeps the place of a `consumer`: leave `remember` and `onReset` out"
      : typeof from === "object" && "a new `consumer` begins at a cursor, `start` or `now`";
  if (wrong) throw new Invalid(wrong, { code: "invalid" });
}

function storeOfTheTab(): CursorStore | undefined {
  try {
    return globalThis.sessionStorage;
  } catch {
    return undefined; // the browser keeps nothing for this page
  }
}
