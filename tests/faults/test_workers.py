"""Workers that are killed, stopped and frozen: nothing is lost, and no other worker is punished."""

import asyncio
import contextlib
import gc
import logging
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import psutil
import psycopg
import pytest

from tests.faults.books import Books
from tests.faults.processes import wait_until
from tests.faults.proxy import Proxy
from tests.servers import PostgresServer
from towpath import App, State
from towpath.store import schema
from towpath.worker import Worker
from towpath.worker.threads import Threads

on_postgres = pytest.mark.parametrize("kind", ["postgres"])

# Words that only this statement has.
RESERVE = "leased as ("
BEAT = "set beat_at ="
COMPLETE = "'completed' as goal, c.name"

TAKE_TURNS = schema.sql.take_turns.text("postgres")


@pytest.fixture
def app(durable_place):
    url, needed = durable_place
    with App(url, beat_every=0.2, dead_after=1.0, **needed) as app:
        app.upkeep.start()
        yield app


@pytest.fixture
def start(durable_place):
    """Start workers, and kill those that are left."""
    url, needed = durable_place
    with contextlib.ExitStack() as stack:
        yield lambda **options: started(stack, url, needed.get("schema", "towpath"), **options)


def started(stack, url, schema, dead_after=1.0):
    words = [sys.executable, "-m", "tests.faults.worker_program", url, schema, str(dead_after)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    stack.callback(process.wait)
    stack.callback(process.kill)
    stack.callback(process.stdout.close)
    assert process.stdout.readline() == b"working\n"
    return process


@pytest.fixture
def server():
    """A server that a test may stop."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def proxy(postgres):
    with Proxy(postgres.port) as proxy:
        yield proxy


@contextlib.contextmanager
def working(worker):
    """Run a worker in a thread for a while."""
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(asyncio.run, worker.arun())
        try:
            yield
        finally:
            wait_until(lambda: worker._loop)
            worker.stop()
            running.result(40)


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def state(app, job):
    return app.jobs.get(job.id).state


def test_the_job_of_a_killed_worker_is_taken_over(app, start):
    """US5-4, US5-1, US5-2, US5-3: it stays `processing` until its worker is called dead."""
    job = app.jobs.enqueue("sleep", {"seconds": 3})
    first = start()
    wait_until(lambda: state(app, job) == "reserved")
    first.kill()
    assert app.jobs.get(job.id).status == "processing"
    start()

    wait_until(lambda: state(app, job) == "completed")
    found = app.jobs.get(job.id)
    assert (found.returned, found.epoch) == ("slept", 2)
    assert found.crashes <= 1


def test_a_job_that_kills_its_workers_is_buried_and_its_neighbours_are_done(app, start):
    poison = app.jobs.enqueue("kill_me", {}, priority=0, max_crashes=2)
    others = [app.jobs.enqueue("note", {"number": n}) for n in range(20)]
    for _ in range(5):
        worker = start()
        wait_until(lambda w=worker: w.poll() is not None or state(app, poison) == "buried")
        if worker.poll() is None:
            break
        wait_until(lambda: app.jobs.stats().reserved == 0, 30)  # its session was called dead

    wait_until(lambda: all(state(app, job) == "completed" for job in others))
    assert state(app, poison) == "buried"
    assert app.jobs.get(poison.id).crashes == 2


def test_a_task_whose_worker_is_killed_around_its_commit_takes_effect_once(app, start):
    """The first worker is killed before the commit of `ctx.transaction`, the second after it."""
    job = app.jobs.enqueue("order", {})
    assert start().wait(30) == -signal.SIGKILL
    assert start().wait(30) == -signal.SIGKILL
    assert state(app, job) == "completed"
    start()
    orders = app.jobs.enqueue("drop_orders", {})

    wait_until(lambda: state(app, orders) == "completed")
    assert app.jobs.get(orders.id).returned == [2]
    assert app.jobs.get(job.id).epoch == 2


def test_a_task_that_keeps_the_loop_busy_does_not_look_dead(app, start):
    job = app.jobs.enqueue("spin", {"seconds": 4})
    start()

    wait_until(lambda: state(app, job) == "completed")
    assert app.jobs.get(job.id).epoch == 1


def test_sigterm_lets_a_running_job_end_and_the_process_with_it(app, start):
    """DQ-14"""
    job = app.jobs.enqueue("sleep", {"seconds": 1})
    worker = start()
    wait_until(lambda: state(app, job) == "reserved")
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(20) == 0
    assert app.jobs.get(job.id).returned == "slept"


def test_a_second_signal_ends_a_worker_at_once_and_gives_its_job_back(app, start):
    job = app.jobs.enqueue("sleep", {"seconds": 60})
    worker = start()
    wait_until(lambda: state(app, job) == "reserved")
    worker.send_signal(signal.SIGTERM)
    worker.send_signal(signal.SIGINT)

    assert worker.wait(20) == 0
    found = app.jobs.get(job.id)
    assert (found.state, found.retries, found.crashes) == ("ready", 0, 0)


@pytest.mark.parametrize("durable_place", ["postgres"], indirect=True)
def test_a_worker_that_was_frozen_and_called_dead_begins_anew(app, start):
    """Its old words are refused; it goes on with a new session.

    Frozen inside a transaction on SQLite it would hold up everybody: there is one writer.
    """
    job = app.jobs.enqueue("sleep", {"seconds": 60})
    worker = start()
    wait_until(lambda: state(app, job) == "reserved")
    worker.send_signal(signal.SIGSTOP)
    wait_until(lambda: state(app, job) == "ready")
    app.jobs.delete(job.id)
    worker.send_signal(signal.SIGCONT)

    later = app.jobs.enqueue("note", {"number": 7})
    wait_until(lambda: state(app, later) == "completed")
    assert worker.poll() is None


@pytest.mark.parametrize("durable_place", ["postgres"], indirect=True)
def test_a_worker_that_was_pre_empted_is_told_and_its_result_is_refused(app, start):
    """MS-4, US2-5: the session's beat is its ping, `dead_after` its timeout."""
    job = app.jobs.enqueue("sleep", {"seconds": 3})
    frozen = start()
    wait_until(lambda: state(app, job) == "reserved")
    frozen.send_signal(signal.SIGSTOP)
    start()
    wait_until(lambda: state(app, job) == "completed")
    finished_at = app.jobs.get(job.id).finished_at
    frozen.send_signal(signal.SIGCONT)

    wait_until(lambda: len(sessions(app)) == 2, 30)  # it begins again, so it was told
    found = app.jobs.get(job.id)
    assert (found.epoch, found.finished_at) == (2, finished_at)
    assert app.jobs.stats().completed == 1


def sessions(app):
    url, schema = app.url, app.settings.schema
    return Books(url, schema).rows("select worker, beats from towpath.session")


def test_the_name_of_a_worker_is_in_its_session(app, start):
    """MS-9"""
    app.migrate()  # its tables are read before a worker may have made them
    workers = [start(), start()]
    wait_until(lambda: len(sessions(app)) == 2)

    names = [name for name, _ in sessions(app)]
    assert len(set(names)) == 2
    assert {name.split("-")[-2] for name in names} == {str(each.pid) for each in workers}


# ---------------------------------------------------------------- sandboxes


def test_a_sandbox_of_a_killed_worker_dies_with_it(app, start, tmp_path):
    """Even one whose task keeps the interpreter to itself."""
    note = tmp_path / "note"
    app.jobs.enqueue("seize", {"file": str(note)})
    worker = start()
    wait_until(note.exists)
    sandbox = int(note.read_text())
    assert not is_gone(sandbox)

    worker.kill()
    wait_until(lambda: is_gone(sandbox))


def test_a_sandbox_finds_a_task_of_the_main_program_and_idles_until_its_worker_dies(app, start):
    job = app.jobs.enqueue("identify", {})
    worker = start()
    wait_until(lambda: state(app, job) == "completed")
    sandbox = app.jobs.get(job.id).returned
    assert not is_gone(sandbox)
    assert sandbox != worker.pid

    worker.kill()
    wait_until(lambda: is_gone(sandbox))


def test_sigterm_ends_a_worker_though_a_thread_of_it_does_not_end(app, start, tmp_path):
    """DQ-14"""
    note = tmp_path / "note"
    job = app.jobs.enqueue("hold", {"file": str(note)})
    worker = start()
    wait_until(note.exists)
    worker.send_signal(signal.SIGTERM)
    worker.send_signal(signal.SIGINT)

    assert worker.wait(40) == 0
    assert state(app, job) == "ready"


# ---------------------------------------------------------------- a database that is away


def test_an_outage_longer_than_dead_after_rescues_nobody_and_loses_nothing(server):
    """US5-2: three times as long. What ended meanwhile is written afterwards, and once."""
    dead_after = 2.0
    with (
        contextlib.ExitStack() as stack,
        App(server.url(), schema="outage", beat_every=0.2, dead_after=dead_after) as app,
    ):
        app.upkeep.start()
        app.jobs.enqueue("note", {"number": 0})
        for _ in range(2):
            started(stack, server.url(), "outage", dead_after)
        # Some end while the database is away, some when it is back.
        through = [app.jobs.enqueue("sleep", {"seconds": s}) for s in (3, 4, 5, 14, 15, 16)]
        wait_until(lambda: app.jobs.stats().reserved == len(through))
        later = [app.jobs.enqueue("note", {"number": n}) for n in range(100)]
        wait_until(lambda: len({name for name, beats in sessions(app) if beats > 2}) == 2)
        before = {name for name, _ in sessions(app)}
        server.stop()
        threading.Event().wait(3 * dead_after)
        server.start()

        wait_until(lambda: app.jobs.stats().completed == 1 + len(through) + len(later))
        found = [app.jobs.get(job.id) for job in through]
        assert [(job.epoch, job.crashes, job.returned) for job in found] == [(1, 0, "slept")] * 6
        assert {name for name, _ in sessions(app)} == before
        Books(server.url(), "outage").check_completions()


def test_a_worker_that_is_cancelled_while_the_database_is_away_ends(server, caplog):
    """Its last words have a few seconds; then the job runs again elsewhere."""
    with App(server.url(), schema="away", beat_every=0.2, dead_after=1.0) as app:
        started, gate = threading.Event(), threading.Event()

        @app.task()
        async def wait() -> None:
            started.set()
            await asyncio.to_thread(gate.wait, 40)

        job = wait.enqueue()

        async def work_and_be_cancelled():
            working = asyncio.create_task(Worker(app, grace=0.5).arun())
            await asyncio.to_thread(started.wait, 30)
            await asyncio.to_thread(server.stop)
            gate.set()
            working.cancel()
            await asyncio.wait([working], timeout=30)
            return working.done()

        assert asyncio.run(work_and_be_cancelled())
        assert "1 outcomes were not written; these jobs will run again" in caplog.text
        server.start()
        app.upkeep.start()
        wait_until(lambda: state(app, job) == "ready")


def test_a_lost_database_and_its_return_are_a_line_each(server, caplog):
    """At once, long before a call gives up."""
    caplog.set_level(logging.INFO, "towpath")
    with App(server.url(), schema="lost", connect_timeout=60) as app:

        @app.task()
        async def known() -> None: ...

        with working(Worker(app)):
            wait_until(app.sessions.list)
            server.stop()
            wait_until(lambda: "the database is lost" in caplog.text, 30)
            server.start()
            wait_until(lambda: "the database is back after" in caplog.text)

    assert caplog.text.count("the database is lost") == 1


def test_a_worker_can_be_stopped_before_it_has_found_its_database(server, caplog):
    """It does not wait until the database is given up."""
    server.stop()
    with App(server.url(), schema="away", dead_after=0.5, connect_timeout=10) as app:

        @app.task()
        async def known() -> None: ...

        worker = Worker(app)
        with working(worker):
            wait_until(lambda: worker.sick)
            assert worker.sick.startswith("no reply to the start of a session for ")
        assert "the database is unavailable" not in caplog.text


@pytest.mark.usefixtures("untouched")
def test_a_worker_lets_its_tables_be_made_however_long_that_takes(postgres, postgres_schema):
    """Its connections are not cut, though it waits for longer than it takes to count as stalled."""
    with (
        psycopg.connect(postgres.url()) as other,
        psycopg.connect(postgres.url(), autocommit=True) as watching,
        App(postgres.url(), schema=postgres_schema, dead_after=0.4) as app,
    ):

        @app.task()
        async def note(number: int) -> int:
            return number

        other.execute(TAKE_TURNS)
        worker = Worker(app)
        with working(worker):
            wait_until(lambda: worker.sick)
            in_line = _in_line(watching)
            assert in_line
            # In which it would reconnect four times. A pause of this process begins a new count.
            wait_until(lambda: "for 2 s" in (worker.sick or ""))
            assert _in_line(watching) == in_line
            other.commit()
            assert note.enqueue(1).result(20) == 1
            wait_until(lambda: worker.sick is None)


def _in_line(connection):
    """Return the backends that wait for their turn to make tables."""
    rows = connection.execute(
        "select pid from pg_locks where locktype = 'advisory' and not granted"
    )
    return {pid for (pid,) in rows}


@pytest.mark.parametrize("statement", [RESERVE, BEAT])
def test_a_worker_without_an_answer_says_that_it_is_stalled_and_reconnects(
    proxy, postgres_schema, caplog, statement
):
    """A connection is dead without a word: nothing tells, but silence."""
    caplog.set_level(logging.INFO, "towpath")
    with App(proxy.url(), schema=postgres_schema, beat_every=0.1, dead_after=2, lanes=1) as app:

        @app.task()
        async def note(number: int) -> int:
            return number

        app.migrate()  # which may take longer than it takes to count as stalled
        worker = Worker(app)
        with working(worker):
            assert note.enqueue(1).result(20) == 1
            wait_until(lambda: worker.sick is None)
            caplog.clear()
            proxy.swallow(statement)
            assert proxy.happened.wait(20)
            wait_until(lambda: "worker stalled: no reply to " in caplog.text)
            assert note.enqueue(2).result(30) == 2
            wait_until(lambda: worker.sick is None)

    words = ("worker stalled: ", "worker recovered: ")
    said = [each.message for each in caplog.records if each.message.startswith(words)]
    assert said[1::2] == ["worker recovered: the database replies again"] * (len(said) // 2)
    assert len(said) > 1  # each stall and its end is logged once
    assert all(each.endswith(" s; reconnecting") for each in said[::2])


def test_a_connection_that_is_being_made_when_its_loop_ends_is_closed(proxy, postgres_schema):
    """A worker that has just begun may be stopped; pytest tells of what is left open."""
    with App(proxy.url(), schema=postgres_schema) as app:
        app.topics.list()

        async def begin() -> None:
            proxy.hold("select pg_backend_pid()")
            asking = asyncio.create_task(app.topics.alist())
            await asyncio.to_thread(proxy.happened.wait, 20)
            asking.cancel()
            threading.Timer(0.3, proxy.let_go).start()  # when the lane has been cancelled

        asyncio.run(begin())
        gc.collect()


@pytest.mark.parametrize("lose", ["lose_answer", "lose_request"])
def test_an_outcome_whose_answer_is_lost_is_written_once(proxy, postgres, postgres_schema, lose):
    with App(proxy.url(), schema=postgres_schema) as app:

        @app.task()
        async def note(number: int) -> int:
            return number

        jobs = note.enqueue_many([{"number": n} for n in range(10)])
        getattr(proxy, lose)(COMPLETE)
        with working(Worker(app)):
            assert [job.result(30) for job in jobs] == list(range(10))

    assert proxy.happened.is_set()
    Books(postgres.url(), postgres_schema).check_completions()


def test_a_call_for_which_there_was_no_thread_is_not_made_later(monkeypatch):
    """Its job has failed by then, and may run elsewhere."""
    calls = []

    def refused(_thread):
        raise RuntimeError

    async def main():
        threads = Threads()
        with monkeypatch.context() as patch:
            patch.setattr(Thread, "start", refused)
            with pytest.raises(RuntimeError):
                threads.start(lambda: calls.append("lost"))
        await threads.start(lambda: calls.append("found"))
        await threads.start(lambda: calls.append("found"))
        threads.close()

    asyncio.run(main())
    assert calls == ["found", "found"]


def pong() -> str:
    return "pong"


@on_postgres
def test_a_reservation_on_its_way_takes_nothing_when_its_worker_has_ended(postgres, place):
    """It reaches the server when the worker was told to stop, and the answer is not read."""
    with Proxy(postgres.port) as proxy, App(proxy.url(), **place[1]) as app:
        job = app.task(topic="ping")(pong).enqueue()
        proxy.hold("leased as")
        worker = Worker(app)
        working = Thread(target=asyncio.run, args=[worker.arun()])
        working.start()
        assert proxy.happened.wait(10)
        worker.stop()
        app.upkeep.stop()
        working.join(1)
        proxy.let_go()
        working.join()

        assert app.jobs.get(job).state is State.READY
