/** The log lines of a job: newest first or last, wrapped or not, with a search. */

import { useState } from "preact/hooks";

import { useAsk } from "../../asking.ts";
import { type JobDetail, api } from "../../client.ts";
import { Button } from "../../parts/Button.tsx";
import { useChanges } from "../../parts/live.ts";
import { Card, ErrorNote } from "../../parts/notes.tsx";
import { PROGRESS_EVERY, useEvery } from "../../parts/seldom.ts";
import { Time } from "../../parts/Time.tsx";
import { counted, number, plain } from "../../words.ts";

const AT_ONCE = 200; // lines

export function Log({ job, version }: { job: JobDetail; version: number }) {
  const asked = useAsk((signal) => api.jobs.logs(job.id, { signal }), [version]);
  useChanges((topics) => {
    if (job.status === "processing" && (!topics || topics.has(job.topic))) asked.again();
  });
  useEvery(() => {
    if (job.status === "processing") asked.again();
  }, PROGRESS_EVERY);
  const [isNewestFirst, setNewestFirst] = useState(true);
  const [isWrapped, setWrapped] = useState(true);
  const [wanted, want] = useState("");
  const [most, show] = useState(AT_ONCE);
  const lines = asked.value;
  if (asked.error !== undefined && !lines) return <ErrorNote error={asked.error} again={asked.again} what="The log could not be read" />;
  if (!lines) return null;
  if (!lines.length) {
    return (
      <Card title="Log">
        <p class="note">The job has written no line.</p>
      </Card>
    );
  }
  const text = wanted.toLowerCase();
  const found = text ? lines.filter((line) => line.text.toLowerCase().includes(text)) : lines;
  const ordered = isNewestFirst ? found.toReversed() : found;
  return (
    <Card
      title={text ? `Log, ${number(found.length)} of ${counted(lines.length, "line")}` : `Log, ${counted(lines.length, "line")}`}
      tools={
        <>
          <Button kind="quiet" pressed={isNewestFirst} onClick={() => setNewestFirst(!isNewestFirst)}>
            Newest first
          </Button>
          <Button kind="quiet" pressed={isWrapped} onClick={() => setWrapped(!isWrapped)}>
            Wrap
          </Button>
        </>
      }
    >
      <input
        type="search"
        class="find"
        placeholder="Find in the log"
        aria-label="Find in the log"
        value={wanted}
        onInput={(event) => want(event.currentTarget.value)}
      />
      <div class={`log ${isWrapped ? "wrapped" : ""}`} role="region" aria-label="Log lines" tabIndex={0}>
        {ordered.slice(0, most).map((line, nth) => (
          <div key={nth}>
            <Time at={line.at} as="clock" /> <bdi>{plain(line.text)}</bdi>
          </div>
        ))}
      </div>
      {found.length > most && (
        <Button kind="quiet" onClick={() => show(most + AT_ONCE)}>
          {number(found.length - most)} more
        </Button>
      )}
      {!found.length && <p class="note">No line has this text.</p>}
    </Card>
  );
}
