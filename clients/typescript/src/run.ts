/** One run of a job, from its lease to its outcome. */

import { LeaseLost, TowpathError, cancelled, isLost, isRefusal } from "./errors.ts";
import type { Lease, ReleaseOptions } from "./lease.ts";
import { Notes } from "./notes.ts";
import { sleep, waitAfter } from "./transport.ts";
import type { Job } from "./types.ts";

const SHORTEST_BEAT = 50; // milliseconds
const LONGEST_BEAT = 10_000; // milliseconds in which a cancel reaches a running job
const LONGEST_TIMER = 2 ** 31 - 1; // milliseconds; a longer timer would fire at once

export type Handler<Payload = unknown> = (job: Job<Payload>, context: Context) => unknown;

export interface Context {
  /**
   * Aborts when the job must stop: it was cancelled, its lease is lost, its time limit is over, or
   * the worker ends. An error that is thrown after that is not a failure of the job.
   */
  readonly signal: AbortSignal;
  readonly lease: Lease;
  /**
   * Report the progress of the job, from 0 to 1.
   *
   * The output of a job is sent many times a second and before its outcome. A run that dies loses
   * its last output; output that cannot be sent does not hold up the outcome.
   */
  progress(this: void, share: number, message?: string): void;
  /** Store a line with the job, for `jobs.logs`; of very many, the oldest are dropped. */
  log(this: void, line: string): void;
  /**
   * Add an event to the stream of the job.
   *
   * Await it where there may be very many: it resolves when there is room for more.
   */
  publish(this: void, payload: unknown, type?: string): Promise<void>;
  /** Add text to the stream of the job, as `publish`; pieces in a row are joined. */
  stream(this: void, text: string): Promise<void>;
}

/** Thrown by a handler to give its job back, uncounted: `throw new Release({ delay: 30 })`. */
export class Release extends Error {
  override readonly name = "Release";
  readonly options: ReleaseOptions;

  constructor(options: ReleaseOptions = {}) {
    super("the job is given back");
    this.options = options;
  }
}

/** Thrown by a handler to put its job aside as failed, without a further try. */
export class Bury extends Error {
  override readonly name = "Bury";
}

type Word = () => Promise<unknown>;

export class Run {
  readonly #lease: Lease;
  readonly #report: (error: unknown) => void;
  readonly #stop = new AbortController(); // for the handler
  readonly #over = new AbortController(); // for our own timers and calls
  readonly #notes: Notes;
  #telling: Promise<void> | undefined;
  #limit: ReturnType<typeof setTimeout> | undefined;

  constructor(lease: Lease, report: (error: unknown) => void) {
    this.#lease = lease;
    this.#report = report;
    this.#notes = new Notes(lease, report, (error) => this.#stop.abort(error));
  }

  /** Run the handler and send its outcome; returns when its code has ended. */
  async end(handler: Handler): Promise<void> {
    const { job } = this.#lease;
    const doing = (async () => handler(job, this.#context()))();
    const beating = this.#beat(job.ttr * 1000);
    const limit = Math.min(job.timeout * 1000, LONGEST_TIMER);
    this.#limit = setTimeout(() => void this.#overdue(), limit);
    try {
      const word = await doing.then(
        (result): Word =>
          () =>
            this.#lease.complete(result),
        (error: unknown) => this.#wordFor(error),
      );
      clearTimeout(this.#limit); // the handler was in time, however long the outcome takes to send
      await this.#tell(word);
    } finally {
      this.#over.abort();
      await beating;
    }
  }

  /** Stop, as the worker ends; another worker may run the job. */
  async giveUp(): Promise<void> {
    this.#stop.abort(new TowpathError("the worker ends", { code: "worker_stopped" }));
    this.#over.abort(); // the outcome is not repeated for long now
    clearTimeout(this.#limit); // the timer must not keep the process alive
    await this.#tell(() => this.#lease.release());
  }

  #context(): Context {
    const notes = this.#notes;
    return {
      signal: this.#stop.signal,
      lease: this.#lease,
      progress: (share, message) => notes.progress(share, message),
      log: (line) => notes.log(line),
      publish: (payload, type) => notes.publish(payload, type),
      stream: (text) => notes.stream(text),
    };
  }

  async #overdue(): Promise<void> {
    const message = `it ran longer than ${this.#lease.job.timeout} s`;
    const error = new TowpathError(message, { code: "time_limit_exceeded" });
    this.#stop.abort(error);
    // The code of the handler cannot be stopped, and may never check the signal.
    await this.#tell(() => this.#lease.fail(message));
  }

  #wordFor(error: unknown): Word {
    if (error instanceof Release) return () => this.#lease.release(error.options);
    if (error instanceof Bury) return () => this.#lease.bury({ error: error.message || undefined });
    // If a cancel was requested, this cancels the job.
    if (this.#stop.signal.aborted) return () => this.#lease.release();
    return () => this.#lease.fail(error);
  }

  /** Send the outcome. The first one holds; a caller with another one waits until it is sent. */
  #tell(word: Word): Promise<void> {
    this.#telling ??= this.#repeat(word);
    return this.#telling;
  }

  /** Repeat a call until the server has answered, or the worker has no more time. */
  async #repeat(word: Word): Promise<void> {
    await this.#notes.end(this.#over.signal);
    let refused = false;
    for (let tried = 0; ; tried += 1) {
      try {
        await word();
        return;
      } catch (error) {
        if (isLost(error)) return;
        this.#report(error);
        if (this.#over.signal.aborted) return;
        if (!isRefusal(error)) {
          await sleep(waitAfter(error, tried), this.#over.signal).catch(() => undefined);
        } else if (!refused) {
          refused = true; // for example, the result is too large
          word = () => this.#lease.fail(error);
        } else {
          return;
        }
      }
    }
  }

  /** Extend the lease until the run is over; stop it after a cancel or the loss of the lease. */
  async #beat(ttr: number): Promise<void> {
    const over = this.#over.signal;
    const interval = Math.max(SHORTEST_BEAT, Math.min(ttr / 3, LONGEST_BEAT));
    let wait = interval;
    let failed = 0;
    let heldUntil = performance.now() + ttr;
    const lose = () => {
      const message = "the lease could not be extended in time, the job may be someone else's";
      this.#stop.abort(new LeaseLost(message, { code: "lease_lost" }));
    };
    let losing = setTimeout(lose, Math.min(ttr, LONGEST_TIMER));
    over.addEventListener("abort", () => clearTimeout(losing), { once: true });
    for (;;) {
      try {
        await sleep(wait, over);
        const asked = performance.now();
        // A call on a dead connection must leave time for another call.
        const timeout = Math.max((heldUntil - asked) / 2, SHORTEST_BEAT);
        const touched = await this.#lease.touch({ signal: over, timeout });
        if (over.aborted) return;
        heldUntil = asked + ttr;
        clearTimeout(losing);
        losing = setTimeout(lose, Math.min(heldUntil - performance.now(), LONGEST_TIMER));
        wait = interval;
        failed = 0;
        if (touched.cancelRequested) this.#stop.abort(cancelled());
      } catch (error) {
        if (over.aborted) return;
        if (isLost(error)) return this.#stop.abort(error);
        this.#report(error);
        wait = Math.min(interval, waitAfter(error, failed++));
      }
    }
  }
}
