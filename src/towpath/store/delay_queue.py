"""What a door of delay queues asks beyond the verbs of jobs: numbers, counts, what is due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from towpath.errors import InvalidState, NotFound
from towpath.model.delay_queue import JobAt, QueueCounts
from towpath.model.instants import as_datetime, as_timedelta, microseconds
from towpath.model.job import Job, Lease
from towpath.model.states import Action, State, allows
from towpath.operation import Answer, Mode, Operation, Steps, plural
from towpath.statement import Statements, no_rows, pairs, rows
from towpath.store import lifecycle
from towpath.store.admin import take, with_new_stream
from towpath.store.dependencies import count_incomplete
from towpath.store.lifecycle import JobEvent
from towpath.store.reserving import reserved_before
from towpath.store.rows import Located, job_from, lease_from

URGENT: Final = 1_024  # a smaller priority is urgent, as beanstalkd counts


class CountsRow(NamedTuple):
    """One topic as a delay queue."""

    topic: str
    ready: int
    urgent: int
    delayed: int
    reserved: int
    buried: int
    pause: int


class sql(Statements):
    """The statements of delay_queue.sql."""

    counts = rows(CountsRow)
    look = pairs("now", Located)
    is_awaited = rows(int)
    lease = no_rows()


class Pick(Struct, frozen=True):
    """A job to lease by its number, and the session that is to hold it."""

    seq: int
    token: int
    session: int | None


def counts(topic: str | None = None) -> Operation[list[QueueCounts]]:
    """Count the unfinished jobs of each topic, or of one."""

    def steps() -> Steps[list[QueueCounts]]:
        return [
            QueueCounts(
                topic=row.topic,
                ready=row.ready,
                urgent=row.urgent,
                delayed=row.delayed,
                reserved=row.reserved,
                buried=row.buried,
                paused_for=as_timedelta(row.pause) if row.pause > 0 else None,
            )
            for row in (yield from sql.counts(topic=topic, urgent=URGENT))
        ]

    return Operation("count_queues", steps, Mode.READ if topic else Mode.SCAN, autocommit=True)


def look(seq: int) -> Operation[JobAt | None]:
    """Read the job of this number, with the clock; None if there is none."""

    def steps() -> Steps[JobAt | None]:
        for now, job in (yield from sql.look(seq=seq)):
            return JobAt(job_from(job), as_datetime(now))
        return None

    return Operation("look", steps, Mode.READ, autocommit=True)


@plural(autocommit=lambda _: False)
def pick(picks: Sequence[Pick]) -> Steps[list[Answer[Lease]]]:
    """Lease ready, delayed or buried jobs by their numbers, until their ttr.

    Picked again with the same token, it is the same lease. One that has a limit or chooses its
    workers is left to `reserve`; a buried one with a key or dependencies, to `kick`.
    """
    answers: list[Answer[Lease]] = []
    for each in picks:
        answer = yield from _picked(each)
        answers.append(answer)
    return answers


def _picked(pick: Pick) -> Steps[Answer[Lease]]:
    while True:
        found = yield from sql.look(seq=pick.seq)
        if not found:
            return NotFound(f"there is no job {pick.seq}")
        job = job_from(found[0][1])
        if job.state is State.RESERVED:
            held = yield from reserved_before(pick.token)
            return lease_from(held[0]) if held else _refusal(job)
        if not allows(job.state, Action.PICK) or (yield from _is_bound(job)):
            return _refusal(job)
        ticket = yield from take(job)
        if ticket is None:
            continue  # another transaction moved it between the two statements: look again
        events = [JobEvent("reserved", job.seq, job.epoch + 1)]
        if job.state is State.BURIED:
            ticket = yield from with_new_stream(ticket)
            events.insert(0, JobEvent("requeued", job.seq, job.epoch))
        yield sql.lease(
            **{name: value for name, value in ticket.items() if name != "epoch"},
            epoch=job.epoch + 1,
            token=pick.token,
            session=pick.session,
            ttr=microseconds(job.ttr),
        )
        yield from lifecycle.post_jobs(events)
        [(_, leased)] = yield from sql.look(seq=pick.seq)
        return lease_from(leased)


def _is_bound(job: Job) -> Steps[bool]:
    """Say whether a job may only come into line by the rules of its limit, workers or parents."""
    if job.options.limit or job.options.runs:
        return True
    if job.state is not State.BURIED:
        return False
    if job.key is not None or (yield from sql.is_awaited(seq=job.seq)):
        return True
    return bool((yield from count_incomplete(job.seq)))


def _refusal(job: Job) -> InvalidState:
    return InvalidState(
        f"job {job.id} is {job.state}; `reserve-job` takes ready, delayed and buried jobs, "
        "and none with a limit, chosen workers or dependencies"
    )
