/** The stream of a job as a loop reads it: text, events, tries and the end. */

import { NotFound } from "./errors.ts";
import type { Events } from "./events.ts";
import { START, type SubscribeOptions, type Subscription } from "./subscription.ts";
import type { ChannelEvent } from "./types.ts";

const TEXT = "text"; // the types of events, as the server names them
const TRY = "towpath.try";

/** Text that the job streams, joined where pieces follow each other. */
export interface TextPiece {
  kind: "text";
  text: string;
  cursor: string;
  at: string;
}

/** An event that the job publishes. */
export type EventPiece<Payload = unknown> = ChannelEvent<Payload> & { kind: "event" };

/** Another try begins to speak: drop what came after the cursor `since`. */
export interface TryPiece {
  kind: "try";
  /** The epoch of its lease; null if it is not known. */
  try: number | null;
  since: string;
  /** How the try before ended; `reset`: the job was requeued, or a backup was restored. */
  after: "crash" | "failure" | "release" | "reset";
  cursor: string;
}

/** The job has ended for good. It is the last piece. */
export interface EndPiece {
  kind: "end";
  ended: "completed" | "failed" | "cancelled" | "expired" | "deleted";
  cursor: string;
}

export type Piece<Payload = unknown> = TextPiece | EventPiece<Payload> | TryPiece | EndPiece;

export type StreamOptions = Pick<
  SubscribeOptions,
  "from" | "signal" | "remember" | "cursors" | "onError"
>;

/** What the runs of a job say. It is read once, by a loop; leaving the loop unsubscribes. */
export class JobStream<Payload = unknown> implements AsyncIterable<Piece<Payload>> {
  /** The text of the current try, with that of the piece in hand. */
  text = "";
  readonly #pieces: AsyncGenerator<Piece<Payload>, void, undefined>;
  #said: { cursor: string; text: string }[] = [];

  constructor(events: Events, job: string, options: StreamOptions) {
    this.#pieces = this.#read(events, job, options);
  }

  [Symbol.asyncIterator](): AsyncGenerator<Piece<Payload>, void, undefined> {
    return this.#pieces;
  }

  async *#read(events: Events, job: string, options: StreamOptions) {
    const pieces = new Handover<Piece<Payload>>();
    const onReset = async ({ oldest }: { oldest: string }) => {
      await pieces.give({ kind: "try", try: null, since: START, after: "reset", cursor: oldest });
      return oldest;
    };
    const subscription = events.subscribe<Payload>(`job:${job}`, { ...options, onReset }, (event) => {
      return pieces.give(pieceOf(event));
    });
    const ended = endOf(subscription);
    const end = () => pieces.end(ended);
    ended.then(end, end);
    try {
      for (let piece = await pieces.next(); piece; piece = await pieces.next()) {
        this.#note(piece);
        yield piece;
        if (piece.kind === "end") return;
      }
    } finally {
      pieces.leave(); // which ends the subscription, as a handler that throws
    }
  }

  #note(piece: Piece<Payload>): void {
    if (piece.kind === "text") {
      this.#said.push(piece);
      this.text += piece.text;
    } else if (piece.kind === "try") {
      this.#said = this.#said.filter(({ cursor }) => cursor <= piece.since);
      this.text = this.#said.map(({ text }) => text).join("");
    }
  }
}

function pieceOf<Payload>(event: ChannelEvent<Payload>): Piece<Payload> {
  const { type, payload, cursor, at } = event;
  if (type === TEXT && typeof payload === "string") return { kind: "text", text: payload, cursor, at };
  if (type !== TRY) return { ...event, kind: "event" };
  const { towpath } = payload as { towpath: Pick<TryPiece, "try" | "since" | "after"> };
  return { kind: "try", ...towpath, cursor };
}

/** Resolves when a subscription to the stream of a job is over; undefined: it was closed. */
async function endOf(subscription: Subscription): Promise<EndPiece | undefined> {
  let ended: string | null;
  try {
    ended = await subscription.done;
  } catch (error) {
    if (!(error instanceof NotFound) || subscription.cursor === undefined) throw error;
    ended = "deleted"; // while this client was away
  }
  if (ended === null) return undefined;
  const cursor = subscription.cursor ?? START;
  return { kind: "end", ended: ended as EndPiece["ended"], cursor };
}

/** Hands items over to a loop, one at a time. */
class Handover<Item> {
  #given = new Later<Item | undefined>();
  #taken: Later<void> | undefined;

  /** Resolves when the loop asks for the next item; rejects if it is left with this one. */
  give(item: Item): Promise<void> {
    this.#taken = new Later();
    this.#given.resolve(item);
    return this.#taken.promise;
  }

  /** Give the last item, or none. */
  end(last: Promise<Item | undefined>): void {
    this.#given.resolve(last);
  }

  async next(): Promise<Item | undefined> {
    this.#taken?.resolve();
    const item = await this.#given.promise;
    this.#given = new Later();
    return item;
  }

  leave(): void {
    this.#taken?.reject(new Error("the loop was left"));
  }
}

/** A promise, and what settles it. */
class Later<Value> {
  resolve!: (value: Value | Promise<Value>) => void;
  reject!: (error: unknown) => void;
  readonly promise = new Promise<Value>((resolve, reject) => {
    this.resolve = resolve;
    this.reject = reject;
  });

  constructor() {
    this.promise.catch(() => undefined); // the loop may have been left before
  }
}
