"""Readers of a channel that come and go: over WebSocket, server-sent events and long-poll."""

import asyncio
import contextlib
import itertools
import json
import random
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from tests.server.live import Served

LOST = (OSError, TimeoutError, httpx.HTTPError, WebSocketException)
Page = tuple[list[Any], str]  # payloads, and the cursor behind them
LONGEST = 0.6  # seconds for which a reader stays at a server


class WireReader:
    """Reads a channel at one server after the other, and is cut off at any moment."""

    def __init__(self, servers: Sequence[Served], key: str, channel: str, chance: random.Random):
        self.got: list[Any] = []
        self.attaches = 0
        self._cursor: str | None = None  # up to which everything is in `got`
        self._turns = itertools.cycle(servers)
        self._key = key
        self._channel = channel
        self._chance = chance

    async def run(self, count: int) -> None:
        """Read until there are so many events; come back after every cut."""
        headers = {"authorization": f"Bearer {self._key}"}
        async with httpx.AsyncClient(headers=headers, timeout=60, trust_env=False) as http:
            while len(self.got) < count:
                self.attaches += 1
                address = f"127.0.0.1:{next(self._turns).port}"
                with contextlib.suppress(*LOST):
                    async with asyncio.timeout(self._chance.uniform(0, LONGEST)):
                        await self._read(self._pages(http, address), count)
                await asyncio.sleep(0)  # a server that is gone refuses at once

    async def _read(self, pages: AsyncGenerator[Page], count: int) -> None:
        async with contextlib.aclosing(pages):
            async for events, cursor in pages:
                self.got += events
                self._cursor = cursor
                if len(self.got) >= count:
                    return

    def _pages(self, http: httpx.AsyncClient, address: str) -> AsyncGenerator[Page]:
        """Read from the cursor on."""
        raise NotImplementedError


class LiveReader(WireReader):
    """Over a WebSocket."""

    async def _pages(self, http: httpx.AsyncClient, address: str) -> AsyncGenerator[Page]:
        async with connect(f"ws://{address}/api/ws", close_timeout=0) as socket:
            try:
                await socket.send(json.dumps({"hello": {"token": self._key}}))
                start = self._cursor or "start"
                await socket.send(
                    json.dumps({"subscribe": {"channel": self._channel, "from": start}})
                )
                async for text in socket:
                    frame = json.loads(text)
                    assert not frame.keys() & {"reset", "closed", "error"}, frame
                    if batch := frame.get("events"):
                        assert self._cursor in {None, batch["from"]}
                        yield [each["payload"] for each in batch["items"]], batch["to"]
            finally:
                socket.transport.abort()


class SseReader(WireReader):
    """Over server-sent events; resumes by the URL or, as a browser does, by Last-Event-ID."""

    async def _pages(self, http: httpx.AsyncClient, address: str) -> AsyncGenerator[Page]:
        url = f"http://{address}/v1/stream/{self._channel}"
        offset, headers = self._cursor or "-1", {}
        if self._cursor and self.attaches % 2:
            offset, headers = "-1", {"last-event-id": self._cursor}
        query = {"offset": offset, "live": "sse"}
        async with contextlib.aclosing(_sent(http, url, query, headers)) as sent:
            async for fields in sent:
                if fields.get("event") == "data":
                    yield json.loads(fields["data"]), fields["id"]


class FrameReader(WireReader):
    """Over server-sent events of our own, which are the frames of the WebSocket."""

    async def _pages(self, http: httpx.AsyncClient, address: str) -> AsyncGenerator[Page]:
        url = f"http://{address}/api/channels/{self._channel}/events"
        query, headers = {"after": self._cursor or ""}, {"accept": "text/event-stream"}
        if self._cursor and self.attaches % 2:
            query, headers["last-event-id"] = {}, self._cursor
        async with contextlib.aclosing(_sent(http, url, query, headers)) as sent:
            async for fields in sent:
                frame = json.loads(fields.get("data", "{}"))
                assert not frame.keys() & {"reset", "closed"}, frame
                if batch := frame.get("events"):
                    assert self._cursor in {None, batch["from"]}
                    yield [each["payload"] for each in batch["items"]], batch["to"]


async def _sent(
    http: httpx.AsyncClient, url: str, query: dict[str, str], headers: dict[str, str]
) -> AsyncGenerator[dict[str, str]]:
    """Read server-sent events, each as its fields."""
    async with http.stream("GET", url, params=query, headers=headers) as answer:
        assert answer.status_code in {200, 503}, answer
        fields: dict[str, str] = {}
        async for line in answer.aiter_lines():
            if line:
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
                continue
            yield fields
            fields = {}


class PollReader(WireReader):
    """By requests that wait, at both doors."""

    async def _pages(self, http: httpx.AsyncClient, address: str) -> AsyncGenerator[Page]:
        streams, channels = f"http://{address}/v1/stream", f"http://{address}/api/channels"
        while True:
            if self.attaches % 2:
                query = {"offset": self._cursor or "-1", "live": "long-poll"}
                answer = await http.get(f"{streams}/{self._channel}", params=query)
                if answer.status_code == httpx.codes.OK:
                    yield answer.json(), answer.headers["stream-next-offset"]
            else:
                asked = {"after": self._cursor or "", "wait": 5, "limit": 50}
                answer = await http.get(f"{channels}/{self._channel}/events", params=asked)
                if answer.status_code == httpx.codes.OK:
                    page = answer.json()
                    yield [each["payload"] for each in page["events"]], page["cursor"]
            assert answer.status_code in {200, 204, 503}, answer
