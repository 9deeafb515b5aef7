"""Metrics for Prometheus: the jobs in the database, and the requests of this process."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final, NamedTuple

from towpath import App

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"
STATES: Final = ("ready", "delayed", "blocked", "reserved", "buried")


class Metric(NamedTuple):
    """One metric, as it is shown and documented."""

    kind: str
    labels: tuple[str, ...]
    help: str


TOPIC: Final = ("topic",)
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
    "towpath_http_requests_total": Metric(
        "counter", ("path", "method", "status"), "Requests answered by this process."
    ),
    "towpath_http_request_seconds": Metric(
        "histogram", ("path",), "Time from the head of a request to its answer."
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
    """Counts the requests of this process."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, int], int] = {}
        self._seconds: dict[str, tuple[list[int], list[float]]] = {}

    def count(self, path: str, method: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        key = (path, method if method in METHODS else "other", status)
        self._requests[key] = self._requests.get(key, 0) + 1
        found = self._seconds.get(path)
        if found is None:
            found = self._seconds[path] = ([0] * (len(BUCKETS) + 1), [0.0])
        found[0][bisect_left(BUCKETS, seconds)] += 1
        found[1][0] += seconds

    async def text(self, app: App) -> str:
        """Return all metrics in Prometheus' text format."""
        return "\n".join([*self._requests_text(), *await _queue_text(app), ""])

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
    return lines


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
