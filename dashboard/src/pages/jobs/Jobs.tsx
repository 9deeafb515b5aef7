/** The list of jobs: US6-1, US6-2, US6-3, US6-5. */

import { useEffect, useRef, useState } from "preact/hooks";

import { Head } from "../../Layout.tsx";
import { Button } from "../../parts/Button.tsx";
import { look } from "../../parts/live.ts";
import { Menu } from "../../parts/Menu.tsx";
import { Empty, ErrorNote, Loading, NoJobs } from "../../parts/notes.tsx";
import { Pager } from "../../parts/Pager.tsx";
import { Table } from "../../parts/Table.tsx";
import { Time } from "../../parts/Time.tsx";
import { filter, go, href, place } from "../../router.ts";
import { pageSize } from "../../settings.ts";
import { atLeast, counted, number } from "../../words.ts";
import { ChosenBar } from "./Chosen.tsx";
import { FROM_START, FilterBar, Tabs } from "./FilterBar.tsx";
import { JobRow } from "./Row.tsx";
import { Statistics } from "./Statistics.tsx";
import { type Verb, run, runAll } from "./acts.ts";
import { type Filters, ORDERS, type Order, described, filtersOf, fits, isNarrowed } from "./filters.ts";
import { type JobList, type Rows, useJobList } from "./list.ts";

const SIZES = ["25", "50", "100"] as const;

export function Jobs() {
  const filters = filtersOf(place.value.query);
  const size = Number(pageSize.value);
  const list = useJobList(filters, size);
  const { value } = list;
  const reload = () => {
    list.again();
    void look();
  };
  return (
    <>
      <Head title="Jobs">
        <Button onClick={() => go("/jobs/new", { topic: filters.topic })}>Enqueue a job</Button>
        <Button class="by-itself" onClick={reload}>
          Refresh
        </Button>
        <Menu
          label="View"
          choices={SIZES.map((each) => ({
            label: `${each} jobs on a page`,
            isChosen: pageSize.value === each,
            run: () => {
              pageSize.value = each;
              filter(FROM_START);
            },
          }))}
        />
      </Head>
      <Tabs chosen={filters.status} />
      <Statistics topic={filters.topic}>
        {value && value.fresh > 0 && (
          <Button class="fresh push" onClick={list.again}>
            ↑ {value.fresh >= size ? `${size}+ new jobs` : counted(value.fresh, "new job")}
          </Button>
        )}
      </Statistics>
      <FilterBar filters={filters} />
      {list.error !== undefined && <ErrorNote error={list.error} again={list.again} what="The jobs could not be read" />}
      {value ? <Found list={list} value={value} filters={value.filters} size={size} /> : !list.error && <Loading />}
    </>
  );
}

function Found({ list, value, filters, size }: { list: JobList; value: Rows; filters: Filters; size: number }) {
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [isEvery, setEvery] = useState(false);
  const last = useRef<number | null>(null);
  const { rows } = value;
  const where = `${rows[0]?.job.id} ${filters.before} ${filters.after}`;
  const clear = () => {
    setChosen(new Set());
    setEvery(false);
  };
  useEffect(clear, [where]);
  useEffect(() => {
    if (isEvery) clear(); // what is chosen is all that fits other filters
  }, [JSON.stringify(filters)]);
  if (!rows.length) return <Nothing value={value} filters={filters} />;

  const ids = rows.map(({ job }) => job.id);
  const choose = (nth: number, isChosen: boolean, isRange: boolean) => {
    const from = isRange && last.current !== null ? last.current : nth;
    const range = ids.slice(Math.min(from, nth), Math.max(from, nth) + 1);
    last.current = nth;
    setEvery(false);
    setChosen(new Set(isChosen ? [...chosen, ...range] : [...chosen].filter((id) => !range.includes(id))));
  };
  const isAll = ids.every((id) => chosen.has(id));
  const all = (
    <input
      type="checkbox"
      aria-label="Choose every job of this page"
      checked={isAll}
      onClick={() => {
        setEvery(false);
        setChosen(new Set(isAll ? [] : ids));
      }}
    />
  );
  const columns = [
    { name: all, class: "choose" },
    { name: "ID" },
    { name: "Topic" },
    { name: "Status" },
    { name: "Run at", isNumber: true },
    { name: "Retries", isNumber: true },
    { name: "Last error, or payload", class: "cut" },
    { name: "Actions" },
  ];
  const chosenJobs = rows.filter(({ job }) => chosen.has(job.id)).map(({ job }) => job);
  const runChosen = async (verb: Verb) => {
    await runAll(verb, chosenJobs);
    clear();
    await list.refresh();
    void look();
  };
  const runOne = (nth: number) => async (verb: Verb) => {
    const job = rows[nth]?.job;
    if (!job) return;
    const after = await run(verb, job);
    if (after) list.patch(after);
    else await list.refresh([job.id]); // it is gone, or is not what this row has shown
    void look();
  };
  return (
    <>
      <div class="over-list">
        {chosen.size > 0 ? (
          <ChosenBar
            value={value}
            chosen={chosenJobs}
            isEvery={isEvery}
            chooseEvery={() => {
              setChosen(new Set(ids));
              setEvery(true);
            }}
            clear={clear}
            run={runChosen}
          />
        ) : (
          <ListNote value={value} filters={filters} />
        )}
      </div>
      <Table label="Jobs" columns={columns} class="jobs">
        {rows.map((row, nth) => (
          <JobRow
            key={row.job.id}
            row={row}
            isFitting={fits(row.job, filters)}
            isChosen={chosen.has(row.job.id)}
            choose={(isChosen, isRange) => choose(nth, isChosen, isRange)}
            run={runOne(nth)}
          />
        ))}
      </Table>
      {value.lookedTo && value.next && <Further value={value} filters={filters} />}
      <Pages value={value} filters={filters} size={size} />
    </>
  );
}

function Pages({ value, filters, size }: { value: Rows; filters: Filters; size: number }) {
  const { total, next, prev } = value;
  const { page, order } = filters;
  const isOldest = order === "oldest";
  const pages = total && Math.max(page, Math.ceil(total.count / size));
  const step = (name: "before" | "after", at: string, to: number) => () => {
    if (to <= 1 && name === (isOldest ? "before" : "after")) filter(FROM_START);
    else filter({ ...FROM_START, [name]: at, page: to });
    scrollTo(0, 0);
  };
  return (
    <Pager
      where={`Page ${number(page)}${pages ? ` of ${atLeast(pages, total.exact)}` : ""}`}
      prev={prev ? step(isOldest ? "before" : "after", prev, page - 1) : undefined}
      next={next ? step(isOldest ? "after" : "before", next, page + 1) : undefined}
    />
  );
}

/** How many jobs are shown, and in which order. */
function ListNote({ value, filters }: { value: Rows; filters: Filters }) {
  const { order } = filters;
  const { rows, total } = value;
  const orders = (Object.keys(ORDERS) as Order[]).filter((each) => each !== "next" || filters.state === "ready" || filters.state === "delayed");
  return (
    <span class="note">
      {number(rows.length)}
      {total && ` of ${atLeast(total.count, total.exact)}`} jobs ·{" "}
      <Menu
        kind="quiet"
        label={ORDERS[order]}
        name="Order"
        choices={orders.map((each) => ({
          label: ORDERS[each],
          isChosen: order === each,
          run: () => filter({ ...FROM_START, order: each === "newest" ? null : each }),
        }))}
      />
    </span>
  );
}

/** One request looks at 50,000 jobs; another one goes on from there. */
function Further({ value, filters }: { value: Rows; filters: Filters }) {
  const isOldest = filters.order === "oldest";
  return (
    <div class="bar">
      <span class="note">
        Looked {isOldest ? "ahead" : "back"} to <Time at={value.lookedTo} as="clock" />; {isOldest ? "newer" : "older"} jobs were not looked at.
      </span>
      <Button onClick={() => filter({ ...FROM_START, [isOldest ? "after" : "before"]: value.next, page: filters.page + 1 })}>Look further</Button>
    </div>
  );
}

function Nothing({ value, filters }: { value: Rows; filters: Filters }) {
  const clear = <Button onClick={() => go("/jobs", { status: filters.status })}>Clear the filters</Button>;
  if (value.next) {
    return (
      <Empty title={`No match so far: ${described(filters)}.`}>
        <Further value={value} filters={filters} />
        {clear}
      </Empty>
    );
  }
  if (filters.before || filters.after) {
    return (
      <Empty title="No more jobs.">
        <a href={href("/jobs", { ...Object.fromEntries(place.value.query), ...FROM_START })}>Go to the first page</a>
      </Empty>
    );
  }
  if (isNarrowed(filters)) return <Empty title={`No job fits: ${described(filters)}.`}>{clear}</Empty>;
  if (filters.status) return <Empty title={`There is no ${filters.status} job.`} />;
  return <NoJobs />;
}
