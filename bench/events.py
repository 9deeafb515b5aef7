"""Events: publish by one and by eight, replay, the time to a subscriber, and WebSockets."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench import live
from bench.bare import BODY, PAYLOAD, BarePostgres
from bench.child import CALLERS, CHANNEL
from bench.places import Place
from bench.processes import PROCESSES, together
from bench.rounds import Floor, Plan, Rate, Result, Stopwatch, by_turns, compared, p50_p99
from towpath import App, NewEvent
from towpath.database import sqlite
from towpath.database.clock import machine_clock
from towpath.database.postgres import bound, rendered
from towpath.model.cursor import START
from towpath.model.ids import uuid7
from towpath.statement import Query, Row
from towpath.store import events as log
from towpath.store import reading
from towpath.store.event_rows import EventBody

WARM_UP = 20
PAGE = 1_000


def measure(place: Place, plan: Plan) -> Iterator[Result]:
    one = one_publisher(place, plan)
    yield one
    eight = publishers(place, plan, 1)
    yield Result(
        database=place.name,
        what="publish, 8 tasks on one channel against one caller",
        unit="x",
        ours=[eight.best / one.best],
        floor=Floor("ours", ">", 5) if place.kind == "postgres" else None,
        note=f"{eight.best:,.0f}/s",
    )
    yield batched(place, plan)
    spread = publishers(place, plan, CALLERS)
    yield Result(
        database=place.name,
        what="publish, 8 tasks on 8 channels against one channel",
        unit="x",
        ours=[spread.best / eight.best],
        floor=Floor("ours", ">", 1.0),
        note=f"{spread.best:,.0f}/s",
    )
    yield processes(place, plan)
    yield replay(place, plan)
    yield until_heard(place, plan)
    yield from live.measure(place, plan)


def one_publisher(place: Place, plan: Plan) -> Result:
    count = plan.count(3_000)

    def ours() -> Rate:
        with place.spot() as spot, spot.app() as app:
            for _ in range(WARM_UP):
                app.events.publish(CHANNEL, PAYLOAD)
            watch = Stopwatch()
            for _ in range(count):
                app.events.publish(CHANNEL, PAYLOAD)
            return watch.rate(count)

    def bare() -> Rate:
        with place.spot() as spot:
            with spot.app() as app:
                app.events.publish(CHANNEL, PAYLOAD)
            driver = spot.bare()
            run = _statement(driver, spot)
            queries = [log.sql.publish([_item()]) for _ in range(count + WARM_UP)]
            for query in queries[:WARM_UP]:
                driver.alone(run, query)
            watch = Stopwatch()
            for query in queries[WARM_UP:]:
                driver.alone(run, query)
            rate = watch.rate(count)
            driver.close()
            return rate

    rates = by_turns(plan.rounds, ours, bare)
    floor = Floor("ratio", ">", 0.7)
    return compared(place.name, "publish, one caller, blocking", *rates, floor=floor)


def publishers(place: Place, plan: Plan, channels: int) -> Result:
    rates = [asyncio.run(_by_tasks(place, plan, channels)) for _ in range(plan.rounds)]
    return compared(place.name, f"publish, 8 tasks, {channels} channels", rates, [])


async def _by_tasks(place: Place, plan: Plan, channels: int) -> Rate:
    each = plan.count(10_000) // CALLERS
    with place.spot() as spot:
        async with spot.app() as app:
            names = [f"{CHANNEL}:{n % channels}" for n in range(CALLERS)]
            for name in names:
                await app.events.apublish(name, PAYLOAD)

            async def call(name: str) -> None:
                for _ in range(each):
                    await app.events.apublish(name, PAYLOAD)

            watch = Stopwatch()
            await asyncio.gather(*map(call, names))
            return watch.rate(CALLERS * each)


def batched(place: Place, plan: Plan) -> Result:
    """Publish by eight tasks; bare has one statement and one commit for eight events."""
    count = plan.count(10_000) // CALLERS

    def ours() -> Rate:
        return asyncio.run(_by_tasks(place, plan, 1))

    def bare() -> Rate:
        with place.spot() as spot:
            with spot.app() as app:
                app.events.publish(CHANNEL, PAYLOAD)
            driver = spot.bare()
            run = _statement(driver, spot)
            watch = Stopwatch()
            for _ in range(count):
                driver.alone(run, log.sql.publish([_item(nth) for nth in range(CALLERS)]))
            rate = watch.rate(count * CALLERS)
            driver.close()
            return rate

    rates = by_turns(plan.rounds, ours, bare)
    what = "publish, 8 tasks on one channel against batches of 8"
    floor = Floor("ratio", ">", 0.6) if place.kind == "postgres" else None
    return compared(place.name, what, *rates, floor=floor)


def processes(place: Place, plan: Plan) -> Result:
    """Publish to one channel by eight tasks in each of four processes, and in one."""
    seconds = max(1.0, 5.0 * plan.scale)

    def rate(count: int) -> float:
        children = together(place, "publish", seconds, count)
        return sum(child["events"] for child in children) / seconds

    measured = [(rate(PROCESSES), rate(1)) for _ in range(plan.rounds)]
    four, one = (max(rates) for rates in zip(*measured, strict=True))
    return Result(
        database=place.name,
        what=f"publish, {PROCESSES} processes on one channel against one process",
        unit="x",
        ours=[four / one],
        floor=Floor("ours", ">", 0.8),
        note=f"{four:,.0f}/s, one {one:,.0f}/s",
    )


def replay(place: Place, plan: Plan) -> Result:
    """Read a channel from its beginning, page by page; bare fetches the rows of each page."""
    count = plan.count(20_000, PAGE)

    def filled(app: App) -> None:
        for _ in range(0, count, PAGE):
            app.events.publish_many(CHANNEL, [NewEvent(PAYLOAD)] * PAGE)

    def ours() -> Rate:
        with place.spot() as spot, spot.app() as app:
            filled(app)
            watch = Stopwatch()
            after, seen = None, 0
            while seen < count:
                page = app.events.read(CHANNEL, after)
                after, seen = page.cursor, seen + len(page.events)
            return watch.rate(seen)

    def bare() -> Rate:
        with place.spot() as spot:
            with spot.app() as app:
                filled(app)
            driver = spot.bare()
            run = _statement(driver, spot)
            watch = Stopwatch()
            seen = 0
            while seen < count:
                asked = {"nth": 0, "name": CHANNEL, "most": PAGE, "most_bytes": 2**20}
                seen += len(run(reading.sql.read([{**asked, "after": START.seq + seen}])))
            rate = watch.rate(seen)
            driver.close()
            return rate

    rates = by_turns(plan.rounds, ours, bare)
    return compared(place.name, "replay", *rates, floor=Floor("ratio", ">", 0.5))


def until_heard(place: Place, plan: Plan) -> Result:
    """Measure from the call of a publish by one app to the subscriber of another."""
    count = plan.count(300)

    async def run() -> list[float]:
        taken: list[float] = []
        with place.spot() as spot:
            async with spot.app() as one, spot.app() as other:
                subscription = await other.events.follow(CHANNEL)
                for n in range(count + WARM_UP):
                    start = time.perf_counter()
                    await one.events.apublish(CHANNEL, n)
                    while (await subscription.next()).page.events[-1].payload != n:
                        pass
                    taken.append(time.perf_counter() - start)
                    await asyncio.sleep(0.005)
                subscription.close()
        return taken[WARM_UP:]

    found = p50_p99(asyncio.run(run()))
    return Result(
        database=place.name,
        what="publish to a subscriber of another app, p50",
        unit="ms",
        ours=[found["p50_ms"]],
        floor=Floor("ours", "<", 10),
        less_is_better=True,
        note=f"p99 {found['p99_ms']:.2f}",
        details=found,
    )


def _item(nth: int = 0) -> dict[str, Any]:
    event = EventBody(id=uuid7(), body=BODY, encoding="json", size=len(BODY))
    return event.as_item(nth=nth, place=nth, name=CHANNEL, media=None)


def _statement(driver: Any, spot: Any) -> Callable[[Query[Any]], list[Row]]:
    """Return what runs a query over a bare driver."""
    if isinstance(driver, BarePostgres):
        schema = spot.settings["schema"]

        def execute(query: Query[Any]) -> list[Row]:
            text = rendered(query.statement, schema)
            return list(driver.connection.execute(text, bound(query, None)).fetchall())

        return execute
    return lambda query: sqlite.execute(driver.connection.cursor(), query, machine_clock())
