"""WebSockets from a process of its own: python -m bench.live_load SPEC.

It prints a line when all sockets are attached, waits for a line, and publishes. When every socket
that reads has got every event, it prints as JSON: the seconds, and the latencies of one socket.
"""

import asyncio
import json
import re
import resource
import socket
import sys
import time
from typing import Any

import uvloop
from websockets.frames import Frame, Opcode

CHANNEL = "chat"
HANDSHAKE = (
    b"GET /api/ws HTTP/1.1\r\nhost: bench\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
MARK = b'"sent":'  # in each event, before the time of its publish
TIME = re.compile(MARK + rb"([0-9.]+)[,}]")
CURSOR = "0" * 33
FILL = "x" * 100
LITTLE = 4_096  # bytes that the system keeps for a socket that does not read


class Socket(asyncio.Protocol):
    """One client. It counts events without parsing what it gets."""

    def __init__(self, load: "Load", first: list[dict[str, Any]]) -> None:
        self.load = load
        self.first = first  # frames to send before it is attached
        self.count = 0
        self.rest = b""
        self.attached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(HANDSHAKE)

    def data_received(self, data: bytes) -> None:
        text = self.rest + data
        if not self.attached.done():
            self._attach(text)
            return
        if self.load.watches(self):
            self.load.taken += [time.monotonic() - float(at) for at in TIME.findall(text)]
        self.count += text.count(MARK)
        self.rest = text[1 - len(MARK) :]
        if self.count == self.load.events:
            self.load.finished()

    def _attach(self, text: bytes) -> None:
        if b"\r\n\r\n" in text:
            for frame in self.first:
                self.say(frame)
            if not self.first:
                self.attached.set_result(None)
            text = b""
        elif b'"current"' in text:
            self.attached.set_result(None)
            text = b""
        self.rest = text

    def say(self, frame: dict[str, Any]) -> None:
        text = json.dumps(frame, separators=(",", ":")).encode()
        self.transport.write(Frame(Opcode.TEXT, text).serialize(mask=True))


class Load:
    """Sockets that wait for so many events each."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.port: int = spec["port"]
        self.token: str | None = spec["token"]  # none: the server broadcasts whatever it gets
        self.events: int = spec["events"]
        self.left: int = spec["sockets"]
        self.stuck: int = spec["stuck"]
        self.pause: float = spec["pause"]  # seconds between two publishes; then latencies count
        self.sockets: list[Socket] = []
        self.taken: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def watches(self, socket: Socket) -> bool:
        return bool(self.pause) and socket is self.sockets[-1]

    def finished(self) -> None:
        self.left -= 1
        if not self.left:
            self.done.set_result(None)

    async def connected(self, *frames: dict[str, Any], little: bool = False) -> Socket:
        loop = asyncio.get_running_loop()
        made = socket.socket()
        if little:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LITTLE)
        made.setblocking(False)
        await loop.sock_connect(made, ("127.0.0.1", self.port))
        hello = [{"hello": {"token": self.token}}, *frames] if self.token else []
        _, found = await loop.create_connection(lambda: Socket(self, hello), sock=made)
        await found.attached
        return found

    async def attach(self) -> None:
        subscribe = {"subscribe": {"channel": CHANNEL, "from": "now"}}
        for _ in range(self.stuck):
            stuck = await self.connected(subscribe, little=True)
            stuck.transport.pause_reading()
        for _ in range(self.left):
            self.sockets.append(await self.connected(subscribe))

    async def publish(self, publisher: Socket) -> None:
        for n in range(self.events):
            payload = {"n": n, "fill": FILL, "sent": time.monotonic()}
            publisher.say(published(payload) if self.token else broadcast(payload))
            await asyncio.sleep(self.pause)


def published(payload: Any) -> dict[str, Any]:
    return {"publish": {"channel": CHANNEL, "events": [{"payload": payload}]}}


def broadcast(payload: Any) -> dict[str, Any]:
    """Return a frame as large as those that we send."""
    item = {"id": "0" * 36, "cursor": CURSOR, "at": "0" * 27, "type": None, "key": None}
    item |= {"headers": {}, "encoding": "json", "payload": payload}
    return {"events": {"channel": CHANNEL, "from": CURSOR, "to": CURSOR, "items": [item]}}


async def main() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
    spec = json.loads(sys.argv[1])
    load = Load(spec)
    await load.attach()
    subscribe = {"subscribe": {"channel": "none", "from": "now"}}  # to hear that it is attached
    publisher = await load.connected(subscribe) if spec["publishes"] else None
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    begun = time.perf_counter()
    if publisher:
        await load.publish(publisher)
    await load.done
    print(json.dumps({"seconds": time.perf_counter() - begun, "taken": load.taken}), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
