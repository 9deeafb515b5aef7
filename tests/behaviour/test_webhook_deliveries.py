"""Deliveries from the event to the end of their sagas."""

from datetime import timedelta

import pytest

from tests.behaviour.webhooks import DONE, FAILED, GONE, SECOND, Webhooks, outcome_of
from towpath.errors import Conflict, LeaseLost, NotFound
from towpath.model.sagas import SagaStatus
from towpath.operation import Operation
from towpath.statement import Statement
from towpath.store import dead_letters, deliveries, sagas, subscriptions
from towpath.store.deliveries import Line

NAMES = {  # of indexes, and the columns that they begin with
    "idx_job_saga": "saga_id",
    "idx_job_status_lease": "status, lease_until",
    "uniq_job_saga_attempt": "saga_id, attempt_no",
    "idx_dead_saga": "saga_id",
    "idx_dead_event": "event_id",
}
INDEXES = {
    "sqlite": "select name, sql from sqlite_master where type = 'index' and sql is not null",
    "postgres": """
select relname, pg_get_indexdef(oid) from pg_class
 where relkind = 'i' and relnamespace = to_regnamespace('{schema}')""",
}


@pytest.fixture
def hooks(app):
    return Webhooks(app)


def test_the_tables_are_those_of_the_document_and_a_view_shows_them_to_people(hooks):
    """WH-1"""
    id = hooks.create(waits="[]").id
    hooks.publish(1)
    hooks.deliver(FAILED)
    [saga] = hooks.sagas()

    [job] = hooks.sql(
        """
select saga_id, status, lease_until, response_status, error_code, attempt_at is not null, id
  from towpath.webhook_delivery_jobs"""
    )
    assert job[:5] == (saga.id, "Failed", None, 503, "http_503")
    [letter] = hooks.sql(
        """
select saga_id, subscription_id, final_error_code, payload_snapshot, event_id, failed_at, id
  from towpath.dead_letters"""
    )
    assert letter[:4] == (saga.id, id, "http_503", "1")
    found = hooks.run(Operation("look", lambda: (yield Statement("indexes", INDEXES)())))
    columns = {name.removeprefix("towpath_"): text.partition("(")[2] for name, text in found}
    assert {name for name in NAMES if columns[name].startswith(NAMES[name])} == NAMES.keys()
    [shown] = hooks.sql(
        """
select saga_id, subscription_id, channel, url, type, saga, status, attempt_no, response_status,
       error_code, worker_id, lease_until, attempt_at
  from towpath.deliveries"""
    )
    assert shown[:-1] == (
        saga.id, id, "orders", "https://example.com/", "order.paid", "DeadLettered", "Failed", 1,
        503, "http_503", "w", None,
    )  # fmt: skip
    assert not isinstance(shown[-1], int)


def test_an_event_is_delivered_to_every_subscription_that_wants_it(hooks):
    """WH-2, WH-6"""
    one, two = hooks.create(), hooks.create(types='["order.*"]')
    hooks.create(types='["mail.*"]')
    hooks.create(filter_rule="@event.payload.total > 100")
    hooks.publish({"total": 7})

    made = hooks.deliver()

    assert [(each.subscription, each.attempt) for each in made] == [(one.id, 1), (two.id, 1)]
    assert made[0].payload == '{"total":7}'
    assert made[0].sealed == f"sealed for {one.id}"
    assert hooks.statuses() == [SagaStatus.COMPLETED] * 2
    hooks.check()


def test_a_failed_delivery_is_tried_again_and_then_dead(hooks, clock):
    """WH-6, WH-7"""
    hooks.create(waits="[5000000, 60000000]")
    hooks.publish({"n": 1})

    for wait in (6, 72, 0):
        [made] = hooks.deliver(FAILED)
        assert hooks.claim() == []
        clock.advance(wait)

    [saga] = hooks.sagas()
    assert (saga.status, saga.attempts, saga.last_error) == ("DeadLettered", 3, "http_503")
    [letter] = hooks.letters()
    assert (letter.saga, letter.event, letter.body) == (saga.id, made.event, '{"n":1}')
    assert [each.number for each in hooks.run(sagas.attempts(saga.id))] == [1, 2, 3]
    hooks.check()


def test_a_dead_letter_is_requeued_as_a_new_saga(hooks):
    """WH-8"""
    hooks.create(waits="[]")
    hooks.publish("x")
    [first] = hooks.deliver(FAILED)
    [letter] = hooks.letters()

    new = hooks.requeue(letter.id)
    with pytest.raises(Conflict, match="under way"):
        hooks.requeue(letter.id)
    [second] = hooks.deliver()

    assert (second.saga, second.event, second.payload) == (new, first.event, first.payload)
    assert hooks.statuses() == [SagaStatus.DEAD_LETTERED, SagaStatus.COMPLETED]
    assert hooks.letters()[0].requeued_as == new
    with pytest.raises(NotFound):
        hooks.requeue(99)
    hooks.check()


def test_a_stale_report_is_refused_and_a_repeated_one_holds_once(hooks, clock):
    """Check 31, WH-3"""
    hooks.create()
    hooks.publish()
    hooks.advance()
    [old] = hooks.claim()
    assert hooks.claim() == []
    clock.advance(31)
    assert hooks.claim() == []  # only the cleaner takes a lease back
    [lost] = hooks.run(deliveries.reset())
    assert (lost.job, lost.worker, lost.lost) == (old.job, "w", False)
    [new] = hooks.claim()
    with pytest.raises(LeaseLost):
        hooks.report(old)
    hooks.report(new, FAILED)
    hooks.report(new, FAILED)
    with pytest.raises(LeaseLost):
        hooks.report(new, DONE)

    assert hooks.run(deliveries.reset()) == []
    hooks.advance()
    assert hooks.statuses() == [SagaStatus.PENDING_RETRY]
    hooks.check()


def test_an_attempt_whose_lease_is_lost_five_times_has_failed(hooks, clock):
    """WH-5: it says nothing about the receiver."""
    id = hooks.create().id
    hooks.publish()
    hooks.advance()
    for nth in range(5):
        assert len(hooks.claim()) == 1
        clock.advance(31)
        [lost] = hooks.run(deliveries.reset())
        assert bool(lost.lost) is (nth == 4)

    assert hooks.claim() == []
    hooks.advance()

    [saga] = hooks.sagas()
    assert (saga.status, saga.last_error) == ("PendingRetry", "lease_lost")
    assert hooks.health(id).failures == 0


def test_a_lease_that_a_worker_declines_counts_for_nothing(hooks, clock):
    """Another worker may have the key of the secrets."""
    hooks.create()
    hooks.publish()
    hooks.advance()
    for _ in range(10):
        [made] = hooks.claim()
        hooks.run(deliveries.decline([made]))
        assert hooks.claim() == []
        [taken] = hooks.run(deliveries.reset())
        assert (bool(taken.declined), bool(taken.lost)) == (True, False)
        with pytest.raises(LeaseLost):
            hooks.report(made)
    [made] = hooks.claim()
    hooks.report(made)
    hooks.advance()

    [saga] = hooks.sagas()
    assert (saga.status, saga.attempts, saga.last_error) == ("Completed", 1, None)
    assert [each.lease_losses for each in hooks.run(sagas.attempts(saga.id))] == [0]
    hooks.check()


def test_a_worker_claims_what_goes_to_prompt_receivers_apart(hooks, clock):
    answers = {
        "prompt": DONE,
        "slow": outcome_of(204, duration=2 * SECOND),
        "failing": FAILED,
    }
    for channel, outcome in answers.items():
        hooks.create(channel)
        hooks.publish(1, channel=channel)
        hooks.deliver(outcome)
    hooks.create("new")
    for channel in (*answers, "new"):
        hooks.publish(f"to {channel}", channel=channel)
    hooks.advance()

    prompt = hooks.run(deliveries.claim([Line(False, 9)], 901, "w"))
    assert [each.payload for each in prompt] == ['"to prompt"']
    others = hooks.run(deliveries.claim([Line(True, 9)], 902, "w"))
    assert {each.payload for each in others} == {'"to slow"', '"to failing"', '"to new"'}
    assert {each.late for each in prompt} | {each.late for each in others} == {False, True}


def test_a_410_stops_the_subscription_and_enable_starts_it_again(hooks):
    """Checks 35 and 36, WH-6: what comes meanwhile is held."""
    id = hooks.create().id
    hooks.publish(1)
    hooks.deliver(GONE)
    assert hooks.statuses() == ["DeadLettered"]
    assert hooks.health(id).stopped_why == "gone"

    hooks.publish(2, 3)
    assert hooks.deliver() == []
    assert hooks.health(id).held == 2
    hooks.run(subscriptions.enable(id))
    made = hooks.deliver() + hooks.deliver()

    assert [each.payload for each in made] == ["2", "3"]
    hooks.check()


def test_a_release_leaves_a_retry_for_its_time_and_brings_back_the_others_in_order(hooks, clock):
    """Checks 32 and 35: the receiver has asked for an hour."""
    id = hooks.create().id
    hooks.publish("asked")
    hooks.deliver(outcome_of(503, retry_after=3_600 * SECOND))
    due = hooks.sagas()[0].next_attempt_at
    hooks.publish("overdue")
    hooks.deliver(FAILED)
    for change in (subscriptions.pause, subscriptions.resume, subscriptions.pause):
        hooks.run(change(id))
        hooks.advance()
    assert hooks.statuses() == ["Held", "Held"]
    clock.advance(60)
    hooks.publish("new")
    hooks.run(subscriptions.resume(id))

    made = [hooks.deliver(), hooks.deliver(), hooks.deliver()]
    assert [each.payload for [each] in made[:2]] == ['"overdue"', '"new"']
    assert made[2] == []
    assert hooks.sagas()[-1].next_attempt_at == due
    clock.advance(3_600)
    assert [each.payload for each in hooks.deliver()] == ['"asked"']
    hooks.check()


def test_a_dead_letter_is_deleted_with_the_notes_of_its_requeues(hooks):
    hooks.create(waits="[]")
    hooks.publish()
    hooks.deliver(FAILED)
    [letter] = hooks.letters()
    hooks.requeue(letter.id)

    assert hooks.run(dead_letters.delete(letter.id))
    assert not hooks.run(dead_letters.delete(letter.id))
    assert hooks.sql("select count(*) from towpath.dead_letter_requeues") == [(0,)]


def test_a_requeue_to_a_stopped_subscription_is_held_and_says_so(hooks):
    id = hooks.create().id
    hooks.publish()
    hooks.deliver(GONE)
    [letter] = hooks.letters()

    saga = hooks.app.webhooks.dead_letters.requeue(letter.id)
    assert (saga.status, saga.next_attempt_at) == ("Held", None)
    hooks.advance()
    assert hooks.app.webhooks.sagas.get(saga.id).status == "Held"
    hooks.run(subscriptions.enable(id))
    assert len(hooks.deliver()) == 1


def test_a_paused_subscription_holds_its_sagas_and_releases_them_in_order(hooks, clock):
    """Check 35."""
    id = hooks.create(concurrency=2).id
    hooks.publish(*range(5))
    hooks.advance()
    assert hooks.run(subscriptions.pause(id)) == 2

    made = hooks.deliver()
    assert [each.payload for each in made] == ["0", "1"]
    hooks.publish(5)
    hooks.advance()
    assert hooks.statuses() == ["Completed"] * 2 + ["Held"] * 4
    clock.advance(60)
    hooks.run(subscriptions.resume(id))
    assert [each.payload for _ in range(2) for each in hooks.deliver()] == ["2", "3", "4", "5"]
    hooks.check()


def test_what_is_held_too_long_is_dead(hooks, clock):
    id = hooks.create().id
    hooks.publish(1)
    hooks.run(subscriptions.pause(id))
    hooks.advance()
    clock.advance("8d")
    hooks.advance()

    assert hooks.statuses() == ["DeadLettered"]
    assert hooks.letters()[0].error_code == "subscription_stopped"
    hooks.check()


def test_a_cancelled_saga_ends_without_a_further_attempt(hooks):
    hooks.create(concurrency=1)
    hooks.publish(1, 2)
    hooks.advance()
    [made] = hooks.claim()
    first, second = reversed(hooks.sagas())

    assert hooks.cancel(second.id).status is SagaStatus.CANCELLED
    assert hooks.cancel(first.id).cancel_requested
    hooks.report(made, FAILED)
    hooks.advance()
    assert hooks.statuses() == ["Cancelled", "Cancelled"]
    assert hooks.deliver() == []
    assert hooks.cancel(second.id).status is SagaStatus.CANCELLED
    hooks.check()


def test_a_cancelled_saga_whose_worker_is_lost_is_not_sent_again(hooks, clock):
    hooks.create()
    hooks.publish(1)
    hooks.advance()
    [made] = hooks.claim()
    hooks.cancel(made.saga)
    clock.advance(31)
    [lost] = hooks.run(deliveries.reset())

    assert (bool(lost.lost), bool(lost.cancelled)) == (True, True)
    hooks.advance()
    assert hooks.statuses() == ["Cancelled"]
    assert hooks.deliver() == []
    hooks.check()


def test_a_delivery_job_that_no_worker_has_taken_is_cancelled_with_its_saga(hooks):
    hooks.create()
    hooks.publish(1)
    hooks.advance()
    [saga] = hooks.sagas()
    hooks.cancel(saga.id)

    assert hooks.claim() == []
    hooks.advance()
    [saga] = hooks.sagas()
    assert (saga.status, saga.attempts) == ("Cancelled", 0)
    hooks.check()


def test_a_completed_saga_is_sent_again_if_that_is_confirmed(hooks):
    hooks.create()
    hooks.publish("x")
    [first] = hooks.deliver()
    with pytest.raises(Conflict, match="pass `confirm`"):
        hooks.run(sagas.resend(first.saga, confirm=False))

    new = hooks.run(sagas.resend(first.saga, confirm=True))
    assert hooks.run(sagas.resend(first.saga, confirm=True)) == new
    [second] = hooks.deliver()
    assert (second.saga, second.event) == (new.id, first.event)


def test_a_dead_saga_is_sent_again_once_its_dead_letter_was_deleted(hooks):
    hooks.create(waits="[]")
    hooks.publish()
    [made] = hooks.deliver(FAILED)
    [letter] = hooks.letters()
    with pytest.raises(Conflict, match="has a dead letter; requeue that"):
        hooks.run(sagas.resend(made.saga, confirm=True))
    hooks.run(dead_letters.delete(letter.id))

    assert hooks.run(sagas.resend(made.saga, confirm=False)).replay_of == made.saga
    [again] = hooks.deliver()
    assert again.event == made.event


def test_a_deleted_subscription_gets_nothing_any_more(hooks):
    id = hooks.create(concurrency=1).id
    hooks.publish(1, 2, 3)
    hooks.advance()
    [made] = hooks.claim()
    hooks.run(subscriptions.delete(id))

    assert hooks.statuses() == ["InProgress", "Cancelled", "Cancelled"]
    hooks.report(made, FAILED)
    hooks.advance()
    hooks.publish(4)
    assert hooks.statuses() == ["Cancelled"] * 3
    assert hooks.sql("select sealed from towpath.subscriptions") == [("",)]
    with pytest.raises(NotFound):
        hooks.run(subscriptions.get(id))
    assert hooks.app.events.consumers("orders") == []
    hooks.check()


def test_a_worker_leaves_subscriptions_that_it_cannot_open_to_others(hooks):
    one, two = hooks.create(), hooks.create()
    hooks.publish()
    hooks.advance()
    lines = [Line(late, 10) for late in (False, True)]

    [made] = hooks.run(deliveries.claim(lines, 7, "w", unable=[one.id]))

    assert made.subscription == two.id
    assert not hooks.run(deliveries.is_claimable([one.id]))
    assert hooks.run(deliveries.is_claimable())


def test_the_health_tells_how_long_the_last_attempts_took_and_how_one_failed(hooks, monkeypatch):
    monkeypatch.setattr(subscriptions, "RECENT", 20)
    id = hooks.create(concurrency=100).id
    assert hooks.health(id).p50 is None
    hooks.publish(*range(30))
    hooks.advance()
    for each in hooks.claim():
        took = max(0, int(each.payload) - 9)  # the last 20: 1 to 20 ms
        status = 503 if each.payload in {"12", "28"} else 204
        hooks.report(each, outcome_of(status, duration=took * 1_000))
    hooks.advance()

    health = hooks.health(id)
    assert (health.recent, health.recent_failed, health.last_error) == (20, 2, "http_503")
    assert (health.p50, health.p95) == (timedelta(milliseconds=10), timedelta(milliseconds=19))
    assert health.last_failure_at is not None
