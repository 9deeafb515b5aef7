"""Sagas: read, cancelled, and sent again by their manager. `advancing` moves them on.

A transaction that moves a saga holds the row of the health of its subscription. So does the
orchestrator, and neither overlooks the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from towpath.errors import Conflict, NotFound
from towpath.model.instants import FOREVER, as_datetime, as_timedelta
from towpath.model.sagas import DeliveryStatus, SagaStatus
from towpath.model.subscriptions import PING, Attempt, Saga
from towpath.operation import Answer, Batch, Changed, Mode, Operation, Steps, Wakeup
from towpath.statement import Statements, no_rows, rows
from towpath.store.rows import uuid_from

SAGAS: Final = Wakeup("webhooks")
"""Rings for the orchestrator: a saga is new, an attempt has ended, a subscription has changed."""

CANCEL_AT_ONCE: Final = 1_000


class SagaOwner(NamedTuple):
    """A saga and its subscription."""

    id: int
    subscription_id: int


class Target(NamedTuple):
    """Whether a subscription can be delivered to."""

    id: int
    deleted: bool | int
    paused: bool | int
    stopped: bool | int


class LiveSaga(NamedTuple):
    """The unfinished saga of an event and a subscription."""

    id: int
    replay_of: int | None


class SagaRow(NamedTuple):
    """A saga and its event."""

    id: int
    event: Any
    type: str | None
    subscription_id: int
    status: str
    attempt_count: int
    next_attempt_at: int | None
    created_at: int
    finished_at: int | None
    replay_of: int | None
    cancel_requested: bool | int
    last_error: str | None

    def saga(self) -> Saga:
        """Return it as callers see it."""
        return Saga(
            id=self.id,
            event=uuid_from(self.event),
            type=self.type,
            subscription=self.subscription_id,
            status=SagaStatus(self.status),
            attempts=self.attempt_count,
            next_attempt_at=at(self.next_attempt_at),
            created_at=as_datetime(self.created_at),
            finished_at=at(self.finished_at),
            replay_of=self.replay_of,
            cancel_requested=bool(self.cancel_requested),
            last_error=self.last_error,
        )


class AttemptRow(NamedTuple):
    """A delivery job, as it is stored."""

    id: int
    saga_id: int
    attempt_no: int
    status: str
    attempt_at: int
    finished_at: int | None
    response_status: int | None
    error_code: str | None
    duration: int | None
    excerpt: str | None
    location: str | None
    worker_id: str | None
    lease_until: int | None
    lease_losses: int

    def attempt(self) -> Attempt:
        """Return it as callers see it."""
        return Attempt(
            id=self.id,
            saga=self.saga_id,
            number=self.attempt_no,
            status=DeliveryStatus(self.status),
            made_at=as_datetime(self.attempt_at),
            finished_at=at(self.finished_at),
            response_status=self.response_status,
            error_code=self.error_code,
            duration=None if self.duration is None else as_timedelta(self.duration),
            excerpt=self.excerpt,
            location=self.location,
            worker=self.worker_id,
            lease_until=at(self.lease_until),
            lease_losses=self.lease_losses,
        )


class sql(Statements):
    """The statements of sagas.sql."""

    hold_health = rows(int)
    wake = no_rows()
    owners_of = rows(SagaOwner)
    cancel = no_rows()
    ask = no_rows()
    cancel_jobs = no_rows()
    cancel_some = rows(int)
    ask_all = no_rows()
    cancel_jobs_of = no_rows()
    hold_event = rows(int)
    target = rows(Target)
    live = rows(LiveSaga)
    send_again = rows(int)
    letter = rows(int)
    add_ping = rows(int)
    find = rows(SagaRow)
    find_by_event = rows(SagaRow)
    list = rows(SagaRow)
    attempts = rows(AttemptRow)


def at(us: int | None) -> datetime | None:
    """Return an instant that may be missing."""
    return None if us is None else as_datetime(us)


def owners(subscriptions: Iterable[int]) -> list[dict[str, Any]]:
    """Return subscriptions as the items of a statement, each once and in one order."""
    return [{"subscription": each} for each in sorted(set(subscriptions))]


def hold(subscriptions: Iterable[int]) -> Steps[None]:
    """Hold the health of subscriptions: no other transaction moves their sagas."""
    yield sql.hold_health(owners(subscriptions))


def wake(subscriptions: Iterable[int]) -> Steps[None]:
    """Let the orchestrator look at subscriptions; the caller rings SAGAS."""
    yield sql.wake(owners(subscriptions))


def cancel(sagas: Sequence[int]) -> Operation[list[Answer[Saga]]]:
    """End sagas without a further attempt; one that is under way ends with its attempt.

    If that attempt succeeds, the saga is completed all the same.
    """

    def steps() -> Steps[Changed[list[Answer[Saga]]]]:
        items = _items(sagas)
        found = yield from sql.owners_of(items)
        yield from hold(row.subscription_id for row in found)
        yield sql.cancel(items)
        yield sql.ask(items)
        yield sql.cancel_jobs(items)
        after = {row.id: row.saga() for row in (yield from sql.find(items))}
        answers = [_cancelled(id, after.get(id)) for id in sagas]
        return Changed(answers, others=[SAGAS])

    return Operation("cancel_sagas", steps, Mode.APPEND, locks=True, batch=Batch(sagas, cancel))


def _cancelled(id: int, saga: Saga | None) -> Answer[Saga]:
    if saga is None:
        return missing(id)
    if saga.status is SagaStatus.CANCELLED or saga.cancel_requested:
        return saga
    return Conflict(f"saga {id} is {saga.status} and cannot be cancelled any more")


def cancel_of(subscription: int) -> Steps[int]:
    """Cancel some of what waits for a subscription whose health is held; say how much it was."""
    cancelled = yield from sql.cancel_some(subscription=subscription, limit=CANCEL_AT_ONCE)
    yield sql.ask_all(subscription=subscription)
    yield sql.cancel_jobs_of(subscription=subscription)
    return len(cancelled)


def resend(id: int, *, confirm: bool) -> Operation[Saga]:
    """Deliver the event of an ended saga once more, by a new saga; a completed one if confirmed."""

    def steps() -> Steps[Changed[Saga]]:
        found = yield from sql.find(_items([id]))
        if not found:
            raise missing(id)
        [old] = found
        yield from hold([old.subscription_id])
        yield from sql.hold_event(saga=id)
        live = yield from sql.live(saga=id)
        if any(row.replay_of != id for row in live):
            msg = f"saga {live[0].id} delivers the same event to the same subscription; wait for it"
            raise Conflict(msg)
        if not live:  # else this call is repeated, and its saga is there
            yield from _check_resend((yield from _saga(id)), confirm=confirm)
            live = [LiveSaga(new, id) for new in (yield from sql.send_again(saga=id))]
        yield from wake([old.subscription_id])
        return Changed((yield from _saga(live[0].id)), others=[SAGAS])

    return Operation("resend_saga", steps, Mode.APPEND, locks=True)


def _check_resend(old: Saga, *, confirm: bool) -> Steps[None]:
    # A dead letter that was deleted cannot be requeued; its saga may still have the event.
    if old.status is SagaStatus.DEAD_LETTERED and (yield from sql.letter(saga=old.id)):
        msg = f"saga {old.id} has a dead letter; requeue that"
        raise Conflict(msg)
    if old.status is SagaStatus.COMPLETED and not confirm:
        msg = f"saga {old.id} was delivered; pass `confirm` to deliver its event once more"
        raise Conflict(msg)
    target = yield from sql.target(subscription=old.subscription)
    if not target or target[0].deleted:
        msg = f"subscription {old.subscription} was deleted; nothing can be sent to it"
        raise Conflict(msg)


def ping(subscription: int, event: UUID, body: str, encoding: str) -> Operation[Saga]:
    """Deliver an event of type `ping` to one subscription, the way all events go."""

    def steps() -> Steps[Changed[Saga]]:
        yield from hold([subscription])
        found = yield from sql.target(subscription=subscription)
        if not found or found[0].deleted:
            msg = f"there is no subscription {subscription}; it may have been deleted"
            raise NotFound(msg)
        if found[0].paused or found[0].stopped:
            verb = "resume" if found[0].paused else "enable"
            msg = f"subscription {subscription} holds its events; {verb} it first"
            raise Conflict(msg)
        [id] = yield from sql.add_ping(
            subscription=subscription, event=event, type=PING, encoding=encoding, payload=body
        )
        yield from wake([subscription])
        return Changed((yield from _saga(id)), others=[SAGAS])

    return Operation("ping_subscription", steps, Mode.APPEND, locks=True)


def get(id: int) -> Operation[Saga]:
    """Read one saga."""
    return Operation("get_saga", lambda: _saga(id), Mode.READ, autocommit=True)


def of_event(event: UUID) -> Operation[list[Saga]]:
    """Read the sagas of an event, by its webhook-id."""

    def steps() -> Steps[list[Saga]]:
        return [row.saga() for row in (yield from sql.find_by_event(event=event))]

    return Operation("sagas_of_event", steps, Mode.READ, autocommit=True)


def list_sagas(
    limit: int,
    before: int | None = None,
    subscription: int | None = None,
    status: SagaStatus | None = None,
    type: str | None = None,
) -> Operation[list[Saga]]:
    """List sagas, the newest first, from before one on."""

    def steps() -> Steps[list[Saga]]:
        found = yield from sql.list(
            limit=limit,
            before=FOREVER if before is None else before,
            subscription=subscription,
            status=None if status is None else status.value,
            type=type,
        )
        return [row.saga() for row in found]

    return Operation("list_sagas", steps, Mode.SCAN, autocommit=True)


def attempts(saga: int) -> Operation[list[Attempt]]:
    """Read the attempts of a saga, in order."""

    def steps() -> Steps[list[Attempt]]:
        return [row.attempt() for row in (yield from sql.attempts(saga=saga))]

    return Operation("list_attempts", steps, Mode.READ, autocommit=True)


def _saga(id: int) -> Steps[Saga]:
    found = yield from sql.find(_items([id]))
    if not found:
        raise missing(id)
    return found[0].saga()


def _items(sagas: Iterable[int]) -> list[dict[str, Any]]:
    return [{"saga": each} for each in sorted(set(sagas))]


def missing(id: int) -> NotFound:
    """Return the error of a saga that is not there."""
    return NotFound(f"there is no saga {id}; ended ones are forgotten after a while")
