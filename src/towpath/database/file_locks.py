"""SQLite's locks on a file, seen from outside: whether any connection has the file open.

By a question about locks of an open file description, which Linux answers; elsewhere nothing is
known.
"""

import contextlib
import fcntl
import os
import struct
import sys
from typing import Final

_FLOCK: Final = "hhqqi0q"  # type, whence, start, length, process
_SHARED_FIRST: Final = 0x40000002  # the bytes that SQLite locks while it has a file open
_SHARED_SIZE: Final = 510
_KNOWN: Final = sys.platform == "linux" and hasattr(fcntl, "F_OFD_GETLK")


def is_open(path: str) -> bool:
    """Say whether a connection of SQLite, in any process, has this file open."""
    if not _KNOWN:
        return False
    try:
        found = os.stat(path)  # noqa: PTH116 - as text it names the very path of a connection
        if _own_descriptors((found.st_dev, found.st_ino)):
            return True
        # Closing it drops the locks that this process has on the file: it has none.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _SHARED_FIRST, _SHARED_SIZE, 0)
        told = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked)
        return bool(struct.unpack(_FLOCK, told)[0] != fcntl.F_UNLCK)
    finally:
        os.close(fd)


def _own_descriptors(file: tuple[int, int]) -> list[int]:
    """Return the descriptors by which this process has a file open."""
    found: list[int] = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, not paths
        with contextlib.suppress(OSError):
            status = os.fstat(int(name))
            if (status.st_dev, status.st_ino) == file:
                found.append(int(name))
    return found
