/** Instants are shown in local time, by the clock of the server; the title has UTC. */

import { useComputed } from "@preact/signals";

import { now } from "../asking.ts";
import { ahead } from "../client.ts";
import { clock, duration, relative, rough, whole } from "../words.ts";

type Instant = string | number | Date | null | undefined;

/** An instant: "8 s ago"; if it is past, with `clock` its time of day, and with `next` "now". */
export function Time({ at, as = "ago" }: { at: Instant; as?: "ago" | "clock" | "next" }) {
  const text = useComputed(() => {
    if (at === null || at === undefined) return "–";
    const instant = new Date(at).getTime();
    const there = now.value + ahead.value;
    return as === "clock" && instant <= there ? clock(instant, there) : relative(as === "next" ? Math.max(instant, there) : instant, there);
  });
  if (at === null || at === undefined) return <span>–</span>;
  const instant = new Date(at);
  return (
    <time dateTime={instant.toISOString()} title={whole(instant.getTime())}>
      {text}
    </time>
  );
}

/** How long something took, or has taken so far. */
export function Took({ from, to, isRough }: { from: Instant; to?: Instant; isRough?: boolean }) {
  const text = useComputed(() => {
    if (from === null || from === undefined) return "–";
    const end = to ? new Date(to).getTime() : now.value + ahead.value;
    return (isRough ? rough : duration)(Math.max(0, end - new Date(from).getTime()));
  });
  return <span class="took">{text}</span>;
}
