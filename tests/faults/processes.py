"""Processes of our own that can be spoken to, paused and killed."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]


class Program(subprocess.Popen[str]):
    """A program of tests/faults/programs.py in a process of its own."""

    def __init__(self, name: str, **arguments: object) -> None:
        super().__init__(
            [
                *(sys.executable, "-m", "tests.faults.programs"),
                *(str(os.getpid()), name, json.dumps(arguments)),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # it is ended together with whatever it forks
        )

    def hear(self) -> str:
        """Return the next line that it prints."""
        assert self.stdout
        line = self.stdout.readline()
        assert line, f"it ended with {self.wait()}:\n{self.stderr.read() if self.stderr else ''}"
        return line.rstrip("\n")

    def say(self, line: str) -> None:
        """Send it a line."""
        assert self.stdin
        self.stdin.write(f"{line}\n")
        self.stdin.flush()

    def pause(self) -> None:
        """Stop it where it is; return when it stands still."""
        self.send_signal(signal.SIGSTOP)
        wait_until(lambda: self.poll() is not None or self._stands_still())
        if self.poll() is not None:
            self.finish()

    def _stands_still(self) -> bool:
        return psutil.Process(self.pid).status() == psutil.STATUS_STOPPED

    def resume(self) -> None:
        """Let it go on."""
        self.send_signal(signal.SIGCONT)

    def finish(self, seconds: float | None = None) -> str:
        """Wait for its good end; return what it still had to say."""
        said, complaints = self.communicate(timeout=seconds)
        assert self.returncode == 0, f"it ended with {self.returncode}:\n{complaints}"
        return said

    def kill_alive(self) -> None:
        """Kill it; it must not have ended by itself, unless that was a good end."""
        self.send_signal(signal.SIGSTOP)
        if self.poll() is not None:
            self.finish()
        self.end()

    def end(self) -> None:
        """Kill it, whatever it does, and leave nothing behind."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream:
                with contextlib.suppress(OSError):  # a pipe to the dead cannot be flushed
                    stream.close()


async def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Await a condition that another process, thread or task makes true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what makes it true cannot tell
            await asyncio.sleep(0.005)


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait for a condition that another process or thread makes true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)
