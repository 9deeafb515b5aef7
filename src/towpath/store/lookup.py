"""Reading jobs: one, a list, the next of a topic, the history of failures."""

from __future__ import annotations  # to make one for each call takes longer than the rest

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from msgspec import Struct

from towpath.errors import IncompatibleData, NotFound
from towpath.model.instants import as_datetime
from towpath.model.job import Failure, FailureKind, Job
from towpath.model.states import State, Status
from towpath.operation import Answer, Batch, Mode, Operation, Row, Steps
from towpath.statement import load
from towpath.store.rows import job_from, listed_from, uuid_from

sql: Final = load(__name__)


def get(id: UUID, read: Callable[[Row], Job] = job_from) -> Operation[Job]:
    """Read one job."""

    def steps() -> Steps[Job]:
        rows = yield sql["get"](id=id)
        if not rows:
            raise _missing(id)
        return read(rows[0])

    return Operation("get", steps, Mode.READ, autocommit=True)


def get_all(ids: Sequence[UUID]) -> Operation[list[Answer[Job]]]:
    """Read jobs, each for itself; those who ask at the same time are answered together."""

    def steps() -> Steps[list[Answer[Job]]]:
        if len(ids) == 1:
            rows = yield sql["get"](id=ids[0])
        else:
            rows = yield sql["get_all"]([{"id": id} for id in dict.fromkeys(ids)])
        found = {uuid_from(row[1]): _answer(row) for row in rows}
        return [found.get(id) or _missing(id) for id in ids]

    return Operation("get_all", steps, Mode.READ, autocommit=True, batch=Batch(ids, get_all))


def _answer(row: Row) -> Answer[Job]:
    try:
        return job_from(row)
    except IncompatibleData as error:
        return error


def _missing(id: UUID) -> NotFound:
    return NotFound(f"there is no job {id}")


def numbered(seq: int) -> Operation[Job]:
    """Read the job of this number."""

    def steps() -> Steps[Job]:
        rows = yield sql["numbered"](seq=seq)
        if not rows:
            msg = f"there is no job {seq}"
            raise NotFound(msg)
        return job_from(rows[0])

    return Operation("numbered", steps, Mode.READ, autocommit=True)


class Page(Struct, frozen=True, kw_only=True):
    """Which jobs to list: those older than the number `before`, newest first."""

    topic: str | None
    status: Status | None
    key: str | None
    text: str | None
    before: int | None
    limit: int
    offset: int


def list_jobs(page: Page) -> Operation[list[Job]]:
    """Read a page of jobs; one that this version cannot read spoils no other."""

    def steps() -> Steps[list[Job]]:
        rows = yield sql[f"list_{page.status or 'any'}"](
            topic=page.topic,
            key=page.key,
            text=None if page.text is None else f"%{_literal(page.text)}%",
            before=page.before,
            limit=page.limit,
            offset=page.offset,
        )
        return [listed_from(row) for row in rows]

    return Operation("list_jobs", steps, Mode.SCAN, autocommit=True)


def peek(topic: str, state: State) -> Operation[Job | None]:
    """Read the next ready, delayed or buried job of a topic, without taking it."""

    def steps() -> Steps[Job | None]:
        rows = yield sql[f"peek_{state}"](topic=topic)
        return job_from(rows[0]) if rows else None

    return Operation("peek", steps, Mode.READ, autocommit=True)


def failures(id: UUID) -> Operation[list[Failure]]:
    """Read the failed tries of a job, oldest first."""

    def steps() -> Steps[list[Failure]]:
        rows = yield sql["failures"](id=id)
        return [
            Failure(
                epoch=epoch,
                kind=FailureKind(kind),
                error=error,
                traceback=traceback,
                failed_at=as_datetime(at),
            )
            for epoch, kind, error, traceback, at in rows
        ]

    return Operation("failures", steps, Mode.READ, autocommit=True)


def _literal(text: str) -> str:
    """Return a LIKE pattern that matches the text itself."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
