"""The worker: claims delivery jobs for its free slots, makes the attempts, reports what it saw.

It decides nothing. A quarter of the slots takes only attempts at receivers that were prompt
lately, and a quarter only those at others, so neither kind keeps the other waiting.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from towpath.app.acting import Acting
from towpath.app.delivery_log import tell
from towpath.app.ringing import ANYTHING, Ringing
from towpath.app.sessions import new_number
from towpath.errors import TowpathError
from towpath.model.attempts import BodyKind, DeliveryRequest
from towpath.model.deliveries import AttemptOutcome
from towpath.model.payload import Encoding
from towpath.model.sagas import Role
from towpath.model.sealing import VARIABLE, SealingKeys
from towpath.model.signing import SubscriptionSecrets
from towpath.operation import Wakeup
from towpath.store import deliveries
from towpath.store.advancing import DELIVERIES
from towpath.store.deliveries import Delivery, Line
from towpath.webhooks.part import Part
from towpath.webhooks.reports import Reports

log: Final = logging.getLogger("towpath")

AT_ONCE: Final = 50  # delivery jobs of one kind in one claim
MOST_BYTES: Final = 64 * 2**20  # of payloads under way to prompt receivers, as they are stored
UNABLE_FOR: Final = 600.0  # seconds until a subscription whose secrets do not open is tried again
LAST_WAIT: Final = 5.0  # seconds for the last reports
BOTH: Final[AbstractSet[bool]] = {False, True}  # kinds of attempts: late or not
FREED: Final = Wakeup("slot")  # rings in the worker alone


class Sends(Protocol):
    """What makes attempts."""

    async def send(self, request: DeliveryRequest) -> AttemptOutcome:
        """Make one request; tell what was seen."""
        ...


class DeliveryWorker(Part):
    """Makes attempts, each in its own slot."""

    part = "worker"
    role = Role.WORKER
    wakeups = (DELIVERIES,)

    def __init__(self, acting: Acting, sender: Sends, name: str, concurrency: int) -> None:
        self._acting = acting
        self._sender = sender
        self._keys = SealingKeys(acting.settings.webhook_key)
        self.name = name
        self._concurrency = concurrency
        self._longest = acting.settings.max_payload * 4 // 3  # bytes are stored as base64
        self._slots: dict[asyncio.Task[None], Delivery] = {}
        self._unable: dict[int, float] = {}  # subscriptions, and until when they are left alone
        self._has_told = False  # that there is no key
        self._has_more = False  # delivery jobs wait for free slots
        self.is_stopping = False  # it claims no more, also within a round
        self.reports = Reports(acting, name)

    async def round(self, rung: set[Wakeup], ringing: Ringing) -> float | None:
        """Claim delivery jobs for the free slots, and begin their attempts."""
        if rung == {FREED} and not self._has_more:
            return None
        has_key = bool(self._acting.settings.webhook_key)
        # Without a key it claims nothing, so there is time to ask whether a job waits for it.
        if (ANYTHING in rung or not has_key) and not await self._is_claimable():
            return None
        if not has_key:
            self._tell_of_key()
            return None
        kinds: AbstractSet[bool] = BOTH  # of which there may be more
        while kinds and not self.is_stopping and (lines := self._lines(kinds)):
            unable = self._unable_now()
            claim = deliveries.claim(lines, new_number(), self.name, unable)
            claimed = await self._acting.arun(claim)
            since = time.monotonic()
            left = {line.late: line.most for line in lines}
            for each in claimed:
                left[each.late] -= 1
                self._begin(each, since, ringing)
            more = {kind for kind in kinds if not left.get(kind)}
            # A kind that had no more is asked for again in turn: it must not wait for the other.
            kinds = BOTH if more and kinds != BOTH else more
        self._has_more = bool(kinds)
        return None

    async def _is_claimable(self) -> bool:
        return await self._acting.arun(deliveries.is_claimable(self._unable_now()))

    def _lines(self, kinds: AbstractSet[bool]) -> list[Line]:
        """Share the free slots out to these kinds of attempts."""
        kept = self._concurrency // 4  # slots that the other kind never gets
        room: dict[bool, int] = {}
        for late in kinds:
            lengths = [len(each.payload) for each in self._slots.values() if each.late == late]
            most = MOST_BYTES // 2 if late else MOST_BYTES
            room[late] = min(self._concurrency - kept - len(lengths), self._fitting(lengths, most))
        free = self._concurrency - len(self._slots)
        prompt = min(room.get(False, 0), free - min(room.get(True, 0), free // 2))
        shares = {False: prompt, True: min(room.get(True, 0), free - prompt)}
        return [Line(late, min(most, AT_ONCE)) for late, most in shares.items() if most > 0]

    def _fitting(self, lengths: Sequence[int], most: int) -> int:
        """Return how many payloads may be claimed beside those of these lengths.

        They fit though each is as long as it can be. While half is free it is one at least: where
        payloads may be very long, most are short, and must not wait for each other.
        """
        free = most - sum(lengths)
        return max(free // self._longest, int(free > most // 2))

    def _unable_now(self) -> list[int]:
        now = time.monotonic()
        self._unable = {id: until for id, until in self._unable.items() if now < until}
        return list(self._unable)

    def _begin(self, delivery: Delivery, since: float, ringing: Ringing) -> None:
        tell(
            logging.DEBUG,
            "an attempt begins",
            saga=delivery.saga,
            job=delivery.job,
            until=delivery.until,
            worker=self.name,
        )
        slot = asyncio.create_task(self._attempt(delivery, since))
        self._slots[slot] = delivery

        def ended(slot: asyncio.Task[None]) -> None:
            del self._slots[slot]
            ringing.ring(FREED)

        slot.add_done_callback(ended)

    async def _attempt(self, delivery: Delivery, since: float) -> None:
        """Make one attempt; if this worker cannot open the secrets, others may make it."""
        try:
            request = self._request(delivery, since)
        except TowpathError as error:  # its secrets do not open
            self._unable[delivery.subscription] = time.monotonic() + UNABLE_FOR
            self._tell_of_loss(f"a subscription has to wait: {error}", delivery)
            self.reports.put(delivery, None)
            return
        try:
            outcome = await self._sender.send(request)
        except Exception:
            log.exception("an attempt could not be made")
            self._tell_of_loss("an attempt could not be made", delivery)
            return
        self.reports.put(delivery, outcome)

    def _request(self, delivery: Delivery, since: float) -> DeliveryRequest:
        sealed = SubscriptionSecrets.from_text(
            self._keys.open(delivery.sealed, delivery.subscription)
        )
        return DeliveryRequest(
            subscription=delivery.subscription,
            url=delivery.url,
            secrets=sealed.signing(delivery.now),
            headers=sealed.headers,
            kind=BodyKind(delivery.body),
            timeout=delivery.timeout,
            event=delivery.event,
            type=delivery.type,
            at=delivery.at,
            body=delivery.payload,
            encoding=Encoding(delivery.encoding),
            now=delivery.now,
            since=since,
        )

    def _tell_of_loss(self, message: str, delivery: Delivery) -> None:
        tell(
            logging.ERROR,
            message,
            saga=delivery.saga,
            job=delivery.job,
            until=delivery.until,
            worker=self.name,
        )

    def _tell_of_key(self) -> None:
        if not self._has_told:
            log.error("deliveries wait: %s is not set, so no secret can be opened", VARIABLE)
            self._has_told = True

    async def finish_all(self) -> int:
        """End all attempts that have begun, and write their reports; say how many they were."""
        count = len(self._slots)
        if self._slots:
            await asyncio.wait(self._slots)
        await self.reports.write_now()
        return count

    def abandon(self) -> None:
        """End the attempts under way, which are not reported: their leases end by themselves."""
        if self._slots:
            log.warning("%d attempts are abandoned; they are made again", len(self._slots))
        for slot in self._slots:
            slot.cancel()

    async def finish(self, grace: float) -> None:
        """End what is under way, and write the reports; what takes longer is abandoned."""
        if self._slots:
            await asyncio.wait(self._slots, timeout=grace)
        self.abandon()
        if self._slots:
            await asyncio.wait(self._slots)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WAIT):
                await self.reports.written()
        if made := self.reports.outcomes:
            counts = ", ".join(f"{count} {outcome}" for outcome, count in made.most_common())
            log.info("the worker %s has made these attempts: %s", self.name, counts)
        if len(self.reports):
            log.warning("%d reports were not written; these attempts repeat", len(self.reports))
