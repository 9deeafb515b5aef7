"""Channels as server-sent events: the frames of the WebSocket, one channel, by GET."""

import json

import pytest

from tests.conftest import eventually
from tests.server.conftest import Web, refused, token_of
from tests.server.listening import Listener, sent_events
from towpath import NewEvent
from towpath.server import streaming

PATH = "/api/channels/chat/events"
ACCEPT = {"accept": "text/event-stream"}


def frames(text):
    """Return the ids and frames of messages; all of them have the default type."""
    found = []
    for id, type, data in sent_events(text):
        if data:
            assert type is None
            found.append((id, json.loads(data)))
    return found


def payloads(text):
    return [
        event["payload"]
        for _, frame in frames(text)
        for event in frame.get("events", {}).get("items", ())
    ]


@pytest.fixture
def chat(web):
    """A closed channel with the events 0 to 5; return their cursors."""
    events = [NewEvent(n, type=f"t{n % 2}") for n in range(6)]
    made = web.app.events.publish_many("chat", events)
    web.app.events.close("chat")
    return [each.cursor for each in made]


def test_a_client_gets_the_frames_of_the_websocket(web, root, chat):
    """EV-4"""
    answer = web.get(PATH, as_=root, headers=ACCEPT)
    page = web.get(PATH, as_=root).json()

    assert answer.headers["content-type"] == "text/event-stream"
    bounds = {"from": page["after"], "to": chat[-1]}
    closed = {"channel": "chat", "cursor": chat[-1], "ended": "closed"}
    assert frames(answer.text) == [
        # Without an id: a client that is cut off before the end gets both again.
        (None, {"events": {"channel": "chat", **bounds, "items": page["events"]}}),
        (chat[-1], {"closed": closed}),
    ]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"after": "start"}, [0, 1, 2, 3, 4, 5]),
        ({"after": "now"}, []),
        ({"after": 3}, [4, 5]),
        ({"last": 2}, [4, 5]),
        ({"since": "2020-01-01T00:00:00Z"}, [0, 1, 2, 3, 4, 5]),
        ({"since": "2200-01-01T00:00:00Z"}, []),
        ({"types": ["t1"]}, [1, 3, 5]),
        ({"types": ["t1", "t0"], "last": 3}, [3, 4, 5]),
        ({"types": ["u*"]}, []),
    ],
)
def test_a_reader_begins_where_it_wants(web, root, chat, query, expected):
    """As JSON and as server-sent events."""
    if isinstance(query.get("after"), int):
        query = {"after": chat[query["after"]]}
    page = web.get(PATH, as_=root, params=query).json()
    followed = web.get(PATH, as_=root, params=query, headers=ACCEPT).text

    assert payloads(followed) == [event["payload"] for event in page["events"]] == expected
    assert page["cursor"] == chat[-1]
    assert frames(followed)[-1][1]["closed"]["cursor"] == chat[-1]


def test_the_last_event_of_a_browser_wins_over_its_url(web, root, chat):
    for query in ({"after": chat[0]}, {"last": 5}, {"since": "2020-01-01T00:00:00Z"}):
        again = ACCEPT | {"last-event-id": chat[3]}
        assert payloads(web.get(PATH, as_=root, params=query, headers=again).text) == [4, 5]


def test_an_event_source_stops_at_the_end_and_at_a_reset(web, root, chat):
    def again(cursor):
        return web.get(PATH, as_=root, headers=ACCEPT | {"last-event-id": cursor})

    assert again(chat[-1]).status_code == 204
    assert web.get(PATH, as_=root, params={"after": chat[-1]}, headers=ACCEPT).status_code == 200
    assert refused(again("x")) == (400, "invalid_cursor")
    web.app.events.delete("chat")
    assert refused(again(chat[3])) == (410, "cursor_reset")


@pytest.mark.parametrize(
    "query",
    [
        {"after": "soon"}, {"last": 0}, {"last": "1e3"}, {"last": "null"}, {"since": "5"},
        {"since": "null"}, {"since": "2026-01-01T00:00:00"}, {"types": ["a b"]}, {"types": ""},
        {"last": 1, "after": "now"}, {"after": ["start", "now"]}, {"other": 1},
        {"types": ["a"] * 51},
    ],
)  # fmt: skip
@pytest.mark.parametrize("headers", [{}, ACCEPT])
def test_a_wrong_query_is_refused(quick_web, query, headers):
    root = token_of(quick_web.app, "_superusers", "root@example.org")
    answer = quick_web.get(PATH, as_=root, params=query, headers=headers)

    assert refused(answer)[0] == 400


def test_a_head_is_not_followed(web, root, chat):
    answer = web("HEAD", PATH, as_=root, headers=ACCEPT)

    assert answer.headers["content-type"] == "application/json"


def test_only_callers_that_may_read_are_let_in(web, root, ada, chat):
    def status(**more):
        return web.get(PATH, headers=ACCEPT, **more).status_code

    web.app.access.set(channels={"other": {"subscribe_rule": "true"}})
    assert (status(), status(as_=ada), status(as_=root)) == (401, 403, 200)
    made, other = (web.app.accounts.issue_pass(root, [name]) for name in ("chat", "other"))
    assert status(params={"pass": made}) == 200
    assert status(params={"pass": made}) == 401  # it is spent
    assert status(params={"pass": other}) == 403
    assert status(params={"pass": "nonsense"}) == 401


# ---------------------------------------------------------------- in real time


@pytest.fixture
def listen(live_web):
    """Follow the channel `chat`, of a server on real time."""
    token = token_of(live_web.app, "_superusers", "root@example.org")
    made = []

    def listen(token=token):
        made.append(Listener(live_web, token, PATH, **ACCEPT))
        return made[-1]

    yield listen
    for each in made:
        each.leave()
        each.ended()


def test_an_answer_begins_at_once(listen):
    """Clients take a silent one for one that a proxy holds back."""
    listener = listen()

    eventually(lambda: listener.text == ":\n\n")


def test_what_is_published_is_sent_at_once_and_the_end_with_it(listen, live_web):
    listener = listen()
    listener.read()
    eventually(lambda: '"current"' in listener.text)
    first = live_web.app.events.publish("chat", "a\nb\r\u2028c")
    eventually(lambda: payloads(listener.text) == ["a\nb\r\u2028c"])
    live_web.app.events.close("chat")

    assert listener.ended()
    told = frames(listener.text)
    assert [next(iter(frame)) for _, frame in told] == ["current", "events", "closed"]
    assert [id for id, _ in told][1:] == [first.cursor, first.cursor]


def test_a_channel_that_is_deleted_is_reset(listen, live_web):
    live_web.app.events.publish("chat", 1)
    listener = listen()
    listener.read()
    eventually(lambda: '"current"' in listener.text)
    live_web.app.events.delete("chat")

    assert listener.ended()
    assert frames(listener.text)[-1][1]["reset"]["reason"] == "channel"


def test_a_key_that_is_revoked_gets_no_further_event(listen, live_web):
    revocable, secret = live_web.app.keys.create("r", scopes=["subscribe"])
    listener = listen(secret)
    listener.read()
    eventually(lambda: '"current"' in listener.text)
    live_web.app.keys.revoke(revocable.id)
    live_web.app.events.publish("chat", 1)

    assert listener.ended()
    assert payloads(listener.text) == []
    assert frames(listener.text)[-1][1]["reset"] == {"channel": "chat", "reason": "invalid_token"}


def test_a_client_that_goes_is_noticed_and_one_that_does_not_read_waits(listen, live_web):
    goes, waits = listen(), listen()
    goes.read()
    eventually(lambda: '"current"' in goes.text and waits.pieces)
    goes.leave()
    assert goes.ended()
    for n in range(50):
        live_web.app.events.publish("chat", n)
    assert len(waits.pieces) == 1

    waits.read()
    eventually(lambda: payloads(waits.text) == list(range(50)))
    assert len(waits.pieces) < 10


def test_a_server_that_stops_says_when_to_come_back(listen, live_web):
    listener = listen()
    listener.read()
    eventually(lambda: '"current"' in listener.text)
    live_web._loop.call_soon_threadsafe(live_web.api.shared.closing.set)

    assert listener.ended()
    bye = frames(listener.text)[-1][1]["bye"]
    assert bye["code"] == "going_away"
    assert f"retry: {round(bye['after'] * 1000)}\n" in listener.text  # for an EventSource


def test_it_beats_and_ends_after_a_while(make_app, loop, quick_passwords, monkeypatch):
    monkeypatch.setattr(streaming, "BEAT", 0.02)
    web = Web(make_app(stream_lifetime=0.5), loop)
    listener = Listener(web, token_of(web.app, "_superusers", "r@example.org"), PATH, **ACCEPT)
    listener.read()

    assert listener.ended()
    assert "\n\n:\n\n" in listener.text
    assert "bye" in frames(listener.text)[-1][1]
    web.close()
