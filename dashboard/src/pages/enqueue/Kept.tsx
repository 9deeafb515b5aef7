/** What the new job takes over from the other one. */

import type { JobDetail } from "../../client.ts";
import { Card } from "../../parts/notes.tsx";
import { counted, duration, number, plain } from "../../words.ts";

export function Kept({ job }: { job: JobDetail }) {
  const told = [
    job.task !== null && `task ${job.task}`,
    `time limit ${duration(job.timeout * 1000)}`,
    `lease ${duration(job.ttr * 1000)}`,
    `kept for ${duration(job.retention * 1000)}`,
    `at most ${counted(job.maxCrashes, "crash", "crashes")}`,
    job.limit && `limit ${job.limit.key}`,
    job.workers !== null && `${number(job.workers)} workers`,
    ...Object.keys(job.headers).map((name) => `header ${name}`),
  ];
  return (
    <Card title="Taken over">
      <p class="note">
        <bdi>{plain(told.filter(Boolean).join(", "))}.</bdi> The old job stays as it is.
      </p>
    </Card>
  );
}
