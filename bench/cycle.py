"""The way of a job: reserve and complete in batches, and the full cycle from enqueue to done."""

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any

from bench.bare import PAYLOAD, TOPIC, items
from bench.observe import Batch, Part, batches, by_lane, summary
from bench.places import Place, PostgresSpot
from bench.rounds import Floor, Plan, Rate, Result, Stopwatch, by_turns, compared
from towpath import App

SLACK = 500  # jobs that wait, and leases that are held, before a measured cycle begins


def measure(place: Place, plan: Plan) -> Iterator[Result]:
    floor = Floor("ratio", ">", 0.6) if place.kind == "postgres" else None
    yield reserve_and_complete(place, plan, 100, floor)
    yield reserve_and_complete(place, plan, 500, floor)
    yield full_cycle_of_one_caller(place, plan)
    yield full_cycle_of_many_tasks(place, plan, 100)


def reserve_and_complete(place: Place, plan: Plan, batch: int, floor: Floor | None) -> Result:
    count = max(batch * 2, plan.count(20_000) // batch * batch)

    def ours() -> Rate:
        with place.spot() as spot, spot.app() as app:
            _fill(spot, count + batch)
            app.jobs.complete_many(app.jobs.reserve(TOPIC, limit=batch))
            watch = Stopwatch()
            for _ in range(count // batch):
                leases = app.jobs.reserve(TOPIC, limit=batch)
                assert len(leases) == batch
                assert app.jobs.complete_many(leases) == []
            return watch.rate(count)

    def bare() -> Rate:
        with place.spot() as spot:
            _fill(spot, count + batch)
            driver = spot.bare()
            driver.alone(driver.complete, driver.alone(driver.reserve, batch))
            watch = Stopwatch()
            for _ in range(count // batch):
                rows = driver.alone(driver.reserve, batch)
                assert len(driver.alone(driver.complete, rows)) == batch
            rate = watch.rate(count)
            driver.close()
            return rate

    rates = by_turns(plan.rounds, ours, bare)
    what = f"reserve + complete, batches of {batch}"
    return compared(place.name, what, *rates, floor=floor)


def full_cycle_of_one_caller(place: Place, plan: Plan) -> Result:
    count = plan.count(2_000)

    def ours() -> Rate:
        with place.spot() as spot, spot.app() as app:
            _ours_once(app, 20)
            watch = Stopwatch()
            _ours_once(app, count)
            return watch.rate(count)

    def bare() -> Rate:
        with place.spot() as spot:
            driver = spot.bare()
            new = [driver.prepared(items(1)) for _ in range(count + 20)]
            _bare_once(driver, new[:20])
            watch = Stopwatch()
            _bare_once(driver, new[20:])
            rate = watch.rate(count)
            driver.close()
            return rate

    rates = by_turns(plan.rounds, ours, bare)
    return compared(place.name, "full cycle, one caller", *rates)


def _ours_once(app: App, count: int) -> None:
    for _ in range(count):
        app.jobs.enqueue(TOPIC, PAYLOAD)
        [lease] = app.jobs.reserve(TOPIC)
        app.jobs.complete(lease)


def _bare_once(driver: Any, new: list[Any]) -> None:
    for one in new:
        driver.alone(driver.enqueue, one)
        rows = driver.alone(driver.reserve, 1)
        assert len(driver.alone(driver.complete, rows)) == 1


def full_cycle_of_many_tasks(place: Place, plan: Plan, tasks: int) -> Result:
    """Measure tasks that each do one cycle after another; bare repeats the very batches."""
    each = max(2, plan.count(6_000) // tasks)
    ours: list[Rate] = []
    bare: list[Rate] = []
    seen: list[Batch] = []
    for _ in range(plan.rounds):
        with place.spot() as spot:
            _fill(spot, SLACK)
            with batches() as seen:
                ours.append(asyncio.run(_cycling(spot.app(), tasks, each)))
        lanes = by_lane([b for b in seen if b.parts[0].name in {"enqueue", "reserve", "complete"}])
        with place.spot() as spot:
            _fill(spot, 2 * SLACK)
            bare.append(asyncio.run(_repeating(spot, lanes, tasks * each)))
    details = summary(seen)
    note = f"{details['items_per_commit']:.1f} verbs a commit, {details['lanes']} lanes"
    what = f"full cycle, {tasks} tasks"
    return compared(place.name, what, ours, bare, note=note, details=details)


async def _cycling(app: App, tasks: int, each: int) -> Rate:
    async def call() -> None:
        for _ in range(each):
            await app.jobs.aenqueue(TOPIC, PAYLOAD)
            [lease] = await app.jobs.areserve(TOPIC)
            await app.jobs.acomplete(lease)

    async with app:
        await app.amigrate()
        watch = Stopwatch()
        await asyncio.gather(*(call() for _ in range(tasks)))
        return watch.rate(tasks * each)


async def _repeating(spot: Any, lanes: list[list[list[Part]]], count: int) -> Rate:
    """Do the same batches by hand, those of each lane in a task and connection of its own."""
    if not isinstance(spot, PostgresSpot):
        return _repeating_inline(spot, lanes, count)
    drivers = [await spot.abare() for _ in lanes]
    leases = deque(await drivers[0].reserve(SLACK))
    work = [
        [
            [(p, d.prepared(items(p.items)) if p.name == "enqueue" else None) for p in b]
            for b in lane
        ]
        for d, lane in zip(drivers, lanes, strict=True)
    ]
    watch = Stopwatch()
    await asyncio.gather(
        *(_repeat(driver, lane, leases) for driver, lane in zip(drivers, work, strict=True))
    )
    rate = watch.rate(count)
    for driver in drivers:
        await driver.close()
    return rate


async def _repeat(driver: Any, lane: list[list[tuple[Part, Any]]], leases: deque[Any]) -> None:
    for batch in lane:
        if len(batch) > 1:
            await driver.begin()
        for part, prepared in batch:
            if part.name == "enqueue":
                await driver.enqueue(prepared)
            elif part.name == "reserve":
                leases.extend(await driver.reserve(1))
            else:
                await driver.complete([leases.popleft() for _ in range(part.items)])
        if len(batch) > 1:
            await driver.commit()


def _repeating_inline(spot: Any, lanes: list[list[list[Part]]], count: int) -> Rate:
    driver = spot.bare()
    leases = deque(driver.alone(driver.reserve, SLACK))
    work = [
        [(p, driver.prepared(items(p.items)) if p.name == "enqueue" else None) for p in batch]
        for lane in lanes
        for batch in lane
    ]
    watch = Stopwatch()
    for batch in work:
        driver.begin()
        for part, prepared in batch:
            if part.name == "enqueue":
                driver.enqueue(prepared)
            elif part.name == "reserve":
                leases.extend(driver.reserve(1))
            else:
                driver.complete([leases.popleft() for _ in range(part.items)])
        driver.commit()
    rate = watch.rate(count)
    driver.close()
    return rate


def _fill(spot: Any, count: int) -> None:
    """Let this many jobs wait."""
    driver = spot.bare()
    for size in [1_000] * (count // 1_000) + [count % 1_000]:
        if size:
            driver.alone(driver.enqueue, driver.prepared(items(size)))
    driver.close()
    spot.tidy()
