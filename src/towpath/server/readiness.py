"""Whether the database takes writes: one probe for all that ask, and a short wait for it."""

import asyncio
import time
from typing import Final

from towpath import App
from towpath.errors import TowpathError

FRESH: Final = 1.0  # seconds for which a result holds: a probe is a commit, and many may ask
PATIENCE: Final = 2.0  # seconds from the beginning of a probe; a balancer waits little longer


class Readiness:
    """The last probe of an app's database."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._probe: asyncio.Task[str | None] | None = None
        self._began_at = self._ended_at = 0.0

    async def obstacle(self) -> str | None:
        """Return what keeps the database from taking writes, or None."""
        probe = self._current()
        left = self._began_at + PATIENCE - time.monotonic()
        await asyncio.wait({probe}, timeout=max(0.0, left))
        if probe.done():
            return probe.result()
        return f"no answer for {time.monotonic() - self._began_at:.0f} s"

    def _current(self) -> "asyncio.Task[str | None]":
        """Return the probe that is under way or has just ended, or begin one."""
        loop, now, probe = asyncio.get_running_loop(), time.monotonic(), self._probe
        fresh = probe and (not probe.done() or now - self._ended_at < FRESH)
        if probe and fresh and probe.get_loop() is loop:
            return probe
        self._began_at = now
        self._probe = loop.create_task(self._request())
        return self._probe

    async def _request(self) -> str | None:
        try:
            await self._app.aprobe()
        except TowpathError as error:
            return error.code
        else:
            return None
        finally:
            self._ended_at = time.monotonic()
