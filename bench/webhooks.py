"""Webhooks: deliveries of all parts in one process against a bare aiohttp loop; time to receipt."""

import asyncio
import time
from collections.abc import Iterator

import aiohttp

from bench import webhook_company, webhook_lines
from bench.bare import items
from bench.delivering import PAYLOAD, delivered, receiver, running, settings, until
from bench.places import Place
from bench.rounds import Floor, Plan, Rate, Result, Stopwatch, by_turns, compared, p50_p99
from tests.webhooks.subscribing import subscribe
from towpath import App, NewEvent

SUBSCRIPTIONS = 50
AT_ONCE = 100  # requests of the bare loop
FLOORS = {"PostgreSQL": 0.4, "SQLite normal": 0.35}
COMMITS, REQUESTS = 4, 2  # that a delivery may take from publish to receipt


def measure(place: Place, plan: Plan) -> Iterator[Result]:
    with receiver() as url:
        yield deliveries(place, plan, url)
        yield to_receipt(place, plan, url)
        if place.name in FLOORS:
            yield from webhook_lines.measure(place, plan, url)
            yield from webhook_company.measure(place, plan, url)


def deliveries(place: Place, plan: Plan, url: str) -> Result:
    count = plan.count(5_000, 500)

    def ours() -> Rate:
        with place.spot() as spot, spot.app(**settings()) as app:
            for _ in range(SUBSCRIPTIONS):
                subscribe(app, url)
            events = [NewEvent(PAYLOAD) for _ in range(count // SUBSCRIPTIONS)]
            app.events.publish_many("orders", events)
            spot.tidy()
            return asyncio.run(delivered(app, url, len(events) * SUBSCRIPTIONS))

    measured = by_turns(plan.rounds, ours, lambda: asyncio.run(posted(url, count)))
    value = FLOORS.get(place.name)
    floor = Floor("ratio", ">", value) if value else None
    what = f"webhooks: {count:,} deliveries to {SUBSCRIPTIONS} subscriptions"
    return compared(place.name, what, *measured, floor=floor, note="bare: an aiohttp loop")


async def posted(url: str, count: int) -> Rate:
    """Post as much by aiohttp alone."""
    left = iter(range(count))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def post() -> None:
            for _ in left:
                async with session.post(url, json=PAYLOAD) as answer:
                    await answer.read()

        watch = Stopwatch()
        await asyncio.gather(*(post() for _ in range(AT_ONCE)))
        return watch.rate(count)


def to_receipt(place: Place, plan: Plan, url: str) -> Result:
    count = plan.count(300)
    with place.spot() as spot:
        bare = spot.bare()
        commits: list[float] = []
        for _ in range(count):
            new = bare.prepared(items(1))
            start = time.perf_counter()
            bare.alone(bare.enqueue, new)
            commits.append(time.perf_counter() - start)
        bare.close()
        requests = asyncio.run(requested(url, count))
        with spot.app(**settings()) as app:
            subscribe(app, url)
            seconds = asyncio.run(one_by_one(app, url, count))
    found, commit, request = map(p50_p99, (seconds, commits, requests))
    return Result(
        database=place.name,
        what="webhooks: from publish to the answer of the receiver, p50",
        unit="ms",
        ours=[found["p50_ms"]],
        bare=[COMMITS * commit["p50_ms"] + REQUESTS * request["p50_ms"]],
        floor=Floor("ratio", "<", 1),
        less_is_better=True,
        note=f"bare: {COMMITS} commits of an insert and {REQUESTS} requests",
        details={"ours": found, "commit": commit, "request": request},
    )


async def requested(url: str, count: int) -> list[float]:
    """Measure single requests by aiohttp alone."""
    seconds: list[float] = []
    async with aiohttp.ClientSession() as session:
        for _ in range(count):
            start = time.perf_counter()
            async with session.post(url, json=PAYLOAD) as answer:
                await answer.read()
            seconds.append(time.perf_counter() - start)
    return seconds


async def one_by_one(app: App, url: str, count: int) -> list[float]:
    seconds: list[float] = []
    async with running(app, url) as sender:
        await asyncio.sleep(1)
        for nth in range(count):
            start = time.perf_counter()
            await app.events.apublish("orders", PAYLOAD)
            await until(sender, nth + 1)
            seconds.append(time.perf_counter() - start)
    return seconds
