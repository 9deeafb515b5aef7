"""Detects a stalled worker: one that waits too long for a reply. It logs this and reconnects."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

log: Final = logging.getLogger("towpath")


class Watchdog:
    """The replies that a worker waits for, and since when."""

    def __init__(self, patience: float, reconnect: Callable[[], object]) -> None:
        self._patience = patience
        self._reconnect = reconnect
        self._reconnected_at = 0.0
        self._since: dict[str, float] = {}
        self.stalled: str | None = None  # the reason

    def waits_for(self, what: str) -> None:
        """Start to wait for a reply."""
        self._since.setdefault(what, time.monotonic())

    def heard(self, what: str) -> None:
        """Stop waiting: the reply came."""
        self._since.pop(what, None)

    async def watch(self) -> None:
        """Check the waiting times periodically, until cancelled."""
        checked_at = time.monotonic()
        while True:
            await asyncio.sleep(self._patience / 8)
            now = time.monotonic()
            if now - checked_at > self._patience / 2:  # the process was suspended: count from now
                for what in list(self._since):
                    self._since[what] = now
            checked_at = now
            self._check(now)

    def _check(self, now: float) -> None:
        late = [(at, what) for what, at in list(self._since.items()) if now - at > self._patience]
        if not late:
            if self.stalled:
                log.info("worker recovered: the database replies again")
            self.stalled = None
            return
        since, what = min(late)
        first = self.stalled is None
        self.stalled = f"no reply to {what} for {now - since:.0f} s"
        if first:
            log.warning("worker stalled: %s; reconnecting", self.stalled)
        if now - self._reconnected_at > self._patience:
            self._reconnected_at = now
            self._reconnect()
