"""Whether a worker gets answers. One that waits for too long is sick, says so and connects anew."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

log: Final = logging.getLogger("towpath")


class Watchdog:
    """What a worker waits for, and since when."""

    def __init__(self, patience: float, cure: Callable[[], object]) -> None:
        self._patience = patience
        self._cure = cure
        self._cured_at = 0.0
        self._since: dict[str, float] = {}
        self.sick: str | None = None  # why

    def waits_for(self, what: str) -> None:
        """Say that an answer is due."""
        self._since.setdefault(what, time.monotonic())

    def heard(self, what: str) -> None:
        """Say that the answer came."""
        self._since.pop(what, None)

    async def watch(self) -> None:
        """Look now and then, for ever."""
        looked_at = time.monotonic()
        while True:
            await asyncio.sleep(self._patience / 8)
            now = time.monotonic()
            if now - looked_at > self._patience / 2:  # this process stood still: count anew
                for what in list(self._since):
                    self._since[what] = now
            looked_at = now
            self._judge(now)

    def _judge(self, now: float) -> None:
        late = [(at, what) for what, at in list(self._since.items()) if now - at > self._patience]
        if not late:
            if self.sick:
                log.info("this worker is well again")
            self.sick = None
            return
        since, what = min(late)
        first = self.sick is None
        self.sick = f"the database has not answered {what} for {now - since:.0f} s"
        if first:
            log.warning("this worker is sick: %s; it connects anew", self.sick)
        if now - self._cured_at > self._patience:
            self._cured_at = now
            self._cure()
