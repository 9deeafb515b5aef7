"""Events on their way into tables and out of them."""

from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Struct

from towpath.model.cursor import Cursor
from towpath.model.event import Event
from towpath.model.instants import as_datetime
from towpath.store.rows import uuid_from

_encoder: Final = msgspec.json.Encoder(order="sorted")
_headers: Final = msgspec.json.Decoder(dict[str, str])


class EventBody(Struct, frozen=True, kw_only=True):
    """An event to store, checked and encoded."""

    id: UUID
    body: str
    encoding: str
    size: int  # bytes of its body and headers
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


def event_of(channel: str, event: EventBody, cursor: Cursor | None, at: int) -> Event:
    """Return an event that was just stored, or posted: then it has no cursor."""
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


def event_from(channel: str, cursor: str, row: EventRow | ReadRow) -> Event:
    """Return a stored event."""
    return Event(
        id=uuid_from(row.id),
        channel=channel,
        cursor=cursor,
        at=as_datetime(row.at),
        type=row.type,
        key=row.key,
        headers=decoded(row.headers),
        body=row.body,
        encoding=row.encoding,
    )


def body_of(row: PostedRow) -> EventBody:
    """Return an event that waits for its number."""
    return EventBody(
        id=uuid_from(row.id),
        body=row.body,
        encoding=row.encoding,
        size=row.size,
        type=row.type,
        key=row.key,
        headers=row.headers,
    )


def encoded(headers: dict[str, str]) -> str | None:
    """Return headers as they are stored."""
    return _encoder.encode(headers).decode() if headers else None


def decoded(headers: str | None) -> dict[str, str]:
    """Return stored headers."""
    return _headers.decode(headers) if headers else {}
