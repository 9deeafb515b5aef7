/**
 * What changes on the server, for the pages that show it.
 *
 * A page subscribes with `useChanges` and asks again for the rows that it shows. One stream tells
 * what has changed. Without a stream the page asks every 5 s, and says so. A hidden tab has no
 * stream and asks for nothing.
 */

import { computed, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { type BulkAct, type LiveHandler, type LiveTopic, type Stats, api, isLoggedOut, serverTime } from "../client.ts";
import { ended, me, session } from "../session.ts";

/** `asking`: there is no stream, so the page asks every 5 s. */
export type Line = "connecting" | "live" | "asking" | "paused" | "reconnecting";

/** The topics that changed; null: any may have. */
export type Changes = ReadonlySet<string> | null;

const EVERY = 5_000; // milliseconds
const ALL_EVERY = 60_000; // milliseconds after which the pages of an idle server ask again
const FIGURES_EVERY = 10_000; // milliseconds between two questions for what the stream does not tell
const FIGURES_AGE = 5; // seconds that they may be old: so the pages of many viewers share them

const isPaused = signal(false);
const stream = signal<"opening" | "open" | "none">("opening");
const isHeard = signal(true);

export const line = computed<Line>(() => {
  if (isPaused.value) return "paused";
  if (stream.value !== "none") return stream.value === "open" ? "live" : "connecting";
  return isHeard.value ? "asking" : "reconnecting";
});
/** When the counts were last told, by the clock of the server. */
export const asOf = signal(0);
export const counts = signal<Stats | null>(null);
/** Bulk acts that have not ended, or have ended while this page was open; the newest first. */
export const bulkActs = signal<readonly BulkAct[]>([]);
/** Whether the server has another dashboard than this one. */
export const isOld = signal(false);

const listeners = new Set<(topics: Changes) => void>();
const topics = new Map<string, LiveTopic>();
let streaming: AbortController | null = null;
let waiting: number | undefined;

/** Call a function whenever jobs change, as long as the component is shown. */
export function useChanges(listener: (topics: Changes) => void): void {
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(() => {
    const heard = (topics: Changes) => latest.current(topics);
    listeners.add(heard);
    return () => listeners.delete(heard);
  }, []);
}

/** Tell every page that something changed, as after an act of its own. */
export function changed(topics: Changes = null): void {
  for (const listener of listeners) listener(topics);
}

export function pause(): void {
  isPaused.value = true;
  close();
}

export function resume(): void {
  isPaused.value = false;
  start();
}

/** Ask for the counts, and tell the pages. */
export async function look(): Promise<void> {
  if (isIdle()) return;
  try {
    if (stream.peek() === "none") (await api.bulk.list({ limit: 10 })).reverse().forEach(noteBulk);
    await readCounts();
    if (!isHeard.peek()) void askVersion();
    isHeard.value = true;
    changed();
  } catch (error) {
    if (isLoggedOut(error)) ended();
    else isHeard.value = false;
  }
}

/** Show a bulk act as it is now. */
export function noteBulk(act: BulkAct): void {
  const known = bulkActs.peek().some(({ id }) => id === act.id);
  if (known) bulkActs.value = bulkActs.peek().map((each) => (each.id === act.id ? act : each));
  else if (!act.endedAt) bulkActs.value = [act, ...bulkActs.peek()];
}

/** Begin to look; called once. */
export function begin(): void {
  setInterval(() => {
    if (stream.peek() === "none") void look();
  }, EVERY);
  // Two changes within a second may leave all counts as they were, and are not told.
  setInterval(() => {
    if (stream.peek() === "open" && !isIdle()) changed();
  }, ALL_EVERY);
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : start()));
  // A network that has gone, or is another one, may leave a stream open that says nothing more.
  for (const news of ["offline", "online"]) {
    addEventListener(news, () => {
      close();
      start();
    });
  }
  session.subscribe((value) => (value === "in" ? start() : close()));
}

function isIdle(): boolean {
  return document.hidden || isPaused.peek() || session.peek() !== "in";
}

/** Follow the server; its first counts make every page ask again. */
function start(): void {
  if (streaming || isIdle()) return;
  const mine = (streaming = new AbortController());
  stream.value = "opening";
  readCounts().catch(() => undefined); // the stream tells what is wrong
  api.live(handler(mine.signal), mine.signal).catch((error: unknown) => {
    if (isLoggedOut(error)) ended();
  });
}

function close(): void {
  streaming?.abort();
  streaming = null;
  clearTimeout(waiting);
  waiting = undefined;
}

function handler(signal: AbortSignal): LiveHandler {
  let streams = 0;
  return {
    connected(isConnected, error) {
      if (signal.aborted) return;
      // A server that says goodbye is soon there again: only after an error the page asks by itself.
      if (isConnected) stream.value = "open";
      else if (error) {
        stream.value = "none";
        void look();
      }
      if (!isConnected) return;
      isHeard.value = true;
      streams += 1;
      if (streams > 1) void askVersion();
    },
    counts(news, gone, isFirst) {
      if (isFirst) topics.clear();
      for (const each of news) topics.set(each.topic, each);
      for (const name of gone) topics.delete(name);
      asOf.value = serverTime();
      sum();
      askFigures();
      if (isFirst) changed(); // what the pages have read may be older than these counts
    },
    changed: (names) => changed(new Set(names)),
    bulk: noteBulk,
    beat() {
      asOf.value = serverTime();
    },
  };
}

/** Put what the stream has told into the counts. */
function sum(): void {
  const before = counts.peek();
  if (!before) return;
  const total = (name: "ready" | "delayed" | "blocked" | "reserved" | "buried") =>
    [...topics.values()].reduce((sum, topic) => sum + topic[name], 0);
  const now = {
    ready: total("ready"),
    delayed: total("delayed"),
    blocked: total("blocked"),
    reserved: total("reserved"),
    buried: total("buried"),
  };
  counts.value = {
    ...before,
    ...now,
    pending: now.ready + now.delayed + now.blocked,
    processing: now.reserved,
    failed: now.buried,
    topics: topics.size,
    exact: [...topics.values()].every(({ exact }) => exact),
  };
}

/** The stream does not tell how many are completed or cancelled, nor averages: ask now and then. */
function askFigures(): void {
  waiting ??= setTimeout(async () => {
    waiting = undefined;
    if (isIdle()) return;
    const found = await api.jobs.stats({ maxAge: FIGURES_AGE }).catch(() => null);
    if (!found) return;
    counts.value = found;
    sum(); // the stream may have told newer ones
  }, FIGURES_EVERY);
}

async function readCounts(): Promise<void> {
  counts.value = await api.jobs.stats();
  asOf.value = serverTime();
}

/** A server that was away may be a newer one. */
async function askVersion(): Promise<void> {
  const known = me.peek()?.dashboard;
  try {
    isOld.value = known !== undefined && (await api.me()).dashboard !== known;
  } catch (error) {
    if (isLoggedOut(error)) ended();
  }
}
