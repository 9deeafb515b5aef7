"""Webhooks from the publish to the receiver, by the kit: the whole way but for the network."""

import asyncio
import contextlib
import itertools
import sqlite3
import sys

import psycopg
import pytest

from tests.conftest import new_place
from tests.webhooks.receivers import SECRET
from tests.webhooks.subscribing import SECOND, subscribe
from towpath import App
from towpath.app.connect import sqlite_path
from towpath.errors import ExtraMissing
from towpath.model.attempts import AttemptError
from towpath.model.sagas import SagaStatus
from towpath.store import dead_letters, sagas, subscriptions
from towpath.store.dead_letters import Requeue
from towpath.testing import isolated
from towpath.webhooks.running import deliver_due
from towpath.webhooks.sender import WebhookSender


@pytest.fixture(params=["sqlite", "postgres"])
def kit(request, tmp_path):
    url, _ = new_place(request.param, tmp_path, request)
    with App(f"sqlite:///{tmp_path}/real.db") as app, isolated(app, url) as kit:
        yield kit


def connected(kit):
    if kit.url.startswith("sqlite"):
        return contextlib.closing(sqlite3.connect(sqlite_path(kit.url)))
    return psycopg.connect(kit.url)


def statuses(kit):
    return [saga.status for saga in reversed(kit.app.run(sagas.list_sagas(1_000)))]


def test_without_aiohttp_the_kit_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "towpath.webhooks.memory", None)
    with App(f"sqlite:///{tmp_path}/real.db") as app, isolated(app) as kit:
        for verb in (kit.receiver, kit.deliver):
            with pytest.raises(ExtraMissing, match=r"pip install 'towpath\[webhooks\]'"):
                verb()


def test_an_event_is_delivered_once_signed_and_enveloped(kit):
    """WH-2"""
    receiver = kit.receiver()
    subscribe(kit.app, receiver.url, headers={"x-tenant": "7"})
    event = kit.app.events.publish("orders", {"total": 1}, type="order.paid")

    assert kit.deliver() == 1
    assert kit.deliver() == 0

    [request] = receiver.requests
    assert request.payload == {"total": 1}
    assert request.headers["x-tenant"] == "7"
    assert request.verified(SECRET).id == str(event.id)
    assert statuses(kit) == [SagaStatus.COMPLETED]


def test_an_event_of_a_transaction_is_delivered_if_that_commits(kit):
    """WH-11"""
    receiver = kit.receiver()
    subscribe(kit.app, receiver.url)
    with connected(kit) as connection:
        connection.execute("create table orders (item text)")
        for item, end in (("rope", connection.commit), ("sail", connection.rollback)):
            connection.execute(f"insert into orders values ('{item}')")  # noqa: S608 - our own word
            kit.app.events.publish("orders", item, connection=connection)
            end()
            kit.deliver()
        found = connection.execute("select item from orders").fetchall()
        connection.execute("drop table orders")
        connection.commit()

    assert found == [("rope",)]
    assert [each.payload for each in receiver.requests] == ["rope"]


@pytest.mark.parametrize("payload", [{"order": 7}, [1, 2], "text", None])
def test_a_receiver_in_memory_knows_the_payload_with_and_without_an_envelope(kit, payload):
    receivers = {
        body: kit.receiver(f"https://receiver.example/{body}") for body in ("envelope", "payload")
    }
    for body, receiver in receivers.items():
        subscribe(kit.app, receiver.url, body=body)
    kit.app.events.publish("orders", payload)
    kit.deliver()

    for receiver in receivers.values():
        assert [each.payload for each in receiver.requests] == [payload]


def test_a_failed_attempt_is_made_again_and_the_last_one_leaves_a_dead_letter(kit):
    """WH-6, WH-7, WH-8"""
    receiver = kit.receiver()
    subscribe(kit.app, receiver.url, waits=f"[{5 * SECOND}]")
    receiver.answers(503, AttemptError.TIMEOUT)
    kit.app.events.publish("orders", 1)

    assert kit.deliver() == 1
    kit.clock.advance(4)
    assert kit.deliver() == 0
    kit.clock.advance(2)
    assert kit.deliver() == 1
    assert statuses(kit) == [SagaStatus.DEAD_LETTERED]
    [letter] = kit.app.run(dead_letters.list_letters(10))
    assert letter.error_code == "timeout"
    kit.app.run(dead_letters.requeue([Requeue(letter.id, "op")]))

    assert kit.deliver() == 1
    assert statuses(kit) == [SagaStatus.DEAD_LETTERED, SagaStatus.COMPLETED]
    assert len({each.headers["webhook-id"] for each in receiver.requests}) == 1


def test_the_receiver_may_ask_for_a_later_attempt(kit):
    receiver = kit.receiver()
    subscribe(kit.app, receiver.url)
    receiver.answers(429, headers={"retry-after": "60"})
    kit.app.events.publish("orders", 1)
    kit.deliver()

    kit.clock.advance(59)
    assert kit.deliver() == 0
    kit.clock.advance(2)
    assert kit.deliver() == 1


def test_a_410_stops_the_subscription_and_its_events_wait(kit):
    receiver = kit.receiver()
    id = subscribe(kit.app, receiver.url).id
    receiver.answers(410)
    kit.app.events.publish("orders", 1)
    kit.deliver()
    kit.app.events.publish("orders", 2)

    assert kit.deliver() == 0
    assert statuses(kit) == [SagaStatus.DEAD_LETTERED, SagaStatus.HELD]
    kit.app.run(subscriptions.enable(id))
    assert kit.deliver() == 1
    assert [each.payload for each in receiver.requests] == [1, 2]


def test_the_breaker_pauses_a_receiver_that_fails_and_costs_no_attempt(kit):
    receiver = kit.receiver()
    subscribe(kit.app, receiver.url)
    receiver.answers(*[500] * 10)
    for number in range(15):
        kit.app.events.publish("orders", number)

    assert kit.deliver() == 10
    kit.clock.advance(10)
    assert kit.deliver() == 0
    kit.clock.advance(25)
    assert kit.deliver() == 15
    assert statuses(kit) == [SagaStatus.COMPLETED] * 15


def test_what_was_held_is_delivered_in_order(kit):
    receiver = kit.receiver()
    id = subscribe(kit.app, receiver.url, ordered=True).id
    kit.app.run(subscriptions.pause(id))
    for number in range(30):
        kit.app.events.publish("orders", number)

    assert kit.deliver() == 0
    kit.app.run(subscriptions.resume(id))
    receiver.answers(500)
    kit.deliver()
    kit.clock.advance(7)
    kit.deliver()

    assert [each.payload for each in receiver.requests] == [0, *range(30)]


def test_a_rate_holds_at_the_receiver(kit):
    """Check 26."""
    receiver = kit.receiver()
    subscribe(kit.app, receiver.url, pace=SECOND // 10, burst=1)
    for number in range(12):
        kit.app.events.publish("orders", number)

    made = []
    for _ in range(24):
        made.append(kit.deliver())
        kit.clock.advance(0.05)

    assert sum(made) == 12
    assert all(a + b == 1 for a, b in itertools.pairwise(made))


def test_a_subscription_to_system_tells_of_others_but_not_of_itself(kit):
    """Check 36."""
    receiver, pager = kit.receiver(), kit.receiver("https://pager.example/")
    id = subscribe(kit.app, receiver.url, waits="[]").id
    subscribe(kit.app, pager.url, "system", waits="[]")
    receiver.answers(410)
    pager.answers(500)
    event = kit.app.events.publish("orders", 1, type="order.paid")

    for _ in range(3):
        kit.deliver()
        kit.clock.advance(60)

    told = [(each.type, each.payload) for each in kit.published("system")]
    about = {"subscription": id, "channel": "orders", "error": "http_410"}
    dead = {**about, "saga": 1, "event": str(event.id), "type": "order.paid"}
    assert told == [
        ("subscription.stopped", {**about, "percent": 100}),
        ("saga.dead_lettered", dead),
    ]
    assert len(pager.requests) == 2


def test_a_ping_meets_the_guard_of_every_attempt(kit, loop):
    """Check 12; so does what is sent again."""
    id = subscribe(kit.app, "https://inside.example/").id

    def deliver():
        async def delivered():
            async with WebhookSender(resolver=lambda _: ["127.0.0.1"]) as sender:
                return await deliver_due(kit.app, sender)

        return asyncio.run_coroutine_threadsafe(delivered(), loop).result()

    kit.app.webhooks.ping(id)
    assert deliver() == 1
    [letter] = kit.app.webhooks.dead_letters.list()
    kit.app.webhooks.dead_letters.requeue(letter.id)
    assert deliver() == 1

    found = kit.app.run(sagas.list_sagas(10))
    assert [(saga.type, saga.last_error) for saga in found] == [("ping", "blocked_target")] * 2


def test_the_owner_of_a_failing_receiver_is_warned_and_told_of_its_recovery(kit):
    receiver = kit.receiver()
    subscribe(kit.app, receiver.url)
    receiver.answers(*[500] * 7)
    kit.app.events.publish("orders", 1)

    told = {}
    for _ in range(8):
        kit.deliver()
        told |= {each.id: each for each in kit.published("system")}  # which keeps a day
        kit.clock.advance("20h")

    assert [(each.type, each.payload.get("percent")) for each in told.values()] == [
        ("subscription.failing", 50),
        ("subscription.failing", 70),
        ("subscription.failing", 100),  # there is no dead letter, so it is not stopped
        ("subscription.recovered", None),
    ]
