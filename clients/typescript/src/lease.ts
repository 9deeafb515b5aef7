import { decoded } from "./payloads.ts";
import { type Call, type CallOptions, type Transport, path } from "./transport.ts";
import type { Heard, Job, LeaseShown, Touched } from "./types.ts";

const DEEPEST_CAUSE = 5; // an error may be its own cause

export interface ReleaseOptions {
  /** Seconds before it is ready again. */
  delay?: number | undefined;
  priority?: number | undefined;
}

export interface BuryOptions {
  priority?: number | undefined;
  /** The reason; with it, this try counts as failed. */
  error?: string | undefined;
}

/** An event of a job's stream. */
export interface Word {
  payload?: unknown;
  /** `text` for a piece of text. */
  type?: string | undefined;
}

/** The output of a run. */
export interface Said {
  /** How far the job is, from 0 to 1. */
  progress?: number | undefined;
  /** A message about the progress. */
  message?: string | undefined;
  /** Log lines, stored with the job; at most 1,000 at once. */
  lines?: readonly string[] | undefined;
  /** How many lines were sent before; default `lease.logged`. */
  logged?: number | undefined;
  /** Events of the job's stream; at most 1,000 at once. */
  events?: readonly Word[] | undefined;
  /** How many events were sent before; default `lease.said`. */
  said?: number | undefined;
}

/**
 * The right to run one job for a while.
 *
 * Every call presents its epoch: once the lease is lost, each call is refused with LeaseLost and
 * changes nothing. A call that is repeated after a lost answer succeeds.
 */
export class Lease<Payload = unknown> {
  readonly job: Job<Payload>;
  readonly epoch: number;
  /** When the lease ends, unless it is touched. */
  until: string | null;
  /** How many events were sent with it. */
  said = 0;
  /** How many log lines were sent with it. */
  logged = 0;
  #speaking: Promise<unknown> = Promise.resolve();
  readonly #transport: Transport;

  constructor(transport: Transport, shown: LeaseShown) {
    this.#transport = transport;
    this.job = decoded(shown.job as Job<Payload>);
    this.epoch = shown.epoch;
    this.until = shown.until;
  }

  /** Finish the job; the result is stored with it. */
  async complete(result?: unknown, options: CallOptions = {}): Promise<void> {
    await this.#say("complete", { result }, options);
  }

  /** This try failed: the job backs off, or is buried if it was the last. */
  async fail(
    error: unknown,
    options: CallOptions & { delay?: number | undefined } = {},
  ): Promise<void> {
    const { signal, delay } = options;
    const traceback = error instanceof Error ? described(error) : undefined;
    await this.#say("fail", { error: String(error), traceback, delay }, { signal });
  }

  /** Give the job back, uncounted. */
  async release(options: CallOptions & ReleaseOptions = {}): Promise<void> {
    const { signal, ...how } = options;
    await this.#say("release", how, { signal });
  }

  /** Put the job aside as failed, until it is kicked, requeued or deleted. */
  async bury(options: CallOptions & BuryOptions = {}): Promise<void> {
    const { signal, ...how } = options;
    await this.#say("bury", how, { signal });
  }

  /** Finish the job and delete it; no record is kept. */
  async delete(options: CallOptions = {}): Promise<void> {
    const call = { ...options, query: { epoch: this.epoch } };
    await this.#transport.send("DELETE", path`/api/jobs/${this.job.id}`, call);
  }

  /** Extend the lease to the job's ttr from now; the answer says whether a cancel was requested. */
  async touch(
    options: CallOptions & { timeout?: number | undefined } = {},
  ): Promise<Touched> {
    const touched = await this.#say<Touched>("touch", {}, options);
    this.until = touched.until;
    return touched;
  }

  /**
   * Store progress and log lines with the job, and events in its stream.
   *
   * If no answer came, the call may have been done or not: repeated with the same `said` and
   * `logged`, it is stored once. Events whose predecessors are not stored are refused
   * (`words_missing`). The answer says whether a cancel was requested.
   */
  async say(words: Said, options: CallOptions = {}): Promise<Heard> {
    const { said = this.said, logged = this.logged, lines = [], events = [] } = words;
    this.said = Math.max(this.said, said + events.length);
    this.logged = Math.max(this.logged, logged + lines.length);
    // One call after the other, so that no event arrives before its predecessor.
    const before = this.#speaking.catch(() => undefined);
    const saying = before.then(() => this.#say<Heard>("notes", { ...words, said, logged }, options));
    this.#speaking = saying;
    return saying;
  }

  #say<T>(word: string, said: object, call: Call): Promise<T> {
    const body = { epoch: this.epoch, ...said };
    const where = path`/api/jobs/${this.job.id}/${word}`;
    return this.#transport.post<T>(where, { ...call, body, repeatable: true });
  }
}

/** The error with its stack; a stack lacks the cause, and sometimes the message. */
function described(error: unknown, depth = 0): string {
  if (!(error instanceof Error)) return String(error);
  const title = String(error);
  const stack = error.stack ?? title;
  const text = stack.startsWith(title) ? stack : `${title}\n${stack}`;
  if (error.cause === undefined || depth === DEEPEST_CAUSE) return text;
  return `${text}\nCaused by: ${described(error.cause, depth + 1)}`;
}
