"""Routing: which events become sagas of which subscriptions, and how long they are kept."""

import itertools
from functools import partial
from uuid import uuid4

import pytest
from msgspec import Raw

from tests.behaviour.webhooks import DONE, FAILED, SECOND, Webhooks, selection
from towpath.errors import Conflict, Invalid
from towpath.model.instants import microseconds
from towpath.operation import Operation
from towpath.store import (
    advancing,
    channels,
    dead_letters,
    deliveries,
    events,
    routing,
    sagas,
    subscriptions,
    trimming,
    webhook_upkeep,
)
from towpath.store.deliveries import Line, Report
from towpath.store.event_rows import EventBody
from towpath.store.events import Append
from towpath.store.trimming import ChannelLimits, Kept

WEEK = microseconds("7d")


@pytest.fixture
def hooks(app):
    return Webhooks(app)


def payloads(hooks):
    return [each.payload for each in hooks.deliver()]


def test_a_subscription_gets_what_is_published_after_it_was_made(hooks):
    hooks.app.events.publish("orders", 1)
    hooks.create()
    hooks.app.events.publish("orders", 2)
    second = hooks.create()
    hooks.app.events.publish("orders", 3)
    hooks.route()

    assert payloads(hooks) == ["2", "3", "3"]
    assert [each.subscription for each in hooks.sagas(subscription=second.id)] == [second.id]


def test_a_subscription_gets_nothing_older_however_much_waits_for_its_number(hooks, monkeypatch):
    monkeypatch.setattr(events, "PLACED_AT_ONCE", 2)
    for number in range(5):
        old = EventBody(id=uuid4(), body=str(number), encoding="json", size=1)
        hooks.run(events.post(Append(channel="orders", events=[old])))
    hooks.create()
    hooks.publish(5)

    assert payloads(hooks) == ["5"]


def test_an_event_that_a_rule_cannot_read_stops_no_other(hooks):
    hooks.create(filter_rule="@event.payload.a = 1")
    hooks.publish(1, {"a": Raw(b"1e400")})  # a number that no float can be
    deep = f"{'[' * 100_000}{']' * 100_000}"
    hooks.sql(f"update towpath.event set body = '{deep}' where seq = 1")  # noqa: S608 - our own text
    hooks.sql("update towpath.consumer set acked = 0")
    hooks.publish({"a": 1})

    assert payloads(hooks) == ['{"a":1}']


def test_an_event_is_routed_once_whatever_is_routed_again(hooks):
    """WH-1"""
    hooks.create()
    hooks.publish(1, 2)
    hooks.sql("update towpath.consumer set acked = 0")
    hooks.route()
    assert payloads(hooks) == ["1", "2"]
    hooks.sql("update towpath.consumer set acked = 0")
    hooks.route()

    assert payloads(hooks) == []
    assert hooks.statuses() == ["Completed", "Completed"]


def test_a_subscription_that_is_made_again_by_a_repeated_call_is_one(hooks):
    token = uuid4()
    one, two = hooks.create(token=token), hooks.create(token=token)

    assert one == two
    assert hooks.run(subscriptions.list_subscriptions(0, 10)) == [one]


def test_a_subscription_goes_on_when_its_channel_is_deleted_and_made_again(hooks):
    hooks.create()
    hooks.publish(1)
    hooks.app.events.delete("orders")
    hooks.app.events.publish("orders", 2)
    assert hooks.run(routing.unrouted("")).behind == ["orders"]
    hooks.route()

    assert payloads(hooks) == ["1", "2"]
    assert hooks.run(routing.unrouted("")).behind == []


def test_the_router_learns_which_channels_have_something_to_route(hooks):
    for name in ("a", "b", "c"):
        hooks.create(name)
        hooks.create(name)
    hooks.app.events.publish("b", 1)
    hooks.app.events.publish("quiet", 1)

    assert hooks.run(routing.unrouted("")) == routing.Unrouted(["a", "b", "c"], ["b"], [], "")
    assert hooks.run(routing.unrouted("b")) == routing.Unrouted(["c"], [], [], "")
    hooks.route("b")
    assert hooks.run(routing.unrouted("")) == routing.Unrouted(["a", "b", "c"], [], [], "")


def test_many_sagas_are_made_some_at_a_time(hooks, monkeypatch):
    monkeypatch.setattr(routing, "MOST_SAGAS", 5)
    for _ in range(3):
        hooks.create()
    for n in range(4):
        hooks.app.events.publish("orders", n)

    routed = [hooks.run(routing.route("orders", selection)) for _ in range(4)]

    assert [(each.events, each.sagas, each.more) for each in routed] == [
        (1, 3, True), (1, 3, True), (1, 3, True), (1, 3, False),
    ]  # fmt: skip
    assert len(hooks.sagas()) == 12


def test_the_router_is_never_expired_but_an_overtaken_one_says_so(hooks, clock):
    """A channel that drops what all consumers have acked keeps what is not routed."""
    hooks.create()
    kept = Kept.of(hooks.app.settings)
    hooks.run(trimming.limit("orders", ChannelLimits(max_age=0, drop_acked=True)))
    hooks.app.events.publish("orders", 1)
    hooks.app.events.publish("orders", 2)
    hooks.app.events.attach("orders", "other")
    clock.advance("8d")
    hooks.app.events.attach("orders", "another")
    hooks.app.events.ack("orders", "another", hooks.app.events.position("orders"), 1)
    assert hooks.run(trimming.visit(0, kept)).channels == []
    [[channel]] = hooks.sql("select id from towpath.channel")
    assert hooks.run(trimming.trim(channel, kept)) is None
    consumers = {each.name: each for each in hooks.app.events.consumers("orders")}
    assert (consumers["towpath.webhooks"].lag, consumers["other"].is_expired) == (2, True)
    assert not consumers["towpath.webhooks"].is_expired

    hooks.run(trimming.limit("orders", ChannelLimits(max_age=0, max_count=1)))
    hooks.run(trimming.trim(channel, kept))
    assert hooks.run(routing.route("orders", selection)).missed == 1
    hooks.route()
    assert payloads(hooks) == ["2"]
    hooks.run(events.place(["system"]))
    [told] = hooks.app.events.read("system").events
    assert (told.type, told.payload["channel"], told.payload["missed"]) == (
        "webhooks.gap", "orders", 1,
    )  # fmt: skip


def test_the_router_s_place_belongs_to_towpath(hooks):
    hooks.create()
    with pytest.raises(Invalid, match="belong to Towpath"):
        hooks.app.events.forget_consumer("orders", "towpath.webhooks")
    [router] = hooks.app.events.consumers("orders")
    assert hooks.app.events.consumers("orders", after=router.name) == []


def test_a_channel_without_subscriptions_has_no_router(hooks):
    one, two = hooks.create(), hooks.create()
    hooks.run(subscriptions.delete(one.id))
    assert len(hooks.app.events.consumers("orders")) == 1
    hooks.run(subscriptions.delete(two.id))

    assert hooks.app.events.consumers("orders") == []
    hooks.publish(1)
    assert hooks.sagas() == []


# ---------------------------------------------------------------- what is kept


def test_ended_sagas_are_forgotten_with_their_jobs_and_events(hooks, clock):
    """Nothing is orphaned, and what has not ended stays."""
    hooks.create()
    paused = hooks.create()
    hooks.run(subscriptions.pause(paused.id))
    hooks.publish(1, 2)
    hooks.deliver()
    hooks.publish(3)
    hooks.run(subscriptions.delete(paused.id))
    hooks.advance()
    clock.advance("6d")
    assert hooks.run(webhook_upkeep.prune_sagas(0, WEEK)).sagas == 0
    clock.advance("2d")
    hooks.publish(4)

    assert hooks.run(webhook_upkeep.prune_sagas(0, WEEK)).sagas == 5
    hooks.check()
    assert hooks.statuses() == ["InProgress", "Pending"]
    assert hooks.sql("select count(*) from towpath.webhook_events") == [(2,)]
    assert hooks.sql("select count(*) from towpath.webhook_delivery_jobs") == [(1,)]
    assert hooks.run(webhook_upkeep.end_deleted(0, WEEK)) == 0
    assert hooks.sql("select count(*) from towpath.subscription_health") == [(1,)]


def test_a_dead_letter_is_requeued_after_its_event_was_forgotten(hooks, clock):
    """Check 37, WH-8: the same event, the same bytes."""
    hooks.create(waits="[]")
    hooks.publish({"a": 1.0})
    [first] = hooks.deliver(FAILED)
    clock.advance("8d")
    assert hooks.run(webhook_upkeep.prune_sagas(0, WEEK)).sagas == 1
    assert hooks.sql("select count(*) from towpath.webhook_events") == [(0,)]
    [letter] = hooks.letters()
    hooks.requeue(letter.id)
    [second] = hooks.deliver()

    assert (second.event, second.payload, second.at) == (first.event, first.payload, first.at)
    clock.advance("23d")
    assert hooks.run(webhook_upkeep.prune_letters(microseconds("30d"))) == 1
    assert hooks.sql("select count(*) from towpath.dead_letter_requeues") == [(0,)]
    hooks.check()


def test_a_dead_letter_of_a_deleted_subscription_is_not_requeued(hooks):
    id = hooks.create(waits="[]").id
    hooks.publish(1)
    hooks.deliver(FAILED)
    hooks.run(subscriptions.delete(id))
    [letter] = hooks.letters()

    with pytest.raises(Conflict, match="was deleted"):
        hooks.requeue(letter.id)
    assert hooks.run(dead_letters.delete(letter.id))
    assert not hooks.run(dead_letters.delete(letter.id))


def test_a_channel_that_forgets_soon_does_not_hurt_a_saga(hooks, clock):
    hooks.create()
    hooks.publish(1)
    hooks.deliver(FAILED)
    hooks.run(trimming.limit("orders", ChannelLimits(max_age=1)))
    clock.advance("1h")
    [channel] = hooks.run(trimming.visit(0, Kept.of(hooks.app.settings))).channels
    hooks.run(trimming.trim(channel, Kept.of(hooks.app.settings)))
    hooks.run(channels.drop_deleted())

    assert payloads(hooks) == ["1"]


def test_a_subscription_that_was_forgotten_is_woken(hooks):
    hooks.create()
    hooks.publish(1)
    hooks.sql("update towpath.subscription_health set wakes_at = null")
    assert hooks.deliver() == []
    hooks.run(webhook_upkeep.wake_forgotten(0))

    assert payloads(hooks) == ["1"]


def test_deliveries_go_on_when_the_clock_is_set_back(hooks, clock):
    hooks.create(pace=SECOND)
    hooks.create("failing", waits="[60000000]")
    hooks.publish(1, channel="failing")
    [first] = hooks.deliver(FAILED)
    hooks.publish(2, 3)
    hooks.advance()
    [lost] = hooks.claim()
    clock.set_back("400d")
    hooks.run(webhook_upkeep.move_near())
    hooks.advance()

    found = hooks.claim()
    assert sorted(each.payload for each in found) == ["1", "3"]
    assert first.job not in {each.job for each in found}
    clock.advance(76)
    hooks.run(deliveries.reset())
    assert lost.job in {each.job for each in hooks.claim()}
    hooks.check()


def test_a_worker_that_lives_keeps_its_lease_when_the_clock_is_set_back(hooks, clock):
    """WH-5: only the cleaner makes a Leased job Pending, and counts the loss."""
    hooks.create()
    hooks.publish(1)
    hooks.advance()
    [made] = hooks.claim()
    clock.set_back("400d")
    hooks.run(webhook_upkeep.move_near())

    assert hooks.run(deliveries.reset()) == hooks.claim() == []
    hooks.report(made)
    hooks.advance()
    assert hooks.statuses() == ["Completed"]


# ---------------------------------------------------------------- half-way


class CrashError(Exception):
    """The process dies here: the transaction is not committed."""


def crashing(operation, before):
    """Return an operation that stops before its nth statement."""

    def steps():
        running, answer = operation.steps(), None
        for left in itertools.count(before, -1):
            try:
                query = running.send(answer)
            except StopIteration as end:
                return end.value
            if left == 0:
                raise CrashError
            answer = yield query
        return None

    return Operation(operation.name, steps, operation.mode, locks=operation.locks)


def crashed_everywhere(hooks, make):
    """Run an operation, after it has crashed before each of its statements."""
    before = 0
    while True:
        try:
            return hooks.run(crashing(make(), before))
        except CrashError:
            hooks.check()
            before += 1


def test_a_crash_between_two_statements_leaves_nothing_half_done(hooks, clock):
    """Check 33, WH-11, WH-7"""
    crash = partial(crashed_everywhere, hooks)
    id = hooks.create(waits="[5000000]", concurrency=2).id
    for n in range(4):
        hooks.app.events.publish("orders", n)
    crash(lambda: routing.route("orders", selection))
    crash(advancing.advance)
    for outcome in (FAILED, FAILED):
        made = crash(lambda: deliveries.claim([Line(False, 9), Line(True, 9)], 77, "w"))
        reports = [Report(each.job, each.token, outcome) for each in made]
        assert reports
        assert crash(lambda r=reports: deliveries.report(r)) == [None] * len(reports)
        crash(advancing.advance)
        clock.advance(10)
        crash(advancing.advance)
    hooks.claim()
    clock.advance(31)
    crash(deliveries.reset)
    crash(lambda: subscriptions.pause(id))
    crash(advancing.advance)
    assert "Held" in hooks.statuses()
    crash(lambda: subscriptions.resume(id))
    crash(lambda: subscriptions.enable(id))
    crash(advancing.advance)
    while hooks.deliver(FAILED):
        clock.advance("5m")
    letters = hooks.letters()
    assert letters
    crash(lambda: dead_letters.requeue([dead_letters.Requeue(letters[0].id, "op")]))
    last = hooks.sagas()[0].id
    crash(lambda: sagas.cancel([last]))
    crash(lambda: sagas.resend(last, confirm=True))
    clock.advance("5m")
    hooks.deliver(DONE)
    clock.advance("8d")
    crash(lambda: webhook_upkeep.prune_sagas(0, WEEK))
    crash(lambda: subscriptions.delete(id))
    crash(lambda: webhook_upkeep.end_deleted(0, 0))

    hooks.check()
    assert hooks.sql("select count(*) from towpath.subscriptions where sealed <> ''") == [(0,)]


def test_an_outcome_that_is_applied_again_changes_nothing(hooks, clock):
    """Check 32, W3: also after the next attempt has begun."""
    hooks.create()
    hooks.publish(1)
    hooks.deliver(FAILED)
    [saga] = hooks.sagas()
    clock.advance(10)
    hooks.advance()
    [first, second] = hooks.run(sagas.attempts(saga.id))
    before = hooks.sagas()
    for status, job in itertools.product(("Completed", "PendingRetry", "DeadLettered"), [first]):
        item = {
            "job": job.id, "saga": saga.id, "status": status, "attempts": 1,
            "next_attempt_at": 1, "error": None,
        }  # fmt: skip
        hooks.run(Operation("test", lambda item=item: iter(advancing.sql.apply([item]))))

    assert hooks.sagas() == before
    assert hooks.letters() == []
    assert second.status == "Pending"
    hooks.check()
