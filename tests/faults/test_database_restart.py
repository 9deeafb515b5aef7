"""PostgreSQL crashes and comes back: callers wait and go on, nothing is lost or doubled."""

import asyncio
import itertools
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.books import Books
from tests.faults.processes import until, wait_until
from tests.faults.sizes import many
from tests.servers import PostgresServer
from towpath.errors import DatabaseUnavailable

pytestmark = pytest.mark.chaos

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server():
    """A PostgreSQL server that these tests may crash; no others use it."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def place(server):
    return server.url(), {"schema": f"restart_{next(_numbers)}"}


class Ledger:
    """What callers were told, by all of them together."""

    def __init__(self):
        self.acknowledged = []
        self.completed = []
        self.stop = False

    def check(self, books: Books):
        done = books.done()
        assert self.acknowledged, "nothing was enqueued"
        assert set(self.acknowledged) == books.ids() == set(done)
        # A reservation whose answer the crash swallowed comes again with the same epoch.
        assert sorted(self.completed) == sorted((id, end.epoch) for id, end in done.items())
        books.check_completions()


def crash_a_few_times(server, ledger):
    for _ in range(many(3)):
        before = len(ledger.completed)
        server.restart("immediate")
        wait_until(lambda before=before: len(ledger.completed) > before + 20)
    ledger.stop = True


def test_blocking_callers_wait_for_a_crashed_database_and_go_on(server, make_app, books):
    """EC-4: enqueue, reserve and complete raise nothing while it restarts."""
    app, ledger = make_app(), Ledger()

    def produce():
        while not ledger.stop:
            ledger.acknowledged.append(app.jobs.enqueue("mail").id)

    def work():
        while leases := app.jobs.reserve("mail", limit=3, timeout=2):
            for lease in leases:
                app.jobs.complete(lease)
                ledger.completed.append((lease.job.id, lease.epoch))

    app.jobs.enqueue_many("mail", range(100))
    ledger.acknowledged += books.ids()
    with ThreadPoolExecutor(8) as threads:
        busy = [threads.submit(each) for each in (produce, produce, work, work, work, work)]
        try:
            crash_a_few_times(server, ledger)
        finally:
            ledger.stop = True
        for each in busy:
            each.result(30)

    ledger.check(books)


def test_async_callers_wait_for_a_crashed_database_and_go_on(server, make_app, books):
    """EC-4: enqueue, reserve and complete raise nothing while it restarts."""
    ledger = Ledger()

    async def main(app):
        async def produce():
            while not ledger.stop:
                ledger.acknowledged.append((await app.jobs.aenqueue("mail")).id)

        async def complete(lease):
            await app.jobs.acomplete(lease)
            ledger.completed.append((lease.job.id, lease.epoch))

        async def work():
            while leases := await app.jobs.areserve("mail", limit=3, timeout=2):
                await asyncio.gather(*map(complete, leases))

        async with app, asyncio.TaskGroup() as tasks:
            for each in (produce, produce, work, work, work, work):
                tasks.create_task(each())
            try:
                await asyncio.to_thread(crash_a_few_times, server, ledger)
            finally:
                ledger.stop = True

    asyncio.run(main(make_app()))

    ledger.check(books)


def test_processes_go_on_after_a_crash(server, start, make_app, books, tmp_path):
    """EC-4"""
    total = many(600)
    programs = [
        start(name, record=str(tmp_path / f"{nth}"), number=total // 3, batch=2, total=total)
        for nth, name in enumerate(["produce_and_work", "aproduce_and_work", "produce_and_work"])
    ]
    app = make_app()
    for share in range(1, 4):
        wait_until(lambda share=share: app.jobs.stats().completed > total * share / 5)
        server.restart("immediate")
    for program in programs:
        program.finish()

    assert len(books.done()) == total
    books.check_completions()


def test_a_reserver_that_waits_through_a_crash_gets_the_next_job(server, make_app):
    waiting, other = make_app(), make_app()
    other.jobs.enqueue("other")
    with ThreadPoolExecutor(1) as threads:
        reserving = threads.submit(waiting.jobs.reserve, "mail", timeout=20)
        wait_until(lambda: waiting.jobs.stats_waiting() == {"mail": 1})

        server.restart("immediate")
        job = other.jobs.enqueue("mail")

        [lease] = reserving.result(5)
    assert lease.job.id == job.id


def test_an_async_reserver_that_waits_through_a_crash_gets_the_next_job(server, make_app):
    async def main():
        async with make_app() as waiting, make_app() as other:
            await other.jobs.aenqueue("other")
            reserving = asyncio.create_task(waiting.jobs.areserve("mail", timeout=20))
            await until(lambda: waiting.jobs.stats_waiting() == {"mail": 1})

            await asyncio.to_thread(server.restart, "immediate")
            job = await other.jobs.aenqueue("mail")

            async with asyncio.timeout(5):
                [lease] = await reserving
        assert lease.job.id == job.id

    asyncio.run(main())


def test_a_reserver_is_woken_by_another_process_again_after_a_crash(server, make_app):
    """The doorbell is hung up again: the safety net alone would come too late here."""
    waiting, other = make_app(poll_interval=60), make_app()
    other.jobs.enqueue("other")
    with ThreadPoolExecutor(1) as threads:
        reserving = threads.submit(waiting.jobs.reserve, "mail", timeout=20)
        wait_until(lambda: waiting.jobs.stats_waiting() == {"mail": 1})

        server.restart("immediate")
        wait_until(lambda: listeners(server, other) == 1)
        other.jobs.enqueue("mail")

        assert len(reserving.result(5)) == 1


def listeners(server, app):
    books = Books(server.url(), app.settings.schema)
    [[count]] = books.rows("select count(*) from pg_stat_activity where query like 'listen %'")
    return count


@pytest.mark.parametrize("colour", ["blocking", "async"], indirect=True)
def test_callers_are_told_in_time_that_the_database_stays_away(server, make_app, colour):
    """All of them after `connect_timeout`, however many shared a batch; then it goes on."""
    app = colour(make_app(connect_timeout=4, lanes=1))
    app.jobs.enqueue("mail")
    server.stop("immediate")
    try:
        with ThreadPoolExecutor(20) as threads:
            started = time.monotonic()
            calls = [threads.submit(app.jobs.enqueue, "mail") for _ in range(20)]
            errors = [call.exception(20) for call in calls]
            took = time.monotonic() - started
    finally:
        server.start()

    assert {type(error) for error in errors} == {DatabaseUnavailable}
    assert took < 15  # one after the other they would have taken eighty
    assert app.jobs.enqueue("mail")
