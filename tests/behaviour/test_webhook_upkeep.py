"""Upkeep of webhooks: what is old goes, quickly enough, and leaves nothing behind."""

import pytest

from tests.behaviour.webhooks import Webhooks
from towpath.app import webhook_upkeep as rounds
from towpath.model.sealing import new_key
from towpath.store import webhook_upkeep


@pytest.fixture
def app(make_app, clock, colour):
    return colour(make_app(clock=clock, webhook_key=new_key()))


@pytest.fixture
def hooks(app):
    return Webhooks(app)


def events_left(hooks):
    return hooks.sql("select count(*) from towpath.webhook_events")[0][0]


def test_an_event_that_two_prunes_have_left_over_goes(hooks, monkeypatch):
    monkeypatch.setattr(webhook_upkeep, "AT_ONCE", 2)
    hooks.create()
    hooks.publish(1, 2, 3, 4, 5)
    hooks.deliver()
    hooks.sql("delete from towpath.webhook_delivery_jobs where saga_id <> 3")
    hooks.sql("delete from towpath.sagas where id <> 3")  # as if each saw a saga of the other

    upto = 0
    while upto := hooks.run(webhook_upkeep.prune_events(upto)):
        pass

    assert events_left(hooks) == 1
    hooks.check()


def test_upkeep_drops_events_without_sagas(hooks, app):
    hooks.create()
    hooks.publish(1)
    hooks.sql("delete from towpath.sagas")

    app.upkeep.run()

    assert events_left(hooks) == 0


def test_a_prune_that_has_more_to_do_goes_on_in_the_next_round(hooks, app, clock, monkeypatch):
    """At most so many batches in one round, so that nothing else waits for it."""
    monkeypatch.setattr(rounds, "MOST_BATCHES", 2)
    monkeypatch.setattr(webhook_upkeep, "AT_ONCE", 3)
    hooks.create(concurrency=100)
    hooks.publish(*range(20))
    hooks.deliver()
    clock.advance("8d")
    left = []
    for _ in range(5):
        app.upkeep.run()
        left.append(len(hooks.sagas()))
        clock.advance(1)

    assert left == [14, 8, 2, 0, 0]
