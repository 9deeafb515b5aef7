"""HTTP connections that give a client neither endless time nor endless room."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from towpath.server.endpoint import JSON
from towpath.server.errors import Refusal, body_of
from towpath.server.requests import PATIENCE

MOST_HEAD: Final = 64 * 2**10  # bytes of the request line and all headers


class Patience(Struct, frozen=True, kw_only=True):
    """For how many seconds a client is waited for."""

    head: float = 10.0  # from the first byte of a head to its last
    body: float = PATIENCE  # for the rest of a body, and for any of our answer to be read
    idle: int = 75  # for a next request


class Connection(HttpToolsProtocol):
    """uvicorn's connection, with bounds."""

    def __init__(self, *given: Any, patience: Patience, **more: Any) -> None:
        super().__init__(*given, **more)
        self._patience = patience
        self._in_head = self._in_body = self._began = False
        self._head_size = 0  # bytes of pieces that were nothing but the same head
        self._said = 0  # bytes of what was understood of it
        self._refusal: Refusal | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None

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

    # ------------------------------------------------------------ heads

    def data_received(self, data: bytes) -> None:
        """Read on; refuse a head that is too long or takes too long."""
        was_in_head, self._began = self._in_head, False
        super().data_received(data)
        if self._in_head:
            if was_in_head and not self._began:
                self._head_size += len(data)
            if self._head_size > MOST_HEAD:
                self._refuse(_head_too_large())
            elif self._timer is None:
                self._wait(self._patience.head, self._too_slow)

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
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Know the head to be whole."""
        self._stop_waiting()
        self._in_head, self._in_body = False, True
        if self._said > MOST_HEAD:
            self._refusal = _head_too_large()
            raise self._refusal  # which ends the parsing, and comes back below
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
        self._in_head = False
        body = body_of(refused)
        head = b"content-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[refused.status] + head % (JSON, len(body)) + body)
        self.transport.close()

    # ------------------------------------------------------------ bodies and answers

    def on_message_complete(self) -> None:
        """Know the body to be whole."""
        self._stop_waiting()
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Let a client who was answered early end its body, and see that it reads the answer."""
        super().on_response_complete()
        if self._in_body:
            self._wait(self._patience.body, self.transport.close)
        if self._stall is None:
            self._watch()

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
