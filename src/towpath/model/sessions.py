"""Workers as they are listed: with a session, or without one."""

from datetime import datetime, timedelta

from msgspec import Struct


class WorkerPlace(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a worker runs, as it says itself."""

    host: str | None = None
    pid: int | None = None
    concurrency: int | None = None  # jobs that it runs at once
    version: str | None = None  # of Towpath


class Beat(Struct, frozen=True, kw_only=True):
    """The answer to a beat."""

    cancelled: list[tuple[int, int]]  # number and epoch of the jobs that were asked to stop
    stopping: bool  # the worker itself was asked to stop


class UnnamedLeases(Struct, frozen=True, kw_only=True):
    """The leases of clients that have neither a session nor a name, in one topic."""

    topic: str
    leases: int
    oldest_until: datetime | None  # when the first of them ends


class Session(Struct, frozen=True, kw_only=True):
    """A worker's sign of life, as it was when it was read."""

    session: int
    worker: str
    topics: tuple[str, ...]  # that it serves; none if it did not say
    started_at: datetime
    beat_at: datetime
    silent: timedelta  # since its last beat
    leases: int
    stopping: bool = False  # it was asked to stop
    place: WorkerPlace = WorkerPlace()


class RemoteWorker(Struct, frozen=True, kw_only=True):
    """A worker that reserves without a session, as it was when it was read."""

    worker: str
    topics: tuple[str, ...]  # that it last asked for
    started_at: datetime  # when it was first heard
    beat_at: datetime  # when it last asked for jobs, got one or touched one
    silent: timedelta  # since then
    leases: int
    stopping: bool = False  # cannot be asked to stop
    place: WorkerPlace = WorkerPlace()
    session: None = None
