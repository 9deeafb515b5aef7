import { Invalid } from "./errors.ts";
import type { Events } from "./events.ts";
import { newId, newToken } from "./ids.ts";
import { Lease } from "./lease.ts";
import { decoded, encoded } from "./payloads.ts";
import { JobStream, type StreamOptions } from "./stream.ts";
import { type CallOptions, type Transport, path } from "./transport.ts";
import type {
  Durations,
  Failure,
  History,
  Flow,
  FlowGraph,
  Instant,
  Job,
  JobBrief,
  JobChange,
  JobDetail,
  JobOptions,
  JobPage,
  LeaseShown,
  LogLine,
  Minute,
  NewJob,
  Page,
  Reason,
  RecentFailures,
  Run,
  State,
  Stats,
  Status,
  Try,
} from "./types.ts";

export interface EnqueueOptions extends JobOptions, CallOptions {
  /** A second enqueue with it, by the same caller to the same topic, returns the first job. */
  idempotencyKey?: string | undefined;
  /** The payload as JSON text, instead of a value: it is stored to the last digit. */
  payloadText?: string | undefined;
}

export interface ListOptions extends CallOptions {
  topic?: string | undefined;
  status?: Status | undefined;
  /** Where its ticket lies: finer than the status. */
  state?: State | undefined;
  key?: string | undefined;
  /** In the payload, the key or the last error; the id or the number of a job finds that job. */
  text?: string | undefined;
  /** In the last error. */
  error?: string | undefined;
  /** The name of the worker that has it now. */
  worker?: string | undefined;
  /** Enqueued then or later. */
  since?: Instant | undefined;
  /** Enqueued before. */
  until?: Instant | undefined;
  /** These jobs, up to 100; without other filters. */
  ids?: readonly string[] | undefined;
  /** `newest` (default), `oldest`, or `next`: ready, delayed or buried ones as they are reserved. */
  order?: "newest" | "oldest" | "next" | undefined;
  limit?: number | undefined;
  offset?: number | undefined;
  /** The `next` of the previous page; of the order `oldest`, the `prev` of the page behind. */
  before?: string | undefined;
  /** The `prev` of the page behind; of the order `oldest`, the `next` of the previous page. */
  after?: string | undefined;
  /** Whether the page tells how many jobs there are. */
  count?: boolean | undefined;
}

export interface BodyOptions extends CallOptions {
  /** Default `payload`. */
  part?: "payload" | "result" | "headers" | undefined;
  /** Also the values that the server hides. */
  reveal?: boolean | undefined;
}

export interface HistoryOptions {
  topic?: string | undefined;
  /** So many minutes back; default 60. */
  minutes?: number | undefined;
  /** Seconds; default 60. At most 1,500 steps are told. */
  step?: 60 | 300 | 900 | 3600 | 21600 | 86400 | undefined;
  /** Tell them for each topic. */
  by?: "topic" | undefined;
}

export interface ReserveOptions extends CallOptions {
  /** At most so many; default 1. */
  limit?: number | undefined;
  /** Seconds to wait for a job, at most 60; default 0. */
  timeout?: number | undefined;
  /** Repeated with the same token, it returns the same leases. */
  token?: number | undefined;
  /** The name of this worker, for jobs that choose their workers. */
  worker?: string | undefined;
}

/** The verbs of jobs. */
export class Jobs {
  readonly #transport: Transport;
  readonly #events: Events;

  constructor(transport: Transport, events: Events) {
    this.#transport = transport;
    this.#events = events;
  }

  /** Store a job. It is sent again after a lost answer, and stored once. */
  async enqueue<Payload>(
    topic: string,
    payload?: Payload,
    options: EnqueueOptions = {},
  ): Promise<Job<Payload>> {
    const { signal, idempotencyKey, payloadText, ...rest } = options;
    const body = asStored({ ...rest, topic, payload }, idempotencyKey === undefined);
    const headers = { "Idempotency-Key": idempotencyKey };
    const asWritten = payloadText === undefined ? {} : { payload: checked(payloadText) };
    const call = { body, asWritten, headers, signal, repeatable: true };
    return decoded(await this.#transport.post<Job<Payload>>("/api/jobs/enqueue", call));
  }

  /** Store up to 1,000 jobs: all of them, or none. */
  async enqueueMany(jobs: readonly NewJob[], options: CallOptions = {}): Promise<Job[]> {
    const body = { jobs: jobs.map((job) => asStored(job, true)) };
    const call = { ...options, body, repeatable: true };
    const { items } = await this.#transport.post<{ items: Job[] }>("/api/jobs/enqueue-many", call);
    return items.map(decoded);
  }

  /** Read a job, its lease and all its options. */
  async get<Payload = unknown, Result = unknown>(
    id: string,
    options: CallOptions = {},
  ): Promise<JobDetail<Payload, Result>> {
    const job = this.#transport.get<JobDetail<Payload, Result>>(path`/api/jobs/${id}`, options);
    return decoded(await job);
  }

  /**
   * The payload of a job, its result or its headers, as the text that is stored: numbers keep all their digits.
   *
   * Values that the server hides are shown with `reveal`, which the server notes.
   */
  async payload(id: string, options: BodyOptions = {}): Promise<string> {
    const { signal, ...query } = options;
    return (await this.#transport.open(path`/api/jobs/${id}/payload`, { query, signal })).text();
  }

  /** The same as a file, also of raw bytes. */
  async download(id: string, options: BodyOptions = {}): Promise<Blob> {
    const { signal, ...given } = options;
    const call = { query: { ...given, download: true }, signal };
    return (await this.#transport.open(path`/api/jobs/${id}/payload`, call)).blob();
  }

  /** The tries of a job, oldest first: each lease, its worker, and how it ended. */
  tries(id: string, options: CallOptions = {}): Promise<Try[]> {
    return this.#items(path`/api/jobs/${id}/tries`, options);
  }

  /** The jobs that wait for each other around a job, breadth first, at most 500. */
  flow(id: string, options: CallOptions = {}): Promise<FlowGraph> {
    return this.#transport.get(path`/api/jobs/${id}/flow`, options);
  }

  /** A page of flows, newest first, each by its last job. */
  flows(
    options: CallOptions & { before?: string | undefined; limit?: number | undefined } = {},
  ): Promise<Page<Flow>> {
    const { signal, ...query } = options;
    return this.#transport.get("/api/flows", { query, signal });
  }

  /** Why a job waits, runs, failed or is kept, and which calls would change that. */
  why(id: string, options: CallOptions = {}): Promise<Reason[]> {
    return this.#items(path`/api/jobs/${id}/why`, options);
  }

  /**
   * Read a page of jobs, newest first.
   *
   * One request looks at 50,000 jobs: while `next` is not null, more may follow.
   */
  async list(options: ListOptions = {}): Promise<JobPage<Job>> {
    const page = await this.#transport.get<JobPage<Job>>("/api/jobs", listCall(options));
    return { ...page, items: page.items.map(decoded) };
  }

  /** Read a page as `list` does, without payloads: a preview shows them, with secrets hidden. */
  page(options: ListOptions = {}): Promise<JobPage<JobBrief>> {
    return this.#transport.get("/api/jobs", listCall(options, "true"));
  }

  /** Go through all jobs, newest first by default, a page of `limit` at a time. */
  async *iterate(options: ListOptions = {}): AsyncGenerator<Job, void, undefined> {
    let page = await this.list(options);
    for (;;) {
      yield* page.items;
      if (page.next === null) return;
      const forward = options.order === "oldest" ? "after" : "before";
      page = await this.list({ ...options, offset: undefined, [forward]: page.next });
    }
  }

  /** Run a failed or cancelled job again, with its retries back at 0. */
  async requeue(id: string, options: CallOptions = {}): Promise<Job> {
    return decoded(await this.#transport.post<Job>(path`/api/jobs/${id}/requeue`, options));
  }

  /** Stop a job wherever it is; a running one is asked to stop. */
  async cancel(id: string, options: CallOptions = {}): Promise<Job> {
    return decoded(await this.#transport.post<Job>(path`/api/jobs/${id}/cancel`, options));
  }

  /** Make a buried or delayed job ready. */
  async kick(id: string, options: CallOptions = {}): Promise<Job> {
    return decoded(await this.#transport.post<Job>(path`/api/jobs/${id}/kick`, options));
  }

  /** Change the priority of a job that waits (0 is the most urgent), its time, or both. */
  async update(id: string, change: JobChange, options: CallOptions = {}): Promise<Job> {
    const call = { ...options, body: { ...change, runAt: instant(change.runAt) } };
    return decoded(await this.#transport.send<Job>("PATCH", path`/api/jobs/${id}`, call));
  }

  /** Forget a pending, failed or cancelled job. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.send("DELETE", path`/api/jobs/${id}`, options);
  }

  /** With `maxAge`, counts that are at most so many seconds old will do; many pages share them. */
  stats(options: CallOptions & { maxAge?: number | undefined } = {}): Promise<Stats> {
    const { signal, ...query } = options;
    return this.#transport.get("/api/jobs/stats", { query, signal });
  }

  /** Outcomes by the minute, oldest first. */
  async throughput(
    options: CallOptions & { topic?: string | undefined; minutes?: number | undefined } = {},
  ): Promise<Minute[]> {
    const { signal, ...query } = options;
    return this.#items("/api/jobs/throughput", { query, signal });
  }

  /**
   * Outcomes by steps of so many seconds, and what was ready at the end of each; no step is left out.
   *
   * They are known by the minute for 2 days, by the hour for 32 days, by the day for 400 days.
   */
  history(options: CallOptions & HistoryOptions = {}): Promise<History> {
    const { signal, ...query } = options;
    return this.#transport.get("/api/jobs/throughput", { query: { step: 60, ...query }, signal });
  }

  /** The failed jobs of the last minutes, by the first lines of their errors. */
  recentFailures(
    options: CallOptions & { topic?: string | undefined; minutes?: number | undefined } = {},
  ): Promise<RecentFailures> {
    const { signal, ...query } = options;
    return this.#transport.get("/api/failures", { query, signal });
  }

  /** How long the newest completed jobs ran, and waited: 2,000 at most. */
  durations(
    options: CallOptions & { topic?: string | undefined; limit?: number | undefined } = {},
  ): Promise<Durations> {
    const { signal, ...query } = options;
    return this.#transport.get("/api/jobs/durations", { query, signal });
  }

  /** The failed tries of a job, oldest first. */
  failures(id: string, options: CallOptions = {}): Promise<Failure[]> {
    return this.#items(path`/api/jobs/${id}/failures`, options);
  }

  /** The log lines of a job, oldest first. */
  logs(id: string, options: CallOptions = {}): Promise<LogLine[]> {
    return this.#items(path`/api/jobs/${id}/logs`, options);
  }

  /**
   * Read what the runs of a job say, as it comes: text, events, tries, and at last how it ended.
   *
   * Leaving the loop unsubscribes and does not stop the job; `cancel` does. A signal ends the loop.
   */
  stream<Payload = unknown>(id: string, options: StreamOptions = {}): JobStream<Payload> {
    return new JobStream(this.#events, id, options);
  }

  /** The runs of a job that chooses its workers. */
  runs(id: string, options: CallOptions = {}): Promise<Run[]> {
    return this.#items(path`/api/jobs/${id}/runs`, options);
  }

  /**
   * Take ready jobs to work on, most urgent first; none if no job is ready in time.
   *
   * Each lease lives for the ttr of its job, and longer if it is touched.
   */
  async reserve<Payload = unknown>(
    topics: readonly string[],
    options: ReserveOptions = {},
  ): Promise<Lease<Payload>[]> {
    const { signal, token = newToken(), ...wanted } = options;
    const { leases } = await this.#transport.post<{ leases: LeaseShown[] }>("/api/jobs/reserve", {
      body: { ...wanted, topics, token },
      patience: (wanted.timeout ?? 0) * 1000,
      signal,
      repeatable: true,
    });
    return leases.map((shown) => new Lease<Payload>(this.#transport, shown));
  }

  async #items<T>(path: string, call: Parameters<Transport["get"]>[1]): Promise<T[]> {
    return (await this.#transport.get<{ items: T[] }>(path, call)).items;
  }
}

/** A list as the server is asked for it. */
function listCall({ signal, ids, since, until, count, ...rest }: ListOptions, brief?: "true") {
  const times = { since: instant(since) ?? undefined, until: instant(until) ?? undefined };
  const query = { ...rest, ...times, ids: ids?.join(","), count: count ? "true" : undefined, brief };
  return { query, signal };
}

/** A job as the server reads it, with an id by which it recognises a repeated enqueue. */
function asStored(job: NewJob, named: boolean): object {
  const { payload, runAt, expiresAt, ...rest } = job;
  const times = { runAt: instant(runAt), expiresAt: instant(expiresAt) };
  const body = { ...rest, ...encoded(payload), ...times };
  return named ? { ...body, id: job.id ?? newId() } : body;
}

/** JSON text; anything else could change the other fields of the request. */
function checked(text: string): string {
  try {
    JSON.parse(text);
  } catch (error) {
    const message = `the payload is not JSON: ${(error as Error).message}`;
    throw new Invalid(message, { code: "invalid", cause: error });
  }
  return text;
}

/** Text for a Date. JSON would make null of an invalid one, and the job would run at once. */
function instant(at: Instant | undefined): string | null | undefined {
  return at instanceof Date ? at.toISOString() : at;
}
