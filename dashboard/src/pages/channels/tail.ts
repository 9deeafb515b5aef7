/**
 * The events of a channel as they come, the newest first, and no more than a page can hold.
 *
 * Nothing is read while the tail is paused or the tab is hidden; it then goes on where it was.
 */

import { useEffect, useRef, useState } from "preact/hooks";

import { type ChannelEvent, type From, api, isLoggedOut } from "../../client.ts";
import { ended, logins } from "../../session.ts";

/** So many events are kept; older ones leave the page. */
export const MOST = 500;
const TOGETHER = 100; // milliseconds whose events are shown at once

export interface Tail {
  rows: ChannelEvent[];
  /** How many have left the page. */
  dropped: number;
  /** Also after each page from the start on. */
  isPaused: boolean;
  pause: (isPaused: boolean) => void;
  /** How the channel ended; null as long as it is open. */
  end: string | null;
  error: unknown;
}

interface Held {
  rows: ChannelEvent[];
  dropped: number;
  end: string | null;
  error: unknown;
}

const NOTHING: Held = { rows: [], dropped: 0, end: null, error: undefined };

/** Follow a channel from a place; `types` is text such as `order.*, ping`. */
export function useTail(channel: string, from: From, types: string): Tail {
  const [held, hold] = useState(NOTHING);
  const [isPaused, pause] = useState(false);
  const [isHidden, setHidden] = useState(document.hidden);
  const cursor = useRef<string | undefined>(undefined);
  const about = JSON.stringify([channel, from, types]);

  useEffect(() => {
    const look = () => setHidden(document.hidden);
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, []);

  useEffect(() => {
    cursor.current = undefined;
    hold(NOTHING);
  }, [about]);

  useEffect(() => {
    if (isPaused || isHidden) return;
    let isOver = false;
    let read = 0;
    let news: ChannelEvent[] = [];
    hold((before) => ({ ...before, error: undefined }));
    const show = () => {
      const fresh = news.reverse();
      news = [];
      if (!fresh.length) return;
      hold((before) => {
        const rows = [...fresh, ...before.rows];
        return { ...before, rows: rows.slice(0, MOST), dropped: before.dropped + Math.max(0, rows.length - MOST) };
      });
    };
    const timer = setInterval(show, TOGETHER);
    const wanted = types.split(/[\s,]+/).filter(Boolean);
    const subscription = api.events.subscribe(
      channel,
      { from: cursor.current ?? from, ...(wanted.length ? { types: wanted } : {}), onReset: "oldest" },
      (event) => {
        if (isOver) return;
        news.push(event);
        if (news.length >= MOST) show();
        // From the start of a channel with a million events, a page of them at a time.
        read += 1;
        if (from === "start" && read >= MOST) pause(true);
      },
    );
    subscription.done.then(
      (end) => {
        show();
        if (!isOver && end !== null) hold((before) => ({ ...before, end }));
      },
      (error: unknown) => {
        if (isOver) return;
        if (isLoggedOut(error)) ended();
        hold((before) => ({ ...before, error }));
      },
    );
    return () => {
      show();
      isOver = true;
      cursor.current = subscription.cursor ?? cursor.current;
      clearInterval(timer);
      subscription.close();
    };
  }, [about, isPaused, isHidden, logins.value]);

  return { ...held, isPaused, pause };
}
