"""Latency: a reservation of a job that is ready, and a blocked one that is woken."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from threading import Thread

from bench.bare import PAYLOAD, TOPIC, items
from bench.places import Place
from bench.rounds import Floor, Plan, Result, p50_p99

SETTLE = 0.5  # seconds until the caller that waits has fallen asleep for the first time


def measure(place: Place, plan: Plan) -> Iterator[Result]:
    yield reserving_one_job(place, plan)
    postgres = place.kind == "postgres"
    yield waking_in_the_same_process(place, plan, 3 if postgres else 1)
    yield waking_another_process(place, plan, 3 if postgres else 10)


def reserving_one_job(place: Place, plan: Plan) -> Result:
    """SC-2: Measure a reservation while a single job is ready."""
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(plan.rounds):
        ours += _ours(place, plan.count(300))
        bare += _bare(place, plan.count(300))
    found, by_hand = p50_p99(ours), p50_p99(bare)
    return Result(
        database=place.name,
        what="SC-2: reserve one ready job, p50",
        unit="ms",
        ours=[found["p50_ms"]],
        bare=[by_hand["p50_ms"]],
        floor=Floor("ours", "<", 10),
        less_is_better=True,
        note=f"p99 {found['p99_ms']:.2f}, bare {by_hand['p99_ms']:.2f}",
        details={"ours": found, "bare": by_hand},
    )


def _ours(place: Place, count: int) -> list[float]:
    taken: list[float] = []
    with place.spot() as spot, spot.app() as app:
        for _ in range(count + 10):
            app.jobs.enqueue(TOPIC, PAYLOAD)
            start = time.perf_counter()
            [lease] = app.jobs.reserve(TOPIC)
            taken.append(time.perf_counter() - start)
            app.jobs.complete(lease)
    return taken[10:]


def _bare(place: Place, count: int) -> list[float]:
    taken: list[float] = []
    with place.spot() as spot:
        driver = spot.bare()
        for _ in range(count + 10):
            driver.alone(driver.enqueue, driver.prepared(items(1)))
            start = time.perf_counter()
            rows = driver.alone(driver.reserve, 1)
            taken.append(time.perf_counter() - start)
            driver.alone(driver.complete, rows)
        driver.close()
    return taken[10:]


def waking_in_the_same_process(place: Place, plan: Plan, floor: float) -> Result:
    """Measure from the call of enqueue to the return of a reserve that was blocked."""
    count = plan.count(200)
    woken: list[float] = []
    with place.spot() as spot, spot.app() as app:

        def wait() -> None:
            for _ in range(count):
                [lease] = app.jobs.reserve(TOPIC, timeout=30)
                woken.append(time.monotonic() - lease.job.payload["at"])
                app.jobs.complete(lease)

        waiter = Thread(target=wait)
        waiter.start()
        time.sleep(SETTLE)
        for _ in range(count):
            app.jobs.enqueue(TOPIC, {"at": time.monotonic()})
            time.sleep(random.uniform(0.01, 0.03))
        waiter.join()
    return _woken(place, "put → blocked reserve, same process, p50", woken, floor)


def waking_another_process(place: Place, plan: Plan, floor: float) -> Result:
    """Measure the same with the blocked one in another process; their clock is the machine's."""
    count = plan.count(200)
    with place.spot() as spot, spot.app() as app:
        command = [sys.executable, "-m", "bench.child", "wait", spot.url, json.dumps(spot.settings)]
        with subprocess.Popen([*command, str(count)], stdout=subprocess.PIPE) as child:
            assert child.stdout
            child.stdout.readline()
            time.sleep(SETTLE)
            for _ in range(count):
                app.jobs.enqueue(TOPIC, {"at": time.monotonic()})
                time.sleep(random.uniform(0.02, 0.05))
            woken = json.loads(child.stdout.readline())
    return _woken(place, "put → blocked reserve, other process, p50", woken, floor)


def _woken(place: Place, what: str, seconds: list[float], floor: float) -> Result:
    found = p50_p99(seconds)
    return Result(
        database=place.name,
        what=what,
        unit="ms",
        ours=[found["p50_ms"]],
        floor=Floor("ours", "<", floor),
        less_is_better=True,
        note=f"p99 {found['p99_ms']:.2f}, max {found['max_ms']:.1f}",
        details=found,
    )
