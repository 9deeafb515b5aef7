"""Doorbells between processes: a hint that something is new, without data, that may be lost.

One thread of a process waits at its bell; polling behind it stays the truth.
"""

import contextlib
import logging
import os
import select
import sqlite3
import time
from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol

from towpath.database.forks import hold_still_at_fork
from towpath.database.inotify import Watch
from towpath.database.opener import Opener
from towpath.database.sqlite import SqliteConnection
from towpath.errors import DatabaseError
from towpath.settings import Settings

if TYPE_CHECKING:
    from towpath.database.postgres_wire import Wire

log: Final = logging.getLogger("towpath")

LOOK_EVERY: Final = 0.01  # seconds between two looks at PRAGMA data_version
SOON: Final = 0.001  # seconds from the first write of a commit to the first look for it
LONGEST_COMMIT: Final = 1.0  # seconds; one that takes longer is found by the safety net
COALESCE: Final = 0.005  # seconds within which announcements share one NOTIFY
Rung = frozenset[str] | None
"""The topics in which something is new; None if that may be anywhere."""

NOTHING: Final[frozenset[str]] = frozenset()
FOREVER: Final = float("inf")


class Bell(Protocol):
    """Where one thread waits and any thread can interrupt it."""

    def wait(self, timeout: float | None, *, listening: bool) -> Rung:
        """Wait for another process's ring, an interruption or the timeout."""
        ...

    def interrupt(self) -> None:
        """Have the waiting thread return at once."""
        ...

    def announce(self, topics: Iterable[str]) -> None:
        """Ring in every other process. Called only by the waiting thread."""
        ...

    def close(self) -> None:
        """Close what is open. Called only by the waiting thread, or when there is none."""
        ...


class Pipe:
    """Interrupts a thread that waits, by a pipe that it watches."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._poll = select.poll()  # unlike select, it takes descriptors from 1024 on
        self._poll.register(self._read, select.POLLIN)
        self._lock = Lock()
        self._closed = False

    def interrupt(self) -> None:
        """Have the waiting thread return at once."""
        # Once closed, the number may belong to somebody else's file.
        with self._lock, contextlib.suppress(BlockingIOError):  # full: it is on its way already
            if not self._closed:
                os.write(self._write, b"!")

    def is_interrupted(self, timeout: float) -> bool:
        """Wait for an interruption; say whether one came."""
        if not self._poll.poll(timeout * 1_000):
            return False
        os.read(self._read, 4096)
        return True

    def sleep(self, timeout: float | None, *also: int) -> bool:
        """Wait until interrupted or one of `also` can be read; say whether one can."""
        poll = select.poll()
        for fd in (self._read, *also):
            poll.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(None if timeout is None else timeout * 1_000)}
        if self._read in ready:
            os.read(self._read, 4096)
        return any(fd in ready for fd in also)

    def close(self) -> None:
        """Close both ends."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._read)
                os.close(self._write)


class QuietBell:
    """For a database that no other process sees."""

    def __init__(self) -> None:
        self._pipe = Pipe()
        self.interrupt = self._pipe.interrupt
        self.close = self._pipe.close

    def wait(self, timeout: float | None, *, listening: bool) -> Rung:  # noqa: ARG002 - nobody rings
        """Wait for an interruption or the timeout."""
        self._pipe.sleep(timeout)
        return NOTHING

    def announce(self, topics: Iterable[str]) -> None:
        """Do nothing: nobody else is there."""


class SqliteBell:
    """Looks at the file's data_version, which every commit of another connection changes.

    It looks when the log is written to; where nobody tells of that, every 10 ms. A commit is seen
    only some time after its first write: so it looks again and again, at twice the time each time.
    """

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._pipe = Pipe()
        self.interrupt = self._pipe.interrupt
        self._connection: SqliteConnection | None = None
        self._log: Watch | None = None
        self._written_at = 0.0  # whence the time to the next look is doubled
        self._rests = False  # it has just rung: many commits are not as many rings
        self._not_before = 0.0  # when the file is opened again after an error
        self._in_use = Lock()
        self._seen: int | None = None
        hold_still_at_fork(self)

    def wait(self, timeout: float | None, *, listening: bool) -> Rung:
        """Sleep until it is worth looking, and look."""
        if not listening:
            self._pipe.sleep(timeout)
            return NOTHING
        self._sleep(FOREVER if timeout is None else timeout)
        return None if self._changed() else NOTHING

    def announce(self, topics: Iterable[str]) -> None:
        """Do nothing: the commit itself was the ring."""

    def close(self) -> None:
        """Close the connection."""
        with self._in_use:
            self._disconnect()
        self._pipe.close()

    def before_fork(self) -> None:
        """Close the connection, and keep it closed."""
        self._in_use.acquire()
        self._disconnect()

    def after_fork(self) -> None:
        """Go on."""
        self._in_use.release()
        self.interrupt()  # it sleeps on a watch that was closed

    def _disconnect(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection, self._seen = None, -1  # whatever comes next is news
        if self._log:
            self._log.close()
            self._log = None

    def _sleep(self, timeout: float) -> None:
        log = self._log
        if log is None:
            self._pipe.is_interrupted(min(timeout, LOOK_EVERY))
            return
        pause = LOOK_EVERY if self._rests else max(SOON, time.monotonic() - self._written_at)
        if pause <= LOOK_EVERY:  # deaf, or many writes would be as many looks
            self._pipe.is_interrupted(min(timeout, pause))
        else:
            pause = timeout if pause > LONGEST_COMMIT else min(timeout, pause)
            if self._pipe.sleep(None if pause == FOREVER else pause, log.fileno):
                self._pipe.is_interrupted(SOON)

    def _changed(self) -> bool:
        if time.monotonic() < self._not_before:
            return False
        try:
            with self._in_use:
                if self._connection:
                    self._opener.check(self._connection)
                else:
                    self._connection = self._opener.open()
                    self._connection.execute("pragma data_version").fetchone()  # now there is a log
                    self._log = Watch.on(self._opener.log_path)
                written = self._log is not None and self._log.was_written()
                [version] = self._connection.execute("pragma data_version").fetchone()
        except (sqlite3.Error, DatabaseError):
            with self._in_use:
                self._disconnect()  # the cause may go away while an open file stays as it is
            self._not_before = time.monotonic() + LONGEST_COMMIT
            return False  # the safety net still looks
        changed = self._rests = self._seen is not None and version != self._seen
        self._seen = version
        now = time.monotonic()
        if changed:
            self._written_at = now - LOOK_EVERY
        elif written and now - self._written_at > LOOK_EVERY:
            self._written_at = now
        return changed


class PostgresBell:
    """LISTEN and NOTIFY on one connection of its own, which is always drained."""

    def __init__(self, url: str, settings: Settings) -> None:
        self._url = url
        self._settings = settings
        self.channel = f"{settings.schema}_wakeup"
        self._pipe = Pipe()
        self.interrupt = self._pipe.interrupt
        self._connection: Wire | None = None
        self._listens = False
        self._heard_at = 0.0  # the last sign of life
        self._overheard: list[str] = []  # what came, also while we rang ourselves
        self._not_before = 0.0
        self._pause = 0.1

    def wait(self, timeout: float | None, *, listening: bool) -> Rung:
        """Wait for a notification while somebody listens."""
        if not listening:
            # Drained all the same: an unread socket would hold up NOTIFY for the whole server.
            if self._connection is None or not self._listens:
                self._pipe.sleep(timeout)
            elif self._overheard or self._pipe.sleep(timeout, self._connection.fileno()):
                self._heard(self._connection)
            return NOTHING
        came_back = self._connection is None and self._connect()
        if came_back:
            return None  # what was announced meanwhile was missed
        if self._connection is None:
            again = max(0.0, self._not_before - time.monotonic())
            self._pipe.sleep(again if timeout is None else min(timeout, again))
            return NOTHING
        if not self._listens:
            self._pipe.sleep(timeout)
            return NOTHING
        if self._overheard or self._pipe.sleep(timeout, self._connection.fileno()):
            return self._heard(self._connection)
        if time.monotonic() - self._heard_at > self._settings.connect_timeout:
            self._say(self._connection, "select 1")  # a dead line is as silent as an idle one
        return NOTHING

    def announce(self, topics: Iterable[str]) -> None:
        """Ring once for all of these topics."""
        text = ring_text(topics)
        for _ in range(2):  # the connection may have died since it was last used
            if self._connection is None:
                self._connect()
            line = self._connection
            if line is None or self._say(line, "select pg_notify($1, $2)", self.channel, text):
                return

    def close(self) -> None:
        """Close the connection."""
        self._disconnect()
        self._pipe.close()

    def _say(self, line: "Wire", text: str, *values: str) -> bool:
        """Run a statement; return whether it was answered. If not, the connection is closed."""
        import psycopg  # noqa: PLC0415 - only with this database

        from towpath.database.postgres_wire import Sent  # noqa: PLC0415 - only with this database

        try:
            line.exchange([Sent(text, values)])
            self._overheard += line.rings()
        except psycopg.Error:
            self._disconnect()
            return False
        self._heard_at = time.monotonic()
        return True

    def _disconnect(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None

    def _connect(self) -> bool:
        import psycopg  # noqa: PLC0415 - only with this database

        from towpath.database import postgres  # noqa: PLC0415 - only with this database
        from towpath.database.postgres_wire import Sent  # noqa: PLC0415 - only with this database

        if time.monotonic() < self._not_before:
            return False
        try:
            line = self._connection = postgres.connect(self._url, self._settings)
            self._listens = not line.is_pooled
            if self._listens:
                line.exchange([Sent("set synchronous_commit = off")])  # a ring may be lost
                line.exchange([Sent(f'listen "{self.channel}"')])
            else:
                log.warning(
                    "a pooler such as PgBouncer stands before the database: wakeups from other "
                    "processes are found by polling, every %g s",
                    self._settings.poll_interval,
                )
        except psycopg.Error:
            self._disconnect()
            self._not_before = time.monotonic() + self._pause
            self._pause = min(self._pause * 2, 5)
            return False
        self._heard_at, self._pause = time.monotonic(), 0.1
        return True

    def _heard(self, line: "Wire") -> Rung:
        import psycopg  # noqa: PLC0415 - only with this database

        try:
            texts = self._overheard + line.rings()
        except psycopg.Error:
            self._disconnect()
            return None
        self._heard_at, self._overheard = time.monotonic(), []
        if "" in texts:
            return None
        return frozenset(topic for text in texts for topic in text.split(","))


def ring_text(topics: Iterable[str]) -> str:
    """Return what a NOTIFY carries: the topics, or nothing when they would not fit."""
    text = ",".join(sorted(set(topics)))
    return text if len(text) < 7_900 else ""  # noqa: PLR2004 - PostgreSQL allows 8,000 bytes
