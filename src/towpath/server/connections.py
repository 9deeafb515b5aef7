"""HTTP connections with bounds: a client gets neither endless time nor endless memory."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import httptools
from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from towpath.server.bodies import PATIENCE
from towpath.server.endpoint import JSON
from towpath.server.errors import Refusal, body_of

MOST_HEAD: Final = 64 * 2**10  # bytes of the request line and all headers
OFFERS: Final = {b"upgrade", b"http2-settings"}  # headers of other protocols


class Patience(Struct, frozen=True, kw_only=True):
    """For how many seconds a client is waited for."""

    head: float = 10.0  # from the first byte of a head to its last
    body: float = PATIENCE  # for the rest of a body, and for any of our answer to be read
    idle: int = 75  # for a next request


class HttpConnection(HttpToolsProtocol):
    """uvicorn's connection, with bounds."""

    def __init__(self, *given: Any, patience: Patience, **more: Any) -> None:
        super().__init__(*given, **more)
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
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count what is said in one piece, too."""
        self._said += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count what is said in one piece, too."""
        self._said += len(name) + len(value)
        if not self._in_head:  # a trailer: nobody is to take it for a header
            if self._said > MOST_HEAD:
                self.transport.close()
            return
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Know the head to be whole."""
        self._stop_waiting()
        self._in_head, self._in_body = False, True
        if self._said > MOST_HEAD:
            self._refusal = _head_too_large()
            raise self._refusal  # which ends the parsing, and comes back below
        parser: Any = self.parser
        self._offered = parser.should_upgrade() and parser.get_method() != b"CONNECT"
        if not self._offered:
            super().on_headers_complete()

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


def _head_too_large() -> Refusal:
    return Refusal(431, "head_too_large", f"a head has at most {MOST_HEAD:,} bytes")
