"""The connections of WebSockets: uvicorn's, with a bound for clients that do not read."""

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from towpath.server.connections import Patience, Unread


class LiveConnection(WebSocketsSansIOProtocol):
    """uvicorn's connection; a client that reads nothing is cut off, a slow one is not."""

    def __init__(self, *args: Any, patience: Patience, **more: Any) -> None:
        super().__init__(*args, **more)
        self._patience = patience
        self._unread: Unread

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with nothing unread."""
        super().connection_made(transport)
        self._unread = Unread(self.transport, self._patience.body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timers, and notify the session."""
        self._unread.end()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Bound the time in which the client reads nothing."""
        super().pause_writing()
        self._unread.watch()

    def resume_writing(self) -> None:
        """Note that the client has read most of what was sent."""
        super().resume_writing()
        self._unread.end()

    def keepalive_timeout(self) -> None:
        """Cut off a client that answers no ping, unless the ping waits behind what is unread."""
        if self.writable.is_set():
            super().keepalive_timeout()
            self._unread.watch()  # also the last frame may stay unread
        elif self.ping_timeout is not None:
            self.pong_timer = self.loop.call_later(self.ping_timeout, self.keepalive_timeout)

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """Bound the time to read the last frames of the session."""
        super().on_task_complete(task)
        self._unread.watch()

    def shutdown(self) -> None:
        """End the connection; the server waits for no client that still has not read."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().shutdown()
