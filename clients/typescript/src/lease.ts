import { decoded } from "./payloads.ts";
import { type Call, type CallOptions, type Transport, path } from "./transport.ts";
import type { Job, LeaseShown, Touched } from "./types.ts";

const DEEPEST_CAUSE = 5; // an error may be its own

export interface ReleaseOptions {
  /** Seconds before it is ready again. */
  delay?: number | undefined;
  priority?: number | undefined;
}

export interface BuryOptions {
  priority?: number | undefined;
  /** Why; then this try counts as failed by it. */
  error?: string | undefined;
}

/** What a run says of itself. */
export interface Said {
  /** How far the job is, from 0 to 1. */
  progress?: number | undefined;
  /** About the progress. */
  message?: string | undefined;
  /** Lines that are kept with the job; at most 1,000 at once. */
  lines?: readonly string[] | undefined;
  /** What is published, as JSON; at most 1,000 at once. */
  events?: readonly unknown[] | undefined;
  /** How many lines and events were said before; `lease.said` unless told. */
  said?: number | undefined;
}

/**
 * The right to run one job for a while.
 *
 * Every word presents its epoch: once the lease is lost, each is refused with LeaseLost and
 * changes nothing. A word that is repeated after a lost answer holds.
 */
export class Lease<Payload = unknown> {
  readonly job: Job<Payload>;
  readonly epoch: number;
  /** When it ends, unless it is touched. */
  until: string | null;
  /** How many lines and events were said with it. */
  said = 0;
  readonly #transport: Transport;

  constructor(transport: Transport, shown: LeaseShown) {
    this.#transport = transport;
    this.job = decoded(shown.job as Job<Payload>);
    this.epoch = shown.epoch;
    this.until = shown.until;
  }

  /** The job is done; the result is kept with it. */
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

  /** Put the job aside as failed, until somebody kicks, requeues or deletes it. */
  async bury(options: CallOptions & BuryOptions = {}): Promise<void> {
    const { signal, ...how } = options;
    await this.#say("bury", how, { signal });
  }

  /** Done and gone without a trace. */
  async delete(options: CallOptions = {}): Promise<void> {
    const call = { ...options, query: { epoch: this.epoch } };
    await this.#transport.send("DELETE", path`/api/jobs/${this.job.id}`, call);
  }

  /** Extend the lease by the job's ttr, and learn whether somebody wants the job to stop. */
  async touch(
    options: CallOptions & { timeout?: number | undefined } = {},
  ): Promise<Touched> {
    const touched = await this.#say<Touched>("touch", {}, options);
    this.until = touched.until;
    return touched;
  }

  /**
   * Say how far the job is, and keep lines and events with it.
   *
   * If no answer came, it may have happened or not: the same again, with the same `said`, is
   * kept once.
   */
  async say(words: Said, options: CallOptions = {}): Promise<void> {
    const { said = this.said, lines = [], events = [] } = words;
    this.said = Math.max(this.said, said + lines.length + events.length);
    await this.#say("notes", { ...words, said }, options);
  }

  #say<T>(word: string, said: object, call: Call): Promise<T> {
    const body = { epoch: this.epoch, ...said };
    const where = path`/api/jobs/${this.job.id}/${word}`;
    return this.#transport.post<T>(where, { ...call, body, repeatable: true });
  }
}

/** What went wrong, with its stack, which says nothing of the cause, nor always of the message. */
function described(error: unknown, depth = 0): string {
  if (!(error instanceof Error)) return String(error);
  const title = String(error);
  const stack = error.stack ?? title;
  const text = stack.startsWith(title) ? stack : `${title}\n${stack}`;
  if (error.cause === undefined || depth === DEEPEST_CAUSE) return text;
  return `${text}\nCaused by: ${described(error.cause, depth + 1)}`;
}
