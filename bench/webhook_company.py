"""Webhooks in hostile company: how much later the events of a healthy receiver arrive."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Sequence

from bench.delivering import PAYLOAD, program, running, settings, until
from bench.places import Place
from bench.rounds import Floor, Plan, Result, p50_p99
from tests.webhooks.hostile import HOSTILE
from tests.webhooks.subscribing import SECOND, subscribe
from towpath import App, NewEvent

EACH = 20  # subscriptions of each kind
EVENTS = 10  # for each of them
MUTE = ".mute.example"


def measure(place: Place, plan: Plan, url: str) -> Iterator[Result]:
    count = plan.count(1_000, 200)
    names = {f"name {n}": f"http://{n}{MUTE}/" for n in range(2)}
    with (
        program("bench.hostile_receivers") as told,
        place.spot() as spot,
        spot.app(**settings()) as app,
    ):
        hostile = json.loads(told) | names
        subscribe(app, url, "healthy")
        for kind, where in hostile.items():
            seconds = 2 if HOSTILE.get(kind, "timeout") == "timeout" else 60
            for _ in range(EACH):
                subscribe(app, where, "hostile", timeout=seconds * SECOND, waits="[]")
        measured = asyncio.run(alone_and_in_company(app, url, count))
    alone, company = map(p50_p99, measured)
    yield Result(
        database=place.name,
        what=f"webhooks: publish to receipt beside {EACH * len(hostile)} hostile receivers, p99",
        unit="ms",
        ours=[company["p99_ms"]],
        bare=[alone["p99_ms"]],
        floor=Floor("ratio", "<", 1.5),
        less_is_better=True,
        note="bare: the same alone",
        details={"alone": alone, "company": company},
    )


def resolve(name: str) -> Sequence[str]:
    if name.endswith(MUTE):
        threading.Event().wait()
    return ["127.0.0.1"]


async def alone_and_in_company(app: App, url: str, count: int) -> tuple[list[float], list[float]]:
    async with running(app, url, resolver=resolve) as sender:

        async def one_by_one() -> list[float]:
            seconds: list[float] = []
            for _ in range(count):
                goal = sender.answers + 1
                start = time.perf_counter()
                await app.events.apublish("healthy", PAYLOAD)
                await until(sender, goal)
                seconds.append(time.perf_counter() - start)
            return seconds

        await asyncio.sleep(1)
        await one_by_one()  # warm
        alone = await one_by_one()
        await app.events.apublish_many("hostile", [NewEvent(PAYLOAD) for _ in range(EVENTS)])
        await asyncio.sleep(1)
        return alone, await one_by_one()
