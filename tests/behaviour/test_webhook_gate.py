"""The gate: what may start, and what failures teach about a subscription."""

from datetime import timedelta

import pytest

from tests.behaviour.webhooks import DONE, FAILED, GONE, SECOND, Webhooks
from towpath.errors import Invalid, InvalidRule
from towpath.model.deliveries import (
    DAY,
    HOUR,
    MINUTE,
    WAITS,
    Decision,
    EndedAttempt,
    RetrySchedule,
    decided,
)
from towpath.model.health import TOLD, Gate, NoticeKind, Vitals
from towpath.model.ids import uuid7
from towpath.model.limits import Gauge
from towpath.model.sagas import OPERATIONS, Role, SagaStatus, may_run
from towpath.model.subscriptions import Selection
from towpath.store import advancing, events, subscriptions
from towpath.store.event_rows import EventBody
from towpath.store.events import Append


@pytest.fixture
def hooks(app):
    return Webhooks(app)


# ---------------------------------------------------------------- what follows an attempt


def ended(status="Failed", code="http_503", attempts=0, **about):
    return EndedAttempt(status=status, saga=1, attempts=attempts, error_code=code, **about)


def test_the_default_schedule_has_ten_attempts_in_75_h_35_m():
    assert len(WAITS) + 1 == 10
    assert timedelta(microseconds=sum(WAITS)) == timedelta(hours=75, minutes=35, seconds=5)


def test_jitter_only_adds_and_is_the_same_each_time():
    schedule = RetrySchedule()
    for attempt, wait in enumerate(WAITS, 1):
        drawn = {schedule.after(attempt, saga) for saga in range(50)}
        assert len(drawn) > 40
        assert all(wait <= each <= wait * 1.2 for each in drawn)
        assert schedule.after(attempt, 7) == schedule.after(attempt, 7)
    assert schedule.after(10, 1) is None


@pytest.mark.parametrize(
    ("attempt", "final", "expected"),
    [
        (ended("Completed", None), (), Decision(SagaStatus.COMPLETED)),
        (ended(cancel_requested=True), (), Decision(SagaStatus.CANCELLED)),
        (ended("Completed", None, cancel_requested=True), (), Decision(SagaStatus.COMPLETED)),
        (ended("Cancelled", None), (), Decision(SagaStatus.CANCELLED)),
        (ended(attempts=9), (), Decision(SagaStatus.DEAD_LETTERED)),
        (ended(code="blocked_target"), (), Decision(SagaStatus.DEAD_LETTERED)),
        (ended(code="invalid_url"), (), Decision(SagaStatus.DEAD_LETTERED)),
        (ended(code="http_404", response_status=404), (404,), Decision(SagaStatus.DEAD_LETTERED)),
        (ended(response_status=410), (), Decision(SagaStatus.DEAD_LETTERED, stops=True)),
    ],
)
def test_what_follows_an_attempt(attempt, final, expected):
    assert decided(attempt, RetrySchedule(), final, 1) == expected


@pytest.mark.parametrize("code", ["dns_failed", "tls_failed", "timeout", "http_302", "http_404"])
def test_all_other_failures_are_tried_again(code):
    found = decided(ended(code=code), RetrySchedule(), (), 0)

    assert found.status is SagaStatus.PENDING_RETRY
    assert 5 * SECOND <= found.next_attempt_at <= 6 * SECOND


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [(None, 5, 6), (1, 5, 6), (600, 600, 600), (10 * 365 * 86_400, 86_400, 86_400), (-5, 5, 6)],
)
def test_the_receiver_may_ask_for_a_later_attempt_within_a_day(asked, least, most):
    attempt = ended(retry_after=asked and asked * SECOND)

    found = decided(attempt, RetrySchedule(), (), 0).next_attempt_at
    assert least * SECOND <= found <= most * SECOND


@pytest.mark.parametrize("waits", ["5s", [0], ["8d"], ["1s"] * 51, [-1], [True]])
def test_waits_that_cannot_be_are_refused(waits):
    with pytest.raises(Invalid):
        RetrySchedule.of(waits)


def test_waits_are_stored_as_they_were_given():
    schedule = RetrySchedule.of(["5s", 60, timedelta(hours=1)])

    assert RetrySchedule.stored(schedule.as_text()) == schedule
    assert RetrySchedule.stored(RetrySchedule().as_text()) == RetrySchedule()


def test_a_selection_that_cannot_be_read_is_refused():
    for types, rule in (([], None), ("order.*", None), (["a b"], None), (["*"], "  ")):
        with pytest.raises(Invalid):
            Selection(types, rule)
    with pytest.raises(InvalidRule, match=r"known names: @event\.…"):
        Selection(["*"], "@request.auth.id = 1")


# ---------------------------------------------------------------- health


def test_the_breaker_opens_after_ten_results_most_of_which_failed():
    vitals = Vitals()
    now = MINUTE
    for _ in range(9):
        vitals.fail(now, now, is_dead=False)
    assert vitals.open_until is None
    vitals.fail(now, now, is_dead=False)
    assert vitals.open_until == now + 30 * SECOND

    vitals.fail(now + 1, now + 1, is_dead=False)  # it was under way
    assert vitals.open_until == now + 30 * SECOND
    for seconds in (60, 120, 240, 480, 600, 600):
        now = vitals.open_until
        vitals.fail(now, now, is_dead=False)
        assert vitals.open_until == now + seconds * SECOND
    vitals.succeed(now)
    assert (vitals.open_until, vitals.trips, vitals.failures) == (None, 0, 0)


def test_failures_in_other_windows_do_not_open_the_breaker():
    vitals = Vitals()
    for minute in range(1, 90):
        if minute % 10:
            vitals.fail(minute * MINUTE, minute * MINUTE, is_dead=False)
        else:
            vitals.succeed(minute * MINUTE)

    assert vitals.open_until is None


def test_ten_failures_in_a_row_open_the_breaker_whatever_time_they_took():
    """A silent receiver has one attempt at a time, each of which may take a minute or wait long."""
    vitals = Vitals()
    opened = []
    for now in range(HOUR, 11 * HOUR, HOUR):
        vitals.fail(now, now, is_dead=False)
        opened.append(vitals.open_until)

    assert opened == [None] * 9 + [10 * HOUR + 30 * SECOND]


def test_a_subscription_is_stopped_after_five_days_of_failures_and_its_owner_is_warned():
    """Check 36."""
    vitals = Vitals()
    told = {}
    for hour in range(125):
        notice = vitals.fail(hour * HOUR, hour * HOUR, is_dead=hour in {80, 121})
        vitals.open_until, vitals.trips = None, 0
        if notice:
            told[hour] = notice, vitals.warned
    assert told == {
        60: (NoticeKind.FAILING, 50),
        84: (NoticeKind.FAILING, 70),
        108: (NoticeKind.FAILING, 90),
        120: (NoticeKind.FAILING, 100),  # it has left one dead letter only
        121: (NoticeKind.STOPPED, 100),
    }
    assert vitals.stopped_why == "failing"
    vitals.enable()
    assert vitals == Vitals(last_failure_at=124 * HOUR, window_at=vitals.window_at, warned=TOLD)
    assert vitals.fail(125 * HOUR, 125 * HOUR, is_dead=False) is None
    assert vitals.succeed(126 * HOUR) is NoticeKind.RECOVERED


def test_a_success_ends_the_failures_and_says_so_after_a_warning():
    vitals = Vitals()
    assert vitals.succeed(1) is None
    vitals.fail(2, 2, is_dead=True)
    vitals.fail(4 * DAY, 4 * DAY, is_dead=True)

    assert vitals.succeed(4 * DAY) is NoticeKind.RECOVERED
    assert vitals.fail(6 * DAY, 6 * DAY, is_dead=True) is None


def succeed(vitals, now, under_way):
    """Note that all attempts under way have succeeded."""
    growth = vitals.growth(under_way)
    for _ in range(under_way):
        vitals.succeed(now, growth=growth)
    return vitals.at_once


def test_successes_make_room_where_it_is_needed_and_lose_it_where_it_is_not():
    vitals = Vitals()
    assert [succeed(vitals, 1, at_once) for at_once in (1, 2, 4, 8)] == [2, 4, 8, 16]
    assert [succeed(vitals, 1, 10) for _ in range(2)] == [16, 16]
    assert [succeed(vitals, 1, 1) for _ in range(15)][-3:] == [3, 2, 2]


def test_one_delivery_runs_at_a_time_after_a_failure_and_after_a_minute_of_silence():
    vitals = Vitals()
    for under_way in (1, 2, 4):
        succeed(vitals, MINUTE, under_way)
    vitals.rest(2 * MINUTE)
    assert vitals.at_once == 8
    vitals.rest(2 * MINUTE + 1)
    assert vitals.at_once == 1
    succeed(vitals, 3 * MINUTE, 1)
    vitals.fail(3 * MINUTE, 3 * MINUTE, is_dead=False)
    assert (vitals.at_once, vitals.prompt) == (1, 0)


def test_a_receiver_stays_prompt_through_some_slow_answers_and_not_through_many():
    vitals = Vitals()
    vitals.succeed(1, duration=2 * SECOND)
    assert vitals.prompt == 0
    for _ in range(100):
        vitals.succeed(1)
    slow = [(vitals.succeed(1, duration=2 * SECOND), vitals.prompt)[1] for _ in range(25)]
    assert (slow[9], slow[19], slow[24]) == (10, 0, 0)


@pytest.mark.parametrize(
    ("running", "pending", "about", "room", "wakes_at"),
    [
        (0, 0, {"at_once": 20}, 10, None),
        (10, 2, {"at_once": 20}, 0, None),
        (3, 0, {"at_once": 7}, 4, None),
        (7, 0, {"at_once": 7}, 0, None),
        (0, 0, {}, 1, None),
        (1, 0, {}, 0, None),
        (0, 0, {"open_until": 5 * SECOND}, 0, 5 * SECOND),
        (0, 0, {"open_until": SECOND, "failures": 9}, 1, None),
    ],
)
def test_room(running, pending, about, room, wakes_at):
    gate = Gate(Vitals(**about), Gauge(running, 10, None, 1, 0, 2 * SECOND), pending)

    assert gate.room == room
    assert room or gate.wakes_at == wakes_at


def test_a_paced_subscription_has_no_more_than_a_burst_that_waits_for_workers():
    gate = Gate(Vitals(at_once=5), Gauge(1, 10, SECOND, 2, 0, 9 * SECOND), 1)
    assert gate.room == 1
    gate.started(1)

    assert gate.room == 0
    assert gate.wakes_at == 10 * SECOND


# ---------------------------------------------------------------- through the operations


def test_no_more_deliveries_run_at_once_than_the_subscription_allows(hooks):
    id = hooks.create(concurrency=3).id
    hooks.publish(*range(10))
    hooks.advance()
    first = hooks.claim()
    assert len(first) == 3
    assert hooks.advance()[-1].started == 0
    hooks.report(first[0])
    hooks.advance()

    assert [each.payload for each in hooks.claim()] == ["3"]
    assert hooks.health(id).in_progress == 3
    hooks.check()


def test_a_new_receiver_gets_one_delivery_and_twice_as_many_after_each_success(hooks):
    hooks.create(at_once=1, concurrency=5)
    hooks.publish(*range(20))

    assert [len(hooks.deliver()) for _ in range(4)] == [1, 2, 4, 5]
    hooks.check()


def test_a_receiver_that_never_answers_holds_one_delivery(hooks):
    hooks.create(at_once=1)
    hooks.publish(*range(10))
    hooks.advance()

    assert len(hooks.claim()) == 1
    hooks.publish(10)
    hooks.advance()
    assert hooks.claim() == []


def test_after_a_failure_deliveries_go_one_at_a_time(hooks, clock):
    hooks.create(concurrency=3)
    hooks.publish(*range(10))
    hooks.deliver(FAILED, most=3)
    for _ in range(2):
        hooks.advance()
        [made] = hooks.claim()
        hooks.report(made, FAILED)
    hooks.advance()
    assert len(hooks.deliver(DONE)) == 1

    assert len(hooks.claim()) == 2
    hooks.check()


def test_an_open_breaker_starts_nothing_and_costs_no_attempt(hooks, clock):
    id = hooks.create(concurrency=10).id
    hooks.publish(*range(20))
    hooks.deliver(FAILED)
    assert hooks.health(id).open_until is not None
    assert hooks.deliver() == []
    clock.advance(29)
    assert hooks.deliver() == []
    clock.advance(2)

    assert [len(hooks.deliver(DONE)) for _ in range(3)] == [1, 2, 4]
    assert sum(saga.attempts for saga in hooks.sagas()) == 17
    hooks.check()


def test_a_rate_is_kept_when_workers_stood_still(hooks, clock):
    hooks.create(pace=SECOND, burst=1)
    hooks.publish(*range(9))
    hooks.advance()
    for _ in range(5):  # no worker claims
        clock.advance(1)
        hooks.advance()
    starts = []
    for _ in range(4):
        starts += [len(hooks.claim())]
        clock.advance(1)
        hooks.advance()

    assert starts == [1, 1, 1, 1]
    hooks.check()


def test_an_ordered_subscription_delivers_in_the_order_of_events(hooks, clock):
    hooks.create(ordered=True, concurrency=5, waits="[60000000]")
    hooks.publish(1, 2, 3)
    assert [each.payload for each in hooks.deliver(FAILED)] == ["1"]
    assert hooks.run(advancing.next_wake()) >= 60 * SECOND
    clock.advance(59)
    assert hooks.deliver() == []
    clock.advance(20)
    assert [each.payload for each in hooks.deliver(FAILED)] == ["1"]  # dead: the line goes on

    hooks.requeue(hooks.letters()[0].id)  # behind what has begun, before every later event
    assert [hooks.deliver()[0].payload for _ in range(3)] == ["2", "1", "3"]
    assert hooks.statuses() == ["DeadLettered", "Completed", "Completed", "Completed"]
    hooks.check()


def test_the_orchestrator_knows_when_the_next_attempt_is_due(hooks, clock):
    hooks.create()
    assert hooks.run(advancing.next_wake()) is None
    hooks.publish()
    assert hooks.run(advancing.next_wake()) == 0
    hooks.deliver(FAILED)

    assert 5 * SECOND <= hooks.run(advancing.next_wake()) <= 6 * SECOND


@pytest.mark.parametrize(("channel", "told"), [("orders", ["saga.dead_lettered"]), ("system", [])])
def test_a_dead_letter_is_announced_but_not_one_of_the_channel_of_announcements(
    hooks, channel, told
):
    hooks.create(channel, waits="[]")
    body = {"encoding": "json", "size": 1, "type": "towpath.test"}
    new = Append(channel=channel, events=[EventBody(id=uuid7(), body="1", **body)])
    hooks.run(events.append([new]))
    hooks.route(channel)
    hooks.advance()
    for each in hooks.claim():
        hooks.report(each, FAILED)

    hooks.advance()
    hooks.run(events.place(["system"]))
    page = hooks.app.events.read("system")
    assert [each.type for each in page.events if each.payload != 1] == told
    assert len(hooks.letters()) == 1


def test_the_recovery_of_a_stopped_subscription_is_announced(hooks):
    id = hooks.create().id
    hooks.publish()
    hooks.deliver(GONE)
    hooks.run(subscriptions.enable(id))
    hooks.publish()
    hooks.deliver()

    told = [event.type for event in hooks.app.events.read("system").events]
    assert [each for each in told if each.startswith("subscription.")] == [
        "subscription.stopped",
        "subscription.recovered",
    ]


def test_a_change_of_a_subscription_holds_for_what_waits(hooks, clock):
    id = hooks.create(concurrency=1).id
    hooks.publish(1, 2, 3)
    hooks.advance()
    changed = hooks.run(subscriptions.update(id, {"concurrency": 2, "url": "https://new.test/"}))
    assert (changed.concurrency, changed.url) == (2, "https://new.test/")
    hooks.advance()

    assert {each.url for each in hooks.claim()} == {"https://new.test/"}
    assert hooks.health(id).in_progress == 2


def test_a_role_may_run_its_own_operations_only():
    """WH-9"""
    named = [name for names in OPERATIONS.values() for name in names]
    assert len(named) == len(set(named))
    assert may_run(Role.WORKER, "claim_deliveries")
    assert not may_run(Role.WORKER, "advance")
    assert may_run(Role.MANAGER, "anything")
