"""The servers that tests start: they answer, and none outlives its process."""

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.conftest import eventually
from tests.schemas import GivenPostgres
from tests.servers import PgBouncer, PostgresServer, postgres_programs
from towpath import App

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def server():
    with PostgresServer() as server:
        yield server


def answer(url, query):
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query).fetchone()
        return row and row[0]


def test_a_server_answers(server):
    assert answer(server.url(), "select 1 + 1") == 2


def test_settings_are_applied():
    with PostgresServer({"max_connections": 7}) as server:
        assert answer(server.url(), "show max_connections") == "7"
        assert answer(server.url(), "show synchronous_commit") == "on"


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_data_and_url_survive_a_restart(server, mode):
    url, pid = server.url(), server.pid
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table kept as select 42 as number")

    server.restart(mode)

    assert (server.url(), server.pid == pid) == (url, False)
    assert answer(url, "select number from kept") == 42
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("drop table kept")


def test_a_closed_server_leaves_nothing():
    with PostgresServer() as server:
        processes = family(server.pid)

    assert not any(map(is_alive, processes))
    assert not server.directory.exists()


def test_a_server_outlives_the_thread_that_started_it():
    server = PostgresServer()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    try:
        assert answer(server.url(), "select 1") == 1
    finally:
        server.close()


def test_a_killed_process_leaves_no_server():
    program = """if True:
        from tests.servers import PostgresServer
        server = PostgresServer()
        server.start()
        print(server.pid, server.directory, flush=True)
        input()
    """
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        # Under root the programs may have to be copied, and a second copy would never be removed.
        env={**os.environ, "TEST_PG_BIN": str(postgres_programs())},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout
        pid, directory = owner.stdout.readline().split()
        processes = family(int(pid))
        owner.kill()
    try:
        deadline = time.monotonic() + 30
        while any(map(is_alive, processes)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not any(map(is_alive, processes))
    finally:
        shutil.rmtree(directory)


@pytest.mark.skipif(PgBouncer.program() is None, reason="the program pgbouncer is not installed")
def test_pgbouncer_answers_for_its_server(server, monkeypatch):
    """Also for a user whose PATH does not lead to programs of the administrator."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with PgBouncer(server) as bouncer:
        assert answer(bouncer.url(), "show port") == str(server.port)
        server.restart("immediate")
        assert answer(bouncer.url(), "select 1") == 1


def databases(server):
    text = "select string_agg(datname, ' ' order by oid) from pg_database where not datistemplate"
    return answer(server.url(), text).split()


def test_a_given_server_is_left_as_it_was(server):
    with GivenPostgres(server.url()) as given:
        with App(given.url(), schema="mine") as app:
            app.jobs.enqueue("mail")
        left_open = psycopg.connect(given.url())

        assert answer(given.url(), "select count(*) from mine.job") == 1
        assert len(databases(server)) == 2
    left_open.close()

    assert databases(server) == ["postgres"]


def test_what_a_killed_run_left_on_a_given_server_is_dropped_by_the_next(server):
    killed = GivenPostgres(server.url()).__enter__()
    with GivenPostgres(server.url()) as other:
        assert len(databases(server)) == 3
        killed._in_use.close()
        eventually(
            lambda: (
                answer(
                    server.url(),
                    "select count(*) from pg_stat_activity where datname like 'towpath%'",
                )
                == 1
            )
        )
        with GivenPostgres(server.url()):
            assert len(databases(server)) == 3

        assert answer(other.url(), "select 1") == 1
    assert databases(server) == ["postgres"]


def family(pid):
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def is_alive(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE  # an orphan waits for init to notice it
    except psutil.NoSuchProcess:
        return False
