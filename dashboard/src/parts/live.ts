/**
 * What changes on the server, for the pages that show it.
 *
 * A page subscribes with `useChanges` and asks again for the rows that it shows. As long as there is
 * no stream, the page asks every 5 s, and says so. A hidden tab asks for nothing.
 */

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { type Stats, api, isLoggedOut, serverTime } from "../client.ts";
import { ended, session } from "../session.ts";

/** `asking`: there is no stream, so the page asks every 5 s. */
export type Line = "live" | "asking" | "paused" | "reconnecting";

/** The topics that changed; null: any may have. */
export type Changes = ReadonlySet<string> | null;

const EVERY = 5_000; // milliseconds

export const line = signal<Line>("asking");
/** When the counts were last told, by the clock of the server. */
export const asOf = signal(0);
export const counts = signal<Stats | null>(null);

const listeners = new Set<(topics: Changes) => void>();

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
  line.value = "paused";
}

export function resume(): void {
  line.value = "asking";
  void look();
}

/** Ask for the counts, and tell the pages. */
export async function look(): Promise<void> {
  if (document.hidden || line.peek() === "paused" || session.peek() !== "in") return;
  try {
    counts.value = await api.jobs.stats();
    asOf.value = serverTime();
    line.value = "asking";
    changed();
  } catch (error) {
    if (isLoggedOut(error)) ended();
    else line.value = "reconnecting";
  }
}

/** Begin to look; called once. */
export function begin(): void {
  setInterval(() => void look(), EVERY);
  document.addEventListener("visibilitychange", () => void look());
  session.subscribe((value) => {
    if (value === "in") void look();
  });
}
