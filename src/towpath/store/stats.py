"""Statistics: what waits and what is done."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

from towpath.errors import NotFound
from towpath.model.instants import as_datetime
from towpath.model.stats import Histogram, Minute, Stats, TopicStats
from towpath.operation import Mode, Operation, Steps
from towpath.statement import BUCKETS, Statements, no_rows, rows

MOST_MINUTES: Final = 32 * 24 * 60
"""How far back outcomes are known by the minute; older ones are only summed up."""

SUM_UP_AT_ONCE: Final = 1_000


class TopicCounts(NamedTuple):
    """The jobs of one topic, counted."""

    topic: str
    ready: int
    delayed: int
    blocked: int
    reserved: int
    buried: int
    paused: bool | int
    completed: int
    failed: int
    duration: int
    retried: int
    crashed: int


class OldestReady(NamedTuple):
    """When the oldest ready job of a topic was due."""

    topic: str
    run_at: int


class MinuteRow(NamedTuple):
    """One minute of outcomes."""

    minute: int
    completed: int
    failed: int
    duration: int


class BucketRow(NamedTuple):
    """Completed jobs of a topic whose times are in the same buckets."""

    topic: str
    run_bucket: int
    wait_bucket: int
    completed: int
    duration: int
    waited: int


class sql(Statements):
    """The statements of stats.sql."""

    by_topic = rows(TopicCounts)
    oldest_ready = rows(OldestReady)
    count_cancelled = rows(int)
    throughput = rows(MinuteRow)
    histograms = rows(BucketRow)
    forget_histograms = no_rows()
    roll_up = no_rows()
    sum_up = rows(int)


def by_topic(topic: str | None = None) -> Operation[list[TopicStats]]:
    """Count each topic's jobs, or one topic's."""

    def steps() -> Steps[list[TopicStats]]:
        counted = yield from sql.by_topic(topic=topic)
        if topic is not None and not counted:
            msg = f"there is no topic {topic!r}"
            raise NotFound(msg)
        oldest = {row.topic: row.run_at for row in (yield from sql.oldest_ready(topic=topic))}
        return [_topic_stats(row, oldest.get(row.topic)) for row in counted]

    return Operation("stats_by_topic", steps, Mode.SCAN, autocommit=True)


def overall() -> Operation[Stats]:
    """Count every job."""

    def steps() -> Steps[Stats]:
        counted = yield from sql.by_topic(topic=None)
        [cancelled] = yield from sql.count_cancelled()
        completed = sum(int(row.completed) for row in counted)
        failed = sum(int(row.failed) for row in counted)
        duration = sum(int(row.duration) for row in counted)
        ended = completed + failed
        return Stats(
            topics=len(counted),
            ready=sum(row.ready for row in counted),
            delayed=sum(row.delayed for row in counted),
            blocked=sum(row.blocked for row in counted),
            reserved=sum(row.reserved for row in counted),
            buried=sum(row.buried for row in counted),
            cancelled=cancelled,
            completed=completed,
            failed_total=failed,
            success_rate=completed / ended if ended else None,
            avg_duration_ms=_milliseconds(duration, completed),
        )

    return Operation("stats", steps, Mode.SCAN, autocommit=True)


def throughput(topic: str | None, minutes: int) -> Operation[list[Minute]]:
    """Count the outcomes of each of the last minutes in which there were any."""

    def steps() -> Steps[list[Minute]]:
        return [
            Minute(
                at=as_datetime(int(row.minute) * 60_000_000).isoformat(),
                completed=int(row.completed),
                failed=int(row.failed),
                avg_duration_ms=_milliseconds(int(row.duration), int(row.completed)),
            )
            for row in (yield from sql.throughput(topic=topic, minutes=minutes))
        ]

    return Operation("throughput", steps, Mode.SCAN, autocommit=True)


def histograms() -> Operation[list[Histogram]]:
    """Read the run times and waiting times of each topic's completed jobs."""

    def steps() -> Steps[list[Histogram]]:
        read: list[Histogram] = []
        for topic, group in groupby((yield from sql.histograms()), lambda row: row.topic):
            rows = [*group]
            ran = [(row.run_bucket, int(row.completed), int(row.duration)) for row in rows]
            waits = [(row.wait_bucket, int(row.completed), int(row.waited)) for row in rows]
            read += [_histogram(topic, "run", ran), _histogram(topic, "wait", waits)]
        return read

    return Operation("histograms", steps, Mode.SCAN, autocommit=True)


def _histogram(topic: str, kind: str, times: Sequence[tuple[int, int, int]]) -> Histogram:
    """Sum up times by their buckets, each with a count and a sum; bucket 0 counts for nothing."""
    return Histogram(
        topic=topic,
        kind=kind,
        up_to={
            most / 1e6: sum(count for bucket, count, _ in times if 0 < bucket <= most)
            for most in BUCKETS
        },
        count=sum(count for bucket, count, _ in times if bucket),
        total=sum(total for _, _, total in times) / 1e6,
    )


def roll_up() -> Operation[None]:
    """Fold the tally of past minutes into one row a minute."""

    def steps() -> Steps[None]:
        yield sql.roll_up()

    return Operation("roll_up", steps, autocommit=True)


def sum_up() -> Operation[int]:
    """Fold a batch of minutes that are too old to be asked for into their topics' sums.

    Those of a topic that is gone are forgotten. Returns how many.
    """

    def steps() -> Steps[int]:
        return len((yield from sql.sum_up(kept=MOST_MINUTES, limit=SUM_UP_AT_ONCE)))

    return Operation("sum_up", steps, autocommit=True)


def forget_histograms() -> Operation[None]:
    """Delete the histograms of topics that are gone."""

    def steps() -> Steps[None]:
        yield sql.forget_histograms()

    return Operation("forget_histograms", steps, autocommit=True)


def _topic_stats(row: TopicCounts, oldest: int | None) -> TopicStats:
    return TopicStats(
        topic=row.topic,
        ready=row.ready,
        delayed=row.delayed,
        blocked=row.blocked,
        reserved=row.reserved,
        buried=row.buried,
        oldest_at=None if oldest is None else as_datetime(oldest),
        paused=bool(row.paused),
        completed=int(row.completed),
        failed_total=int(row.failed),
        avg_duration_ms=_milliseconds(int(row.duration), int(row.completed)),
        retries=int(row.retried),
        crashes=int(row.crashed),
    )


def _milliseconds(total: int, count: int) -> float | None:
    return total / count / 1_000 if count else None
