"""The cleaner: takes back the leases of workers that are gone. Nothing else does that."""

import time
from typing import Final

from towpath.app.acting import Acting
from towpath.app.delivery_log import tell_lost
from towpath.app.ringing import Ringing
from towpath.model.sagas import Role
from towpath.operation import Wakeup
from towpath.store import deliveries
from towpath.store.deliveries import RESET_AT_ONCE
from towpath.webhooks.part import Part

EVERY: Final = 1.0  # seconds


class Cleaner(Part):
    """Resets delivery jobs whose leases are over."""

    part = "cleaner"
    role = Role.CLEANER
    wakeups = ()

    def __init__(self, acting: Acting) -> None:
        self._acting = acting
        self._cleans_at = 0.0

    async def round(self, rung: set[Wakeup], ringing: Ringing) -> float | None:  # noqa: ARG002 - the interface of a part
        """Take back some leases, unless it was done just now."""
        now = time.monotonic()
        if now < self._cleans_at:
            return self._cleans_at - now
        lost = await self._acting.arun(deliveries.reset())
        tell_lost(lost)
        if len(lost) == RESET_AT_ONCE:
            return 0
        self._cleans_at = now + EVERY
        return EVERY
