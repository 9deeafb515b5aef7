"""One app used by many threads and event loops at once: no lane is lost, nothing is half done."""

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
from towpath.database.clock import machine_clock
from towpath.errors import AppClosed, DatabaseBusy

on_sqlite = pytest.mark.parametrize("kind", ["sqlite"])
on_postgres = pytest.mark.parametrize("kind", ["postgres"])


@pytest.fixture
def kind(kind_and_disk):
    return kind_and_disk


def thread_life(app, number):
    """Enqueue, reserve and complete; return the ids that were acknowledged."""
    ids = []
    for each in range(number):
        ids.append(app.jobs.enqueue("mail", each).id)
        for lease in app.jobs.reserve("mail", limit=2):
            app.jobs.complete(lease)
    return ids


async def loop_life(app, number):
    """Do the same by tasks, several at a time."""
    ids = []

    async def one(each):
        ids.append((await app.jobs.aenqueue("mail", each)).id)
        for lease in await app.jobs.areserve("mail", limit=2):
            await app.jobs.acomplete(lease)

    for start in range(0, number, 10):
        await asyncio.gather(*map(one, range(start, start + 10)))
    return ids


def finish_the_rest(app):
    while leases := app.jobs.reserve("mail", limit=100):
        assert app.jobs.complete_many(leases) == []


def test_threads_lose_no_lane(make_app, books):
    app = make_app()
    with ThreadPoolExecutor(24) as threads:
        lives = [threads.submit(thread_life, app, many(25)) for _ in range(24)]
        ids = {id for life in lives for id in life.result()}

    assert books.ids() == ids
    assert all_lanes_rest(app)
    finish_the_rest(app)
    books.check_completions()


def test_threads_and_loops_share_an_app_and_leave_nothing_half_done(make_app, books):
    app = make_app(durability="normal")  # quick commits: the loops lead by themselves
    with ThreadPoolExecutor(8) as threads:
        lives = [threads.submit(thread_life, app, many(60)) for _ in range(4)]
        lives += [threads.submit(asyncio.run, loop_life(app, many(100))) for _ in range(3)]
        ids = {id for life in lives for id in life.result()}

    assert books.ids() == ids
    books.check()
    assert all_lanes_rest(app)
    finish_the_rest(app)
    books.check_completions()


def test_an_app_that_is_closed_under_its_callers_answers_each_of_them(make_app, books):
    """With the job that is stored, or with AppClosed; none waits for ever."""

    async def main():
        app = make_app()
        await app.jobs.aenqueue("mail")
        calls = [asyncio.create_task(app.jobs.aenqueue("mail", n)) for n in range(50)]
        calls += [asyncio.create_task(app.jobs.areserve("post", timeout=30)) for _ in range(5)]
        for _ in range(3):
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await app.aclose()
            return await asyncio.gather(*calls, return_exceptions=True)

    answers = asyncio.run(main())

    stored = [answer.id for answer in answers[:50] if isinstance(answer, Job)]
    refused = [answer for answer in answers if isinstance(answer, AppClosed)]
    assert len(stored) + len(refused) == len(answers)
    assert set(stored) <= books.ids()
    books.check()


@on_sqlite
def test_a_close_waits_for_a_loop_that_has_answered_and_not_yet_unlocked(make_app, monkeypatch):
    """SQLite would free the connection under the loop, and the process would die."""
    app, in_use = make_app(), []
    app.jobs.enqueue("mail")
    writer = app._database._writer
    close = writer.close

    def closing():
        in_use.append(writer._locked)
        close()

    monkeypatch.setattr(writer, "close", closing)
    assert writer.try_lock()  # as a loop that leads
    ending = threading.Thread(target=app.close)
    ending.start()
    ending.join(0.5)  # only a close that does not wait has come so far by then

    writer.unlock()
    ending.join(60)

    assert in_use == [False]


def test_an_app_can_be_closed_while_callers_go_on_and_on(make_app, books):
    """Each goes on until it is refused; the close does not wait for ever either."""
    app, ids = make_app(), []

    async def in_loop():
        with contextlib.suppress(AppClosed):
            while True:
                ids.append((await app.jobs.aenqueue("mail")).id)

    async def several_in_loop():
        async with asyncio.timeout(10):
            await asyncio.gather(*(in_loop() for _ in range(20)))

    def in_thread():
        with contextlib.suppress(AppClosed):
            while True:
                ids.append(app.jobs.enqueue("mail").id)

    with ThreadPoolExecutor(4) as threads:
        lives = [threads.submit(in_thread)]
        lives += [threads.submit(asyncio.run, several_in_loop()) for _ in range(2)]
        wait_until(lambda: len(ids) > 100)
        threads.submit(app.close).result(10)
        for life in lives:
            life.result(10)

    assert set(ids) <= books.ids()
    books.check()


def test_a_thread_that_is_interrupted_while_it_waits_does_not_hold_up_the_others(
    make_app, postgres_or_file_locked
):
    """As by Ctrl-C, or by a signal handler that raises when a time limit is over."""
    app = make_app(lanes=1)
    app.jobs.enqueue("mail")

    def interrupt(number, frame):
        raise KeyboardInterrupt

    def interrupt_when_it_waits():
        wait_until(lambda: app._database._lanes._inbox)
        os.kill(os.getpid(), signal.SIGUSR1)

    with ThreadPoolExecutor(2) as threads:
        with postgres_or_file_locked():
            leading = threads.submit(app.jobs.enqueue, "mail")
            wait_until(lambda: not app._database._lanes._idle)
            before = signal.signal(signal.SIGUSR1, interrupt)
            threads.submit(interrupt_when_it_waits)
            with pytest.raises(KeyboardInterrupt):
                app.jobs.enqueue("mail")
            signal.signal(signal.SIGUSR1, before)
        assert leading.result(10)
        assert threads.submit(app.jobs.enqueue, "mail").result(10)
    assert all_lanes_rest(app)


@pytest.mark.parametrize(
    "kind_and_disk", ["sqlite", "sqlite on a slow disk"], indirect=True
)  # on PostgreSQL each loop has lanes of its own
def test_a_loop_that_is_stopped_with_a_call_in_line_holds_up_nobody(make_app):
    """It may never go on; if it does, its own call has been answered."""
    clock = StoppingClock()
    app = make_app(clock=clock)
    app.jobs.enqueue("mail")
    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(2) as threads:
        clock.stop_at(1)
        leading = threads.submit(app.jobs.enqueue, "mail", "in the middle")
        assert clock.stopped.wait(10)
        call = loop.create_task(app.jobs.aenqueue("mail", "in line"))
        loop.call_soon(loop.stop)
        loop.run_forever()
        behind = threads.submit(app.jobs.enqueue, "mail", "behind it")
        clock.go_on()
        try:
            assert leading.result(10)
            assert behind.result(10)
            assert threads.submit(app.jobs.enqueue, "mail", "later").result(10)
        finally:
            answer = loop.run_until_complete(call)
            loop.close()

    assert answer.payload == "in line"
    assert app.jobs.stats().ready == 5
    assert all_lanes_rest(app)


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_loop_that_is_stopped_in_the_tick_of_a_call_keeps_no_lane(make_app, goes_on):
    app = make_app()
    app.jobs.enqueue("mail")
    loop = asyncio.new_event_loop()
    call = loop.create_task(app.jobs.aenqueue("mail", "in line"))
    loop.call_soon(loop.stop)
    loop.run_forever()
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(app.jobs.enqueue, "mail", "later").result(10)
        if not goes_on:
            call.cancel()
        loop.run_until_complete(asyncio.wait([call]))
        loop.close()
        assert threads.submit(app.jobs.enqueue, "mail", "after it").result(10)

    assert all_lanes_rest(app)


@pytest.mark.parametrize("kind_and_disk", ["postgres"], indirect=True)
def test_an_app_keeps_no_connections_of_event_loops_that_are_closed(make_app, place):
    """As when a script calls asyncio.run again and again."""
    with psycopg.connect(place[0], autocommit=True) as other:

        def connections():
            text = "select pid from pg_stat_activity where application_name = 'towpath'"
            return {pid for (pid,) in other.execute(text)}

        before = connections()
        app = make_app(lanes=1)
        for _ in range(20):
            asyncio.run(app.jobs.aenqueue("mail"))

        # One of the last loop, one of the threads, and the bell's; the server is told in a moment.
        wait_until(lambda: len(connections() - before) <= 3)
        assert app.jobs.stats().ready == 20


@pytest.fixture
def postgres_or_file_locked(kind, place):
    """Have another program hold a lock that every enqueue has to wait for."""
    url, needed = place

    @contextlib.contextmanager
    def locked():
        if kind == "sqlite":
            with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as other:
                other.execute("begin immediate")
                yield
        else:
            with psycopg.connect(url) as other:
                other.execute(f'lock table "{needed["schema"]}".job')
                yield

    return locked


@pytest.mark.parametrize("kind_and_disk", ["sqlite"], indirect=True)
def test_a_loop_does_not_stand_still_while_thousands_are_stored(make_app):
    """A few it stores by itself."""
    stored_by: list[int] = []

    def clock() -> int:
        stored_by.append(threading.get_ident())
        return machine_clock()

    app = make_app(clock=clock, batch_size=100)
    app.migrate()
    stored_by.clear()

    assert len(asyncio.run(app.jobs.aenqueue_many("mail", range(1_000)))) == 1_000
    assert threading.get_ident() not in stored_by


def all_lanes_rest(app):
    lanes = app._database._lanes
    return len(lanes._idle) == len(lanes.lanes)


def test_what_was_acknowledged_is_in_force_though_a_thread_has_led(make_app, threads):
    """The leader of a shared commit rings for each call before that call goes on."""
    app = make_app()
    done = threading.Event()

    def write():
        while not done.is_set():
            app.jobs.enqueue("mail")

    async def change():
        try:
            for number in range(300):
                rule = f"@request.auth.id = '{number}'"
                await app.access.aset(enqueue_rule=rule)
                assert (await app.access.current()).enqueue_rule == rule
        finally:
            done.set()

    writing = threads.submit(write)
    asyncio.run(change())
    writing.result(10)


def in_line(app):
    """Count the calls that wait for a lane."""
    return len(app._database._lanes._inbox)


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
