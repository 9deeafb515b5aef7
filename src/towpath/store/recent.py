"""What has ended lately: the newest failed jobs, and how long the newest completed ones took."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple
from uuid import UUID

from towpath.model.instants import as_datetime, as_timedelta
from towpath.model.pages import shortened
from towpath.model.recent import FailureGroup, Took
from towpath.operation import Mode, Operation, Steps
from towpath.statement import Statements, rows
from towpath.store.rows import uuid_from

MOST_FAILURES: Final = 2_000
MOST_LINE: Final = 200  # characters of an error
MOST_TOOK: Final = 2_000
WINDOW: Final = 50_000  # finished jobs, among which completed ones of a topic are looked for
NO_ERROR: Final = "buried without an error"


class BuriedRow(NamedTuple):
    """A failed job."""

    seq: int
    id: UUID | bytes | str
    topic: str
    buried_at: int
    now: int
    error: str | None


class CompletedRow(NamedTuple):
    """A completed job."""

    finished_at: int
    duration: int | None
    epoch: int
    run_at: int


class sql(Statements):
    """The statements of recent.sql."""

    newest_buried = rows(BuriedRow)
    newest_completed = rows(CompletedRow)


class NewestFailed(NamedTuple):
    """The newest failed jobs: by error, their numbers, and at how many was looked."""

    groups: list[FailureGroup]
    numbers: list[int]
    looked_at: int


def failures(topic: str | None, minutes: int, without: Collection[str]) -> Operation[NewestFailed]:
    """Group the newest failed jobs of the last minutes by the first lines of their errors.

    Those of the topics `without` are left out.
    """

    def steps() -> Steps[NewestFailed]:
        found = yield from sql.newest_buried(topic=topic, limit=MOST_FAILURES)
        recent = [
            row
            for row in found
            if row.buried_at >= row.now - minutes * 60_000_000 and row.topic not in without
        ]
        alike: dict[str, list[BuriedRow]] = {}
        for row in recent:
            alike.setdefault(_line(row.error), []).append(row)
        groups = [
            FailureGroup(
                error=error,
                count=len(jobs),
                topics=sorted({each.topic for each in jobs}),
                last_at=as_datetime(jobs[0].buried_at),
                sample=uuid_from(jobs[0].id),
            )
            for error, jobs in alike.items()
        ]
        groups.sort(key=lambda group: -group.count)  # of equal ones the newest first
        return NewestFailed(groups, [row.seq for row in recent], len(found))

    return Operation("recent_failures", steps, Mode.SCAN, autocommit=True)


def _line(error: str | None) -> str:
    lines = (error or "").strip().splitlines()
    return shortened(lines[0].strip(), MOST_LINE) if lines else NO_ERROR


def took(topic: str | None, limit: int) -> Operation[list[Took]]:
    """Read how long the newest completed jobs took, the newest first."""

    def steps() -> Steps[list[Took]]:
        found = yield from sql.newest_completed(topic=topic, limit=limit, window=WINDOW)
        return [_took(row) for row in found]

    return Operation("took", steps, Mode.SCAN, autocommit=True)


def _took(row: CompletedRow) -> Took:
    waited: int | None = None
    if row.epoch == 1 and row.duration is not None:
        waited = max(0, row.finished_at - row.duration - row.run_at)
    return Took(
        finished_at=as_datetime(row.finished_at),
        duration=None if row.duration is None else as_timedelta(row.duration),
        waited=None if waited is None else as_timedelta(waited),
    )
