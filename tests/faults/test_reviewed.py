"""What a hostile reader broke, with as much force as it took: each stays mended."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.faults.gates import StoppingClock
from tests.faults.processes import until, wait_until
from tests.faults.proxy import COMMIT, Proxy
from tests.faults.sizes import many
from towpath import App, Job
from towpath.database import sqlite_lanes
from towpath.errors import DatabaseBusy, DatabaseDenied, DatabaseUnavailable

on_sqlite = pytest.mark.parametrize("kind", ["sqlite"])
on_postgres = pytest.mark.parametrize("kind", ["postgres"])


class Interrupted(BaseException):
    """As a signal handler may raise it anywhere."""


def in_line(app):
    """Count the calls that wait for a lane."""
    return len(app._database._lanes._inbox)


# ---------------------------------------------------------------- tasks that are told to stop


@on_postgres
@pytest.mark.parametrize("workers", [1, 12])
def test_a_task_that_is_cancelled_with_all_others_can_still_clean_up(make_app, workers):
    """As asyncio.run does at its end: one in the very tick in which it asks, or many in line."""

    async def work(app, begun):
        [lease] = await app.jobs.areserve("mail")
        try:
            begun.release()
            while True:
                await app.jobs.atouch(lease)
        finally:
            await app.jobs.arelease(lease)

    async def main():
        app, begun = make_app(lanes=1), asyncio.Semaphore(0)
        await app.jobs.aenqueue_many("mail", range(workers))
        tasks = [asyncio.create_task(work(app, begun)) for _ in range(workers)]
        for _ in tasks:
            await begun.acquire()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        async with asyncio.timeout(20):
            await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        assert (await app.jobs.astats_topic("mail")).ready == workers

    asyncio.run(main())


@on_sqlite
def test_a_reservation_for_a_loop_that_has_closed_is_given_back(make_app, monkeypatch):
    monkeypatch.setattr(sqlite_lanes, "SLOW_COMMIT", 0)  # a thread commits for the loop
    clock = StoppingClock()
    app = make_app(clock=clock)
    app.jobs.enqueue("mail")

    async def main():
        clock.stop_at(1)
        task = asyncio.create_task(app.jobs.areserve("mail"))
        await until(clock.stopped.is_set)
        task.cancel()

    asyncio.run(main())
    clock.go_on()
    app.jobs.enqueue("post")  # behind it

    wait_until(lambda: app.jobs.stats_topic("mail").ready == 1)


# ---------------------------------------------------------------- errors of one among others


@pytest.fixture
def refusing(place):
    """Have a table refuse whatever is written to it, as by missing rights."""
    url, needed = place
    schema = needed["schema"]

    @contextlib.contextmanager
    def refusing(table):
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(
                f"""create function "{schema}".refuse() returns trigger language plpgsql as
                $$ begin raise exception 'refused' using errcode = 'insufficient_privilege'; end $$;
                create trigger refuse before insert or update on "{schema}"."{table}"
                execute function "{schema}".refuse()"""
            )
            yield
            other.execute(f'drop function "{schema}".refuse cascade')

    return refusing


@on_postgres
def test_after_a_failed_batch_no_statement_is_refused_for_ever(make_app, refusing):
    """Also not one that the driver was about to prepare in that very batch."""

    async def main(before):
        async with make_app(lanes=1) as app:
            session = await app.sessions.astart()
            with refusing("session"), pytest.raises(DatabaseDenied):
                await app.sessions.abeat(session)
            for _ in range(before):
                await app.jobs.aenqueue("mail")
            with refusing("session"):
                calls = app.sessions.abeat(session), app.jobs.aenqueue("mail")
                denied, job = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(denied, DatabaseDenied)
            assert isinstance(job, Job)
            assert await app.jobs.aenqueue("mail")
            await asyncio.gather(app.sessions.abeat(session), app.jobs.aenqueue("mail"))

    for before in (4, 5, 6):  # the driver prepares what it has seen five times
        asyncio.run(main(before))


@on_postgres
def test_an_error_reaches_only_the_call_that_made_it(make_app, refusing):
    async def main():
        app = make_app(lanes=1, connect_timeout=1, max_jobs_per_topic=10)
        await app.jobs.aenqueue("mail")
        with refusing("session"):
            calls = app.jobs.aenqueue("mail"), app.topics.apause("post"), app.sessions.astart()
            return await asyncio.gather(*calls, return_exceptions=True)

    job, paused, denied = asyncio.run(main())

    assert isinstance(job, Job)
    assert not isinstance(paused, Exception)
    assert isinstance(denied, DatabaseDenied)


@on_postgres
@pytest.mark.parametrize("lacking", ["pipes", "threads"])
def test_a_bell_that_cannot_be_made_fails_no_call_and_loses_no_later_waiter(
    make_app, colour, monkeypatch, lacking
):
    app, other = make_app(poll_interval=60), make_app()
    app.migrate()
    start = threading.Thread.start

    def no_pipe():
        raise OSError("too many open files")

    def no_bell(thread):
        if thread.name == "towpath-bell":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        if lacking == "pipes":
            patch.setattr(os, "pipe", no_pipe)
        else:
            patch.setattr(threading.Thread, "start", no_bell)
        assert colour(app).jobs.enqueue("mail")

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(colour(app).jobs.reserve, "post", timeout=20)
        wait_until(lambda: app.jobs.stats_waiting() == {"post": 1})
        other.jobs.enqueue("post")
        assert len(waiting.result(30)) == 1


@on_sqlite
def test_an_interrupt_of_the_one_who_leads_is_not_given_to_the_others(make_app):
    """They are told that they have to look whether it was done."""
    gate, victims = StoppingClock(), set()

    def clock():
        if threading.get_ident() in victims:
            raise Interrupted
        return gate()

    app = make_app(clock=clock)
    app.jobs.enqueue("mail")

    def be_interrupted():
        victims.add(threading.get_ident())
        app.jobs.enqueue("mail")

    def in_loop():
        asyncio.run(app.jobs.aenqueue("mail"))

    def in_thread():
        app.jobs.enqueue("mail")

    with ThreadPoolExecutor(4) as threads:
        calls = []
        gate.stop_at(1)
        first = threads.submit(app.jobs.enqueue, "mail")
        assert gate.stopped.wait(10)
        for call in (be_interrupted, in_loop, in_thread):
            calls.append(threads.submit(call))
            wait_until(lambda: in_line(app) == len(calls))
        gate.go_on()
        errors = [type(call.exception(20)) for call in calls]
        assert first.result(10)

    assert errors == [Interrupted, DatabaseUnavailable, DatabaseUnavailable]
    assert app.jobs.enqueue("mail")


# ---------------------------------------------------------------- loops that stand still


@on_sqlite
@pytest.mark.parametrize("then", ["comes back", "stops"])
def test_a_loop_that_is_first_in_line_and_blocked_holds_up_no_thread(make_app, then):
    clock = StoppingClock()
    app = make_app(clock=clock)
    app.jobs.enqueue("mail")
    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(2) as threads:
        clock.stop_at(1)
        leading = threads.submit(app.jobs.enqueue, "mail")
        assert clock.stopped.wait(10)
        call = loop.create_task(app.jobs.aenqueue("mail", "in line"))

        async def block():
            await until(lambda: in_line(app) == 1)
            behind = threads.submit(app.jobs.enqueue, "mail")
            wait_until(lambda: in_line(app) == 2)
            loop.stop()  # this tick is the last one
            clock.go_on()
            leading.result(10)
            if then == "comes back":
                assert behind.result(10)
            return behind

        blocking = loop.create_task(block())
        loop.run_forever()
        try:
            assert blocking.result().result(10)
        finally:
            answer = loop.run_until_complete(call)
            loop.close()

    assert answer.payload == "in line"
    assert app.jobs.stats().ready == 4


def test_a_blocking_verb_that_waits_for_its_own_loop_is_told_that_it_is_busy(
    postgres, postgres_schema
):
    """The loop's transaction holds a new topic, and cannot be committed while the loop waits."""

    async def main(proxy):
        async with App(proxy.url(), schema=postgres_schema, busy_timeout=0.3) as app:
            await app.amigrate()
            app.jobs.enqueue("post")
            proxy.hold(COMMIT)
            own = asyncio.gather(app.jobs.aenqueue("mail"), app.jobs.areserve("post"))
            await until(proxy.happened.is_set)
            mercy = threading.Timer(10, proxy.let_go)
            mercy.start()
            with pytest.raises(DatabaseBusy):
                app.jobs.enqueue("mail")
            mercy.cancel()
            proxy.let_go()
            job, [lease] = await own
            assert (job.topic, lease.job.topic) == ("mail", "post")

    with Proxy(postgres.port) as proxy:
        asyncio.run(main(proxy))


@on_postgres
def test_threads_that_each_run_a_loop_share_an_app(make_app):
    """As web servers do that call asyncio.run for each request."""
    app = make_app(lanes=1)
    app.migrate()

    def live():
        for _ in range(many(15)):
            asyncio.run(app.jobs.aenqueue("mail"))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as threads:
            for life in [threads.submit(live) for _ in range(8)]:
                life.result()
    finally:
        sys.setswitchinterval(before)

    assert app.jobs.stats().ready == 8 * many(15)


# ---------------------------------------------------------------- interrupts


@on_sqlite
def test_an_interrupt_right_after_begin_leaves_the_file_to_others_and_to_us(
    make_app, books, start, tmp_path, monkeypatch
):
    app = make_app()
    app.jobs.enqueue("mail")
    lock = app._database._writer._lock

    def interrupted():
        lock()
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(app._database._writer, "_lock", interrupted)
        with pytest.raises(Interrupted):
            app.jobs.enqueue("mail")

    start("produce", record=str(tmp_path / "record"), number=1).finish(20)
    assert app.jobs.enqueue("mail")
    books.check()


@on_sqlite
def test_a_reader_that_was_interrupted_does_not_hold_up_a_fork(start):
    program = start("fork_after_interrupt")

    assert program.finish(20).split() == ["interrupted", "child", "parent"]


@on_sqlite
def test_a_reservation_for_a_thread_that_was_interrupted_is_given_back(make_app, place):
    """Another thread leads it just then."""
    clock = StoppingClock()
    app = make_app(clock=clock)
    job = app.jobs.enqueue("mail")

    def interrupt(number, frame):
        raise Interrupted

    other = sqlite3.connect(place[0].removeprefix("sqlite:///"), check_same_thread=False)
    before = signal.signal(signal.SIGUSR1, interrupt)
    with contextlib.closing(other), ThreadPoolExecutor(3) as threads:
        other.execute("begin immediate")
        first = threads.submit(app.jobs.enqueue, "post")
        wait_until(lambda: not app._database._lanes._idle)
        second = threads.submit(app.jobs.enqueue, "post")
        wait_until(lambda: in_line(app) == 1)

        def interrupt_once_it_is_led():
            wait_until(lambda: in_line(app) == 2)
            clock.stop_at(2)
            other.rollback()
            assert clock.stopped.wait(10)
            os.kill(os.getpid(), signal.SIGUSR1)

        interrupting = threads.submit(interrupt_once_it_is_led)
        try:
            with pytest.raises(Interrupted):
                app.jobs.reserve("mail")
        finally:
            signal.signal(signal.SIGUSR1, before)
            clock.go_on()
        for each in (interrupting, first, second):
            each.result(10)

    wait_until(lambda: app.jobs.get(job).state == "ready")


# ---------------------------------------------------------------- a database that is away


@on_sqlite
def test_many_callers_of_a_locked_file_wait_together(make_app, place):
    """Once, not each in its turn, which would be ten seconds."""
    app = make_app(busy_timeout=0.5)
    app.jobs.enqueue("mail")

    async def main():
        async with asyncio.timeout(5):
            calls = [app.jobs.aenqueue("mail") for _ in range(20)]
            return await asyncio.gather(*calls, return_exceptions=True)

    with contextlib.closing(sqlite3.connect(place[0].removeprefix("sqlite:///"))) as other:
        other.execute("begin immediate")
        answers = asyncio.run(main())

    assert {type(answer) for answer in answers} == {DatabaseBusy}


def test_upkeep_does_not_try_each_of_its_duties_while_the_database_is_away(caplog):
    """So an app can be closed soon."""
    with App("postgresql://nobody@127.0.0.1:1/nowhere", connect_timeout=0.2) as app:
        app.upkeep.start()
        wait_until(lambda: caplog.records)

    assert len({record.args[0] for record in caplog.records}) == 1
