"""The access rules in memory, so that a request needs no look at the database."""

import asyncio
from typing import TYPE_CHECKING

from towpath.database.forks import begin_anew_after_fork
from towpath.database.wakeups import Wakeups
from towpath.model.access import Access
from towpath.store import access

if TYPE_CHECKING:
    from towpath.app.app import App


class AccessCache:
    """Keeps the rules until a wakeup: a change by any process, or the safety net."""

    def __init__(self, app: "App", wakeups: Wakeups) -> None:
        self._app = app
        self._wakeups = wakeups
        self._start()
        begin_anew_after_fork(self)

    def _start(self) -> None:
        self._is_subscribed = False
        self._known: Access | None = None
        self._last_ring: object = None  # a new object for each: a count would need a lock
        self._known_since: object = None  # the last ring before the rules were read
        self._reading: tuple[object, asyncio.Task[Access]] | None = None  # since which ring

    def start_again(self) -> None:
        """Start again in a forked child, whose wakeups have no subscribers."""
        self._start()

    @property
    def known(self) -> Access | None:
        """The rules, unless they may have changed since they were read."""
        return self._known if self._known_since is self._last_ring else None

    async def get(self) -> Access:
        """Return the rules; after a ring, as they are in the database."""
        known = self.known
        if known is not None:
            return known
        ring = self._last_ring
        if self._reading and self._reading[0] is ring and self._is_here(self._reading[1]):
            task = self._reading[1]
        else:
            task = asyncio.create_task(self._read(ring))
            self._reading = ring, task
        return await asyncio.shield(task)

    @staticmethod
    def _is_here(task: "asyncio.Task[Access]") -> bool:
        return not task.done() and task.get_loop() is asyncio.get_running_loop()

    async def _read(self, ring: object) -> Access:
        """Read the rules for all requests that came since a ring."""
        if not self._is_subscribed:
            self._wakeups.subscribe(access.WAKEUP, self._ring)
            self._is_subscribed = True
        version = await self._app.arun(access.version())
        known = self._known
        if known is None or known.version != version:
            known = self._known = await self._app.arun(access.get())
        self._known_since = ring
        return known

    def _ring(self) -> None:
        self._last_ring = object()
