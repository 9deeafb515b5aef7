"""Plans of webhooks: beside many deliveries, old and new, a statement touches what it returns.

Statistics may be those of now, or of an empty line: then PostgreSQL does not expect what waits. An
old transaction may be open: then the rows of what went through the line stay in its index.

A million ended deliveries take long to make: every run has a fifth of them, a soak has them all.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from typing import NamedTuple

import psycopg
import pytest

from tests.behaviour.test_plans import MOST_ROWS, MOST_STEPS, PostgresGauge, SqliteGauge
from tests.behaviour.webhooks import DONE, selection
from tests.faults.sizes import many
from towpath import App
from towpath.database.postgres import BY_KEY
from towpath.operation import Operation
from towpath.store import (
    advancing,
    dead_letters,
    deliveries,
    routing,
    sagas,
    subscriptions,
    webhook_upkeep,
)
from towpath.store.dead_letters import Requeue
from towpath.store.deliveries import Line, Report

pytestmark = pytest.mark.soak

ENDED = 200_000 if many(1) == 1 else 1_000_000
SUBSCRIPTIONS, CHANNELS, WAITING, JOBS = 10_000, 5_000, 100_000, 20_000
REPORTED, LEASED, PASSED, LETTERS = 500, 500, 5_000, 20_000
NOW = 10**15
HOT = {
    "claimable", "claim", "claimed", "report", "reset", "hold", "standing", "reported", "apply",
    "start", "note", "next_wake", "hold_sagas", "release", "expire", "channels", "subscribed",
    "store_events", "make_sagas", "wake", "move", "forgotten", "visit_sagas", "requeue",
    "list_of", "find", "visit_events", "recent",
}  # fmt: skip

SAGA = """insert into {p}sagas (id, event_id, subscription_id, attempt_count, replay_no,
       created_at, finished_at, next_attempt_at, current_job_id, cancel_requested, status,
       held_from) {o}
select n, n, 1 + n % {s},"""
JOB = """insert into {p}webhook_delivery_jobs (id, saga_id, subscription_id, attempt_no,
       lease_losses, attempt_at, finished_at, applied_at, late, status) {o}
select n, n, 1 + n % {s},"""
BEFORE = (
    """
insert into {p}subscriptions (id, created_at, updated_at, since_channel, since, timeout,
       concurrency, burst, paused, ordered, token, channel, url, types, body, sealed,
       description) {o}
select n, 0, 0, 0, 0, 1000000, 10, 1, n % 20 = 0, n % 7 = 0, {id}, 'c' || (n % {c}),
       'https://a.test', '["*"]', 'envelope', 'x', '' from {subscriptions}""",
    """
insert into {p}subscription_health (subscription_id, wakes_at, tat, failures, dead, warned,
       window_at, results, failed, trips, holds, at_once)
select n, case when n % 3 = 0 then n end, 0, 0, 0, 0, 0, 0, 0, 0, n % 31 = 0, 100
  from {subscriptions}""",
    "insert into {p}channel (name, head, created_at) select 'c' || (n - 1), 2, 0 from {channels}",
    """
insert into {p}event (channel, seq, at, size, id, encoding, body)
select n, 1, 0, 1, {id}, 'json', '1' from {channels}""",
    """
insert into {p}consumer (channel, acked, generation, seen_at, name, lasting)
select n, case when n % 9 = 0 then 0 else 2 end, 1, 0, 'towpath.webhooks', true from {channels}""",
    """
insert into {p}webhook_events (id, event, channel, seq, at, encoding, payload) {o}
select n, {id}, 1, n, 0, 'json', '1' from {all}""",
    SAGA + " 1, 0, {now}, {now}, null, n, false, 'Completed', null from {ended}",
    JOB + " 1, 0, 0, {now}, {now}, false, 'Completed' from {early}",
    """
insert into {p}dead_letters (saga_id, event_id, subscription_id, failed_at, channel, seq, at, event,
       encoding, payload_snapshot)
select n, n, 1 + n % {s}, {now}, 1, n, 0, {id}, 'json', '1' from {letters}""",
)
AFTER = (
    # What passes through the line, before all that waits in it.
    JOB + " 1, 0, 0, null, null, false, 'Pending' from {passed}",
    """
update {p}webhook_delivery_jobs set status = 'Leased', lease_until = id, lease_token = 9
 where status = 'Pending'""",
    """
update {p}webhook_delivery_jobs set status = 'Completed', lease_until = null, finished_at = {now},
       applied_at = {now} where status = 'Leased'""",
    SAGA + " 0, 0, {now}, null, n, null, false, case n % 31 when 0 then 'Held'"
    " when 1 then 'PendingRetry' else 'Pending' end, 'Pending' from {waiting}",
    """
update {p}sagas set status = 'InProgress', current_job_id = id, next_attempt_at = null
 where id in (select n from {jobs})""",
    JOB + " 1, 0, 0, null, null, n % 2 = 0, 'Pending' from {jobs}",
    """
update {p}webhook_delivery_jobs set status = 'Leased', lease_until = id, lease_token = 7
 where id in (select n from {leased})""",
    """
update {p}webhook_delivery_jobs set status = 'Failed', lease_token = 8, finished_at = {now}
 where id in (select n from {reported})""",
)


def fill(
    execute: Callable[[str], object], texts: tuple[str, ...], prefix: str, id: str, numbers: str
) -> None:
    """Store rows past the triggers, which would refuse them."""
    first = ENDED + 1
    for text in texts:
        execute(
            text.format(
                p=prefix,
                now=NOW,
                o="overriding system value" if prefix[-1] == "." else "",
                id=id,
                s=SUBSCRIPTIONS,
                subscriptions=numbers.format(1, SUBSCRIPTIONS),
                c=CHANNELS,
                channels=numbers.format(1, CHANNELS),
                all=numbers.format(1, ENDED + WAITING),
                ended=numbers.format(1, ENDED),
                early=numbers.format(1, ENDED - PASSED),
                passed=numbers.format(ENDED - PASSED + 1, ENDED),
                letters=numbers.format(1, LETTERS),
                waiting=numbers.format(first, ENDED + WAITING),
                jobs=numbers.format(first, first + JOBS),
                leased=numbers.format(first, first + LEASED),
                reported=numbers.format(first + LEASED + 1, first + LEASED + REPORTED),
            )
        )


class FullPostgres(NamedTuple):
    """A database whose statistics are those of an empty line, beside an old transaction."""

    app: App
    old: psycopg.Connection

    def analyze(self) -> None:
        with psycopg.connect(self.app.url, autocommit=True) as connection:
            connection.execute("vacuum analyze")


@pytest.fixture
def full_postgres(own_postgres) -> Iterator[FullPostgres]:
    schema = f"webhook_plans{os.getpid()}"
    app = App(own_postgres.url(), schema=schema)
    app.migrate()
    id = "cast('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') as uuid)"
    with psycopg.connect(own_postgres.url(), autocommit=True) as connection:
        connection.execute("set session_replication_role = replica; set synchronous_commit = off")
        for table in ("sagas", "webhook_delivery_jobs"):
            connection.execute(f"alter table {schema}.{table} set (autovacuum_enabled = false)")
        fill(connection.execute, BEFORE, f"{schema}.", id, "generate_series({}, {}) n")
        connection.execute("vacuum analyze")
        old = psycopg.connect(own_postgres.url())
        old.execute("select txid_current()")
        fill(connection.execute, AFTER, f"{schema}.", id, "generate_series({}, {}) n")
        for table in ("sagas", "webhook_delivery_jobs", "webhook_events"):
            connection.execute(
                f"select setval(pg_get_serial_sequence('{schema}.{table}', 'id'), 10000000)"
            )
    yield FullPostgres(app, old)
    old.close()
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
        for (name,) in connection.execute("select name from sqlite_master where type = 'trigger'"):
            connection.execute(f"drop trigger {name}")
        numbers = (
            "(with recursive numbers(n) as"
            " (select {} union all select n + 1 from numbers where n < {}) select n from numbers)"
        )
        for texts in (BEFORE, AFTER):
            fill(connection.execute, texts, "towpath_", "cast(printf('%016d', n) as blob)", numbers)
            if texts is BEFORE:
                # Its owner may have run ANALYZE when nothing waited.
                connection.execute("analyze")
    yield app
    app.close()
    path.unlink()


def operations() -> Iterator[tuple[str, Operation]]:
    """Name what runs often."""
    lines = [Line(False, 50), Line(True, 50)]
    first = ENDED + 1
    # Before those that leave many dead rows behind, as they are undone.
    yield "cancel", sagas.cancel([first, ENDED + WAITING])
    yield "pause", subscriptions.pause(9)
    yield "delete", subscriptions.delete(9)
    yield "look for something to claim", deliveries.is_claimable([1, 2])
    yield "claim", deliveries.claim(lines, 99, "w", [1, 2])
    again = deliveries.claim(lines, 7, "w")
    yield "claim again", Operation("again", lambda: again.steps(again=True))
    reports = [Report(job, 7, DONE) for job in range(first, first + 20)]
    yield "report", deliveries.report(reports)
    yield (
        "report too late",
        deliveries.report([Report(job, 1, DONE) for job in range(first, first + 20)]),
    )
    yield "reset", deliveries.reset(100)
    for after in (0, SUBSCRIPTIONS // 2):
        yield f"advance from {after}", advancing.advance(after)
    yield "next wake", advancing.next_wake()
    yield "look for what is to be routed", routing.unrouted("")
    yield "route", routing.route("c8", selection)
    yield "wake what was forgotten", webhook_upkeep.wake_forgotten(0)
    yield "prune nothing", webhook_upkeep.prune_sagas(0, NOW)
    yield "prune", webhook_upkeep.prune_sagas(ENDED - 500, 1)
    yield "drop events without sagas", webhook_upkeep.prune_events(0)
    recent = subscriptions.sql.recent(subscription=9, limit=100)
    yield "the last attempts of a subscription", Operation("recent", lambda: (yield recent))
    yield "requeue", dead_letters.requeue([Requeue(5, "op"), Requeue(77, "op")])
    yield "list dead letters", dead_letters.list_letters(20, subscription=9)
    yield "list sagas", sagas.list_sagas(20)


def check(subtests, gauge: PostgresGauge | SqliteGauge, most: int, when: str = "") -> None:
    seen = set()
    for name, operation in operations():
        with subtests.test(msg=f"{name} {when}"):
            for query, rows, cost, plan in gauge.measure(operation, NOW + 10):
                seen.add(query.statement.name)
                asked = len(query.items or [None])
                assert cost <= most * (asked + len(rows) + 1), (
                    f"{query.statement.name} cost {cost:,}; it asked for {asked} and answered "
                    f"{len(rows)}:\n{plan}"
                )
    gauge.close()
    assert seen >= HOT


def test_on_postgres_a_statement_of_webhooks_touches_no_more_than_it_returns(
    full_postgres, subtests
):
    """WH-10"""

    def check_now(when: str) -> None:
        gauge = PostgresGauge(full_postgres.app, "force_generic_plan")
        for name, value in BY_KEY.items():  # as every connection of ours has them
            gauge._connection.execute(f"set {name} = {value}")
        gauge._connection.commit()
        check(subtests, gauge, MOST_ROWS, when)

    check_now("by statistics of an empty line")
    full_postgres.analyze()
    check_now("by statistics of now, beside an old transaction")
    full_postgres.old.rollback()
    full_postgres.analyze()
    check_now("by statistics of now")


def test_on_sqlite_a_statement_of_webhooks_takes_a_few_steps_for_what_it_returns(
    full_sqlite, subtests
):
    """WH-10"""
    check(subtests, SqliteGauge(full_sqlite), MOST_STEPS, "by statistics of an empty line")
    path = full_sqlite.url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("analyze")
    check(subtests, SqliteGauge(full_sqlite), MOST_STEPS, "by statistics of now")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("drop table sqlite_stat1")
    check(subtests, SqliteGauge(full_sqlite), MOST_STEPS, "without statistics")
