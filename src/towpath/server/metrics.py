"""Metrics for Prometheus: the jobs in the database, and the requests of this process."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from towpath import App

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"
STATES: Final = ("ready", "delayed", "blocked", "reserved", "buried")
COUNTERS: Final = {
    "towpath_jobs_completed_total": ("completed", "Jobs that have completed"),
    "towpath_jobs_failed_total": ("failed_total", "Jobs that have failed for good"),
    "towpath_job_retries_total": ("retries", "Failed runs that were to be tried again"),
    "towpath_job_crashes_total": ("crashes", "Deaths of workers while they ran a job"),
}
TIMES: Final = {
    "run": ("towpath_job_run_seconds", "Time from the reservation of a job to its completion."),
    "wait": (
        "towpath_job_wait_seconds",
        "Time from when a job was due to its reservation, of jobs that completed at the first run.",
    ),
}
"""The name and help of each kind of histogram; the database counts for all processes."""


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
        yield from _head(
            "towpath_http_requests_total", "counter", "Requests answered by this process."
        )
        for (path, method, status), count in sorted(self._requests.items()):
            labels = f'path="{path}",method="{method}",status="{status}"'
            yield f"towpath_http_requests_total{{{labels}}} {count}"
        name = "towpath_http_request_seconds"
        yield from _head(name, "histogram", "Time from the head of a request to its answer.")
        for path, (counts, [total]) in sorted(self._seconds.items()):
            *up_to, count = accumulate(counts)
            labels = f'path="{path}"'
            yield from _histogram(
                name, labels, dict(zip(BUCKETS, up_to, strict=True)), count, total
            )


def _histogram(
    name: str, labels: str, up_to: Mapping[float, int], count: int, total: float
) -> Iterator[str]:
    for most, so_far in up_to.items():
        yield f'{name}_bucket{{{labels},le="{most}"}} {so_far}'
    yield f'{name}_bucket{{{labels},le="+Inf"}} {count}'
    yield f"{name}_sum{{{labels}}} {total:.6f}"
    yield f"{name}_count{{{labels}}} {count}"


METHODS: Final = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


async def _queue_text(app: App) -> list[str]:
    topics = await app.topics.astats()
    lines = [*_head("towpath_jobs", "gauge", "Unfinished and buried jobs by topic and state.")]
    lines += [
        f'towpath_jobs{{topic="{topic.topic}",state="{state}"}} {getattr(topic, state)}'
        for topic in topics
        for state in STATES
    ]
    for name, (count, help) in COUNTERS.items():
        lines += _head(name, "counter", f"{help}, since the tables were created.")
        lines += [f'{name}{{topic="{each.topic}"}} {getattr(each, count)}' for each in topics]
    histograms = await app.topics.ahistograms()
    for kind, (name, help) in TIMES.items():
        lines += _head(name, "histogram", help)
        for each in histograms:
            if each.kind == kind:
                labels = f'topic="{each.topic}"'
                lines += _histogram(name, labels, each.up_to, each.count, each.total)
    lines += _head("towpath_topic_paused", "gauge", "1 while a topic is paused.")
    lines += [f'towpath_topic_paused{{topic="{each.topic}"}} {each.paused:d}' for each in topics]
    name = "towpath_topic_oldest_timestamp_seconds"
    lines += _head(name, "gauge", "The time at which the oldest ready job of a topic became due.")
    lines += [
        f'{name}{{topic="{each.topic}"}} {each.oldest_at.timestamp():.3f}'
        for each in topics
        if each.oldest_at
    ]
    lines += _head(
        "towpath_waiting", "gauge", "Calls of reserve in this process that wait for a job."
    )
    waiting = app.jobs.stats_waiting()
    lines += [f'towpath_waiting{{topic="{topic}"}} {waiting[topic]}' for topic in sorted(waiting)]
    lines += _head("towpath_workers", "gauge", "Live workers.")
    lines.append(f"towpath_workers {len(await app.sessions.alist())}")
    return lines


def _head(name: str, kind: str, help: str) -> Iterable[str]:
    return (f"# HELP {name} {help}", f"# TYPE {name} {kind}")
