"""Workers as they are listed: with a session, or without one."""

from datetime import datetime, timedelta

from msgspec import Struct


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
