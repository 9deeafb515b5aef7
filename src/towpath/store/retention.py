"""Retention: finished jobs are forgotten when their time is over."""

from __future__ import annotations

from typing import Final

from towpath.operation import Mode, Operation, Steps
from towpath.statement import load

sql: Final = load(__name__)

PRUNE_AT_ONCE: Final = 1_000


def clock() -> Operation[int]:
    """Read the database's clock, in microseconds since 1970."""

    def steps() -> Steps[int]:
        [[now]] = yield sql["clock"]()
        return int(now)

    return Operation("clock", steps, Mode.READ, autocommit=True)


def prune() -> Operation[int]:
    """Forget a batch of finished jobs whose retention is over; return how many."""

    def steps() -> Steps[int]:
        return len((yield sql["prune"](limit=PRUNE_AT_ONCE)))

    return Operation("prune", steps, autocommit=True)
