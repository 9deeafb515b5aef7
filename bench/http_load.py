"""A load of HTTP requests from a process of its own: python -m bench.http_load SPEC.

It waits for a line, runs, and prints what it found as JSON: answers per second, and latencies.
"""

import asyncio
import json
import sys
import time
from typing import Any

import uvloop


class Caller(asyncio.Protocol):
    """One connection, which sends the next request when it has the answer to the last."""

    def __init__(self, load: "Load") -> None:
        self.load = load
        self.buffer = b""
        self.begun = 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.load.callers.append(self)
        if len(self.load.callers) == self.load.connections:
            self.load.ready.set_result(None)

    def send(self) -> None:
        request = self.load.next_request()
        if request is None:
            self.load.finished()
            return
        self.begun = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self.buffer.find(b"content-length: ", 0, head)
        length = int(self.buffer[at + 16 : self.buffer.find(b"\r\n", at)]) if at >= 0 else 0
        if len(self.buffer) < head + 4 + length:
            return
        if self.buffer[9:10] != b"2":
            raise SystemExit(self.buffer.decode())
        self.load.taken.append(time.perf_counter() - self.begun)
        self.buffer = b""
        self.send()


class Load:
    """So many requests over so many connections."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.connections: int = spec["connections"]
        self.left: int = spec["count"]
        self.paths: list[str] = spec["paths"]
        self.head = (
            f"{spec['method']} %s HTTP/1.1\r\nhost: bench\r\n"
            f"authorization: Bearer {spec['token']}\r\ncontent-type: application/json\r\n"
        )
        self.body = spec.get("body", "").encode()
        self.tail = f"content-length: {len(self.body)}\r\n\r\n".encode() + self.body
        self.autocommit = [(self.head % path).encode() + self.tail for path in self.paths]
        self.callers: list[Caller] = []
        self.taken: list[float] = []
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.running = self.connections
        self.sent = 0

    def next_request(self) -> bytes | None:
        if self.sent == self.left:
            return None
        self.sent += 1
        return self.autocommit[self.sent % len(self.autocommit)]

    def finished(self) -> None:
        self.running -= 1
        if not self.running:
            self.done.set_result(None)


async def main() -> None:
    spec = json.loads(sys.argv[1])
    load = Load(spec)
    loop = asyncio.get_running_loop()
    for _ in range(load.connections):
        await loop.create_connection(lambda: Caller(load), spec["host"], spec["port"])
    await load.ready
    begun = time.perf_counter()
    for caller in load.callers:
        caller.send()
    await load.done
    seconds = time.perf_counter() - begun
    print(json.dumps({"per_second": spec["count"] / seconds, "taken": load.taken}))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
