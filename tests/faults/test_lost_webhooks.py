"""Answers about webhooks that get lost: nothing is done twice, and no lease is forgotten."""

import pytest

from tests.behaviour.webhooks import DONE, FAILED, Webhooks, selection
from tests.faults.proxy import COMMIT, Proxy
from towpath.store import advancing, deliveries, routing, sagas, subscriptions

CLAIM = "lease_until = c.now + u.timeout"
REPORT = "response_status = i.response_status"
RESET = "lease_losses = l.losses"

lost = pytest.mark.parametrize("lose", ["lose_answer", "lose_request"])


@pytest.fixture(params=["postgres"])
def kind(request):
    return request.param


@pytest.fixture
def proxy(postgres):
    with Proxy(postgres.port) as proxy:
        yield proxy


@pytest.fixture
def place(proxy, postgres_schema):
    return proxy.url(), {"schema": postgres_schema}


@pytest.fixture
def hooks(app):
    hooks = Webhooks(app)
    hooks.create(waits="[]", concurrency=100)
    return hooks


@lost
def test_a_route_whose_answer_is_lost_makes_nothing_twice(hooks, proxy, lose):
    hooks.app.events.publish("orders", 1)
    getattr(proxy, lose)(COMMIT)
    hooks.run(routing.route("orders", selection))

    assert proxy.happened.is_set()
    assert hooks.statuses() == ["Pending"]


@lost
def test_an_advance_whose_answer_is_lost_starts_and_applies_once(hooks, proxy, lose):
    hooks.publish(1, 2)
    getattr(proxy, lose)(COMMIT)
    hooks.run(advancing.advance())
    assert proxy.happened.is_set()
    made = hooks.claim()
    for each in made:
        hooks.report(each, FAILED)
    proxy.happened.clear()
    getattr(proxy, lose)(COMMIT)
    hooks.run(advancing.advance())

    assert proxy.happened.is_set()
    assert len(made) == len(hooks.letters()) == 2
    assert hooks.statuses() == ["DeadLettered"] * 2
    hooks.check()


@lost
def test_a_claim_whose_answer_is_lost_finds_its_leases_at_once(hooks, proxy, lose):
    """WH-3"""
    hooks.publish(*range(5))
    hooks.advance()
    getattr(proxy, lose)(CLAIM)
    made = hooks.claim(3)

    assert proxy.happened.is_set()
    assert [each.payload for each in made] == ["0", "1", "2"]
    for each in made:
        hooks.report(each)
    assert [each.payload for each in hooks.claim(9)] == ["3", "4"]


@lost
def test_a_report_whose_answer_is_lost_holds_once(hooks, proxy, lose):
    """WH-2"""
    hooks.publish(1)
    hooks.advance()
    [made] = hooks.claim()
    getattr(proxy, lose)(REPORT)
    hooks.report(made, DONE)

    assert proxy.happened.is_set()
    hooks.advance()
    assert hooks.statuses() == ["Completed"]
    hooks.check()


@lost
def test_a_reset_whose_answer_is_lost_counts_one_loss(hooks, proxy, clock, lose):
    """WH-5"""
    hooks.publish(1)
    hooks.advance()
    hooks.claim()
    clock.advance(60)
    getattr(proxy, lose)(RESET)
    hooks.run(deliveries.reset())

    assert proxy.happened.is_set()
    [saga] = hooks.sagas()
    [attempt] = hooks.run(sagas.attempts(saga.id))
    assert (attempt.status, attempt.lease_losses) == ("Pending", 1)


@lost
def test_a_requeue_whose_answer_is_lost_makes_one_saga(hooks, proxy, lose):
    """WH-8"""
    hooks.publish(1)
    hooks.deliver(FAILED)
    [letter] = hooks.letters()
    getattr(proxy, lose)(COMMIT)
    new = hooks.requeue(letter.id)

    assert proxy.happened.is_set()
    assert hooks.sagas()[0].id == new
    assert hooks.statuses() == ["DeadLettered", "Pending"]


def test_a_requeue_that_is_lost_is_not_taken_for_the_one_before(hooks, proxy):
    """WH-8: the saga of the requeue before has died at once, and the operator is quick."""
    hooks.publish(1)
    hooks.deliver(FAILED)
    [letter] = hooks.letters()
    before = hooks.requeue(letter.id)
    hooks.deliver(FAILED)
    proxy.lose_request(COMMIT)
    new = hooks.requeue(letter.id)

    assert proxy.happened.is_set()
    assert new > before
    assert hooks.statuses() == ["DeadLettered", "DeadLettered", "Pending"]


@lost
def test_a_subscription_whose_answer_is_lost_is_made_and_deleted_once(hooks, proxy, lose):
    getattr(proxy, lose)(COMMIT)
    made = hooks.create("other")
    assert proxy.happened.is_set()
    assert hooks.run(subscriptions.list_subscriptions(0, 10, channel="other")) == [made]
    proxy.happened.clear()
    getattr(proxy, lose)(COMMIT)
    hooks.run(subscriptions.delete(made.id))

    assert proxy.happened.is_set()
    assert hooks.run(subscriptions.list_subscriptions(0, 10, channel="other")) == []
