"""A proxy before PostgreSQL that loses answers on request.

It hands everything on until a statement with a given text passes. Then it does one of these, once:

    lose_answer    let the server do it, take its whole answer, close both sides instead
    lose_request   close both sides before the server hears of it
    swallow        stand still without a word: a connection whose other end has vanished
    swallow_answer let the server do it, and stand still then
    hold           keep the statement back until told to let it go

From `die` to `revive` every connection, also a new one, is taken and never answered: a proxy whose
server is dead. Connections of before stay silent. From `refuse` to `revive` every one is closed.

As a pooler it invents process ids, as PgBouncer does, and remembers what clients have prepared.
"""

import contextlib
import re
import socket
from collections.abc import Callable, Iterator
from threading import Event, Lock, Thread
from typing import Self

START = (3 << 16).to_bytes(4)  # version 3 of the protocol
KEY_DATA = re.compile(rb"(?<=K\x00\x00\x00\x0c)....", re.DOTALL)  # the server's process id
READY_FOR_QUERY = re.compile(rb"Z\x00\x00\x00\x05[ITE]\Z")  # the end of every answer

COMMIT = "commit\0"  # the statement, and not a word in another


class Link:
    """One client's connection through the proxy."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.loses_answer = False
        self.silent = Event()
        self._unread = b""
        self._started = False
        self._prepared: dict[bytes, bytes] = {}

    @property
    def names(self) -> set[bytes]:
        """The names of what the client has prepared."""
        return set(self._prepared)

    def statements(self, data: bytes) -> Iterator[bytes]:
        """Read what the client sends; yield each statement, also one that it has prepared."""
        self._unread += data
        while self._started and len(self._unread) >= 5:
            kind, size = self._unread[:1], int.from_bytes(self._unread[1:5])
            if len(self._unread) <= size:
                return
            body, self._unread = self._unread[5 : size + 1], self._unread[size + 1 :]
            match kind:
                case b"Q":
                    yield body
                case b"P":
                    name, text, _ = body.split(b"\0", 2)
                    self._prepared[name] = text
                case b"B":
                    _, name, _ = body.split(b"\0", 2)
                    yield self._prepared[name] + b"\0"
        if not self._started and len(self._unread) >= 8:
            size = int.from_bytes(self._unread[:4])
            # Before the start it may ask for encryption, which a test server declines.
            self._started = self._unread[4:8] == START
            self._unread = self._unread[size:]

    def close(self) -> None:
        """Cut both sides off."""
        for side in (self.client, self.server):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()


class Proxy:
    """A port that leads to a PostgreSQL server."""

    def __init__(self, port: int, *, pooler: bool = False) -> None:
        self._upstream = port
        self._pooler = pooler
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._links: list[Link] = []
        self._lock = Lock()
        self._text: bytes | None = None
        self._sought = b""
        self._saying = b""
        self._fault: Callable[[Link], bool] = lambda _: True
        self._let_go = Event()
        self._dead = False
        self._refuses = False
        self.refused = 0  # how many were closed for that
        self.happened = Event()  # set when the fault has been done
        self.prepared: set[bytes] = set()  # the names that clients have given

    @property
    def clients(self) -> int:
        """How many have connected."""
        return len(self._links)

    def url(self) -> str:
        """Return where clients connect."""
        return f"postgresql://postgres@127.0.0.1:{self._listener.getsockname()[1]}/postgres"

    def lose_answer(self, text: str, saying: str = "") -> None:
        """Have the next statement with this text done, and its answer lost, if it says this."""

        def fault(link: Link) -> bool:
            link.loses_answer = True
            return True

        self._saying = saying.encode()

        self._arm(text, fault)

    def lose_request(self, text: str) -> None:
        """Lose the next statement with this text on its way there."""

        def fault(link: Link) -> bool:
            self.happened.set()
            link.close()
            return False

        self._arm(text, fault)

    def swallow(self, text: str) -> None:
        """From the next statement with this text on, its connection is dead without a word."""

        def fault(link: Link) -> bool:
            link.silent.set()
            self.happened.set()
            return False

        self._arm(text, fault)

    def swallow_answer(self, text: str) -> None:
        """Have the next statement with this text done; its connection is dead from then on."""

        def fault(link: Link) -> bool:
            link.silent.set()
            self.happened.set()
            return True

        self._arm(text, fault)

    def die(self) -> None:
        """Take everything, and answer nothing."""
        with self._lock:
            self._dead = True
            for link in self._links:
                link.silent.set()

    def refuse(self) -> None:
        """Close every connection, also a new one."""
        self._refuses = True
        self.cut()

    def revive(self) -> None:
        """Serve new connections again."""
        self._dead = self._refuses = False

    def hold(self, text: str) -> None:
        """Keep the next statement with this text back until `let_go`."""

        def fault(link: Link) -> bool:
            self.happened.set()
            self._let_go.wait()
            return True

        self._let_go.clear()
        self._arm(text, fault)

    def let_go(self) -> None:
        """Hand on what is held."""
        self._let_go.set()

    def cut(self) -> None:
        """Cut every connection off."""
        with self._lock:
            links, self._links = self._links, []
        for link in links:
            link.close()

    def _arm(self, text: str, fault: Callable[[Link], bool]) -> None:
        with self._lock:
            self.happened.clear()
            self._text = self._sought = text.encode()
            self._fault = fault

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refuses:
                client.close()
                self.refused += 1
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._upstream))
            except OSError:
                client.close()
                continue
            for side in (client, server):  # a hundred little packets would wait 40 ms each
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(client, server)
            with self._lock:
                self._links.append(link)
                if self._dead:
                    link.silent.set()
            for pump in (self._to_server, self._to_client):
                Thread(target=self._pump, args=(pump, link), daemon=True).start()

    def _pump(self, pump: Callable[[Link], None], link: Link) -> None:
        with contextlib.suppress(OSError):  # either side may go at any time
            pump(link)
        if pump == self._to_server or not link.silent.is_set():
            link.close()

    def _to_server(self, link: Link) -> None:
        while data := link.client.recv(2**20):
            if link.silent.is_set():
                continue
            hit = False
            for statement in link.statements(data):
                with self._lock:
                    if self._text is not None and self._text in statement:
                        self._text, hit = None, True
            self.prepared |= link.names - {b""}
            if not hit or self._fault(link):
                link.server.sendall(data)

    def _to_client(self, link: Link) -> None:
        answer = b""
        greets = self._pooler
        while data := link.server.recv(2**20):
            if greets:
                greets = not READY_FOR_QUERY.search(data)
                data = KEY_DATA.sub(b"\0\0\0\1", data)
            if link.silent.is_set():
                continue
            if not link.loses_answer:
                link.client.sendall(data)
                continue
            answer += data
            if not READY_FOR_QUERY.search(answer):
                continue
            if self._saying in answer:
                self.happened.set()
                return
            with self._lock:  # not this one: hand it on and wait for the next
                self._text = self._sought
            link.loses_answer = False
            link.client.sendall(answer)
            answer = b""

    def __enter__(self) -> Self:
        Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._let_go.set()
        self.cut()
