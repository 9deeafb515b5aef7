/** Server-sent events, each channel by an answer that goes on: docs/reference/websocket.md. */

import { NetworkError, Unauthorized } from "./errors.ts";
import { type Frame, batchToEnd, errorOfReset } from "./frames.ts";
import {
  Interrupted,
  type Line,
  Pauses,
  Readings,
  Refusals,
  type Sink,
  type Wanted,
  queryOf,
} from "./line.ts";
import { type Transport, path, sleep } from "./transport.ts";

export const MEDIA = "text/event-stream";
export const OPENING = 8_000; // milliseconds in which an answer must begin
export const SILENCE = 37_500; // milliseconds without a byte, which are 2.5 beats of the server

export class ServerSent implements Line {
  readonly #transport: Transport;
  readonly #answers: () => Promise<boolean>;
  readonly #readings = new Readings();
  readonly #pauses = new Pauses();
  readonly #refusals = new Refusals(1);

  /** `answers` says whether the server answers other requests. */
  constructor(transport: Transport, answers: () => Promise<boolean>) {
    this.#transport = transport;
    this.#answers = answers;
  }

  /** Whether something on the way holds answers back until they end. */
  get areRefused(): boolean {
    return this.#refusals.areTooMany;
  }

  follow(wanted: Wanted, sink: Sink, signal: AbortSignal): Promise<string> {
    return this.#readings.run(signal, (reading) => this.#follow(wanted, sink, reading));
  }

  /** Read again at once: as another account, or on another line. */
  renew(): void {
    this.#readings.interrupt();
    this.#pauses.end();
  }

  async #follow(wanted: Wanted, sink: Sink, reading: AbortController): Promise<string> {
    const openedAt = performance.now();
    const messages = new Messages();
    for await (const bytes of this.#chunks(wanted, reading)) {
      for (const message of messages.of(bytes)) {
        const { events, current, closed, reset, bye } = this.#transport.parse(message) as Frame;
        const at = events?.from ?? current?.cursor ?? closed?.cursor;
        if (at !== undefined) sink.begin(at);
        if (events) await sink.take(events);
        if (closed) {
          await sink.take(batchToEnd(wanted, closed.cursor));
          return closed.ended;
        }
        const error = reset && errorOfReset(reset);
        // The next request has the token of that moment, and is refused if it is not another one.
        if (error && !(error instanceof Unauthorized)) throw error;
        if (!error && !bye) continue;
        const pause = this.#pauses.next(performance.now() - openedAt, (bye?.after ?? 0) * 1000);
        await sleep(pause, reading.signal);
        throw new Interrupted();
      }
    }
    throw this.#cut();
  }

  /** The bytes of one answer. */
  async *#chunks(wanted: Wanted, reading: AbortController): AsyncGenerator<Uint8Array> {
    let hasBegun = false;
    const held = async () => {
      const isAlone = await this.#answers();
      if (hasBegun) return; // meanwhile
      if (isAlone) this.#refusals.add();
      reading.abort(this.#silent(OPENING));
    };
    const silent = () => reading.abort(this.#silent(SILENCE));
    const body = await within(OPENING, this.#open(wanted, reading.signal), held);
    const reader = body.getReader();
    try {
      let { value } = await within(OPENING, reader.read(), held);
      hasBegun = true;
      while (value) {
        yield value;
        ({ value } = await within(SILENCE, reader.read(), silent));
      }
    } catch (error) {
      throw this.#cut(error);
    } finally {
      reader.cancel().catch(() => undefined);
    }
  }

  async #open(wanted: Wanted, signal: AbortSignal): Promise<ReadableStream<Uint8Array>> {
    const call = { query: queryOf(wanted), headers: { Accept: MEDIA }, signal };
    const where = path`/api/channels/${wanted.channel}/events`;
    const { headers, body } = await this.#transport.open(where, call);
    if (body && headers.get("Content-Type")?.startsWith(MEDIA)) return body;
    body?.cancel().catch(() => undefined);
    this.#refusals.add(); // by a proxy, or by a system that cannot read while an answer goes on
    throw new Interrupted();
  }

  #silent(milliseconds: number): NetworkError {
    const message = `no sign of life from ${this.#transport.url} for ${milliseconds} ms`;
    return new NetworkError(message, { code: "silent" });
  }

  #cut(cause?: unknown): NetworkError {
    const message = `an answer of ${this.#transport.url} was cut off`;
    return new NetworkError(message, { code: "disconnected", cause });
  }
}

/** Wait; after so many milliseconds call a function, which may end what is waited for. */
export async function within<T>(limit: number, waiting: Promise<T>, late: () => unknown): Promise<T> {
  const timer = setTimeout(late, limit);
  try {
    return await waiting;
  } finally {
    clearTimeout(timer);
  }
}

/** Takes messages out of the bytes of an answer, wherever these are cut: only their data. */
export class Messages {
  readonly #decoder = new TextDecoder();
  #data: string[] = [];
  #line = "";
  #endsWithCr = false; // so that a line feed at the beginning belongs to the line before

  *of(bytes: Uint8Array): Generator<string> {
    let text = this.#decoder.decode(bytes, { stream: true });
    if (!text) return; // the beginning of a character
    if (this.#endsWithCr && text.startsWith("\n")) text = text.slice(1);
    this.#endsWithCr = text.endsWith("\r");
    const [first = "", ...others] = text.split(/\r\n|\r|\n/);
    this.#line += first;
    for (const next of others) {
      if (!this.#line && this.#data.length) yield this.#data.splice(0).join("\n");
      const [, data] = /^data(?:: ?(.*))?$/s.exec(this.#line) ?? [undefined, undefined];
      if (data !== undefined) this.#data.push(data);
      this.#line = next;
    }
  }
}
