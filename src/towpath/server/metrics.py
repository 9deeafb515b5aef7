"""Metrics for Prometheus: the jobs in the database, and the requests of this process."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final

from towpath import App

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"
STATES: Final = ("ready", "delayed", "blocked", "reserved", "buried")


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
            so_far = 0
            for most, count in zip((*BUCKETS, "+Inf"), counts, strict=True):
                so_far += count
                yield f'{name}_bucket{{path="{path}",le="{most}"}} {so_far}'
            yield f'{name}_sum{{path="{path}"}} {total:.6f}'
            yield f'{name}_count{{path="{path}"}} {so_far}'


METHODS: Final = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


async def _queue_text(app: App) -> list[str]:
    topics = await app.topics.astats()
    lines = [*_head("towpath_jobs", "gauge", "Unfinished and buried jobs by topic and state.")]
    lines += [
        f'towpath_jobs{{topic="{topic.topic}",state="{state}"}} {getattr(topic, state)}'
        for topic in topics
        for state in STATES
    ]
    for outcome, count in (("completed", "completed"), ("failed", "failed_total")):
        name = f"towpath_jobs_{outcome}_total"
        lines += _head(name, "counter", f"Jobs that have {outcome} since the tables were created.")
        lines += [f'{name}{{topic="{each.topic}"}} {getattr(each, count)}' for each in topics]
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
