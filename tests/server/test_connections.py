"""Clients of all manners on a live server: the slow, the greedy, and those who vanish."""

import contextlib
import json
import re
import resource
import select
import socket
import subprocess
import sys
from uuid import uuid4

import psutil
import pytest

from tests.conftest import eventually
from tests.faults.sizes import many
from tests.server.live import SECONDS, Served, Wire, jobs, metrics, waiting
from towpath import App

JOB = "/api/jobs/enqueue"
MB = 2**20


@pytest.fixture(scope="module")
def module_server(tmp_path_factory):
    """A server for all tests that do no harm to it."""
    path = tmp_path_factory.mktemp("served")
    server = Served(f"sqlite:///{path}/jobs.db", path)
    try:
        yield server
        server.end()
    finally:
        server.kill()


@pytest.fixture
def server(module_server):
    """...which is as healthy after each of them."""
    yield module_server
    assert module_server.ask("GET", "/healthz") == (200, {"status": "ok"})


@pytest.fixture(scope="module")
def impatient(tmp_path_factory):
    """A server that waits for no client."""
    path = tmp_path_factory.mktemp("impatient")
    server = Served(f"sqlite:///{path}/jobs.db", path, head=0.3, body=0.3, idle=1)
    try:
        yield server
        server.end()
    finally:
        server.kill()


def topic():
    """A topic that no other test uses."""
    return f"t{uuid4().hex}"


# ---------------------------------------------------------------- slow and greedy


def test_a_head_that_is_dribbled_is_refused(impatient):
    with impatient.connect() as wire:
        with contextlib.suppress(ConnectionError):
            for byte in wire.head("GET", "/healthz") * 100:
                wire.send(bytes([byte]))
                if wire.socket in _readable(wire):
                    break

        assert wire.answer()[1]["code"] == "too_slow"
        assert wire.is_closed()


def _readable(wire):
    return select.select([wire.socket], [], [], 0.02)[0]


def test_a_body_that_never_comes_is_refused(impatient):
    name = topic()
    with impatient.connect() as wire:
        wire.send(wire.head("POST", JOB, content_length=100) + b'{"topic": "')

        status, said = wire.answer()

        assert (status, said["code"]) == (408, "too_slow")
        assert wire.is_closed()
    assert jobs(impatient, name) == []


def test_a_connection_that_says_nothing_is_closed(impatient):
    with impatient.connect() as silent, impatient.connect() as silent_after_one:
        assert silent_after_one.ask("GET", "/healthz")[0] == 200

        assert silent.is_closed()
        assert silent_after_one.is_closed()


def test_a_client_that_was_answered_early_cannot_hold_the_connection_by_its_body(impatient):
    with impatient.connect() as wire:
        wire.send(wire.head("POST", f"/api/jobs/{uuid4()}/requeue", content_length=10**9))
        assert wire.answer()[0] == 404

        with contextlib.suppress(ConnectionError):
            while wire.socket not in _readable(wire):
                wire.send(b"x")

        assert wire.is_closed()


@pytest.mark.parametrize(
    "endless",
    [b"X-Flood: " + b"x" * 1000 + b"\r\n", b"x" * 1000, b"A: b\r\n" * 100],
    ids=["many headers", "one header", "small headers"],
)
def test_a_flood_of_headers_is_refused_and_costs_no_memory(server, endless):
    before = server.resident
    with server.connect() as wire:
        wire.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\nA: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(100 * MB // len(endless)):
                wire.send(endless)

        assert answer_or_reset(wire) in {431, None}
    assert server.resident - before < 20 * MB


def test_a_flood_of_headers_in_one_piece_is_refused(server):
    with server.connect() as wire:
        flood = b"".join(b"H%d: %s\r\n" % (n, b"x" * 100) for n in range(1000))

        wire.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + flood + b"\r\n")

        status, said = wire.answer()
    assert (status, said["code"]) == (431, "head_too_large")


def answer_or_reset(wire):
    """A client that goes on writing may lose the answer."""
    try:
        return wire.answer()[0]
    except (ConnectionError, EOFError):
        return None


def test_a_request_line_without_end_is_refused(server):
    before = server.resident
    with server.connect() as wire:
        with contextlib.suppress(ConnectionError):
            for n in range(1000):
                wire.send((b"" if n else b"GET /") + b"x" * 10_000)

        assert answer_or_reset(wire) in {400, 431, None}
    assert server.resident - before < 20 * MB


@pytest.mark.parametrize(
    "noise",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHo st: a\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused_in_the_one_shape(server, noise):
    with server.connect() as wire:
        wire.send(noise)

        status, said = wire.answer()

    assert status in {400, 405}
    assert set(said) == {"code", "message", "details"}


@pytest.mark.soak
def test_others_are_answered_beside_a_thousand_idle_connections(server):
    count = many(1_100)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 1_000)), hard))
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), SECONDS))

        assert server.ask("POST", JOB, {"topic": topic()})[0] == 201
        assert server.ask("GET", "/readyz")[0] == 200


def test_a_client_that_does_not_read_its_answer_is_cut_off_and_holds_up_no_other(impatient):
    name = topic()
    with App(impatient.database) as app:
        app.jobs.enqueue_many(name, ["x" * (MB - 2)] * 6)

    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(impatient.connect()) for _ in range(5)]
        for wire in slow:
            wire.send(wire.request("GET", f"/api/jobs?topic={name}"))

        assert impatient.ask("GET", "/healthz")[0] == 200
        eventually(lambda: not _held(impatient, slow), SECONDS)


def test_a_client_that_reads_slowly_gets_it_all(server):
    name = topic()
    with App(server.database) as app:
        app.jobs.enqueue_many(name, ["x" * (MB - 2)] * 6)
    with server.connect() as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**14)
        wire.send(wire.request("GET", f"/api/jobs?topic={name}"))
        assert server.ask("GET", "/healthz")[0] == 200

        assert len(wire.answer()[1]["items"]) == 6


def _held(server, wires):
    ports = {wire.socket.getsockname()[1] for wire in wires}
    return [
        each
        for each in psutil.Process(server.process.pid).net_connections("tcp")
        if each.raddr and each.raddr.port in ports and each.status == "ESTABLISHED"
    ]


def test_an_envelope_that_is_too_large_is_told_to_a_client_that_sends_it_all(server):
    """The answer is not lost in a reset, though it is decided by the head alone."""
    with server.connect() as wire:
        status, said = wire.ask("POST", JOB, b"x" * 20 * MB)
        assert (status, said["code"]) == (413, "body_too_large")

        assert wire.ask("GET", "/healthz")[0] == 200


def test_an_endless_body_in_chunks_is_refused(server):
    before = server.resident
    with server.connect() as wire:
        wire.send(wire.head("POST", JOB, transfer_encoding="chunked"))
        piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        for _ in range(40 * MB // len(piece)):
            wire.send(piece)

        status, said = wire.answer()

    assert (status, said["code"]) == (413, "body_too_large")
    assert server.resident - before < 20 * MB


# ---------------------------------------------------------------- what HTTP allows


def test_requests_in_a_pipeline_are_answered_in_order(server):
    with server.connect() as wire:
        name = topic()
        bodies = [{"topic": name, "payload": n} for n in range(20)]
        wire.send(b"".join(wire.request("POST", JOB, body) for body in bodies))

        assert [wire.answer()[1]["payload"] for _ in bodies] == list(range(20))


def test_a_long_pipeline_is_not_taken_for_a_long_head(server):
    with server.connect() as wire:
        one = wire.request("GET", "/healthz", x="y" * 300)
        wire.send((one * 500)[:-5])
        for _ in range(499):
            assert wire.answer()[0] == 200
        wire.send(one[-5:])
        assert wire.answer()[0] == 200


def test_http_1_0_is_answered_and_closed(server):
    with server.connect() as wire:
        wire.send(b"GET /healthz HTTP/1.0\r\n\r\n")

        assert wire.answer() == (200, {"status": "ok"})
        assert wire.is_closed()


def test_connections_are_kept_until_the_client_closes_them(server):
    with server.connect() as wire:
        for _ in range(3):
            assert wire.ask("GET", "/healthz")[0] == 200
        assert wire.ask("GET", "/healthz", connection="close")[0] == 200
        assert wire.is_closed()


def test_a_client_that_expects_100_is_told_to_continue(server):
    body = json.dumps({"topic": topic()}).encode()
    with server.connect() as wire:
        wire.send(wire.head("POST", JOB, content_length=len(body), expect="100-continue"))
        assert wire.answer() == (100, None)
        wire.send(body)
        assert wire.answer()[0] == 201


def test_a_client_that_expects_100_for_too_much_is_refused_before_it_is_sent(server):
    with server.connect() as wire:
        wire.send(wire.head("POST", JOB, content_length=10**10, expect="100-continue"))

        assert wire.answer()[1]["code"] == "body_too_large"


def test_head_says_what_get_would_without_a_body(server):
    with server.connect() as wire:
        wire.send(wire.request("HEAD", "/healthz"))
        assert b"content-length: 15" in wire._until(b"\r\n\r\n")
        assert wire.ask("GET", "/healthz")[0] == 200


def test_an_answer_without_a_body_is_whole(server):
    with server.connect() as wire:
        job = wire.ask("POST", JOB, {"topic": topic()})[1]
        wire.send(wire.request("DELETE", f"/api/jobs/{job['id']}"))
        head = wire._until(b"\r\n\r\n")

        assert head.startswith(b"HTTP/1.1 204 ")
        assert b"content-length" not in head
        assert b"transfer-encoding" not in head
        assert wire.ask("GET", "/healthz")[0] == 200


def test_every_answer_says_when_it_was_given(server):
    with server.connect() as wire:
        wire.send(wire.request("GET", "/healthz"))

        assert b"\r\ndate: " in wire._until(b"\r\n\r\n")


@pytest.mark.parametrize("garbage", [b"\0\r\n\r\n", b"GET / HTTP/1.1\r\nA: " + b"x" * 100_000])
def test_a_refusal_is_not_taken_for_the_answer_to_another(server, garbage):
    with server.connect() as wire:
        poll = wire.request("POST", "/api/jobs/reserve", {"topics": [topic()], "timeout": 0.5})
        wire.send(poll + garbage)

        assert wire.answer() == (200, {"leases": []})
        assert wire.is_closed()


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_body_that_breaks_is_refused_behind_those_before_it(server, before):
    name = topic()
    with server.connect() as wire:
        poll = wire.request("POST", "/api/jobs/reserve", {"topics": [name], "timeout": 0.2})
        broken = wire.head("POST", JOB, transfer_encoding="chunked") + b"2\r\n{}\r\nzz\r\n"
        wire.send(poll * before + broken)

        answers = [wire.answer()[0] for _ in range(before or 1)]

        assert answers == ([200] * before or [400])
        assert wire.is_closed()


def test_nobody_is_let_in_by_a_trailer(server):
    chunked = b"POST %b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" % JOB.encode()
    with server.connect() as wire:
        body = b'd\r\n{"topic":"x"}\r\n0\r\n'
        wire.send(chunked + body + b"Authorization: Bearer %b\r\n\r\n" % wire._key.encode())

        assert wire.answer()[0] == 401


@pytest.mark.parametrize("flood", [b"X: %b\r\n" % (b"y" * 1_000), b"y" * 1_000, b"0" * 1_000])
def test_a_flood_behind_a_body_costs_no_memory(server, flood):
    before = server.resident
    with server.connect() as wire:
        wire.send(wire.head("POST", JOB, transfer_encoding="chunked"))
        wire.send(b"" if flood.startswith(b"0") else b"0\r\nX: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(100 * MB // len(flood)):
                wire.send(flood)
    assert server.resident - before < 20 * MB


def test_a_client_that_offers_another_protocol_is_answered_in_this_one(server):
    """As Java's client does with its first request, whatever that is."""
    offer = {
        "connection": "Upgrade, HTTP2-Settings",
        "upgrade": "h2c",
        "http2_settings": "AAEAAEAAAAIAAAAB",
    }
    name = topic()
    with server.connect() as wire:
        request = wire.request("POST", JOB, {"topic": name, "payload": "x" * 5_000}, **offer)
        wire.send(request[:-100])
        wire.send(request[-100:] + wire.request("POST", JOB, {"topic": name}, **offer))

        assert [wire.answer()[0], wire.answer()[0]] == [201, 201]
        assert wire.ask("GET", "/healthz")[0] == 200
    assert len(jobs(server, name)) == 2


def test_a_websocket_is_not_spoken_here(server):
    upgrade = {"upgrade": "websocket", "connection": "upgrade", "sec_websocket_version": "13"}

    assert server.ask("GET", "/healthz", **upgrade)[0] == 200


# ---------------------------------------------------------------- cut off


@pytest.mark.parametrize("vanish", [Wire.close, Wire.reset])
def test_a_client_that_vanishes_from_a_pipeline_leaves_nothing_reserved(server, vanish):
    name = topic()
    wire = server.connect()
    poll = wire.request("POST", "/api/jobs/reserve", {"topics": [name], "timeout": 60})
    wire.send(poll + wire.request("GET", "/healthz"))
    waits = f'towpath_waiting{{topic="{name}"}} 1\n'
    eventually(lambda: waits in metrics(server))
    vanish(wire)
    eventually(lambda: waits not in metrics(server))

    assert server.ask("POST", JOB, {"topic": name})[0] == 201

    assert [job.state for job in jobs(server, name)] == ["ready"]


def test_a_client_that_vanishes_from_a_pipeline_is_no_news(server):
    for _ in range(30):
        wire = server.connect()
        wire.send(wire.request("POST", JOB, {"topic": topic()}) * 3)
        wire.reset()
    server.ask("GET", "/healthz")

    assert "Traceback" not in server.said


@pytest.mark.parametrize("vanish", [Wire.close, Wire.reset])
def test_a_connection_cut_in_the_middle_of_a_body_stores_nothing(server, vanish):
    name = topic()
    body = json.dumps({"topic": name}).encode()
    for length, sent in ((len(body), body[:-1]), (len(body) + 1, body)):
        wire = server.connect()
        wire.send(wire.head("POST", JOB, content_length=length) + sent)
        vanish(wire)
    assert server.ask("POST", JOB, {"topic": "after"})[0] == 201

    assert jobs(server, name) == []


@pytest.mark.parametrize("vanish", [Wire.close, Wire.reset])
def test_a_client_that_lost_the_answer_repeats_by_its_key_and_stores_once(server, vanish):
    name = topic()
    wire = server.connect()
    wire.send(wire.request("POST", JOB, {"topic": name}, idempotency_key="order-7"))
    vanish(wire)

    status, said = server.ask("POST", JOB, {"topic": name}, idempotency_key="order-7")

    assert status == 201
    eventually(lambda: server.ask("GET", "/readyz")[0] == 200)
    assert [str(job.id) for job in jobs(server, name)] == [said["id"]]


@pytest.mark.parametrize("vanish", [Wire.close, Wire.reset])
def test_a_client_that_vanishes_from_a_long_poll_leaves_nothing_reserved(server, vanish):
    name = topic()
    vanish(waiting(server, name))
    eventually(lambda: f'"{name}"' not in metrics(server))
    staying = waiting(server, name)

    for n in range(3):
        assert server.ask("POST", JOB, {"topic": name, "payload": n})[0] == 201
    status, said = staying.answer()
    staying.close()

    assert status == 200
    assert [lease["job"]["payload"] for lease in said["leases"]] == [0]
    assert [job.state for job in jobs(server, name)] == ["ready", "ready", "reserved"]


def test_a_busy_port_is_told_in_one_line(server, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "towpath", "serve", "--port", str(server.port),
         "--database", f"sqlite:///{tmp_path}/other.db"],
        capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip

    assert done.returncode == 1
    assert re.fullmatch(rf"[^\n]*{server.port}[^\n]*in use\n", done.stderr), done.stderr
