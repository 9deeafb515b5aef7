/** The output of a running job, until the server has stored it. */

import { Invalid, isLost, isRefusal } from "./errors.ts";
import type { Lease, Said } from "./lease.ts";
import { sleep, waitAfter } from "./transport.ts";

const GATHER = 100; // milliseconds in which output is gathered for one call
const LONGEST_WAIT = 5_000; // milliseconds, while the outcome waits; the server may ask for more
const MOST_AT_ONCE = 1_000; // lines, or events, of one call
const ROOM = 2 ** 18; // characters of one call; a larger event is sent alone
const MOST_LINE = 16_000; // the server keeps 8,000 characters; here some characters count twice
const MOST_EVENT = 2 ** 20; // bytes, and so no more characters

// In JSON, half of a surrogate pair is escaped; after an escaped backslash it is ordinary text.
const HALF_ESCAPED = /[^\\](?:\\\\)*\\ud[89a-f]/;

/** Gathers the output of one run and sends it about ten times a second, in order, each once. */
export class Notes {
  readonly #lease: Lease;
  readonly #report: (error: unknown) => void;
  readonly #onLost: (error: unknown) => void;
  readonly #ending = new AbortController();
  readonly #lines = new Unsent(1_000, ROOM);
  readonly #events = new Unsent(10_000, MOST_EVENT);
  #progress: Pick<Said, "progress" | "message"> | undefined;
  #call: Said | undefined; // repeated unchanged until it is answered: stored once
  #sending: Promise<void> | undefined;

  constructor(lease: Lease, report: (error: unknown) => void, onLost: (error: unknown) => void) {
    this.#lease = lease;
    this.#report = report;
    this.#onLost = onLost;
  }

  progress(share: number, message?: string): void {
    if (typeof share !== "number" || !(share >= 0 && share <= 1)) {
      throw new Invalid(`progress ${String(share)} is not a number from 0 to 1`, { code: "invalid" });
    }
    const about = message === undefined ? undefined : checkedLine(message);
    this.#add(() => (this.#progress = { progress: share, message: about }));
  }

  log(line: string): void {
    const text = checkedLine(line);
    this.#add(() => this.#lines.add(text));
  }

  publish(payload: unknown): void {
    const text = checkedEvent(payload);
    this.#add(() => this.#events.add(text));
  }

  /**
   * Send the rest, and accept no more output.
   *
   * This waits for a server that is away, but not for one that answers and refuses the notes: the
   * outcome matters more.
   */
  async end(over: AbortSignal): Promise<void> {
    this.#ending.abort();
    await this.#sending;
    let answers = false;
    for (let failed = 0; !this.#isEmpty; ) {
      try {
        await this.#send();
      } catch (error) {
        this.#report(error);
        if (answers || over.aborted) return;
        const wait = Math.min(waitAfter(error, failed++), LONGEST_WAIT);
        await sleep(wait, over).catch(() => undefined);
        answers = await this.#lease.touch({ signal: over }).then(
          () => true,
          () => false,
        );
      }
    }
  }

  /** Late output is dropped: an error might be thrown where no code catches it. */
  #add(put: () => void): void {
    if (this.#ending.signal.aborted) return;
    put();
    this.#sending ??= this.#sendAll(this.#ending.signal);
  }

  async #sendAll(ending: AbortSignal): Promise<void> {
    let failed = 0;
    for (let wait = GATHER; !this.#isEmpty; ) {
      await sleep(wait, ending).catch(() => undefined);
      if (ending.aborted) return;
      try {
        await this.#send(ending);
        failed = 0;
        wait = GATHER;
      } catch (error) {
        if (ending.aborted) return;
        this.#report(error);
        wait = waitAfter(error, failed++);
      }
    }
    this.#sending = undefined;
  }

  /** Make one call; it rejects if the call should be repeated. */
  async #send(signal?: AbortSignal): Promise<void> {
    this.#call ??= this.#next();
    try {
      await this.#lease.say(this.#call, { signal });
    } catch (error) {
      if (signal?.aborted) throw error;
      if (isLost(error)) return this.#lose(error);
      if (!isRefusal(error)) throw error;
      this.#report(error);
    }
    this.#call = undefined;
  }

  #next(): Said {
    const lines = this.#lines.take(ROOM);
    const room = lines.reduce((left, line) => left - line.length, ROOM);
    const events = this.#events.take(room).map((text): unknown => JSON.parse(text));
    const call = { ...this.#progress, lines, events, said: this.#lease.said };
    this.#progress = undefined;
    return call;
  }

  get #isEmpty(): boolean {
    return !(this.#call || this.#progress || this.#lines.length || this.#events.length);
  }

  #lose(error: unknown): void {
    this.#ending.abort();
    this.#call = this.#progress = undefined;
    this.#lines.clear();
    this.#events.clear();
    this.#onLost(error);
  }
}

/** Texts that wait, at most as many as the server keeps; of more, the oldest are dropped. */
class Unsent {
  readonly #texts: string[] = [];
  readonly #most: number;
  readonly #mostCharacters: number;
  #characters = 0;

  constructor(most: number, mostCharacters: number) {
    this.#most = most;
    this.#mostCharacters = mostCharacters;
  }

  get length(): number {
    return this.#texts.length;
  }

  add(text: string): void {
    this.#texts.push(text);
    this.#characters += text.length;
    while (this.length > this.#most || this.#characters > this.#mostCharacters) this.#shift();
  }

  /** Take the oldest texts that fit into one call. */
  take(room: number): string[] {
    const taken: string[] = [];
    for (let text = this.#texts[0]; text !== undefined; text = this.#texts[0]) {
      const fits = text.length <= room || room === ROOM;
      if (!fits || taken.length === MOST_AT_ONCE) break;
      room -= text.length;
      taken.push(text);
      this.#shift();
    }
    return taken;
  }

  clear(): void {
    this.#texts.length = this.#characters = 0;
  }

  #shift(): void {
    this.#characters -= this.#texts.shift()?.length ?? 0;
  }
}

function checkedLine(text: string): string {
  if (typeof text !== "string") {
    throw new Invalid(`${String(text)} is not text`, { code: "invalid" });
  }
  return text.slice(0, MOST_LINE).replace(/\p{Surrogate}/gu, "?");
}

/** The event as JSON now: the object may change before it is sent. */
function checkedEvent(payload: unknown): string {
  const text = JSON.stringify(payload) ?? "null";
  if (text.length > MOST_EVENT) {
    const message = `the event has ${text.length} characters, ${MOST_EVENT} bytes are allowed`;
    throw new Invalid(message, { code: "payload_too_large" });
  }
  if (HALF_ESCAPED.test(text)) {
    const message = "the event has text that ends within a character: a lone surrogate";
    throw new Invalid(message, { code: "invalid_payload" });
  }
  return text;
}
