"""Interrupts in the middle: nothing acknowledged afterwards is lost."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.faults.gates import StoppingClock
from tests.faults.processes import wait_until
from towpath import App
from towpath.errors import DatabaseUnavailable

on_sqlite = pytest.mark.parametrize("kind", ["sqlite"])


class Interrupted(BaseException):
    """As a signal handler may raise it anywhere."""


def test_a_lane_that_was_interrupted_in_a_transaction_starts_afresh(postgres, postgres_schema):
    """What is acknowledged after the interrupt is committed."""
    with App(postgres.url(), schema=postgres_schema, lanes=1) as app:
        job = app.jobs.enqueue("mail", 0)
        [lane, _] = app._database._all
        exchange = lane._wire.exchange

        def interrupted(asked):
            asked = list(asked)
            if asked[0].text == "begin":
                exchange(asked)
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

    def interrupted(connection):
        lock(connection)
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
