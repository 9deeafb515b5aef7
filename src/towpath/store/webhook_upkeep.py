"""Upkeep of webhooks: ended sagas and old dead letters are forgotten, and no subscription is.

An event is kept as long as a saga of it, a saga as long as its jobs. Any process does this, as the
manager.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec import Struct

from towpath.model.deliveries import JITTER, LEASE_SLACK, LONGEST_WAIT, MINUTE
from towpath.model.health import LONGEST_BREAK
from towpath.operation import Changed, Mode, Operation, Steps
from towpath.statement import Statements, no_rows, rows
from towpath.store import sagas
from towpath.store.sagas import SAGAS

AT_ONCE: Final = 1_000
LONGEST_LEASE: Final = MINUTE + LEASE_SLACK  # of an attempt that may take a minute
LONGEST_RETRY: Final = round(LONGEST_WAIT * (1 + JITTER))


class VisitedSaga(NamedTuple):
    """A saga, and whether it goes."""

    id: int
    event_id: int
    old: bool | int  # it was made so long ago that it may go
    over: bool | int  # it ended so long ago that it goes


class VisitedEvent(NamedTuple):
    """An event, and whether no saga has it."""

    id: int
    unused: bool | int


class DeletedSubscription(NamedTuple):
    """A subscription that was deleted."""

    id: int
    old: bool | int
    unfinished: bool | int
    has_sagas: bool | int


class SleepingRow(NamedTuple):
    """A subscription, and whether it sleeps though it should not."""

    subscription_id: int
    forgotten: bool | int


class sql(Statements):
    """The statements of webhook_upkeep.sql."""

    visit_sagas = rows(VisitedSaga)
    drop_sagas = no_rows()
    hold_events = rows(int)
    drop_events = no_rows()
    visit_events = rows(VisitedEvent)
    drop_letters = rows(int)
    deleted = rows(DeletedSubscription)
    drop_subscriptions = no_rows()
    forgotten = rows(SleepingRow)
    wake_all = no_rows()
    hasten = no_rows()
    hasten_leases = no_rows()


class Pruned(Struct, frozen=True):
    """How many sagas have gone, and where the next look begins."""

    sagas: int
    upto: int  # 0: from the first saga on


def prune_sagas(after: int, age: int) -> Operation[Pruned]:
    """Forget some sagas that ended so many microseconds ago, with their jobs and events."""

    def steps() -> Steps[Pruned]:
        found = yield from sql.visit_sagas(after=after, age=age, limit=AT_ONCE)
        over = [row for row in found if row.over]
        if over:
            yield sql.drop_sagas([{"saga": row.id} for row in over])
            yield from _drop_events({row.event_id for row in over})
        goes_on = len(found) == AT_ONCE and found[-1].old
        return Pruned(len(over), found[-1].id if goes_on else 0)

    return Operation("prune_sagas", steps, Mode.APPEND, locks=True)


def _drop_events(ids: Iterable[int]) -> Steps[None]:
    """Forget those of some events that have no sagas any more."""
    held = yield from sql.hold_events([{"event": id} for id in sorted(ids)])
    if held:
        yield sql.drop_events([{"event": id} for id in held])


def prune_events(after: int) -> Operation[int]:
    """Forget events that prunes of sagas have left over; look at some, in turn.

    Returns the number of an event behind which to go on; 0: from the first on.
    """

    def steps() -> Steps[int]:
        found = yield from sql.visit_events(after=after, limit=AT_ONCE)
        unused = [row.id for row in found if row.unused]
        if unused:
            yield from _drop_events(unused)
        return found[-1].id if len(found) == AT_ONCE else 0

    return Operation("prune_webhook_events", steps, Mode.APPEND, locks=True)


def prune_letters(age: int) -> Operation[int]:
    """Forget some dead letters that are older than so many microseconds; say how many."""

    def steps() -> Steps[int]:
        return len((yield from sql.drop_letters(age=age, limit=AT_ONCE)))

    return Operation("prune_dead_letters", steps, autocommit=True)


def end_deleted(after: int, age: int) -> Operation[int]:
    """Cancel what waits for deleted subscriptions, and forget those that have no sagas any more.

    Returns the number of a subscription behind which to go on; 0: from the first on.
    """

    def steps() -> Steps[Changed[int]]:
        found = yield from sql.deleted(after=after, age=age, limit=AT_ONCE)
        open = [row.id for row in found if row.unfinished]
        if open:
            yield from sagas.hold(open)
            for id in open:
                yield from sagas.cancel_of(id)
        gone = [row.id for row in found if row.old and not row.has_sagas]
        if gone:
            yield from sagas.hold(gone)
            yield sql.drop_subscriptions(sagas.owners(gone))
        upto = found[-1].id if len(found) == AT_ONCE else 0
        return Changed(upto, others=[SAGAS] if open else [])

    return Operation("end_deleted_subscriptions", steps, Mode.APPEND, locks=True)


def wake_forgotten(after: int) -> Operation[int]:
    """Wake some subscriptions that sleep though something is due, where a process died.

    Returns the number of a subscription behind which to go on; 0: from the first on.
    """

    def steps() -> Steps[Changed[int]]:
        found = yield from sql.forgotten(after=after, limit=AT_ONCE)
        woken = [row.subscription_id for row in found if row.forgotten]
        if woken:
            yield from sagas.wake(woken)
        upto = found[-1].subscription_id if len(found) == AT_ONCE else 0
        return Changed(upto, others=[SAGAS] if woken else [])

    return Operation("wake_forgotten", steps, Mode.APPEND, locks=True)


def move_near() -> Operation[None]:
    """Bring near what lies too far ahead because the clock was set back."""

    def steps() -> Steps[Changed[None]]:
        yield sql.wake_all(longest=LONGEST_BREAK)
        yield sql.hasten(longest=LONGEST_RETRY)
        yield sql.hasten_leases(longest=LONGEST_LEASE)
        return Changed(None, others=[SAGAS])

    return Operation("move_webhooks", steps, Mode.APPEND, locks=True)
