"""Plans of events: with 100,000 channels and a million events, a statement touches what it returns.

As in test_plans, each database has one test, as it takes long to fill it.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from uuid import UUID

import msgspec
import psycopg
import pytest

from tests.behaviour.test_plans import MOST_ROWS, MOST_STEPS, PostgresGauge, SqliteGauge
from towpath import App, NewEvent
from towpath.model.channels import stream_of
from towpath.model.cursor import START, Cursor
from towpath.operation import Operation
from towpath.store import channels, consumers, events, reading, trimming
from towpath.store.consumers import Ack, Attached
from towpath.store.events import Append
from towpath.store.reading import ReadFrom

CHANNELS, EVENTS, LONG = 100_000, 1_000_000, 500_000
HOT = {
    "publish", "read", "read_fork", "moved", "states_of", "heads", "hold", "waiting",
    "posted_names", "deleted_channels", "drop_events", "drop_channels",
    "hold_channel", "place_of", "begin_consumer", "move_consumer", "ack", "standing", "refresh",
    "list_consumers", "forget_consumer", "visit", "hold_to_trim", "limits_of", "oldest",
    "raise_low", "raise_forks", "count_consumers", "drop_below",
}  # fmt: skip

FILL = """
insert into {p}channel (name, head, bytes, created_at)
select 'c' || n, {each}, {each}, 0 from {channels};

insert into {p}channel (name, head, bytes, created_at) values ('long', {long}, {long}, 0);

insert into {p}channel (name, head, created_at, job) select 'job:' || n, 1, 0, n from {channels};

insert into {p}event (channel, seq, at, size, id, encoding, body)
select 1 + (n - 1) / {each}, 1 + (n - 1) % {each}, 0, 1, {id}, 'json', '1' from {short};

insert into {p}event (channel, seq, at, size, id, encoding, body)
select (select id from {p}channel where name = 'long'), n, 0, 1, {id}, 'json', '1' from {many};

insert into {p}consumer (channel, acked, generation, seen_at, name)
select id, 0, 1, 0, 'mailer' from {p}channel where name is not null;

insert into {p}lifetime (channel, max_count, drop_acked)
select id, 1, true from {p}channel where name like 'c%0';

insert into {p}channel (name, head, created_at, source, fork_at)
select 'fork', {long}, 0, id, {long} from {p}channel where name = 'long';

insert into {p}channel (head, created_at) select 1, 0 from {few};

insert into {p}event (channel, seq, at, size, id, encoding, body)
select id, 1, 0, 1, {id}, 'json', '1' from (select id, id as n from {p}channel where name is null) c
"""


def fill(execute: Callable[[str], object], prefix: str, id: str, numbers: str, share: int) -> None:
    """Store channels, events, consumers and limits; every event is older than any limit."""
    count, long = CHANNELS // share, LONG // share
    each = (EVENTS // share - long) // count
    for text in FILL.split(";"):
        execute(
            text.format(
                p=prefix,
                id=id,
                each=each,
                long=long,
                channels=numbers.format(1, count),
                short=numbers.format(1, count * each),
                many=numbers.format(1, long),
                few=numbers.format(1, 20),
            )
        )


@pytest.fixture(params=[1, 20], ids=["millions", "thousands"])
def full_postgres(own_postgres, request) -> Iterator[App]:
    schema = f"event_plans{os.getpid()}"
    app = App(own_postgres.url(), schema=schema)
    app.migrate()
    with psycopg.connect(own_postgres.url()) as connection:
        connection.execute("set synchronous_commit = off")
        id = "cast('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') as uuid)"
        fill(connection.execute, f"{schema}.", id, "generate_series({}, {}) n", request.param)
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
        connection.execute("pragma cache_size = -200000")
        numbers = (
            "(with recursive numbers(n) as"
            " (select {} union all select n + 1 from numbers where n < {}) select n from numbers)"
        )
        fill(connection.execute, "towpath_", "cast(printf('%016d', n) as blob)", numbers, 1)
    yield app
    app.close()
    path.unlink()


def operations(app: App) -> Iterator[tuple[str, Operation]]:
    """Name what runs often, on one channel of many or on some of them."""
    [first] = app.events.list("c1000", limit=1) or app.events.list("c", limit=1)
    name, number = first.name, Cursor.parse(first.head).channel
    long = Cursor.parse(app.events.position("long"))
    yield "publish", events.publish([_append(app, "long"), _append(app, name)])
    yield "append", events.append([_append(app, "long"), _append(app, name)])
    yield "read the first", reading.read([ReadFrom("long", START, 10), ReadFrom(name, START, 10)])
    yield "read the last", reading.read([ReadFrom("long", long._replace(seq=long.seq - 5), 10)])
    yield "read from the middle", reading.read([ReadFrom("long", long._replace(seq=1_000), 10)])
    fork = Cursor.parse(app.events.position("fork"))
    for seq in (0, 1_000, long.seq - 5):
        yield (
            f"read a fork from {seq}",
            reading.read([ReadFrom("fork", fork._replace(seq=seq), 10)]),
        )
    keyed = app.events._append("long", [NewEvent(1, key="k")])
    yield "append with a key", events.append([keyed])
    yield "append to a new channel", events.append([_append(app, "new")])
    yield "close", events.append([Append(channel="long", ended="closed", create=False)])
    yield "place", events.place([name, "long"])
    yield "post", events.post(_append(app, "long"))
    yield "find a time", channels.before("long", 1)
    yield "heads", channels.heads([name, "long", "nothing"])
    cursors = {"long": str(long), name: first.head, "nothing": str(START)}
    yield "look", reading.moved(cursors, silent=True)
    born = {f"job:{n}": str(long._replace(channel=long.channel + n, seq=1)) for n in range(1, 21)}
    unborn = {stream_of(UUID(int=n)): str(START) for n in range(20)}
    yield "look at jobs", reading.moved(born | unborn, silent=True)
    yield "list", channels.list_channels("c", name, 20)
    yield "nothing posted", channels.posted(100)
    yield "drop what is deleted", channels.drop_deleted()
    yield "attach a new consumer", consumers.attach(name, "new", None, None, 1_000)
    yield "attach a known consumer", consumers.attach("long", "mailer", None, None, 1_000)
    acks = [Ack("long", "mailer", long, 1), Ack(name, "mailer", START, 2)]
    yield "ack, and refuse an ack", consumers.ack(acks)
    yield "check", consumers.check([Attached("long", "mailer", 1), Attached(name, "mailer", 1)])
    yield "refresh", consumers.refresh(Attached("long", "mailer", 1))
    yield "list consumers", consumers.list_consumers("long", "", 20, 1)
    yield "forget a consumer", consumers.forget("long", "mailer", None)
    kept = trimming.Kept.of(app.settings)
    for after in (0, number, long.channel, long.channel + 5):
        yield f"visit from {after}", trimming.visit(after, kept)
    for channel in (number, long.channel, fork.channel):
        yield f"trim {channel}", trimming.trim(channel, kept)
        yield f"drop {channel}", trimming.drop_below(channel, 500)
        yield f"drop nothing of {channel}", trimming.drop_below(channel, 0)


def _append(app: App, channel: str) -> Append:
    return app.events._append(channel, [NewEvent(1)])


def check(subtests, app: App, gauge: PostgresGauge | SqliteGauge, most: int) -> None:
    seen = set()
    for name, operation in operations(app):
        with subtests.test(msg=name):
            for query, rows, cost, plan in gauge.measure(operation, None):
                seen.add(query.statement.name)
                asked = len(query.items or msgspec.json.decode(query.params.get("cursors", "[0]")))
                assert cost <= most * (asked + len(rows)), (
                    f"{query.statement.name} cost {cost:,}; it asked for {asked} and answered "
                    f"{len(rows)}:\n{plan}"
                )
    gauge.close()
    assert seen >= HOT


def test_on_postgres_a_statement_of_events_touches_no_more_than_it_returns(full_postgres, subtests):
    for mode in ("force_custom_plan", "force_generic_plan"):
        check(subtests, full_postgres, PostgresGauge(full_postgres, mode), MOST_ROWS)


def test_on_sqlite_a_statement_of_events_takes_a_few_steps_for_what_it_returns(
    full_sqlite, subtests
):
    check(subtests, full_sqlite, SqliteGauge(full_sqlite), MOST_STEPS)
    path = full_sqlite.url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("analyze")
    check(subtests, full_sqlite, SqliteGauge(full_sqlite), MOST_STEPS)
