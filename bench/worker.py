"""A worker process: how fast it does waiting jobs, how soon it starts one, what it costs."""

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil

from bench.bare import PAYLOAD, items
from bench.memory import MIB
from bench.places import Place, PostgresSpot
from bench.rounds import Floor, Plan, Rate, Result, Stopwatch, compared, p50_p99

SETTLE = 1.0  # seconds for a worker to come to rest
TOPICS = 100
JOBS = 10_000  # in a quick run too: with fewer, the start of a worker is all that one sees


def measure(place: Place, plan: Plan) -> Iterator[Result]:
    yield waiting_jobs(place, plan)
    yield other_tasks(place, plan, "blocking", 5_000)
    yield other_tasks(place, plan, "boxed", 1_000)
    postgres = place.kind == "postgres"
    yield same_process(place, plan, 3 if postgres else 1)
    yield other_process(place, plan, 3 if postgres else 10)
    yield idle(place, plan)
    yield from memory(place)
    yield memory_of_running_tasks(place, plan)


# ------------------------------------------------------------ the process


class Working:
    """A worker process, and what it says."""

    def __init__(
        self, spot: Any, scene: str, topic: str, number: int, concurrency: int = 10
    ) -> None:
        command = [sys.executable, "-m", "bench.working", scene, topic]
        self._process = subprocess.Popen(
            [*command, str(number), str(concurrency)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment(spot)},
        )
        self.seen = psutil.Process(self._process.pid)
        assert self.hear() == "ready"

    def go(self) -> None:
        assert self._process.stdin
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the worker process has died"
        return json.loads(line)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def environment(spot: Any) -> dict[str, str]:
    """Say in variables which database it is."""
    settings = {f"TOWPATH_{name.upper()}": str(value) for name, value in spot.settings.items()}
    return {"TOWPATH_DATABASE": spot.url, **settings}


# ------------------------------------------------------------ how fast


def waiting_jobs(place: Place, plan: Plan) -> Result:
    """Measure against batches of the same mean size by hand, without a session or tasks to run."""
    ours: list[Rate] = []
    bare: list[Rate] = []
    found: dict[str, Any] = {}
    batch = 0
    for _ in range(plan.rounds):
        rate, found = drained(place, "nothing", JOBS)
        ours.append(rate)
        batch = max(1, JOBS // len(found["reserved"]))
        bare.append(_by_hand(place, JOBS, batch))
    return compared(
        place.name,
        f"worker: {JOBS:,} waiting no-op async jobs",
        ours,
        bare,
        note=f"batches of {batch} reserved, {JOBS // len(found['written'])} completed",
        details=found,
    )


def other_tasks(place: Place, plan: Plan, task: str, full: int) -> Result:
    kinds = {"blocking": "no-op jobs in threads", "boxed": "no-op jobs in 2 sandboxes"}
    count = plan.count(full, 100)
    scene, concurrency = ("warm-drain", 2) if task == "boxed" else ("drain", 10)
    rates = [
        drained(place, task, count, scene=scene, concurrency=concurrency)[0]
        for _ in range(plan.rounds)
    ]
    return compared(place.name, f"worker: {count:,} waiting {kinds[task]}", rates, [])


def drained(
    place: Place, task: str, count: int, *, scene: str = "drain", concurrency: int = 10
) -> tuple[Rate, dict[str, Any]]:
    """Have a worker go through waiting jobs."""
    with place.spot() as spot:
        with spot.app() as app:
            warm = 2 * concurrency if scene == "warm-drain" else 0
            app.jobs.enqueue_many(task, [PAYLOAD] * (count + warm))
        spot.tidy()
        with contextlib.closing(Working(spot, scene, task, count, concurrency)) as worker:
            worker.go()
            found = worker.hear()
            found["rss"] = worker.seen.memory_info().rss
        with spot.app() as app:
            assert app.jobs.stats().completed == count + warm
    jobs, seconds = found["jobs"], found["seconds"]
    return Rate(jobs / seconds, found["cpu"] / jobs * 1e6), found


def _by_hand(place: Place, count: int, batch: int) -> Rate:
    with place.spot() as spot:
        driver = spot.bare()
        for done in range(0, count, 1_000):
            new = driver.prepared(items(min(1_000, count - done)))
            driver.alone(driver.enqueue, new)
        spot.tidy()
        if isinstance(spot, PostgresSpot):
            driver.close()
            return asyncio.run(_by_two_hands(spot, count, batch))
        watch = Stopwatch()
        done = 0
        while done < count:
            rows = driver.alone(driver.reserve, batch)
            done += len(driver.alone(driver.complete, rows))
        rate = watch.rate(count)
        driver.close()
        return rate


async def _by_two_hands(spot: PostgresSpot, count: int, batch: int) -> Rate:
    """Reserve on one connection while the other completes, as a worker does."""
    reserving, completing = await spot.abare(), await spot.abare()
    reserved: asyncio.Queue[list[Any]] = asyncio.Queue(maxsize=1)

    async def reserve() -> None:
        left = count
        while left:
            rows = await reserving.reserve(batch)
            left -= len(rows)
            await reserved.put(rows)

    async def complete() -> None:
        left = count
        while left:
            left -= len(await completing.complete(await reserved.get()))

    watch = Stopwatch()
    await asyncio.gather(reserve(), complete())
    rate = watch.rate(count)
    await reserving.close()
    await completing.close()
    return rate


# ------------------------------------------------------------ how soon


def same_process(place: Place, plan: Plan, floor: float) -> Result:
    """Measure from the call of aenqueue to the first line of the task, on one event loop."""
    count = plan.count(200)
    with (
        place.spot() as spot,
        contextlib.closing(Working(spot, "call", "stamped", count)) as worker,
    ):
        worker.go()
        woken = worker.hear()
    return _woken(place, "enqueue → task of an idle worker, same process, p50", woken, floor)


def other_process(place: Place, plan: Plan, floor: float) -> Result:
    """Measure the same from another process; their clock is the machine's."""
    count = plan.count(200)
    with place.spot() as spot, spot.app() as app, serving(spot, "stamped", count) as worker:
        for _ in range(count):
            app.jobs.enqueue("stamped", {"at": time.monotonic()})
            time.sleep(random.uniform(0.02, 0.05))
        _until(lambda: app.jobs.stats().completed == count)
        worker.go()
        woken = worker.hear()
    return _woken(place, "enqueue → task of an idle worker, other process, p50", woken, floor)


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


@contextlib.contextmanager
def serving(
    spot: Any, topic: str, number: int, concurrency: int = 10, scene: str = "serve"
) -> Iterator[Working]:
    """Have a worker at rest."""
    with contextlib.closing(Working(spot, scene, topic, number, concurrency)) as worker:
        worker.go()
        assert worker.hear() == "working"
        time.sleep(SETTLE)
        yield worker


def _until(holds: Any, patience: float = 60) -> None:
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, "the worker did not do its work"
        time.sleep(0.05)


# ------------------------------------------------------------ what it costs


def idle(place: Place, plan: Plan) -> Result:
    """Measure a worker with nothing to do, whose topics have all had a job before."""
    seconds = max(5.0, 10 * plan.scale)
    with place.spot() as spot, spot.app() as app:
        for nth in range(TOPICS):
            app.jobs.enqueue(f"topic-{nth}", PAYLOAD)
        with serving(spot, "topic", TOPICS, scene="topics") as worker:
            _until(lambda: app.jobs.stats().completed == TOPICS)
            app.close()  # we are idle too
            time.sleep(SETTLE)
            before = _cpu(worker.seen)
            server = _cpu_of_server(place)
            time.sleep(seconds)
            share = (_cpu(worker.seen) - before) / seconds * 100
            server_share = (_cpu_of_server(place) - server) / seconds * 100
    return Result(
        database=place.name,
        what=f"worker: idle, {TOPICS} topics",
        unit="% of a core",
        ours=[share],
        floor=Floor("ours", "<", 2),
        less_is_better=True,
        note=f"the server {server_share:.2f}" if place.kind == "postgres" else "",
        details={"seconds": seconds, "worker": share, "server": server_share},
    )


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _cpu_of_server(place: Any) -> float:
    if place.kind != "postgres":
        return 0.0
    server = psutil.Process(place.server.pid)
    total = 0.0
    for process in (server, *server.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += _cpu(process)
    return total


def memory(place: Place) -> Iterator[Result]:
    with place.spot() as spot, serving(spot, "nothing", 0) as worker:
        yield _memory(place, "worker: memory, idle", worker.seen.memory_info().rss)
    _, found = drained(place, "nothing", JOBS)
    yield _memory(place, f"worker: memory after {JOBS:,} jobs", found["rss"])


def _memory(place: Place, what: str, size: int) -> Result:
    return Result(
        database=place.name,
        what=what,
        unit="MiB",
        ours=[size / MIB],
        floor=Floor("ours", "<", 60),
        less_is_better=True,
    )


def memory_of_running_tasks(place: Place, plan: Plan) -> Result:
    count = plan.count(5_000, 1_000)
    with (
        place.spot() as spot,
        spot.app() as app,
        serving(spot, "lasting", count, concurrency=count) as worker,
    ):
        before = worker.seen.memory_info().rss
        app.jobs.enqueue_many("lasting", [{}] * count)
        _until(lambda: app.jobs.stats().reserved == count)
        time.sleep(SETTLE)
        growth = (worker.seen.memory_info().rss - before) / MIB
    return Result(
        database=place.name,
        what="worker: memory for 1,000 running async tasks",
        unit="MiB",
        ours=[growth / count * 1_000],
        less_is_better=True,
        note=f"{count:,} of them: {growth:.1f} MiB",
    )
