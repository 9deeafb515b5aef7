"""HTTP connections with bounds on the time and the memory that a client may use."""

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
LIVE: Final = b"/api/ws"
UPGRADE_HEADERS: Final = {b"upgrade", b"http2-settings"}


class Patience(Struct, frozen=True, kw_only=True):
    """How many seconds a connection waits for its client."""

    head: float = 10.0  # from the first byte of the request's head to its last
    body: float = PATIENCE  # for the rest of a body, and for the client to read some of the answer
    idle: int = 75  # for the next request
    pong: float = 20.0  # between two pings of a WebSocket, and for the answer to one


class Unread:
    """Aborts a connection whose client reads nothing of what was sent to it.

    It watches only while nothing more is sent: then what waits gets less if the client reads.
    """

    def __init__(self, transport: asyncio.Transport, seconds: float) -> None:
        self._transport = transport
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Bound the time in which the client reads nothing, until it has read all."""
        size = self._transport.get_write_buffer_size()
        if size and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._seconds, self._check, size)

    def end(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self, before: int) -> None:
        self._timer = None
        if self._transport.get_write_buffer_size() < before:
            self.watch()
        else:
            self._transport.abort()


class HttpConnection(HttpToolsProtocol):
    """uvicorn's connection, with bounds on time and memory."""

    def __init__(self, *args: Any, patience: Patience, **more: Any) -> None:
        super().__init__(*args, **more)
        self._patience = patience
        self._in_head = self._in_body = self._head_began = self._got_body = False
        self._unparsed_size = (
            0  # bytes of pieces that held only a part of one head, or of its trailers
        )
        self._parsed_size = 0  # bytes of its URL and headers
        self._wants_upgrade = False  # to another protocol, which is ignored
        self._refusal: Refusal | None = None
        self._ignores_input = False  # after a refusal
        self._timer: asyncio.TimerHandle | None = None
        self._unread: Unread
        self._running: RequestResponseCycle | None = None  # others may wait in `pipeline`

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        """Start the timer for the first request."""
        super().connection_made(transport)
        self._unread = Unread(transport, self._patience.body)
        self._set_timer(self._patience.idle, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timers, and notify the running request."""
        self._cancel_timer()
        self._unread.end()
        super().connection_lost(exc)
        self.pipeline.clear()
        running, self._running = self._running, None
        if running is not None:  # uvicorn notifies only the newest request
            running.disconnected = not running.response_complete
            running.message_event.set()

    def data_received(self, data: bytes) -> None:
        """Parse the data; refuse a head that is too long or too slow."""
        if self._ignores_input:
            return
        was_in_head, self._head_began = self._in_head, False
        was_in_body, self._got_body = self._in_body, False
        self._unset_keepalive_if_required()
        self._feed(data)
        if was_in_body and self._in_body and not self._got_body:
            self._unparsed_size += len(data)  # trailers, or an endless chunk size
            if self._unparsed_size > MOST_HEAD:
                self.transport.close()
        if self._in_head:
            if was_in_head and not self._head_began:
                self._unparsed_size += len(data)
            if self._unparsed_size > MOST_HEAD:
                self._refuse(_head_too_large())
            elif self._timer is None:
                self._set_timer(self._patience.head, self._head_too_slow)

    def _feed(self, data: bytes) -> None:
        parser: Any = self.parser
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self._cancel_timer()
                self.handle_websocket_upgrade()
                return
            self._feed(self._head_without_upgrade(parser) + data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("the request is not valid HTTP")

    def _should_upgrade(self) -> bool:
        """Whether this is a WebSocket of the only path that has one, behind any prefix."""
        return super()._should_upgrade() and self.url.partition(b"?")[0].endswith(LIVE)

    def _head_without_upgrade(self, stopped: Any) -> bytes:
        """Return the head again without its offer to upgrade, at which the parser has stopped.

        A server may ignore such an offer (RFC 9110, 7.8). Some clients offer HTTP/2 with their
        first request.
        """
        self._wants_upgrade = False
        self.parser = httptools.HttpRequestParser(self)
        version = stopped.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (stopped.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                words = [word.strip() for word in value.split(b",")]
                kept = [word for word in words if word.lower() not in UPGRADE_HEADERS]
                lines.append(b"connection: %b" % b", ".join(kept))
            elif name not in UPGRADE_HEADERS:
                lines.append(b"%b: %b" % (name, value))
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        """Start to measure a new head."""
        self._cancel_timer()
        self._in_head = self._head_began = True
        self._unparsed_size = self._parsed_size = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count the bytes of the URL."""
        self._parsed_size += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count the bytes of a header."""
        self._parsed_size += len(name) + len(value)
        if not self._in_head:  # a trailer, which must not pass for a header
            if self._parsed_size > MOST_HEAD:
                self.transport.close()
            return
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Refuse a head that is too long; otherwise start the request."""
        self._cancel_timer()
        self._in_head, self._in_body = False, True
        if self._parsed_size > MOST_HEAD:
            self._refusal = _head_too_large()
            raise self._refusal  # the parser stops and calls send_400_response
        parser: Any = self.parser
        self._wants_upgrade = parser.should_upgrade() and parser.get_method() != b"CONNECT"
        if not self._wants_upgrade or self._should_upgrade():
            super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that cannot be parsed, with the JSON of every error."""
        self._refuse(self._refusal or Refusal(400, "bad_request", msg))

    def _head_too_slow(self) -> None:
        self._timer = None
        seconds = self._patience.head
        message = f"the head of the request did not arrive within {seconds:g} s"
        self._refuse(Refusal(408, "too_slow", message))

    def _refuse(self, refused: Refusal) -> None:
        self._cancel_timer()
        self._in_head, self._ignores_input = False, True
        previous = self._previous()
        if previous is not None and not previous.response_complete:
            previous.keep_alive = False  # a refusal now would pass for the answer to this one
            return
        body = body_of(refused)
        head = b"content-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[refused.status] + head % (JSON, len(body)) + body)
        self.transport.close()

    def _previous(self) -> RequestResponseCycle | None:
        """Return the request before the refused one, which may be in its head or in its body."""
        if self._in_body and not self.pipeline:
            return None
        if self._in_body:
            self.pipeline.popleft()  # the refused request never starts
        return self.pipeline[0][0] if self.pipeline else self._running

    def on_body(self, body: bytes) -> None:
        """Note that a part of the body has arrived."""
        self._got_body = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the whole body has arrived."""
        self._cancel_timer()
        self._in_body = False
        if not self._wants_upgrade:  # otherwise the head is parsed again
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Bound the time for the rest of the body, and for reading the answer."""
        super().on_response_complete()
        if self._in_body:
            self._set_timer(self._patience.body, self.transport.close)
        self._unread.watch()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        """Bound the time in which the client reads nothing of an answer that goes on."""
        super().pause_writing()
        self._unread.watch()

    def resume_writing(self) -> None:
        """Note that the client has read most of what was sent."""
        super().resume_writing()
        self._unread.end()
        if self._running is None or self._running.response_complete:
            self._unread.watch()

    def _set_timer(self, seconds: float, then: Callable[[], Any]) -> None:
        self._cancel_timer()
        self._timer = self.loop.call_later(seconds, then)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _head_too_large() -> Refusal:
    message = f"the request line and headers are too large; the limit is {MOST_HEAD:,} bytes"
    return Refusal(431, "head_too_large", message)
