"""Live events over a WebSocket: what is there, what comes, and how it ends."""

import asyncio
import contextlib
import json
import os

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.sync.client import connect

from tests.conftest import eventually
from tests.schemas import Schemas
from tests.server.conftest import Web, token_of
from tests.server.live import Served
from tests.server.sockets import Client, Socket
from towpath import App, NewEvent
from towpath.server import Api
from towpath.server.live import session as live_session


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request):
    return request.param


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def served(request, postgres, tmp_path_factory):
    """A server of each database, which takes longer to start than most tests."""
    path = tmp_path_factory.mktemp("live")
    schema = f"t{os.getpid()}_live"
    is_file = request.param == "sqlite"
    with pytest.MonkeyPatch.context() as environment:
        if not is_file:
            environment.setenv("TOWPATH_SCHEMA", schema)
        served = Served(f"sqlite:///{path}/test.db" if is_file else postgres.url(), path)
        yield served
        served.end()
    if not is_file:
        Schemas.of(postgres).drop(schema)


@pytest.fixture
def app(served):
    """The app of the server, whose channels the next test does not find."""
    with App(served.database) as app:
        yield app
        for channel in app.events.list():
            app.events.delete(channel.name)


@pytest.fixture
def key(app):
    return app.keys.create("all", scopes=["publish", "subscribe"])[1]


@pytest.fixture
def client(served, key):
    client = Client(served, key)
    yield client
    client.close()


def test_a_client_gets_what_is_there_and_what_comes(client, app):
    """EV-3, EV-4"""
    app.events.publish_many("chat", [NewEvent(n) for n in range(3)])
    told = client.ask(subscribe={"channel": "chat"})["ok"]
    assert client.events(3) == [0, 1, 2]
    assert client.until("current") == {"channel": "chat", "cursor": told["head"]}
    for n in range(3, 6):
        app.events.publish("chat", n)

    assert client.events(3) == [3, 4, 5]


def test_a_client_publishes(client, app):
    answer = client.ask(
        publish={"channel": "chat", "events": [{"payload": 1, "type": "t"}, {"payload": 2}]}
    )

    page = app.events.read("chat")
    assert [event.payload for event in page.events] == [1, 2]
    assert answer["ok"]["cursors"] == [event.cursor for event in page.events]


def test_one_connection_follows_many_channels(client, app):
    for n in range(20):
        client.ask(subscribe={"channel": f"chat:{n}", "from": "now"})
    for n in range(20):
        app.events.publish(f"chat:{n}", n)

    seen = {}
    while len(seen) < 20:
        batch = client.until("events")
        seen[batch["channel"]] = batch["items"][0]["payload"]
    assert seen == {f"chat:{n}": n for n in range(20)}


def test_a_client_comes_back_with_its_cursor(served, key, app):
    """EV-3"""
    first = Client(served, key)
    first.ask(subscribe={"channel": "chat"})
    app.events.publish_many("chat", [NewEvent(n) for n in range(5)])
    cursor = first.until("events")["items"][1]["cursor"]
    first.close()
    app.events.publish("chat", 5)
    second = Client(served, key)
    second.ask(subscribe={"channel": "chat", "from": cursor})

    assert second.events(4) == [2, 3, 4, 5]
    second.close()


def test_a_subscription_begins_where_the_client_wants(served, key, app):
    app.events.publish_many("chat", [NewEvent(n, type=f"t{n % 2}") for n in range(6)])
    app.events.close("chat")

    def found(**options):
        client = Client(served, key)
        client.send(subscribe={"channel": "chat", **options})
        seen = []
        while True:
            frame = client.receive()
            seen += [event["payload"] for event in frame.get("events", {}).get("items", ())]
            if "closed" in frame:
                client.close()
                return seen

    assert found() == found(**{"from": "start"}) == [0, 1, 2, 3, 4, 5]
    assert found(**{"from": "now"}) == []
    assert found(**{"from": {"last": 2}}) == [4, 5]
    assert found(**{"from": {"since": "2020-01-01T00:00:00Z"}}) == [0, 1, 2, 3, 4, 5]
    assert found(types=["t1"]) == [1, 3, 5]


def test_a_cursor_of_its_source_is_told_as_one_of_the_fork(quick_web):
    """So the first frame joins it, as each frame joins the one before."""
    events, root = quick_web.app.events, token_of(quick_web.app, "_superusers", "root@example.org")
    events.publish_many("a", [NewEvent(n) for n in range(3)])
    forked = {"stream-forked-from": "/v1/stream/a"}
    assert quick_web("PUT", "/v1/stream/b", as_=root, headers=forked).status_code == 201
    socket = Socket(quick_web, root)
    asked = {"channel": "b", "from": events.read("a").events[0].cursor}

    told = socket.ask(subscribe=asked)["ok"]

    batch = socket.until("events")
    assert [batch["from"], len(batch["items"])] == [told["cursor"], 2]
    socket.close()


def test_events_of_other_types_are_no_hole(client, app):
    """Also not in front of the first event that is wanted, a page further on."""
    app.events.publish_many("chat", [NewEvent(n, type="other") for n in range(1_001)])
    app.events.publish("chat", "wanted", type="said")

    begun = client.ask(subscribe={"channel": "chat", "types": ["said"]})["ok"]
    batch = client.until("events")
    assert batch["from"] == begun["cursor"]
    assert [event["payload"] for event in batch["items"]] == ["wanted"]


def test_the_end_of_a_channel_is_told(client, app):
    app.events.publish("chat", 1)
    client.ask(subscribe={"channel": "chat"})
    app.events.close("chat")

    closed = client.until("closed")
    assert (closed["channel"], closed["ended"]) == ("chat", "closed")
    assert "ok" in client.ask(subscribe={"channel": "chat"})  # it is not subscribed to any more


def test_a_deleted_channel_resets_its_subscribers(client, app):
    app.events.publish("chat", 1)
    client.ask(subscribe={"channel": "chat"})
    assert client.events(1) == [1]
    app.events.delete("chat")

    assert client.until("reset")["reason"] == "channel"


class MovedAway(Socket):
    """A client behind whose first answer the channel changes, before the server reads it."""

    def __init__(self, web, token, change):
        super().__init__(web, token)
        self._change = change

    async def _send(self, message):
        await super()._send(message)
        if '"head"' in message.get("text", ""):
            await self._change()


@pytest.mark.parametrize("reason", ["channel", "retention"])
def test_a_channel_that_changes_behind_the_answer_resets_its_reader(make_app, loop, reason):
    """EV-6: the client was told a cursor, so it is never served the events of another place."""
    app = make_app()
    web = Web(app, loop)
    app.events.publish_many("chat", [NewEvent(n) for n in range(3)])

    async def change():
        if reason == "channel":
            await app.events.adelete("chat")
        else:
            await app.events.alimit("chat", max_count=1)
            await asyncio.to_thread(app.upkeep.run)
        await app.events.apublish("chat", "later")

    client = MovedAway(web, app.keys.create("all", scopes=["subscribe"])[1], change)
    begun = client.ask(subscribe={"channel": "chat", "from": "start"})["ok"]
    told = client.until("reset")

    assert (told["reason"], told["channel"]) == (reason, "chat")
    assert begun["cursor"] < told["head"]
    assert not any('"events"' in message.get("text", "") for message in client.sent)
    client.close()
    web.close()


class Eager(Socket):
    """A client that subscribes again as soon as it reads the end, while that is being sent."""

    async def _send(self, message):
        await super()._send(message)
        if '"closed"' in message.get("text", ""):
            self.send(id=9, subscribe={"channel": "chat"})
            for _ in range(10):
                await asyncio.sleep(0)  # the server reads it


def test_a_channel_may_be_subscribed_to_again_while_its_end_is_sent(make_app, loop):
    app = make_app()
    web = Web(app, loop)
    client = Eager(web, app.keys.create("all", scopes=["subscribe"])[1])
    app.events.publish("chat", 1)
    client.ask(subscribe={"channel": "chat", "from": "start"})
    app.events.close("chat")

    assert "ok" in client.answer_to(9)
    client.close()
    web.close()


def test_an_unsubscribed_channel_sends_nothing(client, app):
    client.ask(subscribe={"channel": "a"})
    client.ask(subscribe={"channel": "b"})
    assert client.ask(unsubscribe={"channel": "a"})["ok"] == {"channel": "a"}
    app.events.publish("a", 1)
    app.events.publish("b", 2)

    assert client.until("events")["channel"] == "b"
    assert client.ask(unsubscribe={"channel": "a"})["error"]["code"] == "invalid"


# ---------------------------------------------------------------- callers


def test_a_caller_without_the_right_is_refused(served, app):
    app.events.publish("chat", 1)
    stranger = Client(served)
    answer = stranger.ask(subscribe={"channel": "chat"})
    assert answer["error"]["code"] == "login_required"
    answer = stranger.ask(publish={"channel": "chat", "events": [{}]})
    assert answer["error"]["code"] == "login_required"
    assert stranger.ask(hello={"token": "nonsense"})["error"]["code"] == "invalid_token"
    reader = app.keys.create("r", scopes=["subscribe"], channels=["news"])[1]
    assert "ok" in stranger.ask(hello={"token": reader})
    assert stranger.ask(subscribe={"channel": "chat"})["error"]["code"] == "forbidden"
    assert "ok" in stranger.ask(subscribe={"channel": "news"})
    stranger.close()


def test_a_right_that_is_lost_ends_the_subscription(served, app):
    app.access.set(channels={"chat": {"subscribe_rule": "true"}})
    client = Client(served)
    # The other process hears of a new rule within moments; an event before that is allowed.
    eventually(lambda: "ok" in client.ask(subscribe={"channel": "chat"}))
    app.events.publish("chat", 1)
    assert client.events(1) == [1]
    app.access.set(channels={"chat": None})
    eventually(lambda: Client(served).ask(subscribe={"channel": "chat"}).get("error"))
    app.events.publish("chat", 2)

    while "events" in (frame := client.receive()) or "current" in frame:
        assert "2" not in json.dumps(frame.get("events", {}).get("items", ""))
    assert frame["reset"]["reason"] in {"login_required", "forbidden"}
    client.close()


def test_a_revoked_key_gets_no_further_event(served, app):
    revocable, secret = app.keys.create("r", scopes=["subscribe"])
    client = Client(served, secret)
    client.ask(subscribe={"channel": "chat"})
    app.events.publish("chat", 1)
    assert client.events(1) == [1]
    app.keys.revoke(revocable.id)
    eventually(lambda: _is_refused(served, secret))
    app.events.publish("chat", 2)

    frame = client.receive()
    while "current" in frame:
        frame = client.receive()
    assert frame["reset"]["reason"] == "invalid_token"
    with pytest.raises(ConnectionClosed) as closed:
        client.receive()
    assert closed.value.rcvd.code == 4100  # log in, and come back
    client.close()


def _is_refused(served, secret):
    client = Client(served)
    try:
        return "error" in client.ask(hello={"token": secret})
    finally:
        client.close()


def test_a_pass_lets_in_once_and_to_its_channels(served, key, app):
    made = app.accounts.issue_pass(key, ["chat"])
    client = Client(served, query=f"?pass={made}")
    assert "ok" in client.ask(subscribe={"channel": "chat"})
    assert client.ask(subscribe={"channel": "other"})["error"]["code"] == "forbidden"
    answer = client.ask(publish={"channel": "chat", "events": [{}]})
    assert answer["error"]["code"] == "forbidden"
    app.events.publish("chat", 1)
    assert client.events(1) == [1]
    client.close()

    for spent in (made, "nonsense"):
        with pytest.raises(InvalidStatus):
            Client(served, query=f"?pass={spent}")


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_pages_of_other_sites_are_refused(served, origin):
    with pytest.raises(InvalidStatus) as refused:
        Client(served, origin=origin)

    assert refused.value.response.status_code == 403


def test_pages_of_the_same_site_are_let_in(served, key):
    Client(served, key, origin=f"http://127.0.0.1:{served.port}").close()


@pytest.mark.parametrize("named", ["https://shop.example", "*"])
def test_pages_of_a_site_that_is_named_are_let_in_without_our_cookie(loop, named):
    with App("memory://") as app:
        web = Web(app, loop)
        web.api.shared.origins = frozenset([named])
        page = {"origin": "https://shop.example"}
        plain = Socket(web, headers=page)
        plain.close()
        cookie = Socket(web, headers=page | {"cookie": "towpath_auth=x"})
        cookie.ended()
        web.close()

    assert plain.sent == [{"type": "websocket.accept"}]
    assert cookie.sent == [{"type": "websocket.close", "code": 4403, "reason": "csrf_refused"}]


def test_another_path_has_no_websocket(served):
    with pytest.raises(InvalidStatus):
        connect(f"ws://127.0.0.1:{served.port}/healthz").__enter__()


# ---------------------------------------------------------------- wrong frames


WRONG_FRAMES = [
    "", "nonsense", "[]", "5", "{}", '{"id": 1}', '{"unknown": 1}', '{"beat": "x"}',
    '{"subscribe": {}}', '{"subscribe": {"channel": 5}}', '{"subscribe": {"channel": "a b"}}',
    '{"subscribe": {"channel": "a", "from": "soon"}}',
    '{"subscribe": {"channel": "a", "from": {"last": 0}}}',
    '{"subscribe": {"channel": "a", "types": ["a b"]}}',
    json.dumps({"subscribe": {"channel": "a", "types": ["t"] * 51}}),
    '{"hello": {"token": "x"}, "beat": 1}',
    '{"publish": {"channel": "system", "events": [{}]}}',
    '{"publish": {"channel": "a", "events": [{"payload": NaN}]}}', "[" * 10_000,
]  # fmt: skip


def test_a_wrong_frame_is_answered_and_the_connection_goes_on(client):
    for number, text in enumerate(WRONG_FRAMES):
        client.socket.send(text)

        error = client.until("error")
        assert error["code"], text
        assert "Traceback" not in json.dumps(error)
        assert "ok" in client.ask(subscribe={"channel": f"chat-{number}"})


def test_bytes_are_refused_and_the_connection_goes_on(client):
    client.socket.send(b"{}")
    assert client.receive()["error"]["message"] == "send frames as text, not as bytes"
    client.send(beat=1)

    assert "ok" in client.ask(subscribe={"channel": "chat"})


def test_a_frame_that_is_too_large_ends_the_connection(client):
    with contextlib.suppress(ConnectionClosed):
        client.socket.send("x" * 3_000_000)
    with pytest.raises(ConnectionClosed) as closed:
        client.receive()

    assert closed.value.rcvd is None or closed.value.rcvd.code == 1009


def test_text_that_is_not_utf_8_ends_the_connection(client):
    client.socket.socket.sendall(Frame(Opcode.TEXT, b"\xff\xfe").serialize(mask=True))
    with pytest.raises(ConnectionClosed) as closed:
        client.receive()

    assert closed.value.rcvd is None or closed.value.rcvd.code == 1007


def test_a_channel_is_subscribed_to_once(client):
    assert "ok" in client.ask(subscribe={"channel": "chat"})
    assert "already" in client.ask(subscribe={"channel": "chat"})["error"]["message"]
    assert "before" in client.ask(hello={"token": "x"})["error"]["message"]


# ---------------------------------------------------------------- the end of a session


@pytest.mark.one_database
def test_a_server_that_stops_says_when_to_come_back(tmp_path):
    served = Served(f"sqlite:///{tmp_path}/test.db", tmp_path)
    with App(served.database) as app:
        _, key = app.keys.create("all", scopes=["subscribe"])
    client = Client(served, key)
    client.ask(subscribe={"channel": "chat"})
    served.signal()

    bye = client.until("bye")
    assert bye["code"] == "going_away"
    assert 0 <= bye["after"] <= 2
    served.ended(0)


def test_a_session_beats_and_ends_by_itself(loop, monkeypatch):
    """Without a network: the application as ASGI."""
    monkeypatch.setattr(live_session, "BEAT", 0.01)
    monkeypatch.setattr(live_session, "LIFETIME", 0.05)
    sent = []

    async def session():
        incoming = asyncio.Queue()
        incoming.put_nowait({"type": "websocket.connect"})

        async def send(message):
            sent.append(message)

        scope = {"type": "websocket", "path": "/api/ws", "headers": [], "query_string": b""}
        with App("memory://") as app:
            await Api(app)(scope, incoming.get, send)

    asyncio.run_coroutine_threadsafe(session(), loop).result(30)
    texts = [json.loads(each["text"]) for each in sent if each["type"] == "websocket.send"]
    assert sent[0] == {"type": "websocket.accept"}
    assert texts[0] == {"beat": 1}
    assert "bye" in texts[-1]
    assert sent[-1] == {"type": "websocket.close", "code": 4000, "reason": "going_away"}
