"""Routers, orchestrators, workers, operators and managers that meet in the middle of their work."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.behaviour.webhooks import DONE, FAILED, Webhooks, selection
from tests.faults.gates import Gate
from tests.faults.processes import wait_until
from towpath import NewEvent
from towpath.database import postgres as pg
from towpath.errors import Conflict
from towpath.model.deliveries import LEASE_SLACK
from towpath.store import advancing, deliveries, routing, subscriptions, webhook_upkeep


@pytest.fixture(params=["postgres"])
def kind(request):
    return request.param


@pytest.fixture
def two(make_app):
    one, other = Webhooks(make_app()), Webhooks(make_app())
    one.app.migrate()
    other.app.migrate()
    return one, other


def is_waiting(books):
    return books.rows("select pid from pg_stat_activity where wait_event_type = 'Lock'")


def test_two_claims_that_overlap_share_no_job(two, place):
    """Check 30, WH-3"""
    hooks, other = two
    hooks.create(concurrency=100)
    hooks.publish(*range(20))
    hooks.advance()
    url, settings = place
    items = [{"late": True, "most": 5}]
    query = deliveries.sql.claim(items, token=1, worker="w", slack=LEASE_SLACK, unable="[]")
    with psycopg.connect(url) as connection:
        text = pg.rendered(query.statement, settings["schema"])
        held = {row[0] for row in connection.execute(text, pg.bound(query, None))}
        found = {each.job for each in other.claim()}
        connection.rollback()

    assert len(held) == 5
    assert len(found) == 15
    assert not held & found
    assert {each.job for each in other.claim()} == held


def test_no_job_is_claimed_twice_by_many_workers(two, threads):
    """Check 30: ten thousand jobs."""
    hooks, other = two
    for _ in range(2):
        hooks.create(concurrency=5_000, at_once=5_000)
    hooks.app.events.publish_many("orders", [NewEvent(each) for each in range(5_000)])
    hooks.route()
    hooks.advance()

    def work(worker):
        found = []
        while made := worker.claim(70):
            found += [each.job for each in made]
        return found

    found = [job for each in threads.map(work, [hooks, other, hooks, other]) for job in each]

    assert len(found) == len(set(found)) == 10_000


@pytest.mark.parametrize("statement", ["reported", "standing", "note"])
def test_an_attempt_that_ends_while_outcomes_are_applied_frees_its_place(two, threads, statement):
    """A subscription with room, and nothing that wakes it, would wait for upkeep."""
    hooks, other = two
    hooks.create(concurrency=1)
    hooks.publish(1, 2)
    hooks.advance()
    [made] = hooks.claim()
    hooks.publish(3)  # so that its health is due

    with Gate(hooks.app, threads).before(statement, hooks.advance):
        other.report(made)
    hooks.advance()

    assert len(hooks.claim()) == 1


@pytest.mark.parametrize("statement", ["standing", "reported", "apply", "start", "note"])
def test_two_orchestrators_apply_an_outcome_once(two, threads, statement):
    """Check 32: the second steps over what the first holds."""
    hooks, other = two
    hooks.create(concurrency=1)
    hooks.publish(1, 2)
    hooks.advance()
    [made] = hooks.claim()
    hooks.report(made, DONE)

    with Gate(hooks.app, threads).before(statement, hooks.run, advancing.advance()) as advancing_:
        assert other.run(advancing.advance()) == advancing.Advanced()
    assert advancing_.result().started == 1
    other.advance()

    assert hooks.statuses() == ["Completed", "InProgress"]
    hooks.check()


@pytest.mark.parametrize("statement", ["standing", "start", "note"])
def test_a_saga_that_is_made_while_its_subscription_falls_asleep_wakes_it(
    two, threads, books, statement
):
    hooks, other = two
    hooks.create()
    hooks.publish(1)
    hooks.deliver()
    hooks.sql("update towpath.subscription_health set wakes_at = 0")
    other.app.events.publish("orders", 2)

    with Gate(hooks.app, threads).before(statement, hooks.run, advancing.advance()):
        routed = threads.submit(other.run, routing.route("orders", selection))
        wait_until(lambda: is_waiting(books))
    routed.result(30)

    assert [each.payload for each in hooks.deliver()] == ["2"]


def test_a_pause_that_comes_while_its_subscription_is_advanced_holds(two, threads, books):
    hooks, other = two
    id = hooks.create(concurrency=1).id
    hooks.publish(1, 2)
    with Gate(hooks.app, threads).before("start", hooks.run, advancing.advance()):
        paused = threads.submit(other.run, subscriptions.pause(id))
        wait_until(lambda: is_waiting(books))
    assert paused.result(30) == 1
    hooks.advance()

    assert hooks.statuses() == ["InProgress", "Held"]


def test_a_subscription_that_is_made_while_events_are_routed_gets_exactly_the_later_ones(
    two, threads
):
    hooks, other = two
    hooks.create()
    hooks.app.events.publish("orders", 1)
    route = routing.route("orders", selection)
    with Gate(hooks.app, threads).before("subscribed", hooks.run, route):
        new = other.create()
        other.app.events.publish("orders", 2)
    hooks.route()

    made = [(each.payload, each.subscription == new.id) for each in hooks.deliver()]
    assert sorted(made) == [("1", False), ("2", False), ("2", True)]


def test_two_routers_make_the_sagas_of_an_event_once(two, threads):
    hooks, other = two
    hooks.create()
    hooks.app.events.publish("orders", 1)
    route = routing.route("orders", selection)
    with Gate(hooks.app, threads).before("make_sagas", hooks.run, route):
        assert other.run(route) == routing.Routed()
    other.route()

    assert len(hooks.sagas()) == 1


def test_a_subscription_that_is_deleted_while_its_events_are_routed_ends(two, threads, books):
    hooks, other = two
    id = hooks.create().id
    hooks.app.events.publish("orders", 1)
    route = routing.route("orders", selection)
    with Gate(hooks.app, threads).before("wake", hooks.run, route):
        deleted = threads.submit(other.run, subscriptions.delete(id))
        wait_until(lambda: is_waiting(books))
    deleted.result(30)

    assert hooks.statuses() == ["Cancelled"]


def test_a_dead_letter_is_requeued_while_its_event_is_forgotten(two, threads, books):
    hooks, other = two
    hooks.create(waits="[]")
    hooks.publish("x")
    hooks.deliver(FAILED)
    [letter] = hooks.letters()
    prune = webhook_upkeep.prune_sagas(0, -1)
    with Gate(hooks.app, threads).before("drop_events", hooks.run, prune):
        requeued = threads.submit(other.requeue, letter.id)
        wait_until(lambda: is_waiting(books))
    requeued.result(30)

    assert [each.payload for each in hooks.deliver()] == ['"x"']
    hooks.check()


def test_an_event_stays_for_a_saga_that_is_made_while_others_are_forgotten(two, threads):
    hooks, other = two
    hooks.create(waits="[]")
    hooks.publish("x")
    hooks.deliver(FAILED)
    [letter] = hooks.letters()
    prune = webhook_upkeep.prune_sagas(0, -1)
    with Gate(hooks.app, threads).before("hold_events", hooks.run, prune):
        other.requeue(letter.id)

    assert [each.payload for each in hooks.deliver()] == ['"x"']
    hooks.check()


def test_of_eight_operators_one_requeues(two):
    """WH-8"""
    hooks, other = two
    hooks.create(waits="[]")
    hooks.publish(1)
    hooks.deliver(FAILED)
    [letter] = hooks.letters()

    def requeue(nth):
        try:
            return (hooks, other)[nth % 2].requeue(letter.id, f"op{nth}")
        except Conflict:
            return None

    with ThreadPoolExecutor(8) as operators:
        made = [saga for saga in operators.map(requeue, range(8)) if saga]

    assert len(made) == 1
    assert hooks.statuses() == ["DeadLettered", "Pending"]


def test_a_job_that_is_claimed_while_its_saga_is_cancelled_ends_with_its_attempt(two, threads):
    hooks, other = two
    hooks.create()
    hooks.publish(1)
    hooks.advance()
    [saga] = hooks.sagas()
    with Gate(hooks.app, threads).before("cancel_jobs", hooks.cancel, saga.id):
        [made] = other.claim()
    hooks.advance()
    assert hooks.statuses() == ["InProgress"]
    hooks.report(made, FAILED)
    hooks.advance()

    assert hooks.statuses() == ["Cancelled"]
    hooks.check()
