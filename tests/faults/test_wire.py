"""What goes over a connection to PostgreSQL, however large, and whoever stands between."""

import asyncio

import psycopg
import pytest

from tests.conftest import eventually
from tests.faults.proxy import Proxy
from towpath import App, State
from towpath.errors import DatabaseError
from towpath.operation import Operation
from towpath.store.jobs import sql

LARGE = "x" * 500_000  # characters of a payload


@pytest.fixture(params=["postgres"])
def kind(request):
    return request.param


@pytest.fixture
def pooler(postgres):
    with Proxy(postgres.port, pooler=True) as proxy:
        yield proxy


def test_questions_and_answers_that_no_buffer_holds_pass_each_other(live):
    """Megabytes both ways on one connection, while either side is still speaking."""
    live.jobs.enqueue_many("mail", [LARGE] * 20)

    leases = live.jobs.reserve("mail", limit=20)

    assert {lease.job.payload for lease in leases} == {LARGE}


def test_large_jobs_of_many_tasks_share_their_commits(make_app):
    async def main():
        async with make_app(lanes=1) as app:
            await app.jobs.aenqueue_many("mail", [LARGE] * 8)
            *stored, reserved = await asyncio.gather(
                *(app.jobs.aenqueue("post", LARGE) for _ in range(8)),
                app.jobs.areserve("mail", limit=8),
            )
            assert len(reserved) == 8
            assert len({job.id for job in stored}) == 8

    asyncio.run(main())


def test_a_line_that_ends_while_nobody_waits_is_noticed_at_once(make_app, postgres, loop):
    """So the next one to come does not have to find that out."""
    app = make_app(lanes=1)

    def do(awaited):
        return asyncio.run_coroutine_threadsafe(awaited, loop).result(20)

    do(app.jobs.aenqueue("mail"))
    [lanes] = app._database._loops.values()
    [wire] = [lane._wire for lane in lanes.lanes() if lane._wire]
    assert wire.rests
    with psycopg.connect(postgres.url(), autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s)", [wire._pgconn.backend_pid])

    eventually(lambda: not wire.rests)
    assert wire._listener is None  # or it would be told of the end again and again
    do(app.jobs.aenqueue("mail"))
    assert len(do(app.jobs.areserve("mail", limit=3))) == 2


def test_an_error_of_one_statement_leaves_the_connection_usable(make_app, colour):
    """In the middle of what is asked together: those behind it are not run, and say so."""
    app = colour(make_app(lanes=1))
    app.jobs.enqueue("mail")

    def fails():
        yield sql["enqueue"]([{"nth": "no number"}])

    with pytest.raises(DatabaseError, match="no number"):
        app.run(Operation("mine", fails, parts=[Operation("a part", fails)] * 3))

    assert app.jobs.enqueue("mail").state is State.READY


@pytest.mark.parametrize("colour", ["blocking", "async"], indirect=True)
def test_behind_a_pooler_nothing_is_prepared(pooler, postgres_schema, colour):
    """The next statement may go to another server process, which knows none of the names."""
    with App(pooler.url(), schema=postgres_schema) as plain:
        app = colour(plain)
        jobs = app.jobs.enqueue_many("mail", range(30))
        for _ in range(10):
            app.jobs.enqueue("mail", None, delay=60)
        leases = app.jobs.reserve("mail", limit=40)
        for lease in leases:
            app.jobs.complete(lease, "well")

        assert [lease.job.id for lease in leases] == [job.id for job in jobs]
        assert {app.jobs.get(job).state for job in jobs} == {State.COMPLETED}
    assert pooler.prepared == set()


def test_elsewhere_each_statement_is_prepared_once(postgres, postgres_schema):
    with Proxy(postgres.port) as proxy, App(proxy.url(), schema=postgres_schema, lanes=1) as app:
        app.jobs.enqueue("mail")
        known = len(proxy.prepared)
        for number in (0, 2**15, 2**31, 2**40):  # however large the numbers in it are
            app.jobs.enqueue("mail", number, delay=number / 10**6)

        assert 0 < len(proxy.prepared) == known
