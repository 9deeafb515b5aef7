"""Channels as streams of the Durable Streams protocol: what its door calls.

A stream is made before it is written to, and has a media type. In a stream of JSON each value is
an event; in any other each append is one, of bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from towpath.app.events import MOST_EVENTS, MOST_PAGE
from towpath.errors import Invalid, InvalidPayload, NotFound
from towpath.model.channels import CLOSED, checked_channel, checked_own, job_of
from towpath.model.cursor import START, Cursor
from towpath.model.durable import JSON, Appended, Created, NewStream, Producer, StreamState, is_json
from towpath.model.event import EventPage
from towpath.model.ids import uuid7
from towpath.model.payload import encode
from towpath.operation import answered
from towpath.store import channels, creating, events
from towpath.store.event_rows import EventBody
from towpath.store.events import Append
from towpath.store.reading import ReadFrom

if TYPE_CHECKING:
    from towpath.app.app import App

MOST_BYTES: Final = 2**20  # of a page, which ends with the event that exceeds this
LONG: Final = 2**16  # bytes; a longer body is read in a thread
_messages: Final = msgspec.json.Decoder(list[msgspec.Raw])


class StreamPage(msgspec.Struct, frozen=True):
    """A page of events, and what is known of their stream."""

    page: EventPage
    media: str


class DurableStreams:
    """The streams of an app."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def create(self, name: str, new: NewStream, body: bytes = b"") -> Created:
        """Make a stream with its first messages; find one that was made the same way."""
        media = new.media
        if media is None and body and new.fork is not None:
            media = (await self.look(new.fork.source)).media
        bodies = await self._bodies(media or "", body)
        operation = creating.create(checked_own(name), new, bodies, uuid7())
        await self._app.events.acheck_room(name)
        return await self._app.arun(operation)

    async def append(
        self,
        name: str,
        media: str | None,
        body: bytes = b"",
        *,
        producer: Producer | None = None,
        order_key: str | None = None,
        closes: bool = False,
    ) -> Appended:
        """Add messages to a stream, close it, or both; all of it or nothing."""
        if body and media is None:
            msg = "send the Content-Type of the body"
            raise Invalid(msg)
        bodies = await self._bodies(media or "", body)
        if body and not bodies:
            msg = "the body is an empty JSON array; send at least one message"
            raise Invalid(msg)
        append = Append(
            channel=checked_own(name),
            events=bodies,
            ended=CLOSED if closes else None,
            create=False,
            media=media,
            producer=producer,
            order_key=order_key,
            most_bytes=self._app.settings.batch_bytes,
        )
        if bodies and append.is_plain:
            [stored] = await self._app.arun(events.publish([append]))
            if stored is not None:
                return Appended(events=stored, head=str(stored[-1].cursor), ended=None)
        return answered((await self._app.arun(events.append([append])))[0])

    async def look(self, name: str) -> StreamState:
        """Read how a stream stands; NotFound if there is none."""
        try:
            return await self._app.arun(creating.look(checked_channel(name)))
        except NotFound:
            if job_of(name) is None:
                raise
        # The job may have said nothing yet.
        found = await self._app.events.afind(ReadFrom(name, START, 1))
        page = answered(found.page)
        return StreamState(head=page.head, media=JSON, ended=page.ended, ttl=None, expires_at=None)

    async def read(self, name: str, after: str | None, most_bytes: int = MOST_BYTES) -> StreamPage:
        """Read the messages behind a cursor; NotFound if there is no stream."""
        cursor = START if after is None else Cursor.parse(after)
        read = ReadFrom(checked_channel(name), cursor, MOST_PAGE, most_bytes)
        found = await self._app.events.afind(read)
        if found.media is None:
            await self.look(name)  # raises what is wrong
            msg = f"channel {name!r} was made just now; try again"
            raise NotFound(msg)
        return StreamPage(answered(found.page), found.media)

    async def delete(self, name: str) -> None:
        """Delete a stream; NotFound if there is none."""
        if not await self._app.arun(channels.delete(checked_own(name))):
            msg = f"there is no channel {name!r}"
            raise NotFound(msg)

    async def _bodies(self, media: str, body: bytes) -> Sequence[EventBody]:
        most = self._app.settings.max_payload
        if len(body) > LONG:
            return await asyncio.to_thread(_event_bodies, media, body, most)
        return _event_bodies(media, body, most)


def _event_bodies(media: str, body: bytes, most: int) -> list[EventBody]:
    """Return the messages of a body; of a JSON array, its elements."""
    payloads: Sequence[Any] = [body] if body else []
    if body and is_json(media):
        is_array = body.lstrip()[:1] == b"["
        try:
            payloads = _messages.decode(body) if is_array else [msgspec.Raw(body)]
        except (ValueError, RecursionError) as error:
            msg = f"the body is not JSON: {error}"
            raise InvalidPayload(msg) from error
    if len(payloads) > MOST_EVENTS:
        msg = f"{len(payloads):,} messages in one append; at most {MOST_EVENTS:,} are allowed"
        raise Invalid(msg)
    return [_event_body(payload, most) for payload in payloads]


def _event_body(payload: object, most: int) -> EventBody:
    body, encoding = encode(payload, most)
    return EventBody(id=uuid7(), body=body, encoding=encoding, size=len(body.encode()))
