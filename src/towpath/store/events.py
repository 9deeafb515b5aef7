"""The log: what is published to channels, and read from them.

A publish on our own connection gets its number under the row of its channel. A publish in the
caller's transaction is only posted: the next publish, read or round of upkeep places it, which is
to give it a number. So what was committed before comes first, and no caller's open transaction
makes another publish wait.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Struct

from towpath.errors import (
    ChannelClosed,
    ChannelGone,
    CursorReset,
    Invalid,
    NotFound,
    OutOfOrder,
    ProducerFenced,
    TowpathError,
    WrongMedia,
)
from towpath.model.channels import job_of
from towpath.model.cursor import START, Cursor
from towpath.model.durable import Appended, Producer, media_type
from towpath.model.event import Event, EventPage
from towpath.model.instants import as_datetime
from towpath.model.states import State
from towpath.operation import Answer, Batch, Changed, Mode, Operation, Steps, Wakeup
from towpath.statement import Statements, no_rows, pairs, rows
from towpath.store.rows import uuid_from

TRIES: Final = 5  # to hold a channel that others delete
GONE: Final = "gone"  # how a channel has ended that was deleted, but whose forks need its events
NEWEST_AT_ONCE: Final = 1_000
DELETED: Final = "deleted"
EXPIRED: Final = "expired"
ENDED: Final[Mapping[str, str]] = {  # how the stream of a job has ended that lies there
    State.COMPLETED: "completed",
    State.BURIED: "failed",
    State.CANCELLED: "cancelled",
}
ENDS: Final = frozenset({*ENDED.values(), EXPIRED})
SLACK: Final = 60.0  # seconds by which clocks may differ when a lost publish is searched for

log: Final = logging.getLogger("towpath")

_encoder: Final = msgspec.json.Encoder(order="sorted")
_headers: Final = msgspec.json.Decoder(dict[str, str])


class EventBody(Struct, frozen=True, kw_only=True):
    """An event to store, checked and encoded."""

    id: UUID
    body: str
    encoding: str
    size: int
    type: str | None = None
    key: str | None = None
    headers: str | None = None

    def as_item(self, **more: Any) -> dict[str, Any]:
        """Return the parameters of its statement."""
        return {
            "size": self.size,
            "id": self.id,
            "type": self.type,
            "key": self.key,
            "headers": self.headers,
            "encoding": self.encoding,
            "body": self.body,
            **more,
        }


class Append(Struct, frozen=True, kw_only=True):
    """What one call adds to one channel: all of it or nothing."""

    channel: str
    events: Sequence[EventBody] = ()
    ended: str | None = None  # closes the channel, behind the events
    create: bool = True  # the channel if there is none
    media: str | None = None  # refused if the channel has another one
    producer: Producer | None = None
    order_key: str | None = None  # refused unless it is greater than that of the append before
    began: float = msgspec.field(default_factory=time.monotonic)  # after a lost answer: since when

    @property
    def is_plain(self) -> bool:
        """Whether its events need no look at what the channel has."""
        asks = (self.ended, self.producer, self.order_key)
        return asks == (None,) * 3 and all(event.key is None for event in self.events)


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


class EventRow(NamedTuple):
    """An event, as it is stored."""

    seq: int
    at: int
    id: Any
    type: str | None
    key: str | None
    headers: str | None
    encoding: str
    body: str
    size: int


class PostedRow(NamedTuple):
    """An event that waits for its number."""

    no: int
    name: str
    id: Any
    type: str | None
    key: str | None
    headers: str | None
    encoding: str
    body: str
    size: int


class RecentEvent(NamedTuple):
    """When an event was stored, and under which number."""

    seq: int
    at: int
    id: Any


class ReadRow(NamedTuple):
    """A channel and one of its events, if there is any."""

    channel: int | None
    head: int | None
    low: int | None
    ended: str | None
    media: str
    fork_at: int | None
    ttl: int | None
    expires_at: int | None
    now: int
    era: int
    posted: bool
    seq: int | None
    at: int
    id: Any
    type: str | None
    key: str | None
    headers: str | None
    encoding: str
    body: str
    size: int


class SilentJob(NamedTuple):
    """The job of a stream that has no channel."""

    id: Any
    state: str
    expired: bool | int


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
    read = pairs("nth", ReadRow)
    read_fork = pairs("upto", ReadRow)
    states_of = rows(SilentJob)


def wakeups(names: Iterable[str]) -> set[Wakeup]:
    """Return the wakeups of channels."""
    return {Wakeup("channel", name) for name in names}


# ---------------------------------------------------------------- publish


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
        batch=Batch(appends, publish),
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
        batch=Batch(appends, append),
    )


def place(names: Sequence[str]) -> Operation[list[Answer[Appended]]]:
    """Give numbers to what is posted for these channels."""
    return append([Append(channel=name) for name in names])


def _events(each: Append, stored: Sequence[NumberedEvent]) -> list[Event]:
    return [
        _event(each.channel, event, Cursor(row.era, row.channel, row.seq), row.at)
        for event, row in zip(each.events, stored, strict=True)
    ]


def _event(channel: str, event: EventBody, cursor: Cursor | None, at: int) -> Event:
    return Event(
        id=event.id,
        channel=channel,
        cursor=None if cursor is None else str(cursor),
        at=as_datetime(at),
        type=event.type,
        key=event.key,
        headers=decoded(event.headers),
        body=event.body,
        encoding=event.encoding,
    )


def encoded(headers: dict[str, str]) -> str | None:
    """Return headers as they are stored."""
    return _encoder.encode(headers).decode() if headers else None


def decoded(headers: str | None) -> dict[str, str]:
    """Return stored headers."""
    return _headers.decode(headers) if headers else {}


class HeldLog:
    """A channel whose row is held, and what is to be added to it."""

    def __init__(self, row: HeldChannel) -> None:
        self.row = row
        self.head = row.head
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
            return _event(self.row.name, event, self._cursor(seq), at)
        self.head += 1
        self.size += event.size
        self.items.append(event.as_item(channel=self.row.id, seq=self.head, at=self.row.now))
        added = _event(self.row.name, event, self._cursor(self.head), self.row.now)
        if event.key is not None:
            self.by_key[event.key] = added
        return added

    def place(self, event: EventBody) -> None:
        """Add an event that was posted, unless the channel was closed before its commit."""
        if self.is_closed:
            log.warning("channel %r is closed; a later event was dropped", self.row.name)
        else:
            self.add(event)

    def know(self, row: EventRow) -> None:
        """Note an event that the channel has, by its key."""
        known = event_from(self.row.name, self._cursor(row.seq), row)
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
    posted = yield from sql.waiting([{"name": name} for name in held])
    yield from _look_for_keys(appends, posted, held)
    yield from _look_for_producers(appends, held)
    if again:
        yield from _look_for_ids(appends, held)
    for row in posted:
        held[row.name].place(_body(row))
    answers = [_answer(each, held.get(each.channel)) for each in appends]
    changed = [each for each in held.values() if each.has_changed]
    items = [item for each in changed for item in each.items]
    if items:
        yield sql.append(items)
    if changed:
        yield from _write_channels(changed)
    if posted:
        yield sql.forget_posted([{"no": row.no} for row in posted])
    return answers, [each.row.name for each in changed]


def _held(appends: Sequence[Append]) -> Steps[dict[str, HeldLog]]:
    """Hold the rows of channels, making those that are missing and wanted.

    A channel for which something is posted is there, even if it has no row yet.
    """
    names = dict.fromkeys(each.channel for each in appends)
    made = dict.fromkeys(each.channel for each in appends if each.create)
    held: dict[str, HeldLog] = {}
    for _ in range(TRIES):
        wanted = [{"name": name} for name in made if name not in held]
        if wanted:
            yield sql.open_channels(wanted)
        # All of them again: the rows have to be locked in one order.
        found = yield from hold(names)
        held = {name: HeldLog(row) for name, row in found.items()}
        missing = [{"name": name} for name in names if name not in held]
        if missing:
            made |= {row.name: None for row in (yield from sql.waiting(missing))}
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


def _body(row: PostedRow) -> EventBody:
    return EventBody(
        id=uuid_from(row.id),
        body=row.body,
        encoding=row.encoding,
        size=row.size,
        type=row.type,
        key=row.key,
        headers=row.headers,
    )


def post(each: Append) -> Operation[list[Event]]:
    """Publish in a transaction that is not ours: durable with it, and numbered after its commit."""

    def steps() -> Steps[Changed[list[Event]]]:
        items = [
            event.as_item(place=place, name=each.channel) for place, event in enumerate(each.events)
        ]
        found = yield from sql.post(items)
        if not found:
            raise _closed(each.channel)
        at = found[0]
        answer = [_event(each.channel, event, None, at) for event in each.events]
        return Changed(answer, others=wakeups([each.channel]))

    return Operation("post", steps)


# ---------------------------------------------------------------- read


class ReadFrom(Struct, frozen=True):
    """Which events to read."""

    channel: str
    after: Cursor = START
    most: int = 1_000
    most_bytes: int = 2**20  # the page ends with the event that exceeds this


class Found(Struct, frozen=True):
    """What a read has found."""

    page: Answer[EventPage]
    posted: bool = False  # events wait for their numbers: place them and read again
    media: str | None = None  # None: there is no channel
    renews: bool = False  # to read it prolongs its life
    ttl: int | None = None


def read(reads: Sequence[ReadFrom]) -> Operation[list[Found]]:
    """Read events behind cursors, oldest first."""

    def steps() -> Steps[list[Found]]:
        found = yield from _read(reads)
        absent = [
            (nth, job)
            for nth, each in enumerate(reads)
            if found[nth][0].channel is None and (job := job_of(each.channel)) is not None
        ]
        states = (yield from _states(job for _, job in absent)) if absent else {}
        # The job may have spoken and ended between the two statements: look again.
        over = [nth for nth, job in absent if states.get(job) in ENDS]
        if over:
            again = yield from _read([reads[nth] for nth in over])
            found |= {nth: again[place] for place, nth in enumerate(over)}
        jobs = dict(absent)
        answers: list[Found] = []
        for nth, each in enumerate(reads):
            first = found[nth][0]
            if nth in jobs and first.channel is None:
                answers.append(_of_silent_job(each, jobs[nth], states.get(jobs[nth])))
            elif _is_inherited(each.after, first):
                answers.append((yield from _read_fork(each)))
            else:
                answers.append(_found(each, found[nth]))
        return answers

    return Operation("read", steps, Mode.READ, autocommit=True, batch=Batch(reads, read))


def _is_inherited(after: Cursor, row: ReadRow) -> bool:
    """Say whether a fork is read from before its own events, which are those of its source."""
    return row.fork_at is not None and (after.channel != row.channel or after.seq < row.fork_at)


def _read_fork(each: ReadFrom) -> Steps[Found]:
    found = yield from sql.read_fork(
        name=each.channel,
        channel=each.after.channel,
        after=each.after.seq,
        most=each.most,
        most_bytes=each.most_bytes,
    )
    if not found:  # it was deleted just now
        return Found(_reset(each, "channel", "was deleted", START, START))
    # A cursor of the source fits, up to where the fork begins.
    upto, first = found[0]
    after = each.after
    if first.channel is not None and after.seq <= upto:
        after = after._replace(channel=first.channel)
    return _found(msgspec.structs.replace(each, after=after), [row for _, row in found])


def _read(reads: Sequence[ReadFrom]) -> Steps[dict[int, list[ReadRow]]]:
    items = [
        {
            "nth": nth,
            "name": each.channel,
            "after": each.after.seq,
            "most": each.most,
            "most_bytes": each.most_bytes,
        }
        for nth, each in enumerate(reads)
    ]
    found: dict[int, list[ReadRow]] = {}
    for nth, row in (yield from sql.read(items)):
        found.setdefault(nth, []).append(row)
    return found


def _states(jobs: Iterable[UUID]) -> Steps[dict[UUID, str]]:
    """Return how these jobs ended, or the states of those that have not."""
    found = yield from sql.states_of([{"id": id} for id in dict.fromkeys(jobs)])
    return {
        uuid_from(row.id): EXPIRED if row.expired else ENDED.get(row.state, row.state)
        for row in found
    }


def _of_silent_job(each: ReadFrom, job: UUID, state: str | None) -> Found:
    """Return the page of a job that has said nothing: its stream ends with it."""
    if state is not None:
        if each.after != START:
            msg = "begins again, as its job does"
            return Found(_reset(each, "channel", msg, START, START))
        return Found(_empty(each, state if state in ENDS else None))
    if each.after == START:
        return Found(NotFound(f"there is no job {job}"))
    return Found(_empty(each, DELETED))


def _empty(each: ReadFrom, ended: str | None = None) -> EventPage:
    at = str(each.after)
    return EventPage(events=[], after=at, cursor=at, oldest=at, head=at, ended=ended)


def _found(each: ReadFrom, rows: list[ReadRow]) -> Found:
    first = rows[0]
    if first.channel is None or first.head is None or first.low is None:
        page: Answer[EventPage] = _empty(each)
        if each.after != START:
            page = _reset(each, "channel", "was deleted", START, START)
        return Found(page, bool(first.posted))
    if first.ended == GONE:
        return Found(gone(each.channel))
    at = partial(Cursor, first.era, first.channel)
    oldest, head = at(first.low), at(first.head)
    if reason := _why_reset(each.after, oldest, head):
        return Found(_reset(each, *reason, oldest, head), bool(first.posted), first.media)
    events = [event_from(each.channel, at(row.seq), row) for row in rows if row.seq is not None]
    # The beginning may be behind the first number.
    after = str(oldest if each.after == START else each.after)
    cursor = (events[-1].cursor if events else None) or after
    page = EventPage(
        events=events,
        after=after,
        cursor=cursor,
        oldest=str(oldest),
        head=str(head),
        ended=first.ended if cursor == str(head) else None,
    )
    return Found(page, bool(first.posted), first.media, _renews(first), first.ttl)


def _renews(row: ReadRow) -> bool:
    """Say whether a read prolongs the life of a channel enough to be worth a write."""
    if row.ttl is None or row.expires_at is None:
        return False
    return row.expires_at - row.now < row.ttl - row.ttl // 20


def _why_reset(after: Cursor, oldest: Cursor, head: Cursor) -> tuple[str, str] | None:
    if after == START:
        return None
    if after.era != head.era:
        return "era", "was restored from a backup"
    if after.channel != head.channel:
        return "channel", "was deleted and made again"
    if after.seq < oldest.seq:
        return "retention", "has deleted the events behind this cursor"
    if after.seq > head.seq:
        return "ahead", "has not so many events"
    return None


def _reset(each: ReadFrom, reason: str, why: str, oldest: Cursor, head: Cursor) -> CursorReset:
    msg = f"channel {each.channel!r} {why}; read again from `oldest` or from `head`"
    return CursorReset(msg, reason, str(oldest), str(head))


def refusal(channel: str, after: Cursor, oldest: Cursor, head: Cursor) -> CursorReset | None:
    """Return why a reader cannot go on from a cursor, if it cannot."""
    reason = _why_reset(after, oldest, head)
    return _reset(ReadFrom(channel), *reason, oldest, head) if reason else None


def event_from(channel: str, cursor: Cursor, row: EventRow | ReadRow) -> Event:
    """Return a stored event."""
    return Event(
        id=uuid_from(row.id),
        channel=channel,
        cursor=str(cursor),
        at=as_datetime(row.at),
        type=row.type,
        key=row.key,
        headers=decoded(row.headers),
        body=row.body,
        encoding=row.encoding,
    )
