"""Interrupts in the middle: nothing acknowledged afterwards is lost."""

import asyncio
import contextlib
import inspect
import itertools
import os
import signal
import sqlite3
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import psycopg
import pytest

from tests.faults.gates import StoppingClock
from tests.faults.processes import wait_until
from towpath import App
from towpath.database import thread_lanes
from towpath.errors import DatabaseUnavailable

on_sqlite = pytest.mark.parametrize("kind", ["sqlite"])


class Interrupted(BaseException):
    """As a signal handler may raise it anywhere."""


def test_a_lane_that_was_interrupted_in_a_transaction_starts_afresh(postgres, postgres_schema):
    """What is acknowledged after the interrupt is committed."""
    with App(postgres.url(), schema=postgres_schema, lanes=1) as app:
        job = app.jobs.enqueue("mail", 0)
        [lane, *_] = app._database._all
        exchange = lane._wire.exchange

        def interrupted(asked, *more):
            asked = list(asked)
            if asked[0].text == "begin":
                exchange(asked, *more)
            raise Interrupted  # and again as it is about to roll back

        lane._wire.exchange = interrupted
        with pytest.raises(Interrupted):
            app.jobs.cancel(job)
        app.jobs.enqueue("mail", 1)

        with psycopg.connect(postgres.url()) as other:
            stored = other.execute(f'table "{postgres_schema}".job').fetchall()
        assert len(stored) == 2


def test_closing_twice_touches_nobody_elses_files(durable_place, tmp_path):
    url, needed = durable_place
    app = App(url, **needed)
    app.jobs.enqueue("mail", 1)
    app.jobs.reserve("post", timeout=0.01)
    app.close()
    files = [os.open(tmp_path / str(n), os.O_RDWR | os.O_CREAT) for n in range(20)]

    app.close()

    assert {os.fstat(fd).st_size for fd in files} == {0}
    for fd in files:
        os.close(fd)


def test_an_open_transaction_that_ends_a_lease_does_not_stall_the_topic(postgres, postgres_schema):
    """complete(connection=tx), not yet committed when the ttr is over."""
    with (
        App(postgres.url(), schema=postgres_schema) as app,
        psycopg.connect(postgres.url()) as transaction,
    ):
        app.jobs.enqueue("mail", "held", ttr=0.05)
        [lease] = app.jobs.reserve("mail")
        app.jobs.enqueue_many("mail", range(3))
        app.jobs.complete(lease, connection=transaction)
        transaction.execute("select pg_sleep(0.1)")

        assert len(app.jobs.reserve("mail", limit=5)) == 3
        assert app.jobs.reserve(["mail", "post"]) == []
        app.upkeep.run()
        transaction.commit()
        assert app.jobs.get(lease.job).status == "completed"


def in_line(app):
    """Count the calls that wait for a lane."""
    return len(app._database._lanes._inbox)


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


@on_sqlite
def test_an_interrupt_right_after_begin_leaves_the_file_to_others_and_to_us(
    make_app, books, start, tmp_path, monkeypatch
):
    app = make_app()
    app.jobs.enqueue("mail")
    lock = app._database._writer._lock

    def interrupted(*how):
        lock(*how)
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(app._database._writer, "_lock", interrupted)
        with pytest.raises(Interrupted):
            app.jobs.enqueue("mail")

    start("produce", record=str(tmp_path / "record"), number=1).finish(20)
    assert app.jobs.enqueue("mail")
    books.check()


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


LINES, _ = inspect.getsourcelines(thread_lanes)


def interrupted_at(nth, call):
    """Make a call that is interrupted at its nth line of `thread_lanes`; say whether it was.

    No signal comes between a lock and its block, but a tracer would: these lines are left out.
    """
    lines = itertools.count()

    def trace(frame, event, _):
        if frame.f_code.co_filename != thread_lanes.__file__:
            return None
        is_lock = LINES[frame.f_lineno - 1].lstrip().startswith("with ")
        if event == "line" and not is_lock and next(lines) == nth:
            raise Interrupted
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Interrupted:
        return True
    finally:
        sys.settrace(before)
    return False


def in_thread(call, *args):
    """Run a call in a thread that no test waits for at its end."""
    future = Future()

    def run():
        try:
            future.set_result(call(*args))
        except BaseException as error:  # noqa: BLE001 - the test raises it
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


@on_sqlite
def test_an_interrupt_at_any_line_loses_no_lane_for_the_same_thread(make_app, monkeypatch):
    monkeypatch.setattr(thread_lanes, "LOST_AFTER", 60)  # so it is the next call that finds it
    app = make_app()
    app.jobs.enqueue("mail")

    def be_interrupted_again_and_again():
        nth = 0
        while interrupted_at(nth, lambda: app.jobs.enqueue("mail")):
            assert app.jobs.enqueue("mail")
            nth += 1
        return nth

    assert in_thread(be_interrupted_again_and_again).result(20) > 10


@on_sqlite
@pytest.mark.parametrize("next_caller", ["thread", "loop"])
def test_an_interrupt_at_any_line_loses_no_lane_for_others(make_app, monkeypatch, next_caller):
    """The interrupted thread waits in line, leads, and hands on."""
    monkeypatch.setattr(thread_lanes, "LOST_AFTER", 0.02)
    gate = StoppingClock()
    app = make_app(clock=gate)
    app.jobs.enqueue("mail")
    was_interrupted = True
    for nth in itertools.count():
        gate.stop_at(1)
        first = in_thread(app.jobs.enqueue, "mail")
        assert gate.stopped.wait(10)
        victim = in_thread(interrupted_at, nth, lambda: app.jobs.enqueue("mail"))
        wait_until(lambda victim=victim: in_line(app) == 1 or victim.done())
        gate.go_on()
        first.result(10)
        was_interrupted = victim.result(10)
        if next_caller == "thread":
            in_thread(app.jobs.enqueue, "mail").result(10)
        else:
            in_thread(asyncio.run, app.jobs.aenqueue("mail")).result(10)
        if not was_interrupted:
            break
    assert nth > 20
