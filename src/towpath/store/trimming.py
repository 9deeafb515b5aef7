"""Trimming: which events a channel keeps, and how the others go.

A channel lets go of its oldest event while any of this holds:

- the event is older than `max_age`;
- the channel has more than `max_count` events, or more than `max_bytes` bytes of their payloads
  and headers;
- the channel has `drop_acked`, and every active consumer, of at least one, has acked the event. A
  consumer is active until it is silent for `consumer_ttl`; the router of webhooks always is.

The first two are hard limits: they hold whatever consumers have acked. A reader that is overtaken
is reset. A limit of 0 is none. The channel's own limits come before those of the settings; `system`
keeps a day unless it has its own. The stream of a job is kept as long as its job. A fork holds back
what its source would let go as acked, and nothing else: what hard limits delete of a source, also
of one that was deleted, is gone from its forks. What a fork has from its source is among its
events, and none of its bytes. It goes before the fork's own, and its source keeps it.

The low-water mark of the channel rises in a transaction of its own, under the row of the channel;
from then on no reader gets what is below. The rows go later, some at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from towpath.model.channels import SYSTEM
from towpath.model.instants import microseconds
from towpath.operation import Mode, Operation, Steps
from towpath.settings import Settings
from towpath.statement import Statements, no_rows, rows
from towpath.store import consumers

VISITED_AT_ONCE: Final = 200  # channels
AT_ONCE: Final = 1_000  # events of one channel
SYSTEM_AGE: Final = 86_400 * 10**6  # microseconds


class ChannelLimits(Struct, frozen=True, kw_only=True):
    """What a channel keeps; 0 is no limit, None is the limit of the settings."""

    max_age: int | None = None  # microseconds
    max_bytes: int | None = None
    max_count: int | None = None
    drop_acked: bool = False


class Kept(Struct, frozen=True):
    """What every channel keeps by the settings; 0 is no limit."""

    max_age: int  # microseconds
    max_bytes: int
    max_count: int
    consumer_ttl: int

    @classmethod
    def of(cls, settings: Settings) -> Kept:
        """Return what the settings say."""
        return cls(
            microseconds(settings.event_max_age),
            settings.event_max_bytes,
            settings.event_max_count,
            microseconds(settings.consumer_ttl),
        )


class VisitedChannel(NamedTuple):
    """A channel, its limits and its oldest event."""

    id: int
    name: str | None
    is_source: bool  # of a fork
    head: int
    low: int
    bytes: int
    now: int
    max_age: int | None
    max_bytes: int | None
    max_count: int | None
    acked: int | None  # by every active consumer, if that matters
    oldest_at: int | None
    is_left: bool  # some rows that are trimmed


class ChannelToTrim(NamedTuple):
    """A channel whose row is held."""

    id: int
    name: str | None
    head: int
    low: int
    bytes: int
    now: int


class LimitsRow(NamedTuple):
    """The limits of a channel, as they are stored."""

    max_age: int | None
    max_bytes: int | None
    max_count: int | None
    drop_acked: bool | None
    acked: int | None  # by every active consumer, if that matters
    is_source: bool  # of a fork


class OldEvent(NamedTuple):
    """What decides whether an event goes."""

    seq: int
    at: int
    size: int


class sql(Statements):
    """The statements of trimming.sql."""

    set_limits = no_rows()
    visit = rows(VisitedChannel)
    hold_to_trim = rows(ChannelToTrim)
    limits_of = rows(LimitsRow)
    oldest = rows(OldEvent)
    raise_low = no_rows()
    raise_forks = no_rows()
    drop_below = rows(int)


class Bounds(Struct, frozen=True):
    """The limits that hold for one channel; 0 is no limit."""

    max_age: int
    max_bytes: int
    max_count: int
    acked: int

    @classmethod
    def of(cls, name: str | None, row: VisitedChannel | LimitsRow, kept: Kept) -> Bounds:
        """Return the channel's own limits, or else those of the settings."""
        age = SYSTEM_AGE if name == SYSTEM else kept.max_age
        return cls(
            max_age=age if row.max_age is None else row.max_age,
            max_bytes=kept.max_bytes if row.max_bytes is None else row.max_bytes,
            max_count=kept.max_count if row.max_count is None else row.max_count,
            acked=0 if row.is_source else row.acked or 0,
        )

    def let_go(self, seq: int, age: int, count: int, size: int) -> bool:
        """Say whether the oldest event of a channel of this count and size goes."""
        return (
            seq <= self.acked
            or bool(self.max_age and age > self.max_age)
            or bool(self.max_count and count > self.max_count)
            or bool(self.max_bytes and size > self.max_bytes)
        )


class Visit(Struct, frozen=True):
    """Channels that have something to trim, and where the next visit begins."""

    channels: Sequence[int]
    left: Sequence[tuple[int, int]]  # channels and marks below which rows are left
    upto: int  # 0: from the first channel on


class Trimmed(Struct, frozen=True):
    """What became of a channel."""

    low: int
    more: bool  # there may be more to trim


def limit(channel: str, limits: ChannelLimits) -> Operation[None]:
    """Set the limits of a channel, which is made if need be."""

    def steps() -> Steps[None]:
        held = yield from consumers.held_channel(channel)
        yield sql.set_limits(channel=held.channel, **asdict(limits))

    return Operation("limit", steps, Mode.APPEND, locks=True)


def visit(after: int, kept: Kept) -> Operation[Visit]:
    """Look at some channels, in turn."""

    def steps() -> Steps[Visit]:
        found = yield from sql.visit(after=after, limit=VISITED_AT_ONCE, ttl=kept.consumer_ttl)
        own = [row for row in found if not _is_kept(row)]
        return Visit(
            channels=[row.id for row in own if is_over(row, kept)],
            left=[(row.id, row.low) for row in own if row.is_left],
            upto=found[-1].id if len(found) == VISITED_AT_ONCE else 0,
        )

    return Operation("visit", steps, Mode.SCAN, autocommit=True)


def _is_kept(row: VisitedChannel) -> bool:
    """Say whether a channel has no limits, as it goes as a whole."""
    return row.name is None and not row.is_source


def is_over(row: VisitedChannel, kept: Kept) -> bool:
    """Say whether the oldest event of a channel goes."""
    if row.oldest_at is None:
        return False
    bounds = Bounds.of(row.name, row, kept)
    return bounds.let_go(row.low + 1, row.now - row.oldest_at, row.head - row.low, row.bytes)


def trim(channel: int, kept: Kept) -> Operation[Trimmed | None]:
    """Raise the low-water mark of a channel over some events; None if it stays as it is."""

    def steps() -> Steps[Trimmed | None]:
        found = yield from sql.hold_to_trim(channel=channel)
        if not found:
            return None
        [held] = found
        [limits] = yield from sql.limits_of(channel=channel, ttl=kept.consumer_ttl)
        bounds = Bounds.of(held.name, limits, kept)
        oldest = yield from sql.oldest(channel=channel, low=held.low, limit=AT_ONCE)
        low, size = held.low, held.bytes
        for event in oldest:
            if not bounds.let_go(event.seq, held.now - event.at, held.head - event.seq + 1, size):
                break
            low, size = event.seq, size - event.size
        if low == held.low:
            return None
        yield sql.raise_low(channel=channel, low=low, size=held.bytes - size)
        if limits.is_source:
            yield sql.raise_forks(channel=channel, low=low)
        return Trimmed(low, more=len(oldest) == AT_ONCE and low == oldest[-1].seq)

    return Operation("trim", steps, Mode.APPEND, locks=True)


def drop_below(channel: int, low: int) -> Operation[bool]:
    """Delete some events below a low-water mark; say whether any may be left."""

    def steps() -> Steps[bool]:
        gone = yield from sql.drop_below(channel=channel, low=low, limit=AT_ONCE)
        return len(gone) == AT_ONCE

    return Operation("drop_below", steps, autocommit=True)
