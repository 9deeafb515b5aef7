"""The connection that writes to a SQLite file, and its place in the line of processes."""

import sqlite3
import time
from collections.abc import Generator
from threading import Lock
from typing import Any, Final, TypeVar

from towpath.database.clock import Clock
from towpath.database.group_commit import Operations
from towpath.database.opener import Opener
from towpath.database.sqlite import (
    SqliteConnection,
    execute,
    is_spent,
    of_file,
    patiently,
    translated,
)
from towpath.database.turns import Turn
from towpath.errors import DatabaseBusy
from towpath.operation import Changed, Operation, drive
from towpath.settings import Settings
from towpath.statement import Query, Row

T = TypeVar("T")

SLOW_COMMIT: Final = 0.002  # seconds; a loop leaves commits that take longer to a thread


class Writer:
    """The connection that writes, and its place in the line of processes."""

    def __init__(self, opener: Opener, settings: Settings, clock: Clock) -> None:
        self._opener = opener
        self._path = opener.path
        self._settings = settings
        self._clock = clock
        self._connection: SqliteConnection | None = None
        self._cursor: sqlite3.Cursor
        self._turn: Turn | None = None
        self._opened = False
        # Guards the connection against a fork, a run beside the lane, and the end of the app.
        self._in_use = Lock()
        self._locked = False
        self._was_busy = False  # the last try to lock the file failed
        self._commit_time = 0.0

    @property
    def was_opened(self) -> bool:
        """Whether the file was ever opened."""
        return self._opened

    @property
    def quick(self) -> bool:
        """Whether recent commits were quick enough to run in an event loop."""
        return self._connection is not None and self._commit_time < SLOW_COMMIT

    def before_fork(self) -> None:
        """Close the file when what is under way has ended, and keep it closed."""
        self._in_use.acquire()
        self.close()

    def after_fork(self) -> None:
        """Go on."""
        self._in_use.release()

    def run(self, operations: Operations, began: float) -> list[Any]:
        """Run operations in one transaction, for calls the first of which began then."""
        if all(operation is NOTHING for operation in operations):
            return [None] * len(operations)  # without a lock, which another process may hold
        if self._locked:
            return self._run(operations, began)
        with self._in_use:
            return self._run(operations, began)

    def run_aside(self, operation: Operation[T]) -> T | Changed[T]:
        """Run an operation beside the lane, between two of its batches."""
        with self._in_use:
            result: T | Changed[T] = self._run([operation], time.monotonic())[0]
            return result

    def _run(self, operations: Operations, began: float) -> list[Any]:
        with translated(self._path):
            connection = self._open()
            cursor, held = self._cursor, self._locked
            try:
                if not held:
                    if connection.in_transaction:  # of an interrupted call, never acknowledged
                        cursor.execute("rollback")
                    self._lock(connection, began)
                elif not connection.in_transaction:
                    cursor.execute("begin immediate")
                now, lifecycle = self._clock(), self._settings.lifecycle
                results = [
                    drive(operation.steps(lifecycle), lambda query: execute(cursor, query, now))
                    for operation in operations
                ]
                started = time.perf_counter()
                cursor.execute("commit")
                self._commit_time += (time.perf_counter() - started - self._commit_time) / 8
                # After it: what went to a file that was deleted before must not be acknowledged.
                self._opener.check(connection)
            except BaseException as error:
                if is_spent(error):
                    self.close()  # the next call opens the file again
                elif connection.in_transaction:
                    connection.execute("rollback")
                raise
            finally:
                if not held:
                    self._unlock()
            return results

    def try_lock(self) -> bool:
        """Begin a transaction if no other caller or process is in one."""
        if not self._in_use.acquire(blocking=False):
            return False
        try:
            if self._connection is None or not self._opener.is_current(self._connection):
                raise BlockingIOError
            if self._turn and not self._turn.take_now():
                raise BlockingIOError
            self._connection.execute("begin immediate")
        except (OSError, sqlite3.Error):
            self._unlock()
            self._in_use.release()
            return False
        self._locked, self._was_busy = True, False
        return True

    def unlock(self) -> None:
        """Let the next process have its turn."""
        self._locked = False
        try:
            if self._connection and self._connection.in_transaction:
                self._connection.execute("rollback")
        finally:
            self._unlock()
            self._in_use.release()

    def shut_down(self) -> None:
        """Close the file for good, after the thread that still uses it.

        An event loop answers the last call first and unlocks then. A close in between would free
        the connection under it.
        """
        if self._in_use.acquire(timeout=self._settings.busy_timeout + 1):
            self.close()
            self._in_use.release()

    def close(self) -> None:
        """Close the file."""
        connection, turn = self._connection, self._turn
        self._connection = self._turn = None
        if connection:
            connection.close()
        if turn:
            turn.close()

    def _open(self) -> SqliteConnection:
        if self._connection and not self._opener.is_current(self._connection):
            self.close()
        if self._connection is None:
            self._opened = True
            connection = self._opener.open()
            if self._opener.path:
                # Never a lock on the database itself, which is SQLite's own.
                try:
                    self._turn = Turn(self._opener.path)
                except OSError as error:
                    connection.close()
                    raise of_file(error, self._opener.path) from error
            self._connection, self._cursor = connection, connection.cursor()
        return self._connection

    def _lock(self, connection: SqliteConnection, began: float) -> None:
        # While the call before waited for the lock, without effect, this one waited behind it.
        since = began if self._was_busy else time.monotonic()
        deadline = since + self._settings.busy_timeout
        self._was_busy = True
        try:
            self._take_turn(max(0, deadline - time.monotonic()))
            patiently(connection, "begin immediate", max(0, deadline - time.monotonic()))
        except BaseException:
            self._unlock()
            raise
        self._was_busy = False

    def _take_turn(self, patience: float) -> None:
        if self._turn and not self._turn.take(patience):
            file, held = f"{self._path}-turn", self._settings.busy_timeout
            msg = (
                f"another process has held the lock on {file} for {held:g} s and may be "
                f"stopped inside a transaction: `lsof {file}` shows it. {DatabaseBusy.__doc__}"
            )
            raise DatabaseBusy(msg)

    def _unlock(self) -> None:
        if self._turn:
            self._turn.give_back()


def _nothing() -> Generator[Query[Any], list[Row], None]:
    return
    yield


NOTHING: Final = Operation("nothing", _nothing)
"""Runs behind the calls before it: these have ended then."""
