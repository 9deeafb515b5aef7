"""A key whose job might be too late to begin, while that job is on its way."""

import asyncio

import pytest

from tests.faults.chance import dice
from tests.faults.gates import Gate
from towpath.database.clock import machine_clock

HOUR = 3_600_000_000


@pytest.fixture(params=["postgres"])
def kind(request):
    return request.param


@pytest.mark.parametrize("statement", ["clock", "let_go"])
def test_a_job_that_began_in_time_keeps_its_key(make_app, threads, statement):
    """It was seen in line, and too late; but somebody has reserved it before that came."""
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
