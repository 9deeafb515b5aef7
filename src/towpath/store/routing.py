"""Routing: a saga for each event of a channel and each subscription that wants it.

The router is a consumer that never expires. One transaction reads a page, stores the events that
are wanted with their payloads, makes their sagas and moves the consumer: so an event is routed
once, and its deliveries need the log no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from towpath.errors import CursorReset, TowpathError
from towpath.model.cursor import Cursor
from towpath.model.event import Event
from towpath.model.instants import instant
from towpath.model.subscriptions import EventToRoute
from towpath.operation import Changed, Mode, Operation, Steps
from towpath.statement import Statements, no_rows, rows
from towpath.store import reading, sagas
from towpath.store.notices import post_gap
from towpath.store.reading import ReadFrom
from towpath.store.sagas import SAGAS
from towpath.store.subscriptions import ROUTER

CHANNELS_AT_ONCE: Final = 1_000
MOST_SAGAS: Final = 5_000  # of one transaction; an event with more subscriptions is routed alone

Wants: TypeAlias = Callable[[EventToRoute], bool]
Selecting: TypeAlias = Callable[[Sequence[str], str | None], Wants]
"""What makes a selection of types and of a rule; it may remember those that it has made."""

_types: Final = msgspec.json.Decoder(tuple[str, ...])


class UnroutedChannel(NamedTuple):
    """A channel with subscriptions."""

    name: str
    posted: bool | int  # events wait for their numbers: `append` places them
    behind: bool | int  # events wait for the router


class HeldConsumer(NamedTuple):
    """The router's place in a channel, held."""

    channel: int
    acked: int
    era: int


class SubscribedRow(NamedTuple):
    """What decides which events a subscription gets."""

    id: int
    types: str
    filter_rule: str | None
    since_channel: int
    since: int


class sql(Statements):
    """The statements of routing.sql."""

    channels = rows(UnroutedChannel)
    hold = rows(HeldConsumer)
    begin = rows(int)
    subscribed = rows(SubscribedRow)
    store_events = no_rows()
    make_sagas = no_rows()
    move = no_rows()


class MatchedEvent(NamedTuple):
    """An event of a channel, and the subscriptions that want it."""

    event: Event
    seq: int
    wanted_by: list[int]

    def as_event(self, channel: int) -> dict[str, Any]:
        """Return the parameters of the statement that stores it."""
        return {
            "channel": channel,
            "seq": self.seq,
            "at": instant(self.event.at),
            "event": self.event.id,
            "type": self.event.type,
            "encoding": self.event.encoding,
            "payload": self.event.body,
        }

    def as_sagas(self) -> dict[str, Any]:
        """Return the parameters of the statement that makes its sagas."""
        ids = msgspec.json.encode(self.wanted_by).decode()
        return {"event": self.event.id, "seq": self.seq, "subscriptions": ids}


class Unrouted(Struct, frozen=True):
    """Channels with something to route, and where the next look begins."""

    channels: Sequence[str]  # all that were looked at
    behind: Sequence[str]
    posted: Sequence[str]  # place what is posted for them first
    upto: str  # empty: from the first channel on


class Routed(Struct, frozen=True):
    """What has become of a channel."""

    events: int = 0  # that were looked at
    sagas: int = 0  # that were asked for
    more: bool = False  # there may be more to route
    posted: bool = False  # events wait for their numbers
    missed: int = 0  # events that the channel has let go of before they were routed


def unrouted(after: str) -> Operation[Unrouted]:
    """Look at some channels that have subscriptions, by name, from behind one on."""

    def steps() -> Steps[Unrouted]:
        found = yield from sql.channels(after=after, limit=CHANNELS_AT_ONCE, consumer=ROUTER)
        return Unrouted(
            channels=[row.name for row in found],
            behind=[row.name for row in found if row.behind],
            posted=[row.name for row in found if row.posted],
            upto=found[-1].name if len(found) == CHANNELS_AT_ONCE else "",
        )

    return Operation("unrouted", steps, Mode.READ, autocommit=True)


def route(channel: str, selecting: Selecting, most: int = 1_000) -> Operation[Routed]:
    """Route some events of a channel; nothing if another router is at it."""

    def steps() -> Steps[Changed[Routed]]:
        held = yield from sql.hold(channel=channel, consumer=ROUTER)
        if not held and (yield from sql.begin(channel=channel, consumer=ROUTER)):
            held = yield from sql.hold(channel=channel, consumer=ROUTER)
        if not held:
            return Changed(Routed())
        [place] = held
        after = Cursor(place.era, place.channel, place.acked)
        [found] = yield from reading.read([ReadFrom(channel, after, most)]).inside()
        if isinstance(found.page, TowpathError):
            return Changed((yield from _overtaken(channel, place, found.page)))
        # Read after the events: a subscription that was made before one of them is seen.
        subscribed = yield from sql.subscribed(channel=channel)
        page = found.page.events
        matched = _matched(page, place.channel, subscribed, selecting)
        if wanted := [each for each in matched if each.wanted_by]:
            yield sql.store_events([each.as_event(place.channel) for each in wanted])
            yield sql.make_sagas([each.as_sagas() for each in wanted])
            yield from sagas.wake(id for each in wanted for id in each.wanted_by)
        if matched:
            yield sql.move(channel=place.channel, acked=matched[-1].seq, consumer=ROUTER)
        count = sum(len(each.wanted_by) for each in matched)
        more = len(matched) < len(page) or found.page.cursor < found.page.head
        routed = Routed(len(matched), count, more, found.posted)
        return Changed(routed, others=[SAGAS] if count else [])

    return Operation("route", steps, Mode.APPEND, locks=True)


def _matched(
    page: Sequence[Event], channel: int, subscribed: Sequence[SubscribedRow], selecting: Selecting
) -> list[MatchedEvent]:
    """Find the subscriptions that want each event; end before the sagas are too many."""
    selections = [(row, selecting(_types.decode(row.types), row.filter_rule)) for row in subscribed]
    matched: list[MatchedEvent] = []
    count = 0
    for event in page:
        seq = Cursor.parse(event.cursor).seq
        each = EventToRoute(event)
        ids = [
            row.id
            for row, wants in selections
            if (channel, seq) > (row.since_channel, row.since) and wants(each)
        ]
        count += len(ids)
        if matched and count > MOST_SAGAS:
            break
        matched.append(MatchedEvent(event, seq, ids))
    return matched


def _overtaken(channel: str, place: HeldConsumer, error: TowpathError) -> Steps[Routed]:
    """Go on behind what is gone, and say how many events were missed."""
    if not isinstance(error, CursorReset) or error.reason == "channel":
        return Routed()  # it was deleted just now
    goal = Cursor.parse(error.oldest if error.reason == "retention" else error.head).seq
    yield sql.move(channel=place.channel, acked=goal, consumer=ROUTER)
    missed = max(0, goal - place.acked)
    if missed:
        yield from post_gap(channel, missed)
    return Routed(more=True, missed=missed)
