"""App: one database and the verbs on it."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Generator
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Final, Never, Self, TypeVar, Unpack

from msgspec import Struct

from towpath.app.access import AccessVerbs
from towpath.app.accounts import Accounts
from towpath.app.acting import Acting
from towpath.app.acts import Acts
from towpath.app.bulk import BulkActs
from towpath.app.checks import EnqueueOptions
from towpath.app.checkup import Check
from towpath.app.connect import open_database, without_driver, without_password
from towpath.app.delay_queue import Queue, Queues
from towpath.app.deliveries import DeliveryVerbs
from towpath.app.doctor import Doctor
from towpath.app.durable_streams import DurableStreams
from towpath.app.enqueueing import Enqueueing
from towpath.app.events import Events
from towpath.app.jobs import Jobs
from towpath.app.keys import Keys
from towpath.app.limits import Limits
from towpath.app.low_water import LowWater
from towpath.app.middleware import AroundEnqueue, AroundRun, Middleware
from towpath.app.schedules import Declaration, Schedules
from towpath.app.sessions import Sessions, new_number
from towpath.app.tasks import Decorator, TaskOptions, Tasks
from towpath.app.topics import Topics
from towpath.app.upkeep import Upkeep
from towpath.app.waiters import Waiters
from towpath.app.webhooks import Webhooks
from towpath.database.borrowed import Borrower, arun_borrowed, run_borrowed
from towpath.database.clock import Clock
from towpath.database.forks import begin_anew_after_fork
from towpath.database.sqlite_database import SqliteDatabase
from towpath.errors import DatabaseDenied, Invalid, SchemaMissing
from towpath.model.instants import Duration, microseconds
from towpath.model.sagas import Role
from towpath.model.schedule import CatchUp, rule_of
from towpath.model.stats import Stats
from towpath.operation import Changed, Operation, Steps
from towpath.settings import Settings
from towpath.store import schema, sessions, stats

T = TypeVar("T")

PATIENCE: Final = 5.0  # seconds that a close waits for calls in progress


class Recovery(Struct, frozen=True, kw_only=True):
    """The unfinished jobs after a restart. Nothing is kept only in memory, so none is missing."""

    ready: int
    delayed: int
    reserved: int
    buried: int
    complete: bool = True


class App:
    """One database, and the jobs in it.

    The app opens nothing before its first use, and it is safe to fork; with memory:// a forked
    child begins with an empty database. Every verb has an async twin whose name begins with a:
    `enqueue` and `aenqueue`. `with App(…) as app:` closes it at the end; a program that uses the
    app until it ends need not close it.
    """

    def __init__(
        self,
        url: str | None = None,  # sqlite:///FILE, postgresql://…, memory://; TOWPATH_DATABASE
        *,
        settings: Settings | None = None,  # instead of settings by name and the environment
        clock: Clock | None = None,  # microseconds since 1970, for tests
        **given: Any,
    ) -> None:
        self._migrating = Lock()
        self.stands_still = False  # set by the test kit: jobs run only when the test runs them
        self.middleware = Middleware()
        self.tasks = Tasks(self)
        self.attach(
            url or os.environ.get("TOWPATH_DATABASE", "sqlite:///towpath.db"),
            settings or Settings.from_environment(**given),
            clock,
        )
        self.schedules = Schedules(self)
        begin_anew_after_fork(self)

    def attach(self, url: str, settings: Settings, clock: Clock | None) -> None:
        """Use this database from now on; a database attached before is not closed."""
        self.url = url = without_driver(url)
        self.settings = settings
        self._database, self._wakeups = open_database(
            url, settings, clock, self._tell, self._forget_tables
        )
        self.database = without_password(url)
        self._room = Waiters(self._wakeups, max_waiters=settings.max_waiters_per_topic)
        self._borrower = Borrower(
            self._database.dialect,
            settings.schema,
            settings.lifecycle,
            clock,
            self._wakeups.ring,
            self._database.leads_here,
            self._database.address,
        )
        self._marks = LowWater(kept=self._database.dialect == "postgres")
        self._migrated = False
        self._migrations: set[object] = set()  # one object for each migration in progress
        self.declared: set[str] = set()  # names of declared schedules that are stored
        self._migrated_in_passing = False  # in a caller's transaction, which may be rolled back
        self.storing = Enqueueing(settings)
        self.jobs = Jobs(self, self._room, self._marks)
        self.topics = Topics(self)
        self.events = Events(self, self._wakeups)
        self.acts = Acts(self)
        self.bulk = BulkActs(self)
        self.durable_streams = DurableStreams(self)
        self.webhooks = Webhooks(self)
        self.queues = Queues(self)
        self.limits = Limits(self)
        self.sessions = Sessions(self)
        self.accounts = Accounts(self)
        self.keys = Keys(self)
        self.access = AccessVerbs(self, self._wakeups)
        self.deliveries = DeliveryVerbs(self)
        self.upkeep = Upkeep(self)

    def start_again(self) -> None:
        """Reset the app's own state in a forked child; its parts reset theirs."""
        self._migrating = Lock()
        self._migrations.clear()
        self._migrated = False  # with memory:// the child has a new, empty database

    def queue(self, topic: str) -> Queue:
        """Return the delay-queue verbs of a topic."""
        return Queue(self, topic, self._room)

    def acting(self, role: Role) -> Acting:
        """Return the app in one role of the work on webhooks."""
        return Acting(self, role, self._wakeups)

    def task(self, *wrong: Never, **options: Unpack[TaskOptions]) -> Decorator:
        """Make a task of a function: its calls can be enqueued as jobs."""
        if wrong:
            msg = "write `@app.task()` with parentheses, and pass options by name"
            raise Invalid(msg)
        return Decorator(self.tasks, options)

    def schedule(
        self,
        cron: str | None = None,
        *,
        every: Duration | None = None,
        tz: str | None = None,
        name: str | None = None,
        catch_up: CatchUp = "latest",
        **options: Unpack[EnqueueOptions],
    ) -> Declaration:
        """Enqueue a task by a rule: `cron` in a time zone, or `every`. Stored by `declare`.

        A decorator above `@app.task()`; `app.schedule(…, name=…)(task, …)` also passes arguments.
        The job's `run_at` is the time of the fire. Missed fires become one job; with
        catch_up="skip" none; with "all" one job each, at most 1,000.
        """
        return self.schedules.declaration(name, rule_of(cron, every, tz), catch_up, options)

    def around_enqueue(self, function: AroundEnqueue) -> AroundEnqueue:
        """Call a generator function around every enqueue, with the topic and the headers.

        The headers that it adds are stored with the jobs.
        """
        self.middleware.add_around_enqueue(function)
        return function

    def around_run(self, function: AroundRun) -> AroundRun:
        """Call an async generator function around every run by a worker, with its Context."""
        self.middleware.add_around_run(function)
        return function

    def run(self, operation: Operation[T], connection: object = None) -> T:
        """Run an operation; with a connection, in that connection's transaction."""
        if connection is not None:
            self._wakeups.check_open()
            return run_borrowed(self._ready_for(operation), connection, self._borrower)
        if not self._migrated:
            self.migrate()
        return self._database.run(operation)

    async def arun(self, operation: Operation[T], connection: object = None) -> T:
        """Run an operation; with a connection, in that connection's transaction."""
        if connection is not None:
            self._wakeups.check_open()
            return await arun_borrowed(self._ready_for(operation), connection, self._borrower)
        if not self._migrated:
            await self.amigrate()
        return await self._database.arun(operation)

    def migrate(self) -> None:
        """Create or update Towpath's tables if needed."""
        if self._migrated:
            return
        # Before the lock, behind which each thread would wait for the error of the one before.
        if not self._database.run(schema.is_current()):
            if not self.settings.migrate:
                self._database.run(schema.require_current())
            with self._migrating, self._migration():
                if not self._migrated:
                    self._database.run(schema.migrate())
        self._migrated = True

    async def amigrate(self) -> None:
        """Create or update Towpath's tables if needed."""
        if self._migrated:
            return
        if not await self._database.arun(schema.is_current()):
            if not self.settings.migrate:
                await self._database.arun(schema.require_current())
            with self._migration():
                await self._database.arun(schema.migrate())
        self._migrated = True

    def delete_everything(self) -> None:
        """Delete all that is stored: jobs, schedules, accounts, keys. Meant for tests."""
        self.run(schema.empty())

    def probe(self) -> None:
        """Write and roll back; raise the error if the database does not accept writes."""
        self.run(sessions.probe_write(new_number()))

    async def aprobe(self) -> None:
        """Write and roll back; raise the error if the database does not accept writes."""
        await self.arun(sessions.probe_write(new_number()))

    def recovery(self) -> Recovery:
        """Count the stored, unfinished jobs; a restart loses none of them."""
        return _recovery(self.run(stats.overall()))

    async def arecovery(self) -> Recovery:
        """Count the stored, unfinished jobs; a restart loses none of them."""
        return _recovery(await self.arun(stats.overall()))

    def wait_for_recovery(self, timeout: float | None = None) -> Recovery:  # noqa: ARG002 - never long
        """Return when all jobs from before the restart can be reserved, which is at once."""
        return self.recovery()

    def doctor(self, patience: Duration = 60) -> list[Check]:
        """Check the database, and look for jobs that have waited longer than `patience`.

        The checks change nothing: missing tables are not created.
        """
        doctor = Doctor(self._database, self.url, self.settings, microseconds(patience))
        return list(doctor.checks())

    async def adoctor(self, patience: Duration = 60) -> list[Check]:
        """Check the database, and look for jobs that have waited longer than `patience`.

        The checks change nothing: missing tables are not created.
        """
        return await asyncio.to_thread(self.doctor, patience)

    def backup(self, target: str | Path) -> None:
        """Copy the SQLite file as it is at one instant; other processes can keep writing.

        The copy is complete and on disk when this returns; after an error there is no copy.
        """
        if not isinstance(self._database, SqliteDatabase) or self._database.path is None:
            msg = f"{self.database} is not a SQLite file; use the backup tool of the database"
            raise Invalid(msg)
        self._database.backup(Path(target))

    async def abackup(self, target: str | Path) -> None:
        """Copy the SQLite file as it is at one instant; other processes can keep writing."""
        await asyncio.to_thread(self.backup, target)

    async def aquiet(self) -> None:
        """Wait for all operations that this event loop has started, also abandoned ones."""
        await self._database.aquiet()

    def reconnect(self) -> None:
        """Close every connection: calls that wait for an answer are repeated on a new one.

        A call that may not be repeated raises DatabaseUnavailable, as after any lost connection.
        During a migration this does nothing, as a migration may take long.
        """
        if not self._migrations:
            self._database.reconnect()

    def close(self, patience: float = PATIENCE) -> None:
        """Finish the calls in progress and close every connection. The app cannot be used again.

        A call that a server has not answered after `patience` seconds is abandoned.
        """
        left = _countdown(patience)
        self.upkeep.stop(left())
        self._wakeups.close(left())
        self._database.close(left())

    async def aclose(self, patience: float = PATIENCE) -> None:
        """Close, from an event loop."""
        left = _countdown(patience)
        await asyncio.to_thread(self.upkeep.stop, left())
        await asyncio.to_thread(self._wakeups.close, left())
        await self._database.aclose(left())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.aclose()

    def _forget_tables(self) -> None:
        """Make the next call check the tables again."""
        self._migrated = False

    def _tell(self, changed: Changed[Any]) -> None:
        """Ring for what an operation has changed."""
        if not changed.appends:
            self._marks.drop(changed.topics)
        elif not self._wakeups.hears:
            return
        self._wakeups.ring(changed.wakeups)

    @contextlib.contextmanager
    def _migration(self) -> Generator[None]:
        migration = object()  # a set is thread-safe without a lock, a counter is not
        self._migrations.add(migration)
        try:
            yield
        except DatabaseDenied as error:
            msg = (
                "Towpath's tables do not exist or are too old, and this role may not change them; "
                f"run `towpath migrate` as a role that may, or grant it the right ({error})"
            )
            raise SchemaMissing(msg) from error
        finally:
            self._migrations.discard(migration)

    def _ready_for(self, operation: Operation[T]) -> Operation[T]:
        """Return the operation, with a migration before it in the same transaction if needed."""
        if self._migrated:
            return operation

        def steps() -> Steps[T | Changed[T]]:
            if not (yield from schema.is_current().start()):
                if not self.settings.migrate:
                    yield from schema.require_current().start()
                self._migrated_in_passing = True
                yield from schema.migrate().start()
            elif not self._migrated_in_passing:  # else a rollback may remove the tables again
                self._migrated = True
            return (yield from operation.start())

        return Operation(operation.name, steps)


def _countdown(seconds: float) -> Callable[[], float]:
    """Return a function that gives the seconds that are left."""
    until = time.monotonic() + seconds
    return lambda: max(0.0, until - time.monotonic())


def _recovery(counts: Stats) -> Recovery:
    return Recovery(
        ready=counts.ready, delayed=counts.delayed, reserved=counts.reserved, buried=counts.buried
    )
