"""Statistics under beanstalkd's names, as YAML."""

from __future__ import annotations

import os
import platform
import resource
import socket
import time
from functools import cache
from math import ceil
from typing import TYPE_CHECKING, Final

from towpath.model.states import State
from towpath.server.beanstalkd.tubes import tube_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from towpath.model.delay_queue import JobAt, QueueCounts
    from towpath.server.beanstalkd.server import BeanstalkdServer

PROTOCOL_VERSION: Final = "1.13"  # of beanstalkd
BINLOG_SIZE: Final = 10_485_760  # bytes; beanstalkd's default

COUNTED: Final = (
    "put", "peek", "peek-ready", "peek-delayed", "peek-buried", "reserve", "reserve-with-timeout",
    "delete", "release", "use", "watch", "ignore", "bury", "kick", "touch", "stats", "stats-job",
    "stats-tube", "list-tubes", "list-tube-used", "list-tubes-watched", "pause-tube",
)  # fmt: skip


def listed(names: Iterable[str]) -> bytes:
    """Return names as a YAML list."""
    return _ok("".join(f"- {name}\n" for name in names))


def of_job(found: JobAt) -> bytes:
    """Return the statistics of a job."""
    job, at = found.job, found.at
    left = 0.0
    if job.state is State.DELAYED:
        left = (job.run_at - at).total_seconds()
    elif job.until is not None:
        left = (job.until - at).total_seconds()
    delay = (job.run_at - job.created_at).total_seconds()
    if job.releases:  # the delay of the last release is not stored
        delay = ceil(left) if job.state is State.DELAYED else 0
    return _mapping(
        {
            "id": job.seq,
            "tube": f'"{tube_name(job.topic)}"',
            "state": State.DELAYED if job.state is State.BLOCKED else job.state,
            "pri": job.priority,
            "age": int((at - job.created_at).total_seconds()),
            "delay": round(delay),
            "ttr": round(job.ttr.total_seconds()),
            "time-left": max(0, int(left)),
            "file": 0,
            "reserves": job.epoch,
            "timeouts": job.timeouts,
            "releases": job.releases,
            "buries": job.buries,
            "kicks": job.kicks,
        }
    )


def of_tube(server: BeanstalkdServer, name: str, counts: QueueCounts) -> bytes:
    """Return the statistics of a tube."""
    tube = server.known(name)
    left = counts.paused_for.total_seconds() if counts.paused_for else 0
    return _mapping(
        {
            "name": f'"{name}"',
            "current-jobs-urgent": counts.urgent,
            "current-jobs-ready": counts.ready,
            "current-jobs-reserved": counts.reserved,
            "current-jobs-delayed": counts.delayed,
            "current-jobs-buried": counts.buried,
            "total-jobs": tube.total_jobs,
            "current-using": tube.using,
            "current-watching": tube.watching,
            "current-waiting": tube.waiting,
            "cmd-delete": tube.deletes,
            "cmd-pause-tube": tube.pauses,
            "pause": max(tube.pause, ceil(left)) if left else 0,
            "pause-time-left": int(left),
        }
    )


async def of_server(server: BeanstalkdServer) -> bytes:
    """Return the statistics of the server."""
    tubes = await server.app.queues.acounts()
    names = await server.tubes()
    for connection in server.connections:
        connection.expire()
    used = resource.getrusage(resource.RUSAGE_SELF)
    system = platform.uname()
    return _mapping(
        {
            "current-jobs-urgent": sum(tube.urgent for tube in tubes),
            "current-jobs-ready": sum(tube.ready for tube in tubes),
            "current-jobs-reserved": sum(tube.reserved for tube in tubes),
            "current-jobs-delayed": sum(tube.delayed for tube in tubes),
            "current-jobs-buried": sum(tube.buried for tube in tubes),
            **{f"cmd-{verb}": server.command_counts[verb] for verb in COUNTED},
            "job-timeouts": server.timeouts,
            "total-jobs": server.total_jobs,
            "max-job-size": server.most_body,
            "current-tubes": len(list(names)),
            "current-connections": len(server.connections),
            "current-producers": sum(each.is_producer for each in server.connections),
            "current-workers": sum(each.is_worker for each in server.connections),
            "current-waiting": sum(each.is_waiting for each in server.connections),
            "total-connections": server.total_connections,
            "pid": os.getpid(),
            "version": f'"{PROTOCOL_VERSION} (Towpath {version_text()})"',
            "rusage-utime": f"{used.ru_utime:.6f}",
            "rusage-stime": f"{used.ru_stime:.6f}",
            "uptime": int(time.monotonic() - server.started_at),
            "binlog-oldest-index": 0,
            "binlog-current-index": 0,
            "binlog-records-migrated": 0,
            "binlog-records-written": 0,
            "binlog-max-size": BINLOG_SIZE,
            "draining": "true" if server.draining else "false",
            "id": server.id,
            "hostname": f'"{socket.gethostname()}"',
            "os": f'"{system.version}"',
            "platform": f'"{system.machine}"',
        }
    )


def tube_name(topic: str) -> str:
    """Return the tube of a topic, or the topic itself if it has none."""
    return tube_of(topic) or topic


def _mapping(values: Mapping[str, object]) -> bytes:
    return _ok("".join(f"{name}: {value}\n" for name, value in values.items()))


def _ok(text: str) -> bytes:
    body = f"---\n{text}".encode()
    return b"OK %d\r\n%b\r\n" % (len(body), body)


@cache
def version_text() -> str:
    """Return the version of Towpath."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow to import

    try:
        return version("towpath")
    except PackageNotFoundError:
        return "unknown"
