"""A consumer over a network: its client says what is done, and gets only so much before that.

Events that the client does not want are done as soon as all before them is.
"""

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final

from towpath.app.consuming import EVERY, OUTAGE, Consuming
from towpath.model.consumers import Attachment, Owner
from towpath.model.event import EventPage

if TYPE_CHECKING:
    from towpath import App

MOST_EVENTS: Final = 1_000  # that are sent and not acked
MOST_BYTES: Final = 2**20  # of their payloads


class RemoteConsuming(Consuming):
    """A consumer that is attached for a client, and what it has not acked yet."""

    def __init__(self, app: "App", channel: str, name: str, attachment: Attachment) -> None:
        super().__init__(app, channel, name, attachment)
        self._sent: deque[tuple[str, int]] = deque()  # cursors and sizes
        self._bytes = 0
        self._has_room = asyncio.Event()

    @property
    def generation(self) -> int:
        """The fencing number of the attachment."""
        return self._attached.generation

    async def akeep(self, cursor: str | None = None) -> None:
        """Check now and then that no other reader has attached; ack what was not to be sent."""
        await super().akeep(None if self._sent else cursor)

    async def upto_by_client(self, cursor: str, generation: int | None, owner: Owner | None) -> str:
        """Ack for the client; return up to where the consumer is done now."""
        at = self._attached
        generation = at.generation if generation is None else generation
        place = await self._app.events.aack(at.channel, at.name, cursor, generation, owner=owner)
        while self._sent and self._sent[0][0] <= place:
            self._bytes -= self._sent.popleft()[1]
        self._has_room.set()
        return place

    async def room_for(self, page: EventPage) -> None:
        """Wait until the client has acked enough to be sent a page."""
        size = sum(len(event.body) for event in page.events)
        while self._sent and (
            len(self._sent) + len(page.events) > MOST_EVENTS or self._bytes + size > MOST_BYTES
        ):
            self._has_room.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_room.wait(), EVERY)
            with contextlib.suppress(*OUTAGE):
                await self.akeep()
        self._sent.extend((event.cursor or "", len(event.body)) for event in page.events)
        self._bytes += size
