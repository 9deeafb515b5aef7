"""Merges the calls that several connections make at the same time into one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from msgspec import Struct

from towpath.errors import DatabaseBusy, DatabaseUnavailable

I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")

OF_DATABASE: Final = (DatabaseBusy, DatabaseUnavailable)  # errors that no single item causes
MOST_ITEMS: Final = 1_000  # per call; the items of one entry stay together
TICKS: Final = 10  # event loop ticks in which recent callers may call again


class BatchEntry(Struct, Generic[I, R]):
    """The items of one caller, and the future of their results."""

    caller: object
    items: Sequence[I]
    results: "asyncio.Future[Sequence[R]]"


class Batcher(Generic[I, R]):
    """Makes one call at a time, with all items that gathered during the last one.

    A commit costs the same for one item as for many. So a call waits a few ticks for the callers of
    the last two calls, which may just have been answered. A caller that is alone does not wait.
    """

    def __init__(self, call: Callable[[list[I]], Awaitable[Sequence[R]]]) -> None:
        self._call = call
        self._entries: list[BatchEntry[I, R]] = []
        self._running: asyncio.Task[None] | None = None
        self._last: set[object] = set()  # callers of the last call
        self._before: set[object] = set()  # callers of the call before it

    async def __call__(self, caller: object, items: Sequence[I]) -> Sequence[R]:
        """Return the results of these items. One caller makes one call at a time."""
        results: asyncio.Future[Sequence[R]] = asyncio.get_running_loop().create_future()
        self._entries.append(BatchEntry(caller, items, results))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await results

    async def _run(self) -> None:
        while self._entries:
            expected = len(self._last | self._before)
            for _ in range(TICKS):
                if len(self._entries) >= expected:
                    break
                await asyncio.sleep(0)
            entries = self._next()
            self._before, self._last = self._last, {entry.caller for entry in entries}
            await self._call_for(entries)
        self._running = None

    def _next(self) -> list[BatchEntry[I, R]]:
        """Return the oldest entries, up to `MOST_ITEMS` items."""
        size = end = 0
        while end < len(self._entries) and size < MOST_ITEMS:
            size += len(self._entries[end].items)
            end += 1
        entries, self._entries = self._entries[:end], self._entries[end:]
        return entries

    async def _call_for(self, entries: Sequence[BatchEntry[I, R]]) -> None:
        """Make one call for all entries; if it fails, one for each, so that a bad one fails alone.

        An error of the database fails all entries: it would take as long again for each, and the
        call may have been carried out, so that a second one would repeat it.
        """
        try:
            results = await self._call([item for entry in entries for item in entry.items])
        except Exception as error:  # noqa: BLE001 - raised in the callers
            if len(entries) == 1 or isinstance(error, OF_DATABASE):
                for entry in entries:
                    entry.results.set_exception(error)
                return
            for entry in entries:
                await self._call_for([entry])
            return
        start = 0
        for entry in entries:
            entry.results.set_result(results[start : start + len(entry.items)])
            start += len(entry.items)
