"""Notes: what a job says of itself while it runs. Only a job that says something has any."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct

from towpath.errors import LeaseLost, NotFound
from towpath.model.instants import as_datetime
from towpath.model.job import JobEvent, LogLine
from towpath.operation import Answer, Mode, Operation, Row, Steps, plural
from towpath.statement import load

sql: Final = load(__name__)

MOST_EVENTS: Final = 1_000  # events read at once


class Kind(StrEnum):
    """What a note is."""

    PROGRESS = "progress"
    LINE = "line"
    EVENT = "event"


# Of one job; then the oldest are dropped.
MOST: Final = {Kind.PROGRESS: 1, Kind.LINE: 1_000, Kind.EVENT: 10_000}
MOST_BYTES: Final = {Kind.PROGRESS: 2**18, Kind.LINE: 2**18, Kind.EVENT: 2**20}


class Note(Struct, frozen=True, kw_only=True):
    """Something said under a lease. The same number again is the same note."""

    seq: int
    epoch: int
    kind: Kind
    no: int  # 0 for progress, of which there is one; else they are read in this order
    share: float | None = None
    text: str | None = None


@plural(autocommit=lambda _: False)
def write(notes: Sequence[Note]) -> Steps[list[Answer[None]]]:
    """Keep notes; one whose lease has ended is refused and changes nothing."""
    items = [{"nth": nth, **msgspec.structs.asdict(note)} for nth, note in enumerate(notes)]
    kept = {row[0] for row in (yield sql["write"](items))}
    full = {(note.seq, note.kind) for note in notes if note.kind is not Kind.PROGRESS}
    if full:
        yield sql["drop_oldest"](
            [
                {"seq": seq, "kind": kind, "most": MOST[kind], "most_bytes": MOST_BYTES[kind]}
                for seq, kind in sorted(full)
            ]
        )
    return [None if nth in kept else _lost(note) for nth, note in enumerate(notes)]


def _lost(note: Note) -> LeaseLost:
    return LeaseLost(f"the lease of job number {note.seq} ended; stop working on it")


def lines(id: UUID) -> Operation[list[LogLine]]:
    """Read the lines that the runs of a job have written, oldest first."""

    def steps() -> Steps[list[LogLine]]:
        rows = yield from _read(id, Kind.LINE, 0, MOST[Kind.LINE])
        return [LogLine(epoch=row[1], text=row[2], at=as_datetime(row[3])) for row in rows]

    return Operation("lines", steps, Mode.READ)


def events(id: UUID, after: int) -> Operation[list[JobEvent]]:
    """Read what the runs of a job have published, oldest first, from behind a cursor on."""

    def steps() -> Steps[list[JobEvent]]:
        rows = yield from _read(id, Kind.EVENT, after, MOST_EVENTS)
        return [
            JobEvent(
                cursor=row[0],
                epoch=row[1],
                payload=msgspec.json.decode(row[2]),
                at=as_datetime(row[3]),
            )
            for row in rows
        ]

    return Operation("events", steps, Mode.READ)


def _read(id: UUID, kind: Kind, after: int, limit: int) -> Steps[list[Row]]:
    found = yield sql["find"](id=id)
    if not found:
        msg = f"there is no job {id}"
        raise NotFound(msg)
    return (yield sql["read"](seq=found[0][0], kind=kind, after=after, limit=limit))
