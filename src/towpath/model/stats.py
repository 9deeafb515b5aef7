"""Statistics: topics and the whole database in numbers."""

from datetime import datetime

from msgspec import Struct


class TopicStats(Struct, frozen=True, kw_only=True):
    """One topic in numbers."""

    topic: str
    ready: int
    delayed: int
    blocked: int
    reserved: int
    buried: int
    exact: bool = True  # if not, there may be more ready, delayed, blocked and buried ones
    oldest_at: datetime | None  # when its oldest ready job was due, by the first of each priority
    paused: bool
    paused_until: datetime | None = None  # None: it is not paused, or until it is resumed
    completed: int  # since the tables were made
    failed_total: int  # failed for good since the tables were made; kicked and deleted ones count
    avg_duration_ms: float | None
    retries: int  # failed runs that were to be tried again, since the tables were made
    crashes: int  # deaths of workers while they ran a job, since the tables were made

    @property
    def failed(self) -> int:
        """Jobs whose status is failed: the buried ones."""
        return self.buried


class Histogram(Struct, frozen=True, kw_only=True):
    """How long completed jobs of a topic ran, or waited for their first run, in seconds."""

    topic: str
    kind: str  # run, or wait
    up_to: dict[float, int]  # how many took at most so long
    count: int
    total: float


class Stats(Struct, frozen=True, kw_only=True):
    """The whole database in numbers."""

    at: datetime  # when it was counted
    topics: int
    ready: int
    delayed: int
    blocked: int
    reserved: int
    buried: int
    cancelled: int
    exact: bool = True  # if not, there may be more of each state
    completed: int  # since the tables were made
    failed_total: int  # failed for good since the tables were made; kicked and deleted ones count
    success_rate: float | None  # completed / (completed + failed_total)
    avg_duration_ms: float | None

    @property
    def pending(self) -> int:
        """Jobs that wait."""
        return self.ready + self.delayed + self.blocked

    @property
    def processing(self) -> int:
        """Jobs that are leased."""
        return self.reserved

    @property
    def failed(self) -> int:
        """Jobs whose status is failed: the buried ones."""
        return self.buried


class Minute(Struct, frozen=True, kw_only=True):
    """One minute of outcomes; in a history, one step."""

    at: str
    completed: int
    failed: int
    avg_duration_ms: float | None
    ready: int | None = None  # at its end; None if that was not noted
    oldest_at: datetime | None = None  # when the oldest of these was due


class History(Struct, frozen=True, kw_only=True):
    """The outcomes of the last steps, each of the same length, without gaps."""

    start: datetime  # of the first step
    step: int  # seconds
    points: list[Minute]  # of all topics, or of the one that was asked for
    topics: dict[str, list[Minute]]  # by topic, if that was asked for


class Rate(Struct, frozen=True, kw_only=True):
    """How many jobs of a topic end in a minute, on average of the last five."""

    completed: float = 0
    failed: float = 0
    ready: int | None = None  # how many were ready at the first count of that time
    over: float = 0  # seconds since that count
