"""Two verbs about one job at once: at whatever statement the second comes between, one job remains.

PostgreSQL only: SQLite has one writer at a time.
"""

import itertools
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.faults.gates import StoppingClock
from tests.faults.processes import wait_until
from towpath.errors import InvalidState, NotBuried, NotFound

VERBS = {
    "kick_job": lambda app, job: app.jobs.kick_job(job),
    "reprioritise": lambda app, job: app.jobs.reprioritise(job, 7),
    "cancel": lambda app, job: app.jobs.cancel(job),
    "delete": lambda app, job: app.jobs.delete(job),
}


@pytest.fixture(params=["postgres"])
def kind(request):
    return request.param


@pytest.fixture
def interleaved(make_app, place):
    """Say two verbs about delayed jobs: the second comes before each statement of the first."""
    clock = StoppingClock()
    one, two = make_app(clock=clock), make_app()
    two.jobs.enqueue("other")
    one.jobs.enqueue("other")

    def say(app, verb, job):
        try:
            VERBS[verb](app, job)
        except (InvalidState, NotBuried, NotFound) as error:  # the other was quicker
            return error.code
        return "done"

    def each(first, second):
        for nth in itertools.count(1):
            job = two.jobs.enqueue("mail", delay=3_600)
            clock.stop_at(nth)
            saying = threads.submit(say, one, first, job)
            wait_until(lambda saying=saying: clock.stopped.is_set() or saying.done())
            between = threads.submit(say, two, second, job)
            wait_until(lambda between=between: between.done() or waits_for_a_lock())
            clock.go_on()
            yield job, {first: saying.result(10), second: between.result(10)}
            if not clock.stopped.is_set():
                assert nth > 3  # there was something to come between
                return

    def waits_for_a_lock():
        return other.execute(
            "select pid from pg_stat_activity where wait_event_type = 'Lock'"
        ).fetchall()

    with psycopg.connect(place[0], autocommit=True) as other, ThreadPoolExecutor(2) as threads:
        yield each
        clock.go_on()


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(VERBS, 2)), ids=str)
def test_a_job_that_two_verbs_move_at_once_lies_in_one_table(interleaved, books, first, second):
    deleted = set()
    for job, said in interleaved(first, second):
        assert "done" in said.values()
        if said.get("delete") == "done":
            deleted.add(job.id)

    books.check()
    assert books.rows("select id from towpath.located where state is null") == []
    assert not books.ids() & deleted


@pytest.mark.parametrize("first", ["kick_job", "reprioritise"])
def test_a_job_that_is_kicked_and_reprioritised_at_once_is_both(interleaved, make_app, first):
    app = make_app()
    for job, said in interleaved(first, "reprioritise" if first == "kick_job" else "kick_job"):
        assert set(said.values()) == {"done"}
        [lease] = app.jobs.reserve("mail", limit=2)
        assert (lease.job.id, lease.job.priority, lease.job.kicks) == (job.id, 7, 1)


@pytest.mark.parametrize("topics", ["mail", ["mail", "other"]])
def test_a_reservation_steps_over_a_job_that_another_transaction_holds(
    make_app, place, postgres, topics
):
    """It neither waits for the lock nor returns without the jobs behind."""
    app = make_app()
    held, free = app.jobs.enqueue_many("mail", [1, 2])
    _, settings = place
    with psycopg.connect(postgres.url()) as other:
        other.execute(
            f"select from {settings['schema']}.ready where seq = %s for update", [held.seq]
        )
        [lease] = app.jobs.reserve(topics, limit=2)

    assert lease.job.id == free.id
    assert [lease.job.id for lease in app.jobs.reserve(topics)] == [held.id]
