"""The statistics of all jobs: counted once for all viewers that accept older ones."""

import asyncio
import time
from typing import Final

from towpath import App
from towpath.model.states import State
from towpath.server.outputs import StatsShown, TotalShown, shown

MOST_COUNTED: Final = 100_000


class Statistics:
    """The last statistics; one viewer at a time has them counted."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = asyncio.Lock()
        self._last: tuple[float, StatsShown] | None = None  # when they were counted

    async def of_late(self, most: float) -> StatsShown:
        """Return statistics that are at most so many seconds old."""
        if not most:
            return await self._counted()
        asked = time.monotonic()  # a wait for a long count must not lead to the next one
        async with self._lock:
            if self._last is None or asked - self._last[0] > most:
                self._last = time.monotonic(), await self._counted()
            return self._last[1]

    async def _counted(self) -> StatsShown:
        counted = await self._app.jobs.astats(MOST_COUNTED)
        completed = await self._app.jobs.acount(status=State.COMPLETED)
        answer = shown(StatsShown, counted)
        answer.completed_now = TotalShown(count=completed.count, exact=completed.exact)
        return answer
