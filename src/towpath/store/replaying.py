"""Replays: ended deliveries of a subscription that are made again, some at a time.

What is made again is followed by a newer saga, and so is found no more: a replay that is repeated,
or that two processes make at once, sends nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from towpath.model.event import TypeFilter
from towpath.model.sagas import SagaStatus
from towpath.model.subscriptions import Replay
from towpath.operation import Changed, Mode, Operation, Steps
from towpath.statement import Statements, rows
from towpath.store import sagas
from towpath.store.sagas import SAGAS


class EndedDelivery(NamedTuple):
    """An ended saga, or a dead letter, and the type of its event."""

    id: int
    type: str | None


class EndedDeliveries(NamedTuple):
    """Those of a page that are wanted."""

    ids: list[int]
    upto: int | None  # where the next page begins; None: there is none


class sql(Statements):
    """The statements of replaying.sql."""

    last_saga = rows(int)
    last_letter = rows(int)
    sagas = rows(EndedDelivery)
    letters = rows(EndedDelivery)
    hold_events = rows(int)
    send_again = rows(int)


def last(status: SagaStatus) -> Operation[int]:
    """Read the number behind which nothing belongs to a replay that begins now."""

    def steps() -> Steps[int]:
        is_dead = status is SagaStatus.DEAD_LETTERED
        [number] = yield from (sql.last_letter() if is_dead else sql.last_saga())
        return number

    return Operation("last_of_replay", steps, Mode.READ, autocommit=True)


def candidates(replay: Replay, after: int, limit: int) -> Operation[EndedDeliveries]:
    """Read which sagas, or dead letters, are to be made again, from behind a number on."""
    is_wanted = TypeFilter(replay.types)
    is_dead = replay.status is SagaStatus.DEAD_LETTERED
    place = {
        "subscription": replay.subscription,
        "after": after,
        "upto": replay.upto,
        "since": replay.since,
        "until": replay.until,
        "limit": limit,
    }

    def steps() -> Steps[EndedDeliveries]:
        if is_dead:
            found = yield from sql.letters(**place)
        else:
            found = yield from sql.sagas(**place, status=replay.status.value)
        ids = [each.id for each in found if is_wanted(each.type)]
        return EndedDeliveries(ids, found[-1].id if len(found) == limit else None)

    return Operation("candidates_of_replay", steps, Mode.SCAN, autocommit=True)


def send_again(subscription: int, ended: Sequence[int]) -> Operation[int]:
    """Deliver the events of ended sagas of a subscription once more; say how many."""

    def steps() -> Steps[Changed[int]]:
        items = [{"saga": each} for each in ended]
        yield from sagas.hold([subscription])
        yield from sql.hold_events(items)
        made = yield from sql.send_again(items)
        yield from sagas.wake([subscription])
        return Changed(len(made), others=[SAGAS])

    return Operation("replay_sagas", steps, Mode.APPEND, locks=True)
