"""A worker that is started again when a file changes: for development.

A parent looks at the files and the child works, so a module is never half old and half new.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from towpath.cli.output import complain

EVERY: Final = 0.5  # seconds between two looks
SKIPPED: Final = {"__pycache__", "node_modules", "site-packages", "dist-packages"}


def reload(words: Sequence[str]) -> int:
    """Run `towpath` with these words, again whenever a file changes; return its exit code."""
    command = [sys.executable, "-m", "towpath", *words]
    asked_to_stop = False
    child: subprocess.Popen[bytes] | None = None

    def on_signal(number: int, _: FrameType | None) -> None:
        nonlocal asked_to_stop
        asked_to_stop = True
        # A terminal has told the child too, and twice would mean at once.
        if child and not (number == signal.SIGINT and sys.stdin.isatty()):
            child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    while True:
        before = snapshot()
        child = subprocess.Popen(command)  # noqa: S603 - ourselves
        changed = None
        while child.poll() is None or (child.returncode != 0 and not asked_to_stop):
            time.sleep(EVERY)
            changed = difference(before, snapshot())
            if changed and not asked_to_stop:
                break
        if asked_to_stop or not changed:
            return child.wait()
        complain("reload", f"{changed} has changed: the worker starts again", as_json=False)
        if child.poll() is None:
            child.terminate()
        child.wait()


def snapshot() -> dict[str, int]:
    """Return when each file was changed that may be imported and is not Python's own."""
    found: dict[str, int] = {}
    for root in roots():
        for directory, inner, names in os.walk(root):
            inner[:] = [name for name in inner if _is_source(directory, name)]
            for name in names:
                if name.endswith(".py"):
                    path = os.path.join(directory, name)  # noqa: PTH118 - there are thousands
                    found[path] = _changed_at(path)
    return found


def difference(before: dict[str, int], after: dict[str, int]) -> str | None:
    """Return a file that was changed, added or removed."""
    return next((path for path, _ in before.items() ^ after.items()), None)


def roots() -> Iterator[str]:
    """Return the working directory, and what else is imported from outside of Python."""
    own = tuple({sys.prefix, sys.base_prefix, sys.exec_prefix})
    yield str(Path.cwd())
    for each in sys.path:
        inside = Path(each).is_relative_to(Path.cwd())
        if each and not inside and not each.startswith(own) and Path(each).is_dir():
            yield each


def _is_source(directory: str, name: str) -> bool:
    hidden = name.startswith(".") or name in SKIPPED
    return not hidden and not Path(directory, name, "pyvenv.cfg").exists()


def _changed_at(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0  # it is being replaced
