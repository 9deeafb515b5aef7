"""Pages of a channel in the forms of Durable Streams: as a body, and as server-sent events."""

import base64
import json
import logging
import random
import re
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Final

import msgspec

from towpath.app.durable_streams import StreamPage
from towpath.errors import AppClosed, CursorReset, InvalidToken, NotFound
from towpath.model.durable import is_json, is_text
from towpath.model.event import Event, EventPage
from towpath.model.payload import Encoding, raw_bytes
from towpath.server.errors import Refusal, refusal
from towpath.server.request import Request

log: Final = logging.getLogger("towpath")

DOOR: Final = "stream"
EPOCH: Final = 1_728_432_000  # 2024-10-09, where the intervals of caches begin
INTERVAL: Final = 20  # seconds
MOST_STEP: Final = 180  # intervals
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_encoder: Final = msgspec.json.Encoder()


def stream_cursor(sent: str | None) -> str:
    """Return the number of this interval of time; a greater one than the client has sent.

    Caches share what is asked for with one number. A client that repeats its number would get the
    same answer from them for ever.
    """
    now = (int(time.time()) - EPOCH) // INTERVAL
    known = int(sent) if sent is not None and re.fullmatch(r"[0-9]{1,18}", sent) else -1
    return str(now if known < now else known + random.randint(1, MOST_STEP))  # noqa: S311 - no secret


def body_of_page(media: str, page: EventPage) -> bytes:
    """Return events as the body of an answer: an array of JSON, or all bytes in a row."""
    if is_json(media):
        return b"[%b]" % b",".join(map(_as_json, page.events))
    return b"".join(raw_bytes(event.body, event.encoding) for event in page.events)


def _as_json(event: Event) -> bytes:
    """Return a payload as JSON; bytes as a string."""
    is_value = event.encoding == Encoding.JSON
    return event.body.encode() if is_value else _encoder.encode(event.body)


class StreamEvents:
    """The server-sent events of one client."""

    def __init__(self, media: str, cursor: str | None) -> None:
        self._media = media
        self._cursor = stream_cursor(cursor)

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """What the head of the answer says of them."""
        return () if is_text(self._media) else ((b"stream-sse-data-encoding", b"base64"),)

    async def follow(self, request: Request, name: str, first: StreamPage) -> AsyncGenerator[bytes]:
        """Send a page, then those that come, to the end of the stream."""
        page, metrics = first.page, request.shared.metrics
        try:
            metrics.sent(DOOR, len(page.events))
            yield self._data(page) + self._control(page)
            if page.ended is not None:
                return
            async with await request.app.events.follow(name, page.cursor) as subscription:
                while page.ended is None:
                    shared = await subscription.next()
                    await request.check_again("subscribe", name)
                    page = shared.page
                    metrics.sent(DOOR, len(page.events))
                    yield shared.encoded_by("sse", self._data) + self._control(page)
        except CursorReset as error:
            metrics.reset(error.reason)
            told = {"reason": error.reason, "oldest": error.oldest, "head": error.head}
            yield _event("reset", told)
        except (Refusal, InvalidToken) as error:
            metrics.reset(refusal(error).code)
            yield _event("reset", {"reason": refusal(error).code})
        except (NotFound, AppClosed):
            pass
        except Exception:  # the head is sent: there is no other way to say it
            log.exception("server-sent events of channel %r failed", name)

    def _data(self, page: EventPage) -> bytes:
        """Return the events of a page as one event; nothing if there are none."""
        if not page.events:
            return b""
        body = body_of_page(self._media, page)
        text = body.decode(errors="replace") if is_text(self._media) else _base64(body)
        lines = "".join(f"data:{line}\n" for line in _LINE_END.split(text))
        return f"id: {page.cursor}\nevent: data\n{lines}\n".encode()

    def _control(self, page: EventPage) -> bytes:
        """Return the event that says where the client is."""
        told: dict[str, object] = {"streamNextOffset": page.cursor}
        if page.ended is None:
            told["streamCursor"] = self._cursor
        if page.is_current:
            told["upToDate"] = True
        if page.ended is not None:
            told |= {"streamClosed": True, "towpathEnded": page.ended}
        return b"id: %b\n%b" % (page.cursor.encode(), _event("control", told))


def _base64(body: bytes) -> str:
    return base64.b64encode(body).decode("ascii")


def _event(name: str, told: Mapping[str, object]) -> bytes:
    return f"event: {name}\ndata:{json.dumps(told, separators=(',', ':'))}\n\n".encode()
