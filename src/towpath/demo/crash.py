"""A producer, two workers, one crash, and a live table of counts."""

import os
import random
import signal
import time
from collections.abc import Sequence
from threading import Event, Thread
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.table import Table

from towpath import App, Lease
from towpath.demo.parts import Process, started
from towpath.model.stats import Stats

JOBS: Final = 600
CRASH_AT: Final = 150  # completed jobs
TOPIC: Final = "letters"
BEAT_EVERY: Final = 0.2
DEAD_AFTER: Final = 1.5  # seconds; short, so that the demo shows the recovery
PATIENCE: Final = 60.0  # seconds


def produce(url: str) -> None:
    """Enqueue jobs, some of them for later."""
    with App(url) as app:
        for number in range(JOBS):
            app.jobs.enqueue(TOPIC, {"letter": number}, delay=random.choice([0, 0, 0, 1]))  # noqa: S311 - a demo
            time.sleep(0.004)


def work(url: str) -> None:
    """Reserve and complete jobs, with a heartbeat; one letter in fifty fails once."""
    with App(url, dead_after=DEAD_AFTER) as app:
        session = app.sessions.start()
        held: dict[int, Lease] = {}
        stop = Event()

        def beat() -> None:
            while not stop.wait(BEAT_EVERY):
                app.sessions.beat(session, started=list(held.values()))

        Thread(target=beat, daemon=True).start()
        app.upkeep.start()
        while leases := app.jobs.reserve(TOPIC, limit=5, timeout=6, session=session):
            held.update({lease.job.seq: lease for lease in leases})
            for lease in leases:
                time.sleep(0.005)
                if lease.job.payload["letter"] % 50 == 0 and not lease.job.retries:
                    app.jobs.fail(lease, "the ink was dry", delay=0.5)
                else:
                    app.jobs.complete(lease)
                held.pop(lease.job.seq)
        stop.set()
        app.sessions.end(session)


def show(url: str) -> bool:
    """Start the parts, show them, and say whether all jobs were completed."""
    with App(url, dead_after=DEAD_AFTER) as app:
        app.migrate()
        with started(("produce", url), ("work", url), ("work", url)) as processes:
            return watch(app, *processes) == JOBS


def watch(app: App, producer: Process, *workers: Process) -> int:
    """Kill a worker halfway, and show the counts; return how many jobs were completed."""
    console = Console()
    crashed = False
    started = time.monotonic()
    with Live(console=console, refresh_per_second=10) as live:
        while True:
            stats = app.jobs.stats()
            if not crashed and stats.completed >= CRASH_AT and stats.reserved:
                os.kill(workers[0].pid, signal.SIGKILL)
                crashed = True
            live.update(table(stats, producer, workers, crashed=crashed))
            if stats.completed >= JOBS or time.monotonic() - started > PATIENCE:
                break
            time.sleep(0.1)
    jobs = app.jobs.list(limit=JOBS)
    rescued = sum(job.epoch > 1 + job.retries for job in jobs)
    retried = sum(job.retries for job in jobs)
    console.print(
        f"\n{stats.completed} of {JOBS} jobs completed, each once. A worker was killed with -9: "
        f"its jobs ({rescued}) were taken back and run by the other. {retried} failed once "
        "and were retried."
    )
    return stats.completed


def table(stats: Stats, producer: Process, workers: Sequence[Process], *, crashed: bool) -> Table:
    """Return a table of the counts and of the live processes."""
    alive = sum(worker.poll() is None for worker in workers)
    shown = Table(title="Towpath: jobs in SQLite, three processes")
    for name in ("ready", "delayed", "reserved", "completed", "buried"):
        shown.add_column(name, justify="right", min_width=9)
    counts = (stats.ready, stats.delayed, stats.reserved, stats.completed, stats.buried)
    shown.add_row(*map(str, counts))
    shown.caption = (
        f"producer {'at work' if producer.poll() is None else 'done'}, {alive} of 2 workers alive"
        + (", one killed with -9" if crashed else "")
    )
    return shown
