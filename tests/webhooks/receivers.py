"""Receivers on raw sockets, which answer what a script says; and attempts to send to them."""

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from towpath.model.addresses import AddressGuard, networks_of
from towpath.model.attempts import BodyKind, DeliveryRequest
from towpath.model.payload import Encoding
from towpath.webhooks.sender import WebhookSender

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
EVENT = UUID("0198c0de-0000-7000-8000-000000000001")
LOOPBACK = AddressGuard(networks_of("127.0.0.0/8"))
PATIENT = 60  # seconds: of an attempt that must not meet its deadline, however busy the machine is
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Arrived:
    """A request as it came over the wire."""

    raw: bytes  # the head
    body: bytes
    headers: dict[str, str]
    line: str


@dataclass
class Receiver:
    """What a receiver has seen so far."""

    port: int
    scheme: str
    connections: int = 0
    requests: list[Arrived] = field(default_factory=list)

    def url(self, host: str = "127.0.0.1", path: str = "/hook") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"


Serve = Callable[["Connection"], Awaitable[None]]


class Connection:
    """One connection of a receiver."""

    def __init__(self, receiver: Receiver, reader: asyncio.StreamReader, writer: Any) -> None:
        self._receiver = receiver
        self.reader = reader
        self.writer = writer
        self.number = receiver.connections

    async def request(self) -> Arrived:
        raw = await self.reader.readuntil(b"\r\n\r\n")
        line, *fields = raw.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        headers = {name.lower(): value for name, value in (each.split(": ", 1) for each in fields)}
        body = await self.reader.readexactly(int(headers["content-length"]))
        arrived = Arrived(raw, body, headers, line)
        self._receiver.requests.append(arrived)
        return arrived

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Close it by RST."""
        linger = struct.pack("ii", 1, 0)
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()

    async def hold(self) -> None:
        """Leave it open and silent until the other side closes it."""
        while await self.reader.read(65536):
            pass


@contextlib.asynccontextmanager
async def receiver(
    serve: Serve, tls: Any = None, *, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[Receiver]:
    """Listen on a port of the loopback; `serve` handles each connection."""
    tasks: set[asyncio.Task[None] | None] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        here.connections += 1
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            await serve(Connection(here, reader, writer))
        writer.transport.abort()

    server = await asyncio.start_server(connected, host, port, ssl=tls)
    here = Receiver(server.sockets[0].getsockname()[1], "https" if tls else "http")
    try:
        yield here
    finally:
        server.close()
        for task in filter(None, tasks):
            task.cancel()
        await asyncio.gather(*filter(None, tasks), return_exceptions=True)


def answering(*answers: bytes) -> Serve:
    """Reply each request of a connection by the next of these, then close it."""

    async def serve(connection: Connection) -> None:
        for answer in answers:
            await connection.request()
            await connection.send(answer)

    return serve


async def always_ok(connection: Connection) -> None:
    """Reply every request by 200."""
    while True:
        await connection.request()
        await connection.send(OK)


def sender(**options: Any) -> WebhookSender:
    """A sender that may call the loopback, over http."""
    return WebhookSender(**{"guard": LOOPBACK, "allow_http": True, **options})


def attempt(url: str, **changes: Any) -> DeliveryRequest:
    """An attempt with a payload that would look different if it were encoded again."""
    usual: dict[str, Any] = {
        "subscription": 7,
        "url": url,
        "secrets": [SECRET],
        "headers": {},
        "kind": BodyKind.ENVELOPE,
        "timeout": PATIENT,
        "event": EVENT,
        "type": "order.paid",
        "at": 1_700_000_000_250_000,
        "body": '{"b": 1.0, "a":1e3}',
        "encoding": Encoding.JSON,
        "now": int(time.time() * 10**6),
        "since": time.monotonic(),
    }
    values = {**usual, **changes}
    return DeliveryRequest(**{**values, "timeout": int(values["timeout"] * 10**6)})


async def arrived(**changes: Any) -> Arrived:
    """Send one attempt; return the request as it came over the wire."""
    async with receiver(always_ok) as here, sender() as client:
        result = await client.send(attempt(here.url(), **changes))
        assert (result.error_code, result.response_status) == (None, 200)
        return here.requests[0]


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    """Run an async function to its end."""
    return asyncio.run(main())  # type: ignore[arg-type]
