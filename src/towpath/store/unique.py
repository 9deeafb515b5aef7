"""Enqueueing under a key that another job may hold."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from towpath.errors import Conflict
from towpath.model.instants import instant
from towpath.model.job import Job, Options
from towpath.model.states import State
from towpath.model.unique import Unique
from towpath.operation import Answer, Changed, Operation, Steps
from towpath.statement import Statements, no_rows, rows
from towpath.store import admin
from towpath.store.admin import hold, let_follow, place_in_line, put_back, reschedule
from towpath.store.jobs import TRIES, Enqueue, NewJob, added, clock
from towpath.store.lookup import get
from towpath.store.rows import stored_options, uuid_from
from towpath.store.runs import offer, offer_otherwise


class sql(Statements):
    """The statements of unique.sql."""

    take_key = rows(int)
    rewrite = no_rows()
    rewritten_before = rows(UUID)
    forget_finished = no_rows()


def enqueue_over(
    new: Sequence[NewJob], unique: Unique, enqueue: Enqueue
) -> Operation[list[Answer[Job]]]:
    """Store jobs one by one; the job that holds the key of each gives way as told."""

    def steps(*, again: bool = False) -> Steps[Changed[list[Answer[Job]]]]:
        answers: list[Answer[Job]] = []
        woken: set[str] = set()
        for job in new:
            before = (yield from _rewritten_before(job)) if again else None
            if before is None:
                stored = yield from _stored(job, unique, enqueue)
                answers.append(stored.value)
                woken.update(stored.topics)
            else:
                answers.append(before)
        return Changed(answers, woken.union(added(answers).topics))

    return Operation("enqueue_over", steps, retry=partial(steps, again=True), locks=True)


def _rewritten_before(new: NewJob) -> Steps[Job | None]:
    """Return the job that this enqueue has changed, in a try whose answer was lost."""
    ids = yield from sql.rewritten_before(topic=new.topic, key=new.key, by=str(new.id))
    return (yield from get(uuid_from(ids[0])).inside()) if ids else None


def _stored(new: NewJob, unique: Unique, enqueue: Enqueue) -> Steps[Changed[Answer[Job]]]:
    """Store a job; the topics are those that gained another job by it."""
    woken: set[str] = set()
    if unique is Unique.CLEAR:
        yield sql.forget_finished(topic=new.topic, key=new.key, id=new.id)
    for _ in range(TRIES):
        [answer] = yield from enqueue([new]).inside()
        if not isinstance(answer, Job) or answer.id == new.id or unique is Unique.CLEAR:
            return Changed(answer, woken)
        if answer.state is State.RESERVED:
            yield from _take_key(answer, stop=unique is Unique.REPLACE)
        elif unique is Unique.REPLACE or bool(answer.options.runs) != bool(new.options.runs):
            # A job in line cannot become one that is offered to workers, nor the other way round.
            woken.update((yield from admin.cancelled(answer)) or ())
        else:
            others = yield from _rewritten(answer, new, postponed=unique is Unique.DEBOUNCE)
            if others is not None:
                woken |= others
                return Changed((yield from get(answer.id).inside()), woken)
    conflict = Conflict(f"the key {new.key!r} changed hands again and again; try again")
    return Changed(conflict, woken)


def _take_key(job: Job, *, stop: bool) -> Steps[None]:
    """Take the key from a job that runs: it cannot be changed any more."""
    if (yield from sql.take_key(seq=job.seq, epoch=job.epoch)):
        yield from admin.free_key(job)
        if stop:
            yield from admin.request_cancel(job)


def _from_now(options: Options) -> Steps[Options]:
    """Return options that expire as long after now as they would after the job was made."""
    if options.expires_after is None:
        return options
    now = yield from clock()
    return replace(options, expires_after=None, expires_at=now + round(options.expires_after * 1e6))


def _rewritten(job: Job, new: NewJob, *, postponed: bool) -> Steps[set[str] | None]:
    """Give a pending job another content.

    Returns the topics that gained a job by it, None if it was not where it was seen.
    """
    ticket = yield from hold(job)
    if ticket is None:
        return None
    item = new.as_item(0)
    changes: dict[str, Any] = {name: item[name] for name in ("priority", "limit_key")}
    content = {name: item[name] for name in ("payload", "encoding", "ttr")}
    content["options"] = stored_options((yield from _from_now(new.options)))
    yield sql.rewrite(seq=job.seq, by=str(new.id), **content, **changes)
    if new.options.runs:
        yield from offer(job.seq, job.topic, new.priority, new.options.runs)
    state, run_at = job.state, instant(job.run_at)
    holds = ticket["waits"] is not None  # for other jobs, whatever is said here
    if state is State.BLOCKED and not holds and ticket["limit_key"] != changes["limit_key"]:
        state = State.READY  # to be parked again
    if postponed:
        state = State.BLOCKED if holds else State.DELAYED
        run_at, _ = yield from reschedule(job, new.delay, new.run_at)
        if new.options.runs:
            yield from offer_otherwise(job.seq, new.priority)
    woken = yield from put_back(job, state, {**ticket, **changes}, run_at)
    return woken | (yield from let_follow(place_in_line(job, ticket)))
