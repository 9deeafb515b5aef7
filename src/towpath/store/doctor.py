"""What a doctor asks of a database, well or ill."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple

from msgspec import Struct

from towpath.model.instants import as_timedelta
from towpath.operation import Mode, Operation, Steps
from towpath.statement import Statement, Statements, rows


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


class sql(Statements):
    """The statements of doctor.sql."""

    server = rows(FactsRow)
    denied_tables = rows(str)
    transactions = rows(TransactionRow)
    overdue = rows(LateRow)
    late_schedules = rows(LateRow)
    ended_leases = rows(LateRow)
    put_off = rows(PutOffRow)


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


class Late(Struct, frozen=True):
    """Jobs of a topic for which something should have happened."""

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


def _late(statement: Statement[LateRow], patience: int) -> Operation[list[Late]]:
    def steps() -> Steps[list[Late]]:
        return [
            Late(row.topic, row.jobs, as_timedelta(row.by))
            for row in (yield from statement(patience=patience))
        ]

    return Operation(statement.name, steps, Mode.SCAN, autocommit=True)


def _span(us: int | None) -> timedelta | None:
    return None if us is None else as_timedelta(us)
