"""A worker: reserves jobs in batches, runs them in slots, and says what became of them."""

import asyncio
import contextlib
import logging
import signal
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final

from towpath.app import outcomes
from towpath.app.app import App
from towpath.app.checks import at_least_one
from towpath.app.sessions import worker_name
from towpath.errors import DatabaseError, Invalid
from towpath.model.instants import Duration, microseconds
from towpath.model.job import Job, Lease
from towpath.worker.heart import Heart
from towpath.worker.outbox import Outbox
from towpath.worker.run import Run

log: Final = logging.getLogger("towpath")

LOOK: Final = 30.0  # seconds that one reservation waits for a job
AHEAD: Final = 0.05  # seconds of work that are reserved beyond the free slots
MOST_AHEAD: Final = 500  # jobs
MOST_UNWRITTEN: Final = 5_000  # outcomes; beyond that nothing new is begun
PAUSE: Final = 1.0  # seconds between two tries while the database is away


class Worker:
    """Runs the tasks of an app."""

    def __init__(
        self,
        app: App,
        *,
        topics: Iterable[str] | None = None,
        concurrency: int = 10,
        grace: Duration = 30,
        name: str | None = None,
    ) -> None:
        self._app = app
        self._topics = tuple(app.tasks if topics is None else topics)
        unknown = [topic for topic in self._topics if topic not in app.tasks]
        if unknown or not self._topics:
            msg = f"there is no task for {', '.join(unknown)}" if unknown else "there is no task"
            raise Invalid(msg)
        self._concurrency = at_least_one(concurrency, "concurrency")
        self._grace = microseconds(grace, "grace") / 1e6
        self.name = name or worker_name()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._threads: ThreadPoolExecutor | None = None
        self._buffer: deque[Lease] = deque()  # reserved, not started
        self._runs: dict[tuple[int, int], Run] = {}
        self._slots: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()  # there may be room for more
        self._pace = Pace()

    # ------------------------------------------------------------ from outside

    def run(self) -> None:
        """Work until SIGTERM or SIGINT, or until `stop` is called; a second signal ends at once."""
        asyncio.run(self._arun_with_signals())

    def stop(self) -> None:
        """Reserve no more, finish what runs within the grace period, give the rest back."""
        if self._loop is None:
            self._stopping.set()  # before it has begun
            return
        with contextlib.suppress(RuntimeError):  # its loop has ended
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def arun(self) -> None:
        """Work until `stop` is called, or until this is cancelled."""
        self._loop = asyncio.get_running_loop()
        self._app.upkeep.start()
        outbox = Outbox(self._app)
        writing = asyncio.create_task(outbox.write())
        try:
            while not self._stopping.is_set():
                await self._live(outbox)
        finally:
            await outbox.written()
            writing.cancel()
            if self._threads:
                self._threads.shutdown(wait=False)

    async def _arun_with_signals(self) -> None:
        loop = asyncio.get_running_loop()
        working = asyncio.create_task(self.arun())

        def on_signal() -> None:
            if self._stopping.is_set():
                self._grace = 0
                self._give_up()
            self.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)
        await working

    # ------------------------------------------------------------ one session

    async def _live(self, outbox: Outbox) -> None:
        """Work for as long as a session lives: until the worker stops, or is called dead."""
        session = await self._started_session()
        if session is None:
            return
        dead = asyncio.Event()
        loop = asyncio.get_running_loop()
        heart = Heart(
            self._app,
            session,
            started=self._started,
            on_cancel=lambda places: loop.call_soon_threadsafe(self._cancel, places),
            on_death=lambda: loop.call_soon_threadsafe(dead.set),
        )
        fetching = asyncio.create_task(self._fetch(outbox, session))
        try:
            await _first_of(self._stopping, dead, fetching)
        finally:
            fetching.cancel()
            [error] = await asyncio.gather(fetching, return_exceptions=True)
            if isinstance(error, Exception):
                log.error("a worker could not go on reserving; it begins anew", exc_info=error)
            if dead.is_set():
                log.warning("this worker was called dead; it begins anew")
                self._buffer.clear()  # what lay there was taken back
            else:
                self._return_buffer(outbox)
                await self._finish_running()
            self._give_up()  # a lease that is lost, or whose grace is over
            await asyncio.gather(*self._slots, return_exceptions=True)
            await outbox.written()
            await asyncio.to_thread(heart.stop)
            if not dead.is_set():
                with contextlib.suppress(DatabaseError):
                    await self._app.sessions.aend(session)

    async def _started_session(self) -> int | None:
        while not self._stopping.is_set():
            try:
                return await self._app.sessions.astart(self.name)
            except DatabaseError as error:
                log.warning("the database is away: %s", error)
                await asyncio.sleep(PAUSE)
        return None

    async def _fetch(self, outbox: Outbox, session: int) -> None:
        """Keep the slots busy."""
        while True:
            if len(outbox) > MOST_UNWRITTEN:
                await outbox.written()
            ahead = self._pace.ahead()
            want = self._concurrency - len(self._slots) + ahead - len(self._buffer)
            if want <= ahead // 2:
                self._room.clear()
                await self._room.wait()
                continue
            try:
                leases = await self._app.jobs.areserve(
                    self._topics, limit=want, timeout=LOOK, session=session
                )
            except DatabaseError as error:
                log.warning("could not reserve: %s", error)
                await asyncio.sleep(PAUSE)
                continue
            for lease in leases:
                if _is_suspect(lease.job):
                    # It may have taken a worker down before anybody knew that it had begun.
                    await self._app.sessions.abeat(session, [lease])
            self._buffer.extend(leases)
            self._fill_slots(outbox)

    def _fill_slots(self, outbox: Outbox) -> None:
        while self._buffer and len(self._slots) < self._concurrency:
            slot = asyncio.create_task(self._work(outbox, self._buffer.popleft()))
            self._slots.add(slot)
            slot.add_done_callback(lambda slot: self._freed(slot, outbox))

    def _freed(self, slot: "asyncio.Task[None]", outbox: Outbox) -> None:
        self._slots.discard(slot)
        if not self._stopping.is_set():
            self._fill_slots(outbox)
        self._room.set()

    async def _work(self, outbox: Outbox, lease: Lease) -> None:
        """Run one job after the other, as long as there are some."""
        while True:
            run = Run(self._app, lease, self._pool, outbox.hear)
            place = (lease.job.seq, lease.epoch)
            self._runs[place] = run
            try:
                ended = await run.end(self._app.tasks[lease.job.topic])
                outbox.put(ended, run.context.notes)
            finally:
                del self._runs[place]
                self._pace.finished += 1
                self._room.set()
            if not self._buffer or self._stopping.is_set():
                return
            lease = self._buffer.popleft()

    def _pool(self) -> Executor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._concurrency, "towpath-task")
        return self._threads

    # ------------------------------------------------------------ stopping

    def _started(self) -> list[Lease]:
        return [run.lease for run in list(self._runs.values())]

    def _cancel(self, places: Iterable[tuple[int, int]]) -> None:
        for place in places:
            if place in self._runs:
                self._runs[place].cancel()

    def _give_up(self) -> None:
        for run in list(self._runs.values()):
            run.give_up()

    def _return_buffer(self, outbox: Outbox) -> None:
        while self._buffer:
            outbox.put(outcomes.return_unseen(self._buffer.popleft()))

    async def _finish_running(self) -> None:
        if self._slots:
            await asyncio.wait(self._slots, timeout=self._grace)


class Pace:
    """How many jobs are worth reserving ahead: what is finished in a moment."""

    def __init__(self) -> None:
        self.finished = 0
        self._ahead = 0
        self._seen = 0
        self._since = time.monotonic()

    def ahead(self) -> int:
        """Return how many to hold beyond the free slots."""
        passed = time.monotonic() - self._since
        if passed >= AHEAD:
            self._ahead = min(int((self.finished - self._seen) / passed * AHEAD), MOST_AHEAD)
            self._since, self._seen = time.monotonic(), self.finished
        return self._ahead


def _is_suspect(job: Job) -> bool:
    """Say whether it was reserved more often than its counters explain."""
    return job.epoch - 1 > job.retries + job.timeouts + job.releases + job.crashes + job.buries


async def _first_of(*waits: "asyncio.Event | asyncio.Task[None]") -> None:
    tasks = [
        wait if isinstance(wait, asyncio.Task) else asyncio.create_task(_set(wait))
        for wait in waits
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def _set(event: asyncio.Event) -> None:
    await event.wait()
