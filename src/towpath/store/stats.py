"""Statistics: what waits and what is done."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

from towpath.errors import NotFound
from towpath.model.instants import FOREVER, as_datetime
from towpath.model.stats import Histogram, History, Minute, Rate, Stats, TopicStats
from towpath.operation import Mode, Operation, Steps
from towpath.statement import BUCKETS, Statements, no_rows, rows

KEPT_MINUTES: Final = 2 * 24 * 60
"""How far back outcomes are known by the minute; then, by the hour."""

MOST_MINUTES: Final = 32 * 24 * 60
"""How far back outcomes are known by the hour; then, by the day."""

KEPT_DAYS: Final = 400 * 24 * 60
"""How far back outcomes are known by the day; older ones are only summed up."""

MOST_STEPS: Final = 1_500
FOLD_AT_ONCE: Final = 1_000
RATE_OVER: Final = 5  # minutes
ALL: Final = ""  # the topic that stands for all
NO_BOUND: Final = 2**62
MINUTE: Final = 60_000_000  # microseconds


class TopicCounts(NamedTuple):
    """The jobs of one topic, counted."""

    topic: str
    ready: int
    delayed: int
    blocked: int
    reserved: int
    buried: int
    paused: bool | int
    paused_until: int
    completed: int
    failed: int
    duration: int
    retried: int
    crashed: int


class OldestReady(NamedTuple):
    """When the oldest ready job of a topic was due."""

    topic: str
    run_at: int


class StepRow(NamedTuple):
    """The outcomes of a topic in one step."""

    minute: int  # in which the step begins
    topic: str
    completed: int
    failed: int
    duration: int


class DepthRow(NamedTuple):
    """How many jobs of a topic were ready in a minute."""

    minute: int
    topic: str
    ready: int
    oldest: int | None


class Depth(NamedTuple):
    """How many jobs of a topic are ready, and when the oldest was due."""

    topic: str
    ready: int
    oldest: int | None


class ReadyRow(NamedTuple):
    """How many jobs of a topic are ready."""

    topic: str
    ready: int


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
    count_topics = rows(int)
    outcomes = rows(StepRow)
    depths = rows(DepthRow)
    depths_in = rows(DepthRow)
    noted_depth = rows(int)
    count_ready = rows(ReadyRow)
    note_depths = no_rows()
    forget_depths = rows(int)
    now = rows(int)
    histograms = rows(BucketRow)
    forget_histograms = no_rows()
    roll_up = no_rows()
    fold_minutes = rows(int)
    fold_hours = rows(int)
    sum_up = rows(int)


def by_topic(topic: str | None = None, most: int = NO_BOUND) -> Operation[list[TopicStats]]:
    """Count each topic's jobs, or one topic's; each table up to `most` rows in all."""

    def steps() -> Steps[list[TopicStats]]:
        counted, bound = yield from _counted(topic, most)
        if topic is not None and not counted:
            msg = f"there is no topic {topic!r}"
            raise NotFound(msg)
        oldest = {row.topic: row.run_at for row in (yield from sql.oldest_ready(topic=topic))}
        return [_topic_stats(row, oldest.get(row.topic), bound) for row in counted]

    return Operation("stats_by_topic", steps, Mode.SCAN, autocommit=True)


def overall(most: int = NO_BOUND) -> Operation[Stats]:
    """Count every job; each table up to `most` rows."""

    def steps() -> Steps[Stats]:
        counted, bound = yield from _counted(None, most)
        [cancelled] = yield from sql.count_cancelled(most=most)
        [now] = yield from sql.now()
        completed = sum(int(row.completed) for row in counted)
        failed = sum(int(row.failed) for row in counted)
        duration = sum(int(row.duration) for row in counted)
        ended = completed + failed
        return Stats(
            at=as_datetime(now),
            topics=len(counted),
            ready=sum(row.ready for row in counted),
            delayed=sum(row.delayed for row in counted),
            blocked=sum(row.blocked for row in counted),
            reserved=sum(row.reserved for row in counted),
            buried=sum(row.buried for row in counted),
            cancelled=cancelled,
            exact=cancelled < most and all(_is_exact(row, bound) for row in counted),
            completed=completed,
            failed_total=failed,
            success_rate=completed / ended if ended else None,
            avg_duration_ms=_milliseconds(duration, completed),
        )

    return Operation("stats", steps, Mode.SCAN, autocommit=True)


def _counted(topic: str | None, most: int) -> Steps[tuple[list[TopicCounts], int]]:
    """Count each topic's jobs, and say up to how many rows of each table."""
    bound = most
    if topic is None and most < NO_BOUND:
        [topics] = yield from sql.count_topics()
        bound = max(1, most // max(1, topics))
    counted = yield from sql.by_topic(topic=topic, most=bound, most_leases=most)
    return counted, bound


def _is_exact(row: TopicCounts, bound: int) -> bool:
    return max(row.ready, row.delayed, row.blocked, row.buried) < bound


def throughput(topic: str | None, minutes: int) -> Operation[list[Minute]]:
    """Count the outcomes of each of the last minutes in which there were any.

    Those of more than two days ago are told by the hour.
    """

    def steps() -> Steps[list[Minute]]:
        [now] = yield from sql.now()
        first = now // MINUTE - minutes
        found = yield from sql.outcomes(topic=topic, first=first, width=1, by_topic=False)
        return [_point(row, None) for row in found]

    return Operation("throughput", steps, Mode.SCAN, autocommit=True)


def history(topic: str | None, minutes: int, width: int, *, by_topic: bool) -> Operation[History]:
    """Count the outcomes of each of the last steps of `width` minutes, and what was ready in it."""

    def steps() -> Steps[History]:
        [now] = yield from sql.now()
        last = now // MINUTE // width * width
        first = last - (-(-minutes // width) - 1) * width
        asked = {"topic": topic, "first": first, "width": width, "by_topic": by_topic}
        outcomes = {(row.topic, row.minute): row for row in (yield from sql.outcomes(**asked))}
        depths = yield from _depths(topic, first, width, by_topic=by_topic)
        every = range(first, last + 1, width)

        def line(of: str, depth_of: str) -> list[Minute]:
            points: list[Minute] = []
            for minute in every:
                row = outcomes.get((of, minute)) or StepRow(minute, of, 0, 0, 0)
                depth = depths.get((depth_of, minute))
                if depth is None and (ALL, minute) in depths:  # counted, and it had none
                    depth = DepthRow(minute, depth_of, 0, None)
                points.append(_point(row, depth))
            return points

        names = sorted({of for of, _ in (*outcomes, *depths) if of != ALL}) if by_topic else []
        return History(
            start=as_datetime(first * MINUTE),
            step=width * 60,
            points=[] if by_topic else line(ALL, topic or ALL),
            topics={name: line(name, name) for name in names},
        )

    return Operation("history", steps, Mode.SCAN, autocommit=True)


def _depths(
    topic: str | None, first: int, width: int, *, by_topic: bool
) -> Steps[dict[tuple[str, int], DepthRow]]:
    """Read what was last noted in each step, by topic and the minute in which the step begins."""
    last = {row.minute // width * width: row for row in (yield from sql.depths(first=first))}
    depths = {(ALL, step): row for step, row in last.items()}
    if by_topic or topic is not None:
        noted = [{"minute": row.minute} for row in last.values()]
        for row in (yield from sql.depths_in(noted, topic=None if by_topic else topic)):
            depths[row.topic, row.minute // width * width] = row
    return depths


def rates() -> Operation[dict[str, Rate]]:
    """Count the outcomes of each topic per minute, over the last minutes."""

    def steps() -> Steps[dict[str, Rate]]:
        [now] = yield from sql.now()
        asked = {"topic": None, "first": now // MINUTE - RATE_OVER, "width": 1, "by_topic": True}
        ended: dict[str, tuple[int, int]] = {}
        for row in (yield from sql.outcomes(**asked)):
            completed, failed = ended.get(row.topic, (0, 0))
            ended[row.topic] = completed + int(row.completed), failed + int(row.failed)
        noted = yield from sql.depths(first=asked["first"])
        then = [{"minute": row.minute} for row in noted[:1]]
        ready = {
            row.topic: (row.minute, row.ready)
            for row in (yield from sql.depths_in(then, topic=None))
        }
        return {
            topic: Rate(
                completed=ended.get(topic, (0, 0))[0] / RATE_OVER,
                failed=ended.get(topic, (0, 0))[1] / RATE_OVER,
                ready=ready[topic][1] if topic in ready else None,
                over=now / 1e6 - ready[topic][0] * 60 if topic in ready else 0,
            )
            for topic in ended.keys() | ready.keys()
            if topic != ALL
        }

    return Operation("rates", steps, Mode.SCAN, autocommit=True)


def depths() -> Operation[list[Depth]]:
    """Count the ready jobs of each topic; nothing if that was noted in this minute."""

    def steps() -> Steps[list[Depth]]:
        if (yield from sql.noted_depth()):
            return []
        ready = [row for row in (yield from sql.count_ready()) if row.ready]
        oldest = {row.topic: row.run_at for row in (yield from sql.oldest_ready(topic=None))}
        total = sum(row.ready for row in ready)
        return [
            *(Depth(row.topic, row.ready, oldest.get(row.topic)) for row in ready),
            Depth(ALL, total, min(oldest.values(), default=None)),
        ]

    return Operation("count_depths", steps, Mode.SCAN, autocommit=True)


def note_depths(depths: Sequence[Depth]) -> Operation[None]:
    """Note how many jobs of each topic are ready in this minute; the first process does it."""

    def steps() -> Steps[None]:
        yield sql.note_depths([each._asdict() for each in depths])

    return Operation("note_depths", steps, autocommit=True)


def forget_depths() -> Operation[int]:
    """Delete a batch of depths that are too old to be asked for; return how many."""

    def steps() -> Steps[int]:
        return len((yield from sql.forget_depths(kept=KEPT_MINUTES, limit=FOLD_AT_ONCE)))

    return Operation("forget_depths", steps, autocommit=True)


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


def fold() -> Operation[int]:
    """Fold a batch of old minutes into hours, of hours into days, and of days into sums.

    Days of a topic that is gone are forgotten. Returns how many rows were folded.
    """

    def steps() -> Steps[int]:
        folded = yield from sql.fold_minutes(kept=KEPT_MINUTES, limit=FOLD_AT_ONCE)
        folded += yield from sql.fold_hours(kept=MOST_MINUTES, limit=FOLD_AT_ONCE)
        folded += yield from sql.sum_up(kept=KEPT_DAYS, limit=FOLD_AT_ONCE)
        return len(folded)

    return Operation("fold", steps, autocommit=True)


def forget_histograms() -> Operation[None]:
    """Delete the histograms of topics that are gone."""

    def steps() -> Steps[None]:
        yield sql.forget_histograms()

    return Operation("forget_histograms", steps, autocommit=True)


def _topic_stats(row: TopicCounts, oldest: int | None, bound: int) -> TopicStats:
    is_paused = bool(row.paused)
    return TopicStats(
        topic=row.topic,
        ready=row.ready,
        delayed=row.delayed,
        blocked=row.blocked,
        reserved=row.reserved,
        buried=row.buried,
        exact=_is_exact(row, bound),
        oldest_at=None if oldest is None else as_datetime(oldest),
        paused=is_paused,
        paused_until=(
            as_datetime(row.paused_until) if is_paused and row.paused_until < FOREVER else None
        ),
        completed=int(row.completed),
        failed_total=int(row.failed),
        avg_duration_ms=_milliseconds(int(row.duration), int(row.completed)),
        retries=int(row.retried),
        crashes=int(row.crashed),
    )


def _point(row: StepRow, depth: DepthRow | None) -> Minute:
    oldest = depth.oldest if depth else None
    return Minute(
        at=as_datetime(int(row.minute) * MINUTE).isoformat(),
        completed=int(row.completed),
        failed=int(row.failed),
        avg_duration_ms=_milliseconds(int(row.duration), int(row.completed)),
        ready=depth.ready if depth else None,
        oldest_at=None if oldest is None else as_datetime(oldest),
    )


def _milliseconds(total: int, count: int) -> float | None:
    return total / count / 1_000 if count else None
