"""Who may do what to a channel: each door by each caller, and rights that are lost on the way."""

import json

import pytest

from tests.conftest import eventually
from tests.server.conftest import Web, token_of
from tests.server.listening import Listener
from tests.server.sockets import Socket
from towpath import App
from towpath.server import authentication, request

OWN = "@channel.rest = @request.auth.id"
JSON = {"content-type": "application/json"}
SSE = {"accept": "text/event-stream"}


class World:
    """Channels whose rules let in one user each, and one of each caller."""

    def __init__(self, web, clock):
        app = web.app
        self.web, self.app = web, app
        ended = token_of(app, "_superusers", "gone@example.org")
        clock.advance("8d")
        ada = token_of(app, "users", "ada@example.org")
        self.id = app.accounts.get("users", "ada@example.org").id
        self.name = f"user:{self.id}"
        rules = {f"{verb}_rule": OWN for verb in ("subscribe", "publish", "manage")}
        forks = {"publish_rule": "@request.auth.id != ''"}
        app.access.set(channels={"user:": rules, "fork:": forks, "news": {"publish_rule": "true"}})
        scopes = ["publish", "subscribe", "manage"]

        def key(channels, scopes=scopes):
            return app.keys.create("k", scopes=scopes, channels=channels)

        old, revoked = key([])
        app.keys.revoke(old.id)
        self.callers = {
            "anonymous": None,
            "owner": ada,
            "other user": token_of(app, "users", "bob@example.org"),
            "superuser": token_of(app, "_superusers", "root@example.org"),
            "key": key(["user:", "fork:"])[1],
            "key of another prefix": key(["news", "user:x"])[1],
            "key of other scopes": key([], ["enqueue", "work"])[1],
            "revoked key": revoked,
            "ended token": ended,
        }

    def ask(self, method, path, body=None, as_=None, **headers):
        """Ask over HTTP; return None, or the code of the refusal."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.web(method, path.format(self.name), body, as_=as_, headers=named)
        return _refusal(answer)

    def say(self, as_, **frame):
        """Ask over a WebSocket."""
        socket = Socket(self.web)
        try:
            if as_ is not None:
                hello = socket.ask(hello={"token": as_})
                if "error" in hello:
                    return hello["error"]["code"]
            return socket.ask(**frame).get("error", {}).get("code")
        finally:
            socket.close()

    def enter(self, as_, path, **headers):
        """Get a pass, and read with it."""
        made = self.web.post("/api/passes", {"channels": [self.name]}, as_=as_)
        if made.status_code != 201:
            return _refusal(made)
        query = f"{'&' if '?' in path else '?'}pass={made.json()['pass']}"
        return self.ask("GET", path + query, **headers)


def _refusal(answer):
    if answer.status_code not in {401, 403}:
        assert answer.status_code < 400, answer.text
        return None
    if answer.request.method == "HEAD":
        return {401: "login_required", 403: "forbidden"}[answer.status_code]
    return answer.json()["code"]


EVENTS, STREAM = "/api/channels/{}/events", "/v1/stream/{}"
MAILER = "/api/channels/{}/consumers/mailer"
READ = {
    "show": lambda w, t: w.ask("GET", "/api/channels/{}", as_=t),
    "read": lambda w, t: w.ask("GET", EVENTS, as_=t),
    "wait": lambda w, t: w.ask("GET", f"{EVENTS}?after=now&wait=30", as_=t),
    "server-sent": lambda w, t: w.ask("GET", EVENTS, as_=t, **SSE),
    "socket": lambda w, t: w.say(t, subscribe={"channel": w.name}),
    "socket as consumer": lambda w, t: w.say(t, subscribe={"channel": w.name, "consumer": "m"}),
    "stream": lambda w, t: w.ask("GET", STREAM, as_=t),
    "stream wait": lambda w, t: w.ask("GET", f"{STREAM}?offset=now&live=long-poll", as_=t),
    "stream server-sent": lambda w, t: w.ask("GET", f"{STREAM}?offset=-1&live=sse", as_=t),
    "stream head": lambda w, t: w.ask("HEAD", STREAM, as_=t),
    "fork": lambda w, t: w.ask(
        "PUT", "/v1/stream/fork:1", as_=t, stream_forked_from=f"/v1/stream/{w.name}"
    ),
    "attach": lambda w, t: w.ask("PUT", MAILER, as_=t),
    "ack": lambda w, t: w.ask(
        "POST", f"{MAILER}/ack", {"cursor": w.cursor, "generation": w.generation}, as_=t
    ),
    "pass": lambda w, t: w.enter(t, EVENTS),
    "pass server-sent": lambda w, t: w.enter(t, EVENTS, **SSE),
    "pass stream": lambda w, t: w.enter(t, f"{STREAM}?offset=-1&live=sse"),
}
WRITE = {
    "publish": lambda w, t: w.ask("POST", EVENTS, {"events": [{}]}, as_=t),
    "socket publish": lambda w, t: w.say(t, publish={"channel": w.name, "events": [{}]}),
    "stream append": lambda w, t: w.ask("POST", STREAM, [1], as_=t),
    "stream make": lambda w, t: w.ask("PUT", STREAM, as_=t, **JSON),
    "close": lambda w, t: w.ask("POST", "/api/channels/{}/close", as_=t),
    "stream close": lambda w, t: w.ask("POST", STREAM, as_=t, stream_closed="true"),
}
MANAGE = {
    "consumers": lambda w, t: w.ask("GET", "/api/channels/{}/consumers", as_=t),
    "move": lambda w, t: w.ask("POST", f"{MAILER}/move", {"from": "now"}, as_=t),
    "forget": lambda w, t: w.ask("DELETE", MAILER, as_=t),
    "limits": lambda w, t: w.ask("PUT", "/api/channels/{}/limits", {}, as_=t),
    "delete": lambda w, t: w.ask("DELETE", "/api/channels/{}", as_=t),
    "stream delete": lambda w, t: w.ask("DELETE", STREAM, as_=t),
}
EXPECTED = {
    "anonymous": "login_required",
    "owner": None,
    "other user": "forbidden",
    "superuser": None,
    "key": None,
    "key of another prefix": "forbidden",
    "key of other scopes": "forbidden",
    "revoked key": "invalid_token",
    "ended token": "invalid_token",
}


@pytest.fixture
def world(quick_web, clock):
    return World(quick_web, clock)


@pytest.mark.parametrize("door", [*READ, *WRITE, *MANAGE])
def test_each_door_lets_in_the_same_callers(world, door):
    """EV-7"""
    use = (READ | WRITE | MANAGE)[door]
    events = world.app.events
    found = {}
    for caller, token in world.callers.items():
        for name in ("fork:1", world.name):
            events.delete(name)
        world.cursor = events.publish(world.name, 1).cursor
        world.generation = events.attach(world.name, "mailer").generation
        if door in READ:
            events.close(world.name)  # so that answers that go on end
        found[caller] = use(world, token)
        is_gone = not events.list(world.name)
        assert is_gone == ("delete" in door and found[caller] is None), "a refusal changes nothing"
    expected = dict(EXPECTED)
    if door == "stream head":  # it has no body to tell more
        expected |= dict.fromkeys(("revoked key", "ended token"), "login_required")

    assert found == expected


def test_a_rule_that_changes_closes_each_door_at_once(world):
    """EV-7"""
    ada = world.callers["owner"]
    events = world.app.events
    world.cursor = events.publish(world.name, 1).cursor
    world.generation = events.attach(world.name, "mailer").generation
    socket = Socket(world.web, ada)
    assert "ok" in socket.ask(publish={"channel": world.name, "events": [{}]})
    world.app.access.set(channels={"user:": None})

    found = {door: use(world, ada) for door, use in (READ | WRITE | MANAGE).items()}
    assert found == dict.fromkeys(found, "forbidden")
    # A session that is open already, too.
    for frame in (
        {"publish": {"channel": world.name, "events": [{}]}},
        {"subscribe": {"channel": world.name}},
    ):
        assert socket.ask(**frame)["error"]["code"] == "forbidden"
    socket.close()


# ---------------------------------------------------------------- rights that are lost on the way


class Reader:
    """A client that reads on; `text` is all that it got."""

    def __init__(self, web, token, door):
        self._socket = self._listener = None
        if door == "socket":
            self._socket = Socket(web, token)
            assert "ok" in self._socket.ask(subscribe={"channel": "chat"})
            return
        path, query, headers = {
            "server-sent": ("/api/channels/chat/events", b"", SSE),
            "wait": ("/api/channels/chat/events", b"wait=30&after=now", {}),
            "stream server-sent": ("/v1/stream/chat", b"offset=-1&live=sse", {}),
            "stream wait": ("/v1/stream/chat", b"offset=now&live=long-poll", {}),
        }[door]
        self._listener = Listener(web, token, path, query, **headers)
        self._listener.read()

    @property
    def text(self):
        if self._listener:
            return self._listener.text
        return json.dumps([message.get("text") for message in self._socket.sent])

    def has_lost_it(self):
        if self._listener:
            return self._listener.ended() and (
                "reset" in self.text or self._listener.status in {401, 403}
            )
        eventually(lambda: "reset" in self.text)
        return True

    def close(self):
        (self._listener.leave if self._listener else self._socket.close)()


GOING_ON = ["socket", "server-sent", "wait", "stream server-sent", "stream wait"]


def watched(app):
    return any(hub._watched for hub in app.events._hubs._hubs.values())


@pytest.mark.parametrize("loss", ["rule", "key", "token", "login"])
@pytest.mark.parametrize("door", GOING_ON)
def test_a_right_that_is_lost_lets_no_further_event_through(
    quick_web, clock, monkeypatch, door, loss
):
    """EV-7"""
    monkeypatch.setattr(authentication, "CACHED_FOR", 0)
    monkeypatch.setattr(request, "CHECKED_FOR", 0)
    app = quick_web.app
    app.access.set(channels={"chat": {"subscribe_rule": "@request.auth.id != ''"}})
    app.events.publish("chat", "first")
    ada = token_of(app, "users", "ada@example.org")
    key, secret = app.keys.create("k", scopes=["subscribe"])
    reader = Reader(quick_web, secret if loss == "key" else ada, door)
    eventually(lambda: watched(app))
    losses = {
        "rule": lambda: app.access.set(channels={"chat": None}),
        "key": lambda: app.keys.revoke(key.id),
        "token": lambda: clock.advance("30d"),
        "login": lambda: app.accounts.revoke(ada),
    }
    losses[loss]()
    app.events.publish("chat", "secret")

    assert reader.has_lost_it()
    assert "secret" not in reader.text
    reader.close()


@pytest.mark.parametrize("loss", ["rule", "key"])
@pytest.mark.parametrize("door", GOING_ON)
def test_a_right_that_is_lost_in_another_process_is_noticed(
    durable_place, loop, quick_passwords, door, loss
):
    """EV-7: within two seconds; here it waits until the other one has noticed."""
    url, needed = durable_place
    with App(url, **needed) as here, App(url, **needed) as there:
        web = Web(here, loop)
        here.access.set(channels={"chat": {"subscribe_rule": "@request.auth.id != ''"}})
        here.events.publish("chat", "first")
        key, secret = there.keys.create("k", scopes=["subscribe"])
        token = secret if loss == "key" else token_of(here, "users", "ada@example.org")
        reader = Reader(web, token, door)
        eventually(lambda: watched(here))
        if loss == "key":
            there.keys.revoke(key.id)
        else:
            there.access.set(channels={"chat": {"subscribe_rule": "@request.auth.role = 'x'"}})
        eventually(lambda: web.get("/api/channels/chat", as_=token).status_code in {401, 403})
        there.events.publish("chat", "secret")

        assert reader.has_lost_it()
        assert "secret" not in reader.text
        reader.close()
        web.close()
