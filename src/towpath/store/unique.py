"""Enqueueing under a key that another job may hold."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from towpath.errors import Conflict
from towpath.model.instants import instant
from towpath.model.job import Job, Options
from towpath.model.states import State
from towpath.model.unique import Unique
from towpath.operation import Answer, Operation, Steps
from towpath.statement import load
from towpath.store import admin, jobs
from towpath.store.admin import hold, let_follow, place_in_line, put_back
from towpath.store.jobs import TRIES, Enqueue, NewJob, topics_of
from towpath.store.lookup import get
from towpath.store.rows import stored_options, uuid_from
from towpath.store.runs import offer
from towpath.store.runs import sql as runs

sql: Final = load(__name__)


def enqueue_over(
    new: Sequence[NewJob], unique: Unique, enqueue: Enqueue
) -> Operation[list[Answer[Job]]]:
    """Store jobs one by one; the one that holds the key of each gives way as told."""
    woken: set[str] = set()

    def steps(*, again: bool = False) -> Steps[list[Answer[Job]]]:
        answers: list[Answer[Job]] = []
        for job in new:
            rewritten = (yield from _rewritten_before(job)) if again else None
            answer = rewritten or (yield from _stored(job, unique, enqueue, woken))
            answers.append(answer)
        return answers

    return Operation(
        "enqueue_over",
        steps,
        retry=partial(steps, again=True),
        locks=True,
        wakes=lambda answers: topics_of(answers) | woken,
    )


def _rewritten_before(new: NewJob) -> Steps[Job | None]:
    """Return the job that this enqueue has changed, in a try whose answer was lost."""
    rows = yield sql["rewritten_before"](topic=new.topic, key=new.key, by=str(new.id))
    return (yield from get(uuid_from(rows[0][0])).start()) if rows else None


def _stored(new: NewJob, unique: Unique, enqueue: Enqueue, woken: set[str]) -> Steps[Answer[Job]]:
    if unique is Unique.CLEAR:
        yield sql["forget_finished"](topic=new.topic, key=new.key, id=new.id)
    for _ in range(TRIES):
        [answer] = yield from enqueue([new]).start()
        if not isinstance(answer, Job) or answer.id == new.id or unique is Unique.CLEAR:
            return answer
        if answer.state is State.RESERVED:
            yield from _let_go(answer, stop=unique is Unique.REPLACE)
        elif unique is Unique.REPLACE or bool(answer.options.runs) != bool(new.options.runs):
            # What lies in line cannot become what is offered to workers, nor the other way round.
            woken.update((yield from admin.cancelled(answer)) or ())
        else:
            others = yield from _rewritten(answer, new, postponed=unique is Unique.DEBOUNCE)
            if others is not None:
                woken.update(others)
                return (yield from get(answer.id).start())
    return Conflict(f"the key {new.key!r} changed hands again and again; try again")


def _let_go(job: Job, *, stop: bool) -> Steps[None]:
    """Take the key from a job that runs: it cannot be changed any more."""
    if (yield sql["let_go"](seq=job.seq, epoch=job.epoch)):
        yield admin.sql["free_key"](topic=job.topic, key=job.key, id=job.id)
        if stop:
            yield admin.sql["request_cancel"](seq=job.seq, epoch=job.epoch)


def _from_now(options: Options) -> Steps[Options]:
    """Return options that expire as long after now as they would after the job was made."""
    if options.expires_after is None:
        return options
    [[now]] = yield jobs.sql["clock"]()
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
    yield sql["rewrite"](seq=job.seq, by=str(new.id), **content, **changes)
    if new.options.runs:
        yield from offer(job.seq, job.topic, new.priority, new.options.runs)
    state, run_at = job.state, instant(job.run_at)
    holds = ticket.get("waits") is not None  # for other jobs, whatever is said here
    if state is State.BLOCKED and not holds and ticket["limit_key"] != changes["limit_key"]:
        state = State.READY  # to be parked anew
    if postponed:
        state = State.BLOCKED if holds else State.DELAYED
        [[run_at, _]] = yield admin.sql["reschedule"](
            seq=job.seq, run_at=new.run_at, delay=new.delay
        )
        if new.options.runs:
            yield runs["offer_otherwise"](seq=job.seq, priority=new.priority)
    woken = yield from put_back(job, state, {**ticket, **changes}, run_at)
    return woken | (yield from let_follow(place_in_line(job, ticket)))
