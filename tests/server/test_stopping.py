"""A server that is told to stop, is killed, or loses its database: nothing acknowledged is lost."""

import json
import signal
import socket
import subprocess
import sys

import pytest

from tests.conftest import eventually
from tests.faults.proxy import Proxy
from tests.server.live import SECONDS, Served, jobs, waiting
from tests.servers import PostgresServer

JOB = "/api/jobs/enqueue"


@pytest.fixture(scope="session")
def postgres(own_postgres):
    """A server that a proxy may stand before."""
    return own_postgres


@pytest.fixture
def start(tmp_path):
    """Start servers on one SQLite file; those that still run in the end are stopped."""
    made = []

    def start(*more, **patience):
        made.append(Served(f"sqlite:///{tmp_path}/jobs.db", tmp_path, *more, **patience))
        return made[-1]

    try:
        yield start
        for server in made:
            if server.process.poll() is None:
                server.end()
    finally:
        for server in made:
            server.kill()


def test_sigterm_ends_a_long_poll_at_once_and_leaves_nothing_reserved(start):
    server = start()
    wires = [waiting(server, "mail", nth) for nth in (1, 2, 3)]
    server.signal()

    for wire in wires:
        assert wire.answer() == (200, {"leases": []})
        wire.close()
    server.ended(0)
    assert "Traceback" not in server.said


def test_sigterm_lets_what_runs_be_finished(start):
    server = start()
    with server.connect() as wire:
        body = json.dumps({"topic": "mail"}).encode()
        wire.send(wire.head("POST", JOB, content_length=len(body)) + body[:-1])
        eventually(lambda: server.ask("GET", "/healthz")[0] == 200)
        server.signal()
        wire.send(body[-1:])

        assert wire.answer()[0] == 201
    server.ended(0)
    assert len(jobs(server, "mail")) == 1


def test_a_second_sigterm_ends_it_now(start):
    server = start("--grace", "10m")
    with server.connect() as wire:
        wire.send(wire.head("POST", JOB, content_length=100))
        eventually(lambda: server.ask("GET", "/healthz")[0] == 200)
        server.signal()
        eventually(lambda: not _listens(server))
        server.signal()

        server.ended(0)
    assert "Traceback" not in server.said


def test_the_grace_period_ends(start):
    server = start("--grace", "1s")
    with server.connect() as wire:
        wire.send(wire.head("POST", JOB, content_length=100))
        eventually(lambda: server.ask("GET", "/healthz")[0] == 200)
        server.signal()

        server.ended(0)
    assert "Traceback" not in server.said


def _listens(server):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", server.port)) == 0


def test_what_was_acknowledged_is_there_after_a_kill(start):
    server = start()
    with server.connect() as wire:
        told = [wire.ask("POST", JOB, {"topic": "mail", "payload": n})[1]["id"] for n in range(50)]
        wire.send(wire.request("POST", JOB, {"topic": "mail"}))
        server.kill()

    again = start()

    with again.connect() as wire:
        for id in told:
            assert wire.ask("GET", f"/api/jobs/{id}")[0] == 200
    assert len(jobs(again, "mail")) in {50, 51}


# ---------------------------------------------------------------- the database goes away


@pytest.fixture
def proxy(postgres, postgres_schema, monkeypatch):
    """A proxy whose server will die: it takes everything then, and answers nothing."""
    monkeypatch.setenv("TOWPATH_SCHEMA", postgres_schema)
    with Proxy(postgres.port) as proxy:
        yield proxy


def test_a_database_that_takes_everything_and_answers_nothing_is_told(proxy, tmp_path, monkeypatch):
    monkeypatch.setenv("TOWPATH_CONNECT_TIMEOUT", "1")
    server = Served(proxy.url(), tmp_path)
    try:
        assert server.ask("POST", JOB, {"topic": "mail"})[0] == 201
        proxy.die()

        wires = [server.connect() for _ in range(15)]
        for wire in wires:
            wire.send(wire.request("POST", JOB, {"topic": "mail"}))
        for wire in wires:
            status, said = wire.answer()
            assert (status, said["code"]) == (503, "database_unavailable")
            wire.close()
        assert "PostgreSQL has not answered for 0.3" in server.said

        proxy.revive()
        eventually(lambda: server.ask("POST", JOB, {"topic": "mail"})[0] == 201, SECONDS)
        server.end()
    finally:
        server.kill()


def test_sigterm_ends_it_though_the_database_does_not_answer(proxy, tmp_path):
    server = Served(proxy.url(), tmp_path, "--grace", "1s", "--beanstalkd", "127.0.0.1:0")
    try:
        proxy.die()
        with server.connect() as wire:
            wire.send(wire.request("POST", JOB, {"topic": "mail"}))
            assert server.ask("GET", "/healthz")[0] == 200
            server.signal()

            server.ended(0)
        assert "Traceback" not in server.said
    finally:
        server.kill()


def test_sigterm_ends_it_while_it_waits_for_the_first_answer_of_the_database(proxy, tmp_path):
    proxy.die()
    with (tmp_path / "stderr").open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "towpath", "serve", "--port", "0", "--database", proxy.url()],
            stdout=errors, stderr=errors, cwd=tmp_path,
        )  # fmt: skip
    try:
        eventually(lambda: proxy.clients, SECONDS)
        process.send_signal(signal.SIGTERM)

        assert process.wait(SECONDS / 3) == 0
        assert "Traceback" not in (tmp_path / "stderr").read_text()
    finally:
        process.kill()
        process.wait()


def test_a_database_that_goes_away_is_told_and_served_again(tmp_path, monkeypatch):
    """EC-4"""
    monkeypatch.setenv("TOWPATH_CONNECT_TIMEOUT", "1")
    with PostgresServer() as postgres:
        server = Served(postgres.url(), tmp_path)
        try:
            assert server.ask("POST", JOB, {"topic": "mail"})[0] == 201
            postgres.stop("immediate")

            status, said = server.ask("POST", JOB, {"topic": "mail"})
            assert (status, said["code"]) == (503, "database_unavailable")
            assert str(postgres.port) not in json.dumps(said)
            assert server.ask("GET", "/readyz")[0] == 503
            assert server.ask("GET", "/healthz")[0] == 200

            postgres.start()
            eventually(lambda: server.ask("GET", "/readyz")[0] == 200, SECONDS)
            assert server.ask("POST", JOB, {"topic": "mail"})[0] == 201
            assert server.ask("GET", "/healthz")[0] == 200
            server.end()
        finally:
            server.kill()
