"""Channels as the Durable Streams protocol sees them: media types, producers, lifetimes, forks."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from towpath.model.cursor import Cursor
from towpath.model.event import Event

BYTES: Final = "application/octet-stream"  # the media type of a stream that is made without one
JSON: Final = "application/json"


class Producer(Struct, frozen=True):
    """The sender of an append, and the number of the append: a repeated one is not stored again."""

    name: str
    epoch: int  # a producer that starts again raises it, and appends of older ones are refused
    seq: int


class Fork(Struct, frozen=True):
    """Where a new stream begins: with the events of another one, up to a cursor."""

    source: str
    after: Cursor | None  # None: the newest event
    more: int = 0  # so many messages behind the cursor, or bytes of the message behind it


class NewStream(Struct, frozen=True, kw_only=True):
    """How a stream is made."""

    media: str | None = None  # None: that of the source of a fork, otherwise bytes
    ttl: int | None = None  # microseconds without a read or a write
    expires_at: int | None = None
    is_closed: bool = False
    fork: Fork | None = None


class StreamState(Struct, frozen=True, kw_only=True):
    """A stream as it was when it was read."""

    head: str
    media: str
    ended: str | None  # how it was closed; None while it is open
    ttl: int | None
    expires_at: int | None


class Created(Struct, frozen=True):
    """The answer to the creation of a stream."""

    state: StreamState
    is_new: bool  # False: it was there, made the same way


class Appended(Struct, frozen=True, kw_only=True):
    """The answer to an append."""

    events: Sequence[Event]
    head: str  # the cursor behind it
    ended: str | None
    said: int | None = None  # the number of the producer's newest append
    is_repeated: bool = False  # the producer has sent it before: nothing was stored
    posted: bool = False  # more events wait for their numbers than one transaction places


def media_type(media: str) -> str:
    """Return the part of a media type that is compared: without case and parameters."""
    return media.partition(";")[0].strip().lower()


def is_json(media: str) -> bool:
    """Say whether each message of a stream is a JSON value."""
    return media_type(media) == JSON


def is_text(media: str) -> bool:
    """Say whether server-sent events show the messages of a stream as they are."""
    return is_json(media) or media_type(media).startswith("text/")
