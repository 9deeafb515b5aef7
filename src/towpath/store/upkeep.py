"""Retention: finished jobs are forgotten when their time is over."""

from typing import Final

from towpath.operation import Operation, Steps
from towpath.statement import load

sql: Final = load(__name__)

PRUNE_AT_ONCE: Final = 1_000


def prune() -> Operation[int]:
    """Forget a batch of finished jobs whose retention is over; return how many."""

    def steps() -> Steps[int]:
        return len((yield sql["prune"](limit=PRUNE_AT_ONCE)))

    return Operation("prune", steps, whole=True)
