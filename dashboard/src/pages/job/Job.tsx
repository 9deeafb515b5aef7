/** One job, in full: US6-4, US6-5. */

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";

import { Head } from "../../Layout.tsx";
import { useAsk } from "../../asking.ts";
import { type JobBrief, type JobDetail, NotFound, api, isLoggedOut } from "../../client.ts";
import type { PageParts } from "../../pages.ts";
import { Copy } from "../../parts/Button.tsx";
import { changed, useChanges } from "../../parts/live.ts";
import { Mark, markOf } from "../../parts/Mark.tsx";
import { Card, Empty, ErrorNote, Loading } from "../../parts/notes.tsx";
import { PROGRESS_EVERY, useEvery } from "../../parts/seldom.ts";
import { href } from "../../router.ts";
import { ended } from "../../session.ts";
import { percent, plain, short } from "../../words.ts";
import { type Verb, run } from "../jobs/acts.ts";
import { FlowCard } from "../flows/FlowCard.tsx";
import { Acts } from "./Acts.tsx";
import { Bodies } from "./Bodies.tsx";
import { Facts } from "./Facts.tsx";
import { Log } from "./Log.tsx";
import { Stream } from "./Stream.tsx";
import { Runs } from "./Runs.tsx";
import { LastError, Tries } from "./Tries.tsx";
import { Why } from "./Why.tsx";

export function Job({ id = "" }: PageParts) {
  return <OneJob key={id} id={id} />; // nothing of another job stays on the page
}

function OneJob({ id }: { id: string }) {
  const [version, setVersion] = useState(0);
  const asked = useAsk((signal) => api.jobs.get(id, { signal }), [version]);
  const tries = useAsk((signal) => api.jobs.tries(id, { signal }), [version]);
  const [isGone, setGone] = useState(false);
  const again = () => setVersion((before) => before + 1);
  useWatch(id, isGone ? undefined : asked.value, again);
  const { value: job, error } = asked;

  if (isGone || error instanceof NotFound) return <Gone id={id} was={job} />;
  if (!job) {
    return (
      <>
        <Title id={id} />
        {error === undefined ? <Loading /> : <ErrorNote error={error} again={asked.again} what="The job could not be read" />}
      </>
    );
  }
  const act = async (verb: Verb) => {
    if ((await run(verb, job)) === null) setGone(true);
    else again();
    changed();
  };
  return (
    <>
      <Title id={id} job={job}>
        <Acts job={job} run={act} />
      </Title>
      {error !== undefined && <ErrorNote error={error} again={asked.again} what="The job could not be read again" />}
      <Why job={job} version={version} again={again} />
      <div class="two job">
        <div class="stack">
          <Progress job={job} />
          <Tries tries={tries.value} error={tries.error} again={tries.again} />
          <LastError job={job} tries={tries.value ?? []} />
          {job.workers !== null && <Runs job={job} version={version} />}
          {job.parents + job.children > 0 && <FlowCard id={id} version={version} />}
          <Stream job={job} stop={() => act("cancel")} />
          <Bodies job={job} />
        </div>
        <div class="stack">
          <Facts job={job} />
          <Log job={job} version={version} />
        </div>
      </div>
    </>
  );
}

function Title({ id, job, children }: { id: string; job?: JobDetail; children?: ComponentChildren }) {
  return (
    <>
      <a class="back" href={href("/jobs", job ? { topic: job.topic } : {})}>
        ‹ Jobs{job && <bdi> of {job.topic}</bdi>}
      </a>
      <Head
        title={
          <span class="titled">
            Job <code title={id}>{short(id)}</code>
            <Copy text={id} label={`Copy id ${id}`}>
              Copy id
            </Copy>
            {job && <Mark of={markOf(job)} {...(job.cancelRequested && job.status === "processing" ? { word: "stopping" } : {})} />}
          </span>
        }
      >
        {children}
      </Head>
    </>
  );
}

/** The job was deleted or pruned, maybe while it was shown. */
function Gone({ id, was }: { id: string; was: JobDetail | undefined }) {
  return (
    <>
      <Title id={id} />
      <Empty title={was ? `Job ${short(id)} is gone.` : `There is no job ${short(id)}.`}>
        <p>It may have been deleted, or forgotten: a finished job is kept for a while only.</p>
        <p>
          <a href={href("/jobs", was ? { topic: was.topic } : {})}>{was ? <bdi>Show the jobs of {was.topic}</bdi> : "Show all jobs"}</a>
        </p>
      </Empty>
    </>
  );
}

function Progress({ job }: { job: JobDetail }) {
  if (job.progress === null && !job.progressMessage) return null;
  return (
    <Card title="Progress" note={job.status === "processing" ? undefined : "as of its last try"}>
      <div class="wide-progress">
        {job.progress !== null && (
          <>
            <progress value={job.progress} aria-label="Progress" />
            <b>{percent(job.progress)}</b>
          </>
        )}
        {job.progressMessage && <bdi>{plain(job.progressMessage)}</bdi>}
      </div>
    </Card>
  );
}

const WATCHED = [
  "state",
  "runAt",
  "priority",
  "retries",
  "crashes",
  "cancelRequested",
  "progress",
  "progressMessage",
  "session",
  "finishedAt",
] as const satisfies (keyof JobBrief & keyof JobDetail)[];

/** Read the job again when it has changed; a brief tells that, without its payload. */
function useWatch(id: string, shown: JobDetail | undefined, again: () => void): void {
  const [asking, ask] = useState(0);
  useChanges((topics) => {
    if (shown && (!topics || topics.has(shown.topic))) ask((before) => before + 1);
  });
  useEvery(() => {
    if (shown?.status === "processing") ask((before) => before + 1);
  }, PROGRESS_EVERY);
  useEffect(() => {
    if (!asking || !shown) return;
    const mine = new AbortController();
    api.jobs.page({ ids: [id], signal: mine.signal }).then(
      ({ items: [brief] }) => {
        if (!brief || WATCHED.some((name) => brief[name] !== shown[name])) again();
      },
      (error: unknown) => {
        if (isLoggedOut(error)) ended(); // otherwise the next change asks again
      },
    );
    return () => mine.abort();
  }, [asking]);
}
