"""Clients of server-sent events."""

import asyncio


def sent_events(text):
    """Return server-sent events as browsers read them: their id, type and data."""
    found = []
    for block in text.strip().split("\n\n"):
        fields = [line.partition(":")[::2] for line in block.split("\n")]
        data = "\n".join(value for name, value in fields if name == "data")
        named = {name: value.strip() for name, value in fields if name != "data"}
        found.append((named.get("id"), named.get("event"), data))
    return found


class Listener:
    """A client of server-sent events that speaks ASGI, and reads only when it is told to."""

    def __init__(self, web, token, path, query=b"", **headers):
        self.pieces = []
        self.status = None
        self._loop = web._loop
        self._scope = {
            "type": "http", "method": "GET", "path": path, "query_string": query,
            "headers": [
                (b"authorization", f"Bearer {token}".encode()),
                *((name.encode(), value.encode()) for name, value in headers.items()),
            ],
        }  # fmt: skip
        self._api = web.api
        self._reads = asyncio.Event()
        self._gone = asyncio.Event()
        self._begun = False
        self._task = asyncio.run_coroutine_threadsafe(
            self._api(self._scope, self._receive, self._send), self._loop
        )

    async def _receive(self):
        if not self._begun:
            self._begun = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        self.pieces.append(message["body"])
        if not self._gone.is_set():
            await self._reads.wait()

    def read(self):
        self._loop.call_soon_threadsafe(self._reads.set)

    def leave(self):
        self._loop.call_soon_threadsafe(self._gone.set)
        self._loop.call_soon_threadsafe(self._reads.set)

    @property
    def text(self):
        return b"".join(self.pieces).decode()

    def ended(self):
        self._task.result(30)
        return True
