/** For superusers: what happens on a server, as it happens. */

import { Forbidden, NetworkError, Unauthorized, errorOfFrame } from "./errors.ts";
import { Pauses } from "./line.ts";
import { MEDIA, Messages, OPENING, SILENCE, within } from "./sse.ts";
import { type Transport, sleep } from "./transport.ts";
import type { BulkAct, LiveTopic } from "./types.ts";

/** What is told; a page asks again for the rows that it shows. */
export interface LiveHandler {
  /** Counts of all topics at first (`isFirst`), then of those that have changed. */
  counts?(topics: LiveTopic[], gone: string[], isFirst: boolean): void;
  /** Jobs of these topics have changed. */
  changed?(topics: string[]): void;
  /** A bulk act was made, has moved or has ended. */
  bulk?(act: BulkAct): void;
  /** A sign of life; `countedAt` says how old the counts are. */
  beat?(countedAt: string | null): void;
  /** Whether there is a stream; without one, a page asks by itself. */
  connected?(isConnected: boolean, error?: Error): void;
}

interface LiveFrame {
  counts?: { at: string; topics: LiveTopic[]; gone: string[] };
  changed?: { topics: string[] };
  bulk?: BulkAct;
  beat?: { at: string; countedAt: string | null };
  reset?: { reason: string };
  bye?: { code: string; after: number };
}

/** Follow a server until the signal aborts; rejects when the login has ended. */
export async function follow(
  transport: Transport,
  handler: LiveHandler,
  signal: AbortSignal,
): Promise<void> {
  const pauses = new Pauses();
  while (!signal.aborted) {
    const openedAt = performance.now();
    let asked = 0;
    try {
      asked = await once(transport, handler, signal);
      handler.connected?.(false);
    } catch (error) {
      if (signal.aborted) return;
      handler.connected?.(false, error as Error);
      if (error instanceof Unauthorized || error instanceof Forbidden) throw error;
    }
    await sleep(pauses.next(performance.now() - openedAt, asked), signal).catch(() => undefined);
  }
}

/** Read one answer to its end; returns the milliseconds after which to come back. */
async function once(
  transport: Transport,
  handler: LiveHandler,
  signal: AbortSignal,
): Promise<number> {
  const reading = new AbortController();
  const close = () => reading.abort(signal.reason);
  signal.addEventListener("abort", close);
  const silent = (limit: number) => () => {
    const message = `no sign of life from ${transport.url} for ${limit} ms`;
    reading.abort(new NetworkError(message, { code: "silent" }));
  };
  try {
    const call = { headers: { Accept: MEDIA }, signal: reading.signal };
    const { body } = await within(OPENING, transport.open("/api/live", call), silent(OPENING));
    const reader = body!.getReader();
    const messages = new Messages();
    let isFirst = true;
    handler.connected?.(true);
    for (;;) {
      const { value } = await within(SILENCE, reader.read(), silent(SILENCE));
      if (!value) throw new NetworkError("the live stream was cut off", { code: "disconnected" });
      for (const message of messages.of(value)) {
        const { counts, changed, bulk, beat, reset, bye }: LiveFrame = JSON.parse(message);
        if (counts) {
          handler.counts?.(counts.topics, counts.gone, isFirst);
          isFirst = false;
        }
        if (changed) handler.changed?.(changed.topics);
        if (bulk) handler.bulk?.(bulk);
        if (beat) handler.beat?.(beat.countedAt);
        if (bye) return bye.after * 1000;
        if (reset) throw errorOfFrame(reset.reason, "the live stream has ended", {});
      }
    }
  } catch (error) {
    reading.signal.throwIfAborted();
    throw error;
  } finally {
    signal.removeEventListener("abort", close);
    reading.abort();
  }
}
