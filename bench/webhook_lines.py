"""Webhooks beside long lines and many subscriptions, against the same without them; their WAL."""

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import psycopg

from bench.delivering import PAYLOAD, delivered, line_up, run, running, settings, until
from bench.places import Place, PostgresPlace
from bench.rounds import Floor, Plan, Rate, Result, by_turns, compared
from bench.wal import EXACT, position
from tests.servers import PostgresServer
from tests.webhooks.subscribing import subscribe
from towpath import App, NewEvent

NOWHERE = "http://127.0.0.1:1/"
BODY = json.dumps(PAYLOAD)
FAN_OUT = 20
UNFINISHED = "select count(*) from towpath.sagas where finished_at is null"


def measure(place: Place, plan: Plan, url: str) -> Iterator[Result]:
    yield beside_a_dead_one(place, plan, url)
    yield in_long_lines(place, plan, url)
    yield idle(place, plan, url)
    if place.kind == "postgres":
        yield wal(plan, url)


def beside_a_dead_one(place: Place, plan: Plan, url: str) -> Result:
    count, waiting, others = plan.count(5_000, 500), plan.count(100_000), 50
    with place.spot() as full, place.spot() as empty:
        apps = [spot.app(**settings()) for spot in (full, empty)]
        for app in apps:
            for _ in range(others):
                subscribe(app, url)
        subscribe(apps[0], NOWHERE, "dead")
        line_up(apps[0], "dead", waiting, "1")
        full.tidy()
        empty.tidy()

        def deliver(app: App) -> Rate:
            events = [NewEvent(PAYLOAD) for _ in range(count // others)]
            app.events.publish_many("orders", events)
            return asyncio.run(delivered(app, url, len(events) * others))

        turns = by_turns(plan.rounds, lambda: deliver(apps[0]), lambda: deliver(apps[1]))
        _close(apps)
    what = f"webhooks: {count:,} deliveries beside a dead subscription with {waiting:,} waiting"
    note = "bare: the same without it"
    return compared(place.name, what, *turns, floor=Floor("ratio", ">", 0.9), note=note)


def in_long_lines(place: Place, plan: Plan, url: str) -> Result:
    count, subscriptions = plan.count(5_000, 500), plan.count(1_000)
    each = plan.count(1_000)
    with place.spot() as full, place.spot() as empty:
        apps = [spot.app(**settings()) for spot in (full, empty)]
        short = 1 + 2 * count * plan.rounds // subscriptions  # more than are counted are under way
        for app, events in zip(apps, (each, short), strict=True):
            for _ in range(subscriptions):
                subscribe(app, url)
            line_up(app, "orders", events, BODY)
        full.tidy()
        empty.tidy()

        def deliver(app: App) -> Rate:
            return asyncio.run(delivered(app, url, count))

        turns = by_turns(plan.rounds, lambda: deliver(apps[0]), lambda: deliver(apps[1]))
        _close(apps)
    what = f"webhooks: {count:,} deliveries of {each * subscriptions:,} that wait"
    note = f"bare: of {short * subscriptions:,}; in {subscriptions:,} subscriptions"
    return compared(place.name, what, *turns, floor=Floor("ratio", ">", 0.8), note=note)


def idle(place: Place, plan: Plan, url: str) -> Result:
    """Measure the CPU of this process and of the server while nothing happens."""
    count, seconds = plan.count(10_000), 20 * max(plan.scale, 0.25)
    with place.spot() as spot, spot.app(**settings()) as app:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda nth: subscribe(app, url, f"c{nth % 100}"), range(count)))
        spot.tidy()
        used = asyncio.run(cpu_of_rest(app, url, seconds, place))
    return Result(
        database=place.name,
        what=f"webhooks: {count:,} idle subscriptions, of one core",
        unit="%",
        ours=[100 * used / seconds],
        floor=Floor("ours", "<", 1),
        less_is_better=True,
        note=f"all parts and upkeep, with the server; {seconds:.0f} s",
    )


async def cpu_of_rest(app: App, url: str, seconds: float, place: Place) -> float:
    async with running(app, url):
        await asyncio.sleep(3)
        before = _cpu(place)
        await asyncio.sleep(seconds)
        return _cpu(place) - before


def _cpu(place: Place) -> float:
    used = time.process_time()
    if isinstance(place, PostgresPlace):
        server = psutil.Process(place.server.pid)
        for each in [server, *server.children(recursive=True)]:
            times = each.cpu_times()
            used += times.user + times.system
    return used


def wal(plan: Plan, url: str) -> Result:
    """Count what is written from publish to the end of each saga."""
    count = plan.count(2_000, 400)
    with (
        PostgresServer(EXACT) as server,
        PostgresPlace(server).spot() as spot,
        spot.app(**settings()) as app,
        psycopg.connect(spot.url, autocommit=True) as log,
    ):
        for _ in range(FAN_OUT):
            subscribe(app, url)
        ours = asyncio.run(_written(app, url, count, log))
    return Result(
        database="PostgreSQL",
        what=f"webhooks: WAL per delivery of 1 KB, fan-out {FAN_OUT}",
        unit="B",
        ours=[ours],
        floor=Floor("ours", "<", 5_000),
        less_is_better=True,
        note="from publish to the end of the saga",
    )


async def _written(app: App, url: str, count: int, log: psycopg.Connection[Any]) -> float:
    async with running(app, url) as sender:

        async def deliver(deliveries: int) -> None:
            goal = sender.answers + deliveries
            events = [NewEvent(PAYLOAD) for _ in range(deliveries // FAN_OUT)]
            await app.events.apublish_many("orders", events)
            await until(sender, goal)
            while run(app, {"any": UNFINISHED}) != [(0,)]:  # noqa: ASYNC110 - only a look can tell
                await asyncio.sleep(0.05)

        await deliver(10 * FAN_OUT)  # so that the first pages are not counted
        before = position(log)
        await deliver(count)
        return (position(log) - before) / count


def _close(apps: list[App]) -> None:
    for app in apps:
        app.close()
