"""Webhooks by their operations alone: the verbs and the loops stand above them."""

import itertools
from functools import cache
from uuid import uuid4

from tests.webhooks.subscribing import prove
from towpath.model.deliveries import AttemptOutcome
from towpath.model.sagas import SagaStatus
from towpath.model.subscriptions import Selection
from towpath.operation import Operation, answered
from towpath.statement import Statement
from towpath.store import (
    advancing,
    dead_letters,
    deliveries,
    events,
    routing,
    sagas,
    subscriptions,
)
from towpath.store.dead_letters import Requeue
from towpath.store.deliveries import Line, Report
from towpath.store.subscriptions import NewSubscription

SECOND = 10**6
_tokens = itertools.count(1)
WRONG = (
    # A saga is dead exactly if it has a dead letter, which is one by an index.
    """
select count(*) from towpath.sagas s left join towpath.dead_letters d on d.saga_id = s.id
 where (s.status = 'DeadLettered') <> (d.id is not null)""",
    # Each attempt has counted once.
    """
select count(*) from towpath.sagas s
 where s.attempt_count <> (select count(*) from towpath.webhook_delivery_jobs j
        where j.saga_id = s.id and j.applied_at is not null and j.status <> 'Cancelled')""",
    # What is in progress has a delivery job, and nothing else has one.
    """
select count(*) from towpath.sagas s
 where (s.status = 'InProgress') <> exists (
       select 1 from towpath.webhook_delivery_jobs j
        where j.saga_id = s.id and j.applied_at is null)
    or (s.status = 'InProgress') and not exists (
       select 1 from towpath.webhook_delivery_jobs j
        where j.id = s.current_job_id and j.saga_id = s.id and j.applied_at is null)""",
    # Nothing is orphaned.
    """
select count(*) from towpath.sagas s left join towpath.webhook_events e on e.id = s.event_id
 where e.id is null""",
    """
select count(*) from towpath.webhook_delivery_jobs j left join towpath.sagas s on s.id = j.saga_id
 where s.id is null""",
)


def outcome_of(status, **facts):
    """Return the outcome of an attempt that got this answer."""
    code = None if status < 300 else f"http_{status}"
    return AttemptOutcome(response_status=status, error_code=code, **facts)


FAILED, DONE, GONE = outcome_of(503), outcome_of(204), outcome_of(410)


@cache
def selection(types, filter_rule):
    return Selection(types, filter_rule)


class Webhooks:
    """What router, orchestrator, worker, cleaner, operator and manager do."""

    def __init__(self, app):
        self.app = app

    def run(self, operation):
        return self.app.run(operation)

    def create(self, channel="orders", at_once=100, **options):
        """Make a subscription that need not show first how many deliveries at once it can take."""
        given = {
            "token": uuid4(), "channel": channel, "url": "https://example.com/", "types": '["*"]',
            "filter_rule": None, "timeout": 15 * SECOND, "concurrency": 10, "pace": None,
            "burst": 1, "ordered": False, "waits": None, "final": None,
            "body": "envelope", "owner": None, "description": "",
        }  # fmt: skip
        new = NewSubscription(**{**given, **options})
        made = self.run(subscriptions.create(new, "sealed for {}".format))
        prove(self.app, made.id, at_once=at_once)
        return made

    def route(self, channel="orders"):
        """Place and route all that is there."""
        self.run(events.place([channel]))
        count = 0
        while True:
            routed = self.run(routing.route(channel, selection))
            count += routed.sagas
            if not routed.more:
                return count

    def advance(self, **options):
        """Advance until nothing is left to do now."""
        done = []
        while True:
            done.append(self.run(advancing.advance(**options)))
            if not done[-1].more:
                return done

    def publish(self, *payloads, channel="orders", type="order.paid"):
        """Publish events, and make their sagas."""
        for payload in payloads or [1]:
            self.app.events.publish(channel, payload, type=type)
        self.route(channel)

    def claim(self, most=100, worker="w"):
        lines = [Line(late, most) for late in (False, True)]
        return self.run(deliveries.claim(lines, next(_tokens), worker))

    def report(self, delivery, outcome=DONE):
        [answer] = self.run(deliveries.report([Report(delivery.job, delivery.token, outcome)]))
        return answered(answer)

    def deliver(self, outcome=DONE, most=100):
        """Advance, make attempts, and apply their outcomes; return the attempts."""
        self.advance()
        made = self.claim(most)
        for each in made:
            self.report(each, outcome)
        self.advance()
        return made

    def sagas(self, **options):
        return self.run(sagas.list_sagas(1_000, **options))

    def statuses(self, **options):
        """Return the statuses of all sagas, the oldest first."""
        return [saga.status for saga in reversed(self.sagas(**options))]

    def letters(self):
        return self.run(dead_letters.list_letters(1_000))

    def requeue(self, letter, actor="op"):
        [answer] = self.run(dead_letters.requeue([Requeue(letter, actor)]))
        return answered(answer).id

    def cancel(self, saga):
        [answer] = self.run(sagas.cancel([saga]))
        return answered(answer)

    def health(self, id):
        [found] = self.run(subscriptions.health([id]))
        return found

    def sql(self, text, **params):
        """Run one statement past the operations, as the owner of the tables."""

        def steps():
            return (yield Statement("test", {"any": text})(**params))

        return self.run(Operation("test", steps))

    def check(self):
        """Check what holds at every instant."""
        for wrong in WRONG:
            assert self.sql(wrong) == [(0,)], wrong


def saga_in(hooks, status):
    """Bring a saga into a status by operations alone; return it."""
    id = hooks.create(waits="[]" if status is SagaStatus.DEAD_LETTERED else "[5000000]").id
    hooks.publish()
    if status is SagaStatus.HELD:
        hooks.run(subscriptions.pause(id))
    if status in {SagaStatus.HELD, SagaStatus.IN_PROGRESS}:
        hooks.advance()
    elif status is SagaStatus.CANCELLED:
        hooks.cancel(hooks.sagas()[0].id)
    elif status is not SagaStatus.PENDING:
        hooks.deliver(DONE if status is SagaStatus.COMPLETED else FAILED)
    [saga] = hooks.sagas()
    assert saga.status is status
    return saga
