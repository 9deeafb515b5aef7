/** Why the job is where it is, and what would change that. */

import { act, useAsk } from "../../asking.ts";
import { type JobDetail, type Reason, type Remedy, type State, api } from "../../client.ts";
import { Button, Confirmed } from "../../parts/Button.tsx";
import { changed, useChanges } from "../../parts/live.ts";
import { Mark, type Marked } from "../../parts/Mark.tsx";
import { ErrorNote } from "../../parts/notes.tsx";
import { Time } from "../../parts/Time.tsx";
import { toast } from "../../parts/Toast.tsx";
import { href } from "../../router.ts";
import { plain, short } from "../../words.ts";

/** What ends at `until`, by the code of the reason. */
const UNTIL: Record<string, string> = {
  backing_off: "Next try",
  delayed: "Runs",
  in_line: "Starts about",
  running: "Must end",
  not_begun: "Its lease ends",
  limit: "The next one may start",
  completed: "Will be forgotten",
  cancelled: "Will be forgotten",
  expired: "Will be forgotten",
  paused: "Goes on",
};

/** What began at `at`. */
const SINCE: Record<string, string> = {
  running: "Since",
  not_begun: "Since",
  silent: "Last sign of life",
  due: "Due since",
};

const ERROR_SHOWN = 120; // characters of an error that a link searches for

export function Why({ job, version, again }: { job: JobDetail; version: number; again: () => void }) {
  const asked = useAsk((signal) => api.jobs.why(job.id, { signal }), [version]);
  const isOpen = job.finishedAt === null;
  // The place in line and the use of a limit change without the job.
  useChanges(() => {
    if (isOpen) asked.again();
  });
  if (asked.error !== undefined && !asked.value) {
    return <ErrorNote error={asked.error} again={asked.again} what="The reasons could not be read" />;
  }
  return (
    <section class={`card why ${job.status}`} aria-label="Why">
      {asked.value?.map((reason) => <OneReason key={reason.code} reason={reason} job={job} again={again} />)}
    </section>
  );
}

function OneReason({ reason, job, again }: { reason: Reason; job: JobDetail; again: () => void }) {
  const { code, at, until } = reason;
  // The head of the page has the acts of the job itself.
  const remedies = reason.remedies.filter(({ path }) => !path.startsWith(`/api/jobs/${job.id}`));
  return (
    <div class="reason">
      <div class="told">
        <p>
          <bdi>{plain(reason.message)}</bdi>
        </p>
        {(at || until) && (
          <p class="note">
            {at && (
              <span>
                {SINCE[code] ?? "Ended"} <Time at={at} />
              </span>
            )}
            {until && (
              <span>
                {UNTIL[code] ?? "Until"} <Time at={until} />
              </span>
            )}
          </p>
        )}
        {reason.jobs.length > 0 && (
          <ul class="related">
            {reason.jobs.map((each) => (
              <li key={each.id}>
                <a href={href(`/jobs/${each.id}`)} title={each.id}>
                  <bdi>{each.topic}</bdi> <code>{short(each.id)}</code>
                </a>{" "}
                <StateMark state={each.state} />
              </li>
            ))}
          </ul>
        )}
      </div>
      <div class="bar">
        {code === "alike" && job.lastError && (
          <a class="button" href={href("/jobs", { status: "failed", topic: job.topic, error: firstLine(job.lastError) })}>
            Show them
          </a>
        )}
        {code === "limit" && <a class="button" href={href("/topics")}>Show the limits</a>}
        {remedies.map((remedy) => (
          <RemedyButton key={remedy.path} remedy={remedy} again={again} />
        ))}
      </div>
    </div>
  );
}

export function RemedyButton({ remedy, again }: { remedy: Remedy; again: (isDone: boolean) => void }) {
  const apply = async () => {
    const isDone = await act(remedy.label, () => api.apply(remedy));
    if (isDone) toast({ text: `Done: ${remedy.label}.` });
    again(isDone);
    changed();
  };
  const label = <bdi>{remedy.label}</bdi>;
  return remedy.method === "DELETE" ? (
    <Confirmed question={`${remedy.label}?`} onClick={apply}>
      {label}
    </Confirmed>
  ) : (
    <Button onClick={apply}>{label}</Button>
  );
}

export function StateMark({ state }: { state: State }) {
  return <Mark of={state as Marked} />;
}

function firstLine(error: string): string {
  return (error.split("\n")[0] ?? "").slice(0, ERROR_SHOWN);
}
