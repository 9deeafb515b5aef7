"""Enqueue: one caller, many at once, and in bulk."""

import asyncio
import time
from collections.abc import Callable, Iterator
from threading import Barrier, Thread
from typing import Any

from bench.bare import BODY, PAYLOAD, PRIORITY, TOPIC, items
from bench.observe import Batch, batches, by_lane, summary
from bench.places import Place, PostgresSpot
from bench.rounds import Floor, Plan, Rate, Result, Stopwatch, by_turns, compared, p50_p99
from towpath import App

WARM_UP = 20
ONE_CALLER = Floor("ratio", ">", 0.7)
TEN_CALLERS = Floor("ratio", ">", 0.6)


def measure(place: Place, plan: Plan) -> Iterator[Result]:
    slow = place.kind == "sqlite" and "full" in place.name
    one = one_caller(place, plan, 3_000 if slow or place.kind == "postgres" else 10_000)
    yield one
    yield one_caller_async(place, plan, 3_000)
    yield concurrent(place, plan, "threads", 10, 6_000, TEN_CALLERS)
    yield concurrent(place, plan, "tasks", 10, 10_000, TEN_CALLERS)
    yield concurrent(place, plan, "threads", 100, 6_000)
    hundred = concurrent(place, plan, "tasks", 100, 20_000)
    yield hundred
    if place.kind == "sqlite":
        yield Result(
            database=place.name,
            what="enqueue, 100 tasks against one caller",
            unit="x",
            ours=[hundred.best / one.best],
            floor=Floor("ours", ">", 5) if slow else None,
        )
    yield bulk_against_copy(place, plan) if place.kind == "postgres" else bulk(place, plan)
    yield Result(
        database=place.name,
        what="SC-7: more than 1,000 jobs/s enqueued (one caller)",
        unit="/s",
        ours=one.ours,
        floor=Floor("ours", ">", 1_000),
    )
    yield one_enqueue(place, plan)


def one_caller(place: Place, plan: Plan, full: int) -> Result:
    """SC-7: Measure the enqueues of one caller."""
    count = plan.count(full)

    def ours() -> Rate:
        with place.spot() as spot, spot.app() as app:
            for _ in range(WARM_UP):
                app.jobs.enqueue(TOPIC, PAYLOAD)
            watch = Stopwatch()
            for _ in range(count):
                app.jobs.enqueue(TOPIC, PAYLOAD)
            return watch.rate(count)

    def bare() -> Rate:
        with place.spot() as spot:
            driver = spot.bare()
            new = [driver.prepared(items(1)) for _ in range(count + WARM_UP)]
            for one in new[:WARM_UP]:
                driver.alone(driver.enqueue, one)
            watch = Stopwatch()
            for one in new[WARM_UP:]:
                driver.alone(driver.enqueue, one)
            rate = watch.rate(count)
            driver.close()
            return rate

    rates = by_turns(plan.rounds, ours, bare)
    return compared(place.name, "enqueue, one caller, blocking", *rates, floor=ONE_CALLER)


def one_caller_async(place: Place, plan: Plan, full: int) -> Result:
    count = plan.count(full)

    async def ours() -> Rate:
        with place.spot() as spot:
            async with spot.app() as app:
                for _ in range(WARM_UP):
                    await app.jobs.aenqueue(TOPIC, PAYLOAD)
                watch = Stopwatch()
                for _ in range(count):
                    await app.jobs.aenqueue(TOPIC, PAYLOAD)
                return watch.rate(count)

    async def bare() -> Rate:
        with place.spot() as spot:
            sizes = [1] * (count + WARM_UP)
            return await _abare(spot, [sizes])

    rates = by_turns(plan.rounds, lambda: asyncio.run(ours()), lambda: asyncio.run(bare()))
    return compared(place.name, "enqueue, one caller, async", *rates, floor=ONE_CALLER)


def concurrent(  # noqa: PLR0917 - a case reads as a line
    place: Place, plan: Plan, how: str, callers: int, full: int, floor: Floor | None = None
) -> Result:
    """Measure callers that enqueue one after the other; bare repeats the very batches they had."""
    each = max(2, plan.count(full) // callers)
    run = _threads if how == "threads" else lambda app, n, k: asyncio.run(_tasks(app, n, k))
    ours: list[Rate] = []
    bare: list[Rate] = []
    seen: list[Batch] = []
    for _ in range(plan.rounds):
        with place.spot() as spot:
            app = spot.app()
            with batches() as seen:
                ours.append(run(app, callers, each))
        sizes = [
            [sum(part.items for part in batch) for batch in lane]
            for lane in by_lane([b for b in seen if b.parts[0].name == "enqueue"])
        ]
        with place.spot() as spot:
            if how == "threads" or place.kind == "sqlite":
                bare.append(_bare(spot, sizes))
            else:
                bare.append(asyncio.run(_abare(spot, sizes)))
    what, found = f"enqueue, {callers} {how}", summary(seen)
    return compared(place.name, what, ours, bare, floor=floor, note=_merged(found), details=found)


def _threads(app: App, callers: int, each: int) -> Rate:
    with app:
        app.jobs.enqueue(TOPIC, PAYLOAD)
        gate = Barrier(callers + 1)

        def call() -> None:
            gate.wait()
            for _ in range(each):
                app.jobs.enqueue(TOPIC, PAYLOAD)

        threads = [Thread(target=call) for _ in range(callers)]
        return _timed(threads, gate, callers * each)


async def _tasks(app: App, callers: int, each: int) -> Rate:
    async def call() -> None:
        for _ in range(each):
            await app.jobs.aenqueue(TOPIC, PAYLOAD)

    async with app:
        await asyncio.gather(*(app.jobs.aenqueue(TOPIC, PAYLOAD) for _ in range(WARM_UP)))
        watch = Stopwatch()
        await asyncio.gather(*(call() for _ in range(callers)))
        return watch.rate(callers * each)


def _bare(spot: Any, sizes: list[list[int]]) -> Rate:
    """Enqueue batches of these sizes, those of each lane in a thread and connection of its own."""
    gate = Barrier(len(sizes) + 1)
    threads: list[Thread] = []
    for lane in sizes:
        driver = spot.bare()
        driver.alone(driver.enqueue, driver.prepared(items(1)))
        new = [driver.prepared(items(size)) for size in lane]

        def call(driver: Any = driver, new: list[Any] = new) -> None:
            gate.wait()
            for batch in new:
                driver.alone(driver.enqueue, batch)
            driver.close()

        threads.append(Thread(target=call))
    return _timed(threads, gate, sum(map(sum, sizes)))


async def _abare(spot: Any, sizes: list[list[int]]) -> Rate:
    """Enqueue batches of these sizes, those of each lane in a task and connection of its own."""
    if not isinstance(spot, PostgresSpot):
        return _bare_inline(spot, sizes)
    drivers = [await spot.abare() for _ in sizes]
    new = [
        [driver.prepared(items(size)) for size in lane]
        for driver, lane in zip(drivers, sizes, strict=True)
    ]

    async def call(driver: Any, prepared: list[Any]) -> None:
        for batch in prepared:
            await driver.enqueue(batch)

    for driver in drivers:
        await driver.enqueue(driver.prepared(items(1)))
    watch = Stopwatch()
    await asyncio.gather(*map(call, drivers, new))
    rate = watch.rate(sum(map(sum, sizes)))
    for driver in drivers:
        await driver.close()
    return rate


def _bare_inline(spot: Any, sizes: list[list[int]]) -> Rate:
    driver = spot.bare()
    new = [driver.prepared(items(size)) for lane in sizes for size in lane]
    watch = Stopwatch()
    for batch in new:
        driver.alone(driver.enqueue, batch)
    rate = watch.rate(sum(map(sum, sizes)))
    driver.close()
    return rate


def _timed(threads: list[Thread], gate: Barrier, count: int) -> Rate:
    for thread in threads:
        thread.start()
    gate.wait()
    watch = Stopwatch()
    for thread in threads:
        thread.join()
    return watch.rate(count)


def bulk_against_copy(place: Place, plan: Plan) -> Result:
    """Measure 10,000 jobs in one call, against a COPY of the same rows into the job table."""
    count = plan.count(10_000, 1_000)

    def copy() -> Rate:
        with place.spot() as spot:
            driver = spot.bare()
            schema = spot.settings["schema"]
            now = time.time_ns() // 1_000
            rows = [
                (new["id"], TOPIC, PRIORITY, BODY, "json", new["ttr"], None, now, now)
                for new in items(count)
            ]
            columns = "id, topic, priority, payload, encoding, ttr, options, created_at, run_at"
            watch = Stopwatch()
            with driver.connection.cursor() as cursor:
                text = f'copy "{schema}".job ({columns}) from stdin'
                with cursor.copy(text.encode()) as stream:
                    for row in rows:
                        stream.write_row(row)
            rate = watch.rate(count)
            driver.close()
            return rate

    rates = by_turns(plan.rounds, _bulk(place, count), copy)
    floor = Floor("ratio", ">", 0.25)
    return compared(place.name, f"enqueue_many of {count:,}, bare = COPY", *rates, floor=floor)


def bulk(place: Place, plan: Plan) -> Result:
    """Measure 10,000 jobs in one call, against executemany into the job and ready tables."""
    count = plan.count(10_000, 1_000)

    def executemany() -> Rate:
        with place.spot() as spot:
            driver = spot.bare()
            now = time.time_ns() // 1_000
            jobs = [
                (seq, new["id"].bytes, TOPIC, PRIORITY, BODY, "json", new["ttr"], now, now)
                for seq, new in enumerate(items(count), start=1)
            ]
            tickets = [(seq, TOPIC, PRIORITY) for seq in range(1, count + 1)]
            watch = Stopwatch()
            driver.begin()
            driver.connection.executemany(
                "insert into towpath_job (seq, id, topic, priority, payload, encoding, ttr,"
                " created_at, run_at) values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                jobs,
            )
            driver.connection.executemany(
                "insert into towpath_ready (seq, topic, priority) values (?, ?, ?)", tickets
            )
            driver.commit()
            rate = watch.rate(count)
            driver.close()
            return rate

    rates = by_turns(plan.rounds, _bulk(place, count), executemany)
    return compared(place.name, f"enqueue_many of {count:,}, bare = executemany", *rates)


def _bulk(place: Place, count: int) -> Callable[[], Rate]:
    def ours() -> Rate:
        with place.spot() as spot, spot.app() as app:
            app.jobs.enqueue(TOPIC, PAYLOAD)
            payloads = [PAYLOAD] * count
            watch = Stopwatch()
            jobs = app.jobs.enqueue_many(TOPIC, payloads)
            rate = watch.rate(count)
            assert len(jobs) == count
            return rate

    return ours


def one_enqueue(place: Place, plan: Plan) -> Result:
    """SC-1: Measure how long one enqueue takes."""
    taken: list[float] = []
    with place.spot() as spot, spot.app() as app:
        for _ in range(WARM_UP + plan.count(1_000)):
            start = time.perf_counter()
            app.jobs.enqueue(TOPIC, PAYLOAD)
            taken.append(time.perf_counter() - start)
    found = p50_p99(taken[WARM_UP:])
    return Result(
        database=place.name,
        what="SC-1: one enqueue, p99",
        unit="ms",
        ours=[found["p99_ms"]],
        floor=Floor("ours", "<", 5),
        less_is_better=True,
        note=f"p50 {found['p50_ms']:.2f}",
        details=found,
    )


def _merged(details: dict[str, float]) -> str:
    return f"{details['items_per_commit']:.1f} a commit, {details['lanes']} lanes"
