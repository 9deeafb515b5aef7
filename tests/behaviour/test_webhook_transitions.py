"""Every action in every status does what the tables in model/sagas.py say, also by plain SQL."""

from itertools import product

import pytest

from tests.behaviour.webhooks import DONE, FAILED, Webhooks, saga_in
from towpath.errors import DatabaseError, TowpathError
from towpath.model.sagas import (
    DELIVERY_TRANSITIONS,
    ENDED,
    SAGA_TRANSITIONS,
    DeliveryAction,
    DeliveryStatus,
    SagaAction,
    SagaStatus,
)
from towpath.operation import Operation
from towpath.statement import Statement
from towpath.store import deliveries, sagas, subscriptions, webhook_upkeep

SAGA_COLUMNS = {
    "event_id": 99, "subscription_id": 99, "attempt_count": 9, "replay_no": 9, "replay_of": 9,
    "created_at": 9, "finished_at": 9, "next_attempt_at": 9, "current_job_id": 99, "held_at": 9,
    "cancel_requested": True, "held_from": "Pending", "last_error": "other",
}  # fmt: skip
JOB_COLUMNS = {
    "saga_id": 99, "subscription_id": 99, "attempt_no": 9, "lease_losses": 9, "attempt_at": 9,
    "lease_token": 9, "finished_at": 9, "retry_after": 9, "duration": 9, "response_status": 299,
    "worker_id": "other", "error_code": "other", "excerpt": "other", "location": "other",
}  # fmt: skip
LEASE_COLUMNS = {  # that stay while a worker has it; the lease may only become shorter
    name: JOB_COLUMNS[name]
    for name in ("saga_id", "attempt_no", "lease_losses", "lease_token", "duration", "worker_id")
} | {"lease_until": 2**60}
LETTER_COLUMNS = {
    "saga_id": 99, "event_id": 99, "subscription_id": 99, "failed_at": 9, "channel": 9, "seq": 9,
    "at": 9, "final_error_code": "other", "type": "other", "encoding": "text",
    "payload_snapshot": "other",
}  # fmt: skip


@pytest.fixture
def hooks(app):
    return Webhooks(app)


class UndoneError(Exception):
    """Rolls back what the database has allowed."""


def is_refused(hooks, text, **params):
    """Say whether the database refuses a statement of its owner; nothing is changed."""

    def steps():
        yield Statement("test", {"any": text})(**params)
        raise UndoneError

    with pytest.raises((DatabaseError, UndoneError)) as raised:
        hooks.run(Operation("test", steps))
    if raised.type is UndoneError:
        return False
    raised.match("leads there|begins so|has ended|never changes")
    return True


def changing(table, column):
    return f"update towpath.{table} set {column} = :value"  # noqa: S608 - our own


# ---------------------------------------------------------------- by operations


def attempt(outcome):
    def act(hooks, saga):
        for each in hooks.claim():
            hooks.report(each, outcome)
            hooks.advance()

    return act


def pause(hooks, saga):
    hooks.run(subscriptions.pause(saga.subscription))
    hooks.advance()


def start(hooks, saga):
    hooks.app_clock.advance(6)
    hooks.advance()


def release(hooks, saga):
    hooks.run(subscriptions.update(saga.subscription, {"ordered": True, "concurrency": 1}))
    hooks.run(subscriptions.resume(saga.subscription))
    hooks.advance()


def expire(hooks, saga):
    pause(hooks, saga)
    hooks.app_clock.advance("8d")
    hooks.advance()


def requeue(hooks, saga):
    for letter in hooks.letters():
        hooks.requeue(letter.id)


@pytest.mark.parametrize(
    "change",
    [
        "update towpath.webhook_events set payload = '2'",
        "update towpath.dead_letter_requeues set actor = 'another'",
        """
insert into towpath.dead_letters (saga_id, event_id, subscription_id, failed_at, channel, seq, at,
                                  event, encoding, payload_snapshot)
select s.id, s.event_id, s.subscription_id, 0, 0, 0, 0, e.event, 'json', '1'
  from towpath.sagas s join towpath.webhook_events e on e.id = s.event_id
 where s.status = 'Pending'""",
    ],
    ids=["an event", "a requeue", "a letter of a living saga"],
)
def test_what_never_changes_is_refused_to_the_owner_too(hooks, change):
    hooks.create(waits="[]")
    hooks.publish(1)
    hooks.deliver(FAILED)
    hooks.requeue(hooks.letters()[0].id)

    with pytest.raises((DatabaseError, UndoneError)):
        hooks.sql(change)
    assert len(hooks.letters()) == 1


ACTIONS = {
    SagaAction.START: start,
    SagaAction.COMPLETE: attempt(DONE),
    SagaAction.RETRY: attempt(FAILED),
    SagaAction.HOLD: pause,
    SagaAction.CANCEL: lambda hooks, saga: hooks.cancel(saga.id),
    SagaAction.REQUEUE: requeue,
    SagaAction.RESEND: lambda hooks, saga: hooks.run(sagas.resend(saga.id, confirm=True)),
}
REQUESTS = {SagaAction.CANCEL, SagaAction.RESEND}  # are refused loudly


@pytest.mark.parametrize(("status", "action"), list(product(SagaStatus, ACTIONS)))
def test_every_action_in_every_status(hooks, clock, status, action):
    hooks.app_clock = clock
    saga = saga_in(hooks, status)
    allowed = SAGA_TRANSITIONS[action]
    try:
        ACTIONS[action](hooks, saga)
    except TowpathError:
        assert action in REQUESTS
        assert status not in allowed.sources

    after = {each.id: each for each in hooks.sagas()}
    mine = after.pop(saga.id)
    if status in allowed.sources:
        assert mine.status in allowed.goals
    elif (action, status) == (SagaAction.CANCEL, SagaStatus.IN_PROGRESS):
        assert mine.cancel_requested
    else:
        assert mine == saga
    again = {
        SagaAction.REQUEUE: {SagaStatus.DEAD_LETTERED},
        SagaAction.RESEND: {SagaStatus.COMPLETED, SagaStatus.CANCELLED},
    }
    assert [each.status for each in after.values()] == (
        [SagaStatus.PENDING] if status in again.get(action, ()) else []
    )
    hooks.check()


@pytest.mark.parametrize("action", [SagaAction.RELEASE, SagaAction.EXPIRE])
def test_a_held_saga_comes_back_or_dies(hooks, clock, action):
    hooks.app_clock = clock
    saga = saga_in(hooks, SagaStatus.HELD)
    {SagaAction.RELEASE: release, SagaAction.EXPIRE: expire}[action](hooks, saga)

    [after] = hooks.sagas()
    # What is released may start in the same round.
    started = SAGA_TRANSITIONS[SagaAction.START].goals
    assert after.status in SAGA_TRANSITIONS[action].goals | (
        started if action is SagaAction.RELEASE else set()
    )
    hooks.check()


def job_in(hooks, clock, status):
    """Bring a delivery job into a status; return its row and its delivery, if it was claimed."""
    hooks.create()
    hooks.publish()
    hooks.advance()
    claimed = hooks.claim() if status not in {"Pending", "Cancelled"} else [None]
    if status in {"Completed", "Failed"}:
        hooks.report(claimed[0], DONE if status == "Completed" else FAILED)
    if status == "Cancelled":
        hooks.cancel(hooks.sagas()[0].id)
    [saga] = hooks.sagas()
    [job] = hooks.run(sagas.attempts(saga.id))
    assert job.status == status
    return job, claimed[0]


def job_actions(hooks, clock, job, claimed):
    token = claimed.token if claimed else 0
    report = deliveries.Report
    yield DeliveryAction.CLAIM, lambda: hooks.claim(worker="another")
    for action, outcome in ((DeliveryAction.COMPLETE, DONE), (DeliveryAction.FAIL, FAILED)):
        yield action, lambda o=outcome: hooks.run(deliveries.report([report(job.id, token, o)]))
    yield DeliveryAction.RESET, lambda: (clock.advance(31), hooks.run(deliveries.reset()))
    yield DeliveryAction.CANCEL, lambda: hooks.run(sagas.cancel([job.saga]))
    yield DeliveryAction.ASK, lambda: hooks.run(sagas.cancel([job.saga]))
    yield (
        DeliveryAction.DECLINE,
        lambda: hooks.run(deliveries.decline([claimed] if claimed else [])),
    )
    yield DeliveryAction.HASTEN, lambda: hooks.run(webhook_upkeep.move_near())


@pytest.mark.parametrize(
    ("status", "action"),
    list(product(DeliveryStatus, [a for a in DeliveryAction if a not in {"make", "lose"}])),
)
def test_every_action_on_a_delivery_job_in_every_status(hooks, clock, status, action):
    """WH-3, WH-4, WH-5"""
    job, claimed = job_in(hooks, clock, status)
    dict(job_actions(hooks, clock, job, claimed))[action]()

    [after] = hooks.run(sagas.attempts(job.saga))
    allowed = DELIVERY_TRANSITIONS[action]
    if status in allowed.sources:
        assert after.status in allowed.goals
    elif action is not DeliveryAction.ASK:  # which is a cancel, of a job that no worker has
        assert after == job


# ---------------------------------------------------------------- by plain SQL, as the owner


def pairs(transitions):
    return {(source, goal) for each in transitions for source, goal in product(*each[:2])}


@pytest.mark.parametrize("status", SagaStatus)
def test_the_owner_cannot_move_a_saga_otherwise(hooks, status):
    """WH-7: no row of a saga that has ended ever changes."""
    saga = saga_in(hooks, status)
    allowed = pairs(SAGA_TRANSITIONS.values())
    # One is released to where it was held, and a next attempt only comes nearer.
    allowed -= {
        (SagaStatus.HELD, SagaStatus.PENDING_RETRY),
        (SagaStatus.PENDING_RETRY, SagaStatus.PENDING_RETRY),
    }

    for goal in SagaStatus:
        finished = 1 if goal in ENDED else None
        refused = is_refused(
            hooks,
            "update towpath.sagas set status = :status, finished_at = :finished,"
            " cancel_requested = :asked where id = :id",
            status=goal.value,
            finished=finished,
            asked=goal is SagaStatus.IN_PROGRESS,
            id=saga.id,
        )
        assert refused is ((status, goal) not in allowed), goal
    for at, near in ((5, True), (2**60, False), (None, False)):
        refused = is_refused(hooks, changing("sagas", "next_attempt_at"), value=at)
        assert refused is not (near and status is SagaStatus.PENDING_RETRY)
    if status in ENDED:
        for column, value in SAGA_COLUMNS.items():
            assert is_refused(hooks, changing("sagas", column), value=value), column
        assert is_refused(
            hooks,
            "insert into towpath.webhook_delivery_jobs (saga_id, subscription_id, attempt_no,"
            " lease_losses, attempt_at, late, status)"
            " values (:id, 1, 9, 0, 0, false, 'Pending')",
            id=saga.id,
        )


@pytest.mark.parametrize("status", DeliveryStatus)
def test_the_owner_cannot_move_a_delivery_job_otherwise(hooks, clock, status):
    job, _ = job_in(hooks, clock, status)
    allowed = pairs(DELIVERY_TRANSITIONS.values())

    for goal in DeliveryStatus:
        refused = is_refused(
            hooks,
            "update towpath.webhook_delivery_jobs set status = :status, finished_at = :finished,"
            " lease_until = :until where id = :id",
            status=goal.value,
            finished=None if goal in {"Pending", "Leased"} else 1,
            until=1 if goal == "Leased" else None,
            id=job.id,
        )
        assert refused is ((status, goal) not in allowed), goal
    if status == "Leased":
        for column, value in LEASE_COLUMNS.items():
            text = changing("webhook_delivery_jobs", column)
            assert is_refused(hooks, text, value=value), column
    if status in {"Completed", "Failed", "Cancelled"}:
        for column, value in JOB_COLUMNS.items():
            text = changing("webhook_delivery_jobs", column)
            assert is_refused(hooks, text, value=value), column
        text = changing("webhook_delivery_jobs", "applied_at")
        assert not is_refused(hooks, text, value=5)
        hooks.advance()
        assert is_refused(hooks, text, value=5)


def test_the_owner_cannot_begin_elsewhere(hooks):
    saga_in(hooks, SagaStatus.PENDING)
    for status in SagaStatus:
        finished = 1 if status in ENDED else None
        refused = is_refused(
            hooks,
            "insert into towpath.sagas (event_id, subscription_id, attempt_count, replay_no,"
            " created_at, finished_at, cancel_requested, status)"
            " values (7, 7, 0, 0, 0, :finished, false, :status)",
            finished=finished,
            status=status.value,
        )
        assert refused is (status is not SagaStatus.PENDING)
    for status in DeliveryStatus:
        refused = is_refused(
            hooks,
            "insert into towpath.webhook_delivery_jobs (saga_id, subscription_id, attempt_no,"
            " lease_losses, attempt_at, late, status, lease_until, finished_at)"
            " select id, subscription_id, 1, 0, 0, false, :status, :until, :finished"
            " from towpath.sagas",
            status=status.value,
            until=1 if status == "Leased" else None,
            finished=None if status in {"Pending", "Leased"} else 1,
        )
        assert refused is (status is not DeliveryStatus.PENDING)


def test_a_dead_letter_never_changes(hooks):
    """WH-7"""
    saga_in(hooks, SagaStatus.DEAD_LETTERED)
    for column, value in LETTER_COLUMNS.items():
        assert is_refused(hooks, changing("dead_letters", column), value=value), column
    assert not is_refused(hooks, "delete from towpath.dead_letters")


def test_every_status_and_action_is_in_a_table():
    for statuses, actions, table in (
        (SagaStatus, SagaAction, SAGA_TRANSITIONS),
        (DeliveryStatus, DeliveryAction, DELIVERY_TRANSITIONS),
    ):
        named = set().union(*(each.sources | each.goals for each in table.values()))
        assert set(table) == set(actions)
        assert named == set(statuses)
