/** One job of the list. */

import { type JobBrief, serverTime } from "../../client.ts";
import { Button, Confirmed } from "../../parts/Button.tsx";
import { Mark, markOf } from "../../parts/Mark.tsx";
import { Time } from "../../parts/Time.tsx";
import { href } from "../../router.ts";
import { bytes, percent, plain, short } from "../../words.ts";
import { type Verb, labelOf, verbsOf } from "./acts.ts";
import type { Row } from "./list.ts";

interface Given {
  row: Row;
  /** Whether the job still belongs into the list. */
  isFitting: boolean;
  isChosen: boolean;
  choose: (isChosen: boolean, isRange: boolean) => void;
  run: (verb: Verb) => Promise<void>;
}

export function JobRow({ row, isFitting, isChosen, choose, run }: Given) {
  const { job, changes, isGone } = row;
  const classes = [isChosen && "chosen", (isGone || !isFitting) && "left"].filter(Boolean).join(" ");
  return (
    <tr class={classes} data-id={job.id}>
      <td class="choose">
        <label>
          <input
            type="checkbox"
            aria-label={`Choose job ${short(job.id)}`}
            checked={isChosen}
            onClick={(event) => choose(event.currentTarget.checked, event.shiftKey)}
          />
        </label>
      </td>
      <td class="mono">
        <a href={href(`/jobs/${job.id}`)} title={job.id}>
          {short(job.id)}
        </a>
      </td>
      <td class="topic">
        <bdi title={job.topic}>{job.topic}</bdi>
      </td>
      <td key={`status ${changes}`} class={`status ${changes ? "fresh-cell" : ""}`}>
        {isGone ? <span class="mark cancelled">gone</span> : <Mark of={markOf(job)} />}
      </td>
      <td class="num">
        {isReadyBefore(job) ? "now" : <Time at={job.runAt} as="clock" />}
      </td>
      <td class="num retries" data-label="retries">
        {job.retries} / {job.maxRetries}
      </td>
      <td class="cut">
        <What job={job} />
      </td>
      <td class="acts">{isGone ? null : <Acts job={job} run={run} />}</td>
    </tr>
  );
}

/** Whether a job was made ready before its time, which stays the planned one. */
function isReadyBefore({ state, runAt }: JobBrief): boolean {
  return state === "ready" && new Date(runAt).getTime() > serverTime();
}

/** The progress of a running job, else the last error, else the beginning of the payload. */
function What({ job }: { job: JobBrief }) {
  if (job.status === "processing" && job.progress !== null) {
    return (
      <span class="progress">
        <progress value={job.progress} aria-label="Progress" />
        {percent(job.progress)} <bdi class="note">{plain(job.progressMessage ?? "")}</bdi>
      </span>
    );
  }
  if (job.lastError && job.status !== "completed") {
    const text = plain(job.lastError);
    return <bdi title={text}>{text}</bdi>;
  }
  return <bdi class="note mono">{job.preview === null ? `${bytes(job.size)} of payload` : plain(job.preview)}</bdi>;
}

function Acts({ job, run }: { job: JobBrief; run: (verb: Verb) => Promise<void> }) {
  const verbs = verbsOf(job);
  if (!verbs.length) return <span class="note">–</span>;
  return (
    <>
      {verbs.map((verb) => {
        const word = verb === "cancel" && job.cancelRequested ? "Stopping" : labelOf(verb, job);
        return verb === "delete" ? (
          <Confirmed key={verb} question="Delete?" label={`Delete job ${short(job.id)}`} onClick={() => run(verb)}>
            Delete
          </Confirmed>
        ) : (
          <Button
            key={verb}
            kind="quiet"
            label={`${word} job ${short(job.id)}`}
            disabled={verb === "cancel" && job.cancelRequested}
            onClick={() => run(verb)}
          >
            {word}
          </Button>
        );
      })}
    </>
  );
}
