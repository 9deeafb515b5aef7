"""Bulk acts with several processes, some of which are killed: each job is treated once."""

import pytest

from tests.faults.gates import Gate
from tests.faults.processes import wait_until
from towpath.store import bulk as store


def failed(app, number):
    """Jobs that have failed for good, and the number of the last one."""
    app.jobs.enqueue_many("mail", range(number), max_retries=1)
    for lease in app.jobs.reserve("mail", limit=number):
        app.jobs.bury(lease)
    return app.bulk.preview("kick", topic="mail").up_to


def kicks(books):
    return books.rows("select coalesce(kicks, 0), count(*) from towpath.ready group by 1")


def test_a_process_that_is_killed_half_way_leaves_the_rest_to_the_next(make_app, start, books):
    """B1: what it had not committed is done again, and no job is kicked twice."""
    app = make_app()
    bulk = app.bulk.begin("kick", up_to=failed(app, 600), delay=0, topic="mail")
    killed = 0

    while app.bulk.get(bulk.id).ended_at is None:
        before = app.bulk.get(bulk.id).epoch
        process = start("keep_schedules")
        assert process.hear() == "keeping"
        wait_until(lambda before=before: app.bulk.get(bulk.id).epoch > before)
        process.kill_alive()
        killed += app.bulk.get(bulk.id).ended_at is None

    ended = app.bulk.get(bulk.id)
    assert (ended.state, ended.done, ended.refused, ended.looked) == ("done", 600, 0, 600)
    assert kicks(books) == [(1, 600)]
    assert killed


class TestTwoAtOnce:
    """On SQLite one transaction at a time writes, so that only PostgreSQL has such a moment."""

    @pytest.fixture
    def kind(self):
        return "postgres"

    @pytest.mark.parametrize("statement", ["hold", "move"])
    def test_two_processes_do_not_do_one_round_twice(self, make_app, threads, books, statement):
        """One is about to begin the round, or to commit it, while the other comes to it."""
        app, other = make_app(), make_app()
        bulk = app.bulk.begin("kick", up_to=failed(app, 150), delay=0, topic="mail")
        [due] = other.run(store.due())

        with Gate(app, threads).before(statement, app.upkeep.run):
            done = other.run(store.carry_on(due.id, due.epoch))
        while app.bulk.get(bulk.id).ended_at is None:
            app.upkeep.run()

        assert done == (statement == "hold")
        ended = app.bulk.get(bulk.id)
        assert (ended.state, ended.done, ended.refused) == ("done", 150, 0)
        assert kicks(books) == [(1, 150)]
