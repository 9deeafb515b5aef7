"""Clients of the WebSocket: over a network, and without one."""

import asyncio
import contextlib
import itertools
import json
import queue
import time

from websockets.sync.client import connect

SECONDS = 60.0  # for anything to happen, on a machine that stalls


class Frames:
    """Sends and receives frames."""

    def __init__(self):
        self._numbers = itertools.count(1)

    def ask(self, **frame):
        """Send a frame; return its answer, which may come behind others."""
        id = next(self._numbers)
        self.send(id=id, **frame)
        return self.answer_to(id)

    def answer_to(self, *ids):
        for answer in self._coming():
            if "id" in answer and answer["id"] in ids:
                return answer
        raise AssertionError("no answer came")

    def _coming(self):
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends:  # beats come for ever
            yield self.receive()

    def events(self, count):
        """Wait for so many events; they join without a gap."""
        found, to = [], None
        while len(found) < count:
            batch = self.until("events")
            assert to in {None, batch["from"]}
            to = batch["to"]
            found += [event["payload"] for event in batch["items"]]
        return found

    def until(self, verb):
        for frame in self._coming():
            if verb in frame:
                return frame[verb]
        raise AssertionError(f"no {verb} came")


class Client(Frames):
    """A WebSocket of one caller."""

    def __init__(self, served, token=None, query="", **more):
        super().__init__()
        url = f"ws://127.0.0.1:{served.port}/api/ws{query}"
        self._leaving = contextlib.ExitStack()
        self.socket = self._leaving.enter_context(connect(url, open_timeout=SECONDS, **more))
        if token:
            assert "ok" in self.ask(hello={"token": token})

    def send(self, **frame):
        self.socket.send(json.dumps(frame))

    def receive(self):
        return json.loads(self.socket.recv(timeout=SECONDS))

    def close(self):
        self._leaving.close()


class Socket(Frames):
    """The same as ASGI, to the API of a test."""

    def __init__(self, web, token=None, query="", headers=()):
        super().__init__()
        self._loop = web._loop
        self._incoming = asyncio.Queue()
        self._frames = queue.SimpleQueue()
        self.sent = []  # all messages of the server
        scope = {
            "type": "websocket", "path": "/api/ws", "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in dict(headers).items()],
        }  # fmt: skip
        self._put({"type": "websocket.connect"})
        self._task = asyncio.run_coroutine_threadsafe(
            web.api(scope, self._incoming.get, self._send), self._loop
        )
        if token:
            assert "ok" in self.ask(hello={"token": token})

    def _put(self, message):
        self._loop.call_soon_threadsafe(self._incoming.put_nowait, message)

    async def _send(self, message):
        self.sent.append(message)
        if message["type"] == "websocket.send":
            self._frames.put(json.loads(message["text"]))

    def send(self, **frame):
        self.send_text(json.dumps(frame))

    def send_text(self, text):
        self._put({"type": "websocket.receive", "text": text})

    def receive(self):
        return self._frames.get(timeout=SECONDS)

    def close(self):
        self._put({"type": "websocket.disconnect", "code": 1000})
        self.ended()

    def ended(self):
        self._task.result(SECONDS)
