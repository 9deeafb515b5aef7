"""Runs several worker processes under one parent, which replaces those that die."""

import logging
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Final

log: Final = logging.getLogger("towpath")

EVERY: Final = 0.1  # seconds between two looks at the processes
FIRST_PAUSE: Final = 1.0  # seconds before a restart, doubled up to the last
LAST_PAUSE: Final = 60.0
CHILD: Final = "TOWPATH_WORKER_CHILD"  # set in the environment of each process
SAME_SIGNAL: Final = 1.0  # seconds: a terminal or systemd signals parent and children at once


class WorkerProcess:
    """A worker process, and when to start the next one in its place."""

    def __init__(self, command: Sequence[str], *, burst: bool) -> None:
        self._command = command
        self._burst = burst
        self._pause = FIRST_PAUSE
        self._start()

    def _start(self) -> None:
        self._restarts_at: float | None = None
        self._started_at = time.monotonic()
        child = {**os.environ, CHILD: "1"}
        self._process = subprocess.Popen(self._command, env=child)  # noqa: S603 - runs this program

    def runs(self) -> bool:
        """Say whether the process has not ended."""
        return self._process.poll() is None

    def is_done(self) -> bool:
        """Say whether it is a burst that has ended with success."""
        return self._burst and self._process.poll() == 0

    def send(self, number: int) -> None:
        """Send a signal, without effect if the process has ended."""
        self._process.send_signal(number)

    def replace_if_dead(self) -> None:
        """Start a process again that has ended, after a pause that grows."""
        if self.runs() or self.is_done():
            return
        now = time.monotonic()
        if self._restarts_at is None:
            if now - self._started_at > LAST_PAUSE:
                self._pause = FIRST_PAUSE
            log.warning(
                "worker process %d has ended with code %d; another one starts in %g s",
                self._process.pid, self._process.returncode, self._pause,
            )  # fmt: skip
            self._restarts_at = now + self._pause
            self._pause = min(self._pause * 2, LAST_PAUSE)
        elif now >= self._restarts_at:
            self._start()


def run_processes(commands: Sequence[Sequence[str]], *, burst: bool) -> int:
    """Run these commands until a signal, or in a burst until all have ended with success."""
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.append(number))
    workers = [WorkerProcess(command, burst=burst) for command in commands]
    while not signals and not all(each.is_done() for each in workers):
        for each in workers:
            each.replace_if_dead()
        time.sleep(EVERY)
    while any(each.runs() for each in workers):
        while signals:
            received = signals.pop(0)
            for each in workers:
                each.send(received)
        time.sleep(EVERY)
    return 0
