"""Webhooks by processes that are killed and stopped: each saga ends once, and none is lost."""

import itertools
import time
from collections import Counter

import pytest

from tests.behaviour.webhooks import Webhooks
from tests.faults import chance
from tests.faults.processes import wait_until
from tests.faults.programs import lines
from tests.faults.sizes import many
from tests.webhooks.http_receiver import HttpReceiver
from tests.webhooks.subscribing import subscribe
from towpath import App, NewEvent
from towpath.model.sealing import new_key

PARTS = ("router", *["orchestrator"] * 2, *["worker"] * 3, *["cleaner"] * 2)
SUBSCRIPTIONS = 3
QUICK = "[200000, 200000, 200000]"  # waits between four attempts, in microseconds
SLACK = 0.5  # seconds by which a lease is longer than an attempt


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


def count(hooks, what):
    return hooks.sql(f"select count(*) from towpath.{what}")[0][0]  # noqa: S608 - our own words


def have_ended(hooks, number):
    return count(hooks, "sagas where finished_at is not null") >= number


@pytest.mark.chaos
def test_whatever_is_killed_or_stopped_each_saga_ends_once(hooks, start, tmp_path):
    """Checks 30 and 33, WH-2, WH-3, WH-5, WH-6, WH-7"""
    dice = chance.dice(17)
    record = tmp_path / "claims"
    published = 0

    def status(_):
        time.sleep(dice.choice([0, 0, 0.1]))  # for an incident in the middle of an attempt
        # Too few failures for the breaker, which would open for half a minute and more.
        return dice.choice([204, 204, 204, 204, 204, 503])

    def begin(only):
        return start("deliver", only=only, record=str(record), slack=SLACK)

    def publish(number):
        hooks.app.events.publish_many("orders", [NewEvent(each) for each in range(number)])
        return number

    with HttpReceiver(status) as receiver:
        for _ in range(SUBSCRIPTIONS):
            # On a loaded machine no attempt takes that long, and a lost lease is soon over.
            subscribe(hooks.app, receiver.url, waits=QUICK, timeout=4 * 10**6)
        programs = list(map(begin, PARTS))
        for program in programs:
            program.hear()
        for nth in range(many(6)):
            published += publish(10)
            # Not a wait for anything: the instant is the point.
            time.sleep(dice.uniform(0.05, 0.3))
            victim = dice.randrange(len(PARTS))
            if nth % 2:
                programs[victim].kill_alive()
                programs[victim] = begin(PARTS[victim])
            else:
                programs[victim].pause()
                time.sleep(dice.choice([0.2, 2.0]))
                programs[victim].resume()
        wait_until(lambda: have_ended(hooks, published * SUBSCRIPTIONS), many(120))
        for program in programs:
            program.kill_alive()

    hooks.check()
    ends = Counter(status for (status,) in hooks.sql("select status from towpath.sagas"))
    assert ends.keys() <= {"Completed", "DeadLettered"}
    assert ends.total() == published * SUBSCRIPTIONS
    assert count(hooks, "dead_letters") == ends["DeadLettered"]
    check_claims(record)
    arrived = {(each.event, int(each.subscription)) for each in receiver.arrivals}
    assert len(arrived) == published * SUBSCRIPTIONS


def check_claims(record):
    """No job was leased twice at a time."""
    claims = {}
    for job, _, now, until in lines(record):
        claims.setdefault(job, []).append((int(now), int(until)))
    assert claims
    for leases in claims.values():
        for (_, until), (now, _) in itertools.pairwise(sorted(leases)):
            assert until <= now


def test_a_worker_that_dies_between_answer_and_report_is_followed_by_another(hooks, start):
    """Check 29, WH-2: its webhook-id tells the repetition, and the saga ends once."""
    with HttpReceiver() as receiver:
        subscribe(hooks.app, receiver.url, timeout=10**6)
        start("deliver", only="worker", slack=SLACK, dies=1).hear()
        hooks.publish(1)
        hooks.advance()
        wait_until(lambda: len(receiver.arrivals) == 1)
        start("deliver", slack=SLACK).hear()
        wait_until(lambda: have_ended(hooks, 1))

    first, second = receiver.arrivals
    assert first.event == second.event
    assert first.timestamp < second.timestamp
    assert hooks.statuses() == ["Completed"]
    assert hooks.sql("select lease_losses, status from towpath.webhook_delivery_jobs") == [
        (1, "Completed")
    ]
    hooks.check()


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("kind", "events"), [("sqlite", many(200)), ("postgres", many(1_000))], indirect=["kind"]
)
def test_an_ordered_subscription_keeps_its_order_whatever_is_killed(hooks, start, events):
    """Two orchestrators and two workers; one in ten attempts fails, and some events for good."""
    dice = chance.dice(19)

    def status(arrival):
        is_dead = number_of(arrival) % 100 == 99
        return 503 if is_dead or dice.random() < 0.1 else 204

    with HttpReceiver(status) as receiver:
        subscribe(
            hooks.app, receiver.url, ordered=True, body="payload", waits="[1000]", timeout=10**6
        )
        hooks.app.events.publish_many("orders", [NewEvent(each) for each in range(events)])
        programs = [start("deliver", slack=SLACK) for _ in range(2)]
        for nth, share in enumerate((0.3, 0.6)):
            wait_until(lambda share=share: len(receiver.arrivals) > events * share, many(120))
            programs[nth].kill_alive()
            programs[nth] = start("deliver", slack=SLACK)
        wait_until(lambda: have_ended(hooks, events), many(120))
        for program in programs:
            program.kill_alive()

    arrived = [number_of(each) for each in receiver.arrivals]
    assert arrived == sorted(arrived)  # also what comes again comes before the next
    assert set(arrived) == set(range(events))
    assert count(hooks, "dead_letters") >= events // 100
    hooks.check()


def number_of(arrival):
    return int(arrival.body)
