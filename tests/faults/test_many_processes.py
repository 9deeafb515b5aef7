"""Many processes on one database: each job is done by exactly one of them."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from tests.faults.programs import lines
from tests.faults.sizes import many
from towpath.store.schema import VERSION

pytestmark = pytest.mark.soak


def test_four_processes_complete_each_job_exactly_once(start, make_app, books, tmp_path):
    """US2-5, SC-3, EC-5: they enqueue, reserve and complete at the same time, on live leases."""
    each, total = many(1_000), many(4_000)
    workers = [
        ("produce_and_work", 1),
        ("produce_and_work", 25),
        ("aproduce_and_work", 3),
        ("aproduce_and_work", 60),
    ]
    records = [tmp_path / f"worker-{nth}" for nth in range(len(workers))]

    programs = [
        start(name, record=str(record), number=each, batch=batch, total=total)
        for (name, batch), record in zip(workers, records, strict=True)
    ]
    for program in programs:
        program.finish()

    completed = Counter(id for record in records for id, _ in lines(record))
    assert set(completed.values()) == {1}
    assert set(completed) == {str(id) for id in books.ids()}
    assert len(completed) == total
    assert {epoch for record in records for _, epoch in lines(record)} == {"1"}
    books.check_completions()
    stats = make_app().jobs.stats()
    assert (stats.completed, stats.failed_total, stats.reserved, stats.pending) == (total, 0, 0, 0)


@pytest.mark.usefixtures("untouched")
def test_apps_that_start_together_on_an_empty_database_make_its_tables_once(make_app, books):
    apps = [make_app() for _ in range(8)]
    together = Barrier(len(apps))

    def enqueue(app):
        together.wait()
        return app.jobs.enqueue("mail").id

    with ThreadPoolExecutor(len(apps)) as threads:
        ids = set(threads.map(enqueue, apps))

    assert books.ids() == ids
    assert books.count("migration") == VERSION
