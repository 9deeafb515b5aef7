"""Bells: how one process hears that another has committed something new.

A ring is a hint without data and may be lost, so a periodic look stays behind every bell
(`wakeups.py`). Only one thread of a process waits at its bell.
"""

import contextlib
import json
import logging
import os
import select
import sqlite3
import time
from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from towpath.database.forks import hold_still_at_fork
from towpath.database.inotify import Watch
from towpath.database.opener import Opener
from towpath.database.sqlite import SqliteConnection
from towpath.errors import DatabaseError
from towpath.operation import Wakeup
from towpath.settings import Settings

if TYPE_CHECKING:
    from towpath.database.postgres_wire import Wire

log: Final = logging.getLogger("towpath")

LOOK_EVERY: Final = 0.01  # seconds between two looks at PRAGMA data_version
SOON: Final = 0.001  # seconds from the first write of a commit to the first look for it
LONGEST_COMMIT: Final = 1.0  # seconds; the safety net finds a commit that takes longer
MOST_BYTES: Final = 7_999  # of a payload of NOTIFY
EVERYTHING: Final = ""  # the payload that names no wakeup, for every subscriber
Rung = frozenset[Wakeup] | None
"""The wakeups that rang; None if anything may be new."""

NOTHING: Final[frozenset[Wakeup]] = frozenset()
FOREVER: Final = float("inf")


def encode(wakeups: Iterable[Wakeup]) -> str:
    """Return the payload of a NOTIFY: the wakeups, or EVERYTHING where they are too long."""
    # JSON in ASCII: any name survives, whatever the encoding of the database is.
    payload = json.dumps(sorted({str(wakeup) for wakeup in wakeups}), separators=(",", ":"))
    return payload if len(payload) <= MOST_BYTES else EVERYTHING


def decode(payload: bytes) -> Rung:
    """Return the wakeups of a payload; anything may be new if it is of another version."""
    try:
        return frozenset(map(Wakeup.parse, _names.decode(payload)))
    except msgspec.MsgspecError:
        return None


_names: Final = msgspec.json.Decoder(list[str])


class Bell(Protocol):
    """A bell: one thread waits at it, and any thread can interrupt the wait."""

    def wait(self, timeout: float | None, *, listening: bool) -> Rung:
        """Wait for a ring of another process, an interruption or the timeout."""
        ...

    def interrupt(self) -> None:
        """End the wait of the waiting thread."""
        ...

    def announce(self, wakeups: Iterable[Wakeup]) -> None:
        """Ring in every other process. Called only by the waiting thread."""
        ...

    def close(self) -> None:
        """Close what is open. Called only by the waiting thread, or where there is none."""
        ...


class Pipe:
    """A pipe by which any thread interrupts the one that waits."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._poll = select.poll()  # select takes no descriptor from 1024 on
        self._poll.register(self._read, select.POLLIN)
        self._lock = Lock()
        self._closed = False

    def interrupt(self) -> None:
        """End the wait of the waiting thread."""
        # The descriptor of a closed pipe may belong to another file.
        with self._lock, contextlib.suppress(BlockingIOError):  # full: an interruption is under way
            if not self._closed:
                os.write(self._write, b"!")

    def is_interrupted(self, timeout: float) -> bool:
        """Wait for an interruption; return whether one came."""
        if not self._poll.poll(timeout * 1_000):
            return False
        os.read(self._read, 4096)
        return True

    def sleep(self, timeout: float | None, *also: int) -> bool:
        """Wait for an interruption or until one of `also` is readable; return whether one is."""
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
    """The bell of a database that no other process sees: it never rings."""

    def __init__(self) -> None:
        self._pipe = Pipe()
        self.interrupt = self._pipe.interrupt
        self.close = self._pipe.close

    def wait(self, timeout: float | None, *, listening: bool) -> Rung:  # noqa: ARG002 - it never rings
        """Wait for an interruption or the timeout."""
        self._pipe.sleep(timeout)
        return NOTHING

    def announce(self, wakeups: Iterable[Wakeup]) -> None:
        """Do nothing: there is no other process."""


class SqliteBell:
    """Looks at the file's data_version, which every commit of another connection changes.

    It looks when the log is written to, or every 10 ms where the system does not report writes. A
    commit becomes visible some time after its first write, so the bell looks several times, each
    time after twice the pause.
    """

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._pipe = Pipe()
        self.interrupt = self._pipe.interrupt
        self._connection: SqliteConnection | None = None
        self._log: Watch | None = None
        self._written_at = 0.0  # the next pause is as long as the time since then
        self._rests = False  # it has just rung: many commits share one ring
        self._not_before = 0.0  # when it may open the file again after an error
        self._in_use = Lock()
        self._seen: int | None = None
        hold_still_at_fork(self)

    def wait(self, timeout: float | None, *, listening: bool) -> Rung:
        """Sleep until a look may find something, and look."""
        if not listening:
            self._pipe.sleep(timeout)
            return NOTHING
        self._sleep(FOREVER if timeout is None else timeout)
        return None if self._changed() else NOTHING

    def announce(self, wakeups: Iterable[Wakeup]) -> None:
        """Do nothing: other processes notice the commit itself."""

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
        self.interrupt()  # the thread sleeps on a watch that is closed

    def _disconnect(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection, self._seen = None, -1  # the next look finds a change
        if self._log:
            self._log.close()
            self._log = None

    def _sleep(self, timeout: float) -> None:
        log = self._log
        if log is None:
            self._pipe.is_interrupted(min(timeout, LOOK_EVERY))
            return
        pause = LOOK_EVERY if self._rests else max(SOON, time.monotonic() - self._written_at)
        if pause <= LOOK_EVERY:  # without the watch, or each of many writes would cause a look
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
                    self._connection.execute("pragma data_version").fetchone()  # creates the log
                    self._log = Watch.on(self._opener.log_path)
                written = self._log is not None and self._log.was_written()
                [version] = self._connection.execute("pragma data_version").fetchone()
        except (sqlite3.Error, DatabaseError):
            with self._in_use:
                self._disconnect()  # a file that stays open may stay broken
            self._not_before = time.monotonic() + LONGEST_COMMIT
            return False  # the safety net goes on
        changed = self._rests = self._seen is not None and version != self._seen
        self._seen = version
        now = time.monotonic()
        if changed:
            self._written_at = now - LOOK_EVERY
        elif written and now - self._written_at > LOOK_EVERY:
            self._written_at = now
        return changed


class PostgresBell:
    """LISTEN and NOTIFY on a connection of its own, which is read even while nothing listens."""

    def __init__(self, url: str, settings: Settings) -> None:
        self._url = url
        self._settings = settings
        self.channel = f"{settings.schema}_wakeup"
        self._pipe = Pipe()
        self.interrupt = self._pipe.interrupt
        self._connection: Wire | None = None
        self._listens = False
        self._heard_at = 0.0  # when the server last answered
        self._overheard: list[bytes] = []  # payloads that came together with an answer
        self._not_before = 0.0  # when it may connect again after an error
        self._pause = 0.1

    def wait(self, timeout: float | None, *, listening: bool) -> Rung:
        """Wait for a notification."""
        if not listening:
            # Read all the same: an unread socket would hold up NOTIFY for the whole server.
            if self._connection is None or not self._listens:
                self._pipe.sleep(timeout)
            elif self._overheard or self._pipe.sleep(timeout, self._connection.fileno()):
                self._heard(self._connection)
            return NOTHING
        came_back = self._connection is None and self._connect()
        if came_back:
            return None  # announcements may have been missed
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
            self._say(self._connection, "select 1")  # a dead connection is as silent as an idle one
        return NOTHING

    def announce(self, wakeups: Iterable[Wakeup]) -> None:
        """Notify once for all of these wakeups."""
        payload = encode(wakeups)
        for _ in range(2):  # the connection may have died since it was last used
            if self._connection is None:
                self._connect()
            line = self._connection
            if line is None or self._say(line, "select pg_notify($1, $2)", self.channel, payload):
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
                line.exchange([Sent("set synchronous_commit = off")])  # a wakeup may be lost
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
            payloads = self._overheard + line.rings()
        except psycopg.Error:
            self._disconnect()
            return None
        self._heard_at, self._overheard = time.monotonic(), []
        heard: set[Wakeup] = set()
        for payload in payloads:
            wakeups = decode(payload)
            if wakeups is None:
                return None
            heard |= wakeups
        return frozenset(heard)
