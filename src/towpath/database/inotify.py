"""Watches a file for writes by inotify, on Linux; elsewhere the caller has to look."""

import contextlib
import ctypes
import os
import sys
from pathlib import Path
from typing import Final, Self

MODIFY: Final = 0x2  # IN_MODIFY of linux/inotify.h


class Watch:
    """A descriptor that is readable after a write to a file, which it does not open."""

    def __init__(self, fd: int) -> None:
        self.fileno = fd

    @classmethod
    def on(cls, path: Path) -> Self | None:
        """Watch a file; None where the system cannot."""
        if sys.platform != "linux":
            return None
        libc = ctypes.CDLL(None)
        fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if fd < 0:
            return None
        if libc.inotify_add_watch(fd, os.fsencode(path), MODIFY) < 0:
            os.close(fd)
            return None
        return cls(fd)

    def was_written(self) -> bool:
        """Return whether the file was written to since the last call."""
        with contextlib.suppress(BlockingIOError):
            return bool(os.read(self.fileno, 65_536))
        return False

    def close(self) -> None:
        """End the watch."""
        os.close(self.fileno)
