"""Many publishers, half of them in their own transactions: exactly what commits is routed."""

import contextlib
import random
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psycopg
import pytest

from tests.behaviour.webhooks import Webhooks
from tests.conftest import new_place
from tests.webhooks.subscribing import subscribe
from towpath import App
from towpath.app.connect import sqlite_path
from towpath.model.sealing import new_key

PUBLISHERS = 8
EACH = 15


@pytest.fixture(params=["sqlite", "postgres"])
def app(request, tmp_path):
    url, needed = new_place(request.param, tmp_path, request)
    with App(url, webhook_key=new_key(), busy_timeout=60, **needed) as app:
        yield app


def connected(app):
    if app.url.startswith("sqlite"):
        return contextlib.closing(sqlite3.connect(sqlite_path(app.url), timeout=60))
    return psycopg.connect(app.url)


def publish(app, who):
    """Publish, every other publisher in transactions that take their time; tell what is kept."""
    dice = random.Random(who)  # noqa: S311 - chance, not secrets
    kept = []
    if who % 2:
        for number in range(EACH):
            kept.append(app.events.publish("orders", [who, number]).id)
            time.sleep(dice.random() / 100)
        return kept
    with connected(app) as connection:
        for number in range(EACH):
            event = app.events.publish("orders", [who, number], connection=connection)
            time.sleep(dice.random() / 100)
            if dice.random() < 0.3:
                connection.rollback()
            else:
                connection.commit()
                kept.append(event.id)
    return kept


def test_each_event_that_is_committed_becomes_one_saga_of_each_subscription(app):
    """Check 40, WH-11, EV-1: events times subscriptions; a later one gets what is later."""
    hooks = Webhooks(app)
    early = [subscribe(app, "https://receiver.example/").id for _ in range(2)]
    with ThreadPoolExecutor(PUBLISHERS) as threads:
        publishing = [threads.submit(partial(publish, app, who)) for who in range(PUBLISHERS)]
        while not any(each.done() for each in publishing):
            hooks.route()
        late = subscribe(app, "https://receiver.example/").id
        since = app.events.position("orders")
        while not all(each.done() for each in publishing):
            hooks.route()
        kept = {event for each in publishing for event in each.result()}
    hooks.route()

    made = {(saga.subscription, saga.event) for saga in hooks.sagas()}
    assert len(made) == len(hooks.sagas())
    for id in early:
        assert {event for subscription, event in made if subscription == id} == kept
    later = {event for subscription, event in made if subscription == late}
    after = {event.id for event in app.events.read("orders", since, limit=1_000).events}
    assert after <= later <= kept
    [(began,)] = hooks.sql("select since from towpath.subscriptions where id = :id", id=late)
    every = app.events.read("orders", limit=1_000).events
    assert later == {event.id for nth, event in enumerate(every, 1) if nth > began}
