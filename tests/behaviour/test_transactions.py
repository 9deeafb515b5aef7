"""`ctx.transaction`: a task's own rows and the completion of its job are one transaction."""

import asyncio
import contextlib
import importlib
import inspect
import sqlite3

import psycopg
import pytest

from tests import workers
from tests.behaviour import sandboxed
from tests.behaviour.test_borrowed import (
    AsyncCoreSqlite,
    AsyncOrmSqlite,
    Asyncpg,
    AsyncPsycopg,
    CorePsycopg,
    OrmPsycopg,
    OrmSqlite,
    Psycopg,
    Sqlite3,
    adapter,
    kind,
    orders,
)
from tests.conftest import eventually
from towpath import App, Context, Status
from towpath.errors import Conflict, Invalid, JobFailed, LeaseLost, NotFound
from towpath.model.channels import stream_of
from towpath.store import sessions
from towpath.testing import isolated
from towpath.worker import run

__all__ = ["adapter", "kind", "orders"]  # the connections of users, and their table

pytestmark = pytest.mark.both_colours

on_some = pytest.mark.parametrize(
    "adapter", [Sqlite3, Psycopg, AsyncPsycopg, Asyncpg, OrmPsycopg, AsyncOrmSqlite]
)


def nothing(_ctx, _number):
    """Do nothing at this point of the task."""


class Shop:
    """A task that stores an order over one kind of connection, in a block of `ctx.transaction`."""

    def __init__(self, adapter, url, orders, jobs):
        self._adapter, self._url, self._orders = adapter, url, orders
        self.jobs, self.app = jobs, jobs.app
        self.is_async = inspect.iscoroutinefunction(adapter.execute)
        self.before = self.within = self.after = nothing
        self.begins = False  # the task begins a transaction itself, before the block
        self.runs = 0
        take = self._atake if self.is_async else self._take
        self.task = self.app.task(name="order", max_retries=3)(take)

    async def _atake(self, ctx: Context, number: int) -> int:
        self.runs += 1
        async with self._aopened() as opened:
            self.before(ctx, number)
            if self.begins:
                await opened.begin()
                await opened.execute("select 1")
            async with ctx.transaction(opened.connection) as ending:
                await opened.execute(f"insert into {self._orders} values ({number})")  # noqa: S608 - our own
                self.within(ctx, number)
                ending.result = number * 10
            self.after(ctx, number)
        return number * 10

    def _take(self, ctx: Context, number: int) -> int:
        self.runs += 1
        with contextlib.closing(self._adapter(self._url)) as opened:
            self.before(ctx, number)
            if self.begins:
                opened.begin()
                opened.execute(f"delete from {self._orders}")  # noqa: S608 - our own
            with ctx.transaction(opened.connection) as ending:
                opened.execute(f"insert into {self._orders} values ({number})")  # noqa: S608 - our own
                self.within(ctx, number)
                ending.result = number * 10
            self.after(ctx, number)
        return number * 10

    @contextlib.asynccontextmanager
    async def _aopened(self):
        opened = self._adapter()
        await opened.open(self._url)
        try:
            yield opened
        finally:
            await opened.close()

    def call(self, number):
        """Call the task directly."""
        return asyncio.run(self.task(number)) if self.is_async else self.task(number)

    def ordered(self):
        return asyncio.run(self._aordered()) if self.is_async else self._read()

    async def _aordered(self):
        async with self._aopened() as opened:
            return [row for (row,) in await opened.execute(f"select * from {self._orders}")]  # noqa: S608 - our own

    def _read(self):
        with contextlib.closing(self._adapter(self._url)) as opened:
            return [row for (row,) in opened.execute(f"select * from {self._orders}")]  # noqa: S608 - our own


@pytest.fixture
def shop(adapter, place, orders):
    """A shop on a private database."""
    url, _ = place
    with App("memory://") as app, isolated(app, url) as jobs:
        yield Shop(adapter, url, orders, jobs)


def test_the_rows_of_a_task_and_its_completion_are_committed_together(shop):
    job = shop.task.enqueue(1)
    shop.after = lambda ctx, _: states.append(shop.app.jobs.get(job.id).status)
    states = []

    shop.jobs.run()

    assert states == [Status.COMPLETED]  # by the task itself, not by its worker
    assert shop.ordered() == [1]
    assert job.result() == 10


def test_a_worker_that_dies_after_the_commit_leaves_a_completed_job(shop):
    job = shop.task.enqueue(1)

    with shop.jobs.crashing():
        shop.jobs.run()
    shop.jobs.clock.advance("1h")

    assert shop.jobs.run() == []
    assert (job.result(), shop.ordered(), shop.runs) == (10, [1], 1)


def test_an_exception_in_the_block_rolls_back_and_the_job_is_retried(shop):
    def fail_once(ctx, _):
        if not ctx.tries:
            msg = "out of rope"
            raise RuntimeError(msg)

    shop.within = fail_once
    job = shop.task.enqueue(1)

    [failed] = shop.jobs.run(raises=False)
    assert (failed.status, failed.retries, failed.last_error) == (
        Status.PENDING, 1, "RuntimeError: out of rope"
    )  # fmt: skip
    assert shop.ordered() == []
    shop.jobs.clock.advance("1h")
    shop.jobs.run()

    assert (job.result(), shop.ordered(), shop.runs) == (10, [1], 2)


def test_a_lost_lease_rolls_back_the_rows_of_the_task(shop):
    def lose(ctx, _):
        shop.app.jobs.release(ctx.lease)
        taken.extend(shop.app.jobs.reserve("order"))

    taken = []
    shop.before = lose
    job = shop.task.enqueue(1)

    with pytest.raises(LeaseLost):
        shop.jobs.run()

    assert shop.ordered() == []
    assert shop.app.jobs.get(job.id).status is Status.PROCESSING
    shop.app.jobs.complete(taken[0], result=7)  # the other worker's lease is as it was
    assert job.result() == 7


def give_back(app, ctx):
    app.jobs.release(ctx.lease)


def rescue(app, _ctx):
    """Take back the lease, as its worker seems dead."""
    for session, beats, _ in app.run(sessions.observe()):
        app.run(sessions.bury_session(session, beats))


@pytest.mark.parametrize("lose", [give_back, rescue])
@pytest.mark.parametrize("adapter", [Psycopg, AsyncPsycopg, Asyncpg, OrmPsycopg])
def test_a_lease_that_is_lost_in_the_block_rolls_back_and_the_next_run_orders(shop, lose):
    def lose_once(ctx, _):
        if shop.runs == 1:
            lose(shop.app, ctx)

    shop.within = lose_once
    job = shop.task.enqueue(1)

    with pytest.raises(LeaseLost):
        shop.jobs.run()
    assert shop.ordered() == []
    shop.jobs.clock.advance("1h")
    shop.jobs.run()

    assert (job.result(), shop.ordered(), shop.runs) == (10, [1], 2)


@on_some
def test_a_job_that_was_forgotten_meanwhile_rolls_back_the_rows_of_the_task(shop):
    def end(ctx, _):
        shop.app.jobs.bury(ctx.lease)
        shop.app.jobs.delete(ctx.job)

    shop.before = end
    shop.task.enqueue(1)

    with pytest.raises(NotFound):
        shop.jobs.run()

    assert shop.ordered() == []


@on_some
def test_an_error_after_the_commit_is_logged_and_the_job_stays_completed(shop, caplog):
    def fail(_ctx, _number):
        msg = "too late"
        raise RuntimeError(msg)

    shop.after = fail
    job = shop.task.enqueue(1)

    shop.jobs.run()

    assert (job.result(), shop.ordered(), shop.runs) == (10, [1], 1)
    assert shop.app.jobs.failures(job) == []
    [record] = [each for each in caplog.records if "raised after" in each.message]
    assert str(record.exc_info[1]) == "too late"


@on_some
def test_output_in_the_block_is_stored_with_the_completion(shop):
    def log(ctx, _):
        ctx.log("within")
        assert ctx.notes.take() == []  # a worker that writes it beside the block comes too late

    shop.before = lambda ctx, _: ctx.log("before")
    shop.within = log
    job = shop.task.enqueue(1)

    with shop.jobs.crashing():
        shop.jobs.run()

    assert [line.text for line in shop.app.jobs.logs(job)] == ["before", "within"]


@on_some
def test_a_job_that_waits_for_the_task_runs_after_the_commit(shop):
    @shop.app.task()
    def tell(result: int) -> int:
        return result + 1

    told = (shop.task.s(1) | tell.s()).enqueue()

    with shop.jobs.crashing():
        shop.jobs.run(shop.task)
    shop.jobs.run(tell)

    assert told.result() == 11


@on_some
def test_a_direct_call_has_the_transaction_and_no_job(shop):
    assert shop.call(5) == 50
    assert shop.ordered() == [5]
    assert shop.app.jobs.list() == []


@pytest.mark.parametrize(
    "adapter", [Sqlite3, Psycopg, AsyncPsycopg, Asyncpg, CorePsycopg, OrmSqlite, AsyncCoreSqlite]
)
def test_a_connection_that_is_in_a_transaction_is_refused(shop):
    shop.begins = True
    shop.task.enqueue(1)

    with pytest.raises(Conflict, match="in a transaction already; commit or roll it back first"):
        shop.jobs.run()

    assert shop.ordered() == []


# ---------------------------------------------------------------- on one kind of connection

on_sqlite = pytest.mark.parametrize("adapter", [Sqlite3])


@pytest.fixture
def connection(place, orders):
    """A connection of the task's own."""
    url, _ = place
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), check_same_thread=False)
    with contextlib.closing(connection):
        yield connection


@on_sqlite
def test_a_second_transaction_in_one_run_is_refused(shop, connection):
    def again(ctx, _):
        with pytest.raises(Conflict, match="put all writes into one block"):
            ctx.transaction(connection).__enter__()
        refused.append(ctx)

    refused = []
    shop.within = shop.after = again
    job = shop.task.enqueue(1)
    shop.jobs.run()

    assert len(refused) == 2
    assert job.result() == 10


@on_sqlite
def test_a_rolled_back_block_may_be_followed_by_another_in_the_same_run(shop, connection):
    @shop.app.task()
    def twice(ctx: Context) -> None:
        with contextlib.suppress(ZeroDivisionError), ctx.transaction(connection):
            connection.execute("insert into orders values (1)")
            1 / 0  # noqa: B018 - it raises
        with ctx.transaction(connection):
            connection.execute("insert into orders values (2)")

    job = twice.enqueue()
    shop.jobs.run()

    assert job.refresh().status is Status.COMPLETED
    assert shop.ordered() == [2]


@pytest.mark.parametrize("adapter", [Psycopg])
def test_psycopgs_own_rollback_may_be_followed_by_another_block_too(shop, place, orders):
    @shop.app.task()
    def twice(ctx: Context) -> None:
        with psycopg.connect(place[0]) as connection:
            with contextlib.suppress(psycopg.Rollback), ctx.transaction(connection):
                connection.execute(f"insert into {orders} values (1)")  # noqa: S608 - our own
                raise psycopg.Rollback
            with ctx.transaction(connection):
                connection.execute(f"insert into {orders} values (2)")  # noqa: S608 - our own

    job = twice.enqueue()
    shop.jobs.run()

    assert job.refresh().status is Status.COMPLETED
    assert shop.ordered() == [2]


@on_sqlite
def test_a_result_that_cannot_be_stored_rolls_back(shop, connection):
    @shop.app.task()
    def wrong(ctx: Context) -> None:
        with ctx.transaction(connection) as ending:
            connection.execute("insert into orders values (1)")
            ending.result = object()

    job = wrong.enqueue()
    with pytest.raises(Invalid, match="object"):
        shop.jobs.run()

    assert (shop.ordered(), job.refresh().status) == ([], Status.PENDING)


@on_sqlite
def test_a_result_that_is_only_returned_is_reported(shop, connection, caplog):
    @shop.app.task()
    def forgets(ctx: Context) -> int:
        with ctx.transaction(connection):
            pass
        return 7

    job = forgets.enqueue()
    shop.jobs.run()

    assert job.result() is None
    assert "set `result` of the block" in caplog.text


@on_sqlite
def test_output_after_the_block_is_refused(shop):
    def log(ctx, _):
        with pytest.raises(LeaseLost):
            ctx.log("late")
        refused.append(ctx)

    refused = []
    shop.after = log
    shop.task.enqueue(1)
    shop.jobs.run()

    assert refused


@pytest.mark.parametrize("adapter", [AsyncPsycopg, Asyncpg, AsyncCoreSqlite])
def test_the_wrong_kind_of_with_is_refused(shop, place):
    url, _ = place
    ctx = Context(shop.app)

    async def enter():
        async with shop._aopened() as opened:
            with pytest.raises(Invalid, match="use `async with`"):
                ctx.transaction(opened.connection).__enter__()
        with pytest.raises(Invalid, match="is blocking; use `with`"):
            await ctx.transaction(sqlite3.connect(":memory:")).__aenter__()

    asyncio.run(enter())
    with pytest.raises(Invalid, match="str is not a connection"):
        ctx.transaction(url).__enter__()


# ---------------------------------------------------------------- in a worker


@pytest.fixture
def tasks(place, monkeypatch):
    """Tasks in sandboxes, on the database of this test."""
    url, needed = place
    monkeypatch.setenv("TOWPATH_DATABASE", url)
    monkeypatch.setenv("TOWPATH_SCHEMA", needed.get("schema", "towpath"))
    tasks = importlib.reload(sandboxed)
    with tasks.app:
        yield tasks


@on_sqlite
def test_a_sandboxed_task_completes_its_job_in_its_own_process(tasks, place, orders):
    path = place[0].removeprefix("sqlite:///")
    with workers.working(tasks.app):
        job = tasks.order.enqueue(path, 1)
        lost = tasks.order.enqueue(path, 2, lose=True)
        assert job.result(60) == "ordered"
        assert lost.wait(60).status is Status.FAILED

    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select * from orders").fetchall() == [(1,)]
    assert [line.text for line in tasks.app.jobs.logs(job)] == ["ordering"]


@on_sqlite
@pytest.mark.parametrize("task", ["speak", "aspeak"])
def test_a_sandboxed_task_says_each_word_once_around_its_transaction(tasks, place, orders, task):
    """EV-4"""
    path = place[0].removeprefix("sqlite:///")
    with workers.working(tasks.app):
        job = getattr(tasks, task).enqueue(path)
        job.result(60)

    page = tasks.app.events.read(stream_of(job.id))
    assert "".join(event.payload for event in page.events) == "before within and at the end"


@on_sqlite
def test_a_sandboxed_task_whose_words_cannot_be_written_gets_an_error(
    tasks, place, orders, monkeypatch
):
    monkeypatch.setattr(run, "FLUSH_LIMIT", 0.2)
    path = place[0].removeprefix("sqlite:///")
    with workers.working(tasks.app):
        job = tasks.speak.enqueue(path, is_open=True)
        with pytest.raises(JobFailed, match="commit or roll back what is open in this database"):
            job.result(60)

    [said] = tasks.app.events.read(stream_of(job.id)).events
    assert said.payload == "before "
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select * from orders").fetchall() == []


@on_sqlite
def test_a_worker_writes_no_second_outcome_of_a_completed_job(make_app, connection, caplog):
    app = make_app()

    @app.task()
    def order(ctx: Context) -> str:
        with ctx.transaction(connection) as ending:
            connection.execute("insert into orders values (1)")
            ending.result = "ordered"
        return "ordered"

    with workers.working(app):
        job = order.enqueue()
        assert job.result(60) == "ordered"

    assert app.jobs.get(job.id).epoch == 1
    assert "refused" not in caplog.text


@on_sqlite
def test_code_after_the_block_is_not_interrupted_although_the_lease_has_ended(
    make_app, connection, caplog
):
    app = make_app(beat_every=0.05)

    @app.task()
    async def order(ctx: Context) -> None:
        with ctx.transaction(connection):
            connection.execute("insert into orders values (1)")
        beats = set[object]()
        try:
            while len(beats) < 10:
                beats |= {session.beat_at for session in await app.sessions.alist()}
                await asyncio.sleep(0.01)
        finally:
            ended.append(len(beats) == 10)

    ended = []
    with workers.working(app):
        job = order.using(workers=1, ping_interval=0.1, worker_timeout=30).enqueue()
        eventually(lambda: ended)

    assert ended == [True]
    assert job.refresh().status is Status.COMPLETED
    assert "refused" not in caplog.text


@on_sqlite
def test_a_job_of_several_workers_has_a_transaction_for_each_run(make_app, place, orders):
    app, path = make_app(), place[0].removeprefix("sqlite:///")

    @app.task()
    def order(ctx: Context) -> None:
        with contextlib.closing(sqlite3.connect(path)) as own, ctx.transaction(own):
            own.execute("insert into orders select count(*) from orders")

    job = order.using(workers=2).enqueue()
    with workers.working(app, name="a"), workers.working(app, name="b"):
        assert workers.ended(app, job).status is Status.COMPLETED

    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select * from orders").fetchall() == [(0,), (1,)]
    assert {run.worker for run in app.jobs.runs(job)} == {"a", "b"}
