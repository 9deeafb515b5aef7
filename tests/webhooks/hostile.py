"""Receivers that mean harm, each in its own way, and how an attempt to reach them ends."""

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Mapping
from functools import cache

from tests.webhooks.certificates import server_tls
from tests.webhooks.receivers import Connection, Receiver, receiver
from tests.webhooks.scripts import HINT, head, length


async def drip(connection: Connection) -> None:
    """Send a byte now and then."""
    await connection.request()
    await connection.send(length(10**6, body=b""))
    while True:
        await connection.send(b"x")
        await asyncio.sleep(0.1)


async def endless(connection: Connection) -> None:
    """Send a body that does not end."""
    await connection.request()
    await connection.send(length(10**12, body=b""))
    while True:
        await connection.send(b"x" * 65536)


@cache
def bomb() -> bytes:
    """An answer that grows to 100 MiB if it is inflated."""
    body = gzip.compress(bytes(100 * 2**20), 1)
    return length(len(body), "Content-Encoding: gzip", body=body)


async def inflating(connection: Connection) -> None:
    """Send a bomb."""
    await connection.request()
    await connection.send(bomb())


async def flood(connection: Connection) -> None:
    """Send interim answers without end."""
    await connection.request()
    while True:
        await connection.send(HINT * 1000)


async def unread(connection: Connection) -> None:
    """Read nothing."""
    await asyncio.Event().wait()


async def resetting(connection: Connection) -> None:
    """Close the connection by RST."""
    await connection.request()
    connection.reset()


async def redirecting(connection: Connection) -> None:
    """Point to an address inside."""
    await connection.request()
    await connection.send(head("307 Moved", "Location: http://127.0.0.1/", "Content-Length: 0"))


async def silent(connection: Connection) -> None:
    """Take the request and say nothing."""
    await connection.request()
    await connection.hold()


async def early(connection: Connection) -> None:
    """Answer before the body has come, and close."""
    await connection.reader.readuntil(b"\r\n\r\n")
    await connection.send(head("413 Too Large", "Content-Length: 0", "Connection: close", body=b""))
    connection.writer.write_eof()
    await connection.hold()


async def unseen(connection: Connection) -> None:
    """Wait for a request that must never come."""
    await connection.request()


SERVED = {
    each.__name__: each
    for each in (
        drip, endless, inflating, flood, unread, resetting, redirecting, silent, early, unseen,
    )
}  # fmt: skip
HOSTILE: Mapping[str, str | None] = {  # the error of an attempt; None: it is delivered
    "drip": "timeout",
    "endless": None,
    "inflating": None,
    "flood": "answer_too_large",
    "unread": "timeout",
    "resetting": "reset",
    "redirecting": "http_307",
    "silent": "timeout",
    "early": "http_413",
    "unseen": "tls_failed",  # its certificate is of no authority that is trusted
}


@contextlib.asynccontextmanager
async def hostile_receivers() -> AsyncIterator[dict[str, Receiver]]:
    """Listen as each of them."""
    async with contextlib.AsyncExitStack() as stack:
        yield {
            kind: await stack.enter_async_context(
                receiver(SERVED[kind], server_tls("127.0.0.1") if error == "tls_failed" else None)
            )
            for kind, error in HOSTILE.items()
        }
