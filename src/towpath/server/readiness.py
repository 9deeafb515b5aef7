"""Whether the database takes writes: concurrent requests share one probe and wait briefly."""

import asyncio
import time
from typing import Final

from towpath import App
from towpath.errors import TowpathError

FRESH: Final = 1.0  # seconds for which a result is reused: each probe costs a commit
PATIENCE: Final = 2.0  # seconds from the start of a probe; load balancers wait little longer


class Readiness:
    """The last probe of an app's database."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._probe: asyncio.Task[str | None] | None = None
        self._started_at = self._ended_at = 0.0

    async def problem(self) -> str | None:
        """Return why the database takes no writes, or None if it does."""
        probe = self._current()
        left = self._started_at + PATIENCE - time.monotonic()
        await asyncio.wait({probe}, timeout=max(0.0, left))
        if probe.done():
            return probe.result()
        return f"no answer for {time.monotonic() - self._started_at:.0f} s"

    def _current(self) -> "asyncio.Task[str | None]":
        """Return the probe that runs or has just ended, or start one."""
        loop, now, probe = asyncio.get_running_loop(), time.monotonic(), self._probe
        fresh = probe and (not probe.done() or now - self._ended_at < FRESH)
        if probe and fresh and probe.get_loop() is loop:
            return probe
        self._started_at = now
        self._probe = loop.create_task(self._run_probe())
        return self._probe

    async def _run_probe(self) -> str | None:
        try:
            await self._app.aprobe()
        except TowpathError as error:
            return error.code
        else:
            return None
        finally:
            self._ended_at = time.monotonic()
