"""Plans of lists and counts: however many jobs there are, one request reads no more than its bound.

As in test_plans, each database has one test, as it takes long to fill it: with 420,000 jobs in
every run, with 1,000,000 in a soak.
"""

import contextlib
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.behaviour.test_plans import PostgresGauge
from tests.faults.sizes import many
from towpath import App, State, Status
from towpath.app.listing import MOST_LOOKED
from towpath.database import sqlite as lite
from towpath.model.pages import Order
from towpath.operation import Operation, Row, Steps, drive
from towpath.statement import Query
from towpath.store import bulk, doctor, limits, listing, recent, stats
from towpath.store.listing import Page

pytestmark = pytest.mark.soak

# A quarter of them finished, ready, delayed, failed: each more than any bound.
JOBS = 420_000 if many(1) == 1 else 1_000_000
MOST_JOBS = 50_000  # rows of `job` in one request
MOST_OTHERS = 100_000  # rows of any other table
COUNTED = 100_000
NOW = 1_700_000_000_000_000
TWO_DAYS = 2 * 24 * 60
SLACK = JOBS // 20 * 10  # steps of a count of one topic, which has not reached its bound
GRAIN = 100  # steps of SQLite's machine between two looks

# One job a second, in turn finished, ready, delayed and failed; also, without jobs, leases and
# blocked ones.
TOPIC = "case when n % 60000 = 7 then 'rare' else 't' || (n % 20) end"
FILL = """
insert into {p}topic (name, created_at) select 't' || n, 0 from {twenty};
insert into {p}topic (name, created_at) values ('rare', 0);
insert into {p}limits (key, concurrency, burst, declared_by)
select 'limit ' || n, 1, 1, 1 from {twenty};
insert into {p}minute (minute, completed, failed, duration, topic)
select {minute} - m.n, 1, 1, 1, 't' || t.n from {minutes}, {twenty};
insert into {p}period (step, minute, completed, failed, duration, retried, crashed, topic)
select 60, ({minute} - {kept}) / 60 * 60 - 60 * m.n, 1, 1, 1, 0, 0, 't' || t.n
  from {hours}, {twenty};
insert into {p}depth (minute, ready, topic)
select {minute} - m.n, 1, 't' || t.n from {minutes}, {twenty};
insert into {p}depth (minute, ready, topic) select {minute} - m.n, 20, '' from {minutes};
"""
JOBS_FILL = """
insert into {p}job (created_at, run_at, priority, ttr, id, topic, encoding, payload)
select n * {second}, n * {second}, 50, 1, {id}, {topic}, 'json', '"payload ' || n || '"'
  from {numbers};
insert into {p}done (seq, finished_at, prune_at, duration, priority, epoch, cancelled, topic)
select n, n * {second}, 4611686018427387904, 1000, 50, 1, n % 8 = 0, {topic} from {numbers}
 where n % 4 = 0;
insert into {p}ready (seq, priority, topic)
select n, 50, {topic} from {numbers} where n % 4 = 1;
insert into {p}delayed (seq, run_at, priority, topic)
select n, 4000000000000000 + n, 50, {topic} from {numbers} where n % 4 = 2;
insert into {p}buried (seq, buried_at, priority, epoch, topic)
select n, n * {second}, 50, 1, {topic} from {numbers} where n % 4 = 3;
insert into {p}lease (seq, until, priority, epoch, reserved_at, token, topic, worker)
select 10 * {jobs} + n, 4000000000000000, 50, 1, 0, n, {topic}, 'w' || (n % 20) from {numbers}
 where n % 4 = 1;
insert into {p}blocked (seq, priority, topic, limit_key)
select 20 * {jobs} + n, 50, {topic}, 'limit ' || (n % 8) from {numbers} where n % 4 = 1;
insert into {p}failure (seq, epoch, failed_at, kind, error)
select n, 1, 0, 'error', 'no ' || n from {numbers} where n % 4 = 3;
"""
SECOND = "cast(1000000 as bigint)"
SERIES = "generate_series({}, {}) as {}(n)"
RECURSIVE = (
    "(with recursive numbers(n) as"
    " (select {} union all select n + 1 from numbers where n < {}) select n from numbers) {}"
)


def fill(execute: Callable[[str], object], prefix: str, series: str, now: int = NOW) -> None:
    minute = now // 60_000_000
    text = FILL.format(
        p=prefix,
        minute=minute,
        kept=TWO_DAYS,
        twenty=series.format(0, 19, "t"),
        minutes=series.format(0, TWO_DAYS - 1, "m"),
        hours=series.format(1, 30 * 24, "m"),
    )
    for part in text.split(";\n"):
        if part.strip():
            execute(part)


def fill_jobs(
    execute: Callable[[str], object], prefix: str, series: str, id: str, *of: int
) -> None:
    numbers = series.format(*of, "numbers")
    text = JOBS_FILL.format(p=prefix, id=id, topic=TOPIC, numbers=numbers, second=SECOND, jobs=JOBS)
    for part in text.split(";\n"):
        if part.strip():
            execute(part)


# ---------------------------------------------------------------- what is asked


def asked() -> Iterator[tuple[str, Operation]]:
    """Name the lists and counts that a page of the dashboard asks for."""
    for status in (None, Status.PENDING, *State):  # other statuses are states
        for topic in (None, "t3", "rare", "nothing"):
            for order in (Order.NEWEST, Order.OLDEST):
                page = Page(status=status, topic=topic, order=order)
                yield f"{status} of {topic}, {order}", request(page)
            if status is not State.CANCELLED:  # of which there are fewer than the bound
                plain = Page(status=status, topic=topic)
                yield f"{status} of {topic} counted", listing.count(plain)
        for more in (
            {"text": "nothing"},
            {"error": "nothing"},
            {"key": "nothing"},
            {"text": "payload", "before": JOBS // 2},
            {"after": JOBS // 2},
            {"since": 1_000 * 10**6, "until": 2_000 * 10**6},
            {"since": 1_000 * 10**6, "text": "nothing", "topic": "rare"},
        ):
            named = " ".join(f"{name} {value}" for name, value in more.items())
            yield f"{status} with {named}", request(Page(status=status, **more))
        yield (
            f"{status} found by text, counted",
            request(Page(status=status, text="9"), counts=True),
        )
    yield from of_workers_and_bulk_acts()
    for state in listing.LINES:
        for topic in (None, "t3"):
            yield f"the line {state}", request(Page(status=state, topic=topic, order=Order.NEXT))
    yield "stats", stats.overall(COUNTED)
    yield "topics", stats.by_topic(None, COUNTED)
    yield "one topic", stats.by_topic("t3", COUNTED)
    yield "rates", stats.rates()
    for minutes, width in ((60, 1), (TWO_DAYS, 5), (30 * 24 * 60, 60), (400 * 24 * 60, 1440)):
        for by_topic in (False, True):
            history = stats.history(None, minutes, width, by_topic=by_topic)
            yield f"history of {minutes} by topic {by_topic}", history
    yield "failures", recent.failures(None, 10**9, ())
    yield "failures of a topic", recent.failures("t19", 10**9, ())
    yield "run times", recent.took(None, 2_000)
    yield "run times of a rare topic", recent.took("rare", 2_000)
    yield "limits", limits.list_limits(None, COUNTED)
    yield "limits of a topic", limits.list_limits(["limit 1", "limit 19"], COUNTED)
    yield "overdue jobs", doctor.overdue(60_000_000)


def of_workers_and_bulk_acts() -> Iterator[tuple[str, Operation]]:
    for worker in ("w3", "nothing"):
        page = Page(status=State.RESERVED, worker=worker)
        yield f"jobs of worker {worker}", request(page)
    for verb in bulk.BulkVerb:
        for choice in (
            {"topic": "t3"},
            {"topic": "rare"},
            {"key": "nothing"},
            {"error": "nothing"},
            {"text": "nothing", "topic": "rare"},
            {"since": datetime.fromtimestamp(1_000, UTC)},
        ):
            chosen = bulk.JobChoice(**choice)
            yield f"preview of {verb} {choice}", bulk.preview(verb, chosen, None)
            yield f"a round of {verb} {choice}", a_round(verb, chosen)


def a_round(verb: bulk.BulkVerb, choice: bulk.JobChoice) -> Operation:
    """Return how a round of a bulk act finds its jobs, in the middle of the act."""
    at = datetime.fromtimestamp(0, UTC)
    act = bulk.Bulk(
        id=UUID(int=1), verb=verb, choice=choice, up_to=JOBS, by="", created_at=at, begins_at=at,
        ended_at=None, state=bulk.BulkState.RUNNING, count=0, exact=False, looked=0, done=0,
        refused=0, refusals=(), epoch=1,
    )  # fmt: skip
    return Operation("round", lambda: bulk.jobs_of_round(act, JOBS // 3))


def request(page: Page, *, counts: bool = False) -> Operation:
    """Return all that one request does, as app/listing.py does it."""

    def steps() -> Steps[tuple[listing.Walk, list[Any]]]:
        wanted = MOST_LOOKED if counts else page.limit + 1
        walk = yield from listing.begin(page).inside()
        while not walk.ended and len(walk.found) < wanted and walk.looked < MOST_LOOKED:
            walk = yield from listing.go_on(walk, MOST_LOOKED - walk.looked, wanted).inside()
        yield from listing.looked_to(walk).inside()
        numbers = walk.found[: page.limit]
        return walk, (yield from listing.briefs(numbers, "", page).inside())

    return Operation("request", steps)


# ---------------------------------------------------------------- PostgreSQL


@pytest.fixture
def full_postgres(own_postgres) -> Iterator[App]:
    schema = f"lists{os.getpid()}"
    app = App(own_postgres.url(), schema=schema)
    app.migrate()
    with psycopg.connect(own_postgres.url()) as connection:
        connection.execute("set synchronous_commit = off")
        id = "cast('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') as uuid)"
        fill(connection.execute, f"{schema}.", SERIES)
        fill_jobs(connection.execute, f"{schema}.", SERIES, id, 1, JOBS)
    with psycopg.connect(own_postgres.url(), autocommit=True) as connection:
        connection.execute("vacuum analyze")
    yield app
    app.close()
    with psycopg.connect(own_postgres.url(), autocommit=True) as connection:
        connection.execute(f"drop schema {schema} cascade")


def rows_by_table(plan: dict[str, Any], tables: Counter[str]) -> None:
    """Add the rows that a plan has read from each table, wanted or not."""
    table = plan.get("Relation Name")
    if table is not None:
        unwanted = sum(count for name, count in plan.items() if name.startswith("Rows Removed"))
        tables[table] += round((plan["Actual Rows"] + unwanted) * plan["Actual Loops"])
    for part in plan.get("Plans", ()):
        rows_by_table(part, tables)


def test_on_postgres_no_list_and_no_count_reads_more_than_its_bound(full_postgres, subtests):
    """US6-1, US6-6, S1"""
    gauge = PostgresGauge(full_postgres, "force_custom_plan")
    for name, operation in asked():
        with subtests.test(msg=name):
            tables: Counter[str] = Counter()
            for touched in gauge.measure(operation, NOW):
                rows_by_table(json.loads(touched.plan), tables)
            most = dict.fromkeys(tables, MOST_OTHERS) | {"job": MOST_JOBS + 1_000}
            over = {table: rows for table, rows in tables.items() if rows > most[table]}
            assert over == {}
    gauge.close()
    with subtests.test(msg="a larger count says that it is at least so many"):
        total = full_postgres.run(listing.count(Page(status=Status.COMPLETED)))
        assert (total.exact, 0 < total.count <= COUNTED) == (False, True)
        assert not full_postgres.jobs.stats(COUNTED).exact
    with subtests.test(msg="the first and the last page, a time and a search reach the right jobs"):
        check_reach(full_postgres)


# ---------------------------------------------------------------- SQLite


@pytest.fixture
def full_sqlite(tmp_path) -> Iterator[App]:
    path = tmp_path / "lists.db"
    app = App(f"sqlite:///{path}", durability="normal")
    app.migrate()
    with writing(app) as connection:
        fill(connection.execute, "towpath_", RECURSIVE)
    more_jobs(app, 1)
    yield app
    app.close()
    path.unlink()


def more_jobs(app: App, first: int) -> None:
    with writing(app) as connection:
        id = "cast(printf('%016d', n) as blob)"
        fill_jobs(connection.execute, "towpath_", RECURSIVE, id, first, first + JOBS - 1)


@contextlib.contextmanager
def writing(app: App) -> Iterator[sqlite3.Connection]:
    path = app.url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("pragma synchronous = off")
        yield connection


def steps_of(app: App, operation: Operation) -> int:
    """Return how many steps SQLite's machine makes for an operation, about."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += GRAIN
        return 0

    path = app.url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.set_progress_handler(count, GRAIN)
        cursor = connection.cursor()

        def execute(query: Query) -> list[Row]:
            return lite.execute(cursor, query, NOW)

        drive(operation.steps("all"), execute)
    return steps


def test_on_sqlite_lists_and_counts_of_twice_as_many_jobs_take_no_more_steps(full_sqlite, subtests):
    """US6-1, US6-6, S1"""
    before = {name: steps_of(full_sqlite, operation) for name, operation in asked()}
    more_jobs(full_sqlite, JOBS + 1)
    for name, operation in asked():
        with subtests.test(msg=name):
            assert steps_of(full_sqlite, operation) <= 1.2 * before[name] + SLACK
    with subtests.test(msg="the first and the last page, a time and a search reach the right jobs"):
        check_reach(full_sqlite)


def check_reach(app: App) -> None:
    """Find some jobs by each way."""
    last = app.jobs.list(limit=1)[0].seq
    assert last % JOBS == 0
    assert [job.seq for job in app.jobs.list(order="oldest", limit=2)] == [1, 2]
    rare = [number for number in range(last, 0, -1) if number % 60_000 == 7]
    assert [job.seq for job in app.jobs.list(topic="rare")] == rare
    found = app.jobs.briefs(text='"payload 7"')
    looks = 1
    while not found.items:
        assert found.looked <= MOST_LOOKED
        found = app.jobs.briefs(text='"payload 7"', before=found.next)
        looks += 1
    assert ([job.seq for job in found.items], looks) == ([7], -(-last // MOST_LOOKED))
    at = app.jobs.numbered(5_000).created_at
    [job] = app.jobs.list(since=at, order="oldest", limit=1)
    assert job.seq == 5_000
