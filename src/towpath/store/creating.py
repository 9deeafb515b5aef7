"""Channels that are made before their first event: with a media type, a lifetime, as a fork.

A fork has no copy of the events of its source: its number of the source and of the event at which
it was forked say where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from towpath.errors import ChannelExists, CursorReset, DatabaseBusy, Invalid, NotFound, WrongMedia
from towpath.model.channels import CLOSED, JOB
from towpath.model.cursor import Cursor
from towpath.model.durable import (
    BYTES,
    Created,
    Fork,
    NewStream,
    StreamState,
    is_json,
    media_type,
)
from towpath.model.payload import encode, raw_bytes
from towpath.operation import Changed, Mode, Operation, Steps, answered
from towpath.statement import Statements, no_rows, rows
from towpath.store import events, reading
from towpath.store.event_rows import EventBody, decoded, encoded
from towpath.store.events import GONE, TRIES, HeldChannel, gone, hold, wakeups
from towpath.store.reading import ReadFrom

SLICE: Final = "towpath-slice"  # the header of an event that is the first bytes of another one


class NewChannel(NamedTuple):
    """A channel that was made just now."""

    id: int
    now: int
    era: int


class sql(Statements):
    """The statements of creating.sql."""

    make_channel = rows(NewChannel)
    set_lifetime = no_rows()
    first_headers = rows(str)
    states = rows(HeldChannel)


class Beginning(Struct, frozen=True):
    """Where a new channel begins."""

    source: int | None = None
    fork_at: int | None = None
    low: int = 0
    slice: EventBody | None = None  # the first bytes of the source's next event
    sliced: int = 0  # how many of them


def create(
    name: str, new: NewStream, bodies: Sequence[EventBody], slice_id: UUID
) -> Operation[Created]:
    """Make a channel with its first events; find one that was made the same way.

    ChannelExists if the name has a channel that was made in another way.
    """

    def steps() -> Steps[Changed[Created]]:
        names = [name] if new.fork is None else [name, new.fork.source]
        for _ in range(TRIES):
            held = yield from hold(names)
            existing = held.get(name)
            source = None if new.fork is None else held.get(new.fork.source)
            if existing is not None:
                yield from _compare(new, existing, source, slice_id)
                return Changed(Created(_state(existing), is_new=False))
            made = yield from _make(name, new, source, bodies, slice_id)
            if made is not None:
                return Changed(Created(made, is_new=True), others=wakeups([name]))
        msg = f"other callers make and delete channel {name!r} all the time; try again later"
        raise DatabaseBusy(msg)

    return Operation("create_channel", steps, Mode.APPEND, locks=True)


def look(name: str) -> Operation[StreamState]:
    """Read how a channel stands, without prolonging its life."""

    def steps() -> Steps[StreamState]:
        found = yield from sql.states(name=name)
        if not found:
            raise _nothing(name)
        if found[0].ended == GONE:
            raise gone(name)
        return _state(found[0])

    return Operation("look", steps, Mode.READ, autocommit=True)


def _nothing(name: str) -> NotFound:
    way = "no job has this id" if name.startswith(JOB) else "make it with PUT"
    return NotFound(f"there is no channel {name!r}; {way}")


def _state(row: HeldChannel) -> StreamState:
    return StreamState(
        head=str(Cursor(row.era, row.id, row.head)),
        media=row.media,
        ended=row.ended,
        ttl=row.ttl,
        expires_at=row.expires_at,
    )


def _compare(
    new: NewStream, existing: HeldChannel, source: HeldChannel | None, slice_id: UUID
) -> Steps[None]:
    """Refuse a channel that was made in another way than the new one would be."""
    differing = [what for what, same in _same_settings(new, existing) if not same]
    if existing.source != (None if source is None else source.id):
        differing.append("Stream-Forked-From")
    elif new.fork is not None and source is not None and new.fork.after is not None:
        beginning = yield from _fork(new.fork, source, slice_id)
        if existing.fork_at != beginning.fork_at or (
            (yield from _sliced(existing)) != beginning.sliced
        ):
            differing.append("Stream-Fork-Offset")
    if differing or existing.ended == GONE:
        what = ", ".join(differing) or "its life: it was deleted, and has forks"
        msg = f"channel {existing.name!r} exists and differs in {what}; use another name"
        raise ChannelExists(msg)


def _same_settings(new: NewStream, row: HeldChannel) -> list[tuple[str, bool]]:
    is_fork = new.fork is not None
    media = row.media if new.media is None and is_fork else new.media or BYTES
    expires_at = row.expires_at if row.ttl is None else None
    lives = (new.ttl, new.expires_at) == (row.ttl, expires_at)
    inherits = is_fork and new.ttl is None and new.expires_at is None
    return [
        ("Content-Type", media_type(media) == media_type(row.media)),
        ("Stream-TTL or Stream-Expires-At", lives or inherits),
        ("Stream-Closed", new.is_closed == (row.closed_at is not None)),
    ]


def _sliced(row: HeldChannel) -> Steps[int]:
    """Return how many bytes of its source's next event a fork has."""
    found = yield from sql.first_headers(channel=row.id, seq=(row.fork_at or 0) + 1)
    return int(decoded(found[0]).get(SLICE, "0")) if found else 0


def _make(
    name: str,
    new: NewStream,
    source: HeldChannel | None,
    bodies: Sequence[EventBody],
    slice_id: UUID,
) -> Steps[StreamState | None]:
    """Make a channel; None if another caller has made it since it was looked for."""
    beginning, fork = Beginning(), new.fork
    if fork is not None:
        if source is None:
            raise _nothing(fork.source)
        new = _inherited(new, source)
        beginning = yield from _fork(fork, source, slice_id)
    own = [*([beginning.slice] if beginning.slice is not None else []), *bodies]
    first = (beginning.fork_at or 0) + 1
    media = new.media or BYTES
    ended = CLOSED if new.is_closed else None
    made = yield from sql.make_channel(
        name=name,
        head=first - 1 + len(own),
        low=beginning.low,
        bytes=sum(body.size for body in own),
        media=media,
        source=beginning.source,
        fork_at=beginning.fork_at,
        ended=ended,
    )
    if not made:
        return None
    [row] = made
    items = [
        body.as_item(channel=row.id, seq=seq, at=row.now) for seq, body in enumerate(own, first)
    ]
    if items:
        yield from events.insert(items)
    expires_at = new.expires_at if new.ttl is None else row.now + new.ttl
    if expires_at is not None:
        yield sql.set_lifetime(channel=row.id, ttl=new.ttl, expires_at=expires_at)
    head = str(Cursor(row.era, row.id, first - 1 + len(own)))
    return StreamState(head=head, media=media, ended=ended, ttl=new.ttl, expires_at=expires_at)


def _inherited(new: NewStream, source: HeldChannel) -> NewStream:
    """Return what a fork takes over from its source; refuse what it cannot."""
    if source.ended == GONE:
        msg = f"channel {source.name!r} was deleted, so it cannot be forked"
        raise ChannelExists(msg)
    if new.media is not None and media_type(new.media) != media_type(source.media):
        msg = f"channel {source.name!r} has media type {source.media!r}, and so have its forks"
        raise WrongMedia(msg)
    changes: dict[str, Any] = {"media": new.media or source.media}
    if new.ttl is None and new.expires_at is None:
        changes |= {"ttl": source.ttl}
        if source.ttl is None:
            changes |= {"expires_at": source.expires_at}
    return replace(new, **changes)


def _fork(fork: Fork, source: HeldChannel, slice_id: UUID) -> Steps[Beginning]:
    """Find where a fork begins; Invalid if its source has no such place."""
    after = fork.after or Cursor(source.era, source.id, source.head)
    [found] = yield from reading.read([ReadFrom(fork.source, after, most=1)]).inside()
    if isinstance(found.page, CursorReset):
        msg = f"channel {fork.source!r} cannot be forked at {after}: {found.page}"
        raise Invalid(msg)
    page = answered(found.page)
    at, low = Cursor.parse(page.after).seq, Cursor.parse(page.oldest).seq
    begins = Beginning(source=source.id, fork_at=at, low=low)
    if not fork.more:
        return begins
    if is_json(source.media):
        if at + fork.more > source.head:
            raise _too_short(fork, source.head - at, "messages")
        return replace(begins, fork_at=at + fork.more)
    message = raw_bytes(page.events[0].body, page.events[0].encoding) if page.events else b""
    if fork.more > len(message):
        raise _too_short(fork, len(message), "bytes")
    if fork.more == len(message):
        return replace(begins, fork_at=at + 1)
    body, encoding = encode(message[: fork.more], len(message))
    headers = encoded({SLICE: str(fork.more)})
    size = len(body.encode())
    part = EventBody(id=slice_id, body=body, encoding=encoding, size=size, headers=headers)
    return replace(begins, slice=part, sliced=fork.more)


def _too_short(fork: Fork, most: int, what: str) -> Invalid:
    return Invalid(f"Stream-Fork-Sub-Offset {fork.more} is too large; {most} {what} are there")
