"""HTTP connections that give a client neither endless time nor endless room.

Where nothing stands between them and our API, they ask it themselves: to say it all in the words of
ASGI, and to check those, takes as long as half of an answer.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote

import httptools
from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from towpath.server.api import Api
from towpath.server.endpoint import ALWAYS, JSON, Headers, Written
from towpath.server.errors import Refusal, body_of
from towpath.server.requests import PATIENCE

MOST_HEAD: Final = 64 * 2**10  # bytes of the request line and all headers
OFFERS: Final = {b"upgrade", b"http2-settings"}  # headers of other protocols
EMPTY: Final = {204, 304}  # statuses of answers that have no body, not even an empty one


class Patience(Struct, frozen=True, kw_only=True):
    """For how many seconds a client is waited for."""

    head: float = 10.0  # from the first byte of a head to its last
    body: float = PATIENCE  # for the rest of a body, and for any of our answer to be read
    idle: int = 75  # for a next request


class Connection(HttpToolsProtocol):
    """uvicorn's connection, with bounds."""

    def __init__(self, *given: Any, patience: Patience, api: Api | None, **more: Any) -> None:
        super().__init__(*given, **more)
        self._api: Any = api  # if nothing stands between
        self._patience = patience
        self._in_head = self._in_body = self._began = self._told = False
        self._head_size = 0  # bytes of pieces that were nothing but the same head, or its trailers
        self._said = 0  # bytes of what was understood of it
        self._offered = False  # another protocol, which we do not speak
        self._refusal: Refusal | None = None
        self._deaf = False  # to what comes behind something that was refused
        self._timer: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None  # others may be in line behind it

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Begin to wait for a first request."""
        super().connection_made(transport)
        self._wait(self._patience.idle, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_waiting()
        if self._stall is not None:
            self._stall.cancel()
        super().connection_lost(exc)
        self.pipeline.clear()
        running, self._running = self._running, None
        if running is not None:  # uvicorn tells only the last in line
            running.disconnected = not running.response_complete
            running.message_event.set()

    # ------------------------------------------------------------ heads

    def data_received(self, data: bytes) -> None:
        """Read on; refuse a head that is too long or takes too long."""
        if self._deaf:
            return
        was_in_head, self._began = self._in_head, False
        was_in_body, self._told = self._in_body, False
        self._unset_keepalive_if_required()
        self._feed(data)
        if was_in_body and self._in_body and not self._told:
            self._head_size += len(data)  # trailers, or the sizes of chunks without an end
            if self._head_size > MOST_HEAD:
                self.transport.close()
        if self._in_head:
            if was_in_head and not self._began:
                self._head_size += len(data)
            if self._head_size > MOST_HEAD:
                self._refuse(_head_too_large())
            elif self._timer is None:
                self._wait(self._patience.head, self._too_slow)

    def _feed(self, data: bytes) -> None:
        parser: Any = self.parser
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as offered:
            self._feed(self._plain_head(parser) + data[offered.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _plain_head(self, offering: Any) -> bytes:
        """Return a head that offered another protocol without that: its parser stops there.

        Whoever does not take such an offer answers as if there were none (RFC 9110, 7.8), and some
        clients offer HTTP/2 with their first request, whatever it is.
        """
        self._offered = False
        self.parser = httptools.HttpRequestParser(self)
        version = offering.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (offering.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                words = [word.strip() for word in value.split(b",")]
                kept = [word for word in words if word.lower() not in OFFERS]
                lines.append(b"connection: %b" % b", ".join(kept))
            elif name not in OFFERS:
                lines.append(b"%b: %b" % (name, value))
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        """Count from the first byte of a head."""
        self._stop_waiting()
        self._in_head = self._began = True
        self._head_size = self._said = 0
        if self._api is None:
            super().on_message_begin()
        else:
            self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_url(self, url: bytes) -> None:
        """Count what is said in one piece, too."""
        self._said += len(url)
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count what is said in one piece, too."""
        self._said += len(name) + len(value)
        if not self._in_head:  # a trailer: nobody is to take it for a header
            if self._said > MOST_HEAD:
                self.transport.close()
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Know the head to be whole."""
        self._stop_waiting()
        self._in_head, self._in_body = False, True
        if self._said > MOST_HEAD:
            self._refusal = _head_too_large()
            raise self._refusal  # which ends the parsing, and comes back below
        parser: Any = self.parser
        self._offered = parser.should_upgrade() and parser.get_method() != b"CONNECT"
        if self._offered:
            return
        if self._api is None:
            super().on_headers_complete()
        else:
            self._ask(parser)

    def _ask(self, parser: Any) -> None:
        """Have our API answer, when those before it have been."""
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope: Any = {
            "method": parser.get_method().decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "query_string": url.query or b"",
            "headers": self.headers,
            "client": self.client,
            "scheme": self.scheme,
        }
        before: Any = self.cycle
        keep_alive = parser.get_http_version() != "1.0" and parser.should_keep_alive()
        self.cycle = Exchange(self, scope, keep_alive=keep_alive)
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self._api)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self._api))

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, in the one shape of errors."""
        self._refuse(self._refusal or Refusal(400, "bad_request", msg))

    def _too_slow(self) -> None:
        self._timer = None
        seconds = self._patience.head
        self._refuse(Refusal(408, "too_slow", f"a head takes at most {seconds:g} s"))

    def _refuse(self, refused: Refusal) -> None:
        self._stop_waiting()
        self._in_head, self._deaf = False, True
        before = self._before()
        if before is not None and not before.response_complete:
            before.keep_alive = False  # or this would be taken for the answer to it
            return
        body = body_of(refused)
        head = b"content-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[refused.status] + head % (JSON, len(body)) + body)
        self.transport.close()

    def _before(self) -> RequestResponseCycle | None:
        """Return the last request before what is refused; that may be a request by its body."""
        if self._in_body and not self.pipeline:
            return None
        if self._in_body:
            self.pipeline.popleft()  # it never begins
        return self.pipeline[0][0] if self.pipeline else self._running

    # ------------------------------------------------------------ bodies and answers

    def on_body(self, body: bytes) -> None:
        """Know that some of it came."""
        self._told = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Know the body to be whole."""
        self._stop_waiting()
        self._in_body = False
        if not self._offered:  # else it comes again
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Let a client who was answered early end its body, and see that it reads the answer."""
        super().on_response_complete()
        if self._in_body:
            self._wait(self._patience.body, self.transport.close)
        if self._stall is None:
            self._watch()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _watch(self) -> None:
        """Cut a client off who reads nothing of what waits for it."""
        unread = self.transport.get_write_buffer_size()
        if unread:
            self._stall = self.loop.call_later(self._patience.body, self._look, unread)

    def _look(self, unread: int) -> None:
        self._stall = None
        if self.transport.get_write_buffer_size() < unread:
            self._watch()
        else:
            self.transport.abort()

    def _wait(self, seconds: float, then: Callable[[], Any]) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(seconds, then)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Exchange(RequestResponseCycle):
    """A request that our API answers, and the answer."""

    disconnected = response_started = response_complete = False
    more_body = True

    def __init__(self, connection: Connection, scope: Any, *, keep_alive: bool) -> None:  # pyright: ignore[reportMissingSuperCall] - it has more to keep than we use
        self.scope = scope
        self.transport = connection.transport
        self.flow = connection.flow
        self.default_headers = connection.server_state.default_headers
        self.on_response = connection.on_response_complete
        self.waiting_for_100_continue = connection.expect_100_continue
        self.keep_alive = keep_alive
        self.message_event = asyncio.Event()
        self.body = bytearray()

    async def run_asgi(self, app: Any) -> None:
        """Ask, and write the answer."""
        try:
            written: Written = await app.answer(self.scope, self.receive)
            if self.flow.write_paused and not self.disconnected:
                await self.flow.drain()
            if not self.disconnected:
                self._write(*written)
        except BaseException:
            self.transport.close()
            raise
        finally:
            self.on_response = _nothing  # or nothing but the collector would end the two of them

    def _write(self, status: int, media: bytes, body: bytes, headers: Headers) -> None:
        lines = [STATUS_LINE[status]]
        for name, value in (*self.default_headers, *ALWAYS, *headers):
            if name == b"connection":
                self.keep_alive = False
            else:
                lines += (name, b": ", value, b"\r\n")
        if media:
            lines += (b"content-type: ", media, b"\r\n")
        if status not in EMPTY:
            lines.append(b"content-length: %d\r\n" % len(body))
        lines.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        if self.scope["method"] != "HEAD":
            lines.append(body)
        self.transport.write(b"".join(lines))
        self.response_started = self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


def _nothing() -> None:
    """Do nothing."""


def _head_too_large() -> Refusal:
    return Refusal(431, "head_too_large", f"a head has at most {MOST_HEAD:,} bytes")
