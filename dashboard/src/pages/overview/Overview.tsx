/** The first page: what is wrong, how much there is to do, and how it went. */

import { useSignal } from "@preact/signals";

import { useAsk } from "../../asking.ts";
import { api } from "../../client.ts";
import { Head } from "../../Layout.tsx";
import { counts } from "../../parts/live.ts";
import { NoJobs } from "../../parts/notes.tsx";
import { useEvery, useSeldom } from "../../parts/seldom.ts";
import { Backlog, Ended, Failures, Lengths, WorkersNow, useWorkers } from "./cards.tsx";
import { Findings } from "./Findings.tsx";
import { ChooseSpan, chosenSpan } from "./range.tsx";
import { Tiles } from "./Tiles.tsx";

export function Overview() {
  const span = chosenSpan();
  const at = useSignal<number | null>(null);
  const { minutes, step } = span;
  const series = useAsk((signal) => api.jobs.history({ minutes, step, signal }), [minutes, step]);
  useSeldom(series.again, 5_000);
  useEvery(series.again, 60_000);
  const workers = useWorkers();
  const known = counts.value;
  const isUnused = known && !(known.pending + known.processing + known.buried + known.cancelled + known.completed + known.failed);
  return (
    <>
      <Head title="Overview">
        <ChooseSpan />
      </Head>
      <Findings />
      <Tiles counts={counts.value} workers={workers.value} series={series.value} span={span} at={at} />
      <div class="two">
        <div class="stack">
          {isUnused ? (
            <NoJobs />
          ) : (
            <>
              <Ended series={series} span={span} at={at} />
              <Lengths series={series.value} at={at} />
              <Backlog series={series} at={at} />
            </>
          )}
        </div>
        <div class="stack">
          <Failures span={span} />
          <WorkersNow asked={workers} />
        </div>
      </div>
    </>
  );
}
