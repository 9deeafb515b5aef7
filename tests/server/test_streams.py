"""The Durable Streams door, beyond what the protocol's own tests ask."""

import json
import re
from uuid import uuid4

import psutil
import pytest

from tests.conftest import eventually
from tests.server.conftest import Web, refused, token_of
from tests.server.listening import Listener, sent_events
from tests.server.live import Served
from towpath import App, NewEvent
from towpath.operation import Operation
from towpath.statement import Statement

CHAT = "/v1/stream/chat"
SSE = f"{CHAT}?offset=-1&live=sse"
LIVE = b"offset=-1&live=sse"
TEXT = {"content-type": "text/plain"}
PRODUCER = {"producer-id": "p", "producer-epoch": "0", "producer-seq": "0"}


@pytest.fixture
def ask(web, root):
    """Ask as a superuser."""

    def ask(method, path=CHAT, body=b"", **headers):
        named = {name.replace("_", "-"): value.encode("latin-1") for name, value in headers.items()}
        return web(method, path, as_=root, content=body, headers=named)

    return ask


@pytest.fixture
def chat(ask):
    """A stream of text with two messages; return its offsets."""
    made = ask("PUT", content_type="text/plain", body=b"one")
    added = ask("POST", content_type="text/plain", body=b"two")
    return [each.headers["stream-next-offset"] for each in (made, added)]


# ---------------------------------------------------------------- access and names


def test_without_rules_the_door_is_for_superusers_and_keys(web, root, ada):
    _, key = web.app.keys.create("k", scopes=["enqueue", "work"])
    web("PUT", CHAT, as_=root)

    for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
        assert web(method, CHAT).status_code == 401, method
        for caller in (ada, key):
            assert web(method, CHAT, as_=caller).status_code == 403, method
    assert web("HEAD", CHAT, as_=root).status_code == 200


def test_rules_of_channels_hold_at_this_door(web, root, ada, bob):
    web("PUT", CHAT, as_=root, headers={"content-type": "application/json"}, content=b"[1]")
    web.app.access.set(
        channels={
            "chat": {"subscribe_rule": "@request.auth.email ~ 'ada'"},
            "mine": {"publish_rule": "true"},
        }
    )

    assert [web("GET", CHAT, as_=as_).status_code for as_ in (ada, bob)] == [200, 403]
    assert web("POST", CHAT, as_=ada, content=b"[2]").status_code == 403
    # A fork needs the right to read its source, or it would be a way around the rule.
    fork = {"stream-forked-from": "/v1/stream/chat"}
    assert web("PUT", "/v1/stream/mine:b", as_=bob, headers=fork).status_code == 403
    assert web("PUT", "/v1/stream/mine:a", as_=ada, headers=fork).status_code == 201


def test_a_job_that_has_said_nothing_has_an_empty_stream(web, ask):
    """EV-5: an EventSource that comes before the first word would give up at a 404."""
    job = web.app.jobs.enqueue("talk")
    stream = f"/v1/stream/job:{job.id}"

    for query in ("", "?offset=-1", "?offset=now"):
        begun = ask("GET", f"{stream}{query}")
        assert (begun.status_code, begun.json()) == (200, [])
        assert "stream-closed" not in begun.headers
    assert ask("HEAD", stream).headers["content-type"] == "application/json"
    offset = begun.headers["stream-next-offset"]
    [lease] = web.app.jobs.reserve("talk")
    web.app.jobs.say(lease, said=0, events=["word"])
    assert ask("GET", f"{stream}?offset={offset}").json() == ["word"]

    silent = web.app.jobs.enqueue("talk")
    web.app.jobs.cancel(silent)
    sse = ask("GET", f"/v1/stream/job:{silent.id}?offset=-1&live=sse")
    assert sent_events(sse.text)[-1][2].endswith('"streamClosed":true,"towpathEnded":"cancelled"}')
    assert refused(ask("GET", f"/v1/stream/job:{uuid4()}")) == (404, "not_found")
    wrong = ask("GET", "/v1/stream/job:7").json()["message"]
    assert wrong == "there is no channel 'job:7'; no job has this id"


def test_a_pass_lets_a_browser_read_once(web, root, ada):
    web("PUT", CHAT, as_=root, headers={"content-type": "application/json"}, content=b"[1]")
    web.app.access.set(channels={"chat": {"subscribe_rule": "@request.auth.id != ''"}})
    made = web.app.accounts.issue_pass(ada, ["chat"])

    assert web("GET", f"{CHAT}?pass={made}").json() == [1]
    assert web("GET", f"{CHAT}?pass={made}").status_code == 401
    other = web.app.accounts.issue_pass(root, ["other"])
    assert web("GET", f"{CHAT}?pass={other}").status_code == 403
    unused = web.app.accounts.issue_pass(root, ["chat"])
    assert web("POST", f"{CHAT}?pass={unused}", content=b"[2]").status_code == 401


@pytest.mark.parametrize("name", ["__ds", "a%20b", "%C3%A4", "a%0A", "x" * 201, "a%00"])
def test_what_is_no_name_of_a_channel_is_refused(ask, name):
    for method in ("PUT", "POST", "GET", "DELETE"):
        answer = ask(method, f"/v1/stream/{name}", **TEXT, body=b"x")
        assert refused(answer) == (400, "invalid_channel"), method


def test_a_name_has_no_slash(ask):
    for path in ("/v1/stream/", "/v1/stream/a/b", "/v1/stream"):
        assert refused(ask("PUT", path)) == (404, "not_found")
    assert refused(ask("PUT", "/v1/stream/a%2Fb")) == (400, "invalid_channel")


def test_channels_of_towpath_are_read_only(ask):
    for method in ("PUT", "POST", "DELETE"):
        answer = ask(method, "/v1/stream/system", **TEXT, body=b"x")
        assert refused(answer) == (400, "invalid_channel")
    assert refused(ask("GET", "/v1/stream/system")) == (404, "not_found")


def test_an_author_of_a_stream_cannot_run_scripts_at_the_server(ask):
    ask("PUT", content_type="text/html", body=b"<script>alert(1)</script>")

    for answer in (ask("GET"), ask("GET", SSE, last_event_id="x"), ask("POST")):
        assert "sandbox" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_options_names_the_methods_to_all(web):
    answer = web("OPTIONS", CHAT)

    assert answer.status_code == 204
    assert answer.headers["allow"] == "GET, HEAD, PUT, POST, DELETE, OPTIONS"


# ---------------------------------------------------------------- hostile input

NOT_NUMBERS = [
    "-1",
    "+1",
    "01",
    "1.0",
    "1e3",
    "0x1",
    "1_0",
    "",
    "9007199254740992",
    "9" * 40,
    "\xb2",
]


@pytest.mark.parametrize("number", NOT_NUMBERS)
@pytest.mark.parametrize("name", ["producer-epoch", "producer-seq"])
def test_a_producer_has_whole_numbers(ask, chat, name, number):
    answer = ask("POST", body=b"x", **TEXT, **{**PRODUCER, name: number})

    assert refused(answer) == (400, "invalid")
    assert ask("GET").text == "onetwo"


@pytest.mark.parametrize("missing", [["producer-id"], ["producer-epoch", "producer-seq"]])
def test_a_half_of_a_producer_is_refused(ask, chat, missing):
    half = {name: value for name, value in PRODUCER.items() if name not in missing}

    assert refused(ask("POST", body=b"x", **TEXT, **half)) == (400, "invalid")


@pytest.mark.parametrize("number", [*NOT_NUMBERS, "1000000001"])
def test_a_ttl_is_a_whole_number_of_seconds(ask, number):
    assert refused(ask("PUT", **TEXT, stream_ttl=number)) == (400, "invalid")


@pytest.mark.parametrize(
    "at",
    ["", "soon", "2030-01-01", "2030-01-01T00:00:00", "20300101", "1e9", "2030-13-01T00:00:00Z"],
)
def test_a_time_names_its_zone(ask, at):
    assert refused(ask("PUT", **TEXT, stream_expires_at=at)) == (400, "invalid")


@pytest.mark.parametrize(
    "media", ["text", "text/", "/plain", "a/b c", "text/plain; \xff", "", "x" * 2_000]
)
def test_a_media_type_is_one(ask, media):
    assert refused(ask("PUT", content_type=media)) == (400, "invalid")
    assert ask("HEAD").status_code == 404


@pytest.mark.parametrize(
    "source",
    ["", "chat", "/v1/stream/", "/v1/stream/a/b", "/v1/stream/chat?x=1", "http://here/v1/stream/chat",
     "/v2/stream/chat", "/v1/stream/a%20b", "/v1/stream/__ds", "x" * 2_000],
)  # fmt: skip
def test_a_source_is_the_path_of_a_stream(ask, chat, source):
    answer = ask("PUT", "/v1/stream/fork", stream_forked_from=source)

    assert answer.status_code == 400
    assert ask("HEAD", "/v1/stream/fork").status_code == 404


@pytest.mark.parametrize("headers", [{"stream-fork-offset": "-1"}, {"stream-fork-sub-offset": "0"}])
def test_a_place_to_fork_needs_a_source(ask, headers):
    assert refused(ask("PUT", **TEXT, **headers)) == (400, "invalid")


def test_a_header_that_comes_twice_is_refused(web, root, chat):
    twice = [(name, value) for name, value in [*TEXT.items(), *PRODUCER.items()]]
    twice += [("producer-id", "q"), ("authorization", f"Bearer {root}")]

    assert refused(web.request("POST", CHAT, headers=twice, content=b"x")) == (400, "invalid")


@pytest.mark.parametrize(
    "query",
    [
        "offset=1",
        "offset=-1&offset=-1",
        "offset=",
        "offset=-1&live=ws",
        "live=sse",
        "offset=%FF",
        "&".join(["a=1"] * 101),
    ],
)
def test_a_wrong_query_is_refused(ask, chat, query):
    assert ask("GET", f"{CHAT}?{query}").status_code == 400


@pytest.mark.parametrize("query", ["foo=bar", "%FF=%FF", "=", "a", "cursor=x", "a=1&a=2"])
def test_what_is_unknown_in_a_query_is_ignored(ask, chat, query):
    assert ask("GET", f"{CHAT}?{query}").text == "onetwo"


@pytest.mark.parametrize("order", ["x" * 1_001, ""])
def test_an_order_has_bounds(ask, chat, order):
    assert refused(ask("POST", body=b"x", **TEXT, stream_seq=order)) == (400, "invalid")


def test_the_state_of_a_stream_comes_before_what_is_wrong_in_an_append(ask):
    wrong = {"content-type": "application/json", "producer-id": "p"}
    assert refused(ask("POST", body=b"{", **wrong)) == (404, "not_found")
    ask("PUT", content_type="application/json", stream_closed="true")

    for body, headers in ((b"{", {"content-type": "application/json"}), (b"", {}), (b"1", {})):
        answer = ask("POST", body=body, **headers)
        assert refused(answer) == (409, "channel_closed")
        assert answer.headers["stream-closed"] == "true"


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n", "\u2028"])
def test_line_ends_do_not_end_an_event(ask, end):
    text = f"a{end}{end}event: control{end}data:{{}}{end}id: 1"
    ask("PUT", **TEXT, body=text.encode(), stream_closed="true")

    [data, control] = sent_events(ask("GET", SSE).text)
    assert data[1:] == ("data", re.sub("\r\n|\r", "\n", text))
    assert data[0] == control[0] == ask("HEAD").headers["stream-next-offset"]


def test_a_character_that_is_cut_between_two_pages_is_whole_in_the_bytes_only(ask):
    first = ask("PUT", **TEXT, body=b"1 \xe2\x82").headers["stream-next-offset"]
    ask("POST", **TEXT, body=b"\xac", stream_closed="true")

    assert ask("GET").content.decode() == "1 €"
    assert sent_events(ask("GET", SSE).text)[0][2] == "1 €"  # it is in one page
    assert (
        sent_events(ask("GET", SSE, last_event_id=first).text)[0][2] == "\N{REPLACEMENT CHARACTER}"
    )


# ---------------------------------------------------------------- offsets


def test_an_offset_of_another_stream_is_reset(ask, chat):
    other = ask("PUT", "/v1/stream/other", **TEXT, body=b"x").headers["stream-next-offset"]

    for live in ("", "&live=long-poll", "&live=sse"):
        answer = ask("GET", f"{CHAT}?offset={other}{live}")
        assert refused(answer) == (410, "cursor_reset")
        assert answer.json()["details"] == {
            "reason": "channel", "oldest": chat[0][:-1] + "0", "head": chat[1],
        }  # fmt: skip


def test_an_offset_whose_events_are_gone_is_reset(ask, chat, web):
    def steps():
        yield Statement("trim", {"any": "update towpath.channel set low = 2"})()

    web.app.run(Operation("trim", steps))

    answer = ask("GET", f"{CHAT}?offset={chat[0]}")
    assert refused(answer) == (410, "cursor_reset")
    assert answer.json()["details"]["reason"] == "retention"
    assert ask("GET", f"{CHAT}?offset={answer.json()['details']['oldest']}").text == ""
    assert ask("GET").text == ""  # the beginning is where it is


def test_an_offset_ahead_and_one_of_before_a_restored_backup_are_reset(ask, chat, web):
    ahead = ask("GET", f"{CHAT}?offset={chat[1][:-1]}9")
    web.app.events.restored()
    before = ask("GET", f"{CHAT}?offset={chat[1]}")

    assert ahead.json()["details"]["reason"] == "ahead"
    assert before.json()["details"]["reason"] == "era"


def test_bytes_are_strings_in_a_stream_of_json(ask, web):
    web.app.events.publish_many("chat", [NewEvent({"a": 1}), NewEvent(b"x"), NewEvent(b"\xff\0")])

    assert ask("GET").json() == [{"a": 1}, "x", "/wA="]


def test_a_location_is_where_the_client_has_asked(ask, web):
    location = ask("PUT", "/v1/stream/a:b", host="example.org:81").headers["location"]

    assert location == "http://example.org:81/v1/stream/a:b"


def test_a_page_that_the_client_has_is_not_sent_again(ask, chat):
    first = ask("GET")
    same = ask("GET", if_none_match=f'"other", {first.headers["etag"]}')
    ask("POST", stream_closed="true")
    closed = ask("GET", if_none_match=first.headers["etag"])

    assert (same.status_code, same.content) == (304, b"")
    assert closed.status_code == 200
    assert closed.headers["towpath-ended"] == "closed"


# ---------------------------------------------------------------- server-sent events


def test_events_have_ids_to_resume_from(ask, chat):
    ask("POST", stream_closed="true")

    [data, control] = sent_events(ask("GET", SSE).text)
    resumed = sent_events(ask("GET", SSE, last_event_id=chat[0]).text)

    assert data == (chat[1], "data", "onetwo")
    assert json.loads(control[2]) == {
        "streamNextOffset": chat[1],
        "upToDate": True,
        "streamClosed": True,
        "towpathEnded": "closed",
    }
    assert resumed[0] == (chat[1], "data", "two")


def test_an_event_source_stops_at_the_end(ask, chat):
    """A browser comes back after the last event, and stays away after a 204."""
    ask("POST", stream_closed="true")

    assert ask("GET", SSE, last_event_id=chat[1]).status_code == 204
    assert ask("GET", f"{CHAT}?offset={chat[1]}&live=sse").status_code == 200  # not a browser


def test_an_event_source_of_a_stream_that_was_made_again_stops(ask, chat):
    ask("DELETE")
    gone = ask("GET", SSE, last_event_id=chat[1])
    ask("PUT", **TEXT)

    assert gone.status_code == 404
    assert ask("GET", SSE, last_event_id=chat[1]).status_code == 410
    assert refused(ask("GET", SSE, last_event_id="x")) == (400, "invalid_cursor")


@pytest.fixture
def listen(live_web):
    """Listen to the stream `chat`, of a server on real time."""
    app = live_web.app
    token = token_of(app, "_superusers", "root@example.org")
    live_web("PUT", CHAT, as_=token, headers=TEXT)
    made = []

    def listen(**more):
        made.append(Listener(live_web, token, **{"path": CHAT, "query": LIVE} | more))
        return made[-1]

    yield listen
    for each in made:
        each.leave()
        each.ended()


def test_what_is_published_is_sent_at_once_and_the_end_with_it(listen, live_web):
    listener = listen()
    listener.read()
    eventually(lambda: "upToDate" in listener.text)
    live_web.app.events.publish("chat", b"hello")
    eventually(lambda: "data:hello\n" in listener.text)
    live_web.app.events.close("chat")

    assert listener.ended()
    assert "streamClosed" in listener.text


def test_a_client_that_goes_is_noticed(listen):
    listener = listen()
    listener.read()
    eventually(lambda: "upToDate" in listener.text)
    listener.leave()

    assert listener.ended()


def test_for_a_client_that_does_not_read_nothing_is_queued(listen, live_web):
    listener = listen()
    eventually(lambda: listener.pieces)
    for n in range(50):
        live_web.app.events.publish("chat", b"%d," % n)
    assert len(listener.pieces) == 1

    listener.read()
    eventually(lambda: "49," in listener.text)
    assert len(listener.pieces) < 10
    data = "".join(line[5:] for line in listener.text.split("\n") if line.startswith("data:"))
    assert re.findall(r"(\d+),(?=\d|\{|$)", data)[:50] == [str(n) for n in range(50)]


def test_a_deleted_stream_is_reset_for_those_who_listen(listen, live_web):
    listener = listen()
    listener.read()
    eventually(lambda: "upToDate" in listener.text)
    live_web.app.events.delete("chat")

    assert listener.ended()
    assert sent_events(listener.text)[-1][1] == "reset"


@pytest.mark.parametrize("query", [b"offset=-1&live=sse", b"offset=-1&live=long-poll"])
def test_a_server_that_stops_ends_what_waits(listen, live_web, query):
    listener = listen(query=query)
    listener.read()
    eventually(lambda: any(hub._watched for hub in live_web.app.events._hubs._hubs.values()))
    live_web._loop.call_soon_threadsafe(live_web.api.shared.closing.set)

    assert listener.ended()
    assert listener.status in {200, 204}


def test_a_long_poll_of_a_stream_that_is_deleted_says_so(listen, live_web):
    listener = listen(query=b"offset=-1&live=long-poll")
    listener.read()
    eventually(lambda: any(hub._watched for hub in live_web.app.events._hubs._hubs.values()))
    live_web.app.events.delete("chat")

    assert listener.ended()
    assert listener.status == 404


def test_server_sent_events_end_after_a_while(make_app, loop, quick_passwords):
    web = Web(make_app(stream_lifetime=0.2), loop)
    token = token_of(web.app, "_superusers", "root@example.org")
    web("PUT", CHAT, as_=token, headers=TEXT)
    listener = Listener(web, token, CHAT, LIVE)
    listener.read()

    assert listener.ended()
    assert "streamClosed" not in listener.text
    web.close()


# ---------------------------------------------------------------- a server of its own


@pytest.fixture
def server(tmp_path):
    """A server on a SQLite file that has little patience, and a superuser's token."""
    url = f"sqlite:///{tmp_path}/test.db"
    served = Served(url, tmp_path, body=1.0)
    with App(url) as app:
        served.key = token_of(app, "_superusers", "root@example.org")
    yield served
    if served.process.poll() is None:
        served.end()
    served.kill()


def test_sigterm_ends_server_sent_events(server):
    server.ask("PUT", CHAT, b"hello", content_type="text/plain")
    with server.connect() as wire:
        wire.send(wire.request("GET", SSE))
        assert b"200 OK" in wire._until(b"upToDate")
        server.signal()
        rest = b""
        while piece := wire.socket.recv(2**16):
            rest += piece

    assert rest.endswith(b"0\r\n\r\n")  # a whole answer
    server.ended(0)


def test_a_client_that_never_reads_is_cut_off_and_takes_no_memory(server):
    server.ask("PUT", CHAT, b"hello", content_type="text/plain")
    wires = [server.connect() for _ in range(20)]
    for wire in wires:
        wire.send(wire.request("GET", SSE))
    for wire in wires:
        wire._until(b"upToDate")
    before = server.resident
    with App(server.database) as app:
        for _ in range(20):
            app.events.publish_many("chat", [NewEvent(b"x" * 10_000)] * 200)

    eventually(lambda: not connections(server))
    assert server.resident - before < 64 * 2**20  # of 800 MB that were to be sent
    for wire in wires:
        assert wire.is_closed()
        wire.close()
    assert server.ask("HEAD", CHAT)[0] == 200


def connections(server):
    """Return the connections that the server has open."""
    found = psutil.Process(server.process.pid).net_connections("tcp")
    return [each for each in found if each.status == psutil.CONN_ESTABLISHED]
