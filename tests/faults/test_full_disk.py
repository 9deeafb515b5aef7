"""A full disk under SQLite: what is refused left no trace, and it goes on when there is room."""

import asyncio
import contextlib
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.books import unchanged
from tests.faults.processes import wait_until
from towpath import Job
from towpath.errors import DatabaseFull

HUGE = "x" * 1_000_000
NO_LIMIT = 2**30


@pytest.fixture
def kind():
    return "sqlite"


@pytest.fixture
def allow(live):
    """Allow the file some pages more than it has.

    SQLite's own limit holds for one connection, so it is set on the one that writes.
    """

    def allow(more):
        connection = live._database._writer._connection
        [[pages]] = connection.execute("pragma page_count")
        connection.execute(f"pragma max_page_count = {min(pages + more, NO_LIMIT)}").fetchall()

    live.topics.list()
    return allow


def test_a_job_that_finds_no_room_is_refused_and_leaves_no_trace(live, allow, books):
    live.jobs.enqueue("mail", "first")
    allow(20)
    with pytest.raises(DatabaseFull, match="free some space"):
        enqueue_all(live, ["x" * 5_000] * 1_000)
    stored = books.count("job")

    with unchanged(books):
        for options in ({}, {"key": "k"}, {"delay": 60}):
            with pytest.raises(DatabaseFull):
                live.jobs.enqueue("mail", HUGE, **options)
        with pytest.raises(DatabaseFull):
            live.jobs.enqueue_many("mail", [1, 2, HUGE])
    assert 1 < stored < 1_000
    books.check()


def test_it_goes_on_when_there_is_room_again(live, allow, books):
    """The same app, without a restart."""
    live.jobs.enqueue("mail", "first")
    allow(0)
    with pytest.raises(DatabaseFull):
        live.jobs.enqueue("mail", HUGE)

    allow(NO_LIMIT)
    live.jobs.enqueue("mail", HUGE)
    leases = live.jobs.reserve("mail", limit=10)
    for lease in leases:
        live.jobs.complete(lease)

    assert [lease.job.payload for lease in leases] == ["first", HUGE]
    books.check_completions()


def test_jobs_can_be_finished_once_there_is_room_for_their_results(live, allow, books):
    """A result that does not fit is refused, and the lease is kept."""
    live.jobs.enqueue_many("mail", ["first", "second"])
    [lease, other] = live.jobs.reserve("mail", limit=2)
    allow(0)
    with unchanged(books):
        with pytest.raises(DatabaseFull):
            live.jobs.complete(lease, HUGE)
        with pytest.raises(DatabaseFull):
            fail_at_length(live, other)

    allow(NO_LIMIT)
    live.jobs.complete(lease, HUGE)
    live.jobs.complete(other)

    assert live.jobs.get(lease.job).returned == HUGE
    books.check_completions()


def enqueue_all(app, payloads):
    for payload in payloads:
        app.jobs.enqueue("mail", payload)


def reserve_all(app, held):
    while leases := app.jobs.reserve("mail", limit=20):
        held += leases


def fail_at_length(app, lease):
    """Fail a job again and again with a long error, which is kept: that takes room."""
    for _ in range(100):
        app.jobs.fail(lease, "x" * 20_000, delay=0)
        [lease] = app.jobs.reserve("mail", timeout=5)


def test_reservations_find_no_room_and_lose_no_job(live, allow, books):
    number = 500
    live.jobs.enqueue_many("mail", range(number))
    allow(1)
    held = []
    with pytest.raises(DatabaseFull):
        reserve_all(live, held)
    books.check()
    assert books.count("lease") == len(held)

    allow(NO_LIMIT)
    held += live.jobs.reserve("mail", limit=number)
    for lease in held:
        live.jobs.complete(lease)

    assert sorted(lease.job.payload for lease in held) == list(range(number))
    books.check_completions()


def test_only_the_job_that_does_not_fit_is_refused_among_threads(make_app, tmp_path, books):
    app = make_app()
    app.jobs.enqueue("mail", "first")
    app._database._writer._connection.execute("pragma max_page_count = 120").fetchall()
    payloads = [1, 2, 3, HUGE, 4, 5, 6, 7]
    with ThreadPoolExecutor(10) as threads:
        # Another program's transaction keeps them waiting until all have gathered.
        with contextlib.closing(sqlite3.connect(tmp_path / "test.db")) as other:
            other.execute("begin immediate")
            leading = threads.submit(app.jobs.enqueue, "mail", "leading")
            wait_until(lambda: not app._database._lanes._idle)
            calls = [threads.submit(app.jobs.enqueue, "mail", each) for each in payloads]
            wait_until(lambda: len(app._database._lanes._inbox) == len(payloads))
        errors = [call.exception(20) for call in calls]
        assert leading.result(20)

    assert [type(error) for error in errors] == [
        DatabaseFull if payload is HUGE else type(None) for payload in payloads
    ]
    assert books.count("job") == 2 + len(payloads) - 1
    books.check()


def test_only_the_job_that_does_not_fit_is_refused_among_tasks(make_app, books):
    payloads = [1, 2, 3, HUGE, 4, 5, 6, 7]

    async def main():
        async with make_app() as app:
            await app.jobs.aenqueue("mail", "first")
            app._database._writer._connection.execute("pragma max_page_count = 120").fetchall()
            return await asyncio.gather(
                *(app.jobs.aenqueue("mail", each) for each in payloads), return_exceptions=True
            )

    answers = asyncio.run(main())

    assert [type(answer) for answer in answers] == [
        DatabaseFull if payload is HUGE else Job for payload in payloads
    ]
    assert books.count("job") == 1 + len(payloads) - 1
    books.check()


def test_a_file_that_may_not_grow_is_told_by_name_and_forgotten_when_it_may(start, books):
    """RLIMIT_FSIZE: the kernel refuses, as it does for a quota; SQLite calls that an I/O error."""
    said = [line.split() for line in start("fill", size=800_000).finish().splitlines()]

    (_, error, *advice), (_, *meanwhile), (_, *stored) = said
    assert error in {"DatabaseFull", "DatabaseUnavailable"}
    assert "try again" in " ".join(advice)
    assert set(meanwhile) <= {"DatabaseFull", "DatabaseUnavailable"}
    assert meanwhile, "there was room after all"
    assert {str(id) for id in books.ids()} == set(stored)
    assert len(stored) > 10
    assert books.count("done") == 1
    books.check()
