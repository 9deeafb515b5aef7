/** The flows: jobs that wait for each other, with their progress, and the graph of a chosen one. */

import { Head } from "../../Layout.tsx";
import { useAsk } from "../../asking.ts";
import { type Flow, api } from "../../client.ts";
import type { PageParts } from "../../pages.ts";
import { Button } from "../../parts/Button.tsx";
import { useChanges } from "../../parts/live.ts";
import { Mark, type Marked } from "../../parts/Mark.tsx";
import { Empty, ErrorNote, Loading } from "../../parts/notes.tsx";
import { Table } from "../../parts/Table.tsx";
import { Time } from "../../parts/Time.tsx";
import { filter, href, place } from "../../router.ts";
import { number, short } from "../../words.ts";
import { FlowCard } from "./FlowCard.tsx";

const SHOWN = { "": "All flows", open: "With work left", stopped: "That have stopped" } as const;
const STATES = ["reserved", "ready", "delayed", "blocked", "buried", "cancelled"] as const;
const COLUMNS = [{ name: "Flow, by its last job" }, { name: "Progress", class: "cut" }, { name: "Jobs" }, { name: "Created", isNumber: true }];

export function Flows({ id }: PageParts) {
  const { query } = place.value;
  const before = query.get("before") ?? undefined;
  const show = query.get("show") ?? "";
  const asked = useAsk((signal) => api.jobs.flows({ before, limit: 50, signal }), [before]);
  useChanges(asked.again);
  const all = asked.value?.items;
  const items = all?.filter((flow) => fits(flow, show));
  const chosen = id ?? query.get("flow") ?? items?.[0]?.job.id;
  return (
    <>
      <Head title="Flows" />
      <div class="filters">
        <label>
          Show
          <select value={show} onChange={(event) => filter({ show: event.currentTarget.value || null, flow: null })}>
            {Object.entries(SHOWN).map(([name, label]) => (
              <option key={name} value={name}>
                {label}
              </option>
            ))}
          </select>
        </label>
      </div>
      {asked.error !== undefined && <ErrorNote error={asked.error} again={asked.again} what="The flows could not be read" />}
      {!all && asked.error === undefined && <Loading />}
      {all && (items?.length || id ? <Found items={items ?? []} chosen={chosen} /> : <Nothing isFiltered={all.length > 0} isLater={before !== undefined} />)}
      {asked.value && (before || asked.value.next) && (
        <nav class="bar" aria-label="Pages of the list">
          {before && <a class="button" href={href("/flows", { show })}>Newest flows</a>}
          {asked.value.next && <Button onClick={() => filter({ before: asked.value?.next, flow: null })}>Older flows ›</Button>}
        </nav>
      )}
    </>
  );
}

function Found({ items, chosen }: { items: Flow[]; chosen: string | undefined }) {
  const job = items.find((flow) => flow.job.id === chosen)?.job;
  return (
    <div class="flows">
      <Table label="Flows" columns={COLUMNS}>
        {items.map((flow) => (
          <Row key={flow.job.id} flow={flow} isChosen={flow.job.id === chosen} />
        ))}
      </Table>
      {chosen && <FlowCard key={chosen} id={chosen} title={job ? `Flow of ${job.topic} ${short(job.id)}` : "Flow"} />}
    </div>
  );
}

function Row({ flow, isChosen }: { flow: Flow; isChosen: boolean }) {
  const { job, jobs, whole } = flow;
  const total = Object.values(jobs).reduce((sum, count) => sum + count, 0);
  const done = (jobs["completed"] ?? 0) + (jobs["gone"] ?? 0);
  return (
    <tr class={isChosen ? "chosen" : ""}>
      <td>
        <a
          href={href("/flows", { ...Object.fromEntries(place.value.query), flow: job.id })}
          title={`${job.topic} ${job.id}`}
          aria-current={isChosen ? "true" : undefined}
        >
          <bdi>{job.topic}</bdi> <code>{short(job.id)}</code>
        </a>
      </td>
      <td class="cut">
        <span class="progress">
          <progress value={done} max={total} aria-label="Completed jobs" />
          {number(done)} of {number(total)}
          {!whole && "+"}
        </span>
      </td>
      <td>
        <span class="states">
          {done === total && <Mark of="completed" />}
          {STATES.map((state) => {
            const count = jobs[state] ?? 0;
            return count > 0 && <Mark key={state} of={state as Marked} word={`${number(count)} ${WORDS[state] ?? state}`} />;
          })}
        </span>
      </td>
      <td class="num">
        <Time at={job.createdAt} />
      </td>
    </tr>
  );
}

const WORDS: Partial<Record<(typeof STATES)[number], string>> = { reserved: "running", buried: "failed" };

function fits({ jobs }: Flow, show: string): boolean {
  const has = (...states: string[]) => states.some((state) => (jobs[state] ?? 0) > 0);
  if (show === "open") return has("ready", "delayed", "blocked", "reserved");
  return show !== "stopped" || has("buried", "cancelled");
}

function Nothing({ isFiltered, isLater }: { isFiltered: boolean; isLater: boolean }) {
  if (isFiltered) {
    return (
      <Empty title="No flow of this page fits.">
        <Button onClick={() => filter({ show: null })}>Show all flows</Button>
      </Empty>
    );
  }
  if (isLater) return <Empty title="No more flows." />;
  return (
    <Empty title="No job waits for another one." commands={['app.jobs.enqueue("pack", after=[first, second])']}>
      <p>Jobs that wait for others are a flow, and appear here with their progress.</p>
    </Empty>
  );
}
