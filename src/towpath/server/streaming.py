"""Answers that go on: pages of events as server-sent events, until the stream or the client ends.

What is sent waits for the client to read it, so a client that does not read takes no memory.
"""

import asyncio
import base64
import contextlib
import json
import logging
import random
import re
import time
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec

from towpath.app.durable_streams import StreamPage
from towpath.errors import AppClosed, CursorReset, InvalidToken, NotFound, TowpathError
from towpath.model.durable import is_json, is_text
from towpath.model.event import Event, EventPage
from towpath.model.payload import Encoding, raw_bytes
from towpath.server.bodies import Send
from towpath.server.endpoint import Streamed
from towpath.server.errors import Refusal, refusal
from towpath.server.request import Request

log: Final = logging.getLogger("towpath")

BEAT: Final = 15.0  # seconds between two signs of life
SPREAD: Final = 0.1  # of the lifetime, so that clients do not all come back at once
LEAST_RENEWAL: Final = 0.1  # seconds
EPOCH: Final = 1_728_432_000  # 2024-10-09, where the intervals of caches begin
INTERVAL: Final = 20  # seconds
MOST_STEP: Final = 180  # intervals
HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would hold back what is small
    (b"x-content-type-options", b"nosniff"),
)
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


@contextlib.asynccontextmanager
async def renewing(request: Request, name: str, ttl: int | None) -> AsyncGenerator[None]:
    """Keep a stream alive while a client waits for its next event."""
    if ttl is None:
        yield
        return
    task = asyncio.ensure_future(_renew(request, name, max(ttl / 3e6, LEAST_RENEWAL)))
    try:
        yield
    finally:
        task.cancel()


async def _renew(request: Request, name: str, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        with contextlib.suppress(TowpathError):
            await request.app.durable_streams.renew(name)


class EventStream:
    """One client that is sent a stream as server-sent events."""

    def __init__(self, request: Request, name: str, first: StreamPage, cursor: str | None) -> None:
        self._request = request
        self._name = name
        self._first = first
        self._media = first.media
        self._cursor = stream_cursor(cursor)
        spread = 1 + random.uniform(-SPREAD, SPREAD)  # noqa: S311 - no secret
        self._ends_at = time.monotonic() + request.app.settings.stream_lifetime * spread

    def answer(self, *more: tuple[bytes, bytes]) -> Streamed:
        """Return the answer that sends it."""
        encoding = () if is_text(self._media) else ((b"stream-sse-data-encoding", b"base64"),)
        head = {
            "type": "http.response.start",
            "status": 200,
            "headers": [*HEADERS, *encoding, *more],
        }

        async def run(send: Send) -> None:
            await send(head)
            try:
                await self._run(send)
            except CursorReset as error:
                await _send(send, _reset(error))
            except (Refusal, InvalidToken) as error:
                await _send(send, _lost(refusal(error).code))
            except (NotFound, AppClosed):
                pass
            except Exception:  # the head is sent: there is no other way to say it
                log.exception("server-sent events of channel %r failed", self._name)
            await send({"type": "http.response.body", "body": b""})

        return Streamed(200, run)

    async def _run(self, send: Send) -> None:
        """Send pages until the stream ends, the client goes, the server stops or time is up."""
        page = self._first.page
        await _send(send, self._data(page) + self._control(page))
        if page.ended is not None:
            return
        request = self._request
        async with (
            renewing(request, self._name, self._first.ttl),
            await request.app.events.follow(self._name, page.cursor) as subscription,
        ):
            ends = [
                asyncio.ensure_future(each)
                for each in (request.disconnected(), request.shared.closing.wait())
            ]
            following: asyncio.Future[Any] = asyncio.ensure_future(subscription.next())
            try:
                while (left := self._ends_at - time.monotonic()) > 0:
                    await asyncio.wait(
                        (following, *ends),
                        timeout=min(BEAT, left),
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    if any(each.done() for each in ends):
                        return
                    if not following.done():
                        await _send(send, b":\n\n")
                        continue
                    shared = following.result()
                    await request.check_again("subscribe", self._name)
                    data = shared.encoded_by("sse", self._data)
                    await _send(send, data + self._control(shared.page))
                    if shared.page.ended is not None:
                        return
                    following = asyncio.ensure_future(subscription.next())
            finally:
                for each in (following, *ends):
                    each.cancel()

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
        data = json.dumps(told, separators=(",", ":"))
        return f"id: {page.cursor}\nevent: control\ndata:{data}\n\n".encode()


def _base64(body: bytes) -> str:
    return base64.b64encode(body).decode("ascii")


def _reset(error: CursorReset) -> bytes:
    told = {"reason": error.reason, "oldest": error.oldest, "head": error.head}
    return f"event: reset\ndata:{json.dumps(told, separators=(',', ':'))}\n\n".encode()


def _lost(code: str) -> bytes:
    """Say that the client may not read on."""
    return f"event: reset\ndata:{json.dumps({'reason': code})}\n\n".encode()


async def _send(send: Send, piece: bytes) -> None:
    await send({"type": "http.response.body", "body": piece, "more_body": True})
