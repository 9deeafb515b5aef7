"""Schedules under kill and outage: every fire is made, and none twice."""

import itertools
import time
from collections import Counter, defaultdict
from datetime import timedelta

import pytest

from tests.faults import chance
from tests.faults.processes import wait_until
from tests.faults.sizes import many
from tests.servers import PostgresServer
from towpath.model.instants import as_datetime

SECOND = timedelta(seconds=1)
_numbers = itertools.count(1)


def fires(books):
    """When each schedule has fired, by the name that is its topic."""
    found = defaultdict(list)
    for topic, run_at in books.rows("select topic, run_at from towpath.job order by run_at"):
        found[topic].append(as_datetime(run_at))
    return found


def each_second(first, last):
    return [first + n * SECOND for n in range((last - first) // SECOND + 1)]


@pytest.mark.chaos
def test_four_processes_compete_and_are_killed_and_each_fire_is_made_once(make_app, start, books):
    """MS-10: Some are killed in the moment of a fire; no process leads, so none is missed."""
    app, dice = make_app(), chance.dice(7)
    names = [f"s{number}" for number in range(10)]
    first = {
        name: app.schedules.set(name, topic=name, every="1s", catch_up="all").next_at
        for name in names
    }
    processes = [start("keep_schedules") for _ in range(4)]
    for process in processes:
        assert process.hear() == "keeping"

    for _ in range(many(6)):
        before = app.schedules.get("s0").last_at
        wait_until(lambda before=before: app.schedules.get("s0").last_at != before)
        victim = dice.randrange(4)
        processes[victim].kill_alive()
        processes[victim] = start("keep_schedules")
    for process in processes:
        process.end()

    made = fires(books)
    for name in names:
        assert made[name] == each_second(first[name], app.schedules.get(name).last_at)


@pytest.fixture(scope="module")
def server():
    """A PostgreSQL server that these tests may stop; no others use it."""
    with PostgresServer() as server:
        yield server


class TestOutage:
    @pytest.fixture
    def kind(self):
        return "postgres"

    @pytest.fixture
    def place(self, server):
        return server.url(), {"schema": f"outage_{next(_numbers)}"}

    @pytest.mark.chaos
    def test_an_outage_of_three_times_dead_after_neither_misses_nor_doubles_a_fire(
        self, server, make_app, books
    ):
        """MS-10: What is late is caught up as each schedule says."""
        apps = [make_app(dead_after=1.0, beat_every=0.2, connect_timeout=1.0) for _ in range(3)]
        app = apps[0]
        first = {
            name: app.schedules.set(name, topic=name, every="1s", catch_up=name).next_at
            for name in ("all", "latest", "skip")
        }
        for each in apps:
            each.upkeep.start()
        wait_until(lambda: app.schedules.get("all").last_at)
        server.stop("immediate")
        time.sleep(3.5)  # the outage itself
        server.start()
        back_at = app.schedules.get("all").last_at
        wait_until(lambda: app.schedules.get("all").last_at > back_at + 4 * SECOND)
        for each in apps:
            each.upkeep.stop()

        made, last = fires(books), {s.name: s.last_at for s in app.schedules.list()}
        assert made["all"] == each_second(first["all"], last["all"])
        for name in ("latest", "skip"):
            assert max(Counter(made[name]).values()) == 1
            assert set(made[name]) < set(each_second(first[name], last[name]))
            assert made[name][-1] == last[name]
