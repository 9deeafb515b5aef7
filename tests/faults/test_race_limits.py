"""The row of a limit, while several look at it."""

import contextlib

import psycopg
import pytest
from psycopg import sql

from tests.conftest import eventually
from tests.faults.chance import dice
from tests.faults.gates import Gate
from tests.faults.processes import wait_until
from tests.workers import working
from towpath import Limit
from towpath.database.clock import machine_clock
from towpath.store import limits, reserving

KEY = "printer"


def locked(books):
    return books.rows("select pid from pg_stat_activity where wait_event_type = 'Lock'")


@pytest.fixture(params=["postgres"])
def kind(request):
    return request.param


@pytest.fixture
def make_knowing(make_app):
    """Make an app that knows that there are limits in some topics."""

    def make(*topics):
        app = make_app()
        app.jobs.enqueue(topics[0], limit=Limit("other", concurrency=99))
        app.jobs.delete(app.jobs.reserve(topics)[0])
        return app

    return make


def test_what_the_newest_says_of_a_limit_holds_when_an_older_comes_after_it(
    make_knowing, make_app, threads
):
    """Both found no row of it; the older one wrote last."""
    app, other = make_knowing("mail"), make_app()
    app.jobs.enqueue("mail", limit=Limit(KEY, concurrency=5))
    other.jobs.enqueue("post", limit=Limit(KEY, concurrency=1))

    with Gate(app, threads).before("declare_limits", app.jobs.reserve, "mail") as older:
        assert len(other.jobs.reserve("post")) == 1

    assert older.result() == []
    [limit] = [each for each in other.limits.list() if each.key == KEY]
    assert (limit.concurrency, limit.running) == (1, 1)


def test_when_the_next_may_start_is_not_forgotten_by_one_who_saw_nobody_wait(make_app, threads):
    app, other = make_app(), make_app()
    later = make_app(clock=lambda: machine_clock() + 7_200_000_000)
    hourly = Limit(KEY, rate="1/h")
    other.jobs.enqueue("mail", limit=hourly)
    [lease] = other.jobs.reserve("mail")
    second = other.jobs.enqueue("mail", limit=hourly)

    with Gate(app, threads).before("pace_limits", app.jobs.complete, lease):
        assert other.jobs.reserve("mail") == []  # it waits from now on

    assert [each.job.id for each in later.jobs.reserve("mail")] == [second.id]


def test_a_limit_is_not_forgotten_by_one_who_saw_nobody_under_it(
    make_knowing, make_app, threads, books
):
    """Who waits for its row must not find that it was forgotten for what has changed since."""
    app, other = make_knowing("mail"), make_app()
    before = make_app(clock=lambda: machine_clock() - 3_600_000_000)
    one = Limit(KEY, concurrency=1)
    other.jobs.enqueue("mail", limit=one)
    other.jobs.complete(other.jobs.reserve("mail")[0])
    before.jobs.enqueue("mail", limit=one, delay=60)

    with Gate(app, threads).before("count_before", app.jobs.reserve, "mail"):
        forgetting = threads.submit(other.run, limits.forget_unused())
        wait_until(lambda: forgetting.done() or locked(books))
    forgetting.result(10)

    [limit] = [each for each in other.limits.list() if each.key == KEY]
    assert limit.running == 1


def test_nobody_is_overtaken_while_one_who_knows_no_limits_yet_has_it_in_hand(
    make_knowing, make_app, place, threads
):
    """It is neither in line nor parked then, and did not run when those who run were counted."""
    url, needed = place
    app, other = make_knowing("mail"), make_app()
    one = Limit(KEY, concurrency=1)
    first, second = (other.jobs.enqueue("mail", number, limit=one) for number in range(2))
    unknowing = reserving.reserve(("mail",), limit=1, token=1)

    with psycopg.connect(url) as somebody:
        held = sql.SQL("select from {} where seq = %s for update")
        somebody.execute(held.format(sql.Identifier(needed["schema"], "ready")), [first.seq])
        with Gate(app, threads).before("count_before", app.jobs.reserve, "mail") as reserved:
            somebody.rollback()
            met = other.run(unknowing)
    other.run(reserving.give_back(met.leases, met.unusable))

    assert reserved.result() == []
    assert [lease.job.id for lease in other.jobs.reserve("mail", limit=2)] == [first.id]
    assert app.jobs.get(second.id).state == "blocked"


def test_workers_that_hold_many_limits_do_not_wait_for_each_other_in_a_circle(make_app, postgres):
    """PostgreSQL would let them stand for a second before it ends one."""
    count, done = 1_000, []
    chance = dice(7)

    async def send(number: int) -> None:
        done.append(number)

    def make_task():
        return make_app().task(topic="mail")(send)

    send_later = make_task()
    many = [send_later.using(limit=Limit(f"k{nth}", concurrency=2)) for nth in range(30)]
    for number in range(count):
        chance.choice(many).enqueue(number)
    before = len(postgres.log)
    with contextlib.ExitStack() as workers:
        for _ in range(3):
            workers.enter_context(working(make_task().app, concurrency=20))
        eventually(lambda: len(done) == count, 50)

    assert sorted(done) == list(range(count))
    assert "deadlock detected" not in postgres.log[before:]
