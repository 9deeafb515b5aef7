/** All topics: how much waits in each, how fast it goes, and which workers serve it. */

import { useEffect, useState } from "preact/hooks";

import { useAsk } from "../../asking.ts";
import { type History, type Topic, api } from "../../client.ts";
import { Head } from "../../Layout.tsx";
import { Button } from "../../parts/Button.tsx";
import { Spark } from "../../parts/charts/Spark.tsx";
import { useChanges } from "../../parts/live.ts";
import { Empty, ErrorNote, Loading } from "../../parts/notes.tsx";
import { useSeldom } from "../../parts/seldom.ts";
import { Table } from "../../parts/Table.tsx";
import { Took } from "../../parts/Time.tsx";
import { filter, href, place } from "../../router.ts";
import { counted, depth, number, plain } from "../../words.ts";
import { PauseOrResume, ServedBy } from "./acts.tsx";

const COLUMNS = [
  { name: "Topic", class: "cut" },
  { name: "Ready", isNumber: true },
  { name: "Oldest", isNumber: true },
  { name: "Delayed", isNumber: true },
  { name: "Blocked", isNumber: true },
  { name: "Running", isNumber: true },
  { name: "Failed", isNumber: true },
  { name: "Per minute", isNumber: true },
  { name: "Last hour" },
  { name: "Served by" },
  { name: "Actions" },
];
const AT_ONCE = 100; // rows
const STEP = 300; // seconds of a bar in a row
const BARS = 3600 / STEP;

type Line = NonNullable<History["topics"]>[string];
type Order = (one: Topic, other: Topic) => number;

const byName: Order = (one, other) => (one.topic < other.topic ? -1 : 1);
const oldest = (topic: Topic) => (topic.oldestAt ? Date.parse(topic.oldestAt) : Infinity);
const pace = ({ rate }: Topic) => rate.completed + rate.failed;
const ORDERS: Record<string, { label: string; order: Order }> = {
  waiting: { label: "most waiting", order: (one, other) => other.ready - one.ready },
  oldest: { label: "longest wait", order: (one, other) => oldest(one) - oldest(other) },
  failed: { label: "most failed", order: (one, other) => other.buried - one.buried },
  rate: { label: "fastest", order: (one, other) => pace(other) - pace(one) },
  name: { label: "name", order: byName },
};

export function Topics() {
  const { query } = place.value;
  const sort = ORDERS[query.get("sort") ?? ""] ?? ORDERS["waiting"];
  const find = query.get("find") ?? "";
  const asked = useAsk((signal) => api.topics.list({ signal }), []);
  useChanges(asked.again);
  const lines = useAsk((signal) => api.jobs.history({ minutes: 60, step: STEP, by: "topic", signal }), []);
  useSeldom(lines.again, 30_000);
  const [most, setMost] = useState(AT_ONCE);
  useEffect(() => setMost(AT_ONCE), [find]);

  const wanted = find.toLowerCase();
  const found = (asked.value ?? [])
    .filter(({ topic }) => topic.toLowerCase().includes(wanted))
    .sort((one, other) => sort?.order(one, other) || byName(one, other));
  return (
    <>
      <Head title="Topics" />
      <div class="filters">
        <label>
          Sort
          <select onChange={(event) => filter({ sort: event.currentTarget.value })}>
            {Object.entries(ORDERS).map(([name, each]) => (
              <option key={name} value={name} selected={each === sort}>
                {each.label}
              </option>
            ))}
          </select>
        </label>
        <label class="wide">
          Find
          <input type="search" value={find} onInput={(event) => filter({ find: event.currentTarget.value }, true)} />
        </label>
        {asked.value && (
          <span class="note" role="status">
            {find ? `${number(found.length)} of ${counted(asked.value.length, "topic")}` : counted(found.length, "topic")}
          </span>
        )}
      </div>
      {asked.error !== undefined && <ErrorNote error={asked.error} again={asked.again} />}
      {!asked.value && asked.error === undefined && <Loading />}
      {asked.value && !found.length && <None find={find} />}
      {found.length > 0 && (
        <Table label="Topics" columns={COLUMNS} class="topics">
          {found.slice(0, most).map((topic) => (
            <Row key={topic.topic} topic={topic} line={lines.value?.topics?.[topic.topic]} />
          ))}
        </Table>
      )}
      {found.length > most && (
        <div class="bar">
          <Button onClick={() => setMost(found.length)}>Show {number(found.length - most)} more</Button>
        </div>
      )}
    </>
  );
}

function None({ find }: { find: string }) {
  if (find) {
    return (
      <Empty title={`No topic has “${plain(find)}” in its name.`}>
        <Button onClick={() => filter({ find: null })}>Clear the filter</Button>
      </Empty>
    );
  }
  return (
    <Empty title="There is no topic yet." commands={["towpath jobs enqueue mail '{}'"]}>
      <p>A topic appears with its first job.</p>
    </Empty>
  );
}

function Row({ topic, line }: { topic: Topic; line: Line | undefined }) {
  const { rate } = topic;
  const ended = Array.from({ length: BARS }, (_, nth) => (line?.completed[nth] ?? 0) + (line?.failed[nth] ?? 0));
  const jobs = (query: Record<string, string>) => href("/jobs", { topic: topic.topic, ...query });
  return (
    <tr>
      <td class="cut">
        <a href={href(`/topics/${encodeURIComponent(topic.topic)}`)} title={plain(topic.topic)}>
          <bdi>{plain(topic.topic)}</bdi>
        </a>
      </td>
      <Count of={depth(topic.ready, topic)} label="ready" to={jobs({ state: "ready" })} />
      <td class={`num ${topic.oldestAt ? "" : "none"}`} data-label="oldest">
        {topic.oldestAt ? <Took from={topic.oldestAt} isRough /> : "–"}
      </td>
      <Count of={depth(topic.delayed, topic)} label="delayed" to={jobs({ state: "delayed" })} />
      <Count of={depth(topic.blocked, topic)} label="blocked" to={jobs({ state: "blocked" })} />
      <Count of={number(topic.reserved)} label="running" to={jobs({ status: "processing" })} />
      <Count of={depth(topic.buried, topic)} label="failed" to={jobs({ status: "failed" })} />
      <td class="num" data-label="per minute">
        {figure(rate.completed)}
        {rate.failed > 0 && <span class="failed"> · {figure(rate.failed)} failed</span>}
      </td>
      <td class="trend">
        <Spark values={ended} label={`${counted(ended.reduce((sum, each) => sum + each, 0), "job")} ended in the last hour`} />
      </td>
      <td>
        <ServedBy topic={topic} />
      </td>
      <td class="push">
        <PauseOrResume topic={topic} />
      </td>
    </tr>
  );
}

function Count({ of, label, to }: { of: string; label: string; to: string }) {
  return (
    <td class={`num ${of === "0" ? "none" : ""}`} data-label={label}>
      {of === "0" ? of : <a href={to}>{of}</a>}
    </td>
  );
}

/** A rate: two digits are enough. */
export function figure(value: number): string {
  return number(value < 10 ? Math.round(value * 10) / 10 : Math.round(value));
}
