"""Wakeups for one task: which have rung since it looked last."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Self

from towpath.database.wakeups import Wakeups
from towpath.operation import Wakeup

ANYTHING: Final = Wakeup("anything")
"""Rings when every subscriber is told: something may have changed, or nothing."""


class Ringing:
    """Hears wakeups for a task, inside of `with`. A ring before `wait` is not lost."""

    def __init__(self, wakeups: Wakeups, names: Iterable[Wakeup]) -> None:
        self._wakeups = wakeups
        self._loop = asyncio.get_running_loop()
        self._rung: set[Wakeup] = {ANYTHING}  # added to by any thread; at first all is unknown
        self._news = asyncio.Event()
        self._news.set()
        self._unsubscribe: dict[Wakeup, Callable[[], None]] = {}
        self.hear([ANYTHING, *names])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Hear no more."""
        for unsubscribe in self._unsubscribe.values():
            unsubscribe()
        self._unsubscribe.clear()

    def hear(self, names: Iterable[Wakeup]) -> None:
        """Hear these wakeups, too."""
        for each in names:
            if each not in self._unsubscribe:
                ring = partial(self.ring, each)
                self._unsubscribe[each] = self._wakeups.subscribe(each, ring)

    def forget(self, names: Iterable[Wakeup]) -> None:
        """Hear these wakeups no more."""
        for each in names:
            if unsubscribe := self._unsubscribe.pop(each, None):
                unsubscribe()

    def ring(self, wakeup: Wakeup) -> None:
        """Ring in this task alone; called by any thread."""
        if wakeup not in self._rung:
            self._rung.add(wakeup)
            with contextlib.suppress(RuntimeError):  # the loop has closed
                self._loop.call_soon_threadsafe(self._news.set)

    async def wait(self, seconds: float | None = None) -> set[Wakeup]:
        """Wait for a ring; return all since the last call, or none if the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        self._news.clear()
        rung: set[Wakeup] = set()
        while self._rung:
            rung.add(self._rung.pop())
        return rung
