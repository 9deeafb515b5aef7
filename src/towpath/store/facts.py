"""What is known around one job: its lease, its place in line, what it waits for."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from towpath.model.instants import FOREVER, as_datetime
from towpath.model.job import FailureKind, Job
from towpath.model.reasons import (
    MOST_AHEAD,
    MOST_ALIKE,
    MOST_LINE,
    MOST_NAMED,
    PACE_OVER,
    Ahead,
    JobFacts,
    LeaseFacts,
    LimitNow,
    LineFacts,
    OfferFacts,
    RelatedJob,
    Surroundings,
    first_line,
)
from towpath.model.runs import RunState
from towpath.model.sessions import RemoteWorker, Session
from towpath.model.states import State
from towpath.operation import Mode, Operation, Steps
from towpath.statement import Statements, rows
from towpath.store import jobs, runs, sessions, stats
from towpath.store.rows import uuid_from

_KINDS: Final = frozenset(FailureKind)
_names: Final = msgspec.json.Decoder(tuple[str, ...])
_FAILED: Final = frozenset({State.BURIED, State.CANCELLED})


class LeaseRow(NamedTuple):
    """The lease of a job."""

    now: int
    session: int | None
    worker: str | None
    reserved_at: int
    started: bool | int
    until: int | None
    beat_at: int | None
    stop_at: int | None


class Relatives(NamedTuple):
    """How many jobs one waited for, and how many wait or waited for it."""

    parents: int
    children: int


class LineOf(NamedTuple):
    """The line of a job."""

    now: int
    paused_until: int | None
    ahead: int
    held: bool | int


class LimitOf(NamedTuple):
    """The limit of a job that is blocked."""

    waits: int | None
    key: str | None
    concurrency: int | None
    pace: int | None
    burst: int | None
    free_at: int | None
    running: int | None


class ParentRow(NamedTuple):
    """A job that another one waits for."""

    seq: int
    id: UUID | bytes | str
    topic: str
    state: str


class OfferRow(NamedTuple):
    """What a job that chooses its workers wants."""

    wanted: int
    named: str | None


class KindRow(NamedTuple):
    """The last failure of a job."""

    kind: str
    error: str


class sql(Statements):
    """The statements of facts.sql."""

    lease_of = rows(LeaseRow)
    count_relatives = rows(Relatives)
    line_of = rows(LineOf)
    limit_of = rows(LimitOf)
    open_parents = rows(ParentRow)
    count_open_parents = rows(int)
    offer_of = rows(OfferRow)
    kept_until = rows(int)
    last_kind = rows(KindRow)
    errors_beside = rows(str)


def surroundings(seq: int) -> Operation[Surroundings]:
    """Read the lease of a job, and count its relatives."""

    def steps() -> Steps[Surroundings]:
        [relatives] = yield from sql.count_relatives(seq=seq)
        lease = yield from _lease(seq)
        return Surroundings(lease=lease, parents=relatives.parents, children=relatives.children)

    return Operation("surroundings", steps, Mode.READ)


def around(job: Job, dead_after: float) -> Operation[JobFacts]:
    """Read what explains where a job is."""

    def steps() -> Steps[JobFacts]:
        now = as_datetime((yield from jobs.clock()))
        line = lease = limit = offer = kept_until = kind = None
        parents: tuple[RelatedJob, ...] = ()
        waits = alike = 0
        match job.state:
            case State.READY:
                line = yield from _line(job, dead_after)
            case State.RESERVED:
                lease = yield from _lease(job.seq)
            case State.BLOCKED:
                limit = yield from _limit(job.seq)
                offer = yield from _offer(job, dead_after)
                [waits] = yield from sql.count_open_parents(seq=job.seq)
                parents = yield from _parents(job.seq)
            case State.BURIED:
                parents = yield from _parents(job.seq)
                alike = yield from _alike(job)
            case _:
                kept = yield from sql.kept_until(seq=job.seq)
                kept_until = as_datetime(kept[0]) if kept else None
        if job.state in _FAILED:
            kind = yield from _kind(job.seq)
        return JobFacts(
            now=now,
            dead_after=timedelta(seconds=dead_after),
            lease=lease,
            line=line,
            limit=limit,
            parents=parents,
            waits=waits,
            offer=offer,
            kept_until=kept_until,
            kind=kind,
            alike=alike,
        )

    return Operation("facts_around", steps, Mode.SCAN)


def _lease(seq: int) -> Steps[LeaseFacts | None]:
    for row in (yield from sql.lease_of(seq=seq)):
        return LeaseFacts(
            session=row.session,
            worker=row.worker,
            reserved_at=as_datetime(row.reserved_at),
            started=bool(row.started),
            until=None if row.until is None else as_datetime(row.until),
            beat_at=None if row.beat_at is None else as_datetime(row.beat_at),
        )
    return None


def _line(job: Job, dead_after: float) -> Steps[LineFacts]:
    [row] = yield from sql.line_of(
        topic=job.topic, priority=job.priority, seq=job.seq, most=MOST_AHEAD + 1
    )
    minutes = yield from stats.throughput(job.topic, PACE_OVER).inside()
    live = yield from _live(dead_after)
    served = bool(row.held) or any(job.topic in topics for _, topics in live)
    until = row.paused_until or 0
    paused = until > row.now
    return LineFacts(
        paused=paused,
        paused_until=as_datetime(until) if paused and until < FOREVER else None,
        served=served,
        ahead=Ahead(min(row.ahead, MOST_AHEAD), row.ahead <= MOST_AHEAD),
        per_minute=sum(each.completed + each.failed for each in minutes) / PACE_OVER,
    )


def _live(dead_after: float) -> Steps[list[tuple[str, tuple[str, ...]]]]:
    """Return the live workers with a session or without one, each with its topics."""
    known = yield from sessions.list_sessions().inside()
    remote = yield from sessions.list_remote().inside()
    found: list[Session | RemoteWorker] = [*known, *remote]
    return [
        (each.worker, each.topics)
        for each in found
        if each.silent.total_seconds() < dead_after or (each.session is None and each.leases)
    ]


def _limit(seq: int) -> Steps[LimitNow | None]:
    for row in (yield from sql.limit_of(seq=seq)):
        if row.waits is None and row.key is not None:
            return LimitNow(
                key=row.key,
                concurrency=row.concurrency,
                pace=row.pace,
                running=row.running or 0,
                free_at=None if row.free_at is None else as_datetime(row.free_at),
            )
    return None


def _parents(seq: int) -> Steps[tuple[RelatedJob, ...]]:
    found = yield from sql.open_parents(seq=seq, limit=MOST_NAMED)
    return tuple(RelatedJob(uuid_from(row.id), row.topic, State(row.state)) for row in found)


def _offer(job: Job, dead_after: float) -> Steps[OfferFacts | None]:
    for row in (yield from sql.offer_of(seq=job.seq)):
        ran = yield from runs.list_runs(job.id).inside()
        live = yield from _live(dead_after)
        return OfferFacts(
            wanted=row.wanted,
            named=None if row.named is None else _names.decode(row.named),
            runs=tuple((each.worker, RunState(each.state)) for each in ran),
            live=frozenset(worker for worker, _ in live),
        )
    return None


def _kind(seq: int) -> Steps[FailureKind | None]:
    for row in (yield from sql.last_kind(seq=seq)):
        return FailureKind(row.kind) if row.kind in _KINDS else FailureKind.ERROR
    return None


def _alike(job: Job) -> Steps[int]:
    if job.last_error is None:
        return 0
    # Long enough for the first line; some blanks may be before it.
    errors = yield from sql.errors_beside(
        seq=job.seq, topic=job.topic, limit=MOST_ALIKE, length=2 * MOST_LINE
    )
    line = first_line(job.last_error)
    return sum(first_line(error) == line for error in errors)
