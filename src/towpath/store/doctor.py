"""What a doctor asks of a database, well or ill."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final, NamedTuple

from msgspec import Struct

from towpath.model.instants import as_timedelta
from towpath.operation import Mode, Operation, Steps
from towpath.statement import Statement, Statements, rows
from towpath.store.trimming import Kept

MOST: Final = 1_000  # consumers or channels that are found


class FactsRow(NamedTuple):
    """What the database says of itself."""

    version: str
    standby: bool | int
    log: str
    commits: str


class TransactionRow(NamedTuple):
    """An open transaction."""

    pid: int | None
    usename: str
    application_name: str
    state: str | None
    age: int | None
    query: str | None


class LateRow(NamedTuple):
    """Jobs of a topic for which something should have happened."""

    topic: str
    jobs: int
    by: int


class PutOffRow(NamedTuple):
    """A job that a worker gave back because it could not run it."""

    seq: int
    error: str


class TroubledRow(NamedTuple):
    """A consumer that is silent or far behind."""

    channel: str
    name: str
    lag: int
    is_overtaken: bool | int
    silent: int
    behind: int | None


class sql(Statements):
    """The statements of doctor.sql."""

    server = rows(FactsRow)
    denied_tables = rows(str)
    transactions = rows(TransactionRow)
    overdue = rows(LateRow)
    late_schedules = rows(LateRow)
    ended_leases = rows(LateRow)
    put_off = rows(PutOffRow)
    unplaced = rows(LateRow)
    undeleted = rows(LateRow)
    overdue_lifetimes = rows(LateRow)
    open_streams = rows(LateRow)
    spent_tokens = rows(LateRow)
    troubled_consumers = rows(TroubledRow)
    over_limits = rows(str)


class DatabaseFacts(Struct, frozen=True):
    """The database as it describes itself."""

    version: str
    standby: bool
    log: str  # SQLite's journal_mode, PostgreSQL's fsync
    commits: str  # SQLite's synchronous, PostgreSQL's synchronous_commit


class Transaction(Struct, frozen=True):
    """A transaction that is open, or a connection of which we may not know."""

    pid: int | None  # None: a prepared one, which no connection holds
    user: str
    application: str
    state: str | None  # None: hidden from us
    age: timedelta | None
    query: str | None


class Troubled(Struct, frozen=True):
    """A consumer that is silent or far behind."""

    channel: str
    name: str
    lag: int
    is_overtaken: bool  # events that it has not acked are gone
    silent: timedelta
    is_expired: bool


class Late(Struct, frozen=True):
    """Jobs of a topic, or events of a channel, for which something should have happened."""

    topic: str
    jobs: int
    by: timedelta  # the latest of them


class PutOff(Struct, frozen=True):
    """Jobs of a topic that workers gave back because they could not run them."""

    topic: str
    jobs: int
    first: int  # the number of one of them
    error: str  # what a worker said of it


def server() -> Operation[DatabaseFacts]:
    """Read what the database says of itself."""

    def steps() -> Steps[DatabaseFacts]:
        [found] = yield from sql.server()
        return DatabaseFacts(found.version, bool(found.standby), found.log, found.commits)

    return Operation("server", steps, Mode.READ, autocommit=True)


def denied_tables() -> Operation[list[str]]:
    """Name the tables of ours that this role may not use."""
    return Operation("denied_tables", lambda: iter(sql.denied_tables()), Mode.SCAN, autocommit=True)


def transactions(patience: int) -> Operation[list[Transaction]]:
    """Read which transactions are open for longer, oldest first; the hidden ones are last."""

    def steps() -> Steps[list[Transaction]]:
        return [
            Transaction(
                row.pid, row.usename, row.application_name, row.state, _span(row.age), row.query
            )
            for row in (yield from sql.transactions(patience=patience))
        ]

    return Operation("transactions", steps, Mode.SCAN, autocommit=True)


def overdue(patience: int) -> Operation[list[Late]]:
    """Count the delayed jobs that are due for longer and were not promoted."""
    return _late(sql.overdue, patience)


def late_schedules(patience: int) -> Operation[list[Late]]:
    """Name the schedules that were due longer ago and have not fired."""
    return _late(sql.late_schedules, patience)


def ended_leases(patience: int) -> Operation[list[Late]]:
    """Count the leases that have ended for longer and were not taken back."""
    return _late(sql.ended_leases, patience)


def put_off(topics: Iterable[str], limit: int) -> Operation[list[PutOff]]:
    """Count the jobs that workers could not run, among the first so many in each line."""

    def steps() -> Steps[list[PutOff]]:
        found: list[PutOff] = []
        for topic in topics:
            jobs = yield from sql.put_off(topic=topic, limit=limit)
            if jobs:
                found.append(PutOff(topic, len(jobs), jobs[0].seq, jobs[0].error))
        return found

    return Operation("put_off", steps, Mode.SCAN, autocommit=True)


def unplaced(patience: int) -> Operation[list[Late]]:
    """Count the events of callers' transactions that have no numbers for longer, by channel."""
    return _late(sql.unplaced, patience)


def undeleted(patience: int) -> Operation[list[Late]]:
    """Count the deleted channels of which rows are left for longer."""
    return _late(sql.undeleted, patience)


def overdue_lifetimes(patience: int) -> Operation[list[Late]]:
    """Name the channels whose time is over for longer and that are still there."""
    return _late(sql.overdue_lifetimes, patience)


def open_streams(patience: int) -> Operation[list[Late]]:
    """Count the streams that are open though their jobs have ended for longer."""
    return _late(sql.open_streams, patience)


def spent_tokens(patience: int) -> Operation[list[Late]]:
    """Count the spent passes and revoked tokens that have expired for longer and are left."""
    return _late(sql.spent_tokens, patience)


def troubled_consumers(patience: int, kept: Kept) -> Operation[list[Troubled]]:
    """Name consumers that are expired, overtaken, or behind for longer."""

    def steps() -> Steps[list[Troubled]]:
        found = yield from sql.troubled_consumers(
            patience=patience, ttl=kept.consumer_ttl, limit=MOST
        )
        return [
            Troubled(
                row.channel,
                row.name,
                row.lag,
                bool(row.is_overtaken),
                as_timedelta(row.silent),
                is_expired=row.silent > kept.consumer_ttl,
            )
            for row in found
        ]

    return Operation("troubled_consumers", steps, Mode.SCAN, autocommit=True)


def over_limits(kept: Kept) -> Operation[list[str]]:
    """Name channels that hold clearly more than they may."""

    def steps() -> Steps[list[str]]:
        return (
            yield from sql.over_limits(
                max_age=kept.max_age,
                max_bytes=kept.max_bytes,
                max_count=kept.max_count,
                limit=MOST,
            )
        )

    return Operation("over_limits", steps, Mode.SCAN, autocommit=True)


def _late(statement: Statement[LateRow], patience: int) -> Operation[list[Late]]:
    def steps() -> Steps[list[Late]]:
        return [
            Late(row.topic, row.jobs, as_timedelta(row.by))
            for row in (yield from statement(patience=patience))
        ]

    return Operation(statement.name, steps, Mode.SCAN, autocommit=True)


def _span(us: int | None) -> timedelta | None:
    return None if us is None else as_timedelta(us)
