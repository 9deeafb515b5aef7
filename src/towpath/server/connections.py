"""HTTP connections that give a client neither endless time nor endless room for its request."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from towpath.server.endpoint import JSON
from towpath.server.errors import Refusal, body_of

MOST_HEAD: Final = 64 * 2**10  # bytes of the request line and all headers
HEAD_PATIENCE: Final = 10.0  # seconds from the first byte of a head to its last
IDLE: Final = 75  # seconds that a connection may stay open without a request


class Connection(HttpToolsProtocol):
    """uvicorn's connection, with bounds for the head of a request."""

    _in_head = False
    _head_size = 0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Begin to wait for a first request."""
        super().connection_made(transport)
        self._wait(IDLE, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; refuse a head that is too long or takes too long."""
        super().data_received(data)
        if self._in_head:
            self._head_size += len(data)
            if self._head_size > MOST_HEAD:
                self._refuse(Refusal(431, "head_too_large", f"headers have {MOST_HEAD:,} bytes"))
            elif self._timer is None:
                self._wait(HEAD_PATIENCE, self._too_slow)

    def on_message_begin(self) -> None:
        """Count from the first byte of a head."""
        self._stop_waiting()
        self._in_head, self._head_size = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Know the head to be whole."""
        self._stop_waiting()
        self._in_head = False
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, in the one shape of errors."""
        self._refuse(Refusal(400, "bad_request", msg))

    def _too_slow(self) -> None:
        self._timer = None
        self._refuse(Refusal(408, "too_slow", f"a head takes at most {HEAD_PATIENCE:.0f} s"))

    def _refuse(self, refused: Refusal) -> None:
        self._stop_waiting()
        self._in_head = False
        body = body_of(refused)
        head = b"content-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[refused.status] + head % (JSON, len(body)) + body)
        self.transport.close()

    def _wait(self, seconds: float, then: Callable[[], Any]) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(seconds, then)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
