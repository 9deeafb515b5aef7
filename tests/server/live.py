"""A server in a process of its own, and clients that write what they like."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import psutil

from tests.conftest import eventually
from towpath import App, Job

SCOPES = ("enqueue", "manage", "work", "metrics")
SECONDS = 60.0  # for anything to happen, on a machine that stalls
PROGRAM = """
import json, sys
from towpath import App
from towpath.server.connections import Patience
from towpath.server.serving import Serving

url, patience = sys.argv[1], json.loads(sys.argv[2])
serving = Serving(app=App(url), port=0, patience=Patience(**patience))
serving.run(lambda found: print(json.dumps({"url": found.url}), flush=True))
"""


class Served:
    """`towpath serve` on a database; with patience, the same by a program of its own."""

    def __init__(self, url: str, tmp_path: Path, *more: str, **patience: float) -> None:
        command = ["-m", "towpath", "serve", "--port", "0", "--json", "--database", url, *more]
        if patience:
            command = ["-c", PROGRAM, url, json.dumps(patience)]
        self.errors = tmp_path / "stderr"
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(  # as a shell starts it, with 1,024 files at first
                ["/bin/sh", "-c", 'ulimit -Sn 1024; exec "$0" "$@"', sys.executable, *command],
                stdout=subprocess.PIPE, stderr=errors, text=True, cwd=tmp_path,
            )  # fmt: skip
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, self.said
        self.started = json.loads(line)
        self.port = int(self.started["url"].rsplit(":", 1)[1])
        self.database = url
        with App(url) as app:
            _, self.key = app.keys.create("test", scopes=SCOPES)

    @property
    def said(self) -> str:
        return self.errors.read_text()

    @property
    def resident(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def signal(self, which: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(which)

    def end(self) -> None:
        """Stop it, as it should: with 0 and without a traceback."""
        if self.process.poll() is None:
            self.signal()
        self.ended(0)
        assert "Traceback" not in self.said, self.said
        assert "ERROR" not in self.said, self.said

    def ended(self, code: int) -> None:
        try:
            assert self.process.wait(SECONDS) == code, self.said
        finally:
            self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()

    def connect(self) -> "Wire":
        return Wire(self.port, self.key)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Ask on a connection of its own."""
        with self.connect() as wire:
            return wire.ask(method, path, body, **headers)


class Wire:
    """One connection."""

    def __init__(self, port: int, key: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self._key = key
        self._read = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Vanish: the other side hears of it at once, and rudely."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def head(self, method: str, path: str, version: str = "1.1", **headers: object) -> bytes:
        lines = [
            f"{method} {path} HTTP/{version}",
            "Host: test",
            f"Authorization: Bearer {self._key}",
        ]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def request(self, method: str, path: str, body: Any = None, **headers: object) -> bytes:
        if body is None:
            return self.head(method, path, **headers)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.head(method, path, content_length=len(data), **headers) + data

    def ask(self, method: str, path: str, body: Any = None, **headers: object) -> tuple[int, Any]:
        self.send(self.request(method, path, body, **headers))
        return self.answer()

    def answer(self) -> tuple[int, Any]:
        """Read one answer: its status, and what it says."""
        status, body = self.answer_as_it_is()
        return status, json.loads(body) if body else None

    def answer_as_it_is(self) -> tuple[int, bytes]:
        """Read one answer, whatever it says."""
        head = self._until(b"\r\n\r\n").decode().lower()
        status = int(head.split()[1])
        if status == 100:
            return 100, b""
        length = next(
            (int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")), 0
        )
        while len(self._read) < length:
            self._more()
        body, self._read = self._read[:length], self._read[length:]
        return status, body

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._read:
            self._more()
        found, _, self._read = self._read.partition(mark)
        return found

    def _more(self) -> None:
        data = self.socket.recv(2**16)
        if not data:
            raise EOFError(self._read)
        self._read += data

    def is_closed(self) -> bool:
        """Wait until the other side has ended the connection."""
        with contextlib.suppress(ConnectionError):
            while self.socket.recv(2**16):
                pass
        return True


def jobs(server: Served, topic: str) -> list[Job]:
    """Read the jobs of a topic, newest first."""
    with App(server.database) as app:
        return app.jobs.list(topic=topic)


def waiting(server: Served, topic: str, nth: int = 1) -> Wire:
    """Begin a long poll; return when it waits as the nth of its topic."""
    wire = server.connect()
    wire.send(wire.request("POST", "/api/jobs/reserve", {"topics": [topic], "timeout": 60}))
    eventually(lambda: f'towpath_waiting{{topic="{topic}"}} {nth}\n' in metrics(server))
    return wire


def metrics(server: Served) -> str:
    """Read what the server counts."""
    with server.connect() as wire:
        wire.send(wire.request("GET", "/metrics"))
        return wire.answer_as_it_is()[1].decode()
