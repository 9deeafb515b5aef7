"""The replayer: makes deliveries again that a job of the topic `webhooks-replay` names.

Nothing is kept between two pages of a replay but what the tables say: a delivery that was made
again is not found again. So a replay whose process has died goes on, by any other.
"""

import asyncio
import contextlib
import logging
from typing import Final

import msgspec

from towpath.app.app import App
from towpath.app.ringing import Ringing
from towpath.errors import AppClosed, DatabaseError, LeaseLost, TowpathError
from towpath.model.deliveries import SECOND
from towpath.model.job import Lease
from towpath.model.sagas import Role, SagaStatus
from towpath.model.subscriptions import REPLAY, Replay
from towpath.operation import Wakeup
from towpath.store import dead_letters, replaying
from towpath.store.dead_letters import Requeue
from towpath.webhooks.part import Part

log: Final = logging.getLogger("towpath")

AT_ONCE: Final = 100  # deliveries of one transaction
LONGEST_NAP: Final = 60.0  # seconds between two signs of life
LONGEST_WAIT: Final = 60.0  # seconds for a replay, in one round


class Replayer(Part):
    """Makes one replay after the other, as the app itself."""

    part = "replayer"
    role = Role.MANAGER
    wakeups = ()

    def __init__(self, app: App, stopping: asyncio.Event) -> None:
        self._app = app
        self._stopping = stopping
        self._lease: Lease | None = None  # of a replay that an outage of the database interrupts

    async def round(self, rung: set[Wakeup], ringing: Ringing) -> float | None:  # noqa: ARG002 - the interface of a part
        """Wait for a replay and make it."""
        lease = self._lease or await self._reserved()
        if lease is None:
            return 0
        self._lease = lease
        try:
            await replay(self._app, lease, self._stopping)
        except (DatabaseError, AppClosed):
            raise  # the lease is kept, and the next round goes on
        except LeaseLost:
            log.info("replay %s is left to another process, or was deleted", lease.job.id)
        except Exception as error:
            log.exception("replay %s has failed", lease.job.id)
            with contextlib.suppress(LeaseLost):
                await self._app.jobs.afail(lease, error)
        self._lease = None
        return 0

    async def _reserved(self) -> Lease | None:
        """Wait for a replay; None if there is none for long, or if the end comes first."""
        reserving = asyncio.ensure_future(self._app.jobs.areserve([REPLAY], timeout=LONGEST_WAIT))
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({reserving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            reserving.cancel()  # without effect on one that is done
        with contextlib.suppress(asyncio.CancelledError):
            return next(iter(await reserving), None)
        return None


async def replay(app: App, lease: Lease, stopping: asyncio.Event) -> None:
    """Do the job of a lease, and end it, or give it back when `stopping` is set.

    LeaseLost if another process has it now.
    """
    asked = msgspec.convert(lease.job.payload, Replay)
    before = asked.count - await app.webhooks.aleft(asked)
    most = AT_ONCE if asked.pace is None else max(1, min(AT_ONCE, SECOND // asked.pace))
    made, after = 0, 0
    while not stopping.is_set():
        page = await app.arun(replaying.candidates(asked, after, most))
        if page.ids:
            made += await _made_again(app, asked, page.ids, lease)
        done = max(0, before) + made
        message = f"{done:,} of {asked.count:,}"
        progress = min(1.0, done / max(1, asked.count))
        said = await app.jobs.asay(lease, said=0, progress=progress, message=message)
        if said.cancel_requested:
            break
        if page.upto is None:
            await app.jobs.acomplete(lease, result={"made": done})
            return
        after = page.upto
        lease = await app.jobs.atouch(lease)
        if asked.pace is not None:
            await _rest(app, lease, len(page.ids) * asked.pace / 1e6, stopping)
    await app.jobs.arelease(lease)  # of a job that is to be cancelled: its end


async def _made_again(app: App, asked: Replay, ids: list[int], lease: Lease) -> int:
    if asked.status is not SagaStatus.DEAD_LETTERED:
        return await app.arun(replaying.send_again(asked.subscription, ids))
    actor = f"replay {lease.job.id}"
    answers = await app.arun(dead_letters.requeue([Requeue(id, actor) for id in ids]))
    # One that was requeued meanwhile is under way, and left out.
    return sum(not isinstance(answer, TowpathError) for answer in answers)


async def _rest(app: App, lease: Lease, seconds: float, stopping: asyncio.Event) -> None:
    while seconds > 0 and not stopping.is_set():
        nap = min(seconds, LONGEST_NAP)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(nap):
                await stopping.wait()
        await app.jobs.atouch(lease)
        seconds -= nap
