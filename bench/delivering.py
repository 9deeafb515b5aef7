"""Webhooks that are being delivered: a receiver in its own process, and all parts in this one."""

import asyncio
import contextlib
import logging
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID

from bench.rounds import Rate, Stopwatch
from towpath import App
from towpath.model.sealing import new_key
from towpath.operation import Operation
from towpath.statement import Statement
from towpath.webhooks.running import Deliveries
from towpath.webhooks.sender import WebhookSender

PAYLOAD = {"text": "x" * 1_000}
OURS: dict[str, Any] = {"webhook_allow": "127.0.0.0/8", "webhook_http": True}
NUMBERS = """(with recursive numbers(n) as
    (select 1 union all select n + 1 from numbers where n < {}) select n from numbers)"""


def settings() -> dict[str, Any]:
    """Return what an app needs to deliver to this machine."""
    return {**OURS, "webhook_key": new_key()}


@contextlib.contextmanager
def program(module: str) -> Iterator[str]:
    """Run a program that listens; return the line that it prints."""
    process = subprocess.Popen([sys.executable, "-m", module], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def receiver() -> Iterator[str]:
    """Return the URL of a receiver that answers at once."""
    with program("bench.hook_receiver") as port:
        yield f"http://127.0.0.1:{port}/hook"


class Counting(WebhookSender):
    """Sends over the network, and counts the answers of one URL."""

    answers = 0
    url = ""
    news: asyncio.Event
    answered: dict[UUID, float]  # events, and when

    async def send(self, request: Any) -> Any:
        outcome = await super().send(request)
        if request.url == self.url:
            assert outcome.error_code is None, outcome
            self.answers += 1
            self.answered[request.event] = time.perf_counter()
            self.news.set()
        return outcome


@contextlib.asynccontextmanager
async def running(app: App, url: str, **options: Any) -> AsyncIterator[Counting]:
    """Deliver; what sends is returned. It counts the answers of a URL."""
    sender = Counting.of(app.settings, **options)
    sender.news, sender.url, sender.answered = asyncio.Event(), url, {}
    logging.getLogger("towpath").setLevel(logging.ERROR)  # receivers fail here on purpose
    found = Deliveries(app, sender=lambda _: sender)
    task = asyncio.create_task(found.arun())
    try:
        yield sender
    finally:
        found.stop()
        await task


async def until(sender: Counting, count: int) -> None:
    while sender.answers < count:
        sender.news.clear()
        await sender.news.wait()


async def delivered(app: App, url: str, count: int) -> Rate:
    """Measure how fast so many deliveries are made."""
    async with running(app, url) as sender:
        watch = Stopwatch()
        await until(sender, count)
        return watch.rate(count)


def line_up(app: App, channel: str, events: int, payload: str) -> None:
    """Store sagas that wait, past the router: of each subscription of a channel and each event."""
    new = "insert into towpath.webhook_events (channel, seq, at, event, encoding, payload)"
    row = " select 0, n, 0, {}, 'json', cast(:payload as text) from {}"
    texts: dict[str, str] = {
        "sqlite": new + row.format("randomblob(16)", NUMBERS.format(events)),
        "postgres": new + row.format("gen_random_uuid()", f"generate_series(1, {events}) n"),
    }
    run(app, texts, payload=payload)
    run(
        app,
        {
            "any": """
insert into towpath.sagas (event_id, subscription_id, attempt_count, replay_no, created_at,
                           next_attempt_at, cancel_requested, status)
select e.id, u.id, 0, 0, 0, 0, false, 'Pending'
  from towpath.webhook_events e cross join towpath.subscriptions u
 where e.channel = 0 and u.channel = :channel and e.payload = :payload
 order by e.id, u.id"""
        },
        channel=channel,
        payload=payload,
    )
    run(app, {"any": "update towpath.subscription_health set wakes_at = 0"})


def run(app: App, texts: dict[str, str], **params: Any) -> list[Any]:
    """Run a statement past the operations."""

    def steps() -> Any:
        return (yield Statement("bench", texts)(**params))

    return app.run(Operation("bench", steps))
