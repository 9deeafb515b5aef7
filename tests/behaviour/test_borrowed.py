"""US1-5: in the caller's own transaction a job shares its fate, whatever the connection."""

import asyncio
import inspect
import sqlite3
import sys
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from tests.conftest import InLoop, eventually
from towpath import App, State
from towpath.database.borrowed import WHERE
from towpath.errors import (
    DatabaseBusy,
    DatabaseError,
    Invalid,
    InvalidTopic,
    JobExists,
    LeaseLost,
    MaxJobsReached,
    PayloadTooLarge,
    SchemaMissing,
)

pytestmark = pytest.mark.both_colours

# ---------------------------------------------------------------- one small driver per adapter


class Sqlite3:
    """The standard library, which begins a transaction by itself before the first write."""

    kind = "sqlite"
    options: Mapping[str, object] = MappingProxyType({})

    def __init__(self, url):
        path = url.removeprefix("sqlite:///")
        self.connection = sqlite3.connect(path, check_same_thread=False, **self.options)

    def begin(self):
        pass

    def execute(self, text):
        return self.connection.execute(text).fetchall()

    def commit(self):
        self.connection.commit()

    def rollback(self):
        self.connection.rollback()

    def close(self):
        self.connection.close()


class Sqlite3Explicit(Sqlite3):
    """The standard library, where the caller says BEGIN."""

    options = MappingProxyType({"isolation_level": None})

    def begin(self):
        self.connection.execute("begin")


class Sqlite3Always(Sqlite3):
    """The standard library from Python 3.12, always in a transaction."""

    options = MappingProxyType({"autocommit": False})


class Psycopg:
    kind = "postgres"

    def __init__(self, url):
        self.connection = psycopg.connect(url)

    def begin(self):
        pass

    def execute(self, text):
        cursor = self.connection.execute(text)
        return cursor.fetchall() if cursor.description else []

    def commit(self):
        self.connection.commit()

    def rollback(self):
        self.connection.rollback()

    def close(self):
        self.connection.close()


class AsyncPsycopg:
    kind = "postgres"

    async def open(self, url):
        self.connection = await psycopg.AsyncConnection.connect(url)

    async def begin(self):
        pass

    async def execute(self, text):
        cursor = await self.connection.execute(text)
        return await cursor.fetchall() if cursor.description else []

    async def commit(self):
        await self.connection.commit()

    async def rollback(self):
        await self.connection.rollback()

    async def close(self):
        await self.connection.close()


class Asyncpg:
    kind = "postgres"

    async def open(self, url):
        self.connection = await asyncpg.connect(url)

    async def begin(self):
        self._transaction = self.connection.transaction()
        await self._transaction.start()

    async def execute(self, text):
        return [tuple(row) for row in await self.connection.fetch(text)]

    async def commit(self):
        await self._transaction.commit()

    async def rollback(self):
        await self._transaction.rollback()

    async def close(self):
        await self.connection.close()


class Core:
    """SQLAlchemy Core."""

    driver: str

    def __init__(self, url):
        engine = sqlalchemy.create_engine(_through(self.driver, url), poolclass=NullPool)
        self.connection = self._open(engine)

    def _open(self, engine):
        return engine.connect()

    def begin(self):
        self.connection.begin()

    def execute(self, text):
        result = self.connection.execute(sqlalchemy.text(text))
        return [tuple(row) for row in result] if result.returns_rows else []

    def commit(self):
        self.connection.commit()

    def rollback(self):
        self.connection.rollback()

    def close(self):
        self.connection.close()


class CoreSqlite(Core):
    kind, driver = "sqlite", "sqlite"


class CorePsycopg(Core):
    kind, driver = "postgres", "postgresql+psycopg"


class Orm(Core):
    """SQLAlchemy's Session."""

    def _open(self, engine):
        return Session(engine)


class OrmSqlite(Orm):
    kind, driver = "sqlite", "sqlite"


class OrmPsycopg(Orm):
    kind, driver = "postgres", "postgresql+psycopg"


class AsyncCore:
    """SQLAlchemy's AsyncConnection."""

    driver: str

    async def open(self, url):
        self.connection = self._open(
            create_async_engine(_through(self.driver, url), poolclass=NullPool)
        )
        await self._start()

    def _open(self, engine):
        return engine.connect()

    async def _start(self):
        await self.connection.start()

    async def begin(self):
        await self.connection.begin()

    async def execute(self, text):
        result = await self.connection.execute(sqlalchemy.text(text))
        return [tuple(row) for row in result] if result.returns_rows else []

    async def commit(self):
        await self.connection.commit()

    async def rollback(self):
        await self.connection.rollback()

    async def close(self):
        await self.connection.close()


class AsyncCoreSqlite(AsyncCore):
    kind, driver = "sqlite", "sqlite+aiosqlite"


class AsyncCorePsycopg(AsyncCore):
    kind, driver = "postgres", "postgresql+psycopg"


class AsyncCoreAsyncpg(AsyncCore):
    kind, driver = "postgres", "postgresql+asyncpg"


class AsyncOrm(AsyncCore):
    """SQLAlchemy's AsyncSession."""

    def _open(self, engine):
        return AsyncSession(engine)

    async def _start(self):
        pass


class AsyncOrmSqlite(AsyncOrm):
    kind, driver = "sqlite", "sqlite+aiosqlite"


class AsyncOrmPsycopg(AsyncOrm):
    kind, driver = "postgres", "postgresql+psycopg"


class AsyncOrmAsyncpg(AsyncOrm):
    kind, driver = "postgres", "postgresql+asyncpg"


def _through(driver, url):
    return driver + ":" + url.partition(":")[2]


ON_SQLITE = [Sqlite3, Sqlite3Explicit, CoreSqlite, OrmSqlite, AsyncCoreSqlite, AsyncOrmSqlite]
if sys.version_info >= (3, 12):
    ON_SQLITE.insert(2, Sqlite3Always)
ON_POSTGRES = [
    Psycopg, AsyncPsycopg, Asyncpg, CorePsycopg, OrmPsycopg,
    AsyncCorePsycopg, AsyncCoreAsyncpg, AsyncOrmPsycopg, AsyncOrmAsyncpg,
]  # fmt: skip


class Caller:
    """A user with a connection, an `orders` table and an app, in one colour."""

    def __init__(self, adapter, app, orders, loop):
        self._adapter = adapter
        self._loop = loop
        self.orders = orders
        self.blocking = not inspect.iscoroutinefunction(adapter.execute)
        self.app = app if self.blocking else InLoop(app, loop)

    def __getattr__(self, name):
        verb = getattr(self._adapter, name)
        if not inspect.iscoroutinefunction(verb):
            return verb
        return lambda *args: asyncio.run_coroutine_threadsafe(verb(*args), self._loop).result()

    def enqueue(self, *args, **options):
        return self.app.jobs.enqueue(*args, connection=self.connection, **options)

    def enqueue_many(self, *args):
        return self.app.jobs.enqueue_many(*args, connection=self.connection)

    def complete(self, lease):
        self.app.jobs.complete(lease, connection=self.connection)

    def order(self, number=1):
        self.execute(f"insert into {self.orders} values ({number})")  # noqa: S608 - our own

    def ordered(self):
        """Read the orders that are committed, or that are the caller's own."""
        rows = self.execute(f"select * from {self.orders} order by 1")  # noqa: S608 - our own
        return [number for (number,) in rows]


@pytest.fixture(params=[*ON_SQLITE, *ON_POSTGRES], ids=lambda adapter: adapter.__name__)
def adapter(request):
    """The kind of connection."""
    return request.param


@pytest.fixture
def kind(adapter) -> str:
    return adapter.kind


@pytest.fixture
def orders(place, kind):
    """The caller's own table, gone after the test."""
    url, needed = place
    if kind == "sqlite":
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.execute("create table orders (number integer primary key)")
        connection.close()
        yield "orders"
        return
    name = f"orders_{needed['schema']}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create table {name} (number integer primary key)")
        yield name
        connection.execute(f"drop table {name}")


@pytest.fixture
def open_caller(adapter, place, orders, loop):
    """Open callers on one new database; they are closed after the test."""
    opened: list[Caller] = []

    def make(app) -> Caller:
        url, _ = place
        if inspect.iscoroutinefunction(adapter.execute):
            made = adapter()
            asyncio.run_coroutine_threadsafe(made.open(url), loop).result()
        else:
            made = adapter(url)
        opened.append(Caller(made, app, orders, loop))
        return opened[-1]

    yield make
    for caller in opened:
        caller.close()


@pytest.fixture
def fresh(open_caller, make_app) -> Caller:
    """A caller on a database that does not have our tables yet."""
    return open_caller(make_app())


@pytest.fixture
def caller(fresh) -> Caller:
    """A caller on a database that has our tables."""
    fresh.app.migrate()
    return fresh


# ---------------------------------------------------------------- one fate


def test_a_rollback_takes_the_job_and_the_callers_row_with_it(caller):
    """US1-5"""
    caller.begin()
    caller.order()
    job = caller.enqueue("mail", {"order": 1})
    caller.rollback()

    assert job.state is State.READY
    assert caller.ordered() == []
    assert caller.app.jobs.list() == []


def test_a_commit_brings_the_job_and_the_callers_row(caller):
    """US1-5"""
    caller.begin()
    caller.order()
    job = caller.enqueue("mail", {"order": 1})
    assert caller.app.jobs.list() == []  # not before the commit
    caller.commit()

    assert caller.ordered() == [1]
    [lease] = caller.app.jobs.reserve("mail")
    assert (lease.job.id, lease.job.payload) == (job.id, {"order": 1})


def test_the_enqueue_may_come_before_any_other_work(caller):
    """US1-5"""
    caller.begin()
    caller.enqueue("mail", 1)
    caller.order()
    caller.rollback()
    caller.begin()
    caller.enqueue("mail", 2)
    caller.order(2)
    caller.commit()

    assert caller.ordered() == [2]
    assert [job.payload for job in caller.app.jobs.list()] == [2]


def test_many_jobs_share_the_fate(caller):
    """US1-5"""
    caller.begin()
    caller.enqueue_many("mail", range(3))
    caller.rollback()
    caller.begin()
    jobs = caller.enqueue_many("mail", range(3, 6))
    caller.commit()

    assert [job.payload for job in jobs] == [3, 4, 5]
    leases = caller.app.jobs.reserve("mail", limit=10)
    assert [lease.job.id for lease in leases] == [job.id for job in jobs]


def test_options_and_delays_hold_inside_a_transaction(caller):
    """US1-5"""
    caller.begin()
    job = caller.enqueue("mail", b"\x00raw", delay=60, priority=7, key="k", max_retries=9)
    caller.commit()

    assert caller.app.jobs.get(job) == job
    assert (job.state, job.priority, job.key, job.payload) == (State.DELAYED, 7, "k", b"\x00raw")
    assert job.options.max_retries == 9


def test_a_completion_shares_the_fate(caller):
    """US1-5"""
    caller.app.jobs.enqueue("mail")
    [lease] = caller.app.jobs.reserve("mail")

    caller.begin()
    caller.order()
    caller.complete(lease)
    caller.rollback()
    assert caller.app.jobs.get(lease.job).state is State.RESERVED

    caller.begin()
    caller.order()
    caller.complete(lease)
    caller.commit()
    assert caller.app.jobs.get(lease.job).state is State.COMPLETED
    assert caller.ordered() == [1]


def test_a_savepoint_takes_back_what_came_after_it(caller):
    """US1-5"""
    caller.begin()
    caller.order(1)
    caller.enqueue("mail", "kept")
    caller.execute("savepoint doubt")
    caller.order(2)
    caller.enqueue("mail", "undone")
    caller.execute("rollback to savepoint doubt")
    caller.order(3)
    caller.execute("savepoint hope")
    caller.enqueue("mail", "kept as well")
    caller.execute("release savepoint hope")
    caller.commit()

    assert caller.ordered() == [1, 3]
    assert {job.payload for job in caller.app.jobs.list()} == {"kept", "kept as well"}


# ---------------------------------------------------------------- the doorbell


def test_the_commit_wakes_a_reserver_in_another_process(caller, make_app, adapter):
    """FR-020, US1-5, DQ-7: by the doorbell, for the safety net is a minute away."""
    elsewhere = make_app(poll_interval=60)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(elsewhere.jobs.reserve, "mail", timeout=20)
        eventually(lambda: elsewhere.jobs.stats_waiting() == {"mail": 1})
        caller.begin()
        job = caller.enqueue("mail", 1)
        caller.order()
        time.sleep(0.1)  # nothing can be waited for: the point is that nothing happens
        assert not waiting.done()
        caller.commit()
        [lease] = waiting.result()

    assert lease.job.id == job.id


def test_the_commit_wakes_a_reserver_of_the_same_app(open_caller, make_app):
    """FR-020"""
    app = make_app(poll_interval=60)
    app.migrate()
    caller = open_caller(app)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(app.jobs.reserve, "mail", timeout=20)
        eventually(lambda: app.jobs.stats_waiting() == {"mail": 1})
        caller.begin()
        job = caller.enqueue("mail", 1)
        caller.commit()
        [lease] = waiting.result()

    assert lease.job.id == job.id


# ---------------------------------------------------------------- refusals


def test_a_refusal_leaves_the_transaction_usable(caller):
    """US1-5"""
    standing = caller.app.jobs.enqueue("mail", "standing", key="standing")
    [stale] = caller.app.jobs.reserve("mail")
    caller.app.jobs.release(stale)

    caller.begin()
    caller.order(1)
    caller.enqueue("post", "before")
    with pytest.raises(JobExists):
        caller.enqueue("mail", "other content", id=standing.id)
    with pytest.raises(PayloadTooLarge):
        caller.enqueue("mail", "x" * 2**20)
    with pytest.raises(InvalidTopic):
        caller.enqueue("not a topic")
    with pytest.raises(LeaseLost):
        caller.complete(stale)
    assert caller.enqueue("mail", "other", key="standing").id == standing.id
    caller.order(2)
    caller.enqueue("post", "after")
    caller.commit()

    assert caller.ordered() == [1, 2]
    assert {job.payload for job in caller.app.jobs.list()} == {"standing", "before", "after"}


def test_a_limit_reached_leaves_the_transaction_usable(open_caller, make_app):
    """DQ-9"""
    caller = open_caller(make_app(max_jobs_per_topic=2))
    caller.begin()
    caller.order()
    caller.enqueue_many("mail", [1, 2])
    with pytest.raises(MaxJobsReached):
        caller.enqueue("mail", 3)
    caller.enqueue("post", 4)
    caller.commit()

    assert caller.ordered() == [1]
    assert sorted(job.payload for job in caller.app.jobs.list()) == [1, 2, 4]


@pytest.mark.parametrize("adapter", ON_SQLITE, indirect=True)
def test_a_locked_file_is_an_error_of_ours(caller):
    """US1-5"""
    blocker = sqlite3.connect(caller.app.url.removeprefix("sqlite:///"))
    blocker.execute("begin immediate")
    caller.begin()
    caller.execute("pragma busy_timeout = 0")

    with pytest.raises(DatabaseBusy, match="busy_timeout"):
        caller.enqueue("mail")

    caller.rollback()
    blocker.close()


@pytest.mark.parametrize("adapter", ON_POSTGRES, indirect=True)
def test_an_aborted_transaction_is_an_error_of_ours(caller):
    """US1-5"""
    caller.begin()
    with pytest.raises(Exception, match="zero"):
        caller.execute("select 1 / 0")

    with pytest.raises(DatabaseError, match="aborted"):
        caller.enqueue("mail")

    caller.rollback()
    assert caller.app.jobs.list() == []


@pytest.mark.parametrize("adapter", [Psycopg, Asyncpg], indirect=True)
def test_a_topic_that_is_forgotten_while_a_job_is_on_its_way_comes_back(
    open_caller, make_app, clock
):
    """DQ-10"""
    caller = open_caller(make_app(clock=clock, topic_cleanup=True))
    app = caller.app
    for topic in ("empty", "mail", "post"):
        app.queue(topic).put(b"")
        app.queue(topic).reserve(timeout=0).delete()
    caller.begin()
    caller.enqueue("mail", 1)
    caller.enqueue("post", 1)
    app.upkeep.run()
    assert app.topics.list() == []

    caller.commit()
    app.jobs.complete(*app.jobs.reserve("post"))
    clock.advance(60)
    app.upkeep.run()

    assert app.topics.list() == ["mail", "post"]
    assert app.jobs.stats_topic("mail").ready == 1
    assert app.jobs.stats_topic("post").completed == 1


# ---------------------------------------------------------------- first use


@pytest.mark.usefixtures("untouched")
def test_the_first_use_of_a_database_may_be_in_a_transaction(fresh):
    """US1-5"""
    fresh.begin()
    fresh.order()
    job = fresh.enqueue("mail", 1)
    fresh.enqueue("mail", 2)
    fresh.commit()

    assert fresh.ordered() == [1]
    assert fresh.app.jobs.get(job).payload == 1
    assert len(fresh.app.jobs.reserve("mail", limit=10)) == 2


@pytest.mark.usefixtures("untouched")
def test_a_rollback_of_the_first_use_takes_the_tables_with_it(fresh, place):
    """US1-5"""
    url, needed = place
    fresh.begin()
    fresh.enqueue("mail", "undone")
    fresh.order()
    fresh.rollback()
    assert _our_tables(url, **needed) == []

    fresh.begin()
    fresh.enqueue("mail", "kept")
    fresh.commit()
    fresh.app.jobs.enqueue("mail", "kept as well")
    leases = fresh.app.jobs.reserve("mail", limit=10)
    assert [lease.job.payload for lease in leases] == ["kept", "kept as well"]


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("adapter", ON_POSTGRES, indirect=True)
def test_the_first_use_leaves_the_callers_patience_as_it_was(fresh):
    """US1-5"""
    fresh.begin()
    fresh.execute("set local lock_timeout = '7s'")
    fresh.enqueue("mail", 1)

    assert fresh.execute("show lock_timeout") == [("7s",)]
    fresh.rollback()


@pytest.mark.usefixtures("untouched")
def test_tables_are_not_created_where_that_is_switched_off(open_caller, make_app):
    """US1-5"""
    caller = open_caller(make_app(migrate=False))
    caller.begin()
    with pytest.raises(SchemaMissing, match="towpath migrate"):
        caller.enqueue("mail")
    caller.order()
    caller.commit()

    assert caller.ordered() == [1]


# ---------------------------------------------------------------- what is no transaction


@pytest.mark.parametrize("adapter", [Sqlite3, Psycopg], indirect=True)
@pytest.mark.parametrize("given", [object(), "postgresql://me:hunter2@host/db", 7, sqlite3])
def test_what_is_no_connection_is_refused_with_what_to_give(make_app, loop, given):
    app = make_app()
    with pytest.raises(Invalid, match=r"give .*sqlite3.*psycopg.*SQLAlchemy") as caught:
        app.jobs.enqueue("mail", connection=given)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(Invalid, match=r"give .*AsyncConnection.*asyncpg.*AsyncSession") as caught:
        InLoop(app, loop).jobs.enqueue("mail", connection=given)
    assert "hunter2" not in str(caught.value)


def test_a_connection_of_the_other_colour_is_refused_with_what_to_give(caller, make_app, loop):
    app = make_app()
    other = InLoop(app, loop) if caller.blocking else app
    caller.begin()
    caller.order()
    with pytest.raises(Invalid, match=r"give .*twin"):
        other.jobs.enqueue("mail", connection=caller.connection)
    caller.commit()

    assert caller.ordered() == [1]
    assert app.jobs.list() == []


@pytest.mark.parametrize("adapter", [CoreSqlite, CorePsycopg], indirect=True)
def test_an_engine_is_no_connection(caller):
    with pytest.raises(Invalid, match="give"):
        caller.app.jobs.enqueue("mail", connection=caller.connection.engine)


@pytest.mark.parametrize("adapter", [Psycopg], indirect=True)
def test_a_connection_to_another_kind_of_database_is_refused(caller, tmp_path):
    """The job would lie where its workers never look."""
    here = App(f"sqlite:///{tmp_path}/app.db")
    private = App("memory://")
    other = sqlite3.connect(tmp_path / "app.db")
    with pytest.raises(Invalid, match=r"SQLite.*PostgreSQL|PostgreSQL.*SQLite"):
        here.jobs.enqueue("mail", connection=caller.connection)
    with pytest.raises(Invalid, match=r"SQLite.*PostgreSQL|PostgreSQL.*SQLite"):
        caller.app.jobs.enqueue("mail", connection=other)
    with pytest.raises(Invalid, match="memory://"):
        private.jobs.enqueue("mail", connection=other)
    other.close()
    here.close()
    private.close()


@pytest.fixture
def elsewhere(place, kind, tmp_path):
    """The URL of another database of the same kind."""
    url, needed = place
    if kind == "sqlite":
        yield f"sqlite:///{tmp_path}/else where.db"
        return
    name = f"elsewhere_{needed['schema']}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create database {name}")
        yield urlsplit(url)._replace(path=f"/{name}").geturl()
        connection.execute(f"drop database {name} with (force)")


def test_a_connection_to_another_database_is_refused(fresh, elsewhere, place, loop):
    """The job would lie where its workers never look."""
    url, needed = place
    with App(elsewhere, **needed) as other:
        app = other if fresh.blocking else InLoop(other, loop)
        fresh.begin()
        fresh.order(1)
        for _ in range(2):  # what is known of a connection is that it leads here
            with pytest.raises(Invalid, match="not the app's own database"):
                app.jobs.enqueue("mail", connection=fresh.connection)
        fresh.commit()

        assert fresh.ordered() == [1]
        assert other.jobs.list() == []
    with App(url, **needed) as here:
        assert here.jobs.list() == []


@pytest.mark.parametrize("adapter", [Sqlite3Explicit], indirect=True)
def test_the_question_where_a_connection_leads_takes_no_snapshot(caller):
    """A transaction that has read cannot write any more once another one has committed."""
    caller.begin()
    [main] = caller.execute(WHERE.texts["sqlite"])
    caller.app.jobs.enqueue("mail")

    caller.order(1)
    caller.commit()
    assert main[-1].endswith("test.db")


@pytest.mark.parametrize("adapter", [Psycopg, Asyncpg], indirect=True)
def test_a_connection_with_a_time_zone_of_its_own_leads_to_the_same_database(caller):
    caller.app._borrower.address = None  # so that it is asked
    caller.execute("set time zone 'Europe/Berlin'")
    caller.begin()

    caller.enqueue("mail")
    caller.commit()
    assert len(caller.app.jobs.list()) == 1


def _without_transaction(adapter, url, loop):
    """Open a connection that commits each statement by itself."""

    async def opened():
        if adapter is AsyncPsycopg:
            return await psycopg.AsyncConnection.connect(url, autocommit=True)
        if adapter is Asyncpg:
            return await asyncpg.connect(url)
        engine = create_async_engine(
            _through(adapter.driver, url), poolclass=NullPool, isolation_level="AUTOCOMMIT"
        )
        return await engine.connect()

    if adapter is Sqlite3:
        return sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    if adapter is Psycopg:
        return psycopg.connect(url, autocommit=True)
    if issubclass(adapter, Core):
        return sqlalchemy.create_engine(
            _through(adapter.driver, url), poolclass=NullPool, isolation_level="AUTOCOMMIT"
        ).connect()
    return asyncio.run_coroutine_threadsafe(opened(), loop).result()


@pytest.mark.parametrize(
    "adapter",
    [
        Sqlite3, CoreSqlite, AsyncCoreSqlite,
        Psycopg, AsyncPsycopg, Asyncpg, CorePsycopg, AsyncCorePsycopg, AsyncCoreAsyncpg,
    ],
    indirect=True,
)  # fmt: skip
def test_a_connection_without_a_transaction_is_refused(caller, adapter, place, loop):
    """US1-5: each statement would be committed by itself, so there is no fate to share."""
    url, _ = place
    connection = _without_transaction(adapter, url, loop)
    with pytest.raises(Invalid, match="transaction"):
        caller.app.jobs.enqueue("mail", connection=connection)
    closing = connection.close()
    if closing is not None:

        async def closed():
            await closing

        asyncio.run_coroutine_threadsafe(closed(), loop).result()

    assert caller.app.jobs.list() == []


# ---------------------------------------------------------------- the caller's own habits


def _as_dict(cursor, row):
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


@pytest.mark.parametrize("adapter", [Sqlite3, Sqlite3Explicit], indirect=True)
@pytest.mark.parametrize(
    "habit",
    [{"row_factory": sqlite3.Row}, {"row_factory": _as_dict}, {"text_factory": bytes}],
    ids=["Row", "dict", "bytes"],
)
def test_the_factories_of_a_sqlite3_connection_do_not_disturb_us(fresh, habit):
    for name, factory in habit.items():
        setattr(fresh.connection, name, factory)

    _exercise(fresh)

    assert {name: getattr(fresh.connection, name) for name in habit} == habit


@pytest.mark.parametrize("adapter", [Psycopg, AsyncPsycopg], indirect=True)
@pytest.mark.parametrize("raw", [False, True])
def test_the_factories_of_a_psycopg_connection_do_not_disturb_us(fresh, raw):
    fresh.connection.row_factory = dict_row
    if raw:
        fresh.connection.cursor_factory = (
            psycopg.RawCursor if fresh.blocking else psycopg.AsyncRawCursor
        )

    _exercise(fresh)


@pytest.mark.parametrize("adapter", [Asyncpg], indirect=True)
def test_the_codecs_of_an_asyncpg_connection_do_not_disturb_us(fresh, loop):
    async def prefer_python_values():
        import json  # noqa: PLC0415 - as its documentation shows it

        for name in ("json", "jsonb"):
            await fresh.connection.set_type_codec(
                name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
            )
        await fresh.connection.set_type_codec("uuid", encoder=str, decoder=str, schema="pg_catalog")

    asyncio.run_coroutine_threadsafe(prefer_python_values(), loop).result()

    _exercise(fresh)


@pytest.mark.parametrize("adapter", [CoreSqlite, CorePsycopg], indirect=True)
def test_the_options_of_a_sqlalchemy_connection_do_not_disturb_us(fresh):
    fresh.connection.execution_options(
        stream_results=True, yield_per=1, schema_translate_map={None: "elsewhere"}
    )

    _exercise(fresh, orders=False)


def _exercise(caller, *, orders=True):
    """Enqueue in every way that reads something back, in one transaction."""
    caller.begin()
    if orders:
        caller.order()
    id = uuid.uuid4()
    job = caller.enqueue("mail", {"ä": 1}, id=id, key="k", max_retries=9)
    assert caller.enqueue("mail", {"ä": 1}, id=id, key="k") == job
    assert caller.enqueue("mail", "other", key="k") == job
    assert [job.payload for job in caller.enqueue_many("mail", "abc")] == ["a", "b", "c"]
    caller.commit()
    leases = caller.app.jobs.reserve("mail", limit=9)
    assert [lease.job.payload for lease in leases] == [{"ä": 1}, "a", "b", "c"]


class OurSession(Session):
    """As SQLModel and others do."""


class OurPsycopg(psycopg.Connection):
    """As tracing libraries do."""


@pytest.mark.parametrize("adapter", [OrmPsycopg, OrmSqlite], indirect=True)
def test_a_subclass_or_a_registry_of_sessions_will_do(caller, adapter, place):
    from sqlalchemy.orm import scoped_session, sessionmaker  # noqa: PLC0415 - only here

    engine = sqlalchemy.create_engine(_through(adapter.driver, place[0]), poolclass=NullPool)
    with OurSession(engine) as session, session.begin():
        caller.app.jobs.enqueue("mail", 1, connection=session)
    registry = scoped_session(sessionmaker(engine))
    caller.app.jobs.enqueue("mail", 2, connection=registry)
    registry.commit()
    registry.remove()

    assert len(caller.app.jobs.list()) == 2


@pytest.mark.parametrize("adapter", [Psycopg], indirect=True)
def test_a_subclass_of_a_connection_will_do(caller, place):
    with OurPsycopg.connect(place[0]) as connection:
        caller.app.jobs.enqueue("mail", 1, connection=connection)

    assert len(caller.app.jobs.list()) == 1


@pytest.mark.parametrize("adapter", [Sqlite3, Psycopg, AsyncCoreAsyncpg], indirect=True)
def test_the_apps_clock_holds_in_the_callers_transaction(open_caller, make_app, clock):
    caller = open_caller(make_app(clock=clock))
    caller.begin()
    job = caller.enqueue("mail", 1, delay=60)
    caller.commit()

    assert job.created_at == clock.now
    assert caller.app.jobs.reserve("mail") == []
    clock.advance(60)
    assert len(caller.app.jobs.reserve("mail")) == 1


# ---------------------------------------------------------------- sessions tell when they commit


@pytest.fixture
def notified(place):
    """Listen as `psql` would; returns what a transaction itself has announced."""
    url, needed = place
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"listen {needed['schema']}_wakeup")
        yield lambda: [(notice.pid, notice.payload) for notice in connection.notifies(timeout=0.3)]


@pytest.mark.parametrize("adapter", [OrmPsycopg], indirect=True)
def test_a_session_rings_after_its_commit_and_not_in_its_transaction(caller, notified):
    """NOTIFY in a transaction makes all commits of a server take turns."""
    [(own,)] = caller.execute("select pg_backend_pid()")
    caller.enqueue("mail")
    caller.commit()

    [(pid, payload)] = notified()
    assert payload == '["topic/mail"]'
    assert pid != own


@pytest.mark.parametrize("adapter", [OrmPsycopg], indirect=True)
def test_a_session_that_rolls_back_rings_nobody(caller, notified):
    caller.enqueue("mail")
    caller.rollback()

    assert notified() == []


@pytest.mark.parametrize("adapter", [OrmPsycopg], indirect=True)
def test_the_end_of_a_nested_transaction_is_not_yet_the_commit(caller, notified):
    with caller.connection.begin_nested():
        caller.enqueue("mail")
    assert notified() == []
    caller.commit()

    assert [payload for _, payload in notified()] == ['["topic/mail"]']


@pytest.mark.parametrize("adapter", [OrmPsycopg], indirect=True)
def test_a_session_inside_somebody_elses_transaction_rings_when_that_commits(
    caller, adapter, place, notified
):
    engine = sqlalchemy.create_engine(_through(adapter.driver, place[0]), poolclass=NullPool)
    with engine.connect() as connection:
        outer = connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            caller.app.jobs.enqueue("mail", 1, connection=session)
            session.commit()
        assert notified() == []
        outer.commit()

    assert [payload for _, payload in notified()] == ['["topic/mail"]']


def _our_tables(url, schema=None):
    """Look from outside the caller's transaction."""
    if schema is None:
        other = Sqlite3(url)
        found = other.execute("select name from sqlite_master where name like 'towpath%'")
    else:
        other = Psycopg(url)
        found = other.execute(
            f"select 1 from pg_namespace where nspname = '{schema}'"  # noqa: S608 - our own
        )
    other.close()
    return found
