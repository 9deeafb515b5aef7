"""Opening one SQLite file, and noticing when its path names another file or none.

An open file stays usable after it was deleted or replaced, but what is written to it is lost. So
the two are compared: by the writer after each commit, by readers about once a second, and by the
bell whenever it looks.
"""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Final

from towpath.database import file_locks
from towpath.database.sqlite import (
    FileReplaced,
    Identity,
    SqliteConnection,
    connect,
    identity,
    of_file,
)
from towpath.database.turns import Turn
from towpath.errors import DatabaseBusy, DatabaseError, DatabaseUnavailable
from towpath.settings import Settings

LOOK_EVERY: Final = 1.0  # seconds between two looks of the readers


class Opener:
    """Opens connections to one file, or to a private database in memory."""

    def __init__(
        self,
        path: Path | None,
        settings: Settings,
        on_leave: Callable[[], None],
        *,
        known: bool = False,
    ) -> None:
        self.path = path
        self.known = known  # the file was there once, so it is not created again
        self._settings = settings
        self._on_leave = on_leave
        self._file: Identity | None = None  # the file that is open
        self._moved = False  # it is no longer in place
        self._contested = False  # another process writes to its log, for the file in its place
        self._log: int | None = None  # a descriptor of its log: no other file gets that inode
        self._look_at = 0.0
        self._lock = Lock()

    @property
    def log_path(self) -> Path:
        """Where SQLite keeps its log."""
        return Path(f"{(self.path or Path()).resolve()}-wal")

    def open(self) -> SqliteConnection:
        """Open the file that is there now."""
        with self._lock:
            self._leave_moved()
            if self.path is None:
                return connect(None, self._settings)
            if self.known and not self.path.exists():
                self._moved = True
                self._on_leave()
                raise self._refused()
            try:
                connection = connect(
                    self.path, self._settings, may_create=not self.known, expected=self._file
                )
            except FileReplaced:
                self._moved = True
                self._on_leave()
                raise self._refused() from None
            self.path = self.path.absolute()  # whatever the working directory becomes
            self.known = True
            log = _opened(self.log_path)
            if not connection.is_in_place():  # replaced just now: the log may be either file's
                _close(log)
                connection.close()
                raise self._refused()
            _close(self._log)
            self._file, self._log, self._moved = connection.file, log, False
            self._contested = False
            connection.owns_log = self._owns_log
            return connection

    def is_current(self, connection: SqliteConnection) -> bool:
        """Say whether a connection can still be used."""
        return connection.file == self._file and not self._moved

    def check(self, connection: SqliteConnection) -> None:
        """Refuse a file that is no longer in place; the next call opens the one that is."""
        if connection.is_in_place():
            return
        if self.is_current(connection):
            self._moved = True
            self._on_leave()
        raise self._refused()

    def check_now_and_then(self, connection: SqliteConnection) -> None:
        """Do the same, about once a second."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY
            self.check(connection)

    def close(self) -> None:
        """Leave no log behind that SQLite would take for that of a new file."""
        with self._lock:
            with contextlib.suppress(DatabaseError):
                self._leave_moved()
            _close(self._log)
            self._log = None

    def _leave_moved(self) -> None:
        """Before another file is opened, remove the log of the one that was in its place.

        SQLite would take it for the log of the new file, and destroy that. While there is no file
        the log stays: the old file may be put back.
        """
        there = identity(str(self.path)) if self.path else None
        if there is None or self._file is None or there == self._file:
            return
        try:
            self._remove_log(self.path or Path())
        except OSError as error:
            raise of_file(error, self.path) from error
        self._file = None
        if not self._moved:
            self._on_leave()
            raise self._refused()

    def _remove_log(self, path: Path) -> None:
        # Another process may do the same, and then make a log of the new file.
        with contextlib.closing(Turn(path)) as turn:
            if not turn.take(self._settings.busy_timeout):
                msg = (
                    f"{path} was replaced while in use, and another process holds the lock on "
                    f"{path}-turn: end it, and try again"
                )
                raise DatabaseBusy(msg)
            log = self.log_path
            if self._log is not None and identity(str(log)) == _identity_of(self._log):
                if not self._owns_log():
                    msg = (
                        f"{path} was replaced while in use, and another process has opened it with "
                        "the log of the file before: stop every process that uses it, remove "
                        f"{log} and its -shm, and put the backup there again"
                    )
                    raise DatabaseUnavailable(msg)
                log.unlink()
                log.with_name(f"{log.name.removesuffix('wal')}shm").unlink(missing_ok=True)

    def _owns_log(self) -> bool:
        """Say whether no other process has opened the file that lies at the path by now.

        SQLite may have given it the log of the file before. Once seen, that stays so.
        """
        self._contested = self._contested or file_locks.is_open(str(self.path))
        return not self._contested

    def _refused(self) -> DatabaseUnavailable:
        if self.path and self.path.exists():
            return DatabaseUnavailable(
                f"{self.path} was replaced while in use, and this call was not done in the new "
                "file: try again"
            )
        return DatabaseUnavailable(
            f"{self.path} was deleted while in use: move it or a backup to this path, or restart "
            "this process to begin with an empty database"
        )


def _opened(path: Path) -> int | None:
    # SQLite has no locks on the log, so closing this descriptor drops none.
    with contextlib.suppress(OSError):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return None


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def _identity_of(descriptor: int) -> Identity:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino
