"""What goes over a connection to PostgreSQL: however large, interrupted, closed or lost."""

import asyncio
import os
import signal
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import uvloop

from tests.conftest import eventually
from tests.faults.processes import until
from tests.faults.proxy import Proxy
from towpath import App, Limit, State
from towpath.database.postgres_wire import Sent, Wire
from towpath.errors import (
    DatabaseBusy,
    DatabaseError,
    DatabaseReadOnly,
    IncompatibleData,
    TowpathError,
)
from towpath.operation import Operation
from towpath.store.jobs import sql
from towpath.store.leases import give_back

LARGE = "x" * 500_000  # characters of a payload


class Interrupted(BaseException):
    """As a signal handler may raise it anywhere."""


@pytest.fixture(params=["postgres"])
def kind(request):
    return request.param


@pytest.fixture
def pooler(postgres):
    with Proxy(postgres.port, pooler=True) as proxy:
        yield proxy


def test_questions_and_answers_that_no_buffer_holds_pass_each_other(live):
    """Megabytes both ways on one connection, while either side is still speaking."""
    live.jobs.enqueue_many("mail", [LARGE] * 20)

    leases = live.jobs.reserve("mail", limit=20)

    assert {lease.job.payload for lease in leases} == {LARGE}


def test_large_jobs_of_many_tasks_share_their_commits(make_app):
    async def main():
        async with make_app(lanes=1) as app:
            await app.jobs.aenqueue_many("mail", [LARGE] * 8)
            *stored, reserved = await asyncio.gather(
                *(app.jobs.aenqueue("post", LARGE) for _ in range(8)),
                app.jobs.areserve("mail", limit=8),
            )
            assert len(reserved) == 8
            assert len({job.id for job in stored}) == 8

    asyncio.run(main())


def test_a_line_that_ends_while_nobody_waits_is_noticed_at_once(make_app, postgres, loop):
    """So the next one to come does not have to find that out."""
    app = make_app(lanes=1)

    def do(awaited):
        return asyncio.run_coroutine_threadsafe(awaited, loop).result(20)

    do(app.jobs.aenqueue("mail"))
    [lanes] = app._database._loops.values()
    [wire] = [lane._wire for lane in lanes.lanes() if lane._wire]
    eventually(lambda: wire.rests)
    with psycopg.connect(postgres.url(), autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s)", [wire._pgconn.backend_pid])

    # The loop stops listening after it hears of the end; else it hears of it again and again.
    eventually(lambda: wire._listener is None)
    assert not wire.rests
    do(app.jobs.aenqueue("mail"))
    assert len(do(app.jobs.areserve("mail", limit=3))) == 2


def test_an_error_of_one_statement_leaves_the_connection_usable(make_app, colour):
    """Its transaction, which began in the same send, is rolled back."""
    app = colour(make_app(lanes=1))
    app.jobs.enqueue("mail")

    def fails():
        yield sql.enqueue([{"nth": "no number"}])

    with pytest.raises(DatabaseError, match="no number"):
        app.run(Operation("mine", fails))

    assert app.jobs.enqueue("mail").state is State.READY


@pytest.mark.parametrize("colour", ["blocking", "async"], indirect=True)
def test_behind_a_pooler_nothing_is_prepared(pooler, postgres_schema, colour):
    """The next statement may go to another server process, which knows none of the names."""
    with App(pooler.url(), schema=postgres_schema) as plain:
        app = colour(plain)
        jobs = app.jobs.enqueue_many("mail", range(30))
        for _ in range(10):
            app.jobs.enqueue("mail", None, delay=60)
        leases = app.jobs.reserve("mail", limit=40)
        for lease in leases:
            app.jobs.complete(lease, "well")

        assert [lease.job.id for lease in leases] == [job.id for job in jobs]
        assert {app.jobs.get(job).state for job in jobs} == {State.COMPLETED}
    assert pooler.prepared == set()


def test_elsewhere_each_statement_is_prepared_once(postgres, postgres_schema):
    with Proxy(postgres.port) as proxy, App(proxy.url(), schema=postgres_schema, lanes=1) as app:
        app.jobs.enqueue("mail", delay=1)
        known = len(proxy.prepared)
        for number in (1, 2**15, 2**31, 2**40):  # however large the numbers in it are
            app.jobs.enqueue("mail", number, delay=number / 10**6)

        assert 0 < len(proxy.prepared) == known


def test_what_fails_again_and_again_prepares_nothing_anew(postgres, postgres_schema):
    with App(postgres.url(), schema=postgres_schema, lanes=1) as app:
        app.jobs.enqueue("mail")
    read_only = "?options=-c%20default_transaction_read_only%3Don"
    with App(postgres.url() + read_only, schema=postgres_schema, lanes=1) as app:
        for _ in range(50):
            with pytest.raises(DatabaseReadOnly):
                app.jobs.enqueue("mail")
        [lane, *_] = app._database._all
        [[[count]]] = lane._wire.exchange([Sent("select count(*) from pg_prepared_statements")])

    assert count < 10


# ---------------------------------------------------------------- a batch


@pytest.fixture
def other(place):
    """Another client of our tables."""
    url, needed = place
    with psycopg.connect(url, options=f"-c search_path={needed['schema']}") as connection:
        yield connection


def test_a_later_statement_that_fails_is_its_own_alone(make_app, other):
    """It waits for a limit's row until its time limit; the call beside it is done all the same."""

    async def main():
        async with make_app(lanes=1, busy_timeout=0.3) as app:
            await app.jobs.aenqueue("print", limit=Limit("printer", concurrency=5))
            [lease] = await app.jobs.areserve("print")
            await app.jobs.aenqueue("mail")
            other.execute("select * from limits for update")
            return await asyncio.gather(
                app.jobs.acomplete(lease),
                app.jobs.areserve("mail"),
                app.jobs.aenqueue("post"),
                return_exceptions=True,
            )

    completed, [lease], stored = asyncio.run(main())

    assert isinstance(completed, DatabaseBusy)
    assert (lease.epoch, stored.topic) == (1, "post")


def test_an_operation_that_asks_nothing_shares_a_transaction(make_app):
    """What undoes a reservation of nothing is one."""

    async def main():
        async with make_app(lanes=1) as app:
            await app.jobs.aenqueue("mail")
            [lanes] = app._database._loops.values()
            before = [lane._wire for lane in lanes.lanes()]
            answers = await asyncio.gather(
                app.jobs.aenqueue("mail"), app.arun(give_back([], [])), app.jobs.aenqueue("mail")
            )
            assert [lane._wire for lane in lanes.lanes()] == before
            return answers

    _, none, stored = asyncio.run(main())

    assert (none, stored.topic) == ([], "mail")


def test_of_calls_that_became_one_a_bad_one_fails_alone(make_app, other):
    async def main():
        async with make_app(lanes=1) as app:
            await app.jobs.aenqueue("mail", 1, key="from the future")
            other.execute("update job set encoding = 'new'")
            other.commit()
            return await asyncio.gather(
                app.jobs.aenqueue("mail", 2, key="from the future"),
                app.jobs.aenqueue("mail", 3, key="well"),
                app.jobs.areserve("post"),
                return_exceptions=True,
            )

    unreadable, stored, none = asyncio.run(main())

    assert isinstance(unreadable, IncompatibleData)
    assert (stored.payload, none) == (3, [])


@pytest.mark.parametrize("error", [ZeroDivisionError, Interrupted])
def test_a_lease_of_a_batch_that_was_broken_off_is_nobodys(make_app, error):
    def broken():
        yield sql.clock()
        raise error

    async def main():
        async with make_app(lanes=1) as app:
            await app.jobs.aenqueue_many("mail", range(2))
            _, reserved = await asyncio.gather(
                app.arun(Operation("broken", broken, autocommit=True)),
                app.jobs.areserve("mail"),
                return_exceptions=True,
            )
            held = 0 if isinstance(reserved, BaseException) else len(reserved)
            states = [job.state for job in await app.jobs.alist(topic="mail")]
            assert states.count(State.RESERVED) == held

    asyncio.run(main())


def test_due_jobs_do_not_wait_for_a_rescue_that_waits(make_app, other):
    app = make_app(busy_timeout=20)
    app.jobs.enqueue("print", limit=Limit("printer", concurrency=1), ttr=0.01)
    [_] = app.jobs.reserve("print")
    app.jobs.enqueue("mail", delay=0.01)
    time.sleep(0.1)  # by the server's clock, which no test moves
    other.execute("select * from limits for update")

    with ThreadPoolExecutor(1) as threads:
        round_of_upkeep = threads.submit(app.upkeep.run)
        eventually(lambda: waits_for_a_lock(other))
        ready = app.jobs.peek("mail")
        other.rollback()
        round_of_upkeep.result(20)

    assert ready is not None


def waits_for_a_lock(other):
    [[waits]] = other.execute(
        "select exists (select from pg_stat_activity where wait_event_type = 'Lock' "
        "and datname = current_database())"
    ).fetchall()
    return waits


def test_a_neighbours_deadlock_does_not_touch_twice(make_app, other, postgres):
    """A touch that is said again would count again, or come too soon after itself."""
    look = "select * from limits where key = %s for update"
    before = len(postgres.log)

    async def main():
        async with make_app(lanes=1, min_touch_interval=0.5) as app:
            for key in "ab":
                await app.jobs.aenqueue("print", limit=Limit(key, concurrency=5))
            leases = await app.jobs.areserve("print", limit=2)
            await app.queue("mail").aput(b"x")
            mine = await app.queue("mail").areserve(timeout=1)
            await asyncio.sleep(0.7)  # by the server's clock, which no test moves
            other.execute(look, ["b"])

            def cross():
                eventually(lambda: waits_for_a_lock(other))
                try:
                    other.execute(look, ["a"])
                finally:
                    other.rollback()

            crossing = asyncio.create_task(asyncio.to_thread(cross))
            touched, *_ = await asyncio.gather(
                mine.atouch(),
                *(app.jobs.acomplete(lease) for lease in leases),
                return_exceptions=True,
            )
            await asyncio.gather(crossing, return_exceptions=True)
            return touched

    assert asyncio.run(main()) is None
    assert other.execute("select touches from lease").fetchall() == [(1,)]
    assert "deadlock detected" in postgres.log[before:]


# ---------------------------------------------------------------- interrupts


def test_what_a_thread_was_interrupted_in_does_not_happen_later(postgres, postgres_schema):
    """It waited for a lock; the server does not wait for it any more."""

    def stop(number, frame):
        raise KeyboardInterrupt

    def interrupt():
        eventually(lambda: waiting_for_locks(postgres))
        os.kill(os.getpid(), signal.SIGUSR1)

    with App(postgres.url(), schema=postgres_schema, busy_timeout=30) as app:
        app.jobs.enqueue("other")
        before = signal.signal(signal.SIGUSR1, stop)
        with psycopg.connect(postgres.url()) as other, ThreadPoolExecutor(1) as threads:
            app.jobs.enqueue("mail", 1, key="one", connection=other)
            threads.submit(interrupt)
            try:
                with pytest.raises(KeyboardInterrupt):
                    app.jobs.enqueue("mail", 2, key="one")
            finally:
                signal.signal(signal.SIGUSR1, before)
            eventually(lambda: not waiting_for_locks(postgres))
            other.rollback()
        assert app.jobs.list(topic="mail") == []


def test_what_a_loop_ended_in_does_not_happen_later(postgres, postgres_schema):
    async def main(app):
        enqueuing = asyncio.create_task(app.jobs.aenqueue("mail", 2, key="one"))
        await until(lambda: waiting_for_locks(postgres))
        assert not enqueuing.done()

    with App(postgres.url(), schema=postgres_schema, busy_timeout=30) as app:
        app.jobs.enqueue("other")
        with psycopg.connect(postgres.url()) as other:
            app.jobs.enqueue("mail", 1, key="one", connection=other)
            asyncio.run(main(app))  # it ends, and cancels all that is under way
            eventually(lambda: not waiting_for_locks(postgres))
            other.rollback()
        assert app.jobs.list(topic="mail") == []


def waiting_for_locks(postgres) -> int:
    text = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    with psycopg.connect(postgres.url()) as connection:
        [[count]] = connection.execute(text).fetchall()
    return count


def test_an_interrupt_in_a_callback_of_the_loop_does_not_stop_its_lane(
    postgres, postgres_schema, monkeypatch
):
    """Ctrl-C in a program that keeps its loop, such as a notebook."""
    advance = Wire._advance
    interrupts = [KeyboardInterrupt]

    def interrupted(self):
        done = advance(self)
        if done and interrupts and self._listener:  # of the loop, not the thread of the bell
            raise interrupts.pop()
        return done

    with App(postgres.url(), schema=postgres_schema, lanes=1) as app, asyncio.Runner() as runner:
        runner.run(app.jobs.aenqueue("mail", 1))
        monkeypatch.setattr(Wire, "_advance", interrupted)
        loop = runner.get_loop()
        first = loop.create_task(app.jobs.aenqueue("mail", 2))
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(first)
        second = loop.run_until_complete(asyncio.wait_for(app.jobs.aenqueue("mail", 3), 10))
        assert second.payload == 3
        assert loop.run_until_complete(first).payload == 2
        assert len(app.jobs.list(topic="mail")) == 3


# ---------------------------------------------------------------- closing, and losing


@pytest.fixture
def swallowing(postgres):
    """A proxy that will fall silent."""
    with Proxy(postgres.port) as proxy:
        yield proxy


def test_a_thread_that_waits_for_an_answer_is_told_of_the_close(swallowing, postgres_schema):
    app = App(swallowing.url(), schema=postgres_schema, lanes=1)
    app.jobs.enqueue("mail")
    swallowing.swallow("insert into")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(app.jobs.enqueue, "mail")
        assert swallowing.happened.wait(5)
        app.close(patience=0.3)

        assert isinstance(waiting.exception(10), TowpathError)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_task_that_waits_for_an_answer_is_told_of_a_close_elsewhere(
    swallowing, postgres_schema, new_loop
):
    app = App(swallowing.url(), schema=postgres_schema, lanes=1)

    async def main():
        await app.jobs.aenqueue("mail")
        swallowing.swallow("insert into")
        waiting = asyncio.create_task(app.jobs.aenqueue("mail"))
        await asyncio.to_thread(swallowing.happened.wait, 5)
        await asyncio.to_thread(app.close, patience=0.3)
        await asyncio.wait({waiting}, timeout=10)
        return waiting.exception()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert isinstance(runner.run(main()), TowpathError)


def test_a_task_that_waits_for_an_answer_is_told_of_a_close_in_its_own_loop(
    postgres, postgres_schema
):
    app = App(postgres.url(), schema=postgres_schema, lanes=1)

    async def main():
        await app.jobs.aenqueue("mail")
        waiting = asyncio.create_task(app.jobs.aenqueue("mail"))
        for _ in range(2):
            await asyncio.sleep(0)
        app.close()
        await asyncio.wait({waiting}, timeout=10)
        return waiting.exception()

    assert isinstance(asyncio.run(main()), TowpathError)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_close_while_the_loop_stands_still_is_done_by_the_loop(
    postgres, postgres_schema, new_loop
):
    """Until then the file's number must not become another's: the loop listens to it."""
    app = App(postgres.url(), schema=postgres_schema, lanes=1)

    async def main():
        await app.jobs.aenqueue("mail")
        [lanes] = app._database._loops.values()
        [wire] = [lane._wire for lane in lanes.lanes() if lane._wire]
        numbers = [wire._pgconn.socket, wire._listener.line]
        closing = threading.Thread(target=app.close, kwargs={"patience": 0.1})
        closing.start()
        closing.join()
        for number in numbers:
            os.fstat(number)
        await asyncio.sleep(0.05)
        for number in numbers:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(number)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_lost_line_that_a_forked_child_has_too_does_not_keep_the_loop_busy(
    postgres, postgres_schema, new_loop
):
    """The kernel forgets it only when the child's is closed as well."""
    app = App(postgres.url(), schema=postgres_schema, lanes=1)

    async def main():
        await app.jobs.aenqueue("mail")
        [lanes] = app._database._loops.values()
        [wire] = [lane._wire for lane in lanes.lanes() if lane._wire]
        child = child_that_sleeps()
        try:
            with psycopg.connect(postgres.url(), autocommit=True) as other:
                other.execute("select pg_terminate_backend(%s)", [wire._pgconn.backend_pid])
            await until(lambda: not wire.rests)
            heard = []
            wire._advance = lambda: heard.append("something") or False
            await asyncio.sleep(0.2)
            assert heard == []
        finally:
            end(child)
        await app.aclose()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


def reset(link) -> None:
    """End both sides by a reset, as a server does that goes with unread data, or a firewall."""
    link.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.client.close()
    link.server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("before", [b"", b"2\0\0\0\4"], ids=["nothing", "half an answer"])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_task_hears_of_a_reset(postgres, postgres_schema, new_loop, before):
    """uvloop calls a reader once after it, and then never again."""

    async def main(proxy):
        async with App(proxy.url(), schema=postgres_schema, lanes=1) as app:
            await app.jobs.aenqueue("mail", 1)

            def fault(link):
                link.client.sendall(before)
                reset(link)
                proxy.happened.set()
                return False

            proxy._arm("insert into", fault)
            waiting = asyncio.create_task(app.jobs.aenqueue("mail", 2))
            for _ in range(3):
                await asyncio.sleep(0)
            proxy.happened.wait(5)  # the loop is busy meanwhile: all has come when it looks
            async with asyncio.timeout(10):
                assert (await waiting).payload == 2

    with Proxy(postgres.port) as proxy, asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main(proxy))


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_tasks_outlive_backends_that_are_terminated(postgres, postgres_schema, new_loop):
    """Again and again, as by an administrator, while other tasks wait for their answers."""
    terminate = (
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'towpath'"
    )

    async def main(other):
        async with App(postgres.url(), schema=postgres_schema, connect_timeout=60) as app:
            await app.jobs.aenqueue("mail")
            ids = set()

            async def put():
                for number in range(30):
                    ids.add((await app.jobs.aenqueue("mail", number)).id)
                    # By progress, not by time: else a slow machine never gets as far as a commit.
                    if number % 3 == 0:
                        await asyncio.to_thread(other.execute, terminate)

            await asyncio.gather(*(put() for _ in range(6)))
            assert len(ids) == 180
            assert (await app.jobs.astats()).ready == 181

    with (
        psycopg.connect(postgres.url(), autocommit=True) as other,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        runner.run(main(other))


def test_an_answer_is_not_kept_while_the_line_rests(make_app):
    app = make_app(lanes=1)
    app.jobs.enqueue("mail", LARGE)
    app.jobs.reserve("mail")

    wires = [lane._wire for lane in app._database._all if lane._wire]
    assert [(wire._heard, wire._types.pgresult) for wire in wires] == [([], None)]


def child_that_sleeps() -> int:
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    return child


def end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
