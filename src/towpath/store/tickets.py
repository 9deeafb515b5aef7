"""Tickets that move without a lease: kick, requeue, cancel, delete and the like."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from towpath.errors import InvalidState, KeyTaken, NotBuried, TowpathError
from towpath.model.instants import instant, microseconds
from towpath.model.job import Job
from towpath.model.states import Action, State, allows
from towpath.operation import Operation, Row, Steps
from towpath.statement import Statement, load
from towpath.store.lookup import get
from towpath.store.rows import job_from, ticket_from

sql: Final = load(__name__)

T = TypeVar("T")

KICK_AT_ONCE: Final = 1_000
_TAKE: Final[Mapping[State, Statement]] = {
    State.READY: sql["take_ready"],
    State.DELAYED: sql["take_delayed"],
    State.BURIED: sql["take_buried"],
    State.CANCELLED: sql["take_cancelled"],
}


def requeue(id: UUID) -> Operation[Job]:
    """Make a failed or cancelled job ready again, with retries and crashes back to 0."""

    def steps() -> Steps[Job]:
        job = yield from _taken(id, Action.REQUEUE)
        yield from _claim_key(job)
        yield sql["put_ready"](**_ticket(job, retries=0, crashes=0))
        return (yield from get(id).start())

    return _admin("requeue", steps, _its_topic)


def kick_job(id: UUID) -> Operation[Job]:
    """Make one buried or delayed job ready, counters kept."""

    def steps() -> Steps[Job]:
        job = yield from _taken(id, Action.KICK, NotBuried)
        yield from _kicked(job)
        return (yield from get(id).start())

    return _admin("kick_job", steps, _its_topic)


def kick(topic: str, limit: int) -> Operation[int]:
    """Make up to `limit` buried jobs ready, in bury order; if none is buried, delayed ones.

    A job whose key another one holds by now stays where it is.
    """

    def steps() -> Steps[int]:
        found, kicked = yield from _kick_buried(topic, limit)
        return kicked if found else (yield from _kick_delayed(topic, limit))

    return _admin("kick", steps, lambda kicked: [topic] if kicked else [])


def _kick_buried(topic: str, limit: int) -> Steps[tuple[bool, int]]:
    kicked, after, found = 0, -1, False
    while kicked < limit:
        rows = yield sql["next_buried"](
            topic=topic, after=after, limit=min(limit - kicked, KICK_AT_ONCE)
        )
        if not rows:
            break
        found = True
        after = rows[-1][3]
        for seq, epoch, key, _ in rows:
            if key is not None and not (yield sql["claim_key"](seq=seq)):
                continue
            for row in (yield sql["take_buried"](seq=seq, epoch=epoch)):
                yield sql["put_ready"](**_row_ticket(row))
                kicked += 1
    return found, kicked


def _kick_delayed(topic: str, limit: int) -> Steps[int]:
    kicked, after, after_seq = 0, -1, 0
    while kicked < limit:
        rows = yield sql["next_delayed"](
            topic=topic, after=after, after_seq=after_seq, limit=min(limit - kicked, KICK_AT_ONCE)
        )
        if not rows:
            break
        after_seq, _, _, after = rows[-1]
        for seq, epoch, _, _ in rows:
            for row in (yield sql["take_delayed"](seq=seq, epoch=epoch)):
                yield sql["put_ready"](**_row_ticket(row))
                kicked += 1
    return kicked


def cancel(id: UUID) -> Operation[Job]:
    """Stop a job wherever it is; a running one is asked to, and ends when its holder answers."""

    def steps() -> Steps[Job]:
        while True:
            job = yield from get(id).start()
            if job.state is State.RESERVED:
                if (yield sql["request_cancel"](seq=job.seq, epoch=job.epoch)):
                    return (yield from get(id).start())
                continue  # its lease ended meanwhile
            job = yield from _taken(id, Action.CANCEL)
            yield sql["free_key"](topic=job.topic, key=job.key)
            retention = microseconds(job.options.retention)
            yield sql["put_cancelled"](**_ticket(job), retention=retention)
            return (yield from get(id).start())

    return _admin("cancel", steps)


def delete(id: UUID) -> Operation[Job]:
    """Forget a job that is pending, failed or cancelled; return what it was."""

    def steps() -> Steps[Job]:
        job = yield from _taken(id, Action.DELETE, read=ticket_from)
        yield from _forgotten(job)
        return job

    return _admin("delete", steps)


def purge(topic: str, limit: int) -> Operation[int]:
    """Forget up to `limit` of a topic's pending and failed jobs; return how many."""

    def steps() -> Steps[int]:
        rows = yield sql["unfinished_of"](topic=topic, limit=limit)
        gone = 0
        for job in map(ticket_from, rows):
            if (yield _TAKE[job.state](**_place(job))):
                yield from _forgotten(job)
                gone += 1
        return gone

    return _admin("purge", steps)


def reprioritise(id: UUID, priority: int) -> Operation[Job]:
    """Give a pending job another priority."""

    def steps() -> Steps[Job]:
        job = yield from _taken(id, Action.CANCEL)  # allowed where cancelling is: while pending
        yield sql["reprioritise"](seq=job.seq, priority=priority)
        ticket = _ticket(job, priority=priority)
        if job.state is State.READY:
            yield sql["put_ready"](**ticket)
        else:
            yield sql["put_delayed"](**ticket, run_at=instant(job.run_at))
        return (yield from get(id).start())

    return _admin("reprioritise", steps, _its_topic)


def _admin(
    name: str, steps: Callable[[], Steps[T]], wakes: Callable[[T], Iterable[str]] | None = None
) -> Operation[T]:
    # Kicking twice kicks twice as many, and a second delete finds nothing.
    return Operation(name, steps, repeatable=False, wakes=wakes)


def _its_topic(job: Job) -> list[str]:
    return [job.topic]


def _taken(
    id: UUID,
    action: Action,
    error: type[TowpathError] = InvalidState,
    read: Callable[[Row], Job] = job_from,
) -> Steps[Job]:
    """Take a job's ticket from where it lies, if the table of transitions allows it."""
    while True:
        job = yield from get(id, read).start()
        if not allows(job.state, action):
            msg = f"job {id} is {job.state}; {action} is not allowed there"
            raise error(msg)
        rows = yield _TAKE[job.state](**_place(job))
        if rows:
            return msgspec.structs.replace(job, priority=rows[0][2])  # as the ticket has it
        # Somebody moved it between the two statements: look again.


def _kicked(job: Job) -> Steps[None]:
    if job.state is State.BURIED:
        yield from _claim_key(job)
    yield sql["put_ready"](**_ticket(job, kicks=job.kicks + 1))


def _claim_key(job: Job) -> Steps[None]:
    if job.key is not None and not (yield sql["claim_key"](seq=job.seq)):
        msg = f"another unfinished job of topic {job.topic!r} holds the key {job.key!r}"
        raise KeyTaken(msg)


def _forgotten(job: Job) -> Steps[None]:
    if job.state in {State.READY, State.DELAYED}:
        yield sql["free_key"](topic=job.topic, key=job.key)
    yield sql["forget_failures"](seq=job.seq)
    yield sql["forget_notes"](seq=job.seq)
    yield sql["forget_job"](seq=job.seq)


def _place(job: Job) -> dict[str, Any]:
    return {"topic": job.topic, "priority": job.priority, "seq": job.seq, "epoch": job.epoch}


def _ticket(job: Job, **changes: int) -> dict[str, Any]:
    names = ("seq", "topic", "priority", "epoch", "key", *_COUNTERS)
    return {name: getattr(job, name) for name in names} | changes


_COUNTERS: Final = ("retries", "crashes", "timeouts", "releases", "buries", "kicks")


def _row_ticket(row: Any) -> dict[str, Any]:
    names = ("seq", "topic", "priority", "epoch", "key", *_COUNTERS)
    ticket = dict(zip(names, row, strict=True))
    return ticket | {"kicks": (ticket["kicks"] or 0) + 1}
