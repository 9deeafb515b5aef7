"""Durable consumers: attach, ack, list, move, forget.

A consumer has a name of its own in a channel. Each attach raises its generation: what an older
attachment acks is refused. An ack is cumulative and never moves back. A consumer that is silent
for `consumer_ttl` is expired: its place is kept, but it holds no events back.

A consumer that a caller of the HTTP API has made belongs to that caller: an operation for another
owner is refused with ConsumerTaken. An operation without an owner may use all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from towpath.errors import (
    Conflict,
    ConsumerFenced,
    ConsumerTaken,
    CursorReset,
    MaxConsumersReached,
    NotFound,
    TowpathError,
)
from towpath.model.channels import JOB
from towpath.model.consumers import Attachment, Consumer, Owner
from towpath.model.cursor import START, Cursor
from towpath.model.instants import as_datetime
from towpath.operation import Answer, Batch, Mode, Operation, Rerun, Steps, answered
from towpath.statement import Statements, no_rows, rows
from towpath.store import events, reading
from towpath.store.reading import ReadFrom

TRIES: Final = 5  # to hold a channel that others delete


class HeldPlace(NamedTuple):
    """A channel whose row is held."""

    channel: int
    head: int
    low: int
    era: int

    @property
    def oldest(self) -> Cursor:
        """The cursor before the oldest event."""
        return Cursor(self.era, self.channel, self.low)

    @property
    def newest(self) -> Cursor:
        """The cursor of the newest event."""
        return Cursor(self.era, self.channel, self.head)


class PlaceRow(NamedTuple):
    """A consumer, as it is stored."""

    acked: int
    generation: int
    owner: str | None


class AckedRow(NamedTuple):
    """What an ack has come to."""

    nth: int
    channel: int
    acked: int
    era: int


class StandingRow(NamedTuple):
    """A channel and a consumer of it, as far as they exist."""

    nth: int
    channel: int | None
    head: int | None
    low: int | None
    era: int
    acked: int | None
    generation: int | None
    owner: str | None
    silent: int | None


class ConsumerRow(NamedTuple):
    """A consumer in a list."""

    name: str
    channel: int
    head: int
    low: int
    era: int
    acked: int
    generation: int
    owner: str | None
    seen_at: int
    silent: int


class sql(Statements):
    """The statements of consumers.sql."""

    hold_channel = rows(HeldPlace)
    place_of = rows(PlaceRow)
    count_consumers = rows(int)
    begin_consumer = no_rows()
    move_consumer = no_rows()
    ack = rows(AckedRow)
    standing = rows(StandingRow)
    refresh = no_rows()
    list_consumers = rows(ConsumerRow)
    forget_consumer = rows(int)


class Ack(Struct, frozen=True):
    """Which events of a channel a consumer is done with."""

    channel: str
    name: str
    cursor: Cursor
    generation: int
    owner: str | None = None


class Attached(Struct, frozen=True):
    """Which attachment is asked about."""

    channel: str
    name: str
    generation: int
    owner: str | None = None


def attach(
    channel: str, name: str, after: Cursor | None, owner: Owner | None, most: int
) -> Operation[Attachment]:
    """Begin to read as a consumer; a new one begins behind `after`, or with the oldest event.

    The channel is made if need be, unless the owner may not. Attachments of before are refused
    from now on. A channel has at most so many consumers; 0 is no limit.
    """

    def steps() -> Steps[Attachment]:
        held = yield from held_channel(channel, makes=owner is None or owner.makes_channel)
        found = yield from sql.place_of(channel=held.channel, name=name)
        by = None if owner is None else owner.name
        if found:
            [place] = found
            _check_owner(channel, name, by, place.owner)
            yield sql.move_consumer(channel=held.channel, name=name, acked=place.acked)
        else:
            yield from _check_room(channel, held, most)
            place = PlaceRow((yield from _begin(channel, after, held)), 0, by)
            yield sql.begin_consumer(
                channel=held.channel, name=name, acked=place.acked, owner=place.owner
            )
        return Attachment(str(held.oldest._replace(seq=place.acked)), place.generation + 1)

    return Operation("attach", steps, Mode.APPEND, locks=True)


def resume(each: Attached) -> Operation[Attachment]:
    """Go on as an attachment, behind its last ack; ConsumerFenced if it was replaced."""

    def steps() -> Steps[Attachment]:
        [row] = yield from _standing([(0, each)])
        if error := _outdated(each, row):
            raise error
        return Attachment(str(Cursor(row.era, row.channel or 0, row.acked or 0)), each.generation)

    return Operation("resume", steps, Mode.READ, autocommit=True)


def _check_room(channel: str, held: HeldPlace, most: int) -> Steps[None]:
    if most:
        [count] = yield from sql.count_consumers(channel=held.channel, most=most)
        if count >= most:
            msg = (
                f"channel {channel!r} has {count:,} consumers; forget one that is not needed, "
                "or raise `max_consumers`"
            )
            raise MaxConsumersReached(msg)


def _check_owner(channel: str, name: str, by: str | None, owner: str | None) -> None:
    if error := _taken(channel, name, by, owner):
        raise error


def _taken(channel: str, name: str, by: str | None, owner: str | None) -> ConsumerTaken | None:
    if by is None or by == owner:
        return None
    return ConsumerTaken(
        f"consumer {name!r} of channel {channel!r} belongs to another caller; use another name"
    )


def move(channel: str, name: str, after: Cursor | None, owner: str | None) -> Operation[str]:
    """Set the place of a consumer, forward or back; its attachments are refused from now on."""

    def steps() -> Steps[str]:
        held = yield from held_channel(channel, makes=False)
        found = yield from sql.place_of(channel=held.channel, name=name)
        if not found:
            raise _unknown(channel, name)
        _check_owner(channel, name, owner, found[0].owner)
        acked = yield from _begin(channel, after, held)
        yield sql.move_consumer(channel=held.channel, name=name, acked=acked)
        return str(held.oldest._replace(seq=acked))

    return Operation("move_consumer", steps, Mode.APPEND, locks=True)


def held_if_there(channel: str) -> Steps[list[HeldPlace]]:
    """Hold the row of a channel, if there is one."""
    return (yield from sql.hold_channel(channel=channel))


def held_channel(channel: str, *, makes: bool = True) -> Steps[HeldPlace]:
    """Hold the row of a channel, which is made if need be; the stream of a job makes itself."""
    for _ in range(TRIES):
        found = yield from held_if_there(channel)
        if found:
            return found[0]
        yield from events.hold([channel])  # one whose time is over loses its name
        if channel.startswith(JOB) or not makes:
            break
        yield from events.make_channels([channel])
    msg = f"there is no channel {channel!r}"
    raise NotFound(msg)


def _begin(channel: str, after: Cursor | None, held: HeldPlace) -> Steps[int]:
    """Return the number behind which to begin; raise CursorReset if that cannot be."""
    if after is None or after == START:
        return held.low
    # As a reader would: a fork also goes on from a cursor of its source.
    [found] = yield from reading.read([ReadFrom(channel, after, most=1)]).inside()
    return Cursor.parse(answered(found.page).after).seq


def ack(acks: Sequence[Ack]) -> Operation[list[Answer[str]]]:
    """Note what consumers are done with; answer with the cursor up to which each is.

    An older cursor than that changes nothing.
    """

    def steps() -> Steps[list[Answer[str]]]:
        items = [
            {
                "nth": nth,
                "channel": each.channel,
                "name": each.name,
                "generation": each.generation,
                "era": each.cursor.era,
                "number": each.cursor.channel,
                "seq": each.cursor.seq,
                "owner": each.owner,
            }
            for nth, each in enumerate(acks)
        ]
        answers: dict[int, Answer[str]] = {
            row.nth: str(Cursor(row.era, row.channel, row.acked))
            for row in (yield from sql.ack(items))
        }
        refused = [nth for nth in range(len(acks)) if nth not in answers]
        if refused:
            found = yield from _standing([(nth, acks[nth]) for nth in refused])
            answers |= {row.nth: _refusal(acks[row.nth], row) for row in found}
        return [answers[nth] for nth in range(len(acks))]

    return Operation("ack", steps, Mode.APPEND, autocommit=True, locks=True, batch=Batch(acks, ack))


def _standing(asked: Sequence[tuple[int, Ack | Attached]]) -> Steps[list[StandingRow]]:
    items = [{"nth": nth, "channel": each.channel, "name": each.name} for nth, each in asked]
    return (yield from sql.standing(items))


def _refusal(each: Ack, row: StandingRow) -> TowpathError:
    """Say why an ack was refused."""
    if row.channel is None or row.head is None or row.low is None:
        msg = f"channel {each.channel!r} was deleted; attach again"
        return CursorReset(msg, "channel", str(START), str(START))
    if row.generation is not None and (
        taken := _taken(each.channel, each.name, each.owner, row.owner)
    ):
        return taken
    held = HeldPlace(row.channel, row.head, row.low, row.era)
    # An ack that is far behind is only late: it is not refused for that.
    cursor = each.cursor._replace(seq=max(each.cursor.seq, row.low))
    reset = reading.refusal(each.channel, cursor, held.oldest, held.newest)
    if reset and each.cursor.seq:
        return reset
    return _outdated(each, row) or Conflict(
        f"the ack of consumer {each.name!r} met another change; attach again"
    )


def _outdated(each: Ack | Attached, row: StandingRow) -> TowpathError | None:
    if row.generation is None:
        return _unknown(each.channel, each.name)
    if taken := _taken(each.channel, each.name, each.owner, row.owner):
        return taken
    if row.generation == each.generation:
        return None
    return ConsumerFenced(
        f"another reader has attached to channel {each.channel!r} as consumer {each.name!r} "
        f"(generation {row.generation}, not {each.generation}); stop reading as this consumer"
    )


def _unknown(channel: str, name: str) -> NotFound:
    return NotFound(f"channel {channel!r} has no consumer {name!r}; attach first")


def check(asked: Sequence[Attached]) -> Operation[list[Answer[int]]]:
    """Ask whether attachments still hold; answer with the microseconds since a sign of life."""

    def steps() -> Steps[list[Answer[int]]]:
        found = yield from _standing(list(enumerate(asked)))
        by_number = {row.nth: row for row in found}
        return [
            _outdated(each, by_number[nth]) or by_number[nth].silent or 0
            for nth, each in enumerate(asked)
        ]

    return Operation("check", steps, Mode.READ, autocommit=True, batch=Batch(asked, check))


def refresh(each: Attached) -> Operation[None]:
    """Give a sign of life of a consumer that is attached and has nothing to ack."""

    def steps() -> Steps[None]:
        yield sql.refresh(channel=each.channel, name=each.name, generation=each.generation)

    return Operation("refresh", steps, Mode.APPEND, autocommit=True, locks=True)


def list_consumers(channel: str, after: str, limit: int, ttl: int) -> Operation[list[Consumer]]:
    """List the consumers of a channel by name, from behind a name on."""

    def steps() -> Steps[list[Consumer]]:
        found = yield from sql.list_consumers(channel=channel, after=after, limit=limit)
        return [
            Consumer(
                channel=channel,
                name=row.name,
                cursor=str(Cursor(row.era, row.channel, row.acked)),
                lag=row.head - row.acked,
                generation=row.generation,
                seen_at=as_datetime(row.seen_at),
                is_expired=row.silent > ttl,
                is_overtaken=row.acked < row.low,
                owner=row.owner,
            )
            for row in found
        ]

    return Operation("list_consumers", steps, Mode.READ, autocommit=True)


def forget(channel: str, name: str, owner: str | None) -> Operation[bool]:
    """Forget a consumer; say whether there was one."""

    def steps() -> Steps[bool]:
        if (yield from sql.forget_consumer(channel=channel, name=name, owner=owner)):
            return True
        [row] = yield from _standing([(0, Attached(channel, name, 0, owner))])
        if row.generation is not None:
            _check_owner(channel, name, owner, row.owner)
        return False

    # Repeated, it could forget a consumer that has attached meanwhile.
    return Operation(
        "forget_consumer", steps, Mode.APPEND, autocommit=True, locks=True, retry=Rerun.NEVER
    )
