/** The tries of a job as a timeline, each with its error and traceback: US6-4. */

import { useState } from "preact/hooks";

import { now } from "../../asking.ts";
import { type JobDetail, type Try, ahead } from "../../client.ts";
import { Button, Copy } from "../../parts/Button.tsx";
import { LongText } from "../../parts/LongText.tsx";
import { Card, ErrorNote, Loading } from "../../parts/notes.tsx";
import { Time } from "../../parts/Time.tsx";
import { clock, duration, number, plain, whole } from "../../words.ts";
import { type Bar, timeline } from "./timeline.ts";

const AT_FIRST = 10; // the newest tries

const HUES: Record<Try["outcome"], string> = {
  running: "processing",
  completed: "completed",
  error: "failed",
  crash: "failed",
  timeout: "failed",
  expired: "failed",
  dependency: "failed",
  buried: "failed",
  released: "pending",
  cancelled: "cancelled",
  unknown: "pending",
};

const WORDS: Partial<Record<Try["outcome"], string>> = {
  crash: "its worker died",
  timeout: "took too long",
  expired: "began too late",
  dependency: "not run: a job before it failed",
  unknown: "how it ended is not known",
  buried: "put aside",
  released: "given back",
};

interface Given {
  tries: Try[] | undefined;
  error: unknown;
  again: () => void;
}

export function Tries({ tries, error, again }: Given) {
  const [isWhole, setWhole] = useState(false);
  if (!tries) return error === undefined ? <Loading rows={3} /> : <ErrorNote error={error} again={again} what="The tries could not be read" />;
  if (!tries.length) {
    return (
      <Card title="Tries">
        <p class="note">No worker has taken this job yet.</p>
      </Card>
    );
  }
  const isRunning = tries.some(({ outcome }) => outcome === "running");
  const shown = isWhole ? tries : tries.slice(-AT_FIRST);
  const there = (isRunning ? now.value : now.peek()) + ahead.value;
  const { begin, end, bars } = timeline(shown, there);
  return (
    <Card title="Tries" note={
        <>
          from <time title={whole(begin)}>{clock(begin, there)}</time> to {isRunning ? "now" : <time title={whole(end)}>{clock(end, there)}</time>}
        </>
      }>
      {shown.length < tries.length && (
        <Button kind="quiet" onClick={() => setWhole(true)}>
          Show all {number(tries.length)} tries
        </Button>
      )}
      <ol class="tries">
        {shown.map((each, nth) => (
          <OneTry key={each.epoch} tried={each} bar={bars[nth] as Bar} />
        ))}
      </ol>
    </Card>
  );
}

function OneTry({ tried, bar }: { tried: Try; bar: Bar }) {
  const { epoch, worker, outcome, error, traceback, startedAt } = tried;
  const from = bar.from * 1000;
  return (
    <li>
      <div class="try">
        <b>
          <span class="only-read">Try </span>
          {epoch}
        </b>
        <svg class={HUES[outcome]} viewBox="0 0 1000 16" preserveAspectRatio="none" aria-hidden="true">
          <rect class="track" width="1000" height="16" rx="3" />
          <rect x={Math.min(from, 994)} width={Math.max(6, bar.width * 1000)} height="16" rx="3" fill="currentColor" />
        </svg>
        <span class="told">
          {bar.took !== null && `${duration(bar.took)} · `}
          {worker !== null && (
            <>
              <bdi>{plain(worker)}</bdi> ·{" "}
            </>
          )}
          <span class={HUES[outcome]}>{WORDS[outcome] ?? outcome}</span>
        </span>
      </div>
      <p class="note">
        {startedAt && (
          <>
            <Time at={startedAt} as="clock" />
            {bar.waited !== null && `, after a wait of ${duration(bar.waited)}`}
          </>
        )}
      </p>
      {error !== null && (
        <details>
          <summary>
            <bdi>{plain(error.split("\n")[0]?.slice(0, 200) ?? "")}</bdi>
          </summary>
          <LongText text={traceback ?? error} label={`${traceback === null ? "Error" : "Traceback"} of try ${epoch}`} />
          <Copy text={traceback ?? error} label={`Copy the ${traceback === null ? "error" : "traceback"} of try ${epoch}`} />
        </details>
      )}
    </li>
  );
}

/** The last error in full; the try of it may have been forgotten. */
export function LastError({ job, tries }: { job: JobDetail; tries: Try[] }) {
  const { lastError } = job;
  if (!lastError || job.status === "completed") return null;
  const last = tries.findLast(({ error }) => error !== null);
  const traceback = last?.error === lastError ? last.traceback : null;
  const text = traceback === null ? lastError : traceback.includes(lastError) ? traceback : `${lastError}\n\n${traceback}`;
  return (
    <Card title="Last error" tools={<Copy text={text} label="Copy the last error" />}>
      <LongText text={text} label="Last error" />
    </Card>
  );
}
