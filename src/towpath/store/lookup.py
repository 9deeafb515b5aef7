"""Reading jobs: one, the next of a topic, the history of failures."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from towpath.errors import IncompatibleData, NotFound
from towpath.model.instants import as_datetime
from towpath.model.job import RAN, Failure, FailureKind, Job
from towpath.model.states import State
from towpath.operation import Answer, Batch, Mode, Operation, Steps
from towpath.statement import Statement, Statements, rows
from towpath.store.rows import Located, job_from, ticket_from, uuid_from

_KINDS: Final = frozenset(FailureKind)  # a newer version may store others


class FailureRow(NamedTuple):
    """A failed try of a job."""

    epoch: int
    kind: str
    error: str
    traceback: str | None
    failed_at: int


class sql(Statements):
    """The statements of lookup.sql."""

    get = rows(Located)
    get_all = rows(Located)
    numbered = rows(Located)
    failures = rows(FailureRow)
    peek_ready = rows(Located)
    peek_delayed = rows(Located)
    peek_buried = rows(Located)


_PEEKS: Final[Mapping[State, Statement[Located]]] = {
    State.READY: sql.peek_ready,
    State.DELAYED: sql.peek_delayed,
    State.BURIED: sql.peek_buried,
}


def get(id: UUID, read: Callable[[Located], Job] = job_from) -> Operation[Job]:
    """Read one job."""

    def steps() -> Steps[Job]:
        job = yield from find(id, read)
        if job is None:
            raise _missing(id)
        return job

    return Operation("get", steps, Mode.READ, autocommit=True)


def find(id: UUID, read: Callable[[Located], Job] = job_from) -> Steps[Job | None]:
    """Read one job, if it is there."""
    found = yield from sql.get(id=id)
    return read(found[0]) if found else None


def get_all(ids: Sequence[UUID]) -> Operation[list[Answer[Job]]]:
    """Read jobs, each for itself; concurrent calls share one statement."""

    def steps() -> Steps[list[Answer[Job]]]:
        if len(ids) == 1:
            jobs = yield from sql.get(id=ids[0])
        else:
            jobs = yield from sql.get_all([{"id": id} for id in dict.fromkeys(ids)])
        found = {uuid_from(row.id): _answer(row) for row in jobs}
        return [found.get(id) or _missing(id) for id in ids]

    return Operation("get_all", steps, Mode.READ, autocommit=True, batch=Batch(ids, get_all))


def tickets(ids: Sequence[UUID]) -> Steps[list[Job]]:
    """Read where jobs lie, not what they say; those that are missing are left out."""
    found = yield from sql.get_all([{"id": id} for id in ids])
    return [ticket_from(row) for row in found]


def _answer(row: Located) -> Answer[Job]:
    try:
        return job_from(row)
    except IncompatibleData as error:
        return error


def _missing(id: UUID) -> NotFound:
    return NotFound(f"there is no job {id}")


def numbered(seq: int) -> Operation[Job]:
    """Read the job of this number."""

    def steps() -> Steps[Job]:
        found = yield from sql.numbered(seq=seq)
        if not found:
            msg = f"there is no job {seq}"
            raise NotFound(msg)
        return job_from(found[0])

    return Operation("numbered", steps, Mode.READ, autocommit=True)


def peek(topic: str, state: State) -> Operation[Job | None]:
    """Read the next ready, delayed or buried job of a topic, without taking it."""

    def steps() -> Steps[Job | None]:
        found = yield from _PEEKS[state](topic=topic)
        return job_from(found[0]) if found else None

    return Operation("peek", steps, Mode.READ, autocommit=True)


def failures(id: UUID) -> Operation[list[Failure]]:
    """Read the failed tries of a job, oldest first."""

    def steps() -> Steps[list[Failure]]:
        found: list[Failure] = []
        runs = itertools.count(1)
        for row in (yield from sql.failures(id=id)):
            kind = FailureKind(row.kind) if row.kind in _KINDS else FailureKind.ERROR
            failure = Failure(
                run=next(runs) if kind in RAN else None,
                epoch=row.epoch,
                kind=kind,
                error=row.error,
                traceback=row.traceback,
                failed_at=as_datetime(row.failed_at),
            )
            found.append(failure)
        return found

    return Operation("failures", steps, Mode.READ, autocommit=True)


def containing(text: str) -> str:
    """Return a LIKE pattern that matches this text anywhere."""
    literal = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{literal}%"
