"""A channel with a lifetime is in use while a reader waits for its next event, at every door."""

import asyncio
import contextlib

import pytest

from tests.behaviour.test_subscriptions import Following
from tests.conftest import InLoop, eventually
from tests.server.listening import Listener
from tests.server.sockets import Socket
from towpath.app import hub, subscriptions

EVENTS = "/api/channels/chat/events"
STREAM = "/v1/stream/chat"
SSE = {"accept": "text/event-stream"}


@contextlib.contextmanager
def blocking(web, root):
    following = Following(web.app, "chat", "now")
    yield lambda: following.error is None and not following.ended


@contextlib.contextmanager
def in_a_loop(web, root):
    following = Following(InLoop(web.app, web._loop), "chat", "now")
    yield lambda: following.error is None and not following.ended


@contextlib.contextmanager
def websocket(web, root):
    socket = Socket(web, root)
    socket.ask(subscribe={"channel": "chat"})
    yield lambda: not any('"reset"' in each.get("text", "") for each in socket.sent)
    socket.close()


def request(path, query, **headers):
    @contextlib.contextmanager
    def listening(web, root):
        listener = Listener(web, root, path, query, **headers)
        listener.read()
        yield lambda: "reset" not in listener.text and listener.status in {None, 200}
        listener.leave()

    return listening


DOORS = {
    "blocking": blocking,
    "in a loop": in_a_loop,
    "websocket": websocket,
    "server-sent": request(EVENTS, b"", **SSE),
    "wait": request(EVENTS, b"after=now&wait=30"),
    "stream server-sent": request(STREAM, b"offset=-1&live=sse"),
    "stream wait": request(STREAM, b"offset=-1&live=long-poll"),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_reader_that_waits_keeps_a_channel_alive(web, root, clock, monkeypatch, door):
    for module in (hub, subscriptions):  # in seconds of the test, and not of its clock
        monkeypatch.setattr(module, "renewal", lambda _: 0.01)
    lifetime = {"content-type": "application/json", "stream-ttl": "60"}
    assert web.put(STREAM, as_=root, headers=lifetime).status_code == 201

    def ends_at():
        looking = web.app.durable_streams.look("chat")
        return asyncio.run_coroutine_threadsafe(looking, web._loop).result().expires_at

    with DOORS[door](web, root) as goes_on:
        for _ in range(3):
            before = ends_at()
            clock.advance(40)
            eventually(lambda before=before: ends_at() > before)
        assert goes_on()
    clock.advance(60)
    assert web("HEAD", STREAM, as_=root).status_code == 404
