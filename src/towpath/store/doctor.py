"""What a doctor asks of a database, well or ill."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from msgspec import Struct

from towpath.model.instants import as_timedelta
from towpath.operation import Mode, Operation, Steps
from towpath.statement import load

sql: Final = load(__name__)


class DatabaseFacts(Struct, frozen=True):
    """The database as it describes itself."""

    version: str
    standby: bool
    log: str  # SQLite's journal_mode, PostgreSQL's fsync
    commits: str  # SQLite's synchronous, PostgreSQL's synchronous_commit


class Transaction(Struct, frozen=True):
    """A transaction that is open, or a connection of which we may not know."""

    pid: int | None  # None: a prepared one, which nobody holds
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


def server() -> Operation[DatabaseFacts]:
    """Read what the database says of itself."""

    def steps() -> Steps[DatabaseFacts]:
        [[version, standby, log, commits]] = yield sql["server"]()
        return DatabaseFacts(version, bool(standby), log, commits)

    return Operation("server", steps, Mode.READ, autocommit=True)


def denied_tables() -> Operation[list[str]]:
    """Name the tables of ours that this role may not use."""

    def steps() -> Steps[list[str]]:
        return [name for (name,) in (yield sql["denied_tables"]())]

    return Operation("denied_tables", steps, Mode.SCAN, autocommit=True)


def transactions(patience: int) -> Operation[list[Transaction]]:
    """Read which transactions are open for longer, oldest first; the hidden ones are last."""

    def steps() -> Steps[list[Transaction]]:
        return [
            Transaction(pid, user, application, state, _span(age), query)
            for pid, user, application, state, age, query in (
                yield sql["transactions"](patience=patience)
            )
        ]

    return Operation("transactions", steps, Mode.SCAN, autocommit=True)


def overdue(patience: int) -> Operation[list[Late]]:
    """Count the delayed jobs that are due for longer and that nobody has promoted."""
    return _late("overdue", patience)


def late_schedules(patience: int) -> Operation[list[Late]]:
    """Name the schedules that were to fire longer ago, and nobody has made them."""
    return _late("late_schedules", patience)


def ended_leases(patience: int) -> Operation[list[Late]]:
    """Count the leases that have ended for longer and that nobody has taken back."""
    return _late("ended_leases", patience)


def _late(name: str, patience: int) -> Operation[list[Late]]:
    def steps() -> Steps[list[Late]]:
        return [
            Late(topic, jobs, as_timedelta(by))
            for topic, jobs, by in (yield sql[name](patience=patience))
        ]

    return Operation(name, steps, Mode.SCAN, autocommit=True)


def _span(us: int | None) -> timedelta | None:
    return None if us is None else as_timedelta(us)
