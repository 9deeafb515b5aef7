"""Channels as wholes: where they stand, which there are, and their end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from towpath.model.channels import Channel
from towpath.model.cursor import START, Cursor
from towpath.model.instants import as_datetime
from towpath.operation import Batch, Changed, Mode, Operation, Steps
from towpath.statement import Statements, no_rows, rows
from towpath.store.events import wakeups

AT_ONCE: Final = 1_000  # events that one statement deletes
DELETED_AT_ONCE: Final = 10  # channels of which one round deletes events
BEYOND: Final = "{"  # sorts behind every character of a name


class HeadRow(NamedTuple):
    """Where a channel stands; nothing but its name if there is none."""

    name: str
    channel: int | None
    head: int | None
    low: int | None
    ended: str | None
    era: int
    posted: bool


class ChannelRow(NamedTuple):
    """A channel, as it is stored."""

    name: str
    channel: int
    head: int
    low: int
    bytes: int
    created_at: int
    ended: str | None
    era: int


class sql(Statements):
    """The statements of channels.sql."""

    heads = rows(HeadRow)
    list_channels = rows(ChannelRow)
    delete_channel = rows(int)
    forget_posted_of = rows(int)
    deleted_channels = rows(int)
    drop_events = rows(int)
    drop_channel = no_rows()
    posted_names = rows(str)
    raise_era = rows(int)
    time_of = rows(int)


class Head(Struct, frozen=True):
    """Where a channel stands."""

    cursor: Cursor  # of the newest event; the beginning if there is no channel
    oldest: Cursor
    ended: str | None
    posted: bool  # events wait for their numbers


def heads(names: Sequence[str]) -> Operation[list[Head]]:
    """Read where channels stand."""

    def steps() -> Steps[list[Head]]:
        distinct = dict.fromkeys(names)
        found = {
            row.name: _head(row) for row in (yield from sql.heads([{"name": n} for n in distinct]))
        }
        return [found[name] for name in names]

    return Operation("heads", steps, Mode.READ, autocommit=True, batch=Batch(names, heads))


def _head(row: HeadRow) -> Head:
    if row.channel is None or row.head is None or row.low is None:
        return Head(START, START, None, bool(row.posted))
    oldest = Cursor(row.era, row.channel, row.low)
    return Head(oldest._replace(seq=row.head), oldest, row.ended, bool(row.posted))


def before(name: str, since: int) -> Operation[Cursor]:
    """Return the cursor before the first event that was published since a time.

    The events are in the order of commits: where the clock was set back, it is about there.
    """

    def steps() -> Steps[Cursor]:
        [row] = yield from sql.heads([{"name": name}])
        head = _head(row)
        low, high = head.oldest.seq, head.cursor.seq
        while low < high:  # the event is behind `low`, and not behind `high`
            middle = (low + high) // 2
            at = yield from sql.time_of(channel=head.cursor.channel, seq=middle + 1)
            if at and at[0] < since:
                low = middle + 1
            else:
                high = middle
        return head.cursor._replace(seq=low)

    return Operation("before", steps, Mode.READ)


def list_channels(prefix: str, after: str, limit: int) -> Operation[list[Channel]]:
    """List the channels whose names begin with a text, by name, from behind a name on."""

    def steps() -> Steps[list[Channel]]:
        found = yield from sql.list_channels(
            after=after, first=prefix, beyond=prefix + BEYOND, limit=limit
        )
        return [
            Channel(
                name=row.name,
                oldest=str(Cursor(row.era, row.channel, row.low)),
                head=str(Cursor(row.era, row.channel, row.head)),
                events=row.head - row.low,
                size=row.bytes,
                created_at=as_datetime(row.created_at),
                ended=row.ended,
            )
            for row in found
        ]

    return Operation("list_channels", steps, Mode.READ, autocommit=True)


def delete(name: str) -> Operation[bool]:
    """Delete a channel with all of its events; say whether there was one."""

    def steps() -> Steps[Changed[bool]]:
        gone = yield from sql.delete_channel(name=name)
        posted = yield from sql.forget_posted_of(name=name)
        return Changed(bool(gone or posted), others=wakeups([name]))

    return Operation("delete_channel", steps, Mode.APPEND, locks=True)


def drop_deleted() -> Operation[bool]:
    """Delete some events of channels that were deleted; say whether any may be left."""

    def steps() -> Steps[bool]:
        more = False
        for channel in (yield from sql.deleted_channels(limit=DELETED_AT_ONCE)):
            gone = yield from sql.drop_events(channel=channel, limit=AT_ONCE)
            if len(gone) == AT_ONCE:
                more = True
            else:
                yield sql.drop_channel(channel=channel)
        return more

    return Operation("drop_deleted", steps, autocommit=True)


def posted(limit: int) -> Operation[list[str]]:
    """Name channels for which events wait for their numbers."""
    return Operation("posted", lambda: iter(sql.posted_names(limit=limit)), Mode.READ)


def raise_era() -> Operation[int]:
    """Begin a new era, after a backup was restored: all cursors of before are reset."""

    def steps() -> Steps[int]:
        return (yield from sql.raise_era())[0]

    return Operation("raise_era", steps)
