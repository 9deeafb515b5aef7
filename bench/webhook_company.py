"""Webhooks in hostile company: how much later the events of a healthy receiver arrive.

They are published at a steady rate, whether those before have arrived or not, and each is measured
from the instant at which it was to be published: a stall counts for all events that it delays.
A few hostile receivers of each kind, and many silent ones, cost little work, so they are compared
with none. Many hostile ones are compared with as many prompt ones, whose deliveries are as many:
both keep the machine busy.
"""

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Sequence
from uuid import UUID

from bench.delivering import PAYLOAD, Counting, program, running, settings, until
from bench.places import Place
from bench.rounds import Floor, Plan, Result, p50_p99
from tests.webhooks.hostile import HOSTILE
from tests.webhooks.subscribing import SECOND, subscribe
from towpath import App, NewEvent

FEW = 2  # subscriptions of each kind
MANY = 20  # likewise
SILENT = 40  # that take requests and never answer
EVENTS = 10  # for each of them
EVERY = 0.02  # seconds from one event of the healthy receiver to the next
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
        few, many = FEW * len(hostile), MANY * len(hostile)
        subscribe(app, url, "healthy")
        for nth in range(many):
            subscribe(app, f"{url}/{nth}", "prompt")
        for _ in range(SILENT):
            subscribe(app, hostile["silent"], "silent", timeout=5 * SECOND, waits="[]")
        for kind, where in hostile.items():
            seconds = 2 if HOSTILE.get(kind, "timeout") == "timeout" else 60
            for channel, each in (("few", FEW), ("hostile", MANY)):
                for _ in range(each):
                    subscribe(app, where, channel, timeout=seconds * SECOND, waits="[]")
        found = asyncio.run(in_company(app, url, count))
    details = {company: p50_p99(seconds) for company, seconds in found.items()}
    for company, beside, bare, note in (
        ("few", f"{few} hostile", "alone", "the same alone"),
        ("silent", f"{SILENT} silent", "alone", "the same alone"),
        ("hostile", f"{many} hostile", "prompt", "beside as many prompt ones"),
    ):
        yield Result(
            database=place.name,
            what=f"webhooks: publish to receipt beside {beside} receivers, p99",
            unit="ms",
            ours=[details[company]["p99_ms"]],
            bare=[details[bare]["p99_ms"]],
            floor=Floor("ratio", "<", 1.5),
            less_is_better=True,
            note=f"bare: {note}; an event every {EVERY * 1e3:g} ms, {EVENTS} at once for others",
            details=details,
        )


def resolve(name: str) -> Sequence[str]:
    if name.endswith(MUTE):
        threading.Event().wait()
    return ["127.0.0.1"]


async def in_company(app: App, url: str, count: int) -> dict[str, list[float]]:
    """Measure alone, and after events for each company: prompt receivers cost as much work."""
    found: dict[str, list[float]] = {}
    async with running(app, url, resolver=resolve) as sender:
        await asyncio.sleep(1)
        await steadily(app, sender, 100)  # warm
        for company in ("alone", "few", "silent", "prompt", "hostile"):
            await app.events.apublish_many(company, [NewEvent(PAYLOAD) for _ in range(EVENTS)])
            found[company] = await steadily(app, sender, count)
    return found


async def steadily(app: App, sender: Counting, count: int) -> list[float]:
    """Publish at a steady rate; return the seconds to each receipt."""
    goal = sender.answers + count
    sent: dict[UUID, float] = {}

    async def publish(at: float) -> None:
        await asyncio.sleep(at - time.perf_counter())
        sent[(await app.events.apublish("healthy", PAYLOAD)).id] = at

    start = time.perf_counter()
    await asyncio.gather(*(publish(start + nth * EVERY) for nth in range(count)))
    await until(sender, goal)
    return [sender.answered[event] - at for event, at in sent.items()]
