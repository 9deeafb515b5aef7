"""Plans: beside a million delayed and a million finished jobs, a statement touches what it returns.

The operations run as they always do, and each of their statements is measured on its way.

To fill a database takes longer than all else here, and tests may run in several processes: so each
database has one test, whose parts are subtests.
"""

import contextlib
import itertools
import json
import os
import re
import sqlite3
import uuid
from collections.abc import Callable, Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg.sql import SQL, Literal

from tests.schemas import TABLES
from towpath import App, Limit, State, Status
from towpath.database import postgres as pg
from towpath.database import sqlite as lite
from towpath.database.clock import machine_clock
from towpath.errors import MaxJobsReached
from towpath.model.channels import stream_of
from towpath.operation import Operation, Row, Steps, drive
from towpath.statement import Query
from towpath.store import (
    admin,
    doctor,
    events,
    job_output,
    jobs,
    leases,
    limits,
    listing,
    lookup,
    reading,
    reserving,
    retention,
    sessions,
    stats,
    streams,
)
from towpath.store.dependencies import Node, enqueue_flow

MANY = 1_000_000
READY, LEASED, BURIED = 3_000, 3_000, 1_000
LIVE = 2 * READY + LEASED + BURIED
BATCH = 10
WAITING = 500  # for another job each
PORTION = 100  # of what is counted, or looked at in turn; far fewer than there are
ONE = Limit("printer", concurrency=1)

MOST_ROWS = 10  # that PostgreSQL may touch for each item asked and each row answered
MOST_STEPS = 400  # that SQLite's machine may make for each
GRAIN = 20  # steps between two looks; each look takes longer than a step

# Neither json_each nor the few rows of a subquery, recursive or not, are a table of ours.
SCAN = re.compile(r"SCAN (?!CONSTANT ROW)(?!\(subquery)(?!found|f$)(?!.* VIRTUAL TABLE)")
HOT = {
    "enqueue", "enqueue_keyed", "standing", "reserve", "candidates", "take", "complete", "settle",
    "touch", "promote", "expired", "next_due", "whereabouts", "write", "drop_oldest",
    "cancelled_of", "lock_limits", "count_running", "count_before", "park", "park_ready", "unpark",
    "topics_of_blocked", "due_limits", "note_completed", "hold_children", "with_all_parents",
    "let_in", "forget_ended", "depend", "hold_back", "await_ready", "count_unfinished",
    "may_expire", "next_leases", "orphans", "hold_leases", "hold_streams", "raise_streams",
    "states_of", "open_after", "over", "named", "post",
}  # fmt: skip


class Touched(NamedTuple):
    """What a statement cost."""

    query: Query
    rows: list[Row]
    cost: int  # rows touched on PostgreSQL, steps of its machine on SQLite
    plan: str


# ---------------------------------------------------------------- two full databases


FINISHED = (
    "insert into {}done (seq, finished_at, prune_at, priority, epoch, retries, crashes, timeouts,"
    " releases, buries, kicks, cancelled, topic)"
    " select n, 0, 4611686018427387904, 50, 1, 0, 0, 0, 0, 0, 0, false, 'mail' from {}"
)
DELAYED = (
    "insert into {}delayed (seq, run_at, priority, topic)"
    " select n, 4000000000000000 + n, 50, 'mail' from {}"
)
BODIES = (
    "insert into {}job (created_at, run_at, priority, ttr, id, topic, encoding, payload)"
    " select 0, 0, 50, 1, {}, 'mail', 'json', '1' from {}"
)


STREAMS = (
    "insert into {}channel (head, created_at, closed_at, job, epoch, said, name, ended)"
    " select 1, 0, 0, n, 1, 1, 'job:' || n, 'completed' from {}"
)


def fill(execute: Callable[[str], object], prefix: str, id: str, numbers: str, many: int) -> None:
    """Store finished and delayed jobs, far from now on both sides."""
    execute(BODIES.format(prefix, id, numbers.format(1, 2 * many)))
    execute(FINISHED.format(prefix, numbers.format(1, many)))
    execute(DELAYED.format(prefix, numbers.format(many + 1, 2 * many)))
    execute(STREAMS.format(prefix, numbers.format(1, many // 10)))


def populate(app: App) -> None:
    """Store what a busy queue holds besides, in every state."""
    app.jobs.enqueue_many("mail", range(LEASED + BURIED))
    leases = app.jobs.reserve("mail", limit=LEASED + BURIED)
    app.run(streams.say([words(each.job.seq, each.epoch) for each in leases]))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(app.jobs.bury, leases[LEASED:]))
    app.jobs.enqueue_many("mail", range(READY))
    app.jobs.enqueue_many("post", range(READY))
    app.jobs.enqueue("mail", key="taken")
    app.jobs.enqueue_many("print", range(READY), limit=ONE)
    while app.jobs.stats_topic("print").ready:
        app.jobs.reserve("print")
    app.jobs.enqueue_many("print", range(BATCH), limit=ONE)
    for parent in app.jobs.enqueue_many("part", range(WAITING)):
        app.jobs.enqueue("whole", after=[parent])
    app.jobs.reserve("part", limit=BATCH)


@pytest.fixture(params=[MANY, 1], ids=["millions", "thousands"])
def full_postgres(own_postgres, request) -> Iterator[App]:
    """A full database; of thousands too, where a planner would rather read a table as a whole.

    Always on our own server: which plan is chosen for a small table differs between versions.
    """
    schema = f"plans{os.getpid()}"
    app = App(own_postgres.url(), schema=schema)
    app.migrate()
    with psycopg.connect(own_postgres.url()) as connection:
        # It would summarize a range at the same time as this fixture, which then steps over it.
        for (table,) in connection.execute(TABLES, [schema]).fetchall():
            connection.execute(f"alter table {schema}.{table} set (autovacuum_enabled = false)")
        connection.execute("set synchronous_commit = off")
        id = "cast('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') as uuid)"
        numbers = "generate_series({}, {}) n"
        fill(connection.execute, f"{schema}.", id, numbers, request.param)
    populate(app)
    with psycopg.connect(own_postgres.url(), autocommit=True) as connection:
        connection.execute("vacuum analyze")
        # A BRIN index returns every page that it has not summarized; vacuum may leave some.
        connection.execute(f"select brin_summarize_new_values('{schema}.towpath_done_prune')")
    yield app
    app.close()
    with psycopg.connect(own_postgres.url(), autocommit=True) as connection:
        connection.execute(f"drop schema {schema} cascade")


@pytest.fixture
def full_sqlite(tmp_path) -> Iterator[App]:
    path = tmp_path / "full.db"
    app = App(f"sqlite:///{path}", durability="normal")
    app.migrate()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("pragma synchronous = off")
        connection.execute("pragma cache_size = -200000")
        id = "cast(printf('%016d', n) as blob)"
        numbers = (
            "(with recursive numbers(n) as"
            " (select {} union all select n + 1 from numbers where n < {}) select n from numbers)"
        )
        fill(connection.execute, "towpath_", id, numbers, MANY)
    populate(app)
    yield app
    app.close()
    path.unlink()


# ---------------------------------------------------------------- two gauges


class PostgresGauge:
    """Explains each statement of an operation, in a transaction that is rolled back."""

    def __init__(self, app: App, mode: str) -> None:
        self._schema = app.settings.schema
        self._connection = psycopg.connect(app.url)
        self._mode = mode
        self._touched: list[Touched] = []

    def measure(self, operation: Operation, now: int | None) -> list[Touched]:
        """Run an operation as if it were `now`, and undo it."""
        self._touched = []
        self._clock = (lambda: now) if now else None
        self._connection.execute(f"set local plan_cache_mode = {self._mode}")
        drive(operation.steps("all"), self._execute)
        self._connection.rollback()
        return self._touched

    def close(self) -> None:
        self._connection.close()

    def _execute(self, query: Query) -> list[Row]:
        plan = self._explained(query)
        text, params = pg.rendered(query.statement, self._schema), pg.bound(query, self._clock)
        cursor = self._connection.execute(text, params)
        rows = cursor.fetchall() if cursor.description else []
        self._touched.append(Touched(query, rows, scanned(plan), json.dumps(plan, indent=1)))
        return rows

    def _explained(self, query: Query) -> dict[str, Any]:
        text, names = pg.numbered(query.statement, self._schema)
        params = pg.bound(query, self._clock)
        given = SQL(", ").join(Literal(params[name]) for name in names)
        execution = SQL("execute measured ({})").format(given) if names else SQL("execute measured")
        with self._connection.cursor() as cursor:
            cursor.execute("savepoint measured")
            cursor.execute(f"prepare measured as {text}".encode())
            cursor.execute(SQL("explain (analyze, timing off, format json) {}").format(execution))
            [[[plan]]] = cursor.fetchall()
            cursor.execute("rollback to savepoint measured")
            cursor.execute("deallocate measured")
        return plan["Plan"]


def scanned(plan: dict[str, Any], tables: Container[str] | None = None) -> int:
    """Add up the rows that a plan has read from tables and indexes, wanted or not."""
    rows = 0
    table = plan.get("Relation Name", plan.get("Index Name"))
    if table is not None and (tables is None or table in tables):
        unwanted = sum(count for name, count in plan.items() if name.startswith("Rows Removed"))
        rows = round((plan["Actual Rows"] + unwanted) * plan["Actual Loops"])
    return rows + sum(scanned(part, tables) for part in plan.get("Plans", ()))


class SqliteGauge:
    """Explains each statement of an operation and counts its steps, and rolls it back."""

    def __init__(self, app: App) -> None:
        self._connection = sqlite3.connect(
            app.url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False
        )
        self._steps = 0
        self._touched: list[Touched] = []

    def measure(self, operation: Operation, now: int | None) -> list[Touched]:
        """Run an operation as if it were `now`, and undo it."""
        self._touched = []
        self._now = now or machine_clock()
        self._connection.execute("begin immediate")
        drive(operation.steps("all"), self._execute)
        self._connection.execute("rollback")
        return self._touched

    def close(self) -> None:
        self._connection.close()

    def _execute(self, query: Query) -> list[Row]:
        plan = self._explained(query)
        self._steps = 0
        self._connection.set_progress_handler(self._step, GRAIN)
        try:
            rows = lite.execute(self._connection.cursor(), query, self._now)
        finally:
            self._connection.set_progress_handler(None, 0)
        self._touched.append(Touched(query, rows, self._steps, plan))
        return rows

    def _step(self) -> int:
        self._steps += GRAIN
        return 0

    def _explained(self, query: Query) -> str:
        return "\n".join(
            row[3]
            for part in query.statement.text("sqlite").split(";")
            if part.strip()
            for row in self._connection.execute(f"explain query plan {part}", _Nulls())
        )


class _Nulls(dict[str, None]):
    def __missing__(self, name: str) -> None:
        return None


# ---------------------------------------------------------------- what is measured


def operations(app: App) -> Iterator[tuple[str, Operation, int | None]]:
    """Name every operation that runs often, on a few jobs, now or when much is due."""
    later = 4_000_000_000_000_000 + MANY + 50
    for count in (1, BATCH):
        new = [new_job() for _ in range(count)]
        yield f"enqueue {count}", jobs.enqueue(new), None
        keyed = [new_job(key=str(n)) for n in range(count)]
        yield f"enqueue {count} with keys", jobs.enqueue(keyed), None
        yield f"enqueue {count} with taken keys", jobs.enqueue([new_job(key="taken")] * count), None
        for topics in (("mail",), ("mail", "post", "nothing")):
            where = " and ".join(topics)
            yield f"reserve {count} of {where}", reserve(topics, count), None
            yield f"reserve {count} of {where} when much is due", reserve(topics, count), later
        held = app.jobs.list(status=Status.PROCESSING, limit=count)
        places = [{"seq": job.seq, "epoch": job.epoch} for job in held]
        stale = [{"seq": job.seq, "epoch": 0} for job in held]
        yield f"complete {count}", leases.complete(completions(places)), None
        yield f"complete {count} too late", leases.complete(completions(stale)), None
        yield from spoken(app, count)
        for goal in ("ready", "delayed", "buried", "gone"):
            outcomes = [
                leases.Outcome(**place, goal=goal, kind="error", error="no") for place in places
            ]
            yield f"settle {count} to {goal}", leases.settle(outcomes), None
        yield (
            f"touch {count}",
            leases.touch([leases.Touch(**place, ttr=1) for place in places]),
            None,
        )
        yield (
            f"touch {count} too late",
            leases.touch([leases.Touch(**p, ttr=1) for p in stale]),
            None,
        )
        for kind, place in ((kind, place) for kind in job_output.Kind for place in (places, stale)):
            said = [job_output.Note(**each, kind=kind, no=1, text="a line") for each in place]
            yield f"write {count} {kind} of {place[0]['epoch']}", job_output.write(said), None
    yield "reserve what is limited", reserve(("print",), BATCH, limited=True), None
    for topic in ("print", "part"):
        held = app.jobs.list(status=Status.PROCESSING, topic=topic)
        places = [{"seq": job.seq, "epoch": job.epoch} for job in held]
        yield f"complete what is awaited in {topic}", leases.complete(completions(places)), None
    yield "let in what is due", Operation("due_freed", limits.due_freed), None
    yield from bounded()
    chain = [Node(new_job()), Node(new_job(), parents=[0])]
    yield "enqueue a chain", enqueue_flow(chain, jobs.enqueue), None
    waiting = [Node(new_job(), after=[app.jobs.list(topic="part", limit=1)[0].id])]
    yield "enqueue after another", enqueue_flow(waiting, jobs.enqueue), None
    yield "look for cancelled ones", sessions.cancelled(1), None
    yield "look into an empty topic", reserve(("nothing",), 1), None
    marks = [
        reserving.Range("mail", upto=49),
        reserving.Range("mail", 50, app.jobs.peek("mail").seq),
    ]
    behind = reserving.reserve(("mail",), limit=BATCH, token=next(_tokens), ranges=marks)
    yield "reserve behind the low-water marks", behind, None
    for come_due in (reserving.promote, reserving.rescue):
        yield f"nothing to {come_due.__name__}", come_due(("mail", "post")), None
        yield f"much to {come_due.__name__}", come_due(("mail", "post")), later
    yield "prune nothing", retention.prune(), None
    yield "purge", admin.purge("mail", BATCH), None
    yield "kick", admin.kick("mail", BATCH), None
    [job] = app.jobs.list(limit=1)
    yield "get", lookup.get(job.id), None
    for state in (State.READY, State.DELAYED, State.BURIED):
        yield f"peek {state}", lookup.peek("mail", state), None
    for status, topic, before in itertools.product(
        (None, *Status, *State), (None, "mail"), (None, MANY // 2, MANY * 3 // 2)
    ):
        page = listing.Page(
            topic=topic, status=status, key=None, text=None, before=before, limit=20, offset=20
        )
        name = f"list {status} of {topic} before {before}"
        yield name, listing.list_jobs(page), None


def spoken(app: App, count: int) -> Iterator[tuple[str, Operation, int | None]]:
    """Name what is done with jobs that have streams."""
    held = app.jobs.list(status=Status.PROCESSING, topic="mail", limit=count)
    places = [{"seq": job.seq, "epoch": job.epoch} for job in held]
    yield f"say {count}", streams.say([words(**place, said=1) for place in places]), None
    yield f"say {count} too late", streams.say([words(job.seq, 0) for job in held]), None
    yield f"complete {count} streams", leases.complete(completions(places)), None
    for goal in ("ready", "buried", "gone"):
        outcomes = [leases.Outcome(**place, goal=goal) for place in places]
        yield f"settle {count} streams to {goal}", leases.settle(outcomes), None
    reads = [reading.ReadFrom(stream_of(job.id)) for job in held]
    yield f"read {count} streams", reading.read(reads), None
    silent = app.jobs.list(status=Status.PROCESSING, topic="part", limit=count)
    reads = [reading.ReadFrom(stream_of(job.id)) for job in silent]
    yield f"read {count} silent streams", reading.read(reads), None
    yield "end some streams", streams.end_some(0), None


def words(seq: int, epoch: int, said: int = 0) -> streams.Say:
    word = events.EventBody(id=uuid.uuid4(), body="1", encoding="json", size=1)
    return streams.Say(seq=seq, epoch=epoch, said=said, words=[word])


PORTIONS = (
    "refuse a job of a full topic",
    "adopt orphans",
    "look for what was put off",
    "end some streams",
)


def bounded() -> Iterator[tuple[str, Operation, int | None]]:
    """Name what reads no more than a portion of what there is."""
    yield "count an empty topic", within("nothing"), None
    yield PORTIONS[0], within("mail"), None
    yield PORTIONS[1], sessions.adopt_orphans(limit=PORTION), None
    yield PORTIONS[2], doctor.put_off(["mail"], PORTION), None


def new_job(key: str | None = None, topic: str = "mail") -> jobs.NewJob:
    return jobs.NewJob(
        id=uuid.uuid4(), topic=topic, body="1", encoding="json", priority=50, ttr=1, key=key
    )


def within(topic: str) -> Operation:
    """Return what stores a job in a topic that may hold so many as a portion has."""
    enqueue = jobs.enqueue_within(
        [new_job(topic=topic)], max_topics=0, max_jobs=PORTION, make_room=admin.expire
    )

    def steps() -> Steps[None]:
        asked = enqueue.start()
        assert next(asked).statement.name == "lock_topics"  # which has no plan
        with contextlib.suppress(MaxJobsReached):
            yield from asked

    return Operation("within", steps)


def reserve(topics: tuple[str, ...], limit: int, *, limited: bool = False) -> Operation:
    return reserving.reserve(topics, limit=limit, token=next(_tokens), limited=limited)


def completions(places: list[dict[str, int]]) -> list[leases.Completion]:
    return [leases.Completion(**place) for place in places]


_tokens = itertools.count(10)


# ---------------------------------------------------------------- tests


def check(
    subtests, app: App, gauge: PostgresGauge | SqliteGauge, most: int, *, seldom: bool
) -> dict[str, str]:
    """Hold each statement to what it asked and answered, and a seldom one to what is alive.

    Return the plans of all statements by their names.
    """
    plans: dict[str, str] = {}
    for name, operation, now in operations(app):
        is_seldom = name.startswith(("list", "purge", "prune"))
        if is_seldom and not seldom:
            continue
        with subtests.test(msg=name):
            for query, rows, cost, plan in gauge.measure(operation, now):
                plans[query.statement.name] = plan
                asked = len(query.items or [None])
                allowed = most * (asked + len(rows))
                if is_seldom:
                    allowed += most * LIVE
                elif name in PORTIONS:
                    allowed += most * PORTION
                assert cost <= allowed, (
                    f"{query.statement.name} cost {cost:,}; it asked for {asked} and answered "
                    f"{len(rows)}:\n{plan}"
                )
    gauge.close()
    assert plans.keys() >= HOT
    return plans


def test_on_postgres_a_statement_touches_no_more_than_it_returns(full_postgres, subtests):
    """With the plan made for these very parameters, and with the one made for any."""
    check(
        subtests,
        full_postgres,
        PostgresGauge(full_postgres, "force_custom_plan"),
        MOST_ROWS,
        seldom=True,
    )
    # With an unknown limit a plan for any parameters never pays for a list, and is not chosen.
    check(
        subtests,
        full_postgres,
        PostgresGauge(full_postgres, "force_generic_plan"),
        MOST_ROWS,
        seldom=False,
    )
    with subtests.test(msg="statistics cost the same with a million finished jobs"):
        assert finished_jobs_read_for_statistics(full_postgres) <= BATCH


def finished_jobs_read_for_statistics(app: App) -> int:
    """Live jobs are counted; what has finished comes from the tally."""
    gauge = PostgresGauge(app, "force_custom_plan")
    finished = [
        scanned(json.loads(touched.plan), {"job", "done"})
        for operation in (stats.overall(), stats.by_topic("mail"), stats.throughput(None, 60))
        for touched in gauge.measure(operation, None)
    ]
    gauge.close()
    return sum(finished)


def test_on_sqlite_a_statement_takes_a_few_steps_for_what_it_returns(full_sqlite, subtests):
    """As the file is found, and after ANALYZE, which its owner may have run."""
    plans = check(subtests, full_sqlite, SqliteGauge(full_sqlite), MOST_STEPS, seldom=True)
    with subtests.test(msg="no hot statement scans a table"):
        assert scans_of_hot_statements(plans) == {}
    path = full_sqlite.url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("analyze")
    plans = check(subtests, full_sqlite, SqliteGauge(full_sqlite), MOST_STEPS, seldom=True)
    with subtests.test(msg="no hot statement scans a table after ANALYZE"):
        assert scans_of_hot_statements(plans) == {}


def scans_of_hot_statements(plans: dict[str, str]) -> dict[str, list[str]]:
    scans = {name: [line for line in plans[name].splitlines() if SCAN.match(line)] for name in HOT}
    return {name: lines for name, lines in scans.items() if lines}
