"""Metrics for Prometheus: the jobs in the database, and the requests of this process."""

from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import accumulate
from typing import Final, NamedTuple

from towpath import App

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"
STATES_OF_HOOKS: Final = ("paused", "failing", "stopped")
STATES: Final = ("ready", "delayed", "blocked", "reserved", "buried")


class Metric(NamedTuple):
    """One metric, as it is shown and documented."""

    kind: str
    labels: tuple[str, ...]
    help: str


TOPIC: Final = ("topic",)
DOOR: Final = ("door",)  # http, websocket, sse or stream (Durable Streams)
METRICS: Final = {
    "towpath_jobs": Metric(
        "gauge", ("topic", "state"), "Unfinished and buried jobs by topic and state."
    ),
    "towpath_jobs_completed_total": Metric(
        "counter", TOPIC, "Jobs that have completed, since the tables were created."
    ),
    "towpath_jobs_failed_total": Metric(
        "counter", TOPIC, "Jobs that have failed for good, since the tables were created."
    ),
    "towpath_job_retries_total": Metric(
        "counter", TOPIC, "Failed runs that were to be tried again, since the tables were created."
    ),
    "towpath_job_crashes_total": Metric(
        "counter", TOPIC, "Deaths of workers while they ran a job, since the tables were created."
    ),
    "towpath_job_run_seconds": Metric(
        "histogram", TOPIC, "Time from the reservation of a job to its completion."
    ),
    "towpath_job_wait_seconds": Metric(
        "histogram",
        TOPIC,
        "Time from when a job was due to its reservation, of jobs that completed at the first run.",
    ),
    "towpath_topic_paused": Metric("gauge", TOPIC, "1 while a topic is paused."),
    "towpath_topic_oldest_timestamp_seconds": Metric(
        "gauge", TOPIC, "The time at which the oldest ready job of a topic became due."
    ),
    "towpath_waiting": Metric(
        "gauge", TOPIC, "Calls of reserve in this process that wait for a job."
    ),
    "towpath_workers": Metric("gauge", (), "Live workers."),
    "towpath_webhook_subscriptions": Metric(
        "gauge", ("state",), "Webhook subscriptions by state; one may be paused and failing."
    ),
    "towpath_webhook_attempts": Metric(
        "gauge", ("status",), "Webhook attempts that wait for a worker, or that a worker makes."
    ),
    "towpath_webhook_attempts_total": Metric(
        "counter", ("outcome",), "Webhook attempts of this process: completed, or the error code."
    ),
    "towpath_webhook_dead_letters": Metric(
        "gauge", (), "Webhooks that have failed for good and are kept."
    ),
    "towpath_http_requests_total": Metric(
        "counter", ("path", "method", "status"), "Requests answered by this process."
    ),
    "towpath_http_request_seconds": Metric(
        "histogram", ("path",), "Time from the head of a request to its answer."
    ),
    "towpath_events_published_total": Metric(
        "counter", DOOR, "Events that clients have published through this process."
    ),
    "towpath_events_sent_total": Metric(
        "counter", DOOR, "Events that this process has sent to readers."
    ),
    "towpath_event_connections": Metric(
        "gauge", DOOR, "Open WebSockets, and open answers of server-sent events, of this process."
    ),
    "towpath_event_subscriptions": Metric(
        "gauge", DOOR, "Channels that the clients of these connections follow."
    ),
    "towpath_event_resets_total": Metric(
        "counter", ("reason",), "Readers whose subscriptions could not go on."
    ),
}
"""Every metric. The counts of jobs are those of the database, so of all processes."""

COUNTERS: Final = {
    "towpath_jobs_completed_total": "completed",
    "towpath_jobs_failed_total": "failed_total",
    "towpath_job_retries_total": "retries",
    "towpath_job_crashes_total": "crashes",
}
"""The number of a topic that each counter shows."""

TIMES: Final = {"run": "towpath_job_run_seconds", "wait": "towpath_job_wait_seconds"}
"""The metric of each kind of histogram."""


class Metrics:
    """Counts the requests of this process, and the events that go through it."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, int], int] = {}
        self._seconds: dict[str, tuple[list[int], list[float]]] = {}
        self._events: dict[str, dict[str, int]] = {name: {} for name in EVENTS}

    def published(self, door: str, count: int) -> None:
        """Count events that a client has published."""
        self._add("towpath_events_published_total", door, count)

    def sent(self, door: str, count: int) -> None:
        """Count events that a reader was sent."""
        self._add("towpath_events_sent_total", door, count)

    def reset(self, reason: str) -> None:
        """Count a reader that cannot go on."""
        self._add("towpath_event_resets_total", reason, 1)

    def connected(self, door: str) -> AbstractContextManager[None]:
        """Count a connection while it is open."""
        return self._counted("towpath_event_connections", door)

    def subscribed(self, door: str) -> AbstractContextManager[None]:
        """Count a subscription while it lasts."""
        return self._counted("towpath_event_subscriptions", door)

    @contextmanager
    def _counted(self, name: str, label: str) -> Generator[None]:
        self._add(name, label, 1)
        try:
            yield
        finally:
            self._add(name, label, -1)

    def _add(self, name: str, label: str, count: int) -> None:
        counts = self._events[name]
        counts[label] = counts.get(label, 0) + count

    def count(self, path: str, method: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        key = (path, method if method in METHODS else "other", status)
        self._requests[key] = self._requests.get(key, 0) + 1
        found = self._seconds.get(path)
        if found is None:
            found = self._seconds[path] = ([0] * (len(BUCKETS) + 1), [0.0])
        found[0][bisect_left(BUCKETS, seconds)] += 1
        found[1][0] += seconds

    async def text(self, app: App, attempts: Mapping[str, int]) -> str:
        """Return all metrics in Prometheus' text format; `attempts` of webhooks by outcome."""
        name = "towpath_webhook_attempts_total"
        made = [_line(name, outcome, value=count) for outcome, count in sorted(attempts.items())]
        queue = await _queue_text(app)
        lines = [*self._requests_text(), *self._events_text(), *queue, *_head(name), *made, ""]
        return "\n".join(lines)

    def _requests_text(self) -> Iterator[str]:
        name = "towpath_http_requests_total"
        yield from _head(name)
        for (path, method, status), count in sorted(self._requests.items()):
            yield _line(name, path, method, status, value=count)
        name = "towpath_http_request_seconds"
        yield from _head(name)
        for path, (counts, [total]) in sorted(self._seconds.items()):
            *up_to, count = accumulate(counts)
            buckets = dict(zip(BUCKETS, up_to, strict=True))
            yield from _histogram(name, path, buckets, count, total)

    def _events_text(self) -> Iterator[str]:
        for name, counts in self._events.items():
            yield from _head(name)
            for label, count in sorted(counts.items()):
                yield _line(name, label, value=count)


EVENTS: Final = tuple(name for name in METRICS if name.startswith("towpath_event"))
METHODS: Final = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


async def _queue_text(app: App) -> list[str]:
    topics = await app.topics.astats()
    lines = [*_head("towpath_jobs")]
    lines += [
        _line("towpath_jobs", topic.topic, state, value=getattr(topic, state))
        for topic in topics
        for state in STATES
    ]
    for name, count in COUNTERS.items():
        lines += _head(name)
        lines += [_line(name, each.topic, value=getattr(each, count)) for each in topics]
    histograms = await app.topics.ahistograms()
    for kind, name in TIMES.items():
        lines += _head(name)
        for each in histograms:
            if each.kind == kind:
                lines += _histogram(name, each.topic, each.up_to, each.count, each.total)
    name = "towpath_topic_paused"
    lines += _head(name)
    lines += [_line(name, each.topic, value=int(each.paused)) for each in topics]
    name = "towpath_topic_oldest_timestamp_seconds"
    lines += _head(name)
    lines += [
        _line(name, each.topic, value=f"{each.oldest_at.timestamp():.3f}")
        for each in topics
        if each.oldest_at
    ]
    name = "towpath_waiting"
    lines += _head(name)
    waiting = app.jobs.stats_waiting()
    lines += [_line(name, topic, value=waiting[topic]) for topic in sorted(waiting)]
    lines += _head("towpath_workers")
    lines.append(_line("towpath_workers", value=len(await app.sessions.alist())))
    return [*lines, *await _webhooks_text(app)]


async def _webhooks_text(app: App) -> list[str]:
    counts = await app.deliveries.acounts()
    active = counts.subscriptions - counts.stopped
    states = {"active": active, **{each: getattr(counts, each) for each in STATES_OF_HOOKS}}
    name = "towpath_webhook_subscriptions"
    lines = [*_head(name), *(_line(name, state, value=count) for state, count in states.items())]
    name = "towpath_webhook_attempts"
    lines += _head(name)
    lines += [_line(name, each, value=getattr(counts, each)) for each in ("pending", "leased")]
    name = "towpath_webhook_dead_letters"
    return [*lines, *_head(name), _line(name, value=counts.dead_letters)]


def _head(name: str) -> tuple[str, str]:
    metric = METRICS[name]
    return f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"


def _line(name: str, *labelled: object, value: object) -> str:
    return f"{name}{_labels(name, labelled)} {value}"


def _histogram(
    name: str, labelled: str, up_to: Mapping[float, int], count: int, total: float
) -> Iterator[str]:
    for most, so_far in up_to.items():
        yield f"{name}_bucket{_labels(name, (labelled,), le=most)} {so_far}"
    yield f"{name}_bucket{_labels(name, (labelled,), le='+Inf')} {count}"
    yield f"{name}_sum{_labels(name, (labelled,))} {total:.6f}"
    yield f"{name}_count{_labels(name, (labelled,))} {count}"


def _labels(name: str, labelled: Iterable[object], **more: object) -> str:
    given = {**dict(zip(METRICS[name].labels, labelled, strict=True)), **more}
    shown = ",".join(f'{label}="{value}"' for label, value in given.items())
    return f"{{{shown}}}" if shown else ""
