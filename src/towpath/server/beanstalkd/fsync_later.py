"""Commits that reach the disk a little later: beanstalkd's -f."""

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
TICK: Final = 0.1  # seconds; a file system's clock goes by jumps, shorter than this


@contextlib.contextmanager
def syncing(path: Path, every: float, sync: Callable[[int], None] = SYNC) -> Generator[None]:
    """Have what is written to a file on its disk so many seconds later; and at the end."""
    over = Event()

    def go_on() -> None:
        begun = 0.0
        while not over.wait(min(every, TIMEOUT_MAX)):
            begun = _sync_since(path, begun, sync)

    thread = Thread(target=go_on, name="towpath-sync", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        _sync_since(path, 0.0, sync)


def _sync_since(path: Path, before: float, sync: Callable[[int], None]) -> float:
    """Sync what was written since the last time; return when that is."""
    begun = time.time()
    try:
        if path.stat().st_mtime >= before - TICK or begun < before:  # or the clock was set back
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                sync(descriptor)
            finally:
                os.close(descriptor)
    except FileNotFoundError:
        pass  # nothing was written yet, or all of it is in the database itself
    except OSError as error:
        log.warning("what was acknowledged may not be on the disk yet: %s", error)
        return before
    return begun
