/** The cards of the overview, of which a topic's page shows its own. */

import type { Signal } from "@preact/signals";

import { type Asked, useAsk } from "../../asking.ts";
import { type History, type Topic, type WorkerOverview, api } from "../../client.ts";
import { Area } from "../../parts/charts/Area.tsx";
import { Bars } from "../../parts/charts/Bars.tsx";
import { HeatMap } from "../../parts/charts/HeatMap.tsx";
import { Card, ErrorNote, Loading } from "../../parts/notes.tsx";
import { useSeldom } from "../../parts/seldom.ts";
import { Time, Took } from "../../parts/Time.tsx";
import { href } from "../../router.ts";
import { counted, depth, duration, number, plain, short } from "../../words.ts";
import { Alive, Places, isSilent } from "../Workers.tsx";
import { rangeOf } from "./Tiles.tsx";
import type { Span } from "./range.tsx";

const MOST_ERRORS = 8;
const MOST_WORKERS = 6;
const MOST_TOPICS = 5;
const MOST_JOBS = 1_900; // the server tells 2,000 at most, some without a run time
const COLUMNS = 60; // of a heat map that covers less than the range

type Cursor = Signal<number | null>;

export function Ended({ series, span, at }: { series: Asked<History>; span: Span; at: Cursor }) {
  return (
    <Card title={`Jobs ended each ${span.each}`} note="completed · failed (hatched)">
      <Chart asked={series}>
        {(value) => (
          <Bars
            items={value.items.map(({ at: time, completed, failed }) => ({ at: Date.parse(time), completed, failed }))}
            range={rangeOf(value)}
            step={value.step * 1000}
            unit={`jobs per ${span.each}`}
            at={at}
          />
        )}
      </Chart>
    </Card>
  );
}

/** How long jobs took, by the newest of them. */
export function Lengths({ series, at, topic }: { series: History | undefined; at: Cursor; topic?: string }) {
  const asked = useAsk((signal) => api.jobs.durations({ topic, signal }), [topic]);
  useSeldom(asked.again, 15_000);
  const [from, to] = rangeOf(series);
  const items = (asked.value?.items ?? []).flatMap(({ finishedAt, durationMs }) =>
    durationMs === null ? [] : [{ at: Date.parse(finishedAt), ms: durationMs }],
  );
  const inside = items.filter((each) => each.at >= from);
  // The newest jobs may cover a small part of the range: then the chart shows that part.
  const first = Math.min(...inside.map((each) => each.at));
  const isPart = items.length >= MOST_JOBS && inside.length === items.length && first - from > (to - from) / 4;
  const step = isPart ? Math.max(1000, (to - first) / COLUMNS) : (series?.step ?? 1) * 1000;
  const half = asked.value?.p50.durationMs ?? null;
  const most = asked.value?.p95.durationMs ?? null;
  const note = half !== null && most !== null && (
    <>
      half within {duration(half)} · 95 % within {duration(most)} · newest {counted(items.length, "job")}
    </>
  );
  return (
    <Card title="How long jobs take" note={note}>
      {series && (
        <Chart asked={asked}>
          {() =>
            inside.length ? (
              <HeatMap items={inside} range={isPart ? [first, to] : [from, to]} step={step} at={at} />
            ) : (
              <p class="note">No job has completed in this time.</p>
            )
          }
        </Chart>
      )}
    </Card>
  );
}

/** What was ready over time, and when it will be empty. */
export function Backlog({ series, at, topic }: { series: Asked<History>; at: Cursor; topic?: Topic | undefined }) {
  const asked = useAsk((signal) => (topic ? Promise.resolve([topic]) : api.topics.list({ signal })), [topic]);
  useSeldom(asked.again, 5_000);
  const waiting = (asked.value ?? []).filter((each) => each.ready > 0).sort((one, other) => other.ready - one.ready);
  const since = (each: Topic) => Date.parse(each.oldestAt ?? "") || Infinity;
  const [oldest] = [...waiting].sort((one, other) => since(one) - since(other));
  return (
    <Card title="Backlog" note="jobs that are ready">
      <Chart asked={series}>
        {(value) => (
          <Area
            label="Backlog"
            items={value.items.map(({ at: time, ready }) => ({ at: Date.parse(time), value: ready }))}
            range={rangeOf(value)}
            step={value.step * 1000}
            unit="ready jobs"
            at={at}
          />
        )}
      </Chart>
      {oldest && <Oldest of={oldest} />}
      <ul class="lines">
        {waiting.slice(0, MOST_TOPICS).map((each) => (
          <li key={each.topic}>
            <a class="cut" href={href(`/topics/${encodeURIComponent(each.topic)}`)}>
              <bdi>{plain(each.topic)}</bdi>
            </a>
            <span class="note">
              {each.paused ? "paused" : emptiedIn(each)} · oldest <Time at={each.oldestAt} />
            </span>
            <b class="num">{depth(each.ready, each)}</b>
          </li>
        ))}
      </ul>
      {asked.value && !waiting.length && <p class="note oldest">No job waits for a worker.</p>}
      {waiting.length > MOST_TOPICS && <a href={href("/topics")}>All topics</a>}
    </Card>
  );
}

/** The job that has been ready for the longest time. */
function Oldest({ of: { topic, oldestAt } }: { of: Topic }) {
  const asked = useAsk((signal) => api.jobs.page({ topic, state: "ready", order: "oldest", limit: 1, signal }), [topic, oldestAt]);
  const job = asked.value?.items[0];
  if (!job) return null;
  return (
    <p class="oldest">
      Oldest ready job: <a href={href(`/jobs/${job.id}`)}>{short(job.id)}</a> of <bdi>{plain(job.topic)}</bdi> has waited for <Took isRough from={job.runAt} />.
    </p>
  );
}

/** When the backlog of a topic is empty, at its present pace. */
export function emptiedIn({ emptyInS, ready }: Topic): string {
  if (!ready) return "empty";
  return emptyInS === null ? "backlog stays or grows" : `empty in about ${duration(emptyInS * 1000)}`;
}

/** The newest failures, by their errors. */
export function Failures({ span, topic }: { span: Span; topic?: string }) {
  const { minutes } = span;
  const asked = useAsk((signal) => api.jobs.recentFailures({ minutes, topic, signal }), [minutes, topic]);
  useSeldom(asked.again, 10_000);
  const groups = asked.value?.groups ?? [];
  return (
    <Card title="Failures, by error" note={span.words}>
      <Chart asked={asked}>
        {() =>
          groups.length ? (
            <ul class="lines">
              {groups.slice(0, MOST_ERRORS).map((group) => (
                <li key={group.error}>
                  <a class="cut" title={plain(group.error)} href={href("/jobs", { status: "failed", topic, error: group.error })}>
                    <bdi>{plain(group.error) || "(no message)"}</bdi>
                  </a>
                  <b class="num">{number(group.count)}</b>
                </li>
              ))}
            </ul>
          ) : (
            <p class="note">No job failed for good.</p>
          )
        }
      </Chart>
    </Card>
  );
}

export function useWorkers(): Asked<WorkerOverview> {
  const asked = useAsk((signal) => api.workers.overview({ signal }), []);
  useSeldom(asked.again, 5_000);
  return asked;
}

export function WorkersNow({ asked, topic }: { asked: Asked<WorkerOverview>; topic?: string }) {
  const all = (asked.value?.items ?? []).filter((each) => topic === undefined || each.topics.includes(topic));
  const silent = all.filter(isSilent).length;
  const live = all.length - silent;
  return (
    <Card title="Workers" note={asked.value && `${number(live)} live${silent ? `, ${number(silent)} silent` : ""}`}>
      <Chart asked={asked}>
        {() => (
          <ul class="lines">
            {all.slice(0, MOST_WORKERS).map((worker) => (
              <li key={worker.session ?? worker.worker}>
                <bdi class="cut">{plain(worker.worker)}</bdi>
                <Alive worker={worker} />
                <Places worker={worker} />
              </li>
            ))}
            {!all.length && <li class="note">There is no worker.</li>}
          </ul>
        )}
      </Chart>
      <a href={href("/workers")}>All workers</a>
    </Card>
  );
}

/** What was asked for, or what stands in its place. */
function Chart<T>({ asked, children }: { asked: Asked<T>; children: (value: T) => preact.ComponentChildren }) {
  if (asked.value !== undefined) return <>{children(asked.value)}</>;
  return asked.error === undefined ? <Loading rows={4} /> : <ErrorNote error={asked.error} again={asked.again} />;
}
