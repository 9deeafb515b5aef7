"""Webhooks in hostile company, from the event to the end: no receiver harms the others."""

import asyncio
import contextlib
from collections import Counter
from pathlib import Path

import pytest

from tests.behaviour.webhooks import Webhooks
from tests.faults.processes import until
from tests.webhooks.hostile import HOSTILE, hostile_receivers, silent
from tests.webhooks.receivers import PATIENT, always_ok, receiver
from tests.webhooks.subscribing import SECOND, subscribe
from towpath import App, NewEvent
from towpath.model.sealing import new_key

EACH = 5  # subscriptions of each kind
NAMES = 20  # that are never resolved
HEALTHY = 200  # events
SLOTS = 200  # of a worker
MANY = SLOTS + 20  # silent subscriptions
MOST_GROWTH = 64 * 2**20
LARGE = "x" * 1_000_000
MUTE = ".mute.example"


@pytest.fixture
def place(place):
    url, needed = place
    key = new_key()
    return url, {**needed, "webhook_key": key, "webhook_allow": "127.0.0.0/8", "webhook_http": True}


@pytest.fixture
def hooks(place):
    url, needed = place
    with App(url, **needed) as app:
        yield Webhooks(app)


def most_memory(program):
    """Return the most memory that a process ever had."""
    lines = Path(f"/proc/{program.pid}/status").read_text().splitlines()
    [found] = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return int(found) * 1024


def test_hostile_receivers_neither_stop_others_nor_fill_the_memory(hooks, start):
    """Check 25: while they hold their slots, every event of a healthy receiver arrives."""
    asyncio.run(company(hooks, start))


def test_silent_receivers_hold_one_slot_each_and_prompt_ones_do_not_wait(hooks, start):
    """Check 25: though they are more than a worker has slots, and have much to get."""
    asyncio.run(silence(hooks, start))


async def silence(hooks, start):
    app = hooks.app
    async with receiver(always_ok) as healthy, receiver(silent) as mute:
        subscribe(app, healthy.url("healthy.example"), "healthy")
        program = start("deliver", mute=MUTE)
        program.hear()
        await arrived(app, healthy, 1)
        await until_told(lambda: count(hooks, "subscription_health where prompt > 0"))
        for _ in range(MANY):
            subscribe(app, mute.url(), "silent", timeout=10 * PATIENT * SECOND)
        events = [NewEvent(each) for each in range(10)]
        await asyncio.to_thread(app.events.publish_many, "silent", events)
        await until(lambda: len(mute.requests) == SLOTS * 3 // 4)
        for _ in range(5):
            await arrived(app, healthy, HEALTHY // 5)
        assert mute.connections == len(mute.requests) == SLOTS * 3 // 4
    program.kill_alive()


async def company(hooks, start):
    app, ends = hooks.app, {}

    def make(url, channel, error, seconds):
        made = subscribe(app, url, channel, timeout=seconds * SECOND, waits="[]")
        ends[made.id] = error

    async with contextlib.AsyncExitStack() as stack:
        healthy = await stack.enter_async_context(receiver(always_ok))
        hostile = await stack.enter_async_context(hostile_receivers())
        subscribe(app, healthy.url("healthy.example"), "healthy")
        program = start("deliver", mute=MUTE)
        program.hear()
        await arrived(app, healthy, 20)
        before = most_memory(program)

        for kind, error in HOSTILE.items():
            seconds = 1 if error == "timeout" else PATIENT
            for _ in range(EACH):
                channel = "large" if kind in {"unread", "early"} else "hostile"
                make(hostile[kind].url(), channel, error, seconds)
        for number in range(NAMES):
            make(f"http://{number}{MUTE}/", "hostile", "timeout", 1)
        for _ in range(EACH):  # until the healthy ones have arrived
            subscribe(app, hostile["silent"].url(), "hostile", timeout=10 * PATIENT * SECOND)
        await asyncio.to_thread(app.events.publish, "hostile", 1)
        await asyncio.to_thread(app.events.publish, "large", LARGE)
        await until_told(
            lambda: count(hooks, "webhook_delivery_jobs where status = 'Leased'") >= EACH
        )
        await arrived(app, healthy, HEALTHY)
        assert count(hooks, "webhook_delivery_jobs where status = 'Leased'") >= EACH
        await until_told(lambda: len(ended(hooks, ends)) == len(ends))
        grown = most_memory(program) - before

    assert ended(hooks, ends) == ends
    assert grown < MOST_GROWTH
    assert (
        Counter(each.headers["webhook-id"] for each in healthy.requests).most_common(1)[0][1] == 1
    )
    program.kill_alive()


async def arrived(app, healthy, number):
    """Publish, and wait for all of it at the receiver."""
    goal = len(healthy.requests) + number
    events = [NewEvent(each) for each in range(number)]
    await asyncio.to_thread(app.events.publish_many, "healthy", events)
    await until(lambda: len(healthy.requests) >= goal)


async def until_told(condition):
    """Wait for what the database tells; the receivers go on meanwhile."""
    async with asyncio.timeout(120):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - only a look can tell
            await asyncio.sleep(0.05)


def count(hooks, what):
    return hooks.sql(f"select count(*) from towpath.{what}")[0][0]  # noqa: S608 - our own words


def ended(hooks, ids):
    """Return how the deliveries to these subscriptions have ended, by their last errors."""
    rows = hooks.sql(
        "select subscription_id, last_error from towpath.sagas where finished_at is not null"
    )
    return {id: error for id, error in rows if id in ids}
