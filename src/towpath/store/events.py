"""The log: what is published to channels, and read from them.

A publish on our own connection gets its number under the row of its channel. A publish in the
caller's transaction is only posted: the next publish, read or round of upkeep places it, which is
to give it a number. So what was committed before comes first, and no caller's open transaction
makes another publish wait.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Struct

from towpath.errors import (
    ChannelClosed,
    ChannelGone,
    Invalid,
    NotFound,
    OutOfOrder,
    ProducerFenced,
    TowpathError,
    WrongMedia,
)
from towpath.model.cursor import Cursor
from towpath.model.durable import Appended, Producer, media_type
from towpath.model.event import Event
from towpath.model.instants import FOREVER
from towpath.operation import Answer, Batch, Changed, Mode, Operation, Steps, Wakeup
from towpath.statement import Statements, no_rows, pairs, rows
from towpath.store.event_rows import EventBody, EventRow, PostedRow, body_of, event_from, event_of
from towpath.store.rows import uuid_from

TRIES: Final = 5  # to hold a channel that others delete
GONE: Final = "gone"  # how a channel has ended that was deleted, but whose forks need its events
NEWEST_AT_ONCE: Final = 1_000
PLACED_AT_ONCE: Final = 1_000
SLACK: Final = 60.0  # seconds by which clocks may differ when a lost publish is searched for


Item: TypeAlias = dict[str, Any]
"""The parameters of one event of a statement."""


class Append(Struct, frozen=True, kw_only=True):
    """What one call adds to one channel: all of it or nothing."""

    channel: str
    events: Sequence[EventBody] = ()
    ended: str | None = None  # closes the channel, behind the events
    create: bool = True  # the channel if there is none
    media: str | None = None  # refused if the channel has another one
    producer: Producer | None = None
    order_key: str | None = None  # refused unless it is greater than that of the append before
    most_bytes: int = 2**24  # of payloads in one statement
    began: float = msgspec.field(default_factory=time.monotonic)  # after a lost answer: since when

    @property
    def size(self) -> int:
        """Bytes of its payloads."""
        return sum(event.size for event in self.events)

    @property
    def is_plain(self) -> bool:
        """Whether one statement can add its events, which needs no look at what the channel has."""
        asks = (self.ended, self.producer, self.order_key)
        return (
            asks == (None,) * 3
            and self.size <= self.most_bytes
            and all(event.key is None for event in self.events)
        )


class NumberedEvent(NamedTuple):
    """An event that has its number."""

    nth: int
    channel: int
    seq: int
    at: int
    era: int


class HeldChannel(NamedTuple):
    """A channel whose row is held."""

    id: int
    name: str
    head: int
    closed_at: int | None
    ended: str | None
    media: str
    order_key: str | None
    source: int | None
    fork_at: int | None
    ttl: int | None
    expires_at: int | None
    now: int
    era: int

    @property
    def has_expired(self) -> bool:
        """Whether its time is over."""
        return self.expires_at is not None and self.expires_at <= self.now


class ProducerRow(NamedTuple):
    """What a producer has appended last."""

    name: str
    epoch: int
    said: int


class RecentEvent(NamedTuple):
    """When an event was stored, and under which number."""

    seq: int
    at: int
    id: Any


class sql(Statements):
    """The statements of events.sql."""

    publish = rows(NumberedEvent)
    open_channels = no_rows()
    hold = rows(HeldChannel)
    waiting = rows(PostedRow)
    keyed = pairs("channel", EventRow)
    producers = pairs("channel", ProducerRow)
    newest = rows(RecentEvent)
    append = no_rows()
    raise_heads = no_rows()
    note_producers = no_rows()
    renew = no_rows()
    retire = no_rows()
    forget_posted = no_rows()
    post = rows(int)


def wakeups(names: Iterable[str]) -> set[Wakeup]:
    """Return the wakeups of channels."""
    return {Wakeup("channel", name) for name in names}


def publish(appends: Sequence[Append]) -> Operation[list[list[Event] | None]]:
    """Add plain events to open channels; None for an append that needs more than one statement.

    That one is left to `append`. After a lost answer all are, as it knows what is stored already.
    """

    def steps() -> Steps[Changed[list[list[Event] | None]]]:
        items = [
            event.as_item(nth=nth, place=place, name=each.channel, media=each.media)
            for place, (nth, each, event) in enumerate(
                (nth, each, event) for nth, each in enumerate(appends) for event in each.events
            )
        ]
        stored: dict[int, list[NumberedEvent]] = {}
        for row in (yield from sql.publish(items)):
            stored.setdefault(row.nth, []).append(row)
        answers = [
            _events(each, stored[nth]) if nth in stored else None
            for nth, each in enumerate(appends)
        ]
        return Changed(answers, others=wakeups(appends[nth].channel for nth in stored))

    def again() -> Steps[Changed[list[list[Event] | None]]]:
        answers, changed = yield from _appended(appends, again=True)
        value = [None if isinstance(each, TowpathError) else list(each.events) for each in answers]
        return Changed(value, others=wakeups(changed))

    return Operation(
        "publish",
        steps,
        Mode.APPEND,
        autocommit=True,
        locks=True,
        retry=again,
        batch=Batch(appends, publish, sum(each.size for each in appends)),
    )


def append(appends: Sequence[Append]) -> Operation[list[Answer[Appended]]]:
    """Add events to channels, which are made if need be; an event whose key is there is not added.

    What is posted for a channel is placed before.
    """

    def steps(*, again: bool = False) -> Steps[Changed[list[Answer[Appended]]]]:
        answers, changed = yield from _appended(appends, again=again)
        return Changed(answers, others=wakeups(changed))

    return Operation(
        "append",
        steps,
        Mode.APPEND,
        locks=True,
        retry=partial(steps, again=True),
        batch=Batch(appends, append, sum(each.size for each in appends)),
    )


def place(names: Sequence[str]) -> Operation[list[Answer[Appended]]]:
    """Give numbers to what is posted for these channels, at most PLACED_AT_ONCE in all."""
    return append([Append(channel=name, create=False) for name in names])


def _events(each: Append, stored: Sequence[NumberedEvent]) -> list[Event]:
    return [
        event_of(each.channel, event, Cursor(row.era, row.channel, row.seq), row.at)
        for event, row in zip(each.events, stored, strict=True)
    ]


class HeldLog:
    """A channel whose row is held, and what is to be added to it."""

    def __init__(self, row: HeldChannel) -> None:
        self.row = row
        self.head = row.head
        self.placed = 0  # of the posted events
        self.most = 0  # of them that are placed at once
        self.size = 0
        self.ended: str | None = None
        self.is_closed = row.closed_at is not None
        self.order_key = row.order_key
        self.producers: dict[str, tuple[int, int]] = {}  # epoch and newest number, by name
        self.producing: set[str] = set()  # the producers that have appended just now
        self.items: list[dict[str, Any]] = []
        self.by_key: dict[str, Event] = {}
        self.by_id: dict[UUID, tuple[int, int]] = {}  # the numbers and times of lost answers

    def add(self, event: EventBody) -> Event:
        """Add an event, unless it is there already."""
        if event.key is not None and event.key in self.by_key:
            return self.by_key[event.key]
        if event.id in self.by_id:
            seq, at = self.by_id[event.id]
            return event_of(self.row.name, event, self._cursor(seq), at)
        self.head += 1
        self.size += event.size
        self.items.append(event.as_item(channel=self.row.id, seq=self.head, at=self.row.now))
        added = event_of(self.row.name, event, self._cursor(self.head), self.row.now)
        if event.key is not None:
            self.by_key[event.key] = added
        return added

    def know(self, row: EventRow) -> None:
        """Note an event that the channel has, by its key."""
        known = event_from(self.row.name, str(self._cursor(row.seq)), row)
        if row.key is not None:
            self.by_key[row.key] = known

    def has(self, events: Sequence[EventBody]) -> bool:
        """Say whether all of these events are there: by their keys, or since an answer was lost."""
        return all(
            event.id in self.by_id or (event.key is not None and event.key in self.by_key)
            for event in events
        )

    def take(self, each: Append) -> Appended:
        """Add all of an append."""
        events = [self.add(event) for event in each.events]
        if each.producer is not None:
            self.producers[each.producer.name] = each.producer.epoch, each.producer.seq
            self.producing.add(each.producer.name)
        if each.order_key is not None:
            self.order_key = each.order_key
        if each.ended is not None:
            self.ended, self.is_closed = each.ended, True
        return self.answer(each, events)

    def answer(
        self, each: Append, events: Sequence[Event] = (), *, is_repeated: bool = False
    ) -> Appended:
        """Say how the channel stands after an append."""
        said = self.producers.get(each.producer.name) if each.producer is not None else None
        return Appended(
            events=events,
            head=str(self.cursor),
            ended=self.ended or self.row.ended,
            said=None if said is None else said[1],
            is_repeated=is_repeated,
            posted=self.placed == self.most,
        )

    @property
    def cursor(self) -> Cursor:
        """The cursor of the newest event."""
        return self._cursor(self.head)

    def _cursor(self, seq: int) -> Cursor:
        return Cursor(self.row.era, self.row.id, seq)

    @property
    def has_changed(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.items) or self.ended is not None


def _appended(
    appends: Sequence[Append], *, again: bool
) -> Steps[tuple[list[Answer[Appended]], list[str]]]:
    """Add events; answer for each append, and name the channels that have changed."""
    held = yield from _held(appends)
    posted = yield from _waiting(appends, held)
    yield from _look_for_keys(appends, posted, held)
    yield from _look_for_producers(appends, held)
    if again:
        yield from _look_for_ids(appends, held)
    for row in posted:
        # Also behind an end: the channel was open when this was published.
        held[row.name].add(body_of(row))
        held[row.name].placed += 1
    answers = [_answer(each, held.get(each.channel)) for each in appends]
    changed = [each for each in held.values() if each.has_changed]
    items = [item for each in changed for item in each.items]
    for part in _parts(items, min(each.most_bytes for each in appends)):
        yield sql.append(part)
    if changed:
        yield from _write_channels(changed)
    if posted:
        yield sql.forget_posted([{"no": row.no} for row in posted])
    return answers, [each.row.name for each in changed]


def _parts(items: Sequence[Item], most_bytes: int) -> Iterator[Sequence[Item]]:
    """Split what is to be stored, so that no statement has more bytes of payloads than that."""
    start = size = 0
    for nth, item in enumerate(items):
        size += item["size"]
        if nth > start and size > most_bytes:
            yield items[start:nth]
            start, size = nth, item["size"]
    if items:
        yield items[start:]


def insert(items: Sequence[Item]) -> Steps[None]:
    """Insert events that have their numbers, as the caller holds their channels."""
    yield sql.append(items)


def make_channels(names: Iterable[str]) -> Steps[None]:
    """Make the channels that are missing."""
    yield sql.open_channels([{"name": name} for name in names])


def _waiting(appends: Sequence[Append], held: Mapping[str, HeldLog]) -> Steps[list[PostedRow]]:
    """Read what is posted: all of a channel to which something is added, of others a share."""
    added = {each.channel for each in appends if each.events or each.ended is not None}
    share = max(1, PLACED_AT_ONCE // max(1, len(appends)))
    for name, each in held.items():
        each.most = FOREVER if name in added else share
    items = [{"name": name, "most": each.most} for name, each in held.items()]
    return (yield from sql.waiting(items)) if items else []


def _held(appends: Sequence[Append]) -> Steps[dict[str, HeldLog]]:
    """Hold the rows of channels, making those that are missing and wanted.

    A channel for which something is posted is there, even if it has no row yet.
    """
    names = dict.fromkeys(each.channel for each in appends)
    made = dict.fromkeys(each.channel for each in appends if each.create)
    held: dict[str, HeldLog] = {}
    for _ in range(TRIES):
        wanted = [name for name in made if name not in held]
        if wanted:
            yield from make_channels(wanted)
        # All of them again: the rows have to be locked in one order.
        found = yield from hold(names)
        held = {name: HeldLog(row) for name, row in found.items()}
        missing = [{"name": name} for name in names if name not in held]
        if missing:
            waiting = yield from sql.waiting([{**each, "most": 1} for each in missing])
            made |= {row.name: None for row in waiting}
        if held.keys() >= made.keys():
            break
    return held


def hold(names: Iterable[str]) -> Steps[dict[str, HeldChannel]]:
    """Hold the rows of channels; those whose time is over lose their names."""
    found = yield from sql.hold([{"name": name} for name in names])
    expired = [row for row in found if row.has_expired]
    if expired:
        yield sql.retire([{"channel": row.id} for row in expired])
    return {row.name: row for row in found if not row.has_expired}


def _write_channels(changed: Sequence[HeldLog]) -> Steps[None]:
    yield sql.raise_heads(
        [
            {
                "channel": each.row.id,
                "head": each.head,
                "size": each.size,
                "ended": each.ended,
                "order_key": each.order_key,
            }
            for each in changed
        ]
    )
    producers = [
        {"channel": each.row.id, "name": name, "epoch": epoch, "said": said}
        for each in changed
        for name, (epoch, said) in each.producers.items()
        if name in each.producing
    ]
    if producers:
        yield sql.note_producers(producers)
    lasting = [{"channel": each.row.id} for each in changed if each.row.ttl is not None]
    if lasting:
        yield sql.renew(lasting)


def _look_for_producers(appends: Sequence[Append], held: dict[str, HeldLog]) -> Steps[None]:
    wanted = {
        (held[each.channel].row.id, each.producer.name)
        for each in appends
        if each.producer is not None and each.channel in held
    }
    if wanted:
        by_number = {each.row.id: each for each in held.values()}
        items = [{"channel": channel, "name": name} for channel, name in wanted]
        for channel, row in (yield from sql.producers(items)):
            by_number[channel].producers[row.name] = row.epoch, row.said


def _look_for_keys(
    appends: Sequence[Append], posted: Sequence[PostedRow], held: dict[str, HeldLog]
) -> Steps[None]:
    keys = {
        (held[each.channel].row.id, event.key)
        for each in appends
        if each.channel in held
        for event in each.events
        if event.key is not None
    }
    keys |= {(held[row.name].row.id, row.key) for row in posted if row.key is not None}
    if keys:
        by_number = {each.row.id: each for each in held.values()}
        items = [{"channel": channel, "key": key} for channel, key in keys]
        for channel, row in (yield from sql.keyed(items)):
            by_number[channel].know(row)


def _look_for_ids(appends: Sequence[Append], held: dict[str, HeldLog]) -> Steps[None]:
    """Find what an earlier try has stored whose answer was lost, among the newest events."""
    elapsed = time.monotonic() - min(each.began for each in appends)
    for name, channel in held.items():
        ids = {event.id for each in appends if each.channel == name for event in each.events}
        since, before = channel.row.now - int((elapsed + SLACK) * 1e6), channel.head + 1
        while ids:
            found = yield from sql.newest(
                channel=channel.row.id, before=before, limit=NEWEST_AT_ONCE
            )
            for row in found:
                if (id := uuid_from(row.id)) in ids:
                    channel.by_id[id] = row.seq, row.at
            if len(found) < NEWEST_AT_ONCE or found[-1].at < since:
                break
            before = found[-1].seq


def _answer(each: Append, held: HeldLog | None) -> Answer[Appended]:
    if held is None:
        return NotFound(f"there is no channel {each.channel!r}")
    return gone(each.channel) if held.row.ended == GONE else _taken(each, held)


def _taken(each: Append, held: HeldLog) -> Answer[Appended]:
    if each.events and held.has(each.events) and (held.is_closed or each.ended is None):
        return held.answer(each, [held.add(event) for event in each.events])
    known = held.producers.get(each.producer.name) if each.producer is not None else None
    if each.producer is not None and known is not None:
        if each.producer.epoch < known[0]:
            return _fenced(each.channel, each.producer, known[0])
        if each.producer.epoch == known[0] and each.producer.seq <= known[1]:
            return held.answer(each, is_repeated=True)
    if held.is_closed:
        if each.events or each.producer is not None:
            return _closed(each.channel, str(held.cursor))
        return held.answer(each)
    return _why_refused(each, held.row.media, known, held.order_key) or held.take(each)


def _why_refused(
    each: Append, media: str, known: tuple[int, int] | None, order_key: str | None
) -> TowpathError | None:
    """Say why the state of an open channel does not allow an append."""
    if each.media is not None and each.events and media_type(each.media) != media_type(media):
        return WrongMedia(f"channel {each.channel!r} has media type {media!r}, not {each.media!r}")
    if each.producer is not None:
        seq = each.producer.seq
        is_new = known is None or known[0] < each.producer.epoch
        if is_new and known is not None and seq:
            return Invalid(f"the first append of a new epoch has Producer-Seq 0, not {seq}")
        expected = 0 if is_new or known is None else known[1] + 1
        if seq != expected:
            msg = f"append {expected} of producer {each.producer.name!r} is missing before {seq}"
            return OutOfOrder(msg, expected, seq)
    if each.order_key is not None and order_key is not None and each.order_key <= order_key:
        msg = f"Stream-Seq {each.order_key!r} is not greater than {order_key!r}, the one before"
        return OutOfOrder(msg)
    return None


def _fenced(name: str, producer: Producer, epoch: int) -> ProducerFenced:
    msg = (
        f"producer {producer.name!r} of channel {name!r} has started again with epoch {epoch}; "
        f"epoch {producer.epoch} may not append any more"
    )
    return ProducerFenced(msg, epoch)


def _closed(name: str, head: str | None = None) -> ChannelClosed:
    return ChannelClosed(f"channel {name!r} was closed; publish to another one", head)


def gone(name: str) -> ChannelGone:
    """Return the error of a channel that was deleted and has forks."""
    return ChannelGone(f"channel {name!r} was deleted; its name is in use until its forks are too")


def post(each: Append) -> Operation[list[Event]]:
    """Publish in a transaction that is not ours: durable with it, and numbered after its commit."""

    def steps() -> Steps[Changed[list[Event]]]:
        items = [
            event.as_item(place=place, name=each.channel) for place, event in enumerate(each.events)
        ]
        found: list[int] = []
        for part in _parts(items, each.most_bytes):
            found += yield from sql.post(part)
        if not found:
            raise _closed(each.channel)
        at = found[0]
        answer = [event_of(each.channel, event, None, at) for event in each.events]
        return Changed(answer, others=wakeups([each.channel]))

    return Operation("post", steps)
