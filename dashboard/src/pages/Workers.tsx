/** The workers: which live, what they run, and a way to end one gently. */

import { useComputed } from "@preact/signals";

import { act, now, useAsk } from "../asking.ts";
import { type WorkerInfo, type WorkerOverview, ahead, api } from "../client.ts";
import { Head } from "../Layout.tsx";
import { Button } from "../parts/Button.tsx";
import { changed, useChanges } from "../parts/live.ts";
import { Empty, ErrorNote, Loading } from "../parts/notes.tsx";
import { useEvery } from "../parts/seldom.ts";
import { Table } from "../parts/Table.tsx";
import { Time, Took } from "../parts/Time.tsx";
import { toast } from "../parts/Toast.tsx";
import { href } from "../router.ts";
import { counted, duration, number, plain, short } from "../words.ts";

const COLUMNS = [
  { name: "Worker" },
  { name: "State" },
  { name: "Host" },
  { name: "Runs", isNumber: true },
  { name: "Topics", class: "cut" },
  { name: "Jobs" },
  { name: "Since", isNumber: true },
  { name: "Last beat", isNumber: true },
  { name: "Actions" },
];
const MOST_JOBS = 2;

export function Workers() {
  const asked = useAsk((signal) => api.workers.overview({ signal }), []);
  useChanges(asked.again);
  useEvery(asked.again, 10_000);
  const { value } = asked;
  return (
    <>
      <Head title="Workers">{value && <span class="note">{headline(value)}</span>}</Head>
      {asked.error !== undefined && <ErrorNote error={asked.error} again={asked.again} />}
      {!value && asked.error === undefined && <Loading />}
      {value && !value.items.length && (
        <Empty title="There is no worker." commands={["towpath worker myapp:app"]}>
          <p>A worker runs the tasks of your application. It appears here with its first heartbeat.</p>
        </Empty>
      )}
      {value && value.items.length > 0 && (
        <Table label="Workers" columns={COLUMNS} class="workers">
          {value.items.map((worker) => (
            <Row key={worker.session ?? worker.worker} worker={worker} />
          ))}
        </Table>
      )}
      {value && value.unnamed.length > 0 && <Unnamed of={value.unnamed} />}
    </>
  );
}

function headline({ items }: WorkerOverview): string {
  const silent = items.filter(isSilent).length;
  const live = items.length - silent;
  const stopping = items.filter((each) => !isSilent(each) && each.stopping).length;
  return [`${counted(live, "worker")} live`, silent && `${number(silent)} silent`, stopping && `${number(stopping)} stopping`]
    .filter(Boolean)
    .join(" · ");
}

function Row({ worker }: { worker: WorkerInfo }) {
  const { session } = worker;
  const stop = async () => {
    if (session === null || !(await act(`Ask ${worker.worker} to stop`, () => api.workers.stop(session)))) return;
    toast({ text: `${worker.worker} was asked to stop. It takes no new job, and ends after those that it runs.` });
    changed();
  };
  return (
    <tr>
      <td>
        <bdi class="mono" title={plain(worker.version ? `${worker.worker}\nTowpath ${worker.version}` : worker.worker)}>
          {plain(worker.worker)}
        </bdi>
      </td>
      <td class="state">
        <Alive worker={worker} />
      </td>
      <td class={worker.host === null ? "none" : ""} data-label="host">
        <bdi title={plain(worker.pid === null ? (worker.host ?? "") : `${worker.host}\nprocess ${worker.pid}`)}>{plain(worker.host ?? "–")}</bdi>
      </td>
      <td class="num" data-label="runs">
        <Places worker={worker} />
      </td>
      <td class="cut">
        {worker.topics.map((topic, nth) => (
          <span key={topic}>
            {nth > 0 && ", "}
            <a href={href(`/topics/${encodeURIComponent(topic)}`)}>
              <bdi>{plain(topic)}</bdi>
            </a>
          </span>
        ))}
      </td>
      <td class={worker.jobs.length ? "" : "none"} data-label="jobs">
        {worker.jobs.slice(0, MOST_JOBS).map(({ id, topic }) => (
          <a key={id} class="mono job" title={topic} href={href(`/jobs/${id}`)}>
            {short(id)}
          </a>
        ))}
        {worker.leases > MOST_JOBS && worker.jobs.length > 0 && <a class="note" href={href("/jobs", { worker: worker.worker })}>and {number(worker.leases - MOST_JOBS)} more</a>}
        {!worker.jobs.length && "–"}
      </td>
      <td class="num" data-label="since">
        <Took from={worker.startedAt} />
      </td>
      <td class="num" data-label="last beat">
        <Time at={worker.beatAt} />
      </td>
      <td class="push">
        {session !== null && !isSilent(worker) && (
          <Button kind="quiet" disabled={worker.stopping} onClick={stop}>
            {worker.stopping ? "Asked to stop" : "Ask to stop"}
          </Button>
        )}
      </td>
    </tr>
  );
}

/** Whether a worker gives no sign of life; a late one is still waited for. */
export function isSilent({ live, late }: WorkerInfo): boolean {
  return late || !live;
}

/** Whether a worker lives, as a word, a shape and a colour. */
export function Alive({ worker }: { worker: WorkerInfo }) {
  const silent = useComputed(() => duration(now.value + ahead.value - Date.parse(worker.beatAt)));
  const [hue, word] = isSilent(worker) ? ["failed", "silent"] : worker.stopping ? ["warned", "stopping"] : ["completed", "live"];
  const title = word === "silent" ? "If it stays silent, its jobs are taken back." : undefined;
  return (
    <span class={`mark ${hue}`} title={title}>
      <svg viewBox="0 0 14 14" aria-hidden="true">
        <circle
          cx="7"
          cy="7"
          r="5"
          fill={word === "live" ? "currentColor" : "none"}
          stroke="currentColor"
          stroke-width="2"
          stroke-dasharray={word === "silent" ? "3 3" : undefined}
        />
        {word === "stopping" && <path d="M5 5h4v4H5z" fill="currentColor" />}
      </svg>
      {word}
      {word === "silent" && <> for {silent}</>}
    </span>
  );
}

/** How many jobs a worker runs, of how many. */
export function Places({ worker }: { worker: WorkerInfo }) {
  return (
    <span class="num">
      {number(worker.leases)}
      {worker.concurrency !== null && ` / ${number(worker.concurrency)}`}
    </span>
  );
}

function Unnamed({ of }: { of: WorkerOverview["unnamed"] }) {
  return (
    <section class="card">
      <h2>Clients without a session</h2>
      <p class="note">They reserve over HTTP or beanstalkd. Each of their leases ends by itself, unless it is touched.</p>
      <ul class="lines">
        {of.map(({ topic, leases, oldestUntil }) => (
          <li key={topic}>
            <a class="cut" href={href(`/topics/${encodeURIComponent(topic)}`)}>
              <bdi>{plain(topic)}</bdi>
            </a>
            <span class="note">
              {counted(leases, "lease")}
              {oldestUntil && (
                <>
                  , {leases > 1 && "the first "}ends <Time at={oldestUntil} />
                </>
              )}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
