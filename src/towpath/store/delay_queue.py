"""What a door of delay queues asks beyond the verbs of jobs: numbers, counts, what is due."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from towpath.errors import InvalidState, NotFound
from towpath.model.instants import as_datetime, as_timedelta, microseconds
from towpath.model.job import Job, Lease
from towpath.model.states import Action, State, allows
from towpath.operation import Answer, Mode, Operation, Steps, plural
from towpath.statement import load
from towpath.store import reserving
from towpath.store.admin import take
from towpath.store.dependencies import sql as dependencies
from towpath.store.leases import rescue
from towpath.store.rows import job_from, lease_from

sql: Final = load(__name__)

URGENT: Final = 1_024  # a smaller priority is urgent, as beanstalkd counts


class QueueCounts(Struct, frozen=True, kw_only=True):
    """One topic as a delay queue: what is due is ready, what is blocked is delayed."""

    topic: str
    ready: int
    urgent: int  # of those that are ready
    delayed: int
    reserved: int
    buried: int
    paused_for: timedelta | None  # from now on

    @property
    def jobs(self) -> int:
        """All that are not finished."""
        return self.ready + self.delayed + self.reserved + self.buried


class JobAt(Struct, frozen=True):
    """A job, and the instant at which it was read."""

    job: Job
    at: datetime

    @property
    def state(self) -> State:
        """Where it lies; what is due is ready, whether or not somebody has moved it yet."""
        until = self.job.until
        due = (self.job.state is State.DELAYED and self.job.run_at <= self.at) or (
            self.job.state is State.RESERVED and until is not None and until <= self.at
        )
        return State.READY if due else self.job.state


class Pick(Struct, frozen=True):
    """A job that is wanted by its number, and who wants it."""

    seq: int
    token: int
    session: int | None


def counts(topic: str | None = None) -> Operation[list[QueueCounts]]:
    """Count the unfinished jobs of each topic, or of one."""

    def steps() -> Steps[list[QueueCounts]]:
        return [
            QueueCounts(
                topic=name,
                ready=ready,
                urgent=urgent,
                delayed=delayed,
                reserved=reserved,
                buried=buried,
                paused_for=as_timedelta(pause) if pause > 0 else None,
            )
            for name, ready, urgent, delayed, reserved, buried, pause in (
                yield sql["counts"](topic=topic, urgent=URGENT)
            )
        ]

    return Operation("count_queues", steps, Mode.READ if topic else Mode.SCAN, autocommit=True)


def look(seq: int) -> Operation[JobAt | None]:
    """Read the job of this number, with the clock; None if there is none."""

    def steps() -> Steps[JobAt | None]:
        rows = yield sql["look"](seq=seq)
        return JobAt(job_from(rows[0][:-1]), as_datetime(rows[0][-1])) if rows else None

    return Operation("look", steps, Mode.READ, autocommit=True)


def come_due(topics: Sequence[str]) -> Operation[list[str]]:
    """Put in line what is due in these topics; return those that gained a job by it."""

    def steps() -> Steps[list[str]]:
        promoted = yield from reserving.promote(topics).start()
        rescued = yield from rescue(topics).start()
        return [*promoted, *(settled.topic for settled in rescued)]

    return Operation("come_due", steps, locks=True, wakes=lambda gained: gained)


@plural(autocommit=lambda _: False)
def pick(picks: Sequence[Pick]) -> Steps[list[Answer[Lease]]]:
    """Lease ready, delayed or buried jobs by their numbers, until their ttr.

    Picked again with the same token, it is the same lease. One that has a limit or chooses its
    workers is left to `reserve`; a buried one with a key or dependencies, to `kick`.
    """
    answers: list[Answer[Lease]] = []
    for wish in picks:
        answer = yield from _picked(wish)
        answers.append(answer)
    return answers


def _picked(wish: Pick) -> Steps[Answer[Lease]]:
    while True:
        rows = yield sql["look"](seq=wish.seq)
        if not rows:
            return NotFound(f"there is no job {wish.seq}")
        job = job_from(rows[0])
        if job.state is State.RESERVED:
            held = yield reserving.sql["reserved_before"](token=wish.token)
            return lease_from(held[0]) if held else _refusal(job)
        if not allows(job.state, Action.PICK) or (yield from _is_bound(job, awaited=rows[0][29])):
            return _refusal(job)
        ticket = yield from take(job)
        if ticket is None:
            continue  # somebody moved it between the two statements: look again
        yield sql["lease"](
            **{name: value for name, value in ticket.items() if name != "epoch"},
            epoch=job.epoch + 1,
            token=wish.token,
            session=wish.session,
            ttr=microseconds(job.ttr),
        )
        return lease_from((yield sql["look"](seq=wish.seq))[0])


def _is_bound(job: Job, *, awaited: bool) -> Steps[bool]:
    """Say whether a job may only come into line by the rules of its limit, workers or parents."""
    if job.options.limit or job.options.runs:
        return True
    if job.state is not State.BURIED:
        return False
    [[incomplete]] = yield dependencies["count_incomplete"](seq=job.seq)
    return bool(incomplete or awaited or job.key is not None)


def _refusal(job: Job) -> InvalidState:
    return InvalidState(f"job {job.id} is {job.state}, or not to be had by its number")
