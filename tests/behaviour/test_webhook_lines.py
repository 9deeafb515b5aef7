"""Long lines of deliveries: a rate that holds at the receiver, and thousands that are held."""

from collections import Counter

import pytest

from tests.behaviour.webhooks import DONE, SECOND, Webhooks
from tests.faults.chance import dice
from towpath import NewEvent
from towpath.store import advancing, deliveries, subscriptions
from towpath.store.advancing import MOVED_AT_ONCE
from towpath.store.deliveries import Report

MANY = 10_000
AT_ONCE = 100


@pytest.fixture
def hooks(app):
    return Webhooks(app)


def publish_many(hooks, count):
    hooks.app.events.publish_many("orders", [NewEvent(number) for number in range(count)])
    hooks.route()


def report_all(hooks, made, outcome=DONE):
    hooks.run(deliveries.report([Report(each.job, each.token, outcome) for each in made]))


class Paced:
    """An orchestrator that wakes when it asked to, and workers that are late."""

    def __init__(self, hooks, clock):
        self.hooks, self.clock = hooks, clock
        self.began = clock.us
        self.arrivals = []  # seconds since the beginning
        self.made = []  # that are not reported yet

    def run(self, seconds, delay):
        """Let time pass; `delay` draws how long a new job waits for its worker."""
        end = self.clock.us + seconds * SECOND
        claims_at = self.clock.us
        while self.clock.us < end:
            if self.hooks.run(advancing.advance()).started:
                claims_at = self.clock.us + delay()
            wait = self.hooks.run(advancing.next_wake())
            wakes_at = end if wait is None else self.clock.us + wait
            self.clock.us = max(self.clock.us, min(wakes_at, claims_at or wakes_at))
            if claims_at and self.clock.us >= claims_at:
                made = self.hooks.claim()
                self.arrivals += [(self.clock.us - self.began) / SECOND] * len(made)
                self.made += made
                claims_at = None
            if len(self.made) == AT_ONCE:
                self.report()

    def report(self):
        made, self.made = self.made, []
        report_all(self.hooks, made)

    def most_in_a_second(self):
        return max(Counter(map(int, self.arrivals)).values())


def test_a_rate_holds_at_the_receiver_whatever_its_workers_do(hooks, clock):
    """Check 26: within 5 % over 60 s; after a standstill of 20 s no second has more than 11."""
    chance = dice(26)
    hooks.create(pace=SECOND // 10, burst=1, concurrency=2 * AT_ONCE)
    publish_many(hooks, 1_000)
    paced = Paced(hooks, clock)

    def late():
        return chance.randrange(SECOND // 12)

    paced.run(60, late)
    steady = len(paced.arrivals)
    paced.run(20, lambda: 20 * SECOND)
    paced.run(10, late)

    assert 570 <= steady <= 630
    assert 95 <= len(paced.arrivals) - steady <= 105
    assert paced.most_in_a_second() <= 11
    paced.report()
    hooks.advance()
    assert max(saga.attempts for saga in hooks.sagas()) == 1
    hooks.check()


def test_ten_thousand_are_held_and_come_back_in_their_order(hooks):
    """Check 35: a pause holds them some at a time, a resume releases them likewise."""
    id = hooks.create(concurrency=AT_ONCE).id
    publish_many(hooks, MANY)
    hooks.run(subscriptions.pause(id))
    held = [each.more for each in hooks.advance()]

    assert len(held) == MANY // MOVED_AT_ONCE + 1
    assert hooks.sql("select status, count(*) from towpath.sagas group by status") == [
        ("Held", MANY)
    ]
    assert hooks.claim() == []
    hooks.run(subscriptions.resume(id))
    came = []
    while hooks.advance() and (made := hooks.claim(AT_ONCE)):
        assert len(made) == AT_ONCE
        came += [int(each.payload) for each in made]
        report_all(hooks, made)

    assert came == list(range(MANY))
    assert hooks.sql("select status, count(*) from towpath.sagas group by status") == [
        ("Completed", MANY)
    ]
    hooks.check()
