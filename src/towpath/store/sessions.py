"""Sessions: a worker's sign of life, and the rescue of what a dead worker held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from towpath.errors import LeaseLost, NotFound
from towpath.model.instants import as_datetime, as_timedelta
from towpath.model.job import FailureKind
from towpath.model.sessions import Beat, RemoteWorker, Session, UnnamedLeases, WorkerPlace
from towpath.operation import Changed, Mode, Operation, Steps
from towpath.statement import Statements, no_rows, rows
from towpath.store import jobs, lifecycle
from towpath.store.leases import Outcome, Settled, is_run, taken_back
from towpath.store.lifecycle import LifecycleEvent
from towpath.store.rows import known_options

LEASES_AT_ONCE: Final = 1_000
_topics: Final = msgspec.json.Decoder(tuple[str, ...])
_place: Final = msgspec.json.Decoder(WorkerPlace)

PRUNE_AT_ONCE: Final = 1_000
MOST_SESSION: Final = 2**63  # what a column can hold
REMEMBERED: Final = 3_600_000_000  # microseconds that a silent worker without a session is listed


class EndedSession(NamedTuple):
    """A session that a statement has ended."""

    worker: str
    topics: str


class FencedLease(NamedTuple):
    """A lease by its number and epoch."""

    seq: int
    epoch: int


class BeatRow(NamedTuple):
    """A session that has beaten, and when it was asked to stop."""

    id: int
    stop_at: int | None


class HeldJob(NamedTuple):
    """A job that a session holds."""

    session: int
    seq: int


class UnnamedRow(NamedTuple):
    """The leases of clients that have neither a session nor a name."""

    topic: str
    leases: int
    until: int | None


class SessionRow(NamedTuple):
    """A session, and how many leases it holds."""

    id: int
    worker: str
    topics: str
    about: str | None
    started_at: int
    beat_at: int
    stop_at: int | None
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
    beat = rows(BeatRow)
    ask_to_stop = rows(int)
    mark_started = no_rows()
    cancelled_of = rows(FencedLease)
    list_sessions = rows(SessionRow)
    held_by = rows(HeldJob)
    unnamed_leases = rows(UnnamedRow)
    hear = no_rows()
    list_remote = rows(RemoteRow)
    prune_remote = rows(str)
    observe = rows(Beats)
    end_session = rows(EndedSession)
    leases_of = rows(SessionLease)
    next_leases = rows(LeaseRange)
    orphans = rows(SessionLease)


def start(session: int, worker: str, topics: Sequence[str], place: WorkerPlace) -> Operation[int]:
    """Begin a session."""
    about = msgspec.json.encode(place).decode()

    def steps() -> Steps[int]:
        if (yield from sql.start(session=session, worker=worker, topics=list(topics), about=about)):
            fields = {"worker": worker, "session": str(session), "topics": topics}
            yield from lifecycle.post([LifecycleEvent("worker.started", fields)])
        return session

    return Operation("start_session", steps)


def beat(session: int, started: Sequence[tuple[int, int]]) -> Operation[Beat]:
    """Say that the session lives and which of its leases have started.

    A session that was called dead is told so.
    """

    def steps() -> Steps[Beat]:
        found = yield from sql.beat(session=session)
        if not found:
            msg = f"session {session} was called dead and its leases were taken back"
            raise LeaseLost(msg)
        if started:
            yield sql.mark_started([{"seq": seq, "epoch": epoch} for seq, epoch in started])
        cancelled = yield from sql.cancelled_of(session=session)
        return Beat(cancelled=list(cancelled), stopping=found[0].stop_at is not None)

    return Operation("beat", steps)


def ask_to_stop(session: int) -> Operation[None]:
    """Let the next beat of a session answer that its worker should stop."""

    def steps() -> Steps[None]:
        if session >= MOST_SESSION or not (yield from sql.ask_to_stop(session=session)):
            msg = f"there is no session {session}; its worker may have ended"
            raise NotFound(msg)

    return Operation("ask_to_stop", steps, autocommit=True)


def held(most: int) -> Operation[dict[int, list[int]]]:
    """Read the numbers of the first jobs that each session holds."""

    def steps() -> Steps[dict[int, list[int]]]:
        found: dict[int, list[int]] = {}
        for row in (yield from sql.held_by(most=most)):
            found.setdefault(row.session, []).append(row.seq)
        return found

    return Operation("held_by_sessions", steps, Mode.SCAN, autocommit=True)


def unnamed() -> Operation[list[UnnamedLeases]]:
    """Count the leases of clients that have neither a session nor a name."""

    def steps() -> Steps[list[UnnamedLeases]]:
        return [
            UnnamedLeases(
                topic=row.topic,
                leases=row.leases,
                oldest_until=None if row.until is None else as_datetime(row.until),
            )
            for row in (yield from sql.unnamed_leases())
        ]

    return Operation("unnamed_leases", steps, Mode.SCAN, autocommit=True)


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
                stopping=row.stop_at is not None,
                place=_place_from(row.about),
            )
            for row in (yield from sql.list_sessions())
        ]

    return Operation("list_sessions", steps, Mode.SCAN, autocommit=True)


def _place_from(about: str | None) -> WorkerPlace:
    try:
        return WorkerPlace() if about is None else _place.decode(about)
    except msgspec.DecodeError:  # of a newer version
        return WorkerPlace()


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
        yield sql.start(session=session, worker="", topics=[], about=None)
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
        {"worker": each.worker, "session": str(session), "topics": _topics.decode(each.topics)}
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
