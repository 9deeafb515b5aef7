/** The filters of the list of jobs, as the address holds them. */

import type { BulkChoice, JobBrief, ListOptions, State, Status } from "../../client.ts";
import { serverTime } from "../../client.ts";

export const STATUSES = ["pending", "processing", "completed", "failed", "cancelled"] as const;
export const STATES = ["ready", "delayed", "blocked"] as const;
export const ORDERS = { newest: "newest first", oldest: "oldest first", next: "next to run first" } as const;

/** Spans of time before now, by their names in the address. */
export const SPANS: Record<string, { label: string; ms: number }> = {
  "5m": { label: "Last 5 minutes", ms: 5 * 60_000 },
  "1h": { label: "Last hour", ms: 3_600_000 },
  "24h": { label: "Last 24 hours", ms: 24 * 3_600_000 },
  "7d": { label: "Last 7 days", ms: 7 * 24 * 3_600_000 },
};

export type Order = keyof typeof ORDERS;

export interface Filters {
  status: Status | undefined;
  state: State | undefined;
  topic: string | undefined;
  key: string | undefined;
  text: string | undefined;
  error: string | undefined;
  /** The name of the worker that runs them now. */
  worker: string | undefined;
  /** The name of a span, or `between` with `since` and `until`. */
  created: string | undefined;
  since: string | undefined;
  until: string | undefined;
  order: Order;
  before: string | undefined;
  after: string | undefined;
  page: number;
}

/** What a filter says of jobs, in the address or in a bulk act. */
type Told = { [name in "status" | "state" | "topic" | "key" | "text" | "error" | "worker" | "created" | "since" | "until"]?: string | null | undefined };

export function filtersOf(query: URLSearchParams): Filters {
  const of = (name: string) => query.get(name) || undefined;
  const known = <T extends string>(name: string, all: readonly T[]) => all.find((each) => each === of(name));
  return {
    status: known("status", STATUSES),
    state: known("state", STATES),
    topic: of("topic"),
    key: of("key"),
    text: of("text"),
    error: of("error"),
    worker: of("worker"),
    created: of("created"),
    since: of("since"),
    until: of("until"),
    order: known("order", Object.keys(ORDERS) as Order[]) ?? "newest",
    before: of("before"),
    after: of("after"),
    page: Math.max(1, Math.floor(Number(of("page")) || 1)),
  };
}

/** What the server is asked for. */
export function optionsOf(filters: Filters): ListOptions {
  const { status, state, topic, key, text, error, worker, before, after, order } = filters;
  const span = SPANS[filters.created ?? ""];
  const since = span ? new Date(serverTime() - span.ms) : instant(filters.since);
  const until = span ? undefined : instant(filters.until);
  // A state is finer than its status; the order of reservation needs a state and a topic.
  const hasNext = topic !== undefined && (state === "ready" || state === "delayed" || status === "failed");
  return {
    status: state ? undefined : status,
    state: order === "next" && status === "failed" ? "buried" : state,
    topic,
    key,
    text,
    error,
    worker,
    since,
    until,
    order: order === "next" && !hasNext ? "newest" : order,
    before,
    after,
  };
}

/**
 * The filters for a bulk act; null without any, as such an act must not be for all jobs.
 *
 * Also null by worker: its jobs change from one second to the next.
 */
export function choiceOf(filters: Filters): BulkChoice | null {
  if (filters.worker) return null;
  const { status, state, topic, key, text, error, since, until } = optionsOf(filters);
  const named = Object.entries({ status, state, topic, key, text, error, since, until }).filter(([, value]) => value !== undefined);
  return named.length ? (Object.fromEntries(named) as BulkChoice) : null;
}

/** Whether the list leaves jobs out, besides by status. */
export function isNarrowed({ topic, state, key, text, error, worker, created, since, until }: Filters): boolean {
  return [topic, state, key, text, error, worker, created, since, until].some(Boolean);
}

/** Whether a job that has changed still belongs into the list. */
export function fits(job: JobBrief, { status, state, worker }: Filters): boolean {
  return (!status || job.status === status) && (!state || job.state === state) && (!worker || job.worker === worker);
}

/** The filters in words: "failed · topic mail · last hour". */
export function described(filters: Told): string {
  const { status, state, topic, key, text, error, worker } = filters;
  const span = SPANS[filters.created ?? ""];
  const parts = [
    state ?? status,
    topic && `topic ${topic}`,
    key && `key ${key}`,
    error && `with the error “${error}”`,
    text && `with “${text}”`,
    worker && `run by ${worker}`,
    span?.label.toLowerCase(),
    !span && filters.since && `since ${new Date(filters.since).toLocaleString("en-GB")}`,
    !span && filters.until && `until ${new Date(filters.until).toLocaleString("en-GB")}`,
  ];
  return parts.filter(Boolean).join(" · ");
}

function instant(text: string | undefined): Date | undefined {
  const at = new Date(text ?? "");
  return Number.isNaN(at.getTime()) ? undefined : at;
}
