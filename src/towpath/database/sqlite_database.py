"""SQLite: one file, one writer at a time, and as many readers as there are callers."""

import asyncio
import contextlib
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Condition
from typing import Any, Final, TypeVar

from towpath.database.borrowed import Address
from towpath.database.clock import Clock, machine_clock
from towpath.database.event_loops import running_loop
from towpath.database.forks import begin_anew_after_fork, hold_still_at_fork, keep_inherited
from towpath.database.group_commit import COMPANY_TICKS, Operations, Policy, tell
from towpath.database.opener import Opener
from towpath.database.sqlite import SqliteConnection, backup, execute, identity, translated
from towpath.database.sqlite_writer import NOTHING, Writer
from towpath.database.thread_lanes import ThreadLanes
from towpath.errors import AppClosed, DatabaseBusy, DatabaseError, DatabaseUnavailable
from towpath.operation import Mode, OnCommit, Operation, drive, value_of
from towpath.settings import Settings
from towpath.statement import Dialect

T = TypeVar("T")

READ: Final = Mode.READ  # looked up once: an enum is slow at that
SCAN: Final = Mode.SCAN
PATIENCE: Final = 5.0  # seconds that a fork waits for the readers


class SqliteDatabase:
    """Runs operations on a SQLite file, or on a private database in memory."""

    def __init__(
        self,
        path: Path | None,
        settings: Settings,
        clock: Clock | None,
        on_commit: OnCommit,
        on_leave: Callable[[], None],
    ) -> None:
        self.path = path
        self._on_commit = on_commit
        self._on_leave = on_leave  # called when the path names another file than the open one
        self.dialect: Dialect | None = "sqlite" if path else None
        self.address: Address | None = None
        self._settings = settings
        self._clock = clock or machine_clock
        self._closed = False
        self.opener = Opener(path, settings, on_leave)
        self._start()
        begin_anew_after_fork(self)
        if path is not None:
            hold_still_at_fork(self)

    def _start(self) -> None:
        self._writer = Writer(self.opener, self._settings, self._clock)
        self._lanes: ThreadLanes[Writer] = ThreadLanes(
            [self._writer],
            Writer.run,
            Policy(
                batch_size=self._settings.batch_size,
                batch_bytes=self._settings.batch_bytes,
                on_commit=self._on_commit,
                shared_errors=(DatabaseBusy, DatabaseUnavailable),
                company_ticks=COMPANY_TICKS,
                one_writer=True,
            ),
            self._lead_in_loop,
        )
        # Not for its connection: reads that tasks want in the same tick become one statement.
        self._reads: ThreadLanes[str] = ThreadLanes(
            ["reads"], self._read_all, Policy(batch_size=self._settings.batch_size)
        )
        self._readers: list[SqliteConnection] = []
        self._readers_lock = Condition()
        self._lent: weakref.WeakSet[Loan] = weakref.WeakSet()  # readers in use
        self._thread: ThreadPoolExecutor | None = None

    def start_again(self) -> None:
        """Start again in a forked child, which must not touch the parent's connections."""
        keep_inherited(self._writer, self._readers, self._thread)
        known = self.opener.known
        self.opener = Opener(self.opener.path, self._settings, self._on_leave, known=known)
        self._start()

    def before_fork(self) -> None:
        """Close every connection, when what is under way has ended."""
        self._writer.before_fork()
        self._readers_lock.acquire()
        self._readers_lock.wait_for(lambda: not self._lent, PATIENCE)
        self._close_readers()
        self.opener.close()

    def after_fork(self) -> None:
        """Go on."""
        self._readers_lock.release()
        self._writer.after_fork()

    def run(self, operation: Operation[T]) -> T:
        """Run an operation and block until it is committed."""
        self._check_open()
        if _writes(operation) or self.path is None:
            if running_loop() is not None:
                # Not through the inbox: the call before may wait for this very loop to lead.
                return tell(self._on_commit, operation, self._writer.run_aside(operation))
            return self._lanes.run(operation)
        return self._read(operation)

    async def arun(self, operation: Operation[T]) -> T:
        """Run an operation and await its commit."""
        self._check_open()
        if len(operation.batch.items) > self._settings.batch_size:  # too long for one tick
            return await asyncio.to_thread(self.run, operation)
        loop = asyncio.get_running_loop()
        if _writes(operation) or self.path is None:
            if self._writer.quick and self._lanes.is_lone(operation, loop):
                results = self._lanes.run_now(operation, Writer.try_lock, Writer.unlock)
                if results:
                    return results[0]
            return await self._lanes.arun(operation)
        if operation.mode is READ and self._readers:
            if operation.merge is None or self._reads.is_lone(operation, loop):
                return self._read(operation)
            return await self._reads.arun(operation)
        return await asyncio.to_thread(self._read, operation)  # opening the file may have to wait

    async def aquiet(self) -> None:
        """Wait for the calls before this one, also for those whose callers have gone."""
        # An error is theirs, if it shares their transaction; after a close nothing is under way.
        with contextlib.suppress(AppClosed, DatabaseError):
            await self._lanes.arun(NOTHING)

    def leads_here(self, place: str) -> bool:
        """Say whether the file of a caller's connection is this one; see `borrowed.WHERE`."""
        path = self.opener.path
        if path is None or not place:
            return False
        return identity(place) == identity(str(path)) is not None or Path(place) == path.resolve()

    def backup(self, target: Path) -> None:
        """Copy the file as it is at one instant to a new one."""
        self._check_open()
        backup(self.opener.path or Path(), target, self.opener.open)

    def reconnect(self) -> None:
        """Do nothing: a file has no connection that could be dead."""

    def close(self, patience: float) -> None:  # noqa: ARG002 - what is under way ends by itself
        """Finish what is under way and close the file."""
        if self._closed:
            return
        self._closed = True
        if self._writer.was_opened:
            self._lanes.run(NOTHING, last=True)  # behind all that is under way
        if self._thread:
            self._thread.shutdown()
        self._writer.shut_down()
        with self._readers_lock:
            self._close_readers()
        self.opener.close()

    async def aclose(self, patience: float) -> None:
        """Close, from an event loop."""
        await asyncio.to_thread(self.close, patience)

    def _close_readers(self) -> None:
        while self._readers:
            self._readers.pop().close()

    def _check_open(self) -> None:
        if self._closed:
            raise AppClosed

    def _lead_in_loop(self, writer: Writer) -> None:
        """Lead in the event loop if that is quick, else in a thread."""
        if writer.quick and writer.try_lock():
            # Unlocked before the lane is handed on, to a thread that may be quicker than this one.
            self._lanes.lead(writer, writer.unlock)
            return
        # This thread makes no calls of its own: it might wait for itself.
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "towpath-sqlite")
        self._lanes.lead_in(writer, self._thread.submit)

    def _read_all(self, _: str, operations: Operations, began: float) -> list[Any]:  # noqa: ARG002 - reads do not wait
        return [self._read(operation) for operation in operations]

    def _read(self, operation: Operation[T]) -> T:
        loan = Loan()
        connection: SqliteConnection | None = None
        try:
            with self._readers_lock:
                self._lent.add(loan)
                if self._readers and not self.opener.is_current(self._readers[-1]):
                    self._close_readers()
                connection = self._readers.pop() if self._readers else None
            with translated(self.path):
                connection = connection or self._open_reader()
                self.opener.check_now_and_then(connection)
                cursor, now = connection.cursor(), self._clock()
                if operation.autocommit:
                    return value_of(
                        drive(operation.steps(), lambda query: execute(cursor, query, now))
                    )
                cursor.execute("begin")  # one snapshot for all of its queries
                try:
                    return value_of(
                        drive(operation.steps(), lambda query: execute(cursor, query, now))
                    )
                finally:
                    cursor.execute("commit")
        except DatabaseError:
            if connection:
                connection.close()  # the cause may go away while an open file stays as it is
                connection = None
            raise
        finally:
            with self._readers_lock:
                if connection and self.opener.is_current(connection):
                    self._readers.append(connection)
                elif connection:
                    connection.close()
                self._lent.discard(loan)
                self._readers_lock.notify_all()

    def _open_reader(self) -> SqliteConnection:
        connection = self.opener.open()
        # A reader waits too, while the file is opened for the first or closed by the last.
        connection.execute(f"pragma busy_timeout = {round(self._settings.busy_timeout * 1000)}")
        return connection


def _writes(operation: Operation[Any]) -> bool:
    return operation.mode is not READ and operation.mode is not SCAN


class Loan:
    """Marks a reader as in use, for as long as the call that uses it lives."""
