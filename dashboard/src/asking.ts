/** Reading from the server, and acting on it, with what a page says about either. */

import { type Signal, signal } from "@preact/signals";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";

import { isLoggedOut, notDone } from "./client.ts";
import { toast } from "./parts/Toast.tsx";
import { ended, logins } from "./session.ts";

export interface Asked<T> {
  /** The last answer, which stays while another one is on its way. */
  value: T | undefined;
  error: unknown;
  isAsking: boolean;
  /** Ask again, with the same parameters. */
  again: () => void;
  /** Put a changed answer in place, as after an act. */
  put: (change: (value: T) => T) => void;
}

/**
 * Ask the server now, again when `about` changes, and after a new login.
 *
 * A question that is asked while the one before is on its way ends that one: an answer never
 * arrives after a newer one.
 */
export function useAsk<T>(question: (signal: AbortSignal) => Promise<T>, about: unknown[]): Asked<T> {
  const [held, hold] = useState<{ value?: T; error?: unknown; isAsking: boolean }>({ isAsking: true });
  const running = useRef<AbortController | null>(null);
  const latest = useRef(question);
  latest.current = question;

  const again = useCallback(() => {
    running.current?.abort();
    const mine = new AbortController();
    running.current = mine;
    hold((before) => ({ ...before, isAsking: true }));
    latest.current(mine.signal).then(
      (value) => {
        if (running.current === mine) hold({ value, isAsking: false });
      },
      (error: unknown) => {
        if (running.current !== mine) return;
        if (isLoggedOut(error)) ended();
        hold((before) => ({ ...before, error, isAsking: false }));
      },
    );
  }, []);

  useEffect(again, [...about, logins.value]);
  useEffect(() => () => running.current?.abort(), []);

  const put = useCallback((change: (value: T) => T) => {
    hold((before) => (before.value === undefined ? before : { ...before, value: change(before.value) }));
  }, []);
  return { value: held.value, error: held.error, isAsking: held.isAsking, again, put };
}

/**
 * Do something to the server; true if it was done.
 *
 * A refusal is told in a toast and never repeated by itself, also not after a new login.
 */
export async function act(what: string, run: () => Promise<unknown>): Promise<boolean> {
  try {
    await run();
    return true;
  } catch (error) {
    if (isLoggedOut(error)) {
      ended();
      toast({ text: `${what}: nothing was changed, as the login has ended. Log in, then do it again.`, tone: "bad" });
    } else {
      toast({ text: `${what}: ${notDone(error)}`, tone: "bad" });
    }
    return false;
  }
}

/** The current second, for times that grow; it stands still while the page is hidden. */
export const now: Signal<number> = signal(Date.now());

setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);
