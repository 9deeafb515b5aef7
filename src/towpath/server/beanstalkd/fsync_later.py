"""Syncs commits to the disk a little after they are acknowledged: beanstalkd's option -f."""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Generator
from pathlib import Path
from threading import TIMEOUT_MAX, Event, Thread
from typing import Final

log: Final = logging.getLogger("towpath")

SYNC: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync
TICK: Final = 0.1  # seconds; more than the resolution of a file system's timestamps


@contextlib.contextmanager
def syncing(path: Path, every: float, sync: Callable[[int], None] = SYNC) -> Generator[None]:
    """Sync a file every `every` seconds in a thread, and once more at the end."""
    stopped = Event()

    def sync_until_stopped() -> None:
        last = 0.0
        while not stopped.wait(min(every, TIMEOUT_MAX)):
            last = _sync_since(path, last, sync)

    thread = Thread(target=sync_until_stopped, name="towpath-sync", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
        _sync_since(path, 0.0, sync)


def _sync_since(path: Path, before: float, sync: Callable[[int], None]) -> float:
    """Sync the file if it changed since the last sync; return the time of this one."""
    now = time.time()
    try:
        clock_was_set_back = now < before
        if path.stat().st_mtime >= before - TICK or clock_was_set_back:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                sync(descriptor)
            finally:
                os.close(descriptor)
    except FileNotFoundError:
        pass  # nothing was written yet, or SQLite has moved all of it into the database file
    except OSError as error:
        log.warning("cannot sync %s; acknowledged jobs may not be on the disk yet: %s", path, error)
        return before
    return now
