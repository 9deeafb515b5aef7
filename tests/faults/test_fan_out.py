"""Many WebSockets at one server, of which some read slowly or not at all."""

import asyncio
import json

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.faults.sizes import many
from tests.server.live import Served
from towpath import App, NewEvent

pytestmark = pytest.mark.soak

SOCKETS = 300 if many(1) == 1 else 1_000
STUCK, SLOW = SOCKETS // 20, SOCKETS // 50
EVENTS = 300 if many(1) == 1 else 1_000
SIZE = 8_000
MOST_MEMORY = 64 * 2**20 + SOCKETS * 200_000  # bytes: a page for each, not all that it has not read


@pytest.fixture(params=["sqlite"])
def kind(request):
    return request.param


@pytest.fixture
def served(place, tmp_path):
    served = Served(place[0], tmp_path)
    yield served
    served.end()


class Socket:
    """A client that goes on from its cursor when it was cut off."""

    def __init__(self, served, key):
        self.got, self.is_attached, self._cursor = [], False, "start"
        self._url = f"ws://127.0.0.1:{served.port}/api/ws"
        self._key = key
        self._socket = None

    async def attach(self):
        self._socket = await connect(self._url, max_queue=1, ping_interval=None, open_timeout=60)
        await self._socket.send(json.dumps({"hello": {"token": self._key}}))
        subscribe = {"channel": "chat", "from": self._cursor}
        await self._socket.send(json.dumps({"subscribe": subscribe}))

    async def take(self):
        """Read one frame."""
        try:
            frame = json.loads(await self._socket.recv())
        except ConnectionClosed:
            await self.attach()
            return
        if batch := frame.get("events"):
            assert self._cursor in {"start", batch["from"]}
            self._cursor = batch["to"]
            self.got += [each["payload"][0] for each in batch["items"]]
        self.is_attached |= "current" in frame

    async def take_all(self):
        while len(self.got) < EVENTS:
            await self.take()

    async def close(self):
        self._socket.transport.abort()
        await self._socket.wait_closed()


def test_readers_that_stop_hold_up_no_others_and_lose_nothing(served):
    """EV-3: what they do not read is not kept for them in memory; they find it when they go on."""
    with App(served.database) as app:
        key = app.keys.create("reader", scopes=["subscribe"])[1]

        async def run():
            sockets = [Socket(served, key) for _ in range(SOCKETS)]
            for each in sockets:
                await each.attach()
                while not each.is_attached:
                    await each.take()
            before = served.resident
            stuck, slow, rest = (
                sockets[:STUCK], sockets[STUCK : STUCK + SLOW], sockets[STUCK + SLOW :]
            )  # fmt: skip
            goes_on = asyncio.Event()

            async def dawdle(socket):
                while not goes_on.is_set():
                    await socket.take()
                    await asyncio.sleep(0.2)
                await socket.take_all()

            dawdling = [asyncio.ensure_future(dawdle(each)) for each in slow]
            reading = [asyncio.ensure_future(each.take_all()) for each in rest]
            for n in range(0, EVENTS, 20):
                events = [NewEvent([k, "x" * SIZE]) for k in range(n, n + 20)]
                await app.events.apublish_many("chat", events)
            await asyncio.gather(*reading)
            grown = served.resident - before
            goes_on.set()
            await asyncio.gather(*dawdling, *(each.take_all() for each in stuck))
            await asyncio.gather(*(each.close() for each in sockets))
            return sockets, grown

        sockets, grown = asyncio.run(run())

    assert all(each.got == list(range(EVENTS)) for each in sockets)
    assert grown < MOST_MEMORY
