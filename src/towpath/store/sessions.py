"""Sessions: a worker's sign of life, and the rescue of what a dead one held."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from towpath.errors import LeaseLost
from towpath.model.instants import as_datetime, as_timedelta, microseconds
from towpath.model.job import FailureKind
from towpath.operation import Mode, Operation, Row, Steps
from towpath.statement import load
from towpath.store.leases import Outcome, Settled, is_run, settle, topics_back
from towpath.store.retention import sql as upkeep
from towpath.store.rows import known_options

sql: Final = load(__name__)

LEASES_AT_ONCE: Final = 1_000
_topics: Final = msgspec.json.Decoder(tuple[str, ...])

PRUNE_AT_ONCE: Final = 1_000
REMEMBERED: Final = 3_600_000_000  # microseconds that a silent worker without a session is listed


class Session(Struct, frozen=True, kw_only=True):
    """A worker's sign of life, as it was when it was read."""

    session: int
    worker: str
    topics: tuple[str, ...]  # that it serves; none if it did not say
    started_at: datetime
    beat_at: datetime
    silent: timedelta  # since its last beat
    leases: int


class RemoteWorker(Struct, frozen=True, kw_only=True):
    """A worker that reserves without a session, as it was when it was read."""

    worker: str
    topics: tuple[str, ...]  # that it last asked for
    started_at: datetime  # when it was first heard
    beat_at: datetime  # when it last asked for jobs, got one or touched one
    silent: timedelta  # since then
    leases: int
    session: None = None


def start(session: int, worker: str, topics: Sequence[str]) -> Operation[int]:
    """Begin a session."""

    def steps() -> Steps[int]:
        yield sql["start"](session=session, worker=worker, topics=list(topics))
        return session

    return Operation("start_session", steps, autocommit=True)


def beat(session: int, started: Sequence[tuple[int, int]]) -> Operation[list[tuple[int, int]]]:
    """Say that the session lives and which of its leases have started.

    Returns the leases whose jobs were asked to stop. A session that was called dead is told so.
    """

    def steps() -> Steps[list[tuple[int, int]]]:
        if not (yield sql["beat"](session=session)):
            msg = f"session {session} was called dead and its leases were taken back"
            raise LeaseLost(msg)
        if started:
            yield sql["mark_started"]([{"seq": seq, "epoch": epoch} for seq, epoch in started])
        return [(seq, epoch) for seq, epoch in (yield sql["cancelled_of"](session=session))]

    return Operation("beat", steps)


def cancelled(session: int) -> Operation[list[tuple[int, int]]]:
    """Read which of a session's leases are of jobs that were asked to stop."""

    def steps() -> Steps[list[tuple[int, int]]]:
        return [(seq, epoch) for seq, epoch in (yield sql["cancelled_of"](session=session))]

    return Operation("cancelled", steps, Mode.READ, autocommit=True)


def end(session: int) -> Operation[list[Settled]]:
    """End a session; what it still holds is released, uncounted."""

    def steps() -> Steps[list[Settled]]:
        yield sql["end_session"](session=session, beats=None)
        return (yield from _released([session], crashed=False))

    return Operation("end_session", steps, locks=True, wakes=topics_back)


def list_sessions() -> Operation[list[Session]]:
    """Read every session that was not ended, oldest first."""

    def steps() -> Steps[list[Session]]:
        return [
            Session(
                session=id,
                worker=worker,
                topics=_topics.decode(topics),
                started_at=as_datetime(started_at),
                beat_at=as_datetime(beat_at),
                silent=as_timedelta(max(0, now - beat_at)),
                leases=leases,
            )
            for id, worker, topics, started_at, beat_at, now, leases in (
                yield sql["list_sessions"]()
            )
        ]

    return Operation("list_sessions", steps, Mode.SCAN, autocommit=True)


def hear(worker: str, topics: Sequence[str]) -> Operation[None]:
    """Note that a worker without a session asks for jobs of these topics."""

    def steps() -> Steps[None]:
        yield sql["hear"](worker=worker, topics=list(topics))

    return Operation("hear", steps, autocommit=True)


def list_remote() -> Operation[list[RemoteWorker]]:
    """Read the workers without a session that were heard of late or hold a lease, oldest first."""

    def steps() -> Steps[list[RemoteWorker]]:
        return [
            RemoteWorker(
                worker=worker,
                topics=() if topics is None else _topics.decode(topics),
                started_at=as_datetime(started_at),
                beat_at=as_datetime(heard_at),
                silent=as_timedelta(max(0, now - heard_at)),
                leases=leases,
            )
            for worker, topics, started_at, heard_at, now, leases in (yield sql["list_remote"]())
        ]

    return Operation("list_remote", steps, Mode.SCAN, autocommit=True)


def prune_remote() -> Operation[int]:
    """Forget workers without a session that are silent for long; return how many."""

    def steps() -> Steps[int]:
        return len((yield sql["prune_remote"](silence=REMEMBERED, limit=PRUNE_AT_ONCE)))

    return Operation("prune_remote", steps, autocommit=True)


def observe() -> Operation[list[tuple[int, int, int]]]:
    """Read each session's id, its number of beats, and the clock."""

    def steps() -> Steps[list[tuple[int, int, int]]]:
        return [(id, beats, now) for id, beats, now in (yield sql["observe"]())]

    return Operation("observe", steps, Mode.READ, autocommit=True)


def probe_write(session: int) -> Operation[int]:
    """Begin a session and end it; return when. Where that fails, none can show that it lives."""

    def steps() -> Steps[int]:
        yield sql["start"](session=session, worker="", topics=[])
        yield sql["end_session"](session=session, beats=None)
        [[now]] = yield upkeep["clock"]()
        return int(now)

    return Operation("write", steps)


def bury_session(session: int, beats: int) -> Operation[list[Settled]]:
    """Take back the leases of a session that is silent since this beat.

    Jobs that had started count a crash; one that has taken down too many workers is buried.
    """

    def steps() -> Steps[list[Settled]]:
        if not (yield sql["end_session"](session=session, beats=beats)):
            return []
        return (yield from _released([session], crashed=True))

    return Operation("bury_session", steps, locks=True, wakes=topics_back)


class Adopted(Struct, frozen=True):
    """What became of orphans, and the number of the last lease that was looked at."""

    settled: list[Settled] = []
    upto: int = 0  # 0: there are no more


def adopt_orphans(after: int = 0, *, limit: int = LEASES_AT_ONCE) -> Operation[Adopted]:
    """Take back leases whose session is gone, of the next so many behind a number."""

    def steps() -> Steps[Adopted]:
        [[number, upto]] = yield sql["next_leases"](after=after, limit=limit)
        if not number:
            return Adopted()
        rows = yield sql["orphans"](after=after, upto=upto)
        settled = yield from _taken_back(rows, crashed=True)
        return Adopted(settled, upto if number == limit else 0)

    return Operation(
        "adopt_orphans", steps, locks=True, wakes=lambda adopted: topics_back(adopted.settled)
    )


def _released(sessions: Sequence[int], *, crashed: bool) -> Steps[list[Settled]]:
    """End what sessions hold: all at once, for it may hold limits."""
    rows: list[Row] = []
    for session in sessions:
        rows += yield sql["leases_of"](session=session)
    return (yield from _taken_back(rows, crashed=crashed))


def _taken_back(rows: Sequence[Row], *, crashed: bool) -> Steps[list[Settled]]:
    outcomes: list[Outcome] = []
    for seq, epoch, _, started, crashes, options in rows:
        crash = crashed and bool(started)
        known = known_options(options)
        dead = crash and crashes + 1 >= known.max_crashes
        alive = "gone" if is_run(known) else "ready"
        outcomes.append(
            Outcome(
                seq=seq,
                epoch=epoch,
                goal="buried" if dead else alive,
                crashed=int(crash),
                retention=microseconds(known.retention),
                limited=known.limit is not None,
                kind=FailureKind.CRASH if crash else None,
                error="the worker died while it ran this job" if crash else None,
            )
        )
    answers = (yield from settle(outcomes).start()) if outcomes else []
    return [answer for answer in answers if isinstance(answer, Settled)]
