"""Reports that wait to be written: together, and again until they are written or refused."""

import asyncio
import logging
from collections import Counter
from typing import Final

from msgspec import Struct

from towpath.app.acting import Acting
from towpath.app.delivery_log import tell
from towpath.errors import AppClosed, TowpathError
from towpath.model.deliveries import AttemptOutcome
from towpath.store import deliveries
from towpath.store.deliveries import Delivery, Report

log: Final = logging.getLogger("towpath")

FIRST_PAUSE: Final = 0.1  # seconds between two tries to write, doubled up to the last
LAST_PAUSE: Final = 5.0
COMPLETED: Final = "completed"


class MadeAttempt(Struct, frozen=True):
    """An attempt that was made, and what was seen of it."""

    delivery: Delivery
    outcome: AttemptOutcome | None  # None: it could not be made here


class Reports:
    """Keeps what workers have seen until it is in the database."""

    def __init__(self, acting: Acting, worker: str) -> None:
        self._acting = acting
        self._worker = worker
        self.outcomes: Counter[str] = Counter()  # of reports that were taken, by error code
        self._made: list[MadeAttempt] = []
        self._news = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()

    def __len__(self) -> int:
        """Count the reports that are not written."""
        return len(self._made)

    def put(self, delivery: Delivery, outcome: AttemptOutcome | None) -> None:
        """Add a report to write; without an outcome, the attempt cannot be made here."""
        self._made.append(MadeAttempt(delivery, outcome))
        self._news.set()
        self._quiet.clear()

    async def written(self) -> None:
        """Wait until nothing is left to write."""
        await self._quiet.wait()

    async def write(self) -> None:
        """Write until cancelled. Each report presents its lease: a lost one stays lost."""
        pause = FIRST_PAUSE
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self.write_now()
            except AppClosed:
                return
            except Exception as error:  # noqa: BLE001 - this task must go on, to write them later
                if pause == FIRST_PAUSE:
                    log.warning("could not write %d reports, will retry: %s", len(self), error)
                self._news.set()
                await asyncio.sleep(pause)
                pause = min(pause * 2, LAST_PAUSE)
                continue
            pause = FIRST_PAUSE

    async def write_now(self) -> None:
        """Write all reports; log those that are refused."""
        made = self._made[:]
        declined = [each.delivery for each in made if each.outcome is None]
        if declined:
            await self._acting.arun(deliveries.decline(declined))
        reported = [(each.delivery, each.outcome) for each in made if each.outcome is not None]
        reports = [Report(each.job, each.token, outcome) for each, outcome in reported]
        answers = await self._acting.arun(deliveries.report(reports)) if reports else []
        for (each, outcome), answer in zip(reported, answers, strict=True):
            is_stale = isinstance(answer, TowpathError)
            if not is_stale:
                self.outcomes[outcome.error_code or COMPLETED] += 1
            tell(
                logging.WARNING if is_stale else logging.DEBUG,
                "stale_result" if is_stale else "an attempt was made",
                saga=each.saga,
                job=each.job,
                error=outcome.error_code,
                until=each.until,
                worker=self._worker,
            )
        del self._made[: len(made)]
        if not self._made:
            self._quiet.set()
