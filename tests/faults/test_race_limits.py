"""The row of a limit, while several look at it."""

import asyncio
import contextlib
import time

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
from towpath.errors import DatabaseBusy
from towpath.store import limits

KEY = "printer"


@contextlib.contextmanager
def held(books, table, seq):
    """Hold a row, as a transaction that has not committed yet."""
    with psycopg.connect(books._url) as other:
        text = sql.SQL("select from {} where seq = %s for update")
        other.execute(text.format(sql.Identifier(books._schema, table)), [seq])
        yield other


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


def test_when_the_next_may_start_is_kept_by_a_transaction_that_saw_no_job_wait(
    make_app, threads, books
):
    app, other = make_app(), make_app()
    later = make_app(clock=lambda: machine_clock() + 7_200_000_000)
    hourly = Limit(KEY, rate="1/h")
    other.jobs.enqueue("mail", limit=hourly)
    [lease] = other.jobs.reserve("mail")
    second = other.jobs.enqueue("mail", limit=hourly)

    with Gate(app, threads).before("pace_limits", app.jobs.complete, lease):
        reserved = threads.submit(other.jobs.reserve, "mail")
        wait_until(lambda: reserved.done() or locked(books))
    assert reserved.result(10) == []  # it waits from now on

    assert [each.job.id for each in later.jobs.reserve("mail")] == [second.id]


def test_a_limit_that_is_used_again_meanwhile_is_not_forgotten(
    make_knowing, make_app, threads, books
):
    """A transaction that waits for its row must not find it forgotten for what was true before."""
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


@pytest.mark.parametrize("fails", [False, True], ids=["completed", "some failed"])
def test_workers_that_hold_many_limits_do_not_wait_for_each_other_in_a_circle(
    make_app, postgres, fails
):
    """PostgreSQL would let them stand for a second before it ends one."""
    count, done = 1_000, []
    chance = dice(7)

    async def send(number: int) -> None:
        done.append(number)
        if fails and number % 2:
            raise ValueError(number)

    def make_task():
        return make_app().task(topic="mail", max_retries=0)(send)

    send_later = make_task()
    many = [send_later.using(limit=Limit(f"k{nth}", concurrency=2)) for nth in range(30)]
    for number in range(count):
        chance.choice(many).enqueue(number)
    before = len(postgres.log)
    with contextlib.ExitStack() as workers:
        for _ in range(3):
            workers.enter_context(working(make_task().app, concurrency=20))
        eventually(lambda: len(done) == count, 250)

    assert sorted(done) == list(range(count))
    assert "deadlock detected" not in postgres.log[before:]


def test_outcomes_of_two_kinds_do_not_wait_in_a_circle(make_knowing, threads, books, postgres):
    """Those of one kind hold their limits in one statement; two kinds would in two."""
    app, other = make_knowing("mail"), make_knowing("mail")
    for key in "abab":
        app.jobs.enqueue("mail", key, limit=Limit(key, concurrency=2))
    first_a, first_b, second_a, second_b = app.jobs.reserve("mail", limit=4)
    before = len(postgres.log)

    def end(which, good, bad):
        async def both():
            await asyncio.gather(which.jobs.acomplete(good), which.jobs.afail(bad, "no"))

        asyncio.run(both())

    with Gate(app, threads).before("topics_of_blocked", end, app, first_b, first_a):
        second = threads.submit(end, other, second_a, second_b)
        wait_until(lambda: second.done() or locked(books))
    second.result(10)

    assert "deadlock detected" not in postgres.log[before:]


def test_a_reservation_holds_no_limits_twice(make_knowing, threads, books, postgres):
    """What a pace lets in was looked at, and let no job in: those that it runs by are held."""
    app, other = make_knowing("post"), make_knowing("mail")
    slow, wide = Limit("b", concurrency=1, rate="20/s"), Limit("a", concurrency=9)
    app.jobs.enqueue_many("mail", range(2), limit=slow)
    assert len(other.jobs.reserve("mail", limit=2)) == 1
    late = other.jobs.enqueue("post", delay=0.05)
    other.jobs.enqueue("post", limit=wide)
    other.jobs.enqueue("mail", limit=wide, priority=0)
    other.jobs.enqueue("mail", limit=slow, priority=0)
    time.sleep(0.15)  # the pace allows another, but the first still runs; and `late` is due
    before = len(postgres.log)
    with held(books, "delayed", late.seq) as holder:
        with Gate(app, threads).before("declare_limits", app.jobs.reserve, "post"):
            second = threads.submit(other.jobs.reserve, "mail", limit=2)
            wait_until(lambda: second.done() or locked(books))
            holder.rollback()
        second.result(10)

    assert "deadlock detected" not in postgres.log[before:]


def test_nobody_looks_for_ever_while_the_first_that_is_blocked_is_held(make_knowing, books):
    """To let the second in instead would only have it parked again: it comes after the first."""
    app = make_knowing("mail")
    app.jobs.enqueue_many("mail", range(3), limit=Limit(KEY, concurrency=1))
    app.jobs.enqueue("mail", "other")
    lease, other = app.jobs.reserve("mail", limit=4)
    app.jobs.release(other)
    [[first]] = books.rows("select min(seq) from towpath.blocked")

    with held(books, "blocked", first):
        app.jobs.complete(lease)

        assert [lease.job.payload for lease in app.jobs.reserve("mail")] == ["other"]


def test_a_job_whose_place_could_not_be_given_on_is_not_completed(make_knowing, make_app, books):
    """It is refused whole, and can be said again."""
    app = make_knowing("mail")
    app.jobs.enqueue_many("mail", range(2), limit=Limit(KEY, concurrency=2))
    first, second = app.jobs.reserve("mail", limit=2)
    impatient = make_app(busy_timeout=0.2)

    with psycopg.connect(books._url) as other:
        app.jobs.complete(first, connection=other)
        with pytest.raises(DatabaseBusy):
            impatient.jobs.complete(second)
        assert app.jobs.get(second.job.id).state == "reserved"

    app.jobs.complete(second)
    assert app.jobs.get(second.job.id).state == "completed"
