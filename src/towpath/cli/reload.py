"""Restarts a worker when a file changes: for development.

A parent process watches the files and the worker is its child, so no module is partly reloaded.
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

EVERY: Final = 0.5  # seconds between two checks
SKIPPED: Final = {"__pycache__", "node_modules", "site-packages", "dist-packages"}


def reload(arguments: Sequence[str]) -> int:
    """Run `towpath` with these arguments, again after each change; return its exit code."""
    command = [sys.executable, "-m", "towpath", *arguments]
    is_stopping = False
    child: subprocess.Popen[bytes] | None = None

    def on_signal(number: int, _: FrameType | None) -> None:
        nonlocal is_stopping
        is_stopping = True
        # A terminal sends Ctrl-C to the child too; a second signal would stop it at once.
        if child and not (number == signal.SIGINT and sys.stdin.isatty()):
            child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    while True:
        before = snapshot()
        child = subprocess.Popen(command)  # noqa: S603 - runs this program
        changed = None
        while child.poll() is None or (child.returncode != 0 and not is_stopping):
            time.sleep(EVERY)
            changed = difference(before, snapshot())
            if changed and not is_stopping:
                break
        if is_stopping or not changed:
            return child.wait()
        complain("reload", f"{changed} has changed; restarting the worker", as_json=False)
        if child.poll() is None:
            child.terminate()
        child.wait()


def snapshot() -> dict[str, int]:
    """Return the modification times of all importable files that are not Python's own."""
    found: dict[str, int] = {}
    for root in roots():
        for directory, inner, names in os.walk(root):
            inner[:] = [name for name in inner if _is_source(directory, name)]
            for name in names:
                if name.endswith(".py"):
                    path = os.path.join(directory, name)  # noqa: PTH118 - faster, for many files
                    found[path] = _changed_at(path)
    return found


def difference(before: dict[str, int], after: dict[str, int]) -> str | None:
    """Return a file that was changed, added or removed."""
    return next((path for path, _ in before.items() ^ after.items()), None)


def roots() -> Iterator[str]:
    """Return the working directory and the import paths outside of Python's installation."""
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
        return 0  # the file is being replaced
