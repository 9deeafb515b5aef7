"""What the doctor has found of late: asked once for all viewers, and remembered for a while."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from towpath import App
from towpath.app.checkup import Check

KEPT: Final = 30.0  # seconds


class Checkup(Struct, frozen=True):
    """All checks of the doctor, and when it looked."""

    at: datetime
    checks: list[Check]


class Checkups:
    """The last check-up; one at a time is under way."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = asyncio.Lock()
        self._last: tuple[float, float, Checkup] | None = None  # patience, end of its time

    async def latest(self, patience: float = 60.0) -> Checkup:
        """Return a check-up of the last 30 s."""
        async with self._lock:
            last = self._last
            if last and last[0] == patience and time.monotonic() < last[1]:
                return last[2]
            checkup = Checkup(datetime.now(UTC), await self._app.adoctor(patience))
            self._last = patience, time.monotonic() + KEPT, checkup
            return checkup
