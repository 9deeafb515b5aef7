"""Advancing: outcomes are applied in turn, and what was held comes back in its order."""

import pytest

from tests.behaviour.webhooks import FAILED, Webhooks
from towpath.operation import Operation
from towpath.store import advancing, sagas, subscriptions


@pytest.fixture
def hooks(app):
    return Webhooks(app)


def test_outcomes_of_all_subscriptions_are_applied_in_turn(hooks, monkeypatch):
    """One that is due, too, does not end the turn of those before it."""
    monkeypatch.setattr(advancing, "REPORTED_AT_ONCE", 2)
    ids = [hooks.create().id for _ in range(5)]
    hooks.publish()
    hooks.advance()
    for each in hooks.claim():
        hooks.report(each)
    hooks.run(Operation("wake", lambda: sagas.wake([ids[4]])))

    first = hooks.run(advancing.advance(0))
    second = hooks.run(advancing.advance(first.upto))

    assert {each.subscription for each in first.applied} == {ids[0], ids[1], ids[4]}
    assert {each.subscription for each in second.applied} == {ids[2], ids[3]}
    assert (first.upto, second.upto) == (ids[1], ids[3])


def test_what_was_held_comes_back_before_what_is_published_meanwhile(hooks, clock, monkeypatch):
    monkeypatch.setattr(advancing, "MOVED_AT_ONCE", 2)
    id = hooks.create(concurrency=1).id
    hooks.run(subscriptions.pause(id))
    for number in range(5):
        hooks.publish(number)
        clock.advance(1)
    hooks.advance()
    hooks.run(subscriptions.resume(id))
    assert hooks.run(advancing.advance()).more  # some are held yet
    clock.advance(1)
    hooks.publish(5)

    clock.advance(1)
    arrived = []
    while made := hooks.deliver():
        arrived += [each.payload for each in made]
    assert arrived == ["0", "1", "2", "3", "4", "5"]


def test_a_retry_that_was_held_comes_back_at_its_time(hooks, clock):
    id = hooks.create(waits="[5000000]").id
    hooks.publish(0)
    hooks.deliver(FAILED)
    hooks.run(subscriptions.pause(id))
    clock.advance(1)
    hooks.publish(1)
    hooks.advance()
    hooks.run(subscriptions.resume(id))

    assert [each.payload for each in hooks.deliver()] == ["1"]
    clock.advance(5)
    assert [each.payload for each in hooks.deliver()] == ["0"]
