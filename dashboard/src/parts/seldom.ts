/** Figures that change with every job, or with time, are asked for again now and then. */

import { useEffect, useRef } from "preact/hooks";

import { line, useChanges } from "./live.ts";

/** Milliseconds; progress and log lines change no count, so no change is told. */
export const PROGRESS_EVERY = 5_000;

/** Call a function after changes, at most once in so many milliseconds. */
export function useSeldom(listener: () => void, every: number): void {
  const last = useRef(Date.now());
  const waiting = useRef<number | undefined>(undefined);
  const latest = useRef(listener);
  latest.current = listener;
  useChanges(() => {
    if (waiting.current !== undefined) return;
    waiting.current = setTimeout(() => {
      waiting.current = undefined;
      if (document.hidden || line.peek() === "paused") return; // what goes on asks again
      last.current = Date.now();
      latest.current();
    }, Math.max(0, last.current + every - Date.now()));
  });
  useEffect(() => () => clearTimeout(waiting.current), []);
}

/** Call a function every so many milliseconds, while the page is looked at: for what time changes. */
export function useEvery(listener: () => void, every: number): void {
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden && line.peek() !== "paused") latest.current();
    }, every);
    return () => clearInterval(timer);
  }, [every]);
}
