/** The tabs and the form above the list. Every choice is a change of the address. */

import { useLayoutEffect, useRef } from "preact/hooks";

import { useAsk } from "../../asking.ts";
import { type Status, api } from "../../client.ts";
import { Button } from "../../parts/Button.tsx";
import { counts } from "../../parts/live.ts";
import { Mark } from "../../parts/Mark.tsx";
import { type Query, filter, href, place } from "../../router.ts";
import { atLeast, number, plain } from "../../words.ts";
import { type Filters, SPANS, STATES, STATUSES } from "./filters.ts";

/** What another choice takes back: the place in the list. */
export const FROM_START: Query = { before: null, after: null, page: null };

/** Filters that only links to this page set. */
const FROM_LINKS = ["key", "error", "worker"] as const;

export function Tabs({ chosen }: { chosen: Status | undefined }) {
  const kept = Object.fromEntries(place.value.query);
  const address = (status: Status | null) => href("/jobs", { ...kept, ...FROM_START, state: null, worker: null, status });
  const known = counts.value;
  const figures: Partial<Record<Status, string>> = known
    ? {
        pending: atLeast(known.pending, known.exact),
        processing: number(known.processing),
        failed: atLeast(known.failed, known.exact),
        cancelled: atLeast(known.cancelled, known.exact),
      }
    : {};
  // What the list holds, not what has ever been completed.
  const completed = known?.completedNow;
  if (completed) figures.completed = atLeast(completed.count, completed.exact);
  return (
    <nav class="tabs" aria-label="Status">
      <a href={address(null)} aria-current={chosen ? undefined : "true"}>
        All
      </a>
      {STATUSES.map((status) => (
        <a key={status} href={address(status)} aria-current={chosen === status ? "true" : undefined}>
          <Mark of={status} />
          {figures[status] !== undefined && <small>{figures[status]}</small>}
        </a>
      ))}
    </nav>
  );
}

export function FilterBar({ filters }: { filters: Filters }) {
  const topics = useAsk((signal) => api.topics.list({ signal }), []);
  const names = (topics.value ?? []).map(({ topic }) => topic);
  if (filters.topic && !names.includes(filters.topic)) names.unshift(filters.topic);
  const text = useRef<HTMLInputElement>(null);
  // Before the browser paints, so that nothing is overwritten that is typed afterwards.
  useLayoutEffect(() => {
    if (text.current) text.current.value = filters.text ?? "";
  }, [filters.text]);
  const set = (changes: Query) => filter({ ...FROM_START, ...changes });
  const hasStates = !filters.status || filters.status === "pending";
  return (
    <form
      class="filters"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        set({ text: text.current?.value.trim() });
      }}
    >
      <label>
        Topic
        <select value={filters.topic ?? ""} onChange={(event) => set({ topic: event.currentTarget.value })}>
          <option value="">All topics</option>
          {names.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      {hasStates && (
        <label>
          State
          <select value={filters.state ?? ""} onChange={(event) => set({ state: event.currentTarget.value })}>
            <option value="">Any</option>
            {STATES.map((state) => (
              <option key={state}>{state}</option>
            ))}
          </select>
        </label>
      )}
      <label>
        Created
        <select
          value={filters.created ?? ""}
          onChange={(event) => set({ created: event.currentTarget.value, since: null, until: null })}
        >
          <option value="">Any time</option>
          {Object.entries(SPANS).map(([name, { label }]) => (
            <option key={name} value={name}>
              {label}
            </option>
          ))}
          <option value="between">Between …</option>
        </select>
      </label>
      {filters.created === "between" && (
        <>
          <Instant label="From" at={filters.since} set={(since) => set({ since })} />
          <Instant label="To" at={filters.until} set={(until) => set({ until })} />
        </>
      )}
      <label class="wide">
        Search in payload, error and key
        <input ref={text} type="search" name="text" maxLength={255} placeholder="ann@example.com, or a job’s id" />
      </label>
      <Button submits>Search</Button>
      {FROM_LINKS.map(
        (name) =>
          filters[name] && (
            <Button key={name} kind="quiet" label={`Leave out the ${name} ${filters[name]}`} onClick={() => set({ [name]: null })}>
              {name} <bdi>{plain(filters[name]).slice(0, 40)}</bdi> ×
            </Button>
          ),
      )}
    </form>
  );
}

/** A local date and time; the address holds it in UTC. */
function Instant({ label, at, set }: { label: string; at: string | undefined; set: (at: string | null) => void }) {
  const local = at ? new Date(new Date(at).getTime() - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 16) : "";
  return (
    <label>
      {label}
      <input
        type="datetime-local"
        value={local}
        onChange={(event) => {
          const { value } = event.currentTarget;
          set(value ? new Date(value).toISOString() : null);
        }}
      />
    </label>
  );
}
