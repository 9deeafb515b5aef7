"""Answers that go on: server-sent events, until the channel, the client or the time ends.

What is sent waits for the client to read it, so a client that does not read takes no memory.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator
from typing import Final

from towpath.server.bodies import Send
from towpath.server.request import Request
from towpath.server.routes import Streamed

MEDIA: Final = b"text/event-stream"
BEAT: Final = 15.0  # seconds between two signs of life
COMMENT: Final = b":\n\n"  # a sign of life, which clients ignore
SPREAD: Final = 0.1  # of the lifetime, so that clients do not all come back at once
HEADERS: Final = (
    (b"content-type", MEDIA),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would hold back what is small
    (b"x-content-type-options", b"nosniff"),
)


def server_sent(
    request: Request,
    pieces: AsyncGenerator[bytes],
    *headers: tuple[bytes, bytes],
    door: str,
    goodbye: bytes = b"",
) -> Streamed:
    """Return an answer that sends pieces as they come, and `goodbye` if it ends before them."""
    spread = 1 + random.uniform(-SPREAD, SPREAD)  # noqa: S311 - no secret
    ends_at = time.monotonic() + request.app.settings.stream_lifetime * spread

    async def run(send: Send) -> None:
        with request.shared.metrics.connected(door):
            await send_all(send)

    async def send_all(send: Send) -> None:
        head = {"type": "http.response.start", "status": 200, "headers": [*HEADERS, *headers]}
        await send(head)
        gone = asyncio.ensure_future(request.disconnected())
        closing = asyncio.ensure_future(request.shared.closing.wait())
        following = asyncio.ensure_future(_next(pieces))
        try:
            while True:
                left = max(0.0, ends_at - time.monotonic())
                await asyncio.wait(
                    (following, closing, gone),
                    timeout=min(BEAT, left),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if gone.done():
                    return
                if closing.done() or time.monotonic() >= ends_at:
                    await _send(send, goodbye)
                    break
                if not following.done():
                    await _send(send, COMMENT)
                    continue
                piece = following.result()
                if piece is None:
                    break
                await _send(send, piece)
                following = asyncio.ensure_future(_next(pieces))
        finally:
            for each in (following, closing, gone):
                each.cancel()
            await asyncio.gather(following, closing, gone, return_exceptions=True)
            await pieces.aclose()
        await send({"type": "http.response.body", "body": b""})

    return Streamed(200, run)


async def _next(pieces: AsyncGenerator[bytes]) -> bytes | None:
    return await anext(pieces, None)


async def _send(send: Send, piece: bytes) -> None:
    await send({"type": "http.response.body", "body": piece, "more_body": True})
