"""What is blocked comes free, while many compete and some of them die."""

import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock

import pytest

from tests.conftest import eventually
from tests.faults.conftest import many
from towpath import App, Limit


class Watch:
    """The jobs that run, by key; complains when there are too many."""

    def __init__(self, most):
        self.most = most
        self.lock = Lock()
        self.running = Counter()
        self.started = defaultdict(list)
        self.too_many = []

    def starts(self, key, number):
        with self.lock:
            self.running[key] += 1
            self.started[key].append(number)
            if self.running[key] > self.most:
                self.too_many.append((key, number))

    def ends(self, key):
        with self.lock:
            self.running[key] -= 1

    @property
    def count(self):
        return sum(map(len, self.started.values()))


@pytest.mark.parametrize("most", [1, 3])
def test_many_workers_keep_a_limit_and_forget_nobody(durable_place, most):
    """Of a limit of one, also the order."""
    url, needed = durable_place
    keys, each = 3, many(20)
    watch = Watch(most)
    with App(url, **needed) as app:
        for number in range(each):
            for key in "abc":
                limit = Limit(key, concurrency=most)
                app.jobs.enqueue("work", [key, number], limit=limit)

    def work(_):
        with App(url, **needed) as app:
            while watch.count < keys * each:
                for lease in app.jobs.reserve("work", limit=3, timeout=0.5):
                    key, number = lease.job.payload
                    watch.starts(key, number)
                    time.sleep(0.002)  # so that it lasts
                    watch.ends(key)
                    app.jobs.complete(lease)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))

    assert watch.too_many == []
    assert {key: sorted(numbers) for key, numbers in watch.started.items()} == {
        key: list(range(each)) for key in "abc"
    }
    if most == 1:
        assert all(numbers == sorted(numbers) for numbers in watch.started.values())


def test_a_holder_that_dies_gives_its_place_back(durable_place):
    url, needed = durable_place
    with App(url, **needed) as app:
        app.jobs.enqueue_many("work", range(2), limit=Limit("a", concurrency=1), ttr=0.3)
        app.jobs.reserve("work", limit=2)  # and is never heard of again

        eventually(lambda: app.jobs.reserve("work", timeout=1))


def test_parents_that_end_at_once_do_not_overlook_each_other(durable_place):
    """Each sees that it was not the last, unless they take turns."""
    url, needed = durable_place
    parents, children = 4, many(20)
    with App(url, **needed) as app:
        for number in range(children):
            before = app.jobs.enqueue_many("part", [number] * parents)
            app.jobs.enqueue("whole", number, after=before)
        leases = app.jobs.reserve("part", limit=1_000)
        while len(leases) < parents * children:
            leases += app.jobs.reserve("part", limit=1_000)
        together = Barrier(parents)

        def complete(place):
            with App(url, **needed) as own:
                for number in range(children):
                    together.wait()
                    own.jobs.complete(leases[number * parents + place])

        with ThreadPoolExecutor(parents) as pool:
            list(pool.map(complete, range(parents)))

        assert app.jobs.stats_topic("whole").ready == children


def test_many_workers_compete_and_each_job_runs_on_just_as_many_as_it_wants(durable_place):
    """MS-2"""
    url, needed = durable_place
    count = many(15)
    with App(url, **needed) as app:
        jobs = [app.jobs.enqueue("deploy", number, workers=2) for number in range(count)]

        def work(name):
            with App(url, **needed) as own:
                while own.jobs.stats().pending:
                    for lease in own.jobs.reserve("deploy", limit=3, worker=name, timeout=0.05):
                        own.jobs.complete(lease, name)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, "abcd"))

        for job in jobs:
            ran = {run.worker for run in app.jobs.runs(job)}
            assert (len(ran), set(app.jobs.get(job).returned)) == (2, ran)
