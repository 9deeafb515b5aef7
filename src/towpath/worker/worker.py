"""A worker: reserves jobs in batches, runs them in slots, and writes their outcomes."""

import asyncio
import contextlib
import logging
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Never

from towpath.app import outcomes
from towpath.app.app import App
from towpath.app.checks import at_least_one, refuse_unknown
from towpath.app.sessions import worker_name
from towpath.app.tasks import Task
from towpath.errors import Conflict, DatabaseError, Invalid, LeaseLost, SandboxFailed, TowpathError
from towpath.model.instants import Duration, microseconds
from towpath.model.job import Job, Lease
from towpath.store.leases import Completion, Outcome
from towpath.worker.heartbeat import Heartbeat
from towpath.worker.outbox import Outbox
from towpath.worker.run import TaskRun, topic_said
from towpath.worker.sandbox import Sandboxes, find_task
from towpath.worker.threads import Threads
from towpath.worker.watchdog import Watchdog

log: Final = logging.getLogger("towpath")

RESERVE_TIMEOUT: Final = 30.0  # seconds that one reservation waits for a job
AHEAD: Final = 0.05  # seconds of work that are reserved beyond the free slots
MOST_AHEAD: Final = 500  # jobs
MOST_UNWRITTEN: Final = 5_000  # outcomes; beyond that no job is reserved
PAUSE: Final = 1.0  # seconds between two tries while the database is unavailable
STUCK_AFTER: Final = 1.0  # seconds without a finished job after which the buffer is given back
LAST_WAIT: Final = 5.0  # seconds for each of: cancelled tasks, outcomes, the end of the session
BURST_WAIT: Final = 0.1  # seconds that a reservation waits in a burst while jobs run
OPTIONS: Final = frozenset({"topics", "concurrency", "grace", "name", "burst"})
RESERVATION: Final = "a reservation"
SESSION: Final = "the start of a session"


class Worker:
    """Runs the tasks of an app, each in its own slot.

    A blocking task cannot be interrupted: after its time limit its job fails, but its thread
    continues and keeps its slot until it ends. Run a task that may hang in a sandbox.
    """

    def __init__(
        self,
        app: App,
        *,
        topics: Iterable[str] | None = None,  # those to serve; None: all that have a task
        concurrency: int = 10,  # jobs at once
        grace: Duration = 30,  # the time that running jobs have to end after `stop`
        name: str | None = None,  # None: its host, its process and a number
        burst: bool = False,  # stop when no job is left that can run now
        **wrong: Never,
    ) -> None:
        refuse_unknown(wrong.keys(), OPTIONS)
        self._app = app
        self._burst = burst
        self._topics = tuple(app.tasks if topics is None else topics)
        unknown = [topic for topic in self._topics if topic not in app.tasks]
        if unknown or not self._topics:
            none = "the app has no tasks; import the modules that define them"
            known = ", ".join(sorted(app.tasks)) or "none"
            names = ", ".join(unknown)
            msg = f"no task for topic {names}; known topics: {known}" if unknown else none
            raise Invalid(msg)
        for topic in self._topics:
            for task in app.tasks.of(topic):
                _check_sandbox(task)
        self._concurrency = at_least_one(concurrency, "concurrency")
        self._grace = microseconds(grace, "grace") / 1e6
        self.name = name or worker_name()
        self.same_signal_within = 0.0  # seconds in which a second signal is the first one again
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._threads = Threads()
        self._sandboxes = Sandboxes()
        self._buffer: deque[Lease] = deque()  # reserved, not started
        self._runs: dict[tuple[int, int], TaskRun] = {}
        self._slots: set[asyncio.Task[None]] = set()
        self._lingering: set[asyncio.Future[Any]] = set()  # threads that outlive their jobs
        self._slot_freed = asyncio.Event()
        self._most = {
            topic: most for topic in self._topics if (most := app.tasks.of(topic)[0].concurrency)
        }
        self._in_use: Counter[str] = Counter()  # by topic: buffered and running jobs, threads
        self._topic_freed = asyncio.Event()  # a topic is below its concurrency again
        self._pace = Pace()
        self._watchdog = Watchdog(app.settings.dead_after, app.reconnect)

    @property
    def sick(self) -> str | None:
        """Why the worker is stalled; None while the database replies."""
        return self._watchdog.stalled

    def run(self) -> None:
        """Work until SIGTERM or SIGINT, or until `stop` is called; a second signal ends at once."""
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            msg = "an event loop is running in this thread; use `await worker.arun()`"
            raise Conflict(msg)
        asyncio.run(self._arun_with_signals())

    def stop(self) -> None:
        """Stop reserving, finish running jobs within the grace period, give the others back."""
        if self._loop is None:
            self._stopping.set()  # the worker has not started yet
            return
        self._call(self._stopping.set)

    def stop_gently(self) -> None:
        """Stop and log it; for signal handlers in the worker's own event loop."""
        log.warning(
            "stopping: %d running jobs have %g s to end; a second signal gives them back",
            len(self._runs), self._grace,
        )  # fmt: skip
        self._stopping.set()  # at once: a second signal may come in the same tick

    def _stop_asked(self) -> None:
        if not self._stopping.is_set():
            log.warning(
                "this worker was asked to stop: %d running jobs have %g s to end",
                len(self._runs), self._grace,
            )  # fmt: skip
            self._stopping.set()

    def stop_now(self) -> None:
        """Give all jobs back at once."""
        self._grace = 0
        self._stopping.set()
        self._give_up()

    async def arun(self) -> None:
        """Work until `stop` is called, or until this is cancelled."""
        self._loop = asyncio.get_running_loop()
        self._app.upkeep.start()
        outbox = Outbox(self._app)
        background = [
            asyncio.create_task(outbox.write()),
            asyncio.create_task(self._watchdog.watch()),
            asyncio.create_task(self._give_back_if_stuck(outbox)),
        ]
        try:
            while not self._stopping.is_set():
                await self._live(outbox)
        finally:
            for task in background:
                task.cancel()
            await self._sandboxes.close()
            self._threads.close()
            for thread in self._lingering:
                thread.cancel()  # this ends the callbacks; the thread itself continues
            if len(outbox):
                log.warning("%d outcomes were not written; these jobs will run again", len(outbox))

    async def _arun_with_signals(self) -> None:
        loop = asyncio.get_running_loop()
        working = asyncio.create_task(self.arun())

        stopped_at = 0.0

        def on_signal() -> None:
            nonlocal stopped_at
            if not self._stopping.is_set():
                stopped_at = time.monotonic()
                self.stop_gently()
            elif time.monotonic() - stopped_at >= self.same_signal_within:
                self.stop_now()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)
        await working

    async def _live(self, outbox: Outbox) -> None:
        """Work during one session: until the worker stops, or is declared dead."""
        session = await self._started_session()
        if session is None:
            return
        dead = asyncio.Event()
        heartbeat = Heartbeat(
            self._app,
            session,
            self._watchdog,
            started=self._started,
            on_cancel=lambda keys: self._call(self._cancel, keys),
            on_stop=lambda: self._call(self._stop_asked),
            on_death=lambda: self._call(dead.set),
        )
        fetching = asyncio.create_task(self._fetch(outbox, session))
        try:
            await _first_of(self._stopping, dead, fetching)
        finally:
            fetching.cancel()
            [error] = await asyncio.gather(fetching, return_exceptions=True)
            self._watchdog.heard(RESERVATION)
            if isinstance(error, Exception):
                log.error("reserving failed; the worker starts a new session", exc_info=error)
                await asyncio.sleep(PAUSE)
            if dead.is_set():
                log.warning("this worker was declared dead; it starts a new session")
                self._drop_buffer()  # these leases were taken back
            else:
                self._return_buffer(outbox)
                await self._finish_running()
            self._give_up()  # runs whose lease is lost, or whose grace period is over
            if self._slots:
                await asyncio.wait(self._slots, timeout=LAST_WAIT)
            for run in self._runs.values():
                log.warning("job %s does not stop and delays the shutdown", run.lease.job.id)
            await _at_most(LAST_WAIT, outbox.written())
            await asyncio.to_thread(heartbeat.stop, LAST_WAIT)
            # A cancelled reservation may still lease jobs; ending the session gives them back.
            await _at_most(LAST_WAIT, self._app.aquiet())
            if not dead.is_set():
                with contextlib.suppress(DatabaseError):
                    await _at_most(LAST_WAIT, self._app.sessions.aend(session))

    async def _begin(self) -> int:
        await self._app.schedules.adeclare()
        return await self._app.sessions.astart(
            self.name, self._topics, concurrency=self._concurrency
        )

    async def _started_session(self) -> int | None:
        self._watchdog.waits_for(SESSION)
        while not self._stopping.is_set():
            starting = asyncio.create_task(self._begin())
            await _first_of(self._stopping, starting)
            try:
                session = await starting
            except asyncio.CancelledError:
                if _is_cancelled():
                    raise
            except DatabaseError as error:
                log.warning("the database is unavailable: %s", error)
                await asyncio.sleep(PAUSE)
            else:
                self._watchdog.heard(SESSION)
                return session
        return None

    async def _fetch(self, outbox: Outbox, session: int) -> None:
        """Reserve jobs and fill the slots."""
        fails = False
        while True:
            if len(outbox) > MOST_UNWRITTEN:
                await outbox.written()
            ahead = self._pace.ahead()
            want = self._free_slots() + ahead - len(self._buffer)
            if want <= ahead // 2 or not self._open_topics():
                self._slot_freed.clear()
                await self._slot_freed.wait()
                continue
            self._watchdog.waits_for(RESERVATION)
            # What runs or is not written yet may still make jobs ready.
            idle = not self._slots and not self._buffer and not len(outbox)
            try:
                leases = await self._reserve(want, session, idle=idle)
                await self._mark_suspects(leases, outbox, session)
            except (DatabaseError, LeaseLost) as error:  # the heartbeat reports a dead session
                log.warning("could not reserve: %s", error)
                fails = True
                await asyncio.sleep(PAUSE)
                continue
            if fails:
                log.info("jobs can be reserved again")
                fails = False
            self._watchdog.heard(RESERVATION)
            if self._burst and idle and not leases:
                self._stopping.set()
                return
            self._in_use.update(lease.job.topic for lease in leases)
            self._buffer.extend(leases)
            self._fill_slots(outbox)
            await asyncio.sleep(0)  # the reserved jobs start before the next reservation

    async def _reserve(self, limit: int, session: int, *, idle: bool) -> list[Lease]:
        """Reserve jobs of topics below their concurrency; stop when another topic is freed."""
        topics = self._open_topics()
        reserving = self._app.jobs.areserve(
            topics,
            limit=limit,
            timeout=self._patience(idle=idle),
            session=session,
            most={topic: most - self._in_use[topic] for topic, most in self._most.items()},
            worker=self.name,
        )
        if len(topics) == len(self._topics):
            return await reserving
        self._topic_freed.clear()
        reservation = asyncio.create_task(reserving)
        await _first_of(self._topic_freed, reservation)
        try:
            return await reservation
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            return []

    def _patience(self, *, idle: bool) -> float:
        if self._burst:
            return 0 if idle else BURST_WAIT
        # The watchdog waits for the answer, so it must come before `dead_after`.
        return min(RESERVE_TIMEOUT, self._app.settings.dead_after / 2)

    async def _mark_suspects(self, leases: list[Lease], outbox: Outbox, session: int) -> None:
        """Record the start of jobs that may have crashed a worker before their start was known."""
        suspects = [lease for lease in leases if _is_suspect(lease.job)]
        if suspects:
            try:
                await self._app.sessions.abeat(session, suspects)
            except TowpathError:
                for lease in leases:
                    outbox.put(outcomes.return_unseen(lease))
                raise

    def _free_slots(self) -> int:
        return self._concurrency - len(self._slots) - len(self._lingering)

    def _open_topics(self) -> list[str]:
        full = {topic for topic, most in self._most.items() if self._in_use[topic] >= most}
        return [topic for topic in self._topics if topic not in full]

    def _fill_slots(self, outbox: Outbox) -> None:
        while self._buffer and self._free_slots() > 0:
            slot = outbox.loop.create_task(self._work(outbox, self._buffer.popleft()))
            self._slots.add(slot)
            slot.add_done_callback(lambda slot: self._freed(slot, outbox))

    def _freed(self, slot: "asyncio.Task[None]", outbox: Outbox) -> None:
        self._slots.discard(slot)
        if not self._stopping.is_set():
            self._fill_slots(outbox)
        self._slot_freed.set()

    async def _work(self, outbox: Outbox, lease: Lease) -> None:
        """Run one job after the other until the buffer is empty."""
        while True:
            run = TaskRun(self._app, lease, self._threads, outbox.hear, outbox.loop)
            key = (lease.job.seq, lease.epoch)
            self._runs[key] = run
            started = time.monotonic()
            log.info("job %d of %s has started", lease.job.seq, topic_said(lease.job))
            try:
                task = self._app.tasks.find(lease.job.topic, lease.job.task_name)
                ended = await run.end(task, self._sandboxes)
                outbox.put(ended, run.context.notes, run.context.speech)
                _log_end(lease.job, ended, started)
            finally:
                del self._runs[key]
                self._pace.finished += 1
                lingers = self._lingers(run, outbox)
                self._slot_freed.set()
            if lingers or not self._buffer or self._stopping.is_set():
                return
            lease = self._buffer.popleft()

    def _lingers(self, run: TaskRun, outbox: Outbox) -> bool:
        """Free the slot of a job that has ended; say whether its thread still uses it."""
        job, thread = run.lease.job, run.thread
        if thread is None or thread.done():
            self._release(job.topic)
            return False
        said = topic_said(job)
        log.warning("job %s of %s has ended, but its thread still runs", job.id, said)

        def ended(thread: "asyncio.Future[Any]") -> None:
            self._lingering.discard(thread)
            self._release(job.topic)
            if not self._stopping.is_set():
                self._fill_slots(outbox)
            self._slot_freed.set()

        self._lingering.add(thread)
        thread.add_done_callback(ended)
        return True

    def _release(self, topic: str) -> None:
        self._in_use[topic] -= 1
        if topic in self._most:
            self._topic_freed.set()

    async def _give_back_if_stuck(self, outbox: Outbox) -> None:
        """Give buffered jobs to other workers while no job ends here."""
        while True:
            finished = self._pace.finished
            await asyncio.sleep(STUCK_AFTER)
            if self._pace.finished == finished and self._free_slots() <= 0:
                self._return_buffer(outbox)

    def _started(self) -> list[Lease]:
        return [run.lease for run in list(self._runs.values())]

    def _cancel(self, keys: Iterable[tuple[int, int]]) -> None:
        for key in keys:
            if key in self._runs:
                self._runs[key].cancel()

    def _give_up(self) -> None:
        for run in list(self._runs.values()):
            run.give_up()

    def _return_buffer(self, outbox: Outbox) -> None:
        for lease in self._buffer:
            outbox.put(outcomes.return_unseen(lease))
        self._drop_buffer()

    def _drop_buffer(self) -> None:
        while self._buffer:
            self._release(self._buffer.popleft().job.topic)

    def _call(self, call: Callable[..., object], *args: object) -> None:
        """Call a function in the event loop, from another thread; the loop may have ended."""
        with contextlib.suppress(RuntimeError):
            if self._loop:
                self._loop.call_soon_threadsafe(call, *args)

    async def _finish_running(self) -> None:
        if self._slots:
            await asyncio.wait(self._slots, timeout=self._grace)


class Pace:
    """Measures how many jobs end in a short time, which is how many to reserve ahead."""

    def __init__(self) -> None:
        self.finished = 0
        self._ahead = 0
        self._seen = 0
        self._since = time.monotonic()

    def ahead(self) -> int:
        """Return how many jobs to reserve beyond the free slots."""
        passed = time.monotonic() - self._since
        if passed >= AHEAD:
            self._ahead = min(int((self.finished - self._seen) / passed * AHEAD), MOST_AHEAD)
            self._since, self._seen = time.monotonic(), self.finished
        return self._ahead


def _log_end(job: Job, ended: Completion | Outcome, started: float) -> None:
    """Log how a run ended; the traceback only if it was the last try."""
    level, how, next_step = logging.INFO, "has completed", ""
    match ended:
        case Completion():
            pass
        case Outcome(error=None, goal=goal):
            how = "was cancelled" if goal == "cancelled" else "is given back"
        case Outcome(goal="buried"):
            level, how = logging.ERROR, "failed"
            next_step = f" and is buried: {ended.error}\n{ended.traceback or ''}".rstrip()
        case Outcome():
            level, how = logging.WARNING, "failed"
            next_step = f" and is tried again in {ended.delay / 1e6:g} s: {ended.error}"
    took = time.monotonic() - started
    topic = topic_said(job)
    log.log(level, "job %d of %s %s after %.3f s%s", job.seq, topic, how, took, next_step)


def _is_suspect(job: Job) -> bool:
    """Say whether a job was reserved more often than its counters explain."""
    return job.epoch - 1 > job.retries + job.timeouts + job.releases + job.crashes + job.buries


def _check_sandbox(task: Task[Any]) -> None:
    if task.sandbox:
        try:
            find_task(task.function.__module__, task.function.__qualname__)
        except SandboxFailed as error:
            raise Invalid(str(error)) from error


def _is_cancelled() -> bool:
    """Say whether the current task was cancelled, and not the one that it awaited."""
    task = asyncio.current_task()
    return bool(task and task.cancelling())


async def _at_most(seconds: float, waiting: Coroutine[Any, Any, object]) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(waiting, seconds)


async def _first_of(*waits: "asyncio.Event | asyncio.Task[Any]") -> None:
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
