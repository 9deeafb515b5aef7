"""Wrong input at the doors of channels: each gets a clear answer, and nothing is stored."""

import contextlib
import json
import time

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from tests.conftest import eventually
from tests.server.conftest import Web, token_of
from tests.server.listening import Listener
from tests.server.live import SECONDS, Served
from tests.server.sockets import Client, Socket
from tests.servers import PostgresServer
from towpath import App, NewEvent
from towpath.server.live import session

EVENTS, STREAM = "/api/channels/{}/events", "/v1/stream/{}"
JSON = {"content-type": "application/json"}


class Doors:
    """The three doors to publish, and the doors to read."""

    def __init__(self, web):
        self.web, self.app = web, web.app
        self.token = token_of(web.app, "_superusers", "root@example.org")
        self.socket = Socket(web, self.token)

    def _http(self, method, path, body=None, **headers):
        answer = self.web(method, path, as_=self.token, content=body, headers=JSON | headers)
        assert "Traceback" not in answer.text
        return answer.json()["code"] if answer.status_code >= 400 else None

    def publish(self, event, channel="chat"):
        """Publish the text of an event at each door; return the codes of the answers."""
        body = b'{"events": [%b]}' % event
        text = b'{"id": 0, "publish": {"channel": "%b", %b' % (channel.encode(), body[1:-1] + b"}}")
        self.socket.send_text(text.decode("utf-8", "surrogateescape"))
        answer = self.socket.answer_to(0, None)  # None: what is not JSON has no id
        return {
            self._http("POST", EVENTS.format(channel), body),
            answer.get("error", {}).get("code"),
        }

    def read(self, cursor):
        """Begin behind a cursor at each door; return the codes of the answers."""
        sse = {"accept": "text/event-stream"}
        answer = self.socket.ask(subscribe={"channel": "chat", "from": cursor})
        return {
            self._http("GET", f"{EVENTS.format('chat')}?after={cursor}"),
            self._http("GET", f"{EVENTS.format('chat')}?after={cursor}", **sse),
            self._http("GET", EVENTS.format("chat"), **sse, **{"last-event-id": cursor}),
            self._http("GET", f"{STREAM.format('chat')}?offset={cursor}"),
            self._http("GET", f"{STREAM.format('chat')}?offset={cursor}&live=long-poll"),
            self._http("GET", f"{STREAM.format('chat')}?offset={cursor}&live=sse"),
            self._http(
                "PUT",
                "/api/channels/chat/consumers/mailer",
                json.dumps({"from": cursor}).encode(),
            ),
            answer.get("error", {}).get("code"),
        }


@pytest.fixture
def doors(quick_web):
    doors = Doors(quick_web)
    yield doors
    doors.socket.close()


@pytest.mark.parametrize(
    "event",
    [
        b'{"payload": NaN}', b'{"payload": -Infinity}', b'{"payload": 1e400}', b'{"payload": }',
        b'{"payload": "\\ud800"}', b'{"payload": "\\udc00\\ud800"}', b'{"type": "\\ud800"}',
        b'{"key": "\\ud800"}', b'{"headers": {"\\ud800": "x"}}', b'{"type": ""}',
        b'{"type": "a b"}',
        b'{"type": "a\\nb"}', b'{"type": "a\\rb"}', b'{"type": "a\\u0000"}', b'{"type": "order.*"}',
        b'{"type": 5}', b'{"type": "%b"}' % (b"x" * 201), b'{"key": ""}', b'{"key": "a\\u0000"}',
        b'{"key": "%b"}' % (b"x" * 256), b'{"headers": {"a": 5}}', b'{"headers": [1]}',
        b'{"headers": {"a": "%b"}}' % (b"x" * 8_001),
        b'{"payload": %b%b}' % (b"[" * 2_000, b"]" * 2_000),
        b'{"payload": "%b"}' % (b"x" * 1_100_000), b'{"unknown": 1}', b"[]", b"5", b"null",
        b"{}, " * 10_000 + b"{}",
    ],
    ids=lambda event: event[:24].decode(),
)  # fmt: skip
def test_an_event_that_cannot_be_stored_is_refused_at_each_door(doors, event):
    codes = doors.publish(b'{"payload": "good"}, ' + event)

    assert codes <= {"invalid", "bad_json", "invalid_payload", "payload_too_large"}
    assert doors.app.events.list() == []


@pytest.mark.parametrize(
    "event",
    [
        b'{"payload": "\\u0000\\r\\n\\u2028"}', b'{"payload": []}', b'{"payload": ""}', b"{}",
        b'{"key": "a\\nb"}', b'{"type": "a\\u2028b"}', b'{"headers": {"a\\n": "b\\r\\n"}}',
    ],
)  # fmt: skip
def test_line_ends_and_empty_values_come_back_as_they_were(doors, event):
    """Server-sent events are lines: no text of an event can end one."""
    assert doors.publish(event) == {None}
    doors.app.events.close("chat")
    sse = {"accept": "text/event-stream"}
    page = doors.web.get(EVENTS.format("chat"), as_=doors.token).json()
    sent = doors.web.get(EVENTS.format("chat"), as_=doors.token, headers=sse).text

    [frame] = [line for line in sent.split("\n") if '"events"' in line]
    assert json.loads(frame.removeprefix("data: "))["events"]["items"] == page["events"]
    given = json.loads(event)
    assert {name: page["events"][0][name] for name in given} == given


def test_a_cursor_that_is_none_or_does_not_fit_is_told_at_each_door(doors):
    other = doors.app.events.publish("other", 1).cursor
    made = doors.app.events.publish_many("chat", [NewEvent(n) for n in range(5)])
    trimmed, head = made[0].cursor, made[-1].cursor
    ahead = head[:-1] + "9"
    doors.app.events.limit("chat", max_count=2)
    doors.app.upkeep.run()

    for cursor in (
        other,
        trimmed,
        ahead,
        "9" * 16 + "_" + "9" * 16,
        "0" * 16 + "_" + "0" * 15 + "1",
    ):
        assert doors.read(cursor) == {"cursor_reset"}
    for cursor in ("x", "1_1", head.replace("_", "-"), head + "0", "-2", "%20" + head):
        assert doors.read(cursor) - {"invalid"} == {"invalid_cursor"}
    assert doors.app.events.consumers("chat") == []


def test_a_channel_that_is_closed_or_of_towpath_takes_nothing(doors):
    job = doors.app.jobs.enqueue("mail", {})
    doors.app.events.publish("chat", 1)
    doors.app.events.close("chat")

    assert doors.publish(b"{}") == {"channel_closed"}
    for name in ("system", f"job:{job.id}", "job:x", "__ds", "a%20b", "x" * 201):
        assert doors.publish(b"{}", name) == {"invalid_channel"}
        for method in ("PUT", "POST", "DELETE"):
            assert doors._http(method, STREAM.format(name), b"[1]") == "invalid_channel"
    assert [each.name for each in doors.app.events.list()] == ["chat"]
    assert len(doors.app.events.read("chat").events) == 1


# ---------------------------------------------------------------- frames


def test_frames_out_of_order_are_told(doors):
    socket = doors.socket

    def code(**frame):
        return socket.ask(**frame).get("error", {}).get("code")

    assert code(unsubscribe={"channel": "chat"}) == "invalid"
    assert code(ack={"channel": "chat", "cursor": "-1"}) == "invalid"
    assert code(subscribe={"channel": "chat"}) is None
    assert code(hello={"token": doors.token}) == "invalid"
    assert code(unsubscribe={"channel": "chat"}) is None
    assert code(unsubscribe={"channel": "chat"}) == "invalid"
    assert code(hello={"token": "x" * 10_000}) == code(hello={"token": "\u00e9"}) == "invalid"
    assert code(publish={"channel": "chat", "events": [{}]}) is None


def test_a_connection_follows_so_many_channels_and_no_more(doors, monkeypatch):
    monkeypatch.setattr(session, "MOST_CHANNELS", 20)
    for n in range(20):
        doors.socket.send(id=f"s{n}", subscribe={"channel": f"c:{n}"})
    refused = doors.socket.ask(subscribe={"channel": "one more"[:3]})

    assert "20 channels" in refused["error"]["message"]
    assert "ok" in doors.socket.ask(unsubscribe={"channel": "c:0"})
    assert "ok" in doors.socket.ask(subscribe={"channel": "other"})


@pytest.fixture
def served(tmp_path):
    served = Served(f"sqlite:///{tmp_path}/test.db", tmp_path)
    yield served
    served.end()


def test_a_frame_in_pieces_is_one_and_a_wrong_one_ends_only_its_connection(served):
    with App(served.database) as app:
        key = app.keys.create("all", scopes=["publish", "subscribe"])[1]
    good = Client(served, key)
    text = json.dumps(
        {"id": "p", "publish": {"channel": "chat", "events": [{"payload": "\u20ac"}]}}
    )
    pieces = text.encode()
    raw = good.socket.socket
    raw.sendall(Frame(Opcode.TEXT, pieces[:9], fin=False).serialize(mask=True))
    for at in range(9, len(pieces), 5):
        raw.sendall(Frame(Opcode.CONT, pieces[at : at + 5], fin=False).serialize(mask=True))
    raw.sendall(Frame(Opcode.CONT, b"").serialize(mask=True))
    assert "ok" in good.receive()
    for frames in (
        [Frame(Opcode.CONT, b"{}")],  # of nothing
        [Frame(Opcode.TEXT, b"{", fin=False), Frame(Opcode.TEXT, b"{}")],
        [Frame(Opcode.TEXT, b"x" * 2**20, fin=False), Frame(Opcode.CONT, b"x" * 2**20)],
    ):
        wrong = Client(served)
        with contextlib.suppress(OSError):
            for frame in frames:
                wrong.socket.socket.sendall(frame.serialize(mask=True))
        with pytest.raises(ConnectionClosed):
            wrong.receive()

    assert "ok" in good.ask(subscribe={"channel": "chat"})
    assert good.events(1) == ["\u20ac"]
    good.close()


# ---------------------------------------------------------------- a database that cannot


def test_a_full_disk_is_told_at_each_door_and_readers_go_on(tmp_path, loop, quick_passwords):
    with App(f"sqlite:///{tmp_path}/full.db") as app:
        web = Web(app, loop)
        doors = Doors(web)
        doors.app.events.publish("chat", "first")
        listener = Listener(web, doors.token, EVENTS.format("chat"), accept="text/event-stream")
        listener.read()
        eventually(lambda: '"current"' in listener.text)
        writer = app._database._writer._connection
        [[pages]] = writer.execute("pragma page_count")
        writer.execute(f"pragma max_page_count = {pages}").fetchall()
        huge = b'{"payload": "%b"}' % (b"x" * 1_000_000)

        assert doors.publish(b"{}, " + huge) == {"database_full"}
        assert (
            doors._http("POST", STREAM.format("chat"), b'[1, "%b"]' % (b"x" * 10**6))
            == "database_full"
        )
        assert [event.payload for event in app.events.read("chat").events] == ["first"]
        writer.execute(f"pragma max_page_count = {2**30}").fetchall()
        assert doors.publish(b'{"payload": "last"}') == {None}

        eventually(lambda: listener.text.count('"last"') == 2)
        assert [event.payload for event in app.events.read("chat").events] == [
            "first",
            "last",
            "last",
        ]
        listener.leave()
        doors.socket.close()
        web.close()


def test_readers_outlive_a_database_that_is_away(tmp_path, monkeypatch):
    """A publish is refused meanwhile, by a clear answer; no event is lost or sent twice."""
    monkeypatch.setenv("TOWPATH_CONNECT_TIMEOUT", "1")
    with PostgresServer() as postgres:
        served = Served(postgres.url(), tmp_path)
        try:
            with App(postgres.url()) as app:
                key = app.keys.create("all", scopes=["publish", "subscribe"])[1]
            client = Client(served, key)
            client.ask(subscribe={"channel": "chat"})
            said = {"publish": {"channel": "chat", "events": [{"payload": 1}]}}
            assert "ok" in client.ask(**said)
            assert client.events(1) == [1]
            postgres.stop("immediate")
            refused = client.ask(**said)["error"]
            assert refused["code"] == "database_unavailable"
            assert str(postgres.port) not in json.dumps(refused)
            postgres.start()
            said["publish"]["events"][0]["payload"] = 2
            ends = time.monotonic() + SECONDS
            while "ok" not in client.ask(**said):
                assert time.monotonic() < ends

            assert client.events(1) == [2]
            with App(postgres.url()) as app:
                assert [event.payload for event in app.events.read("chat").events] == [1, 2]
            client.close()
            served.end()
        finally:
            served.kill()
