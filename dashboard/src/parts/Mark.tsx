/** A status is a word, a shape and a colour; the mark of a running job turns. */

import type { JSX } from "preact";

export type Marked =
  | "ready"
  | "delayed"
  | "blocked"
  | "pending"
  | "processing"
  | "reserved"
  | "completed"
  | "failed"
  | "buried"
  | "cancelled";

const HUES: Record<Marked, string> = {
  ready: "pending",
  delayed: "pending",
  blocked: "pending",
  pending: "pending",
  processing: "processing",
  reserved: "processing",
  completed: "completed",
  failed: "failed",
  buried: "failed",
  cancelled: "cancelled",
};

const WORDS: Partial<Record<Marked, string>> = { reserved: "processing", buried: "failed" };

const stroke = { fill: "none", stroke: "currentColor", "stroke-width": 1.8 } as const;

const SHAPES: Record<string, JSX.Element> = {
  ring: <circle cx="7" cy="7" r="5" {...stroke} stroke-width={2} />,
  clock: (
    <>
      <circle cx="7" cy="7" r="5.5" {...stroke} stroke-width={1.6} />
      <path d="M7 4v3l2 1.5" {...stroke} stroke-width={1.6} stroke-linecap="round" />
    </>
  ),
  bars: (
    <>
      <rect x="2" y="2" width="10" height="10" rx="2" {...stroke} stroke-width={1.6} />
      <path d="M5.5 5v4M8.5 5v4" {...stroke} />
    </>
  ),
  broken: <circle class="turns" cx="7" cy="7" r="5" {...stroke} stroke-width={2.4} stroke-dasharray="20 12" />,
  check: (
    <path d="M2.5 7.5l3 3 6-7" {...stroke} stroke-width={2.4} stroke-linecap="round" stroke-linejoin="round" />
  ),
  diamond: <path d="M7 1l6 6-6 6-6-6z" fill="currentColor" />,
  struck: (
    <>
      <circle cx="7" cy="7" r="5.5" {...stroke} stroke-width={1.6} />
      <path d="M3.5 10.5l7-7" {...stroke} stroke-width={1.6} />
    </>
  ),
};

const SHAPE_OF: Record<Marked, string> = {
  ready: "ring",
  pending: "ring",
  delayed: "clock",
  blocked: "bars",
  processing: "broken",
  reserved: "broken",
  completed: "check",
  failed: "diamond",
  buried: "diamond",
  cancelled: "struck",
};

/** The mark of a status or state; `word` replaces its word. */
export function Mark({ of, word }: { of: Marked; word?: string }) {
  return (
    <span class={`mark ${HUES[of]}`}>
      <svg viewBox="0 0 14 14" aria-hidden="true">
        {SHAPES[SHAPE_OF[of]]}
      </svg>
      {word ?? WORDS[of] ?? of}
    </span>
  );
}

/** The mark of a job: the state says more than `pending`, the status more than `buried`. */
export function markOf(job: { status: string; state: string }): Marked {
  return (job.status === "pending" ? job.state : job.status) as Marked;
}

/** A finding: a problem or a warning. */
export function Alarm({ level }: { level: "problem" | "warning" }) {
  return (
    <span class={`mark ${level === "problem" ? "failed" : "warned"}`}>
      <svg viewBox="0 0 14 14" aria-hidden="true">
        {level === "problem" ? (
          SHAPES["diamond"]
        ) : (
          <path d="M7 1.5l6 11H1zM7 5.5v3.2M7 10.2v.8" {...stroke} stroke-width={1.5} stroke-linejoin="round" />
        )}
      </svg>
      {level}
    </span>
  );
}

/** Says that something opens here; drawn, as not every font has the sign. */
export function Chevron() {
  return (
    <svg class="chevron" viewBox="0 0 10 10" aria-hidden="true">
      <path d="M1.5 3.5L5 7l3.5-3.5" {...stroke} stroke-width={1.6} />
    </svg>
  );
}
