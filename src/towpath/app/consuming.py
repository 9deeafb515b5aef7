"""Consuming: how a subscription acks for its durable consumer.

An event is done when the next one is asked for. What is done is acked when a page is finished,
which is before the subscription waits for more; within a page once a second; and when the
subscription ends. The event in hand at that time is not done, and comes again.
"""

import logging
import time
from typing import TYPE_CHECKING, Final

from towpath.errors import DatabaseBusy, DatabaseUnavailable, TowpathError
from towpath.model.consumers import Attachment
from towpath.operation import answered
from towpath.store import consumers
from towpath.store.consumers import Attached

if TYPE_CHECKING:
    from towpath.app.app import App

log: Final = logging.getLogger("towpath")

OUTAGE: Final = (DatabaseUnavailable, DatabaseBusy)  # after these a subscription goes on
EVERY: Final = 1.0  # seconds between two acks within a page, and between two checks
FRESH: Final = 0.1  # of `consumer_ttl`: a sign of life that is younger will do


class Consuming:
    """A consumer that is attached, and up to where it is done."""

    def __init__(self, app: "App", channel: str, name: str, attachment: Attachment) -> None:
        self._app = app
        self._attached = Attached(channel, name, attachment.generation)
        self._done = self._acked = attachment.cursor
        self._told_at = time.monotonic()

    async def aupto(self, cursor: str) -> None:
        """Note that everything up to a cursor is done; ack it if the last ack is a while ago."""
        self._done = cursor
        if time.monotonic() - self._told_at < EVERY:
            return
        try:
            await self.akeep()
        except OUTAGE as error:
            log.debug("consumer %r could not ack yet: %s", self._attached.name, error)
            self._told_at = time.monotonic()

    async def akeep(self, cursor: str | None = None) -> None:
        """Ack what is done; if there is nothing, check now and then that no other has attached."""
        self._done = cursor or self._done
        if self._done != self._acked:
            await self._aack()
        elif time.monotonic() - self._told_at >= EVERY:
            await self._acheck()

    async def aleave(self) -> None:
        """Ack what is done, if that is possible."""
        try:
            if self._done != self._acked:
                await self._aack()
        except TowpathError as error:
            log.info("consumer %r could not ack at its end: %s", self._attached.name, error)

    async def _aack(self) -> None:
        done, at = self._done, self._attached
        await self._app.events.aack(at.channel, at.name, done, at.generation)
        self._acked, self._told_at = done, time.monotonic()

    async def _acheck(self) -> None:
        [answer] = await self._app.arun(consumers.check([self._attached]))
        if answered(answer) > FRESH * self._app.settings.consumer_ttl * 1e6:
            await self._app.arun(consumers.refresh(self._attached))
        self._told_at = time.monotonic()

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def upto(self, cursor: str) -> None:
        """Note that everything up to a cursor is done; ack it if the last ack is a while ago."""
        self._done = cursor
        if time.monotonic() - self._told_at < EVERY:
            return
        try:
            self.keep()
        except OUTAGE as error:
            log.debug("consumer %r could not ack yet: %s", self._attached.name, error)
            self._told_at = time.monotonic()

    def keep(self, cursor: str | None = None) -> None:
        """Ack what is done; if there is nothing, check now and then that no other has attached."""
        self._done = cursor or self._done
        if self._done != self._acked:
            self._ack()
        elif time.monotonic() - self._told_at >= EVERY:
            self._check()

    def leave(self) -> None:
        """Ack what is done, if that is possible."""
        try:
            if self._done != self._acked:
                self._ack()
        except TowpathError as error:
            log.info("consumer %r could not ack at its end: %s", self._attached.name, error)

    def _ack(self) -> None:
        done, at = (self._done, self._attached)
        self._app.events.ack(at.channel, at.name, done, at.generation)
        self._acked, self._told_at = (done, time.monotonic())

    def _check(self) -> None:
        [answer] = self._app.run(consumers.check([self._attached]))
        if answered(answer) > FRESH * self._app.settings.consumer_ttl * 1000000.0:
            self._app.run(consumers.refresh(self._attached))
        self._told_at = time.monotonic()
