"""Doorbells between processes: every ring is heard, and whoever does not listen holds up nobody."""

import select
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.faults.processes import wait_until
from towpath import App
from towpath.database.wakeups import PostgresBell
from towpath.settings import Settings


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
    there.announce(["mail"])
    select.select([here._connection], [], [], 5)

    here.announce(["post"])

    assert here.wait(0, listening=True) == {"mail"}
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
