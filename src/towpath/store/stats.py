"""Statistics: what waits and what is done."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import Struct

from towpath.errors import NotFound
from towpath.model.instants import as_datetime
from towpath.operation import Mode, Operation, Row, Steps
from towpath.statement import load

sql: Final = load(__name__)

MOST_MINUTES: Final = 32 * 24 * 60
"""How far back outcomes are known by the minute; older ones are only summed up."""

SUM_UP_AT_ONCE: Final = 1_000


class TopicStats(Struct, frozen=True, kw_only=True):
    """One topic in numbers."""

    topic: str
    ready: int
    delayed: int
    blocked: int
    reserved: int
    buried: int
    oldest_at: datetime | None  # when its oldest ready job was due, by the first of each priority
    paused: bool
    completed: int  # since the tables were made
    failed: int  # for good, since the tables were made
    avg_duration_ms: float | None


class Stats(Struct, frozen=True, kw_only=True):
    """The whole database in numbers."""

    topics: int
    ready: int
    delayed: int
    blocked: int
    reserved: int
    buried: int
    cancelled: int
    completed: int
    failed: int
    success_rate: float | None  # of all that ended well or for good
    avg_duration_ms: float | None

    @property
    def pending(self) -> int:
        """Jobs that wait."""
        return self.ready + self.delayed + self.blocked

    @property
    def processing(self) -> int:
        """Jobs that somebody holds."""
        return self.reserved


class Minute(Struct, frozen=True, kw_only=True):
    """One minute of outcomes."""

    at: str
    completed: int
    failed: int
    avg_duration_ms: float | None


def by_topic(topic: str | None = None) -> Operation[list[TopicStats]]:
    """Count each topic's jobs, or one topic's."""

    def steps() -> Steps[list[TopicStats]]:
        rows = yield sql["by_topic"](topic=topic)
        if topic is not None and not rows:
            msg = f"there is no topic {topic!r}"
            raise NotFound(msg)
        oldest: dict[str, int] = {
            row[0]: row[1] for row in (yield sql["oldest_ready"](topic=topic))
        }
        return [_topic_stats(row, oldest.get(row[0])) for row in rows]

    return Operation("stats_by_topic", steps, Mode.SCAN, autocommit=True)


def overall() -> Operation[Stats]:
    """Count every job."""

    def steps() -> Steps[Stats]:
        rows = yield sql["by_topic"](topic=None)
        [[cancelled]] = yield sql["count_cancelled"]()
        ready, delayed, blocked, reserved, buried, _, completed, failed, duration = (
            sum(int(row[column]) for row in rows) for column in range(1, 10)
        )
        ended = completed + failed
        return Stats(
            topics=len(rows),
            ready=ready,
            delayed=delayed,
            blocked=blocked,
            reserved=reserved,
            buried=buried,
            cancelled=cancelled,
            completed=completed,
            failed=failed,
            success_rate=completed / ended if ended else None,
            avg_duration_ms=_milliseconds(duration, completed),
        )

    return Operation("stats", steps, Mode.SCAN, autocommit=True)


def throughput(topic: str | None, minutes: int) -> Operation[list[Minute]]:
    """Count the outcomes of each of the last minutes in which there were any."""

    def steps() -> Steps[list[Minute]]:
        rows = yield sql["throughput"](topic=topic, minutes=minutes)
        return [
            Minute(
                at=as_datetime(int(minute) * 60_000_000).isoformat(),
                completed=int(completed),
                failed=int(failed),
                avg_duration_ms=_milliseconds(int(duration), int(completed)),
            )
            for minute, completed, failed, duration in rows
        ]

    return Operation("throughput", steps, Mode.SCAN, autocommit=True)


def roll_up() -> Operation[None]:
    """Fold the tally of past minutes into one row a minute."""

    def steps() -> Steps[None]:
        yield sql["roll_up"]()

    return Operation("roll_up", steps, autocommit=True)


def sum_up() -> Operation[int]:
    """Fold a batch of minutes that are too old to be asked for into their topics' sums.

    Those of a topic that is gone are forgotten. Returns how many.
    """

    def steps() -> Steps[int]:
        return len((yield sql["sum_up"](kept=MOST_MINUTES, limit=SUM_UP_AT_ONCE)))

    return Operation("sum_up", steps, autocommit=True)


def _topic_stats(row: Row, oldest: int | None) -> TopicStats:
    name, ready, delayed, blocked, reserved, buried, paused, completed, failed, duration = row
    return TopicStats(
        topic=name,
        ready=ready,
        delayed=delayed,
        blocked=blocked,
        reserved=reserved,
        buried=buried,
        oldest_at=None if oldest is None else as_datetime(oldest),
        paused=bool(paused),
        completed=int(completed),
        failed=int(failed),
        avg_duration_ms=_milliseconds(int(duration), int(completed)),
    )


def _milliseconds(total: int, count: int) -> float | None:
    return total / count / 1_000 if count else None
