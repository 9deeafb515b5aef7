"""Reasons: why a job is where it is, in sentences, with what may be done about it.

Pure: facts in, sentences out. A sentence names no instants; the reason carries them, so that each
reader writes them in its own way.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal
from urllib.parse import quote
from uuid import UUID

from msgspec import Struct

from towpath.model.instants import spoken
from towpath.model.job import FailureKind, Job, UnreadableJob
from towpath.model.runs import RunState
from towpath.model.states import State

MOST_AHEAD: Final = 10_000  # jobs before another one that are counted
MOST_ALIKE: Final = 2_000  # failed jobs that are compared
MOST_NAMED: Final = 20  # jobs that one reason names
MOST_REQUEUED: Final = 5  # remedies of one kind
MOST_LINE: Final = 200  # characters
PACE_OVER: Final = 5  # minutes from which the pace of a topic is known


class Remedy(Struct, frozen=True, kw_only=True):
    """A request that changes the situation."""

    label: str
    method: Literal["POST", "DELETE"]
    path: str
    body: dict[str, Any] | None = None


class RelatedJob(Struct, frozen=True):
    """Another job that a reason is about."""

    id: UUID
    topic: str
    state: State


class LimitNow(Struct, frozen=True, kw_only=True):
    """A limit, and how far it is used."""

    key: str
    concurrency: int | None
    pace: int | None  # microseconds from one start to the next
    running: int
    free_at: datetime | None  # when the pace allows the next start


class Ahead(Struct, frozen=True):
    """How many jobs are before one in line; if it is not exact, there are at least so many."""

    count: int
    exact: bool


class Reason(Struct, frozen=True, kw_only=True):
    """One reason why a job is where it is."""

    code: str
    message: str
    at: datetime | None = None  # since when it holds
    until: datetime | None = None  # when it ends, or is expected to
    jobs: tuple[RelatedJob, ...] = ()
    limit: LimitNow | None = None
    before: Ahead | None = None
    remedies: tuple[Remedy, ...] = ()


class LeaseFacts(Struct, frozen=True, kw_only=True):
    """The lease of a job, and its worker."""

    session: int | None
    worker: str | None
    reserved_at: datetime
    started: bool
    until: datetime | None
    beat_at: datetime | None  # of its session


class Surroundings(Struct, frozen=True, kw_only=True):
    """The lease of a job, if it has one, and how many jobs it is tied to."""

    lease: LeaseFacts | None
    parents: int  # that it waited for
    children: int  # that wait or waited for it


class LineFacts(Struct, frozen=True, kw_only=True):
    """The line in which a job waits."""

    paused_until: datetime | None  # None: it is not paused, or without an end
    paused: bool
    served: bool  # a live worker serves it, or a client holds a lease of it
    ahead: Ahead
    per_minute: float  # jobs that ended of late


class OfferFacts(Struct, frozen=True, kw_only=True):
    """What a job that chooses its workers still wants."""

    wanted: int
    named: tuple[str, ...] | None
    runs: tuple[tuple[str, RunState], ...]  # workers and how far they are
    live: frozenset[str]  # workers that live


class JobFacts(Struct, frozen=True, kw_only=True):
    """What is known around a job; the parts that its state asks for are there."""

    now: datetime
    dead_after: timedelta
    lease: LeaseFacts | None = None
    line: LineFacts | None = None
    limit: LimitNow | None = None
    parents: tuple[RelatedJob, ...] = ()  # that have not completed; the first ones
    waits: int = 0  # for so many parents
    offer: OfferFacts | None = None
    kept_until: datetime | None = None
    kind: FailureKind | None = None  # of its last failure
    alike: int = 0  # other failed jobs of its topic with the same error


def reasons(job: Job, facts: JobFacts) -> list[Reason]:
    """Return why a job is where it is, the most important reason first."""
    found = list(_BY_STATE[job.state](job, facts))
    if isinstance(job, UnreadableJob):
        found.insert(0, Reason(code="unreadable", message=f"No worker here can run it: {job.why}."))
    return found


def first_line(error: str) -> str:
    """Return the first line of an error, shortened: by it, errors are alike."""
    return error.strip().partition("\n")[0][:MOST_LINE]


def _delayed(job: Job, facts: JobFacts) -> Iterator[Reason]:
    remedies = (_act(job, "Run now", "kick"), _act(job, "Cancel", "cancel"))
    if job.run_at <= facts.now:
        message = "Its time has come; upkeep puts it in line within a few seconds."
        yield Reason(code="due", message=message, at=job.run_at, remedies=remedies)
    elif job.retries and not isinstance(job, UnreadableJob):
        message = f"It waits before its next try: {_tries(job)}{_said(job)}."
        yield Reason(code="backing_off", message=message, until=job.run_at, remedies=remedies)
    else:
        message = "It is delayed: its time has not come."
        yield Reason(code="delayed", message=message, until=job.run_at, remedies=remedies)


def _ready(job: Job, facts: JobFacts) -> Iterator[Reason]:
    line = facts.line
    if line is None:
        return
    if line.paused:
        yield Reason(
            code="paused",
            message=f"Topic {job.topic} is paused.",
            until=line.paused_until,
            remedies=(
                Remedy(label="Resume the topic", method="POST", path=f"{_topic(job)}/resume"),
            ),
        )
    if not line.served:
        message = f"No live worker serves topic {job.topic}: start one with `towpath worker`."
        yield Reason(code="no_worker", message=message)
    count = line.ahead.count
    few = "No job is" if not count else "1 job is" if count == 1 else f"{count:,} jobs are"
    message = f"It is ready. {few if line.ahead.exact else f'At least {few.lower()}'} before it."
    until = None
    if line.per_minute and line.served and not line.paused and line.ahead.exact:
        until = facts.now + timedelta(minutes=count / line.per_minute)
        message += f" {line.per_minute:,.3g} jobs of its topic ended per minute lately."
    remedies = (_act(job, "Cancel", "cancel"),)
    yield Reason(code="in_line", message=message, until=until, before=line.ahead, remedies=remedies)


def _blocked(job: Job, facts: JobFacts) -> Iterator[Reason]:
    cancel = _act(job, "Cancel", "cancel")
    if facts.offer is not None:
        yield _of_offer(facts.offer)
    if facts.waits:
        jobs = "1 job" if facts.waits == 1 else f"{facts.waits:,} jobs"
        yield Reason(
            code="parents",
            message=f"It waits for {jobs} to complete.",
            jobs=facts.parents,
            remedies=(*_requeues(facts.parents), cancel),
        )
    if facts.limit is not None and not facts.waits:
        limit = facts.limit
        message = f"Limit {limit.key} is reached"
        if limit.concurrency is not None:
            message += f": {limit.running:,} of {limit.concurrency:,} jobs run"
        if limit.pace is not None:
            message += f"; one may start every {spoken(timedelta(microseconds=limit.pace))}"
        yield Reason(
            code="limit",
            message=f"{message}.",
            until=limit.free_at,
            limit=limit,
            remedies=(cancel,),
        )


def _of_offer(offer: OfferFacts) -> Reason:
    succeeded, running = (
        sum(each is state for _, each in offer.runs)
        for state in (RunState.SUCCEEDED, RunState.RUNNING)
    )
    message = (
        f"It wants {offer.wanted:,} different workers: {succeeded:,} have succeeded, "
        f"{running:,} run it now."
    )
    if offer.named is not None:
        have_run = {worker for worker, _ in offer.runs}
        missing = [name for name in offer.named if name not in have_run]
        silent = [name for name in missing if name not in offer.live]
        if missing:
            message += f" Only these may still run it: {_some(missing)}."
        if silent:
            message += f" Of these, no sign of life: {_some(silent)}."
    return Reason(code="offer", message=message)


def _reserved(job: Job, facts: JobFacts) -> Iterator[Reason]:
    lease = facts.lease
    if lease is None:
        return
    worker = "A client without a name" if lease.worker is None else f"Worker {lease.worker}"
    remedies = () if job.cancel_requested else (_act(job, "Stop", "cancel"),)
    if lease.session is not None and not lease.started:
        code, message = "not_begun", f"{worker} has it in hand, and has not begun it."
    else:
        code, message = "running", f"{worker} runs it."
    until = lease.until
    if lease.session is not None and lease.started and not isinstance(job, UnreadableJob):
        until = _later(lease.reserved_at, job.options.timeout)
    yield Reason(code=code, message=message, at=lease.reserved_at, until=until, remedies=remedies)
    if lease.beat_at is not None and facts.now - lease.beat_at >= facts.dead_after:
        yield Reason(
            code="silent",
            message=f"{worker} is silent; upkeep takes the job back.",
            at=lease.beat_at,
        )
    if job.cancel_requested:
        message = "It was asked to stop; it ends when its worker answers."
        yield Reason(code="cancel_requested", message=message)


def _buried(job: Job, facts: JobFacts) -> Iterator[Reason]:
    requeue = _act(job, "Re-queue", "requeue")
    if facts.kind is FailureKind.DEPENDENCY:
        yield Reason(
            code="parent_failed",
            message=f"It failed without a run{_said(job)}. Re-queue what it waited for, "
            "and it waits again.",
            at=job.finished_at,
            jobs=facts.parents,
            remedies=(*_requeues(facts.parents), requeue),
        )
    elif job.last_error is None:
        message = "It was put aside without an error, until it is kicked, re-queued or deleted."
        remedies = (_act(job, "Kick", "kick"), requeue)
        yield Reason(code="buried", message=message, at=job.finished_at, remedies=remedies)
    else:
        tries = "" if isinstance(job, UnreadableJob) else f": {_tries(job)}"
        message = f"It failed for good{tries}{_said(job)}."
        remedies = (requeue, Remedy(label="Delete", method="DELETE", path=_path(job)))
        yield Reason(code="failed", message=message, at=job.finished_at, remedies=remedies)
    if facts.alike:
        jobs = "1 other failed job" if facts.alike == 1 else f"{facts.alike:,} other failed jobs"
        verb = "has" if facts.alike == 1 else "have"
        yield Reason(code="alike", message=f"{jobs} of topic {job.topic} {verb} the same error.")


def _completed(job: Job, facts: JobFacts) -> Iterator[Reason]:
    message = "It has completed; it is kept for a while, and then forgotten."
    yield Reason(code="completed", message=message, at=job.finished_at, until=facts.kept_until)


def _cancelled(job: Job, facts: JobFacts) -> Iterator[Reason]:
    if facts.kind is FailureKind.EXPIRED:
        code, message = "expired", f"It did not begin in time{_said(job)}."
    else:
        code, message = "cancelled", "It was cancelled."
    yield Reason(
        code=code,
        message=f"{message} It is kept for a while, and then forgotten.",
        at=job.finished_at,
        until=facts.kept_until,
        remedies=(_act(job, "Re-queue", "requeue"),),
    )


_BY_STATE: Final = {
    State.DELAYED: _delayed,
    State.READY: _ready,
    State.BLOCKED: _blocked,
    State.RESERVED: _reserved,
    State.BURIED: _buried,
    State.COMPLETED: _completed,
    State.CANCELLED: _cancelled,
}


def _tries(job: Job) -> str:
    most = max(1, job.options.max_retries)
    return f"{job.retries} of at most {most} {'try' if most == 1 else 'tries'} failed"


def _said(job: Job) -> str:
    return "" if job.last_error is None else f", with: {first_line(job.last_error).rstrip('.')}"


def _later(at: datetime, seconds: float) -> datetime | None:
    try:
        return at + timedelta(seconds=seconds)
    except OverflowError:  # without a limit
        return None


def _requeues(jobs: Sequence[RelatedJob]) -> tuple[Remedy, ...]:
    ended = [each for each in jobs if each.state in {State.BURIED, State.CANCELLED}]
    return tuple(
        Remedy(
            label=f"Re-queue the {each.topic} job before it",
            method="POST",
            path=f"/api/jobs/{each.id}/requeue",
        )
        for each in ended[:MOST_REQUEUED]
    )


def _act(job: Job, label: str, verb: str) -> Remedy:
    return Remedy(label=label, method="POST", path=f"{_path(job)}/{verb}")


def _path(job: Job) -> str:
    return f"/api/jobs/{job.id}"


def _topic(job: Job) -> str:
    return f"/api/topics/{quote(job.topic)}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
