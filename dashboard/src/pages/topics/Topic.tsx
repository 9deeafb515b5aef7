/** One topic: its figures over time, its limits, and what can be done to it. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";

import { useAsk } from "../../asking.ts";
import { type TopicDetail, api } from "../../client.ts";
import { Head } from "../../Layout.tsx";
import type { PageParts } from "../../pages.ts";
import { useChanges } from "../../parts/live.ts";
import { Card, ErrorNote, Loading } from "../../parts/notes.tsx";
import { useSeldom } from "../../parts/seldom.ts";
import { Took } from "../../parts/Time.tsx";
import { href } from "../../router.ts";
import { atLeast, depth, duration, number, plain } from "../../words.ts";
import { Backlog, Ended, Failures, Lengths, WorkersNow, emptiedIn, useWorkers } from "../overview/cards.tsx";
import { ChooseSpan, chosenSpan } from "../overview/range.tsx";
import { PauseOrResume, Purge, RequeueFailed, ServedBy } from "./acts.tsx";
import { figure } from "./Topics.tsx";

export function Topic({ topic: name = "" }: PageParts) {
  const span = chosenSpan();
  const at = useSignal<number | null>(null);
  const { minutes, step } = span;
  const asked = useAsk((signal) => api.topics.get(name, { signal }), [name]);
  useChanges((topics) => (!topics || topics.has(name)) && asked.again());
  const series = useAsk((signal) => api.jobs.history({ topic: name, minutes, step, signal }), [name, minutes, step]);
  useSeldom(series.again, 5_000);
  const workers = useWorkers();
  const topic = asked.value;
  return (
    <>
      <a class="back" href={href("/topics")}>
        ‹ Topics
      </a>
      <Head
        title={
          <>
            Topic <bdi>{plain(name)}</bdi>
          </>
        }
      >
        <ChooseSpan />
      </Head>
      {asked.error !== undefined && <ErrorNote error={asked.error} again={asked.again} />}
      {!topic && asked.error === undefined && <Loading />}
      {topic && (
        <>
          <div class="bar">
            <a class="button" href={href("/jobs", { topic: name })}>
              Jobs
            </a>
            <PauseOrResume topic={topic} />
            <RequeueFailed topic={topic} />
            <Purge topic={topic} />
          </div>
          <Figures topic={topic} />
          <div class="two">
            <div class="stack">
              <Ended series={series} span={span} at={at} />
              <Lengths series={series.value} at={at} topic={name} />
              <Backlog series={series} at={at} topic={topic} />
            </div>
            <div class="stack">
              <Limits of={topic.limits} />
              <Failures span={span} topic={name} />
              <WorkersNow asked={workers} topic={name} />
            </div>
          </div>
        </>
      )}
    </>
  );
}

function Figures({ topic }: { topic: TopicDetail }) {
  return (
    <dl class="strip">
      <Fact name="Ready">
        {depth(topic.ready, topic)}
        {topic.oldestAt && (
          <small>
            oldest <Took from={topic.oldestAt} isRough />
          </small>
        )}
      </Fact>
      <Fact name="Delayed">{depth(topic.delayed, topic)}</Fact>
      <Fact name="Blocked">{depth(topic.blocked, topic)}</Fact>
      <Fact name="Running">{number(topic.reserved)}</Fact>
      <Fact name="Failed">{depth(topic.buried, topic)}</Fact>
      <Fact name="Per minute">
        {figure(topic.rate.completed)}
        <small>{topic.rate.failed > 0 ? `${figure(topic.rate.failed)} failed` : emptiedIn(topic)}</small>
      </Fact>
      <Fact name="Run time">
        {topic.avgExecutionTime === null ? "–" : duration(topic.avgExecutionTime)}
        {topic.avgExecutionTime !== null && <small>on average</small>}
      </Fact>
      <Fact name="Served by">
        <span class="words">
          <ServedBy topic={topic} />
        </span>
      </Fact>
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Limits({ of }: { of: TopicDetail["limits"] }) {
  return (
    <Card title="Limits in use">
      {of.length ? (
        <ul class="lines">
          {of.map((limit) => (
            <li key={limit.key}>
              <bdi class="cut" title={plain(limit.key)}>
                {plain(limit.key)}
              </bdi>
              <span class="note">
                {[
                  `${number(limit.running)}${limit.concurrency === null ? "" : ` of ${number(limit.concurrency)}`} running`,
                  limit.rate !== null && `${figure(limit.rate)} per second`,
                  limit.blocked && `${atLeast(limit.blocked, limit.exact)} ${limit.blocked === 1 ? "waits" : "wait"}`,
                ]
                  .filter(Boolean)
                  .join(", ")}
              </span>
            </li>
          ))}
        </ul>
      ) : (
        <p class="note">No job of this topic is under a limit now.</p>
      )}
    </Card>
  );
}
