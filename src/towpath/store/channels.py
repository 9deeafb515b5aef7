"""Channels as wholes: where they stand, which there are, and their end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from towpath.errors import MaxChannelsReached
from towpath.model.channels import SYSTEM, Channel
from towpath.model.cursor import START, Cursor
from towpath.model.instants import as_datetime
from towpath.operation import Batch, Changed, Mode, Operation, Rerun, Steps
from towpath.statement import Statements, no_rows, rows
from towpath.store.events import GONE, gone, hold, wakeups

AT_ONCE: Final = 1_000  # events that one statement deletes
DELETED_AT_ONCE: Final = 100  # channels of which one statement deletes events
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


class DeletedChannel(NamedTuple):
    """A channel without a name, and the one that it was forked from."""

    channel: int
    source: int | None


class sql(Statements):
    """The statements of channels.sql."""

    heads = rows(HeadRow)
    list_channels = rows(ChannelRow)
    others = rows(int)
    renew = no_rows()
    forks = rows(int)
    forget_posted_of = rows(int)
    delete_channel = no_rows()
    keep_for_forks = no_rows()
    free_name = rows(int)
    expired = rows(str)
    deleted_channels = rows(DeletedChannel)
    drop_events = rows(int)
    drop_channels = no_rows()
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
            after=after, first=prefix, beyond=prefix + BEYOND, gone=GONE, limit=limit
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


def check_room(name: str, most: int) -> Operation[None]:
    """Raise MaxChannelsReached if a channel would be one more than may be.

    Callers that begin channels at the same moment do not see each other's.
    """

    def steps() -> Steps[None]:
        [count] = yield from sql.others(name=name, system=SYSTEM, most=most)
        if count >= most:
            msg = (
                f"there are {count:,} channels; {name!r} would be one more than `max_channels`: "
                "delete one that is not needed, or raise it"
            )
            raise MaxChannelsReached(msg)

    return Operation("check_room", steps, Mode.READ, autocommit=True)


def renew(names: Sequence[str]) -> Operation[None]:
    """Prolong the lives of channels that expire when they are not used."""

    def steps() -> Steps[None]:
        yield sql.renew([{"name": name} for name in dict.fromkeys(names)])

    return Operation("renew_channels", steps, Mode.APPEND, autocommit=True, locks=True)


def delete(name: str) -> Operation[bool]:
    """Delete a channel with all of its events; say whether there was one.

    A channel that others were forked from keeps its name and its events until its forks are
    deleted, but is not read or written any more: ChannelGone.
    """

    def steps() -> Steps[Changed[bool]]:
        held = (yield from hold([name])).get(name)
        if held is None:
            posted = yield from sql.forget_posted_of(name=name)
            return Changed(bool(posted), others=wakeups([name]))
        if held.ended == GONE:
            raise gone(name)
        if (yield from sql.forks(channel=held.id)):
            yield sql.keep_for_forks(channel=held.id, name=name, ended=GONE)
            return Changed(True, others=wakeups([name]))
        yield sql.delete_channel(channel=held.id, name=name)
        yield from _free_names(held.source)
        return Changed(True, others=wakeups([name]))

    # Repeated, it could delete a channel that was made meanwhile.
    return Operation("delete_channel", steps, Mode.APPEND, locks=True, retry=Rerun.NEVER)


def _free_names(source: int | None) -> Steps[None]:
    """Free the names of deleted channels whose last fork is gone, up the line."""
    while source is not None:
        freed = yield from sql.free_name(channel=source, ended=GONE)
        source = freed[0] if freed else None


def expire(limit: int) -> Operation[list[str]]:
    """Take the names of some channels whose time is over, and return these names."""

    def steps() -> Steps[Changed[list[str]]]:
        names = yield from sql.expired(limit=limit)
        yield from hold(names)
        return Changed(names, others=wakeups(names))

    return Operation("expire", steps, Mode.APPEND, locks=True)


def drop_deleted() -> Operation[bool]:
    """Delete some events of channels that were deleted; say whether any may be left."""

    def steps() -> Steps[bool]:
        found = yield from sql.deleted_channels(limit=DELETED_AT_ONCE)
        if not found:
            return False
        items = [{"channel": each.channel} for each in found]
        dropped = yield from sql.drop_events(items, limit=AT_ONCE)
        sources = {each.source for each in found if each.source is not None}
        for source in sources:
            yield from _free_names(source)
        yield sql.drop_channels(items)
        is_full = len(found) == DELETED_AT_ONCE or len(dropped) == AT_ONCE
        return is_full or bool(sources)  # a source may be the next one

    return Operation("drop_deleted", steps, autocommit=True)


def posted(limit: int) -> Operation[list[str]]:
    """Name channels for which events wait for their numbers."""
    return Operation("posted", lambda: iter(sql.posted_names(limit=limit)), Mode.READ)


def raise_era() -> Operation[int]:
    """Begin a new era, after a backup was restored: all cursors of before are reset."""

    def steps() -> Steps[int]:
        return (yield from sql.raise_era())[0]

    return Operation("raise_era", steps)
