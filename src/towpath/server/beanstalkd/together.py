"""What several connections ask for at once is one call."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from msgspec import Struct

from towpath.errors import DatabaseBusy, DatabaseUnavailable

I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")

NOBODYS: Final = (DatabaseBusy, DatabaseUnavailable)  # errors that are no one item's fault
MOST_ITEMS: Final = 1_000  # of one call; those of one ask stay together
TICKS: Final = 10  # of the event loop at most, for those who were just answered to ask again


class Ask(Struct, Generic[I, R]):
    """What somebody asks for."""

    who: object
    items: Sequence[I]
    answer: "asyncio.Future[Sequence[R]]"


class Batcher(Generic[I, R]):
    """Makes one call at a time, of all that has gathered meanwhile.

    A commit costs the same for one as for many. So a call waits for those who asked for the last
    two, who may just have been answered: a few ticks, not a timer. Who asks alone does not wait.
    """

    def __init__(self, call: Callable[[list[I]], Awaitable[Sequence[R]]]) -> None:
        self._call = call
        self._asks: list[Ask[I, R]] = []
        self._calling: asyncio.Task[None] | None = None
        self._last: set[object] = set()  # who asked for the last call,
        self._before: set[object] = set()  # and who for the one before

    async def __call__(self, who: object, items: Sequence[I]) -> Sequence[R]:
        """Return what the call returned for these items; nobody asks twice at once."""
        answer: asyncio.Future[Sequence[R]] = asyncio.get_running_loop().create_future()
        self._asks.append(Ask(who, items, answer))
        if self._calling is None:
            self._calling = asyncio.create_task(self._go_on())
        return await answer

    async def _go_on(self) -> None:
        while self._asks:
            expected = len(self._last | self._before)
            for _ in range(TICKS):
                if len(self._asks) >= expected:
                    break
                await asyncio.sleep(0)
            asks = self._next()
            self._before, self._last = self._last, {ask.who for ask in asks}
            await self._call_for(asks)
        self._calling = None

    def _next(self) -> list[Ask[I, R]]:
        """Return those who asked first, with as much as others can wait for."""
        size = end = 0
        while end < len(self._asks) and size < MOST_ITEMS:
            size += len(self._asks[end].items)
            end += 1
        asks, self._asks = self._asks[:end], self._asks[end:]
        return asks

    async def _call_for(self, asks: Sequence[Ask[I, R]]) -> None:
        """Make one call for all; one for each if that fails, so that a bad one fails alone.

        What is nobody's fault fails them all: to wait for it once is enough, and it may have been
        done, so that a second call would do it twice.
        """
        try:
            results = await self._call([item for ask in asks for item in ask.items])
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for it
            if len(asks) == 1 or isinstance(error, NOBODYS):
                for ask in asks:
                    ask.answer.set_exception(error)
                return
            for ask in asks:
                await self._call_for([ask])
            return
        start = 0
        for ask in asks:
            ask.answer.set_result(results[start : start + len(ask.items)])
            start += len(ask.items)
