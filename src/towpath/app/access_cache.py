"""The rules of access as they are now, without a look at the database for every request."""

import asyncio
from typing import TYPE_CHECKING

from towpath.app.waiters import Waiter, Waiters
from towpath.database.forks import begin_anew_after_fork
from towpath.model.access import Access
from towpath.store import access

if TYPE_CHECKING:
    from towpath.app.app import App


class AccessCache:
    """Remembers the rules until something rings: a change by any process, or the safety net."""

    def __init__(self, app: "App", room: Waiters) -> None:
        self._app = app
        self._room = room
        self._start()
        begin_anew_after_fork(self)

    def _start(self) -> None:
        self._waiter: Waiter | None = None
        self._known: Access | None = None
        self._rings = 1
        self._heard = 0
        self._reading: tuple[int, asyncio.Task[Access]] | None = None  # since which ring

    def start_again(self) -> None:
        """Begin anew in a forked child, whose waiting room is empty."""
        self._start()

    @property
    def known(self) -> Access | None:
        """The rules, unless something has rung since they were read."""
        return self._known if self._heard == self._rings else None

    async def get(self) -> Access:
        """Return the rules; after a ring, as they are in the database."""
        rings = self._rings
        if self._heard == rings and self._known is not None:
            return self._known
        if self._reading and self._reading[0] == rings and self._is_here(self._reading[1]):
            task = self._reading[1]
        else:
            task = asyncio.create_task(self._read(rings))
            self._reading = rings, task
        return await asyncio.shield(task)

    @staticmethod
    def _is_here(task: "asyncio.Task[Access]") -> bool:
        return not task.done() and task.get_loop() is asyncio.get_running_loop()

    async def _read(self, rings: int) -> Access:
        """Read the rules for all who ask since the last ring."""
        if self._waiter is None:
            self._waiter = Waiter((access.WAKEUP,), self._ring)
            self._room.enter(self._waiter)
        self._waiter.rung = False  # from here on, the next change rings again
        version = await self._app.arun(access.version())
        known = self._known
        if known is None or known.version != version:
            known = self._known = await self._app.arun(access.get())
        self._heard = rings
        return known

    def _ring(self) -> None:
        self._rings += 1
