/** The output of a running job, until the server has stored it. */

import { Invalid, TowpathError, cancelled, isLost, isRefusal } from "./errors.ts";
import type { Lease, Said, Word } from "./lease.ts";
import { sleep, waitAfter } from "./transport.ts";
import type { Heard } from "./types.ts";

const GATHER = 100; // milliseconds in which output is gathered for one call
const GATHER_WORDS = 40; // milliseconds, if events are among it
const LONGEST_WAIT = 5_000; // milliseconds, while the outcome waits; the server may ask for more
const MOST_AT_ONCE = 1_000; // lines, or events, of one call
const ROOM = 2 ** 18; // characters of one call; a larger event is sent alone
const JOINED = 8_192; // characters of text in one event
const FULL = 2 ** 20; // characters of events that wait; with more, `publish` resolves later
const MOST_WAITING = 8 * FULL; // with more, `publish` throws
const MOST_LINE = 16_000; // the server keeps 8,000 characters; here some characters count twice
const MOST_EVENT = 2 ** 20; // bytes, and so no more characters

// In JSON, half of a surrogate pair is escaped; after an escaped backslash it is ordinary text.
const HALF_ESCAPED = /[^\\](?:\\\\)*\\ud[89a-f]/;

const HALF = /[\ud800-\udbff]$/; // text that ends within a character

/** Gathers the output of one run and sends it many times a second, in order, each once. */
export class Notes {
  readonly #lease: Lease;
  readonly #report: (error: unknown) => void;
  readonly #onStop: (error: unknown) => void;
  readonly #ending = new AbortController();
  readonly #lines = new Unsent(1_000, ROOM);
  readonly #words = new Words();
  #progress: Pick<Said, "progress" | "message"> | undefined;
  #call: Said | undefined; // repeated unchanged until it is answered: stored once
  #sending: Promise<void> | undefined;

  /** `onStop` is told why the run must stop: its lease is lost, or its job was cancelled. */
  constructor(lease: Lease, report: (error: unknown) => void, onStop: (error: unknown) => void) {
    this.#lease = lease;
    this.#report = report;
    this.#onStop = onStop;
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

  publish(payload: unknown, type?: string): Promise<void> {
    const text = checkedEvent(payload);
    this.#add(() => this.#words.add(text, type));
    return this.#words.room();
  }

  stream(text: string): Promise<void> {
    if (typeof text !== "string") {
      throw new Invalid(`${String(text)} is not text`, { code: "invalid" });
    }
    this.#add(() => this.#words.join(text));
    return this.#words.room();
  }

  /**
   * Send the rest, and accept no more output.
   *
   * This waits for a server that is away, but not for one that answers and refuses the notes: the
   * outcome matters more.
   */
  async end(over: AbortSignal): Promise<void> {
    this.#ending.abort();
    this.#words.seal();
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
    for (let wait = this.#pause; !this.#isEmpty; ) {
      await sleep(wait, ending).catch(() => undefined);
      if (ending.aborted) return;
      try {
        await this.#send(ending);
        failed = 0;
        wait = this.#pause;
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
      const heard: Heard | undefined = await this.#lease.say(this.#call, { signal });
      if (heard?.cancelRequested) this.#onStop(cancelled());
    } catch (error) {
      if (signal?.aborted) throw error;
      if (isLost(error)) return this.#lose(error);
      if (!isRefusal(error) || isEarly(error)) throw error;
      this.#report(error);
      this.#lease.said = this.#call.said ?? 0; // nothing of it is stored
      this.#lease.logged = this.#call.logged ?? 0;
    }
    this.#call = undefined;
    this.#words.wake();
  }

  #next(): Said {
    const lines = this.#lines.take(ROOM);
    const room = lines.reduce((left, line) => left - line.length, ROOM);
    const events = this.#words.take(room);
    const { said, logged } = this.#lease;
    const call = { ...this.#progress, lines, logged, events, said };
    this.#progress = undefined;
    return call;
  }

  get #pause(): number {
    return this.#words.length ? GATHER_WORDS : GATHER;
  }

  get #isEmpty(): boolean {
    return !(this.#call || this.#progress || this.#lines.length || this.#words.length);
  }

  #lose(error: unknown): void {
    this.#ending.abort();
    this.#call = this.#progress = undefined;
    this.#lines.clear();
    this.#words.clear();
    this.#onStop(error);
  }
}

/** Whether events were refused because their predecessors are not stored yet. */
function isEarly(error: unknown): boolean {
  return error instanceof TowpathError && error.code === "words_missing";
}

/** Events of the job's stream that wait: none is dropped, and adjacent text is joined. */
class Words {
  readonly #words: { text: string; type: string | undefined }[] = []; // as JSON
  readonly #waiting: (() => void)[] = [];
  #joined = ""; // the text behind them
  #characters = 0;
  #isSealed = false;

  get length(): number {
    return this.#words.length + (this.#canJoin ? 1 : 0);
  }

  add(text: string, type: string | undefined): void {
    this.#check(text.length);
    this.#close(true);
    this.#words.push({ text, type });
    this.#characters += text.length;
  }

  join(text: string): void {
    this.#check(text.length);
    for (let at = 0; at < text.length; at += JOINED) {
      const piece = text.slice(at, at + JOINED);
      if (this.#joined.length + piece.length > JOINED) this.#close(false);
      this.#joined += piece;
      this.#characters += piece.length;
    }
  }

  /** No more text comes: a half character at the end is not completed any more. */
  seal(): void {
    this.#isSealed = true;
  }

  /** Wait until there is room for more. */
  async room(): Promise<void> {
    while (this.#characters > FULL) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  /** Take the oldest events that fit into one call. */
  take(room: number): Word[] {
    this.#close(this.#isSealed);
    const taken: Word[] = [];
    for (let word = this.#words[0]; word; word = this.#words[0]) {
      const fits = word.text.length <= room || (room === ROOM && !taken.length);
      if (!fits || taken.length === MOST_AT_ONCE) break;
      room -= word.text.length;
      this.#characters -= word.text.length;
      taken.push({ payload: JSON.parse(word.text) as unknown, type: word.type });
      this.#words.shift();
    }
    return taken;
  }

  /** Wake those that wait for room, once a call is answered. */
  wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  clear(): void {
    this.#words.length = this.#characters = 0;
    this.#joined = "";
    this.wake();
  }

  get #canJoin(): boolean {
    return this.#joined.length > (HALF.test(this.#joined) && !this.#isSealed ? 1 : 0);
  }

  /** Make an event of the joined text; the half of a character waits for the other half. */
  #close(isWhole: boolean): void {
    const rest = !isWhole && HALF.test(this.#joined) ? this.#joined.slice(-1) : "";
    const joined = this.#joined.slice(0, this.#joined.length - rest.length);
    if (!joined) return;
    const text = JSON.stringify(joined.replace(/\p{Surrogate}/gu, "?"));
    this.#words.push({ text, type: "text" });
    this.#characters += text.length - joined.length;
    this.#joined = rest;
  }

  #check(more: number): void {
    if (this.#characters + more > MOST_WAITING) {
      const message = "too much waits to be sent; await `publish` and `stream`";
      throw new TowpathError(message, { code: "stream_behind" });
    }
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
