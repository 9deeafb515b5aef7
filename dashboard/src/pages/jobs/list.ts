/**
 * The rows of the list, which change in place.
 *
 * A row never moves by itself: a job that no longer fits the filters stays until the next load, and
 * new jobs are only counted.
 */

import { useRef } from "preact/hooks";

import { type Asked, useAsk } from "../../asking.ts";
import { type Job, type JobBrief, type JobPage, api, isLoggedOut } from "../../client.ts";
import { type Changes, useChanges } from "../../parts/live.ts";
import { PROGRESS_EVERY, useEvery } from "../../parts/seldom.ts";
import { ended } from "../../session.ts";
import { type Filters, optionsOf } from "./filters.ts";
import { newIn } from "./fresh.ts";

export interface Row {
  job: JobBrief;
  /** How often it has changed since it was loaded. */
  changes: number;
  isGone: boolean;
}

export interface Rows extends Omit<JobPage<JobBrief>, "items"> {
  rows: Row[];
  /** Those by which these rows were found, which the address may have left already. */
  filters: Filters;
  /** New jobs that the next load shows; on the first page only. */
  fresh: number;
}

export interface JobList extends Asked<Rows> {
  /** Read shown jobs again, by their ids. */
  refresh: (ids?: string[]) => Promise<void>;
  /** Show a job as an act has left it. */
  patch: (job: Job) => void;
}

export function useJobList(filters: Filters, size: number): JobList {
  const about = JSON.stringify({ ...filters, page: undefined, size });
  const asked = useAsk(async (signal): Promise<Rows> => {
    const { items, ...rest } = await api.jobs.page({ ...optionsOf(filters), limit: size, count: true, signal });
    return { ...rest, rows: items.map((job) => ({ job, changes: 0, isGone: false })), filters, fresh: 0 };
  }, [about]);
  const isFirst = !filters.before && !filters.after;
  const shown = useRef<Rows>();
  shown.current = asked.value;

  const update = (found: JobBrief[], isWhole: (id: string) => boolean) => {
    const byId = new Map(found.map((job) => [job.id, job]));
    asked.put((value) => ({ ...value, rows: value.rows.map((row) => updated(row, byId, isWhole)) }));
  };

  const read = async (ids?: string[]) => {
    const wanted = ids ?? shown.current?.rows.map(({ job }) => job.id) ?? [];
    if (!wanted.length) return;
    const { items } = await api.jobs.page({ ids: wanted });
    update(items, (id) => wanted.includes(id));
  };

  /** One question tells what is new and what changed; a second one reads what has left the list. */
  const look = async () => {
    const before = shown.current;
    if (!before) return;
    if (!isFirst) {
      await read();
      return;
    }
    if (!before.rows.length) {
      asked.again();
      return;
    }
    const { items } = await api.jobs.page({ ...optionsOf(filters), limit: size });
    if (shown.current?.rows !== before.rows && shown.current?.rows[0]?.job.id !== before.rows[0]?.job.id) return;
    const known = new Set(before.rows.map(({ job }) => job.id));
    const found = new Set(items.map((job) => job.id));
    update(items, () => false);
    const were = before.rows.map(({ job }) => job);
    asked.put((value) => ({ ...value, fresh: newIn(items, were, filters.order, before.next !== null) }));
    const left = [...known].filter((id) => !found.has(id));
    if (left.length) await read(left);
  };

  useLatest(about, look, (topics) => {
    const { topic } = filters;
    if (!topics || !topic) return true;
    return topics.has(topic);
  });

  useEvery(() => {
    const running = shown.current?.rows.filter(({ job }) => job.status === "processing") ?? [];
    if (running.length) void quietly(() => read(running.map(({ job }) => job.id)));
  }, PROGRESS_EVERY);

  const patch = (job: Job) => {
    asked.put((value) => ({
      ...value,
      rows: value.rows.map((row) =>
        row.job.id === job.id ? { ...row, changes: row.changes + 1, job: merged(row.job, job) } : row,
      ),
    }));
  };
  return { ...asked, refresh: (ids) => quietly(() => read(ids)), patch };
}

/** Run a function at each change, one at a time; changes meanwhile make it run once more. */
function useLatest(about: string, run: () => Promise<void>, isWanted: (topics: Changes) => boolean): void {
  const running = useRef<{ about: string; again: boolean } | null>(null);
  useChanges((topics) => {
    if (!isWanted(topics)) return;
    if (running.current?.about === about) {
      running.current.again = true;
      return;
    }
    const mine = { about, again: false };
    running.current = mine;
    void quietly(async () => {
      do {
        mine.again = false;
        await run();
      } while (mine.again && running.current === mine);
    }).finally(() => {
      if (running.current === mine) running.current = null;
    });
  });
}

/** Without an answer the rows stay as they are; the next change asks again. */
async function quietly(run: () => Promise<void>): Promise<void> {
  try {
    await run();
  } catch (error) {
    if (isLoggedOut(error)) ended();
  }
}

function updated(row: Row, found: Map<string, JobBrief>, isWhole: (id: string) => boolean): Row {
  const job = found.get(row.job.id);
  if (!job) return isWhole(row.job.id) && !row.isGone ? { ...row, isGone: true, changes: row.changes + 1 } : row;
  const isSame = JSON.stringify(job) === JSON.stringify(row.job);
  if (isSame && !row.isGone) return row;
  const hasMoved = job.state !== row.job.state || job.retries !== row.job.retries || row.isGone;
  return { job, isGone: false, changes: row.changes + Number(hasMoved) };
}

/** A row with what an act has answered; the answer has no preview. */
function merged(brief: JobBrief, job: Job): JobBrief {
  const names = Object.keys(brief) as (keyof JobBrief)[];
  const told = names.filter((name) => name in job).map((name) => [name, job[name as keyof Job]]);
  return { ...brief, ...(Object.fromEntries(told) as Partial<JobBrief>) };
}
