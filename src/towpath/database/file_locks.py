"""SQLite's locks on a file, seen from outside: whether any connection has the file open.

By a question about locks of an open file description, which Linux answers; elsewhere nothing is
known.
"""

import contextlib
import fcntl
import os
import struct
import sys
from threading import Lock
from typing import Final

from towpath.database.forks import begin_anew_after_fork

_FLOCK: Final = "hhqqi0q"  # type, whence, start, length, process
_SHARED_FIRST: Final = 0x40000002  # the bytes that SQLite locks while it has a file open
_SHARED_SIZE: Final = 510
_KNOWN: Final = sys.platform == "linux" and hasattr(fcntl, "F_OFD_GETLK")


class Guard:
    """A lock around what opens or closes a database file in this process.

    Closing any descriptor of a file drops the locks that all connections of this process have on
    it. So a descriptor of our own is closed before a connection can open the file.
    """

    def __init__(self) -> None:
        self.start_again()
        begin_anew_after_fork(self)

    def start_again(self) -> None:
        """Begin again in a forked child, where the lock may be one that no thread releases."""
        self._lock = Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


guard: Final = Guard()


def is_open(path: str) -> bool:
    """Say whether a connection of SQLite, in any process, has read this file and has it open."""
    if not _KNOWN:
        return False
    try:
        with guard:
            found = os.stat(path)  # noqa: PTH116 - as text it names the very path of a connection
            own = _own_descriptors((found.st_dev, found.st_ino))
            if own:
                return any(map(_is_locked, own))
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return _is_locked(fd)
            finally:
                os.close(fd)
    except OSError:
        return False


def _is_locked(fd: int) -> bool:
    """Say whether any process, this one too, has a lock of SQLite on an open file."""
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _SHARED_FIRST, _SHARED_SIZE, 0)
    try:
        told = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked)
    except OSError:  # closed just now
        return False
    return bool(struct.unpack(_FLOCK, told)[0] != fcntl.F_UNLCK)


def _own_descriptors(file: tuple[int, int]) -> list[int]:
    """Return the descriptors by which this process has a file open."""
    found: list[int] = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, not paths
        with contextlib.suppress(OSError):
            status = os.fstat(int(name))
            if (status.st_dev, status.st_ino) == file:
                found.append(int(name))
    return found
