"""Open pages of the dashboard, in a process of its own: python -m bench.dashboard_pages SPEC.

It prints a line when each page has its rows and its stream. From then on a page asks again for its
rows whenever the stream tells that its topic has changed, one question at a time.
"""

import asyncio
import json
import sys
from typing import Any

import uvloop

ROWS = 50
FIGURES_EVERY = 10.0  # seconds


class Page:
    """A list of jobs in a browser."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.port: int = spec["port"]
        self.topic: str = spec["topic"]
        self.head = f" HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {spec['token']}\r\n\r\n"
        self.changed = asyncio.Event()
        self.asking = asyncio.Lock()

    async def open(self) -> list[asyncio.Task[None]]:
        """Read what the page shows, and begin to follow the server."""
        self.lines, self.live = await asyncio.open_connection("127.0.0.1", self.port, limit=2**20)
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        await self.rows()
        self.live.write(f"GET /api/live{self.head}".encode())
        while b"counts" not in await self.lines.readline():
            pass
        return [asyncio.create_task(each) for each in (self.hear(), self.follow(), self.figures())]

    async def hear(self) -> None:
        topic = json.dumps(self.topic).encode()
        while line := await self.lines.readline():
            if line.startswith(b'data: {"changed"') and topic in line:
                self.changed.set()

    async def follow(self) -> None:
        while await self.changed.wait():
            self.changed.clear()
            await self.rows()

    async def figures(self) -> None:
        while True:
            await asyncio.sleep(FIGURES_EVERY)
            await self.get("/api/jobs/stats?maxAge=5")

    async def rows(self) -> None:
        await self.get(f"/api/jobs?brief=true&limit={ROWS}&topic={self.topic}")

    async def get(self, path: str) -> None:
        async with self.asking:
            self.writer.write(f"GET {path}{self.head}".encode())
            head = await self.reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise SystemExit(head.decode())
            at = head.index(b"content-length: ") + 16
            await self.reader.readexactly(int(head[at : head.index(b"\r\n", at)]))


async def main() -> None:
    spec = json.loads(sys.argv[1])
    tasks = [task for _ in range(spec["pages"]) for task in await Page(spec).open()]
    print("open", flush=True)
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
