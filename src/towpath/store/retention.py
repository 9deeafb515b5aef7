"""Retention: finished jobs are forgotten when their time is over."""

from __future__ import annotations

from typing import Final

from towpath.operation import Mode, Operation, Steps
from towpath.statement import Statements, rows
from towpath.store import jobs

PRUNE_AT_ONCE: Final = 1_000


class sql(Statements):
    """The statements of retention.sql."""

    prune = rows(int)


def clock() -> Operation[int]:
    """Read the database's clock, in microseconds since 1970."""
    return Operation("clock", jobs.clock, Mode.READ, autocommit=True)


def prune() -> Operation[int]:
    """Forget a batch of finished jobs whose retention is over; return how many."""

    def steps() -> Steps[int]:
        return len((yield from sql.prune(limit=PRUNE_AT_ONCE)))

    return Operation("prune", steps, autocommit=True)
