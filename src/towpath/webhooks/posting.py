"""One POST to a receiver that may be hostile: aiohttp, behind a guard.

The guard is in the resolver, which refuses a name of which one address may not be called, and in
the socket factory, which alone sees an address that stands in a URL. Each keyword below closes a
hole or keeps one receiver from another; tests/webhooks/test_switches.py turns them one by one.
"""

import asyncio
import functools
import io
import logging
import socket
import ssl
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import LineTooLong
from yarl import URL

from towpath.model.addresses import Address, AddressGuard
from towpath.model.attempts import AttemptError
from towpath.model.targets import TargetUrl
from towpath.webhooks.resolving import HostNames, Unanswered

log: Final = logging.getLogger("towpath")

MOST_HEAD: Final = 64 * 1024  # bytes, with all heads of 1xx before it
MOST_INTERIM: Final = 100  # answers 1xx before it: each costs time in which nothing else is sent
MOST_LINE: Final = 8_190
MOST_FIELDS: Final = 100
MOST_EXCERPT: Final = 8 * 1024
MOST_OPEN: Final = 500  # connections that may wait for their next request
KEPT_FOR: Final = 60.0  # seconds; a new connection with TLS costs twenty times a kept one
TRIED: Final = 2  # addresses of one name


@dataclass(slots=True)
class Reply:
    """What has arrived so far."""

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    error: AttemptError | None = None
    line: "ReceiverLine | None" = None  # the connection of the last try


_answer: ContextVar[Reply] = ContextVar("_answer")


class Poster:
    """Sends requests from one event loop."""

    def __init__(
        self, guard: AddressGuard, names: HostNames, tls: ssl.SSLContext | None = None
    ) -> None:
        tls = tls or _trusting_the_system()
        self._kept = _session(guard, names, tls)
        self._new = _session(guard, names, tls, force_close=True)

    async def post(
        self, target: TargetUrl, headers: Mapping[str, str], body: bytes, timeout: float
    ) -> Reply:
        """Send one request; tell what came back until the deadline, or why nothing did."""
        answer = Reply()
        _answer.set(answer)
        try:
            async with asyncio.timeout(timeout):
                try:
                    await _exchange(self._kept, target, headers, body, answer)
                except aiohttp.ClientConnectionError:
                    if answer.line is None or not answer.line.died_waiting:
                        raise
                    await _exchange(self._new, target, headers, body, answer)
        except TimeoutError:
            answer.error = AttemptError.TIMEOUT
        except Exception as error:  # noqa: BLE001 - whatever the receiver has provoked
            answer.error = _code_of(error)
        return answer

    async def close(self) -> None:
        """Close all connections."""
        await self._kept.close()
        await self._new.close()


async def _exchange(
    session: aiohttp.ClientSession,
    target: TargetUrl,
    headers: Mapping[str, str],
    body: bytes,
    answer: Reply,
) -> None:
    async with session.post(
        URL(target.url, encoded=True),  # else yarl would write the path in its own way
        headers=headers,
        data=io.BytesIO(body),
        allow_redirects=False,
    ) as response:
        answer.status, answer.headers = response.status, response.headers
        if response.status < 200:  # noqa: PLR2004 - a switch of protocols
            raise Unanswered(AttemptError.BAD_ANSWER)
        while len(answer.body) <= MOST_EXCERPT:
            piece = await response.content.read(MOST_EXCERPT + 1 - len(answer.body))
            if not piece:
                return
            answer.body += piece
        # What is not read ends the connection.


def _session(
    guard: AddressGuard, names: HostNames, tls: ssl.SSLContext, *, force_close: bool = False
) -> aiohttp.ClientSession:
    connector = ReceiverLines(
        resolver=Judging(guard, names),
        socket_factory=functools.partial(_judged_socket, guard),
        use_dns_cache=False,  # `HostNames` remembers, and every answer is judged again
        limit=0,  # of connections: a hundred slow receivers would stop all others
        limit_per_host=0,
        happy_eyeballs_delay=None,
        ssl=tls,
        **({"force_close": True} if force_close else {"keepalive_timeout": KEPT_FOR}),
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,  # no proxy, no .netrc
        auto_decompress=False,
        raise_for_status=False,
        read_bufsize=MOST_EXCERPT,
        max_line_size=MOST_LINE,
        max_field_size=MOST_LINE,
        max_headers=MOST_FIELDS,
        skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
        timeout=aiohttp.ClientTimeout(total=None),  # `post` has the deadline, from DNS on
    )


@functools.cache  # to read the system's certificates takes long
def _trusting_the_system() -> ssl.SSLContext:
    return ssl.create_default_context()


class Judging(AbstractResolver):
    """Resolves a name; refuses it if one of its addresses may not be called."""

    def __init__(self, guard: AddressGuard, names: HostNames) -> None:
        self._guard = guard
        self._names = names

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002 - the interface's
    ) -> list[ResolveResult]:
        """Return the addresses to try."""
        addresses = await self._names.resolve(host)
        if not all(map(self._guard.admits, addresses)):
            raise Unanswered(AttemptError.BLOCKED_TARGET)
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if address.version == 4 else socket.AF_INET6,  # noqa: PLR2004
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in _tried(addresses)
        ]

    async def close(self) -> None:
        """Do nothing: the names belong to the caller."""


def _tried(addresses: tuple[Address, ...]) -> tuple[Address, ...]:
    """Return the first address, and one of the other family if there is one."""
    first, *rest = addresses
    others = sorted(rest, key=lambda address: address.version == first.version)
    return (first, *others)[:TRIED]


def _judged_socket(guard: AddressGuard, info: Any) -> socket.socket:
    """Make the socket for an address, if it may be called: the last gate, seen by every address."""
    family, kind, protocol, _, where = info
    if not guard.admits(ip_address(where[0])):
        raise Unanswered(AttemptError.BLOCKED_TARGET)
    return socket.socket(family, kind, protocol)


class ReceiverLine(ResponseHandler):
    """A connection that knows what has come over it since its last request."""

    def __init__(self, lines: "ReceiverLines", loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._lines = lines
        self._requests = 0
        self._head = 0  # bytes since the last request, to the end of the head
        self._interim = 0  # answers 1xx among them
        self._has_answer = False
        self._body: aiohttp.StreamReader | None = None
        self.is_idle = False

    @property
    def died_waiting(self) -> bool:
        """Whether it was used before, and then said nothing to its last request."""
        return self._requests > 1 and self._head == 0

    def begin(self) -> None:
        """Expect the answer to another request."""
        self._requests += 1
        self._head = self._interim = 0
        self._has_answer = self.is_idle = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it."""
        self._lines.open.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count it no longer."""
        self._lines.open.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what arrived; end the connection if nothing was asked, or the head does not end.

        The head is read line by line: the parser drops a head if what follows it at once is wrong,
        so the same answer would end in two ways, as the network cuts it.
        """
        if self.is_idle and data:  # without data it is the parser's own reminder
            self.abort()
            return
        start = 0
        while start < len(data) and not self._has_answer and self.exception() is None:
            end = data.find(b"\n", start) + 1 or len(data)
            self._head += end - start
            if self._head > MOST_HEAD:
                self._refuse_head()
                return
            super().data_received(data[start:end])
            start = end
        if self.exception() is None and (start < len(data) or not data):
            super().data_received(data[start:])
        if self.exception() is not None and self._body is not None and not self._body.is_eof():
            # The parser forgets the body that it cannot read on, and its reader would wait.
            self._body.set_exception(aiohttp.ClientPayloadError("the body cannot be read"))

    def _refuse_head(self) -> None:
        self.set_exception(Unanswered(AttemptError.ANSWER_TOO_LARGE))
        if self.transport is not None:
            self.transport.abort()

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Take a head; those of 1xx are followed by another one."""
        head, self._body = data
        self._has_answer = head.code >= 200 or head.code == 101  # noqa: PLR2004 - it switches protocols
        super().feed_data(data, size)
        self._interim += not self._has_answer
        if self._interim > MOST_INTERIM:
            self._refuse_head()

    def close(self) -> None:
        """Close it at once: what is not sent yet is not wanted, and may never be read."""
        self.abort()


class ReceiverLines(aiohttp.TCPConnector):
    """The connections: which ones are kept, and which one a request uses."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType] - a tuple of aiohttp's
        self.open: set[ReceiverLine] = set()
        self._factory: Any = functools.partial(ReceiverLine, self, self._loop)

    async def connect(self, *request: Any, **options: Any) -> Any:
        """Note which connection the current request uses."""
        connection: Any = await super().connect(*request, **options)
        line: ReceiverLine = connection.protocol
        line.begin()
        _answer.get().line = line
        return connection

    def _release(self, key: Any, protocol: Any, *, should_close: bool = False) -> None:
        """Keep a connection for the next request, if there are not too many."""
        protocol.is_idle = True
        if should_close or len(self.open) > MOST_OPEN:
            self.open.discard(protocol)  # now, so that those that end with it are not closed for it
            should_close = True
        super()._release(key, protocol, should_close=should_close)


_CODES: Final = (  # the first that fits
    (LineTooLong, AttemptError.ANSWER_TOO_LARGE),
    (aiohttp.ClientConnectorSSLError, AttemptError.TLS_FAILED),
    (aiohttp.ClientConnectorCertificateError, AttemptError.TLS_FAILED),
    (aiohttp.ClientConnectorError, AttemptError.CONNECT_FAILED),
    (aiohttp.ClientConnectionError, AttemptError.RESET),
    (aiohttp.ClientError, AttemptError.BAD_ANSWER),
)


def _code_of(error: Exception) -> AttemptError:
    """Say in one word why there is no answer."""
    causes: list[BaseException] = [error]
    while cause := causes[-1].__cause__:
        causes.append(cause)
    for cause in causes:
        if isinstance(cause, Unanswered):
            return cause.code
    for kind, code in _CODES:
        if any(isinstance(cause, kind) for cause in causes):
            return code
    log.warning("the answer to a webhook was not understood", exc_info=error)
    return AttemptError.BAD_ANSWER
