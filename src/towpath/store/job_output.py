"""What a running job puts out beside its stream: progress and log lines, kept as notes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Struct

from towpath.errors import LeaseLost, NotFound
from towpath.model.instants import as_datetime
from towpath.model.job import LogLine
from towpath.operation import Answer, Mode, Operation, Steps, plural
from towpath.statement import Statements, no_rows, rows


class Kind(StrEnum):
    """What a note is."""

    PROGRESS = "progress"
    LINE = "line"


# Of one job; then the oldest are dropped.
MOST: Final = {Kind.PROGRESS: 1, Kind.LINE: 1_000}
MOST_BYTES: Final = {Kind.PROGRESS: 2**18, Kind.LINE: 2**18}


class Note(Struct, frozen=True, kw_only=True):
    """Something said under a lease. The same number again is the same note."""

    seq: int
    epoch: int
    kind: Kind
    no: int  # 0 for progress, of which there is one; else they are read in this order
    share: float | None = None
    text: str | None = None


class NoteRow(NamedTuple):
    """A note, as it is stored."""

    no: int
    epoch: int
    text: str
    at: int


class sql(Statements):
    """The statements of job_output.sql."""

    write = rows(int)
    drop_oldest = no_rows()
    find = rows(int)
    read = rows(NoteRow)


@plural(autocommit=lambda _: False)
def write(notes: Sequence[Note]) -> Steps[list[Answer[None]]]:
    """Keep notes; one whose lease has ended is refused and changes nothing."""
    return (yield from written(notes))


def written(notes: Sequence[Note]) -> Steps[list[Answer[None]]]:
    """Keep notes, as part of another operation."""
    items = [{"nth": nth, **msgspec.structs.asdict(note)} for nth, note in enumerate(notes)]
    kept = set((yield from sql.write(items)))
    full = {(note.seq, note.kind) for note in notes if note.kind is not Kind.PROGRESS}
    if full:
        yield sql.drop_oldest(
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
        found = yield from sql.find(id=id)
        if not found:
            msg = f"there is no job {id}"
            raise NotFound(msg)
        notes = yield from sql.read(seq=found[0], kind=Kind.LINE, limit=MOST[Kind.LINE])
        return [
            LogLine(epoch=each.epoch, text=each.text, at=as_datetime(each.at)) for each in notes
        ]

    return Operation("lines", steps, Mode.READ)
