"""`./dev demo agent`: the page on this machine, with two workers that you may kill."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
PORT: Final = 8091  # or any other, if this one is taken
AGAIN_AFTER: Final = 5.0  # seconds until a killed process is started again
GRACE: Final = 5.0  # seconds for a process to end by itself
PATIENCE: Final = 60.0  # seconds for the server to start


class Part:
    """A process of the demo, which is started again when it has ended."""

    def __init__(self, name: str, *command: str) -> None:
        self.name = name
        self._command = (sys.executable, "-m", *command)
        self._ended_at: float | None = None
        self._process = self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def look(self) -> None:
        """Notice the end of the process, and start it again some time later."""
        if self._process.poll() is None:
            return
        now = time.monotonic()
        if self._ended_at is None:
            self._ended_at = now
            print(f"{self.name} {self.pid} has ended; another one starts in {AGAIN_AFTER:.0f} s")
        elif now - self._ended_at > AGAIN_AFTER:
            self._ended_at = None
            self._process = self._start()
            print(f"{self.name} is {self.pid} now")

    def end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start(self) -> "subprocess.Popen[bytes]":
        # Ctrl-C is for this program, which then ends its parts.
        return subprocess.Popen(self._command, process_group=0, stdout=subprocess.DEVNULL)


def main() -> None:
    for end in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(end, signal.default_int_handler)  # as Ctrl-C does: all parts end
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory() as directory, contextlib.suppress(KeyboardInterrupt):
        os.environ.setdefault("DATABASE_URL", f"sqlite:///{Path(directory) / 'agent.db'}")
        port = free_port()
        with running(port) as (server, *workers):
            wait_for(port)
            pids = " ".join(str(worker.pid) for worker in workers)
            print(TEXT.format(url=f"http://{HOST}:{port}/", server=server.pid, workers=pids))
            while True:
                for part in (server, *workers):
                    part.look()
                time.sleep(0.2)


TEXT: Final = """
Open {url}, ask something, and in mid-answer:

  reload the page, or open its link in another tab or browser
  press Stop
  kill -9 {workers}    both workers: others start after 5 s
  kill -9 {server}    the server: likewise

Ctrl-C ends all of it."""


@contextlib.contextmanager
def running(port: int) -> Generator[list[Part]]:
    """The server and two workers, until the end of the block."""
    serve = ("uvicorn", "agent.web:site", "--host", HOST, "--port", str(port))
    work = ("towpath", "worker", "agent.tasks:app", "--grace", "1s", "--log-level", "error")
    parts = list[Part]()
    try:
        parts.append(Part("the server", *serve, "--log-level", "warning"))
        wait_for(port)  # it makes the tables
        parts += [Part(f"worker {number}", *work) for number in (1, 2)]
        yield parts
    finally:
        for part in parts:
            part.end()


def free_port() -> int:
    for port in (PORT, 0):
        with contextlib.suppress(OSError), socket.create_server((HOST, port)) as free:
            return int(free.getsockname()[1])
    sys.exit(f"no port of {HOST} is free")


def wait_for(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
            return
        time.sleep(0.05)
    sys.exit("the server did not start")


if __name__ == "__main__":
    main()
