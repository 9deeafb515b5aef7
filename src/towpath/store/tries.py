"""The tries of a job: each of its leases, and how it ended."""

from __future__ import annotations

from typing import Final, NamedTuple

from towpath.model.instants import as_datetime
from towpath.model.tries import Try, TryOutcome
from towpath.operation import Mode, Operation, Steps
from towpath.statement import Statements, rows

_OUTCOMES: Final = frozenset(TryOutcome)  # a newer version may store others


class TryRow(NamedTuple):
    """A try of a job."""

    epoch: int
    outcome: str
    started_at: int | None
    ended_at: int | None
    worker: str | None
    error: str | None
    traceback: str | None


class NotedTry(NamedTuple):
    """A try that ended neither well nor with an error; the text is outcome, begin and worker."""

    epoch: int
    text: str
    ended_at: int


class sql(Statements):
    """The statements of tries.sql."""

    failed_tries = rows(TryRow)
    noted_tries = rows(NotedTry)
    last_try = rows(TryRow)


def list_tries(seq: int) -> Operation[list[Try]]:
    """Read the tries of a job of which something is stored, oldest first."""

    def steps() -> Steps[list[Try]]:
        found = {row.epoch: row for row in (yield from sql.last_try(seq=seq))}
        for note in (yield from sql.noted_tries(seq=seq)):
            outcome, began, worker = note.text.split(" ", 2)
            found[note.epoch] = TryRow(
                note.epoch, outcome, int(began), note.ended_at, worker or None, None, None
            )
        found.update((row.epoch, row) for row in (yield from sql.failed_tries(seq=seq)))
        return [_try(found[epoch]) for epoch in sorted(found)]

    return Operation("list_tries", steps, Mode.READ)


def _try(row: TryRow) -> Try:
    known = row.outcome in _OUTCOMES
    return Try(
        epoch=row.epoch,
        worker=row.worker,
        started_at=None if row.started_at is None else as_datetime(row.started_at),
        ended_at=None if row.ended_at is None else as_datetime(row.ended_at),
        outcome=TryOutcome(row.outcome) if known else TryOutcome.ERROR,
        error=row.error,
        traceback=row.traceback,
    )
