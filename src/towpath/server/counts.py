"""Counts over HTTP: statistics, throughput, failures by error, run times, topics.

No count reads more than a bound of rows; a larger one says that it is not exact.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from msgspec import Meta, field

from towpath.app.checks import STEPS
from towpath.app.sessions import is_live
from towpath.model.limits import LimitInUse
from towpath.model.sessions import RemoteWorker, Session
from towpath.model.stats import Minute, Rate, TopicStats
from towpath.server.inputs import Input, Topic
from towpath.server.outputs import (
    CompletedTotal,
    FailedNow,
    FailedTotal,
    Items,
    JobBriefShown,
    ResponseBody,
    StatsShown,
    brief_shown,
    milliseconds,
    shown,
)
from towpath.server.request import Request
from towpath.server.routes import Routes
from towpath.server.statistics import MOST_COUNTED

routes: Final = Routes("jobs")
topics: Final = Routes("topics")

LONGEST: Final = 400 * 24 * 60  # minutes
MOST_SPARSE: Final = 32 * 24 * 60  # minutes, of which those without outcomes may be left out
PERCENTILES: Final = (50, 95, 99)


class StatsWanted(Input):
    """How old statistics may be."""

    max_age: Annotated[float, Meta(ge=0, le=60)] = 0.0  # seconds


class Span(Input):
    """The time to count."""

    topic: Topic | None = None
    minutes: Annotated[int, Meta(ge=1, le=LONGEST)] = 60
    step: Annotated[int, Meta(extra_json_schema={"enum": [*STEPS]})] | None = None
    by: Literal["topic"] | None = None


class MinuteShown(ResponseBody):
    """The outcomes of one step, and what was ready at its end, where that was noted."""

    at: str
    completed: int
    failed: int
    avg_duration_ms: float | None = field(name="avgExecutionTime")
    ready: int | None
    oldest_at: datetime | None


class TopicHistoryShown(ResponseBody):
    """The outcomes of a topic in each step, and what was ready at its end."""

    completed: list[int]
    failed: list[int]
    avg_duration_ms: list[float | None] = field(name="avgExecutionTime")
    ready: list[int | None]
    oldest_at: list[datetime | None]


class ThroughputShown(ResponseBody):
    """The outcomes of the last minutes, oldest first."""

    start: datetime | None = field(name="from")  # of the first step; null without `step`
    step: int  # seconds
    items: list[MinuteShown]  # empty with `by`
    topics: dict[str, TopicHistoryShown] | None  # with `by`


class RecentSpan(Input):
    """The failed jobs to group."""

    topic: Topic | None = None
    minutes: Annotated[int, Meta(ge=1, le=LONGEST)] = 60


class FailureGroupShown(ResponseBody):
    """Jobs that failed alike."""

    error: str  # the first line of their last errors
    count: int
    topics: list[str]
    last_at: datetime
    sample: UUID  # the id of the newest


class RecentFailuresShown(ResponseBody):
    """Failed jobs by their errors, the most frequent error first."""

    groups: list[FailureGroupShown]
    items: list[JobBriefShown]  # the newest 20
    looked_at: int  # so many of the newest failed jobs; 2,000 at most


class Newest(Input):
    """The completed jobs to read."""

    topic: Topic | None = None
    limit: Annotated[int, Meta(ge=1, le=2_000)] = 2_000


class TookShown(ResponseBody):
    """How long a completed job ran, and waited for its only run."""

    finished_at: datetime
    duration_ms: float | None
    wait_ms: float | None


class PercentileShown(ResponseBody):
    """So long it took at most, for this share of the jobs."""

    duration_ms: float | None
    wait_ms: float | None


class DurationsShown(ResponseBody):
    """How long the newest completed jobs took, the newest first."""

    items: list[TookShown]
    p50: PercentileShown
    p95: PercentileShown
    p99: PercentileShown


class RateShown(ResponseBody):
    """Outcomes per minute, on average of the last five."""

    completed: float
    failed: float


class TopicShown(ResponseBody):
    """Counts of one topic."""

    topic: str
    ready: int
    delayed: int
    blocked: int
    reserved: int
    buried: int
    exact: bool  # if not, there may be more ready, delayed, blocked and buried ones
    oldest_at: datetime | None
    paused: bool
    paused_until: datetime | None  # null: it is not paused, or until it is resumed
    completed: CompletedTotal
    failed: FailedNow
    failed_total: FailedTotal
    avg_duration_ms: float | None = field(name="avgExecutionTime")
    rate: RateShown
    workers: int  # that are live and serve it
    waiting: int  # callers of this server that wait for its jobs
    empty_in_s: float | None  # seconds, as the ready ones grow fewer; null: they do not


class TopicLimitShown(ResponseBody):
    """A limit that jobs of a topic have, and how far it is used."""

    key: str
    concurrency: int | None
    rate: float | None  # starts per second
    burst: int
    running: int
    blocked: int
    exact: bool  # if not, more jobs are blocked


class TopicDetailShown(TopicShown):
    """One topic in full."""

    arguments: dict[str, Any] | None  # the JSON Schema of its task's arguments, if it is known here
    tasks: list[str]  # the names of its tasks that this server has
    limits: list[TopicLimitShown]


@routes.get("/api/jobs/stats")
async def stats(request: Request, query: StatsWanted) -> StatsShown:
    """Count all jobs, up to 100,000 of each state; `exact` says whether there are more.

    With `maxAge`, counts that are at most so many seconds old will do: many viewers share them.
    """
    request.require("manage")
    return await request.shared.statistics.of_late(query.max_age)


@routes.get("/api/jobs/throughput")
async def throughput(request: Request, query: Span) -> ThroughputShown:
    """Count the outcomes of the last minutes.

    Without `step`, minutes without any are left out, up to 32 days back. With it, each step is
    there, and tells how many jobs were ready at its end. Outcomes are known by the minute for 2
    days, by the hour for 32 days, by the day for 400 days. `by=topic` tells them for each topic
    that no rule closes to the caller.
    """
    request.require("manage", query.topic)
    jobs = request.app.jobs
    step = query.step
    if step is None and query.minutes > MOST_SPARSE:
        step = STEPS[-1]
    if step is None and query.by is None:
        minutes = await jobs.athroughput(query.topic, query.minutes)
        return ThroughputShown(start=None, step=60, items=_points(minutes), topics=None)
    history = await jobs.ahistory(
        query.topic, minutes=query.minutes, step=step or STEPS[0], by_topic=query.by is not None
    )
    closed = request.closed_topics("manage")
    by_topic = {
        name: _lines(points) for name, points in history.topics.items() if name not in closed
    }
    return ThroughputShown(
        start=history.start,
        step=history.step,
        items=_points(history.points),
        topics=None if query.by is None else by_topic,
    )


@routes.get("/api/failures")
async def recent_failures(request: Request, query: RecentSpan) -> RecentFailuresShown:
    """Group the failed jobs of the last minutes by the first lines of their errors.

    Those of topics that a rule closes to the caller are left out.
    """
    request.require("manage", query.topic)
    closed = request.closed_topics("manage")
    found = await request.app.jobs.arecent_failures(
        query.topic, minutes=query.minutes, without=closed
    )
    return RecentFailuresShown(
        groups=[shown(FailureGroupShown, each) for each in found.groups],
        items=[brief_shown(each) for each in found.items],
        looked_at=found.looked_at,
    )


@routes.get("/api/jobs/durations")
async def durations(request: Request, query: Newest) -> DurationsShown:
    """Read how long the newest completed jobs ran, and waited for their only run."""
    request.require("manage", query.topic)
    took = [
        TookShown(
            finished_at=each.finished_at,
            duration_ms=milliseconds(each.duration),
            wait_ms=milliseconds(each.waited),
        )
        for each in await request.app.jobs.atook(query.topic, query.limit)
    ]
    p50, p95, p99 = (_percentile(took, share) for share in PERCENTILES)
    return DurationsShown(items=took, p50=p50, p95=p95, p99=p99)


@topics.get("/api/topics")
async def list_topics(request: Request) -> Items[TopicShown]:
    """Count the jobs of each topic that the caller may manage.

    All topics together are counted up to 100,000 jobs of each state; `exact` says whether a topic
    may have more.
    """
    counted = await request.app.topics.astats(MOST_COUNTED)
    found = [topic for topic in counted if request.may("manage", topic.topic)]
    if not found:
        request.require_some("manage")
    return Items(items=[TopicShown(**each) for each in await _described(request, found)])


@topics.get("/api/topics/{topic}")
async def get_topic(request: Request, topic: Topic) -> TopicDetailShown:
    """Count the jobs of a topic, and read its limits and the arguments of its task."""
    request.require("manage", topic)
    app = request.app
    [fields] = await _described(request, [await app.jobs.astats_topic(topic, MOST_COUNTED)])
    task = app.tasks.find(topic)
    return TopicDetailShown(
        **fields,
        arguments=None if task is None else task.signature.schema,
        tasks=[each.name for each in app.tasks.of(topic)],
        limits=[_limit(each) for each in await app.topics.alimits(topic, MOST_COUNTED)],
    )


async def _described(request: Request, counted: Sequence[TopicStats]) -> list[dict[str, Any]]:
    """Return the fields of topics: their counts, rates and workers."""
    app = request.app
    rates = await app.topics.arates()
    waiting = await app.jobs.astats_waiting()
    dead_after = app.settings.dead_after
    every: list[Session | RemoteWorker] = [*await app.sessions.alist()]
    every += await app.sessions.aremote()
    live = [set(each.topics) for each in every if is_live(each, dead_after)]
    return [
        {
            **{name: getattr(topic, name) for name in COUNTED},
            "rate": RateShown(completed=rate.completed, failed=rate.failed),
            "workers": sum(topic.topic in each for each in live),
            "waiting": waiting.get(topic.topic, 0),
            "empty_in_s": _empty_in(topic, rate),
        }
        for topic in counted
        for rate in (rates.get(topic.topic, NO_RATE),)
    ]


NO_RATE: Final = Rate()
COUNTED: Final = tuple(
    name
    for name in TopicShown.__struct_fields__
    if name not in {"rate", "workers", "waiting", "empty_in_s"}
)


def _empty_in(topic: TopicStats, rate: Rate) -> float | None:
    """Return in how many seconds no job is ready, if they go on to grow fewer."""
    if not topic.ready:
        return 0.0
    if rate.ready is None or not topic.exact or rate.ready <= topic.ready or not rate.over:
        return None
    return round(topic.ready / (rate.ready - topic.ready) * rate.over, 1)


def _limit(limit: LimitInUse) -> TopicLimitShown:
    return TopicLimitShown(
        key=limit.key,
        concurrency=limit.concurrency,
        rate=None if limit.pace is None else round(1e6 / limit.pace, 6),
        burst=limit.burst,
        running=limit.running,
        blocked=limit.blocked,
        exact=limit.exact,
    )


def _points(minutes: Iterable[Minute]) -> list[MinuteShown]:
    return [shown(MinuteShown, each) for each in minutes]


def _lines(points: Sequence[Minute]) -> TopicHistoryShown:
    names = TopicHistoryShown.__struct_fields__
    return TopicHistoryShown(**{name: [getattr(each, name) for each in points] for name in names})


def _percentile(took: Sequence[TookShown], share: int) -> PercentileShown:
    return PercentileShown(
        duration_ms=_nearest([each.duration_ms for each in took], share),
        wait_ms=_nearest([each.wait_ms for each in took], share),
    )


def _nearest(values: Iterable[float | None], share: int) -> float | None:
    """Return the smallest value that is not less than this share of all."""
    known = sorted(each for each in values if each is not None)
    return known[math.ceil(len(known) * share / 100) - 1] if known else None
