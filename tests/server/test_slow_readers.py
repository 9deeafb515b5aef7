"""WebSockets whose clients read slowly, or not at all."""

import asyncio
import contextlib
import json
import socket
import time

import psutil
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.conftest import eventually
from tests.faults.processes import until
from tests.server.live import Served
from towpath import App, NewEvent
from towpath.server import Api

HANDSHAKE = {"sec_websocket_version": 13, "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ=="}
LITTLE = 4_096  # bytes that the system keeps for a client


@pytest.fixture
def serve(tmp_path):
    """Start a server on a SQLite file, with so much patience."""
    started = []

    def start(**patience):
        started.append(Served(f"sqlite:///{tmp_path}/test.db", tmp_path, **patience))
        return started[-1]

    yield start
    for served in started:
        served.end()


@pytest.fixture
def follow():
    """Open clients that follow a channel, and for which the system keeps little."""
    with contextlib.ExitStack() as leaving:

        def begin(served, app):
            _, key = app.keys.create("reader", scopes=["subscribe"])
            narrow = socket.socket()
            narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LITTLE)
            narrow.connect(("127.0.0.1", served.port))
            url = f"ws://127.0.0.1:{served.port}/api/ws"
            client = connect(url, sock=narrow, max_queue=1, close_timeout=0, ping_interval=None)
            client = leaving.enter_context(client)
            ask(client, hello={"token": key})
            ask(client, subscribe={"channel": "chat"})
            return client

        yield begin


def ask(client, **frame):
    client.send(json.dumps({"id": 1, **frame}))
    assert "ok" in json.loads(client.recv(60))


def frame(client):
    """Return the cursors and payloads of the next frame with events."""
    while True:
        found = json.loads(client.recv(60))
        if "events" in found:
            batch = found["events"]
            return batch["from"], batch["to"], [each["payload"] for each in batch["items"]]


def open_connections(served):
    found = psutil.Process(served.process.pid).net_connections("tcp")
    return sum(each.status == psutil.CONN_ESTABLISHED for each in found)


def test_a_client_that_reads_nothing_is_cut_off_and_takes_little_memory(follow, serve):
    served = serve(body=1.0)
    with App(served.database) as app:
        stuck = [follow(served, app) for _ in range(20)]
        before = served.resident
        for _ in range(20):
            app.events.publish_many("chat", [NewEvent("x" * 1_000)] * 1_000)
        eventually(lambda: not open_connections(served))

    assert served.resident - before < 64 * 2**20  # of 400 MB that were to be sent
    for client in stuck:
        with contextlib.suppress(ConnectionClosed):
            list(client)  # to its end


def test_a_client_that_reads_slowly_is_not_cut_off(follow, serve):
    """It reads for longer than a client may read nothing; a ping waits behind what it reads."""
    served = serve(body=5.0, pong=1.5)
    with App(served.database) as app:
        client = follow(served, app)
        for n in range(8):
            app.events.publish_many("chat", [NewEvent([n, k, "x" * 1_000]) for k in range(250)])
        got, to = [], None
        while len(got) < 2_000:
            if len(got) < 400:
                time.sleep(1)  # slower than the server sends
            after, upto, payloads = frame(client)
            assert to in {None, after}
            to = upto
            got += payloads
        app.events.publish("chat", "live")

        assert [(n, k) for n, k, _ in got] == [(n, k) for n in range(8) for k in range(250)]
        assert frame(client)[2] == ["live"]


def test_a_client_that_answers_no_ping_is_cut_off(serve):
    served = serve(pong=0.5)
    with served.connect() as wire:
        wire.send(
            wire.head("GET", "/api/ws", upgrade="websocket", connection="upgrade", **HANDSHAKE)
        )
        assert b"101" in wire._until(b"\r\n\r\n")

        assert wire.is_closed()


def test_a_server_stops_though_clients_do_not_read(follow, serve):
    """The fixture checks that the server has ended well, without an error in its log."""
    served = serve()
    with App(served.database) as app:
        reader, *_ = [follow(served, app) for _ in range(4)]
        app.events.publish_many("chat", [NewEvent("x" * 1_000)] * 1_000)
        got = 0
        while got < 1_000:
            got += len(frame(reader)[2])


def test_channels_take_turns_at_a_slow_client(loop):
    """Without a network: what waits for the client is one frame, however many channels it has."""
    going, most = 0, 0

    async def session():
        incoming = asyncio.Queue()
        go_on = asyncio.Event()
        texts = []

        async def send(message):
            nonlocal going, most
            going += 1
            most = max(most, going)
            if "events" in message.get("text", ""):
                await go_on.wait()
            texts.append(message.get("text", ""))
            going -= 1

        scope = {"type": "websocket", "path": "/api/ws", "headers": [], "query_string": b""}
        async with App("memory://") as app:
            await app.access.aset(channels={"chat": {"subscribe_rule": "true"}})
            incoming.put_nowait({"type": "websocket.connect"})
            names = [f"chat:{n}" for n in range(10)]
            for n, name in enumerate(names):
                frame = {"id": n, "subscribe": {"channel": name}}
                incoming.put_nowait({"type": "websocket.receive", "text": json.dumps(frame)})
            running = asyncio.ensure_future(Api(app)(scope, incoming.get, send))
            await until(lambda: sum("current" in text for text in texts) == len(names))
            for name in names:
                await app.events.apublish(name, 1)
            await until(lambda: going)
            go_on.set()
            await until(lambda: sum("events" in text for text in texts) == len(names))
            incoming.put_nowait({"type": "websocket.disconnect"})
            await running

    asyncio.run_coroutine_threadsafe(session(), loop).result(60)
    assert most == 1
