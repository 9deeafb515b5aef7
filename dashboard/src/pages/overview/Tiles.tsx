/** A tile for each state; while the cursor is on a chart, the tiles show that time. */

import type { Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";

import type { History, Stats, WorkerOverview } from "../../client.ts";
import { moment } from "../../parts/charts/Frame.tsx";
import { stepAt } from "../../parts/charts/scale.ts";
import { Mark, type Marked } from "../../parts/Mark.tsx";
import { Took } from "../../parts/Time.tsx";
import { href } from "../../router.ts";
import { atLeast, counted, duration, number, percent } from "../../words.ts";
import { isSilent } from "../Workers.tsx";
import type { Span } from "./range.tsx";

type Step = History["items"][number];

interface Given {
  counts: Stats | null;
  workers: WorkerOverview | undefined;
  series: History | undefined;
  span: Span;
  at: Signal<number | null>;
}

export function Tiles({ counts, workers, series, span, at }: Given) {
  const then = at.value === null || !series ? null : stepOf(series, at.value);
  const sum = summed(then ? [then] : (series?.items ?? []));
  const now = then ? null : counts;
  const isExact = now?.exact ?? true;
  const when = then ? `at ${moment(at.value ?? 0, rangeOf(series))}` : span.words;
  const oldest = then ? then.oldestAt : series?.items.at(-1)?.oldestAt;
  const places = (workers?.items ?? []).reduce((sum, each) => sum + (isSilent(each) ? 0 : (each.concurrency ?? 0)), 0);
  const isKnown = series !== undefined;
  return (
    <section class={`tiles ${then ? "then" : ""}`} aria-label={then ? `Figures ${when}` : "Figures"} data-at={then ? when : undefined}>
      <Tile of="ready" query={{ state: "ready" }} value={then ? then.ready : now?.ready} isExact={isExact}>
        {oldest ? (
          <>
            oldest <Took isRough from={oldest} to={then ? series?.items[0] && new Date((at.value ?? 0) + series.step * 1000) : undefined} />
          </>
        ) : (
          then && when
        )}
      </Tile>
      <Tile of="delayed" query={{ state: "delayed" }} value={now?.delayed} isExact={isExact} />
      <Tile of="blocked" query={{ state: "blocked" }} value={now?.blocked} isExact={isExact} />
      <Tile of="processing" query={{ status: "processing" }} value={now?.processing}>
        {now && places > 0 && `of ${counted(places, "place")}`}
      </Tile>
      <Tile of="completed" query={{ status: "completed" }} value={isKnown ? sum.completed : undefined}>
        {when}
      </Tile>
      <Tile of="failed" query={{ status: "failed" }} value={then ? then.failed : now?.buried} isExact={isExact}>
        {then ? when : isKnown && `${number(sum.failed)} ${span.words}`}
      </Tile>
      <Tile of="cancelled" query={{ status: "cancelled" }} value={now?.cancelled} isExact={isExact} />
      <div class="tile">
        <span class="mark rate">success</span>
        <b>{sum.completed + sum.failed ? percent(sum.completed / (sum.completed + sum.failed)) : "–"}</b>
        <small>{sum.average !== null && `${duration(sum.average)} on average`}</small>
      </div>
    </section>
  );
}

interface TileGiven {
  of: Marked;
  query: Record<string, string>;
  value: number | null | undefined;
  isExact?: boolean;
  children?: ComponentChildren;
}

function Tile({ of, query, value, isExact = true, children }: TileGiven) {
  return (
    <a class="tile" href={href("/jobs", query)}>
      <Mark of={of} />
      <b>{value === null || value === undefined ? "–" : atLeast(value, isExact || !value)}</b>
      <small>{children}</small>
    </a>
  );
}

/** The range of time that a series covers. */
export function rangeOf(series: History | undefined): [number, number] {
  if (!series) return [0, 1];
  const from = Date.parse(series.from ?? "");
  return [from, from + Math.max(1, series.items.length) * series.step * 1000];
}

function stepOf(series: History, at: number): Step | null {
  return series.items[stepAt(at, Date.parse(series.from ?? ""), series.step * 1000, series.items.length)] ?? null;
}

/** How many jobs ended, and how long the completed ones took on average. */
export function summed(steps: readonly Step[]): { completed: number; failed: number; average: number | null } {
  let [completed, failed, spent] = [0, 0, 0];
  for (const each of steps) {
    completed += each.completed;
    failed += each.failed;
    spent += each.completed * (each.avgExecutionTime ?? 0);
  }
  return { completed, failed, average: completed ? spent / completed : null };
}
