"""SQLite: one file, one writer at a time, and everybody's turn in order."""

import asyncio
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Condition
from typing import Any, Final, TypeVar

from towpath.database.batch import run_batch, tell
from towpath.database.calls import LeadingLoopCall, LoopCall, running_loop
from towpath.database.clock import Clock, machine_clock
from towpath.database.forks import begin_anew_after_fork, hold_still_at_fork, keep_inherited
from towpath.database.lanes import Lanes
from towpath.database.opener import Opener
from towpath.database.sqlite import SqliteConnection, backup, execute, translated
from towpath.database.sqlite_writer import CLOSING, Writer
from towpath.errors import AppClosed, DatabaseBusy, DatabaseError, DatabaseUnavailable
from towpath.operation import Changed, Mode, OnCommit, Operation, drive, value_of
from towpath.settings import Settings
from towpath.statement import Dialect

T = TypeVar("T")

WRITE: Final = Mode.WRITE  # looked up once: an enum is slow at that
MOMENT: Final = 0.001  # seconds that a loop may commit at once before it ticks
PATIENCE: Final = 5.0  # seconds that a fork waits for those who read


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
        self._lanes: Lanes[Writer] = Lanes(
            [self._writer],
            Writer.run,
            self._settings.batch_size,
            self._on_commit,
            (DatabaseBusy, DatabaseUnavailable),
            one_writer=True,
        )
        self._alone = Alone()
        self._reading = Alone()
        self._together = SharedReads(self._read, self._reading)
        self._readers: list[SqliteConnection] = []
        self._readers_lock = Condition()
        self._lent: weakref.WeakSet[Loan] = weakref.WeakSet()  # readers in use
        self._thread: ThreadPoolExecutor | None = None

    def start_again(self) -> None:
        """Begin anew in a forked child, where the parent's connections must not be touched."""
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
        if operation.mode is WRITE or self.path is None:
            if running_loop() is not None:
                # Not in line: the lane may be waiting for this very loop to lead it.
                return tell(self._on_commit, operation, self._writer.run_aside(operation))
            return self._lanes.run(operation)
        return self._read(operation)

    async def arun(self, operation: Operation[T]) -> T:
        """Run an operation and await its commit."""
        self._check_open()
        if len(operation.batch.items) > self._settings.batch_size:  # too long for one tick
            return await asyncio.to_thread(self.run, operation)
        if operation.mode is WRITE or self.path is None:
            loop = asyncio.get_running_loop()
            if self._writer.quick and self._alone.may_go(loop):
                results = self._lanes.run_now(operation, Writer.try_lock, Writer.unlock)
                if results:
                    return results[0]
            call = LeadingLoopCall(operation, loop, self._lanes.take_over, self._look_in_loop)
            if self._lanes.leave(call):
                # Not at once but in the next tick: whoever else is ready now shares the commit.
                loop.call_soon(self._look_in_loop)
            return await call.answer()  # type: ignore[no-any-return] # the operation's own
        if operation.mode is Mode.READ and self._readers:
            loop = asyncio.get_running_loop()
            if operation.merge is None or self._reading.may_go(loop):
                return self._read(operation)
            return await self._together.read(operation, loop)
        return await asyncio.to_thread(self._read, operation)  # opening the file may have to wait

    async def aquiet(self) -> None:
        """Do nothing: whatever comes next is done behind all that was asked for before."""

    def backup(self, target: Path) -> None:
        """Copy the file as it is at one instant to a new one."""
        self._check_open()
        backup(self.opener.path or Path(), target, self.opener.open)

    def reconnect(self) -> None:
        """Do nothing: between us and a file there is no line that could be dead."""

    def close(self, patience: float) -> None:  # noqa: ARG002 - what is under way ends by itself
        """Finish what is under way and close the file."""
        if self._closed:
            return
        self._closed = True
        if self._writer.was_opened:
            self._lanes.run(CLOSING, last=True)  # behind all that is under way
        if self._thread:
            self._thread.shutdown()
        self._writer.close()
        with self._readers_lock:
            self._close_readers()
        self.opener.close()

    def _close_readers(self) -> None:
        while self._readers:
            self._readers.pop().close()

    def _check_open(self) -> None:
        if self._closed:
            raise AppClosed

    def _look_in_loop(self) -> None:
        """Lead, if nobody else does: in the event loop if that is quick, else in a thread."""
        writer = self._lanes.free()
        if writer is None:
            return
        if writer.quick and writer.try_lock():
            # Unlocked before the lane is handed on, to a thread that may be quicker than this one.
            self._alone.crowded = self._lanes.lead(writer, writer.unlock) > 1
            return
        self._lead_in_thread(writer)

    def _lead_in_thread(self, writer: Writer) -> None:
        # The thread leads and never waits in line: it would wait for itself.
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "towpath-sqlite")
        self._thread.submit(self._lanes.lead, writer)

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


class Alone:
    """Who may go at once: whoever is alone, for a moment of each tick of its event loop.

    Where several call in one tick, all but the first wait for the next and share a commit.
    """

    def __init__(self) -> None:
        self.crowded = False  # several shared the last commit that a loop led
        self._loop: asyncio.AbstractEventLoop | None = None
        self._until = 0.0

    def may_go(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Say whether a call of this loop need not wait for company."""
        if self.crowded:
            return False
        if self._loop is None:
            self._loop, self._until = loop, time.monotonic() + MOMENT
            loop.call_soon(self._end)
        return self._loop is loop and time.monotonic() < self._until

    def _end(self) -> None:
        self._loop = None


class SharedReads:
    """Reads of one kind that several callers of an event loop want in the same tick."""

    def __init__(self, read: Callable[[Operation[Any]], Any], alone: Alone) -> None:
        self._read = read
        self._alone = alone
        self._calls: dict[asyncio.AbstractEventLoop, list[LoopCall]] = {}

    async def read(self, operation: Operation[T], loop: asyncio.AbstractEventLoop) -> T:
        """Read in the next tick, with whoever else comes until then."""
        call = LoopCall(operation, loop, _undo_nothing)
        calls = self._calls.setdefault(loop, [])
        if not calls:
            loop.call_soon(self._run, loop)
        calls.append(call)
        result: T = await call.answer()
        return result

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        calls = self._calls.pop(loop)
        self._alone.crowded = len(calls) > 1
        run_batch(
            calls, lambda operations: [self._read(each) for each in operations], _tell_nobody, ()
        )


def _undo_nothing(_: Operation[Any]) -> None:
    """Nothing was done by reading."""


def _tell_nobody(_: Changed[Any]) -> None:
    """Nothing was changed by reading."""


class Loan:
    """That a reader is in use; as long as whoever uses it lives."""
