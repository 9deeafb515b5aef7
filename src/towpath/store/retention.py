"""Retention: finished jobs are forgotten when their time is over."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import asdict

from towpath.errors import Conflict
from towpath.model.states import Status
from towpath.operation import Mode, Operation, Steps
from towpath.statement import Statements, rows
from towpath.store import jobs, lookup

PRUNE_AT_ONCE: Final = 1_000


class sql(Statements):
    """The statements of retention.sql."""

    prune = rows(int)
    finished_after = rows(int)
    forget_finished = rows(int)


def clock() -> Operation[int]:
    """Read the database's clock, in microseconds since 1970."""
    return Operation("clock", jobs.clock, Mode.READ, autocommit=True)


def prune() -> Operation[int]:
    """Forget a batch of finished jobs whose retention is over; return how many."""

    def steps() -> Steps[int]:
        return len((yield from sql.prune(limit=PRUNE_AT_ONCE)))

    return Operation("prune", steps, autocommit=True)


class Finished(Struct, frozen=True, kw_only=True):
    """Which finished jobs to forget."""

    topic: str | None = None
    cancelled: bool | None = None  # None: completed ones too
    older_than: int = 0  # microseconds since their end
    key: str | None = None
    text: str | None = None  # a LIKE pattern for the payload


class Forgotten(Struct, frozen=True):
    """What became of a page of finished jobs."""

    number: int
    upto: int | None  # where the next page begins; None: this was the last one


def forget_page(finished: Finished, after: int) -> Operation[Forgotten]:
    """Forget some finished jobs before their retention is over."""

    def steps() -> Steps[Forgotten]:
        page = yield from sql.finished_after(after=after, limit=PRUNE_AT_ONCE)
        if not page:
            return Forgotten(0, None)
        gone = yield from sql.forget_finished(after=after, upto=page[-1], **asdict(finished))
        return Forgotten(len(gone), page[-1])

    return Operation("forget_page", steps)


def forget(id: UUID) -> Operation[None]:
    """Forget one finished job; Conflict if it has not ended."""

    def steps() -> Steps[None]:
        job = yield from lookup.get(id).inside()
        if job.status not in {Status.COMPLETED, Status.CANCELLED}:
            msg = (
                f"job {id} is {job.status}, and only a finished job is forgotten; delete it instead"
            )
            raise Conflict(msg)
        every = asdict(Finished())
        if not (yield from sql.forget_finished(after=job.seq - 1, upto=job.seq, **every)):
            msg = f"job {id} still has runs by other workers; cancel it first"
            raise Conflict(msg)

    return Operation("forget", steps)
