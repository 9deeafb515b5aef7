"""What runs in another process: python -m bench.child VERB URL SETTINGS NUMBER."""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from bench.bare import PAYLOAD, TOPIC, BareSqlite, items
from bench.rounds import percentile
from towpath import App, Settings

CHANNEL = "chat"
CALLERS = 8  # tasks that publish


def wait(app: App, count: int) -> list[float]:
    """Reserve and complete so many jobs; return how long after its enqueue each came."""
    woken: list[float] = []
    _say("ready")
    for _ in range(count):
        [lease] = app.jobs.reserve(TOPIC, timeout=60)
        woken.append(time.monotonic() - lease.job.payload["at"])
        app.jobs.complete(lease)
    return woken


def cycle(app: App, seconds: float) -> dict[str, float]:
    """Enqueue, reserve and complete for a time."""

    def enqueue() -> None:
        app.jobs.enqueue(TOPIC, PAYLOAD)

    def finish() -> int:
        leases = app.jobs.reserve(TOPIC)
        app.jobs.complete_many(leases) if leases else None
        return len(leases)

    return _for_a_time(enqueue, finish, seconds)


def bare_cycle(url: str, settings: dict[str, object], seconds: float) -> dict[str, float]:
    """Do the same by hand, with no more than SQLite's own patience."""
    driver = BareSqlite(Path(url.removeprefix("sqlite:///")), Settings(**settings))  # type: ignore[arg-type]
    driver.connection.execute("pragma busy_timeout = 30000")

    def enqueue() -> None:
        driver.alone(driver.enqueue, driver.prepared(items(1)))

    def finish() -> int:
        rows = driver.alone(driver.reserve, 1)
        if rows:
            driver.alone(driver.complete, rows)
        return len(rows)

    return _for_a_time(enqueue, finish, seconds)


def _for_a_time(
    enqueue: Callable[[], None], finish: Callable[[], int], seconds: float
) -> dict[str, float]:
    taken: list[float] = []
    jobs = 0
    enqueue()
    _say("ready")
    sys.stdin.readline()
    end = time.monotonic() + seconds
    while (start := time.monotonic()) < end:
        enqueue()
        between = time.monotonic()
        jobs += finish()
        taken += [between - start, (time.monotonic() - between) / 2]  # two operations
    return {"jobs": jobs, "longest": max(taken), "p99": percentile(taken, 0.99)}


def publish(app: App, seconds: float) -> dict[str, float]:
    """Publish to one channel for a time, by eight tasks."""

    async def publish_all() -> int:
        await app.events.apublish(CHANNEL, PAYLOAD)
        _say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        end = time.monotonic() + seconds

        async def call() -> int:
            count = 0
            while time.monotonic() < end:
                await app.events.apublish(CHANNEL, PAYLOAD)
                count += 1
            return count

        counts = await asyncio.gather(*(call() for _ in range(CALLERS)))
        await app.aclose()
        return sum(counts)

    return {"events": asyncio.run(publish_all())}


def fill(app: App, count: int) -> dict[str, float]:
    """Enqueue so many jobs of 10 KB; return how much bigger this process became, in bytes."""
    payload = "x" * 10_000
    process = psutil.Process()
    for _ in range(200):
        app.jobs.enqueue(TOPIC, payload)
    gc.collect()
    before = most = process.memory_info().rss
    for nth in range(count):
        app.jobs.enqueue(TOPIC, payload)
        if nth % 100 == 0:
            most = max(most, process.memory_info().rss)
    gc.collect()
    return {
        "before": before,
        "growth": process.memory_info().rss - before,
        "most_growth": most - before,
    }


def _say(word: str) -> None:
    print(word, flush=True)


def main() -> None:
    verb, url, text, number = sys.argv[1:]
    settings = json.loads(text)
    if verb == "bare-cycle":
        _say(json.dumps(bare_cycle(url, settings, float(number))))
        return
    with App(url, **settings) as app:
        if verb == "wait":
            found: object = wait(app, int(number))
        elif verb == "cycle":
            found = cycle(app, float(number))
        elif verb == "publish":
            found = publish(app, float(number))
        else:
            found = fill(app, int(number))
        _say(json.dumps(found))


if __name__ == "__main__":
    main()
