"""Turns: processes that write to one SQLite file take turns by a lock on a file beside it.

SQLite's own `busy_timeout` starves some of them; the kernel wakes those that wait for a lock in
order, but has no time limit for it. So a thread waits in place of the caller, which can give up.
"""

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from threading import Condition, Lock, Thread
from typing import Final

REST: Final = 10.0  # seconds without a wait after which the thread ends


def lock_file(path: Path) -> Path:
    """Return the file that is locked, beside a database."""
    return Path(f"{path}-turn")


def _opened(path: Path) -> int:
    """Open the lock file; a new one is for those that may write to the database, for no others."""
    file = lock_file(path)
    try:
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        _close_to_others(fd, path)
        return fd
    database = path.stat()
    writable = database.st_mode & 0o222
    with contextlib.suppress(OSError):  # a file system without modes or owners
        os.fchmod(fd, 0o600 | writable | writable << 1)
        if os.geteuid() == 0:  # as SQLite does with its log
            os.fchown(fd, database.st_uid, database.st_gid)
    return fd


def _close_to_others(fd: int, path: Path) -> None:
    """Take every right of other users away where the database gives them none.

    A reader can hold the lock too, and older versions made the file readable by all.
    """
    with contextlib.suppress(OSError):  # of another owner; or the database was deleted
        mode = os.fstat(fd).st_mode
        if mode & stat.S_IRWXO and not path.stat().st_mode & stat.S_IRWXO:
            os.fchmod(fd, stat.S_IMODE(mode) & ~stat.S_IRWXO)


class Turn:
    """The place of a process among those that take turns to write to a file."""

    def __init__(self, path: Path) -> None:
        self._fd = _opened(path)
        self._changed = Condition(Lock())
        self._held = False
        self._wanted = False  # a caller waits for the thread
        self._in_line = False  # the thread waits for the kernel, or is about to
        self._has_thread = False
        self._closed = False

    def take(self, patience: float) -> bool:
        """Wait for the turn; say whether it came in time. Only one caller at a time."""
        if self.take_now():
            return True
        with self._changed:
            self._get_in_line()
            self._wanted = True
            try:
                self._changed.wait_for(lambda: self._held or not self._in_line, patience)
            finally:
                self._wanted = False
            return self._held

    def take_now(self) -> bool:
        """Take the turn if no process has it; say whether that was so."""
        with self._changed:
            # The thread may get it at any time, for the same descriptor: two would believe in it.
            if not self._in_line:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self._held = True
            return self._held

    def give_back(self) -> None:
        """Let the next process have its turn."""
        with self._changed:
            if self._held:
                self._held = False
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file, even while the thread waits for its lock."""
        with self._changed:
            self._closed = True
            self._held = False
            self._changed.notify_all()
            if not self._in_line:
                # A child that was forked meanwhile has the same lock, and would keep it.
                fcntl.flock(self._fd, fcntl.LOCK_UN)
                os.close(self._fd)
                return
            # The thread still uses the number, which must not become that of another file; without
            # a free descriptor, it closes the file when it gets the lock.
            with contextlib.suppress(OSError):
                nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
                os.dup2(nothing, self._fd, inheritable=False)
                os.close(nothing)

    def _get_in_line(self) -> None:
        if self._in_line:
            return
        if not self._has_thread:
            Thread(target=self._wait, name="towpath-turn", daemon=True).start()
            self._has_thread = True
        self._in_line = True
        self._changed.notify_all()

    def _wait(self) -> None:
        while self._is_needed():
            got = True
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX)
            except OSError:
                got = False
            with self._changed:
                self._in_line = False
                if self._closed:
                    os.close(self._fd)
                elif got and self._wanted:
                    self._held = True
                elif got:
                    fcntl.flock(self._fd, fcntl.LOCK_UN)
                self._changed.notify_all()

    def _is_needed(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._in_line or self._closed, REST)
            self._has_thread = self._in_line
            return self._in_line
