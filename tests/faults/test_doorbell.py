"""Doorbells between processes: every ring is heard; one that does not listen holds up no other."""

import contextlib
import os
import select
import sqlite3
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.behaviour.test_wakeups import changing
from tests.faults.processes import wait_until
from towpath import App
from towpath.database.bells import LOOK_EVERY, PostgresBell, SqliteBell
from towpath.database.opener import Opener
from towpath.operation import Wakeup
from towpath.settings import Settings
from towpath.store import topics

on_postgres = pytest.mark.parametrize("kind", ["postgres"])


@pytest.fixture
def bells(postgres, postgres_schema):
    bells = [PostgresBell(postgres.url(), Settings(schema=postgres_schema)) for _ in range(2)]
    for bell in bells:
        assert bell.wait(0, listening=True) is None  # it has just begun to listen
    yield bells
    for bell in bells:
        bell.close()


def test_a_ring_that_comes_while_a_bell_rings_itself_is_heard(bells):
    here, there = bells
    there.announce([Wakeup("topic", "mail")])
    select.select([here._connection], [], [], 5)

    here.announce([Wakeup("topic", "post")])

    assert here.wait(0, listening=True) == {Wakeup("topic", "mail")}
    assert here.wait(0, listening=True) == set()


def test_a_process_with_more_than_1024_open_files_is_woken(start, make_app):
    """Nothing on the way uses select(), which takes no descriptor from 1024 on."""
    app = make_app()
    app.migrate()
    # The safety net is far away, so only a wakeup can bring the job in time.
    program = start("wait_among_files", number=1_100, settings={"poll_interval": 60})
    for number in range(2):
        assert program.hear() == "waiting"
        app.jobs.enqueue("mail", number)
        assert program.hear() == f"got {number}"
    program.finish()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_subscribers_in_other_processes_hear_of_a_commit(start, make_app):
    names = ["mail", "a,b", "a/b", "two\nlines", "世界 🛶", "\0", '"]']
    wakeups = [Wakeup("channel", name) for name in names] + [Wakeup("access")]
    app = make_app()
    app.migrate()
    programs = [start("subscribe", wakeups=wakeups, settings={"poll_interval": 60}) for _ in "12"]
    for program in programs:
        assert program.hear() == "listening"

    app.run(changing(topics.pause("mail", None), wakeups))

    for program in programs:
        assert program.finish().splitlines()[-1] == "0 1 2 3 4 5 6 7"


def test_a_process_that_listens_while_nobody_waits_holds_up_no_notifications(
    postgres, postgres_schema
):
    """Its socket is read all the same: PostgreSQL keeps what even one listener has not taken."""
    with (
        App(postgres.url(), schema=postgres_schema) as app,
        psycopg.connect(postgres.url(), autocommit=True) as other,
        ThreadPoolExecutor(1) as threads,
    ):
        listening: list[str] = []

        def listens():
            listening[:] = [
                query
                for (query,) in other.execute("select query from pg_stat_activity")
                if query.startswith("listen") and postgres_schema in query
            ]
            return listening

        waiting = threads.submit(app.jobs.reserve, "mail", timeout=20)
        wait_until(listens)
        app.jobs.enqueue("mail")
        assert len(waiting.result()) == 1
        assert app.jobs.stats_waiting() == {}

        [channel] = [query.split('"')[1] for query in listening]
        flood = "select pg_notify(%s, n || repeat('.', 7000)) from generate_series(1, 4000) n"
        other.execute(flood, (channel,))  # more than the sockets' buffers hold

        usage = "select pg_notification_queue_usage()"
        wait_until(lambda: other.execute(usage).fetchone() == (0,))


# ------------------------------------------------------------ SQLite


@pytest.fixture(params=["linux", "elsewhere"])
def watched(request, monkeypatch, tmp_path):
    """Yield a bell on a file, where the system tells of writes and where it does not."""
    if request.param == "elsewhere":
        monkeypatch.setattr(sys, "platform", request.param)
    path = tmp_path / "watched.db"
    bell = SqliteBell(Opener(path, Settings(), lambda: None))
    assert bell.wait(0, listening=True) == set()  # it has seen what there is
    assert bell.wait(0, listening=True) == set()
    yield bell, path
    bell.close()


@contextlib.contextmanager
def ringing(bell):
    """Expect a ring of what is done meanwhile, and nothing but a ring ends the wait."""

    def wait():
        while bell.wait(None, listening=True) is not None:
            pass

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait)
        yield
        try:
            waiting.result(20)
        except TimeoutError:
            bell.interrupt()  # let the thread look and end
            raise


def silent(bell):
    return all(bell.wait(0.01, listening=True) == set() for _ in range(5))


@contextlib.contextmanager
def another(path):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def test_each_commit_rings_once(watched):
    bell, path = watched
    with another(path) as other:
        with ringing(bell):
            other.execute("create table mail (text)")
        assert silent(bell)
        with ringing(bell):
            other.execute("insert into mail values ('again')")
        assert silent(bell)


def test_many_commits_are_not_as_many_rings(watched):
    """A process that writes all the time has a thread here that wants the interpreter, too."""
    bell, path = watched
    with another(path) as other:
        with ringing(bell):
            other.execute("create table mail (text)")
        rung = time.monotonic()
        other.execute("insert into mail values ('again')")
        assert bell.wait(20, listening=True) is None
        assert time.monotonic() - rung > LOOK_EVERY * 0.8


def test_a_commit_rings_that_comes_long_after_its_first_write(watched):
    """A large transaction writes to the log what no reader may see yet."""
    bell, path = watched
    with another(path) as other:
        other.execute("pragma cache_size = 1")
        with ringing(bell):
            other.execute("create table mail (text)")
        other.execute("begin")
        other.executemany("insert into mail values (?)", [("x" * 4_000,)] * 100)
        assert silent(bell)
        with ringing(bell):
            other.execute("commit")


def test_after_a_write_it_looks_again_by_itself(watched):
    """A commit is on the disk before it can be seen, and no further write tells of it."""
    bell, path = watched
    with path.with_name(f"{path.name}-wal").open("ab") as log, ThreadPoolExecutor(1) as threads:
        log.write(b"no frame")
        log.flush()
        looks = threads.submit(lambda: [bell.wait(None, listening=True) for _ in range(5)])
        try:
            assert looks.result(20) == [set()] * 5
        finally:
            bell.interrupt()


def test_what_was_committed_while_nobody_listened_rings_afterwards(watched):
    bell, path = watched
    with another(path) as other:
        other.execute("create table mail (text)")
        assert bell.wait(0, listening=False) == set()
        with ringing(bell):
            pass


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_fork_closes_the_file_and_the_bell_goes_on(watched):
    """No other process has it open, so the log is another one afterwards."""
    bell, path = watched
    with ringing(bell):  # anything may have come meanwhile
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    with ringing(bell), another(path) as other:
        other.execute("create table mail (text)")


@on_postgres
@pytest.mark.parametrize("lacking", ["pipes", "threads"])
def test_a_bell_that_cannot_be_made_fails_no_call_and_loses_no_later_waiter(
    make_app, colour, monkeypatch, lacking
):
    app, other = make_app(poll_interval=60), make_app()
    app.migrate()
    start = threading.Thread.start

    def no_pipe():
        raise OSError("too many open files")

    def no_bell(thread):
        if thread.name == "towpath-bell":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        if lacking == "pipes":
            patch.setattr(os, "pipe", no_pipe)
        else:
            patch.setattr(threading.Thread, "start", no_bell)
        assert colour(app).jobs.enqueue("mail")

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(colour(app).jobs.reserve, "post", timeout=20)
        wait_until(lambda: app.jobs.stats_waiting() == {"post": 1})
        other.jobs.enqueue("post")
        assert len(waiting.result(30)) == 1
