"""Sessions: a worker's sign of life, and the rescue of what a dead worker held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from towpath.errors import LeaseLost
from towpath.model.instants import as_datetime, as_timedelta
from towpath.model.job import FailureKind
from towpath.model.sessions import RemoteWorker, Session
from towpath.operation import Changed, Mode, Operation, Steps
from towpath.statement import Statements, no_rows, rows
from towpath.store import jobs, lifecycle
from towpath.store.leases import Outcome, Settled, is_run, taken_back
from towpath.store.lifecycle import LifecycleEvent
from towpath.store.rows import known_options

LEASES_AT_ONCE: Final = 1_000
_topics: Final = msgspec.json.Decoder(tuple[str, ...])

PRUNE_AT_ONCE: Final = 1_000
REMEMBERED: Final = 3_600_000_000  # microseconds that a silent worker without a session is listed


class EndedSession(NamedTuple):
    """A session that a statement has ended."""

    worker: str
    topics: str


class FencedLease(NamedTuple):
    """A lease by its number and epoch."""

    seq: int
    epoch: int


class SessionRow(NamedTuple):
    """A session, and how many leases it holds."""

    id: int
    worker: str
    topics: str
    started_at: int
    beat_at: int
    now: int
    leases: int


class RemoteRow(NamedTuple):
    """A worker without a session, and how many leases it holds."""

    worker: str
    topics: str | None
    started_at: int
    heard_at: int
    now: int
    leases: int


class Beats(NamedTuple):
    """A session's number of beats, and when it was read."""

    id: int
    beats: int
    now: int


class SessionLease(NamedTuple):
    """A lease of a session."""

    seq: int
    epoch: int
    started: bool | int
    crashes: int
    options: str | None


class LeaseRange(NamedTuple):
    """How many leases follow a number, and the last of them."""

    number: int
    upto: int | None


class sql(Statements):
    """The statements of sessions.sql."""

    start = rows(int)
    beat = rows(int)
    mark_started = no_rows()
    cancelled_of = rows(FencedLease)
    list_sessions = rows(SessionRow)
    hear = no_rows()
    list_remote = rows(RemoteRow)
    prune_remote = rows(str)
    observe = rows(Beats)
    end_session = rows(EndedSession)
    leases_of = rows(SessionLease)
    next_leases = rows(LeaseRange)
    orphans = rows(SessionLease)


def start(session: int, worker: str, topics: Sequence[str]) -> Operation[int]:
    """Begin a session."""

    def steps() -> Steps[int]:
        if (yield from sql.start(session=session, worker=worker, topics=list(topics))):
            fields = {"worker": worker, "session": session, "topics": topics}
            yield from lifecycle.post([LifecycleEvent("worker.started", fields)])
        return session

    return Operation("start_session", steps)


def beat(session: int, started: Sequence[tuple[int, int]]) -> Operation[list[tuple[int, int]]]:
    """Say that the session lives and which of its leases have started.

    Returns the leases whose jobs were asked to stop. A session that was called dead is told so.
    """

    def steps() -> Steps[list[tuple[int, int]]]:
        if not (yield from sql.beat(session=session)):
            msg = f"session {session} was called dead and its leases were taken back"
            raise LeaseLost(msg)
        if started:
            yield sql.mark_started([{"seq": seq, "epoch": epoch} for seq, epoch in started])
        return list((yield from sql.cancelled_of(session=session)))

    return Operation("beat", steps)


def cancelled(session: int) -> Operation[list[tuple[int, int]]]:
    """Read which of a session's leases are of jobs that were asked to stop."""

    def steps() -> Steps[list[tuple[int, int]]]:
        return list((yield from sql.cancelled_of(session=session)))

    return Operation("cancelled", steps, Mode.READ, autocommit=True)


def end(session: int) -> Operation[list[Settled]]:
    """End a session; what it still holds is released, uncounted."""

    def steps() -> Steps[Changed[list[Settled]]]:
        yield from _ended(session, None, "worker.stopped")
        held = yield from sql.leases_of(session=session)
        return (yield from _released(held, crashed=False))

    return Operation("end_session", steps, locks=True)


def list_sessions() -> Operation[list[Session]]:
    """Read every session that was not ended, oldest first."""

    def steps() -> Steps[list[Session]]:
        return [
            Session(
                session=row.id,
                worker=row.worker,
                topics=_topics.decode(row.topics),
                started_at=as_datetime(row.started_at),
                beat_at=as_datetime(row.beat_at),
                silent=as_timedelta(max(0, row.now - row.beat_at)),
                leases=row.leases,
            )
            for row in (yield from sql.list_sessions())
        ]

    return Operation("list_sessions", steps, Mode.SCAN, autocommit=True)


def hear(worker: str, topics: Sequence[str]) -> Operation[None]:
    """Note that a worker without a session asks for jobs of these topics."""

    def steps() -> Steps[None]:
        yield sql.hear(worker=worker, topics=list(topics))

    return Operation("hear", steps, autocommit=True)


def list_remote() -> Operation[list[RemoteWorker]]:
    """Read the workers without a session that were heard of late or hold a lease, oldest first."""

    def steps() -> Steps[list[RemoteWorker]]:
        return [
            RemoteWorker(
                worker=row.worker,
                topics=() if row.topics is None else _topics.decode(row.topics),
                started_at=as_datetime(row.started_at),
                beat_at=as_datetime(row.heard_at),
                silent=as_timedelta(max(0, row.now - row.heard_at)),
                leases=row.leases,
            )
            for row in (yield from sql.list_remote())
        ]

    return Operation("list_remote", steps, Mode.SCAN, autocommit=True)


def prune_remote() -> Operation[int]:
    """Forget workers without a session that are silent for long; return how many."""

    def steps() -> Steps[int]:
        return len((yield from sql.prune_remote(silence=REMEMBERED, limit=PRUNE_AT_ONCE)))

    return Operation("prune_remote", steps, autocommit=True)


def observe() -> Operation[list[tuple[int, int, int]]]:
    """Read each session's id, its number of beats, and the clock."""

    def steps() -> Steps[list[tuple[int, int, int]]]:
        return list((yield from sql.observe()))

    return Operation("observe", steps, Mode.READ, autocommit=True)


def probe_write(session: int) -> Operation[int]:
    """Begin a session and end it; return when. Where that fails, no session can beat either."""

    def steps() -> Steps[int]:
        yield sql.start(session=session, worker="", topics=[])
        yield sql.end_session(session=session, beats=None)
        return (yield from jobs.clock())

    return Operation("write", steps)


def bury_session(session: int, beats: int) -> Operation[list[Settled]]:
    """Take back the leases of a session that is silent since this beat.

    Jobs that had started count a crash; one that has taken down too many workers is buried.
    """

    def steps() -> Steps[Changed[list[Settled]]]:
        ended = yield from _ended(session, beats, "worker.died")
        if not ended:
            return Changed([], ())
        held = yield from sql.leases_of(session=session)
        return (yield from _released(held, crashed=True, worker=ended[0].worker))

    return Operation("bury_session", steps, locks=True)


def _ended(session: int, beats: int | None, type: str) -> Steps[list[EndedSession]]:
    """End a session, unless it has beaten since; return it if it was there."""
    found = yield from sql.end_session(session=session, beats=beats)
    fields = [
        {"worker": each.worker, "session": session, "topics": _topics.decode(each.topics)}
        for each in found
    ]
    yield from lifecycle.post([LifecycleEvent(type, each) for each in fields])
    return found


class Adopted(Struct, frozen=True):
    """What became of orphans, and the number of the last lease that was looked at."""

    settled: list[Settled] = []
    upto: int = 0  # 0: there are no more


def adopt_orphans(after: int = 0, *, limit: int = LEASES_AT_ONCE) -> Operation[Adopted]:
    """Take back leases whose session is gone, of the next so many behind a number."""

    def steps() -> Steps[Changed[Adopted]]:
        [found] = yield from sql.next_leases(after=after, limit=limit)
        if not found.number:
            return Changed(Adopted(), ())
        orphans = yield from sql.orphans(after=after, upto=found.upto)
        released = yield from _released(orphans, crashed=True)
        upto = found.upto or 0
        adopted = Adopted(released.value, upto if found.number == limit else 0)
        return Changed(adopted, released.topics, others=released.others)

    return Operation("adopt_orphans", steps, locks=True)


def _released(
    held: Sequence[SessionLease], *, crashed: bool, worker: str | None = None
) -> Steps[Changed[list[Settled]]]:
    """End the leases of sessions: all at once, since they may have limits."""
    outcomes: list[Outcome] = []
    for lease in held:
        crash = crashed and bool(lease.started)
        options = known_options(lease.options)
        dead = crash and lease.crashes + 1 >= options.max_crashes
        alive = "gone" if is_run(options) else "ready"
        outcomes.append(
            Outcome(
                seq=lease.seq,
                epoch=lease.epoch,
                goal="buried" if dead else alive,
                options=options,
                crashed=int(crash),
                rescued=crashed,
                kind=FailureKind.CRASH if crash else None,
                error="the worker died while it ran this job" if crash else None,
                worker=worker,
            )
        )
    return (yield from taken_back(outcomes))
