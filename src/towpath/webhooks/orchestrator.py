"""The orchestrator: applies the outcomes of attempts, and starts what has room."""

import logging
from typing import Final

from towpath.app.acting import Acting
from towpath.app.delivery_log import tell
from towpath.app.ringing import Ringing
from towpath.model.deliveries import SUBSCRIPTION_STOPPED
from towpath.model.sagas import Role, SagaStatus
from towpath.operation import Wakeup
from towpath.store import advancing
from towpath.store.advancing import AppliedOutcome
from towpath.store.sagas import SAGAS
from towpath.webhooks.part import Part

HELD_TOO_LONG: Final = "a delivery has failed for good, as it was held for too long"
PAUSE: Final = 0.05  # seconds to the next look where nothing was done: another one may be at it


class Orchestrator(Part):
    """Advances sagas."""

    part = "orchestrator"
    role = Role.ORCHESTRATOR
    wakeups = (SAGAS,)

    def __init__(self, acting: Acting) -> None:
        self._acting = acting
        self._after = 0  # the last subscription whose outcomes were applied

    async def round(self, rung: set[Wakeup], ringing: Ringing) -> float | None:  # noqa: ARG002 - the interface of a part
        """Advance some subscriptions; return the seconds until there is more to do."""
        if rung != {SAGAS}:  # else there is certainly something
            wait = await self._acting.arun(advancing.next_wake())
            if wait is None or wait > 0:
                return None if wait is None else wait / 1e6
        advanced = await self._acting.arun(advancing.advance(self._after))
        self._after = advanced.upto
        for each in advanced.applied:
            _tell(each)
        for saga in advanced.expired:
            tell(logging.WARNING, HELD_TOO_LONG, saga=saga, error=SUBSCRIPTION_STOPPED)
        did = advanced.more or advanced.started or advanced.applied or advanced.notices
        return 0 if did else PAUSE


def _tell(each: AppliedOutcome) -> None:
    is_dead = each.status is SagaStatus.DEAD_LETTERED
    tell(
        logging.WARNING if is_dead else logging.DEBUG,
        "a delivery has failed for good" if is_dead else f"the saga is {each.status}",
        saga=each.saga,
        job=each.job,
        error=each.error_code,
        worker=each.worker,
    )
