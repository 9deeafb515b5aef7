"""The test kit: an app on a private database, whose clock moves only when a test advances it.

Jobs run only when a test calls `run`, by the same reservations, runs and outcomes as in a worker.
"""

import asyncio
import contextlib
import inspect
import secrets
import signal
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from weakref import WeakSet

from towpath import errors
from towpath.app.app import App
from towpath.app.context import Bury, Cancel, Retry
from towpath.app.tasks import CallOptions, Calls, Task
from towpath.errors import ExtraMissing, Invalid, JobFailed
from towpath.model.event import Event
from towpath.model.instants import Duration, as_datetime, as_timedelta, instant, microseconds
from towpath.model.job import Job, Lease
from towpath.model.sealing import new_key
from towpath.operation import Mode, Operation, Steps, answered
from towpath.settings import Settings
from towpath.statement import Statement
from towpath.store import job_output, leases, sessions, streams
from towpath.store.leases import Completion, Outcome
from towpath.worker.run import TaskRun
from towpath.worker.sandbox import Sandboxes
from towpath.worker.threads import Threads

if TYPE_CHECKING:
    from towpath.webhooks.memory import MemoryPoster, MemoryReceiver

T = TypeVar("T")

MOST_RUNS: Final = 1_000  # jobs of one `run`; beyond that a task seems to enqueue itself
_DROP: Final[Statement[Any]] = Statement(
    "drop", {"sqlite": "select 1", "postgres": "drop schema if exists {schema} cascade"}
)

_TABLES: Final[Statement[Any]] = Statement(
    "tables",
    {
        "sqlite": "select type, name from sqlite_master where name like 'towpath\\_%' escape '\\' "
        "and type in ('table', 'view') order by type desc",
        "postgres": "select '', '' where false",
    },
)

_USED: Final[Statement[Any]] = Statement(
    "used",
    {
        "any": "select 1 from towpath.job union all select 1 from towpath.schedule union all "
        "select 1 from towpath.account union all select 1 from towpath.api_key union all "
        "select 1 from towpath.channel union all select 1 from towpath.posted limit 1"
    },
)

_isolated: Final[WeakSet[App]] = WeakSet()


class Crash(BaseException):
    """Raised by a task under test to simulate a crash of the worker, as by kill -9."""


class Clock:
    """A clock that moves only by `advance`."""

    def __init__(self, now: datetime) -> None:
        self._us = instant(now, "now")

    def __call__(self) -> int:
        """Return microseconds since 1970, as the database stores them."""
        return self._us

    @property
    def now(self) -> datetime:
        """The current time."""
        return as_datetime(self._us)

    def advance(self, duration: Duration) -> None:
        """Move the clock forward."""
        self._us += microseconds(duration)


class IsolatedJobs:
    """The jobs of an app under test: `app`, its `clock`, and the verbs of a test.

    `url` is that of the private database, as it was given: with SQLAlchemy's driver, if it has one.
    A connection to it can be passed as `connection=`.
    """

    def __init__(self, app: App, url: str, clock: Clock) -> None:
        self.app = app
        self.url = url
        self.clock = clock
        self._crashing = False
        self._dead: dict[int, int] = {}  # sessions of workers that crashed, and when
        self._poster: MemoryPoster | None = None

    def run(self, *tasks: Task[Any], raises: bool = True) -> list[Job]:
        """Run ready jobs, most urgent first, until none is left; only of these tasks, if given.

        Jobs of other tasks that share a topic with these are given back at the end. Returns the
        jobs that ran, as they are now; a job that ran twice is returned twice. An error in a task
        is stored with its job, as always, and then raised here; with `raises=False` the next job
        runs. Blocking tasks run in the caller's thread; in the main thread a task past its time
        limit is interrupted. Sandboxed tasks run in this process, without a memory limit.
        """
        here = _CallersThread()
        return here.serve(self._run(tasks, here, raises=raises))

    async def arun(self, *tasks: Task[Any], raises: bool = True) -> list[Job]:
        """Run ready jobs in the caller's event loop; blocking tasks run in a thread."""
        return await self._run(tasks, None, raises=raises)

    @contextlib.contextmanager
    def crashing(self) -> Generator[None]:
        """Crash the worker when the first job has run, before its outcome is written.

        The job stays reserved until `dead_after` has passed, then it runs again. Code after `run`
        in the block is skipped.
        """
        self._crashing = True
        try:
            yield
        except Crash:
            return
        finally:
            self._crashing = False
        msg = "no worker crashed, as no job ran; enqueue a job before"
        raise AssertionError(msg)

    async def _run(
        self, tasks: tuple[Task[Any], ...], here: "_CallersThread | None", *, raises: bool
    ) -> list[Job]:
        topics = [task.topic for task in tasks] or list(self.app.tasks)
        if not topics:
            msg = "the app has no tasks; import the modules that define them"
            raise Invalid(msg)
        await self._bury_dead_sessions()
        await self.app.schedules.adeclare()
        await asyncio.to_thread(self.app.upkeep.run)
        session = await self.app.sessions.astart("towpath.testing")
        ran: list[Job] = []
        aside: list[Lease] = []  # of other tasks; given back at once they would be next again
        doing = asyncio.current_task()
        try:
            while found := await self.app.jobs.areserve(topics, session=session):
                if len(ran) == MOST_RUNS:
                    msg = f"{MOST_RUNS} jobs ran and more are ready: does a task enqueue itself?"
                    raise AssertionError(msg)
                await self.app.sessions.abeat(session, found)
                if tasks and self._task_of(found[0].job) not in tasks:
                    aside += found
                    continue
                job, error = await self._ended(found[0], here)
                ran.append(job)
                if doing and doing.cancelling():  # the run has swallowed the cancellation
                    raise asyncio.CancelledError
                if raises and error:
                    raise error
        except Crash:
            self._dead[session] = self.clock()
            raise
        finally:
            if aside:  # also after a crash, which was not theirs
                await self.app.arun(leases.give_back(aside, []))
            if session not in self._dead:
                await self.app.sessions.aend(session)
        return ran

    async def _ended(
        self, lease: Lease, here: "_CallersThread | None"
    ) -> tuple[Job, Exception | None]:
        """Run one job as a worker does; return it, and the error that made it fail."""
        found = self._task_of(lease.job)
        if found is None:
            msg = f"the app has no task for job {lease.job.id} of topic {lease.job.topic!r}"
            raise AssertionError(msg)
        watched = _Watched(found, here)
        threads = Threads()
        try:
            loop = asyncio.get_running_loop()
            run = TaskRun(self.app, lease, threads, lambda _: None, loop)
            if run.context.speech is not None:
                run.context.speech.is_bounded = False  # it is written when the run has ended
            ended = await run.end(watched.task, Sandboxes())
        finally:
            threads.close()
            if here:
                here.interrupt()  # what runs longer than its job
        if self._crashing or isinstance(watched.raised, Crash):
            raise Crash
        if isinstance(watched.raised, KeyboardInterrupt):
            raise watched.raised  # the user wants to stop the tests
        if run.context.notes:
            await self.app.arun(job_output.write(run.context.notes.take()))
        speech = run.context.speech
        while speech is not None and (say := speech.next()):
            [answer] = await self.app.arun(streams.say([say]))
            speech.written(answered(answer))
        if isinstance(ended, Completion):
            await self.app.arun(leases.complete([ended]))
            error = None
        else:
            await self.app.arun(leases.settle([ended]))
            error = watched.error_behind(ended)
        return await self.app.jobs.aget(lease.job), error

    async def _bury_dead_sessions(self) -> None:
        """Take back the leases of crashed workers; upkeep would need several rounds for it."""
        dead_after = microseconds(self.app.settings.dead_after)
        for session, beats, now in await self.app.arun(sessions.observe()):
            if session in self._dead and now >= self._dead[session] + dead_after:
                await self.app.arun(sessions.bury_session(session, beats))

    def receiver(self, url: str = "https://receiver.example/hook") -> "MemoryReceiver":
        """Return the receiver of webhooks at a URL, in memory; the network is never used."""
        receivers = self._receivers().receivers
        from towpath.webhooks.memory import MemoryReceiver  # noqa: PLC0415 - an extra

        return receivers.setdefault(url, MemoryReceiver(url))

    def deliver(self) -> int:
        """Make every webhook attempt that is due now; say how many. Later ones follow the clock."""
        return _CallersThread().serve(self.adeliver())

    async def adeliver(self) -> int:
        """Make every webhook attempt that is due now; say how many. Later ones follow the clock."""
        poster = self._receivers()
        from towpath.webhooks.running import deliver_due  # noqa: PLC0415 - an extra
        from towpath.webhooks.sender import WebhookSender  # noqa: PLC0415 - an extra

        await asyncio.to_thread(self.app.upkeep.run)
        async with WebhookSender(poster=poster) as sender:
            return await deliver_due(self.app, sender)

    def _receivers(self) -> "MemoryPoster":
        try:
            from towpath.webhooks.memory import MemoryPoster  # noqa: PLC0415 - an extra
        except ImportError as error:
            msg = f"webhooks need the package {error.name}: pip install 'towpath[webhooks]'"
            raise ExtraMissing(msg) from error
        self._poster = self._poster or MemoryPoster()
        return self._poster

    def enqueued(self, task: Task[Any] | None = None) -> list[Job]:
        """Return the jobs that wait to run, now or later, in the order of their enqueue."""
        topic = task.topic if task else None
        jobs: list[Job] = []
        while page := self.app.jobs.list(
            topic=topic, status="pending", limit=1_000, before=jobs[-1] if jobs else None
        ):
            jobs += page
        return [job for job in jobs[::-1] if task is None or self._task_of(job) is task]

    def _task_of(self, job: Job) -> Task[Any] | None:
        return self.app.tasks.find(job.topic, job.task_name)

    def assert_enqueued(self, task: Calls[Any], *args: Any, **kwargs: Any) -> Job:
        """Return the first waiting job of a task with these arguments; it may have others.

        Options are passed as in the call: `assert_enqueued(send.using(delay="15m"), to="ada")`.
        """
        __tracebackhide__ = True
        wanted, options = _opened(task)
        waiting = self.enqueued(wanted)
        given = _parameters(wanted).bind_partial(*args, **kwargs).arguments
        for job in waiting:
            if given.items() <= _arguments(wanted, job).items() and _has_options(job, options):
                return job
        shown = ", ".join(f"{name}={value!r}" for name, value in {**given, **options}.items())
        lines = [f"no job of {wanted.name!r} waits with {shown or 'any arguments'}; waiting jobs:"]
        lines += [f"  {_shown(job)}" for job in waiting] or ["  none"]
        raise AssertionError("\n".join(lines))

    def assert_nothing_enqueued(self, task: Task[Any] | None = None) -> None:
        """Fail if a job waits."""
        __tracebackhide__ = True
        waiting = self.enqueued(task)
        if waiting:
            count = "1 job waits" if len(waiting) == 1 else f"{len(waiting)} jobs wait"
            lines = [count, *(f"  {_shown(job)}" for job in waiting)]
            raise AssertionError("\n".join(lines))

    def published(self, channel: str) -> list[Event]:
        """Return the events of a channel that are kept, oldest first."""
        events: list[Event] = []
        cursor: str | None = None
        while True:
            page = self.app.events.read(channel, cursor)
            events += page.events
            cursor = page.cursor
            if page.is_current:
                return events

    def assert_published(
        self, channel: str, payload: object = ..., *, type: str | None = None
    ) -> Event:
        """Return the first event of a channel with this payload and type, as far as given.

        If the payload is a dict, the event's may have other keys.
        """
        __tracebackhide__ = True
        events = self.published(channel)
        for event in events:
            if type in {None, event.type} and (payload is ... or _has_payload(event, payload)):
                return event
        wanted = [] if payload is ... else [f"the payload {payload!r}"]
        wanted += [] if type is None else [f"the type {type!r}"]
        lines = [f"no event of {channel!r} has {' and '.join(wanted) or 'come'}; its events:"]
        lines += [f"  {event.type or '-'} {event.body}" for event in events] or ["  none"]
        raise AssertionError("\n".join(lines))

    def assert_nothing_published(self, channel: str) -> None:
        """Fail if a channel has an event."""
        __tracebackhide__ = True
        if events := self.published(channel):
            lines = [f"{channel!r} has {len(events)} events"]
            lines += [f"  {event.type or '-'} {event.body}" for event in events]
            raise AssertionError("\n".join(lines))


@contextlib.contextmanager
def isolated(
    app: App,
    url: str | None = None,  # None: a temporary SQLite file
    *,
    now: datetime | None = None,  # where the clock begins; None: the present
) -> Generator[IsolatedJobs]:
    """Give an app and its tasks a private database and a clock that a test controls.

    Without a URL that is a temporary SQLite file. With the URL of another database, such as the
    one that your tests use, Towpath makes tables of its own there and drops them at the end: on
    PostgreSQL in a separate schema, on SQLite only in a file that has no jobs. A connection to
    this database can be passed as `connection=`. At the end the app is as before.
    """
    if app in _isolated:
        msg = "this app is isolated already; run one test at a time in a process"
        raise Invalid(msg)
    clock = Clock(now or datetime.now(UTC))
    before = dict(vars(app))
    with TemporaryDirectory(prefix="towpath-test-") as directory:
        url = url or f"sqlite:///{directory}/test.db"
        try:
            app.attach(url, _private(app.settings), clock)
        except Invalid:
            vars(app).update(before)
            raise
        _isolated.add(app)
        app.stands_still = True
        try:
            theirs = app._database.run(Operation("tables", _tables, Mode.READ))  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - before ours are made
            if "towpath_migration" in theirs:
                _refuse_used(app)
            app.migrate()  # not later, beside a transaction of the test
            try:
                yield IsolatedJobs(app, url, clock)
            finally:
                if "towpath_migration" in theirs:
                    app.delete_everything()
                else:
                    app.run(Operation("drop", partial(_drop, theirs)))
        finally:
            app.close()
            vars(app).update(before)
            _isolated.discard(app)


def _refuse_used(app: App) -> None:
    """Refuse a file in use: `run` would run its jobs, and the end of the test delete all."""
    if app.run(Operation("is_used", _is_used, Mode.READ)):
        msg = f"{app.database} has jobs, events, schedules or accounts; give a new file, or no URL"
        raise Invalid(msg)


def _is_used() -> Steps[bool]:
    return bool((yield _USED()))


def named_app(name: str) -> App:
    """Import an app by a name such as `shop.jobs:app`."""
    module, _, attribute = name.partition(":")
    app = getattr(import_module(module), attribute or "app", None)
    if not isinstance(app, App):
        msg = f"{name!r} is not an app; name one as module:app"
        raise Invalid(msg)
    return app


def _private(settings: Settings) -> Settings:
    schema = f"towpath_test_{secrets.token_hex(6)}"
    key = settings.webhook_key or new_key()
    return replace(settings, schema=schema, migrate=True, durability="normal", webhook_key=key)


def _tables() -> Steps[set[str]]:
    return {name for _, name in (yield _TABLES())}


def _drop(theirs: set[str]) -> Steps[None]:
    """Drop our tables, and none that was there before."""
    for kind, name in (yield _TABLES()):
        if name not in theirs:
            yield Statement("drop_table", {"sqlite": f'drop {kind} if exists "{name}"'})()
    yield _DROP()


class _Watched:
    """A task that keeps its error, and whose blocking code runs in the caller's thread."""

    def __init__(self, task: Task[Any], here: "_CallersThread | None") -> None:
        self.raised: BaseException | None = None
        self.task = copy(task)
        self.task.sandbox = False  # another process would not see the patches of a test
        self.task.function = self._awaited if task.is_async else self._called
        self._function = task.function
        self._here = here

    def error_behind(self, outcome: Outcome) -> Exception | None:
        """Return the error of a failed job: the task's own, or Towpath's, such as a timeout."""
        if outcome.error is None or isinstance(self.raised, Retry | Cancel | Bury):
            return None  # these are requests, not errors
        if isinstance(self.raised, Exception):
            return self.raised
        name, _, message = outcome.error.partition(": ")
        kind = getattr(errors, name, None)
        return kind(message) if kind else JobFailed(outcome.error)

    async def _awaited(self, *args: Any, **kwargs: Any) -> Any:
        with self._remembering():
            return await self._function(*args, **kwargs)

    def _called(self, *args: Any, **kwargs: Any) -> Any:
        with self._remembering():
            if self._here is None:
                return self._function(*args, **kwargs)
            return self._here.call(partial(self._function, *args, **kwargs))

    @contextlib.contextmanager
    def _remembering(self) -> Generator[None]:
        try:
            yield
        except asyncio.CancelledError:
            raise  # a time limit
        except BaseException as error:
            self.raised = error
            raise


class _CallersThread:
    """Runs blocking tasks in the thread of the test, as resources may be bound to it."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread = threading.current_thread()
        self._is_calling = self._is_overdue = False

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in the caller's thread, and wait for it."""
        future: Future[T] = Future()
        self._calls.put((future, function))
        return future.result()

    def serve(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop of another thread, and its calls in this one."""
        loop = asyncio.new_event_loop()
        doing = loop.create_task(work)
        with self._interruptible(), ThreadPoolExecutor(1, "towpath-testing") as threads:
            ending = threads.submit(copy_context().run, _complete, loop, doing)
            ending.add_done_callback(lambda _: self._calls.put(None))
            try:
                while call := self._calls.get():
                    self._fulfil(*call)
            except BaseException:  # such as KeyboardInterrupt
                loop.call_soon_threadsafe(doing.cancel)
                while call := self._calls.get():
                    call[0].cancel()
                raise
            return ending.result()

    def interrupt(self) -> None:
        """Interrupt a call that is still running, if this is the main thread."""
        if self._is_calling and self._thread is threading.main_thread():
            self._is_overdue = True
            signal.pthread_kill(self._thread.ident or 0, signal.SIGUSR1)

    @contextlib.contextmanager
    def _interruptible(self) -> Generator[None]:
        if self._thread is not threading.main_thread():
            yield
            return
        before = signal.getsignal(signal.SIGUSR1)

        def handle(number: int, frame: FrameType | None) -> None:
            if self._is_overdue:
                self._is_overdue = False
                if self._is_calling:
                    raise _Overdue
            elif callable(before):
                before(number, frame)

        signal.signal(signal.SIGUSR1, handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGUSR1, before)

    def _fulfil(self, future: "Future[Any]", function: Callable[[], Any]) -> None:
        self._is_calling = True
        try:
            result = function()
            self._is_calling = False
        except BaseException as error:  # noqa: BLE001 - passed on to the caller, also a Crash
            self._is_calling = False
            future.set_exception(error)
        else:
            future.set_result(result)


class _Overdue(BaseException):
    """Ends a task that runs longer than its job."""


def _complete(loop: asyncio.AbstractEventLoop, doing: "asyncio.Task[T]") -> T:
    try:
        return loop.run_until_complete(doing)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def _opened(task: Calls[Any]) -> tuple[Task[Any], CallOptions]:
    return task._task, task._given  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - only the test kit reads them


def _parameters(task: Task[Any]) -> inspect.Signature:
    """Return the parameters of a task without its context."""
    own = list(inspect.signature(task.function).parameters.values())
    return inspect.Signature(own[1:] if task.signature.takes_context else own)


def _arguments(task: Task[Any], job: Job) -> dict[str, Any]:
    args, kwargs = task.signature.decode(job.body)
    bound = _parameters(task).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def _has_options(job: Job, options: CallOptions) -> bool:
    return all(_OPTIONS[name](job, value) for name, value in options.items() if name in _OPTIONS)


def _has_payload(event: Event, wanted: object) -> bool:
    found = event.payload
    if isinstance(wanted, dict) and isinstance(found, dict):
        return cast("dict[str, object]", found) | wanted == found
    return bool(found == wanted)


def _stored_option(name: str) -> Callable[[Job, Any], bool]:
    return lambda job, value: getattr(job.options, name) == value


def _stored_duration(name: str) -> Callable[[Job, Any], bool]:
    return lambda job, value: getattr(job.options, name) == microseconds(value) / 1e6


_OPTIONS: Final[dict[str, Callable[[Job, Any], bool]]] = {
    "id": lambda job, wanted: job.id == wanted,
    "priority": lambda job, priority: job.priority == priority,
    "delay": lambda job, delay: job.run_at - job.created_at == as_timedelta(microseconds(delay)),
    "run_at": lambda job, run_at: job.run_at == run_at,
    "ttr": lambda job, ttr: job.ttr == as_timedelta(microseconds(ttr)),
    "key": lambda job, key: job.key == key,
    "max_retries": _stored_option("max_retries"),
    "max_crashes": _stored_option("max_crashes"),
    "timeout": _stored_duration("timeout"),
    "retention": _stored_duration("retention"),
    "backoff": _stored_option("backoff"),
}


def _shown(job: Job) -> str:
    wait = job.run_at - job.created_at
    return f"{job.task_name or job.topic} {job.body}" + (f" delay={wait}" if wait else "")
