"""Many WebSockets at one server, of which some read slowly or not at all."""

import asyncio
import functools
import json
import resource
import socket

import pytest
from websockets.frames import Frame, Opcode

from tests.faults.processes import until
from tests.faults.sizes import many
from tests.server.live import Served
from towpath import App, NewEvent

pytestmark = pytest.mark.soak

SOCKETS, STUCK, SLOW = 1_000, 50, 20
EVENTS = many(1_000)
AT_ONCE = 20
SIZE = 3_000  # so that a publish is one page
ALL_READ = 5 * AT_ONCE  # events before some stop
PACED = EVENTS * 4 // 5  # events that are published as fast as they are read
MOST_UNREAD = 64 * 2**20  # bytes, for those that stop: 9 to 13 MiB were measured
MOST_MEMORY = 64 * 2**20 + SOCKETS * 150_000  # when all are behind, a page for each: 14 to 169 MiB
LITTLE = 4_096  # bytes that the system keeps for a client that does not read
HANDSHAKE = (
    b"GET /api/ws HTTP/1.1\r\nhost: test\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.fixture
def served(place, tmp_path, monkeypatch):
    url, needed = place
    for name, value in needed.items():
        monkeypatch.setenv(f"TOWPATH_{name.upper()}", value)
    served = Served(url, tmp_path)
    yield served
    served.end()


@functools.lru_cache(maxsize=64)
def decoded(text: bytes) -> dict:
    """Decode a frame; most sockets get the same bytes, which are decoded once for all."""
    frame = json.loads(text)
    if batch := frame.get("events"):
        batch["items"] = [each["payload"][0] for each in batch["items"]]
    return frame


def first_frame(data, at):
    """Return the opcode and text of the frame that begins here, and its end, if it is whole."""
    size, begin = data[at + 1] if len(data) > at + 1 else 0, at + 2
    if size > 125:
        wide = 2 if size == 126 else 8
        size, begin = int.from_bytes(data[begin : begin + wide]), begin + wide
    end = begin + size
    return (data[at] & 15, data[begin:end], end) if begin < end <= len(data) else None


class Socket(asyncio.Protocol):
    """A client that goes on from its cursor when it was cut off."""

    def __init__(self, served, key, *, little=False):
        self.got, self._cursor = [], "start"
        self.is_current, self.has_all = asyncio.Event(), asyncio.Event()
        self.dawdles = False  # reads one piece, and stops
        self._port, self._key, self._little = served.port, key, little
        self._ends = False

    async def attach(self):
        made = socket.socket()
        if self._little:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LITTLE)
        made.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(made, ("127.0.0.1", self._port))
        self._is_open, self._rest = False, b""
        self.transport, _ = await loop.create_connection(lambda: self, sock=made)
        self.transport.write(HANDSHAKE)

    def _say(self, **frame):
        text = json.dumps(frame).encode()
        self.transport.write(Frame(Opcode.TEXT, text).serialize(mask=True))

    def data_received(self, data):
        data, at = self._rest + data, 0
        if not self._is_open:
            at = data.find(b"\r\n\r\n") + 4
            self._is_open = at > 3
            if self._is_open:
                self._say(hello={"token": self._key})
                self._say(subscribe={"channel": "chat", "from": self._cursor})
        while self._is_open and (found := first_frame(data, at)):
            opcode, text, at = found
            if opcode == Opcode.TEXT:
                self._take(decoded(text))
            elif opcode == Opcode.PING:
                self.transport.write(Frame(Opcode.PONG, text).serialize(mask=True))
        self._rest = data[at:] if self._is_open else data
        if self.dawdles:
            self.transport.pause_reading()

    def _take(self, frame):
        assert not frame.keys() & {"reset", "closed", "error"}, frame
        if batch := frame.get("events"):
            assert self._cursor in {"start", batch["from"]}
            self._cursor = batch["to"]
            self.got += batch["items"]
            if len(self.got) >= EVENTS:
                self.has_all.set()
        elif "current" in frame:
            self.is_current.set()

    def connection_lost(self, error):
        if not self._ends:
            self._attaching = asyncio.ensure_future(self.attach())

    def go_on(self):
        self.dawdles = False
        self.transport.resume_reading()

    def end(self):
        self._ends = True
        self.transport.abort()


async def publish(app, begin, end, readers):
    """Publish; wait after each batch until these have it."""
    for n in range(begin, end, AT_ONCE):
        events = [NewEvent([k, "x" * SIZE]) for k in range(n, n + AT_ONCE)]
        await app.events.apublish_many("chat", events)
        for each in readers:
            await until(lambda each=each, n=n: len(each.got) >= n + AT_ONCE)


async def dawdle(slow):
    """Let these read a piece now and then."""
    while True:
        for each in slow:
            each.dawdles = True
            each.transport.resume_reading()
        await asyncio.sleep(0.2)


async def all_attached(sockets):
    for each in sockets:
        await each.attach()
        await each.is_current.wait()


async def all_read(sockets):
    for each in sockets:
        await each.has_all.wait()


def test_readers_that_stop_hold_up_no_others_and_lose_nothing(place, served):
    """EV-3: what they do not read is not kept for them in memory; they find it when they go on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * SOCKETS)), hard))
    url, needed = place
    failed = []  # what a protocol raises only ends its connection
    with App(url, **needed) as app:
        key = app.keys.create("reader", scopes=["subscribe"])[1]

        async def run():
            asyncio.get_running_loop().set_exception_handler(lambda _, said: failed.append(said))
            sockets = [Socket(served, key, little=n < STUCK + SLOW) for n in range(SOCKETS)]
            stuck, slow = sockets[:STUCK], sockets[STUCK : STUCK + SLOW]
            rest = sockets[STUCK + SLOW :]
            await all_attached(sockets)
            await publish(app, 0, ALL_READ, sockets)
            before = served.resident
            for each in stuck:
                each.transport.pause_reading()
            dawdling = asyncio.ensure_future(dawdle(slow))
            await publish(app, ALL_READ, PACED, rest)
            unread = served.resident - before
            await publish(app, PACED, EVENTS, ())
            await all_read(rest)
            grown = served.resident - before
            are_behind = not any(each.has_all.is_set() for each in stuck)
            dawdling.cancel()
            for each in stuck + slow:
                each.go_on()
            await all_read(sockets)
            for each in sockets:
                each.end()
            return sockets, are_behind, unread, grown

        sockets, are_behind, unread, grown = asyncio.run(run())

    assert not failed
    assert all(each.got == list(range(EVENTS)) for each in sockets)
    assert are_behind
    assert unread < MOST_UNREAD
    assert grown < MOST_MEMORY
