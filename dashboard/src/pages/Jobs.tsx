/** The list of jobs. */

import { act, useAsk } from "../asking.ts";
import { type Job, type Status, api } from "../client.ts";
import { Head } from "../Layout.tsx";
import { Button, Confirmed } from "../parts/Button.tsx";
import { Empty, ErrorNote, Loading } from "../parts/notes.tsx";
import { changed, counts, useChanges } from "../parts/live.ts";
import { Mark, markOf } from "../parts/Mark.tsx";
import { Pager } from "../parts/Pager.tsx";
import { Table } from "../parts/Table.tsx";
import { Time } from "../parts/Time.tsx";
import { filter, href, place } from "../router.ts";
import { number, plain, short } from "../words.ts";

const STATUSES: Status[] = ["pending", "processing", "completed", "failed", "cancelled"];
const COLUMNS = [
  { name: "ID" },
  { name: "Topic" },
  { name: "Status" },
  { name: "Run at", isNumber: true },
  { name: "Retries", isNumber: true },
  { name: "Last error", class: "cut" },
  { name: "Actions" },
];

export function Jobs() {
  const { query } = place.value;
  const status = (query.get("status") ?? undefined) as Status | undefined;
  const before = query.get("before") ?? undefined;
  const asked = useAsk((signal) => api.jobs.list({ status, before, limit: 50, signal }), [status, before]);
  useChanges(asked.again);
  const { value } = asked;
  return (
    <>
      <Head title="Jobs" />
      <Tabs chosen={status} />
      {asked.error !== undefined && <ErrorNote error={asked.error} again={asked.again} />}
      {!value && asked.error === undefined && <Loading />}
      {value && !value.items.length && <Empty title={status ? `No job is ${status}.` : "Nothing was enqueued yet."} />}
      {value && value.items.length > 0 && (
        <Table label="Jobs" columns={COLUMNS}>
          {value.items.map((job) => (
            <Row key={job.id} job={job} />
          ))}
        </Table>
      )}
      {value && (
        <Pager
          where={before ? "Older jobs" : "Newest jobs"}
          prev={before ? () => filter({ before: null }) : undefined}
          next={value.next ? () => filter({ before: value.next }) : undefined}
        />
      )}
    </>
  );
}

function Tabs({ chosen }: { chosen: Status | undefined }) {
  const known = counts.value;
  return (
    <nav class="tabs" aria-label="Status">
      <a href={href("/jobs")} aria-current={chosen ? undefined : "true"}>
        All
      </a>
      {STATUSES.map((status) => (
        <a key={status} href={href("/jobs", { status })} aria-current={chosen === status ? "true" : undefined}>
          <Mark of={status} />
          {known && <small>{number(known[status])}</small>}
        </a>
      ))}
    </nav>
  );
}

function Row({ job }: { job: Job }) {
  return (
    <tr>
      <td class="mono">
        <span title={job.id}>{short(job.id)}</span>
      </td>
      <td>
        <bdi>{job.topic}</bdi>
      </td>
      <td>
        <Mark of={markOf(job)} />
      </td>
      <td class="num">
        <Time at={job.runAt} as="clock" />
      </td>
      <td class="num">
        {job.retries} / {job.maxRetries}
      </td>
      <td class="cut">
        <bdi>{plain(job.lastError ?? "")}</bdi>
      </td>
      <td>
        <Acts job={job} />
      </td>
    </tr>
  );
}

function Acts({ job }: { job: Job }) {
  const run = (what: string, verb: () => Promise<unknown>) => async () => {
    if (await act(what, verb)) changed();
  };
  const isEnded = job.status === "failed" || job.status === "cancelled";
  return (
    <>
      {isEnded && (
        <Button kind="quiet" onClick={run("Re-queue", () => api.jobs.requeue(job.id))}>
          Re-queue
        </Button>
      )}
      {job.state === "delayed" && (
        <Button kind="quiet" onClick={run("Run now", () => api.jobs.kick(job.id))}>
          Run now
        </Button>
      )}
      {(job.status === "pending" || job.status === "processing") && (
        <Button kind="quiet" onClick={run("Cancel", () => api.jobs.cancel(job.id))}>
          {job.status === "processing" ? "Stop" : "Cancel"}
        </Button>
      )}
      {(isEnded || job.status === "pending") && (
        <Confirmed question="Delete?" onClick={run("Delete", () => api.jobs.delete(job.id))}>
          Delete
        </Confirmed>
      )}
    </>
  );
}
