/** The facts of a job: its times, counts and options. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

import { act } from "../../asking.ts";
import { type JobDetail, api } from "../../client.ts";
import { Button } from "../../parts/Button.tsx";
import { hiddenHeaders } from "../../parts/json.ts";
import { Card } from "../../parts/notes.tsx";
import { Time } from "../../parts/Time.tsx";
import { href } from "../../router.ts";
import { counted, duration, number, plain } from "../../words.ts";

const FOR_GOOD = 50 * 365 * 86_400; // seconds: as good as no end
const STATES: Record<string, string> = { buried: "failed (buried)", reserved: "processing (reserved)" };

export function Facts({ job }: { job: JobDetail }) {
  const { limit } = job;
  const counts = [
    ["timeouts", job.timeouts],
    ["releases", job.releases],
    ["buries", job.buries],
    ["kicks", job.kicks],
  ] as const;
  const told = counts.filter(([, count]) => count > 0).map(([name, count]) => `${name} ${number(count)}`);
  return (
    <Card title="Facts">
      <dl class="of-job">
        <Fact name="Topic">
          <a href={href("/jobs", { topic: job.topic })}>
            <bdi>{job.topic}</bdi>
          </a>
        </Fact>
        {job.task !== null && <Fact name="Task">{foreign(job.task)}</Fact>}
        <Fact name="Status">{STATES[job.state] ?? (job.status === job.state ? job.status : `${job.status} (${job.state})`)}</Fact>
        <Fact name="Created">
          <Time at={job.createdAt} as="clock" />
        </Fact>
        <Fact name="Run at">
          <Time at={job.runAt} as="clock" />
        </Fact>
        {job.finishedAt !== null && (
          <Fact name="Ended">
            <Time at={job.finishedAt} as="clock" />
            {job.durationMs !== null && `, took ${duration(job.durationMs)}`}
          </Fact>
        )}
        <Fact name="Retries">
          {number(job.retries)} / {number(job.maxRetries)}
        </Fact>
        <Fact name="Crashes">
          {number(job.crashes)} / {number(job.maxCrashes)}
        </Fact>
        {told.length > 0 && <Fact name="Also">{told.join(", ")}</Fact>}
        {job.status === "processing" && <Lease job={job} />}
        <Fact name="Priority">{number(job.priority)}</Fact>
        <Fact name="Key">{job.key === null ? "–" : foreign(job.key)}</Fact>
        {limit && (
          <Fact name="Limit">
            {foreign(limit.key)}: {[limit.concurrency !== null && `${number(limit.concurrency)} at once`, limit.rate].filter(Boolean).join(", ")}
          </Fact>
        )}
        <Fact name="Time limit">{span(job.timeout)}</Fact>
        <Fact name="Lease">{span(job.ttr)}</Fact>
        <Fact name="Backoff">{backoff(job)}</Fact>
        <Fact name="Kept for">{job.state === "buried" ? "until a person acts" : span(job.retention)}</Fact>
        {job.expiresAt !== null && (
          <Fact name="Expires">
            <Time at={job.expiresAt} />
          </Fact>
        )}
        {job.workers !== null && (
          <Fact name="Workers">
            {number(job.workers)} different ones{job.onlyWorkers && <>: {foreign(job.onlyWorkers.join(", "))}</>}
          </Fact>
        )}
        {job.parents + job.children > 0 && (
          <Fact name="Flow">
            {[job.parents && `after ${counted(job.parents, "job")}`, job.children && `before ${counted(job.children, "job")}`].filter(Boolean).join(", ")}
          </Fact>
        )}
        <Headers job={job} />
        <Fact name="ID">
          <code>{job.id}</code>
        </Fact>
        <Fact name="Number">{number(job.seq)}</Fact>
      </dl>
    </Card>
  );
}

function Headers({ job }: { job: JobDetail }) {
  const [revealed, setRevealed] = useState<Record<string, string>>();
  const headers = revealed ?? job.headers;
  const hidden = hiddenHeaders(headers);
  const reveal = () =>
    act("Reveal", async () => {
      setRevealed(JSON.parse(await api.jobs.payload(job.id, { part: "headers", reveal: true })) as typeof headers);
    });
  return (
    <>
      {Object.entries(headers).map(([name, value]) => (
        <Fact key={name} name={`Header ${plain(name)}`}>
          {foreign(value)}
        </Fact>
      ))}
      {!revealed && hidden > 0 && (
        <Fact name="Headers">
          <Button kind="quiet" onClick={reveal} title="Activity will tell that you have looked at it">
            Reveal {counted(hidden, "hidden value")}
          </Button>
        </Fact>
      )}
    </>
  );
}

function Lease({ job }: { job: JobDetail }) {
  return (
    <>
      <Fact name="Worker">
        {job.worker === null ? "a client without a name" : foreign(job.worker)}
        {job.begun === false && ", has not begun it"}
      </Fact>
      <Fact name="Locked until">
        {job.until === null ? "while its worker lives" : <Time at={job.until} />}
      </Fact>
    </>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <>
      <dt>
        <bdi>{name}</bdi>
      </dt>
      <dd>{children}</dd>
    </>
  );
}

function foreign(text: string) {
  return <bdi>{plain(text)}</bdi>;
}

function span(seconds: number): string {
  return seconds >= FOR_GOOD ? "no end" : duration(seconds * 1000);
}

function backoff({ backoff: { first, factor, most, step, waits } }: JobDetail): string {
  if (waits.length) return waits.slice(0, 8).map((each) => span(each)).join(", ") + (waits.length > 8 ? ", …" : "");
  if (!first && !step) return "none";
  if (factor === 1 && !step) return span(first);
  return `from ${span(first)} to ${span(most)}`;
}
