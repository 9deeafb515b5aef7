"""Keys that several transactions want at once; keys whose job may be too late to begin."""

import asyncio

import psycopg
import pytest

from tests.faults.chance import dice
from tests.faults.gates import Gate
from tests.faults.processes import wait_until
from towpath.database.clock import machine_clock

HOUR = 3_600_000_000


@pytest.fixture(params=["postgres"])
def kind(request):
    return request.param


@pytest.mark.parametrize("statement", ["clock", "let_go"])
def test_a_job_that_began_in_time_keeps_its_key(make_app, threads, statement):
    """It was seen in line, and too late; but it was reserved before the clock was read."""
    app, other = make_app(), make_app()
    before = make_app(clock=lambda: machine_clock() - HOUR)
    first = before.jobs.enqueue("mail", 1, key="k", expires_after=1_800)

    with Gate(app, threads).before(statement, app.jobs.enqueue, "mail", 2, key="k") as second:
        [lease] = before.jobs.reserve("mail")

    assert second.result().id == first.id
    other.jobs.complete(lease)
    assert other.jobs.enqueue("mail", 3, key="k").payload == 3


def test_many_that_take_keys_from_each_other_do_not_wait_in_a_circle(make_app, postgres):
    """PostgreSQL would let them stand for a second before it ends one."""
    chance = dice(3)
    before = len(postgres.log)

    async def enqueue(app):
        keys = [f"k{chance.randrange(40)}" for _ in range(300)]
        calls = (app.jobs.aenqueue("mail", 1, key=key, unique="replace") for key in keys)
        await asyncio.gather(*calls)

    async def enqueue_on_two():
        await asyncio.gather(enqueue(make_app()), enqueue(make_app()))

    asyncio.run(enqueue_on_two())

    assert "deadlock detected" not in postgres.log[before:]
    assert make_app().jobs.stats().ready == 40


def test_commits_that_complete_one_key_and_enqueue_another_do_not_deadlock(
    make_app, postgres, postgres_schema, books
):
    """Each transaction frees the key that the other wants."""
    before = len(postgres.log)

    async def both(app, lease, key):
        # In one tick of the loop, so that the two share a transaction.
        completed = app.jobs.acomplete(lease)
        return await asyncio.gather(completed, app.jobs.aenqueue("mail", "new", key=key))

    async def main():
        async with make_app(lanes=1) as one, make_app(lanes=1) as two:
            for key in "ab":
                await one.jobs.aenqueue("mail", key=key)
            a, b = await one.jobs.areserve("mail", limit=2)
            with psycopg.connect(postgres.url()) as connection:
                # An enqueue waits for this table, a completion does not.
                connection.execute(f"lock table {postgres_schema}.topic in share mode")
                doing = asyncio.gather(both(one, a, "b"), both(two, b, "a"))
                await asyncio.to_thread(wait_until, lambda: waiting(books) == 2)
            await doing

    asyncio.run(main())

    assert "deadlock detected" not in postgres.log[before:]
    assert books.count("done") == 2


def test_an_enqueue_that_looks_again_for_a_key_does_not_deadlock(
    make_app, threads, postgres, books
):
    """It has `z`; the job of `a` finishes, and another caller claims `a` and wants `z`."""
    app, other = make_app(lanes=1), make_app(lanes=1)
    app.jobs.enqueue("mail", key="a")
    [lease] = app.jobs.reserve("mail")
    before = len(postgres.log)

    async def enqueue_both(app):
        calls = (app.jobs.aenqueue("mail", key=key) for key in "az")
        *jobs, _ = await asyncio.gather(*calls, app.jobs.areserve("nothing"))
        return [job.id for job in jobs]

    with Gate(app, threads).before("standing", asyncio.run, enqueue_both(app)) as first:
        other.jobs.complete(lease)
        second = threads.submit(asyncio.run, enqueue_both(other)).result(10)

    assert first.result() == second
    assert "deadlock detected" not in postgres.log[before:]
    assert books.count("ready") == 2


def test_a_kick_claims_keys_in_the_order_of_an_enqueue(make_app, threads, postgres, books):
    """And so they do not deadlock."""
    app, other = make_app(lanes=1), make_app(lanes=1)
    for key in "za":
        app.jobs.enqueue("mail", key=key)
        app.jobs.bury(app.jobs.reserve("mail")[0])
    before = len(postgres.log)

    async def enqueue_both():
        return await asyncio.gather(*(other.jobs.aenqueue("mail", key=key) for key in "az"))

    with Gate(app, threads).before("take_buried", app.jobs.kick, "mail", 2) as kicked:
        enqueued = threads.submit(asyncio.run, enqueue_both())
        wait_until(lambda: waiting(books) == 1)

    assert kicked.result() == 2
    assert len(enqueued.result(10)) == 2
    assert "deadlock detected" not in postgres.log[before:]
    assert books.count("ready") == 2


def waiting(books):
    """Count the transactions that wait for a lock."""
    [[number]] = books.rows("select count(distinct pid) from pg_locks where not granted")
    return number
