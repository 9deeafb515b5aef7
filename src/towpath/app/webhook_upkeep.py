"""Upkeep of webhooks: leases of dead workers, forgotten subscriptions, old deliveries."""

from collections.abc import Callable
from typing import Any, Final

from towpath.app.delivery_log import tell_lost
from towpath.operation import Operation
from towpath.settings import Settings
from towpath.store import deliveries, webhook_upkeep
from towpath.store.deliveries import LostLease
from towpath.store.webhook_upkeep import Pruned

LOOK_EVERY: Final = 10_000_000  # microseconds of the database's clock between two looks
PRUNE_EVERY: Final = 60_000_000
MOST_BATCHES: Final = 10  # of one kind in one round; the next round goes on


class WebhookUpkeep:
    """What any process does for webhooks; `do` runs an operation, or logs why it cannot."""

    def __init__(self, settings: Settings, do: Callable[[Operation[Any]], Any]) -> None:
        self._ages = tuple(
            int(age * 1e6) for age in (settings.webhook_retention, settings.dead_letter_retention)
        )
        self._do = do
        self._looked_at = self._pruned_at = 0
        self._woken_upto = self._ended_upto = self._events_upto = 0
        self._pruned_upto: int = 0

    def run(self, now: int) -> None:
        """Do one round, at this time of the database's clock."""
        lost: list[LostLease] = self._do(deliveries.reset()) or []
        tell_lost(lost)
        if not 0 <= now - self._looked_at < LOOK_EVERY:
            self._looked_at = now
            self._woken_upto = self._do(webhook_upkeep.wake_forgotten(self._woken_upto)) or 0
            ended = webhook_upkeep.end_deleted(self._ended_upto, self._ages[0])
            self._ended_upto = self._do(ended) or 0
            self._events_upto = self._do(webhook_upkeep.prune_events(self._events_upto)) or 0
        if not 0 <= now - self._pruned_at < PRUNE_EVERY and not self._prune():
            self._pruned_at = now

    def _prune(self) -> bool:
        """Forget what is old; say whether there may be more."""
        sagas, letters = self._ages
        for _ in range(MOST_BATCHES):
            pruned: Pruned | None = self._do(webhook_upkeep.prune_sagas(self._pruned_upto, sagas))
            self._pruned_upto = pruned.upto if pruned else 0
            if not self._pruned_upto:
                break
        for _ in range(MOST_BATCHES):
            if not self._do(webhook_upkeep.prune_letters(letters)):
                return bool(self._pruned_upto)
        return True
