"""Runs the parts that deliver webhooks: router, orchestrator, worker and so on; one or all.

Each part has rounds: it does what there is, and says when it wants the next one. In between it
sleeps until a wakeup rings. Nothing that a database does ends a part.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias

from towpath.app.app import App
from towpath.app.checks import at_least_one
from towpath.app.ringing import ANYTHING, Ringing
from towpath.app.sessions import worker_name
from towpath.errors import AppClosed, DatabaseError, ExtraMissing, Invalid
from towpath.model.addresses import networks_of
from towpath.model.instants import Duration, microseconds
from towpath.model.sagas import Role
from towpath.model.sealing import SealingKeys
from towpath.operation import Wakeup
from towpath.settings import Settings
from towpath.store.advancing import DELIVERIES
from towpath.webhooks.cleaner import Cleaner
from towpath.webhooks.orchestrator import Orchestrator
from towpath.webhooks.part import Part
from towpath.webhooks.replaying import Replayer
from towpath.webhooks.router import Router
from towpath.webhooks.worker import DeliveryWorker, Sends

log: Final = logging.getLogger("towpath")

ALONE: Final = ("router", "orchestrator", "worker", "cleaner", "replayer")  # may run by themselves
FIRST_PAUSE: Final = 0.1  # seconds after an error, doubled up to the last
LAST_PAUSE: Final = 5.0
AT_ONCE: Final = 100  # attempts of `deliver_due`
LAST_ROUND: Final = 5.0  # seconds for rounds that are under way at the end
STOP: Final = Wakeup("stop")  # rings in the parts alone
REST: Final = 0.002  # seconds after a look for no known reason: other processes may commit always

OpensSender: TypeAlias = Callable[[App], AbstractAsyncContextManager[Sends]]


class Deliveries:
    """Delivers webhooks until it is stopped.

    All parts run, and upkeep cleans; with `only` one of them, which starts no upkeep: its process
    may log in as a role that has just its rights. The replayer has those of the app itself.
    """

    def __init__(
        self,
        app: App,
        *,
        only: str | None = None,  # router, orchestrator, worker, cleaner or replayer
        concurrency: int = 200,  # attempts at once
        grace: Duration = 30,  # the time that attempts have to end after `stop`
        name: str | None = None,  # None: its host, its process and a number
        sender: OpensSender | None = None,  # None: over HTTP
    ) -> None:
        if only is not None and only not in ALONE:
            msg = f"only must be one of {', '.join(ALONE)}, not {only!r}"
            raise Invalid(msg)
        self._app = app
        self._only = only
        self._concurrency = at_least_one(concurrency, "concurrency")
        self._grace = microseconds(grace, "grace") / 1e6
        self.name = name or worker_name()
        self._opens_sender = sender or _over_http
        if only in {None, DeliveryWorker.part}:
            _check(app.settings)
        self._stopping = asyncio.Event()
        self._ringing: list[Ringing] = []  # of each part
        self._worker: DeliveryWorker | None = None

    def run(self) -> None:
        """Deliver until SIGTERM or SIGINT; a second signal abandons the attempts under way."""
        asyncio.run(self._arun_with_signals())

    def stop(self) -> None:
        """Claim no more, end the attempts under way within the grace period, then end."""
        self._stopping.set()
        if self._worker:
            self._worker.is_stopping = True
        for each in self._ringing:
            each.ring(STOP)

    def stop_now(self) -> None:
        """Abandon the attempts under way; other workers make them when their leases are over."""
        self.stop()
        self._grace = 0
        if self._worker:
            self._worker.abandon()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    @property
    def outcomes(self) -> Mapping[str, int]:
        """How many attempts this process has made, by error code or `completed`."""
        return self._worker.reports.outcomes if self._worker else {}

    async def arun(self) -> None:
        """Deliver until `stop` is called, from a task of this loop, or until this is cancelled."""
        async with contextlib.AsyncExitStack() as stack:
            parts: list[Part] = []
            if self._only in {None, DeliveryWorker.part}:
                sender = await stack.enter_async_context(self._opens_sender(self._app))
                acting = self._app.acting(Role.WORKER)
                self._worker = DeliveryWorker(acting, sender, self.name, self._concurrency)
                parts.append(self._worker)
            if self._only in {None, Router.part}:
                parts.append(Router(self._app.acting(Role.ROUTER)))
            if self._only in {None, Orchestrator.part}:
                parts.append(Orchestrator(self._app.acting(Role.ORCHESTRATOR)))
            if self._only in {None, Replayer.part}:
                parts.append(Replayer(self._app, self._stopping))
            if self._only == Cleaner.part:
                parts.append(Cleaner(self._app.acting(Role.CLEANER)))
            if self._only is None:
                self._app.upkeep.start()
            async with asyncio.TaskGroup() as group:
                await self._run(parts, group)

    async def _run(self, parts: Sequence[Part], group: asyncio.TaskGroup) -> None:
        writing = group.create_task(self._worker.reports.write()) if self._worker else None
        loops = [group.create_task(self._repeat(part)) for part in parts]
        await self._stopping.wait()
        # A claim that is under way still fills slots: the rounds end before the attempts.
        _, late = await asyncio.wait(loops, timeout=max(self._grace, LAST_ROUND))
        for loop in late:
            loop.cancel()
        if self._worker and writing:
            await self._worker.finish(self._grace)
            writing.cancel()

    async def _repeat(self, part: Part) -> None:
        """Do one round after the other. An error is logged once, until a round succeeds again."""
        pause = FIRST_PAUSE
        with self._app.acting(part.role).hear(part.wakeups) as ringing:
            self._ringing.append(ringing)
            rung = await ringing.wait()
            while not self._stopping.is_set():
                try:
                    wait = await part.round(rung, ringing)
                except AppClosed:
                    return
                except Exception as error:  # noqa: BLE001 - whatever it is, the part goes on
                    if pause == FIRST_PAUSE:
                        _complain(part.part, error)
                    await self._pause(pause)
                    pause = min(2 * pause, LAST_PAUSE)
                    rung = {ANYTHING}
                    continue
                if pause != FIRST_PAUSE:
                    log.info("the %s of webhooks goes on", part.part)
                    pause = FIRST_PAUSE
                if ANYTHING in rung:
                    await asyncio.sleep(REST)
                rung = await ringing.wait(wait)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _arun_with_signals(self) -> None:
        loop = asyncio.get_running_loop()

        def on_signal() -> None:
            if self.is_stopping:
                self.stop_now()
            else:
                self.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)
        await self.arun()


async def deliver_due(app: App, sender: Sends) -> int:
    """Route what was published, and make every attempt that is due now; say how many."""
    router = Router(app.acting(Role.ROUTER))
    orchestrator = Orchestrator(app.acting(Role.ORCHESTRATOR))
    worker = DeliveryWorker(app.acting(Role.WORKER), sender, "towpath.testing", AT_ONCE)
    count = 0
    with app.acting(Role.MANAGER).hear() as ringing:
        while await router.round({ANYTHING}, ringing) == 0:
            pass
        while True:
            while await orchestrator.round({ANYTHING}, ringing) == 0:
                pass
            await worker.round({DELIVERIES}, ringing)
            made = await worker.finish_all()
            if not made:
                return count
            count += made


def _complain(part: str, error: Exception) -> None:
    if isinstance(error, DatabaseError):
        log.warning("the %s of webhooks waits for the database: %s", part, error)
    else:
        log.error("the %s of webhooks failed, and tries again", part, exc_info=error)


def _check(settings: Settings) -> None:
    """Raise Invalid for settings that cannot be read, before anything runs."""
    SealingKeys(settings.webhook_key)
    networks_of(settings.webhook_allow)


def _over_http(app: App) -> AbstractAsyncContextManager[Sends]:
    try:
        from towpath.webhooks.sender import WebhookSender  # noqa: PLC0415 - an extra
    except ImportError as error:
        msg = f"webhooks need the package {error.name}: pip install 'towpath[webhooks]'"
        raise ExtraMissing(msg) from error
    return WebhookSender.of(app.settings)
