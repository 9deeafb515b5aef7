"""Plans: beside 100,000 channels and a million events, a statement touches what it returns."""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.behaviour.test_plans import (
    MOST_ROWS,
    MOST_STEPS,
    PostgresGauge,
    SqliteGauge,
)
from towpath import App, NewEvent
from towpath.app.events import Events
from towpath.model.cursor import Cursor
from towpath.operation import Operation
from towpath.store import channels, events
from towpath.store.events import Append, ReadFrom

CHANNELS = 100_000
EVENTS = 10  # of each channel
LONG = 20_000  # of one channel
BATCH = 10
EVENT = (
    "insert into {0}event (channel, seq, at, size, id, encoding, body)"
    " select c.id, n, 0, 1, {1}, 'json', '1' from {0}channel c cross join {2}"
)
CHANNEL = "insert into {0}channel (name, created_at, head, bytes) select {1}, 0, {2}, {2} from {3}"


def fill(execute: Callable[[str], object], prefix: str, name: str, id: str, numbers: str) -> None:
    """Store many channels with a few events, and one with many."""
    execute(CHANNEL.format(prefix, name, EVENTS, numbers.format(1, CHANNELS)))
    execute(EVENT.format(prefix, id, numbers.format(1, EVENTS)))
    execute(CHANNEL.format(prefix, "'long'", LONG, numbers.format(1, 1)))
    where = " where c.name = 'long'"
    execute(EVENT.format(prefix, id, numbers.format(1, LONG)) + where)


@pytest.fixture
def full_postgres(own_postgres) -> Iterator[App]:
    schema = f"event_plans{os.getpid()}"
    app = App(own_postgres.url(), schema=schema)
    app.migrate()
    with psycopg.connect(own_postgres.url()) as connection:
        connection.execute("set synchronous_commit = off")
        id = "cast('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') as uuid)"
        numbers = "generate_series({}, {}) n"
        fill(connection.execute, f"{schema}.", "'c' || lpad(n::text, 8, '0')", id, numbers)
    with psycopg.connect(own_postgres.url(), autocommit=True) as connection:
        connection.execute("vacuum analyze")
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
        numbers = (
            "(with recursive numbers(n) as"
            " (select {} union all select n + 1 from numbers where n < {}) select n from numbers)"
        )
        id = "cast(printf('%016d', n) as blob)"
        fill(connection.execute, "towpath_", "printf('c%08d', n)", id, numbers)
    yield app
    app.close()
    path.unlink()


def operations(app: App) -> Iterator[tuple[str, Operation]]:
    """Name what publishers, readers and the hub do."""
    verbs: Events = app.events
    names = [f"c{n:08}" for n in range(1, CHANNELS, CHANNELS // BATCH)][:BATCH]
    plain = [verbs._append(name, [NewEvent(1)]) for name in names]
    yield "publish", events.publish(plain[:1])
    yield "publish to several", events.publish(plain)
    yield "publish many", events.publish([verbs._append("long", [NewEvent(1)] * BATCH)])
    yield "append with keys", events.append([verbs._append("long", [NewEvent(1, key="k")])])
    yield "append to a new channel", events.append([verbs._append("new", [NewEvent(1)])])
    yield "close", events.append([Append(channel="long", ended="closed", create=False)])
    yield "place", events.place(names)
    yield "post", events.post(plain[0])
    head = Cursor.parse(verbs.position("long"))
    for seq in (0, LONG // 2, LONG - BATCH, LONG):
        after = head._replace(seq=seq)
        yield f"read behind {seq}", events.read([ReadFrom("long", after, BATCH)])
    yield "read several", events.read([ReadFrom(name) for name in names])
    yield "read nothing", events.read([ReadFrom("nothing")])
    yield "look at heads", channels.heads([*names, "nothing"])
    yield "list", channels.list_channels("c000", "c0005", BATCH)
    yield "list all", channels.list_channels("", "", BATCH)
    yield "look for what is posted", channels.posted(BATCH)
    yield "look for what is deleted", channels.drop_deleted()
    yield "find a time", channels.before("long", 1)


def check(subtests, app: App, gauge: PostgresGauge | SqliteGauge, most: int) -> None:
    for name, operation in operations(app):
        with subtests.test(msg=name):
            for query, rows, cost, plan in gauge.measure(operation, None):
                allowed = most * (len(query.items or [None]) + len(rows))
                assert cost <= allowed, f"{query.statement.name} cost {cost:,}:\n{plan}"
    gauge.close()


def test_on_postgres_a_statement_of_events_touches_no_more_than_it_returns(full_postgres, subtests):
    check(subtests, full_postgres, PostgresGauge(full_postgres, "force_custom_plan"), MOST_ROWS)
    check(subtests, full_postgres, PostgresGauge(full_postgres, "force_generic_plan"), MOST_ROWS)


def test_on_sqlite_a_statement_of_events_takes_a_few_steps_for_what_it_returns(
    full_sqlite, subtests
):
    check(subtests, full_sqlite, SqliteGauge(full_sqlite), MOST_STEPS)
    path = full_sqlite.url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("analyze")
    check(subtests, full_sqlite, SqliteGauge(full_sqlite), MOST_STEPS)
