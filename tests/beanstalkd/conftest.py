"""The door on every database, asked over real sockets."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import greenstalk
import pytest

from towpath import App
from towpath.server.beanstalkd.connection import ClientConnection
from towpath.server.beanstalkd.server import BeanstalkdServer

EXECUTABLE = Path(__file__).parent.parent.parent / "src" / "towpath_beanstalkd.py"
PATIENCE = 30  # seconds; the machine may stall


class Raw:
    """A client that says bytes and expects bytes."""

    def __init__(self, address: tuple[str, int] | str) -> None:
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.settimeout(PATIENCE)
        try:
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise
        self._file = self.socket.makefile("rb")

    def say(self, data: str | bytes) -> None:
        self.socket.sendall(data.encode() if isinstance(data, str) else data)

    def hear(self, *lines: str | bytes) -> None:
        """Expect exactly these lines, and their ends."""
        for line in lines:
            wanted = (line.encode() if isinstance(line, str) else line) + b"\r\n"
            assert self._file.read(len(wanted)) == wanted

    def ask(self, command: str | bytes, *lines: str | bytes) -> None:
        """Say a line, or several, and expect lines."""
        self.say((command.encode() if isinstance(command, str) else command) + b"\r\n")
        self.hear(*lines)

    def put(self, body: bytes = b"a", priority: int = 0, delay: int = 0, ttr: int = 60) -> int:
        self.say(b"put %d %d %d %d\r\n%b\r\n" % (priority, delay, ttr, len(body), body))
        word, number = self._file.readline().split()
        assert word == b"INSERTED"
        return int(number)

    def told(self, command: str) -> dict[str, str]:
        """Ask for statistics; return them as text."""
        return dict(line.split(": ", 1) for line in self.text(command)[1:])

    def text(self, command: str) -> list[str]:
        self.say(f"{command}\r\n")
        word, size = self._file.readline().split()
        assert word == b"OK"
        body = self._file.read(int(size) + 2)
        assert body.endswith(b"\n\r\n")
        return body[:-3].decode().split("\n")

    def line(self) -> bytes:
        return self._file.readline()

    def ends(self) -> None:
        """Expect the connection to end."""
        assert self._file.read(1) == b""

    def close(self) -> None:
        self._file.close()
        self.socket.close()


class Served:
    """A door that is open, and the app behind it."""

    def __init__(self, app: App, door: BeanstalkdServer, address: tuple[str, int]) -> None:
        self.app = app
        self.door = door
        self.address = address
        self._clients: list[Raw | greenstalk.Client] = []

    def client(self) -> Raw:
        self._clients.append(Raw(self.address))
        return self._clients[-1]

    def greenstalk(self, **options) -> greenstalk.Client:
        self._clients.append(greenstalk.Client(self.address, **options))
        return self._clients[-1]

    def connection_of(self, client: Raw) -> ClientConnection:
        """Return the other end of a client's line."""
        [found] = (
            each
            for each in self.door.connections
            if each._transport.get_extra_info("peername") == client.socket.getsockname()
        )
        return found

    def close(self) -> None:
        for client in self._clients:
            client.close()


@pytest.fixture
def serve(make_app, loop) -> Iterator[Callable[..., Served]]:
    """Open doors in this process."""
    opened: list[Served] = []

    def run(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(PATIENCE)

    def make(most_body: int = 65_535, **settings) -> Served:
        app = make_app(**settings)
        door = BeanstalkdServer(app, most_body=most_body)
        bound = socket.create_server(("127.0.0.1", 0))
        bound.setblocking(False)
        run(door.start())
        run(door.listen(bound))
        opened.append(Served(app, door, bound.getsockname()))
        return opened[-1]

    yield make
    for served in opened:
        served.close()
        run(served.door.close())


@pytest.fixture
def served(serve) -> Served:
    return serve()


@pytest.fixture
def client(served) -> Raw:
    return served.client()


class Server:
    """The executable, as a process."""

    def __init__(self, *options: str, program: Path = EXECUTABLE) -> None:
        self.options = options
        self._program = program
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._clients: list[Raw] = []
        self.start()

    def start(self) -> None:
        command = [sys.executable, str(self._program), "-l", "127.0.0.1", "-p", str(self.port)]
        environment = {**os.environ, "PYTHONPATH": str(self._program.parent)}
        self.process = subprocess.Popen([*command, *self.options], env=environment)

    def client(self, path: str | None = None) -> Raw:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._clients.append(Raw(path or ("127.0.0.1", self.port)))
                return self._clients[-1]
            except (ConnectionRefusedError, FileNotFoundError):
                assert time.monotonic() < deadline
                assert self.process.poll() is None
                time.sleep(0.005)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.leave()

    def leave(self) -> None:
        """Close the connections of all clients."""
        while self._clients:
            self._clients.pop().close()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.fixture
def executable() -> Iterator[Callable[..., Server]]:
    """Start servers of their own."""
    with contextlib.ExitStack() as stack:

        def start(*options: str, program: Path = EXECUTABLE) -> Server:
            server = Server(*options, program=program)
            stack.callback(server.kill)
            return server

        yield start
