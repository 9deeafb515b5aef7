/** The runs of a job that chooses its workers: one for each worker. */

import { useAsk } from "../../asking.ts";
import { type JobDetail, type Run, api } from "../../client.ts";
import { useChanges } from "../../parts/live.ts";
import { Mark, type Marked } from "../../parts/Mark.tsx";
import { Card, ErrorNote } from "../../parts/notes.tsx";
import { Table } from "../../parts/Table.tsx";
import { Time, Took } from "../../parts/Time.tsx";
import { href } from "../../router.ts";
import { number, plain } from "../../words.ts";

const COLUMNS = [{ name: "Worker" }, { name: "State" }, { name: "Began", isNumber: true }, { name: "Took", isNumber: true }, { name: "Job", isNumber: true }];
const MARKS: Record<string, Marked> = { running: "processing", succeeded: "completed", failed: "failed", crashed: "failed", cancelled: "cancelled" };

export function Runs({ job, version }: { job: JobDetail; version: number }) {
  const asked = useAsk((signal) => api.jobs.runs(job.id, { signal }), [version]);
  useChanges((topics) => {
    if (!topics || topics.has(job.topic)) asked.again();
  });
  const runs = asked.value;
  if (asked.error !== undefined && !runs) return <ErrorNote error={asked.error} again={asked.again} what="The runs could not be read" />;
  if (!runs) return null;
  const succeeded = runs.filter(({ state }) => state === "succeeded").length;
  return (
    <Card title="Runs" note={`${number(succeeded)} of ${number(job.workers ?? 1)} succeeded`}>
      {runs.length ? (
        <Table label="Runs" columns={COLUMNS}>
          {runs.map((run) => (
            <Row key={run.job} run={run} />
          ))}
        </Table>
      ) : (
        <p class="note">No worker has begun it.</p>
      )}
    </Card>
  );
}

function Row({ run }: { run: Run }) {
  return (
    <tr>
      <td>
        <bdi title={plain(run.worker)}>{plain(run.worker)}</bdi>
      </td>
      <td class="state">
        <Mark of={MARKS[run.state] ?? "processing"} word={run.state} />
      </td>
      <td class="num" data-label="began">
        <Time at={run.startedAt} as="clock" />
      </td>
      <td class="num" data-label="took">
        <Took from={run.startedAt} to={run.endedAt} />
      </td>
      <td class="num" data-label="job">
        <a href={href("/jobs", { text: String(run.job) })}>{number(run.job)}</a>
      </td>
    </tr>
  );
}
