/// <reference lib="esnext.disposable" preserve="true" />

import { newToken } from "./ids.ts";
import type { Jobs } from "./jobs.ts";
import type { Lease } from "./lease.ts";
import { type Handler, Run } from "./run.ts";
import { sleep, waitAfter } from "./transport.ts";

const GIVE_BACK_TIMEOUT = 5_000; // milliseconds

export interface WorkerOptions {
  /** At most so many jobs at once; default 10. */
  concurrency?: number | undefined;
  /** Seconds that one reservation waits at the server, at most 60; default 20. */
  pollTimeout?: number | undefined;
  /** Seconds that running jobs get to finish when the worker stops; default 30. */
  grace?: number | undefined;
  /** The name of this worker, for jobs that choose their workers. */
  name?: string | undefined;
  /** Called with errors between worker and server; the worker continues. */
  onError?: ((error: unknown) => void) | undefined;
}

export interface StopOptions {
  /** Seconds that running jobs get to finish, instead of the worker's own. */
  grace?: number | undefined;
}

/** Runs jobs with a function, until it is stopped. */
export class Worker {
  readonly #jobs: Jobs;
  readonly #topics: readonly string[];
  readonly #handler: Handler;
  readonly #concurrency: number;
  readonly #pollTimeout: number;
  readonly #grace: number;
  readonly #name: string;
  readonly #report: (error: unknown) => void;

  readonly #stopping = new AbortController();
  readonly #running = new Map<Run, Promise<void>>();
  readonly #reserving: Promise<void>;
  #stopped: Promise<void> | undefined;
  #wake = () => {}; // the loop, when it waits for a run to end

  constructor(
    jobs: Jobs,
    topics: string | readonly string[],
    handler: Handler,
    options: WorkerOptions = {},
  ) {
    this.#jobs = jobs;
    this.#topics = typeof topics === "string" ? [topics] : topics;
    this.#handler = handler;
    this.#concurrency = options.concurrency ?? 10;
    this.#pollTimeout = options.pollTimeout ?? 20;
    this.#grace = options.grace ?? 30;
    this.#name = options.name ?? `js-${newToken().toString(36)}`;
    const report = options.onError ?? ((error) => console.error("towpath worker:", error));
    this.#report = (error) => {
      try {
        report(error);
      } catch (failure) {
        console.error("towpath worker: onError failed:", failure); // the worker continues
      }
    };
    this.#reserving = this.#reserve();
  }

  /**
   * Take no more jobs, let those that run finish within the grace period, and release the rest.
   *
   * Code cannot be killed: a handler that ignores its signal continues, but its outcome is dropped.
   */
  stop(options: StopOptions = {}): Promise<void> {
    this.#stopped ??= this.#stop(options.grace ?? this.#grace);
    return this.#stopped;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #stop(grace: number): Promise<void> {
    this.#stopping.abort();
    this.#wake();
    await this.#reserving;
    const patience = new AbortController();
    const finished = Promise.all(this.#running.values());
    await Promise.race([finished, sleep(grace * 1000, patience.signal).catch(() => undefined)]);
    patience.abort();
    await Promise.all(Array.from(this.#running.keys(), (run) => run.giveUp()));
  }

  async #reserve(): Promise<void> {
    const { signal } = this.#stopping;
    let failed = 0;
    let token = newToken();
    while (!signal.aborted) {
      try {
        const free = this.#concurrency - this.#running.size;
        if (free > 0) {
          const leases = await this.#ask(free, token, signal);
          token = newToken(); // only now: with the old token a lost answer is repeated
          for (const lease of leases) this.#start(lease);
        } else {
          await new Promise<void>((wake) => (this.#wake = wake));
        }
        failed = 0;
      } catch (error) {
        if (signal.aborted) return;
        this.#report(error);
        await sleep(waitAfter(error, failed++), signal).catch(() => undefined);
      }
    }
  }

  async #ask(limit: number, token: number, signal: AbortSignal): Promise<Lease[]> {
    const wanted = { limit, worker: this.#name, token };
    try {
      return await this.#jobs.reserve(this.#topics, {
        ...wanted,
        timeout: this.#pollTimeout,
        signal,
      });
    } catch (error) {
      // An answer may have been on its way, and its leases would last until their ttr.
      if (signal.aborted) await this.#giveBack(wanted);
      throw error;
    }
  }

  async #giveBack(wanted: { limit: number; worker: string; token: number }): Promise<void> {
    const signal = AbortSignal.timeout(GIVE_BACK_TIMEOUT);
    const leases = await this.#jobs.reserve(this.#topics, { ...wanted, signal });
    await Promise.all(leases.map((lease) => new Run(lease, this.#report).giveUp()));
  }

  #start(lease: Lease): void {
    const run = new Run(lease, this.#report);
    const ended = run
      .end(this.#handler)
      .catch(this.#report)
      .finally(() => {
        this.#running.delete(run);
        this.#wake();
      });
    this.#running.set(run, ended);
  }
}
