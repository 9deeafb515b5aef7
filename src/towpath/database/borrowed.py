"""The caller's own connection: an operation in the caller's transaction shares its fate.

We never commit or roll back here, and nothing of ours raises inside the database, so the
transaction stays usable whatever we answer. The commit is the doorbell: a SQLAlchemy session and
Django tell us of it, PostgreSQL delivers a NOTIFY then, and on SQLite it is seen by itself.
"""

import asyncio
import contextlib
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from weakref import WeakSet

from towpath.database import sqlite
from towpath.database.bells import encode
from towpath.database.clock import Clock, machine_clock
from towpath.errors import DatabaseError, Invalid
from towpath.operation import (
    Changed,
    Operation,
    Steps,
    Wakeup,
    adrive,
    drive,
    has_changed,
    value_of,
)
from towpath.statement import Dialect, Query, Row, Statement

T = TypeVar("T")

WHERE: Final[Statement[Any]] = Statement(
    "where",
    {
        # Not by a select: the snapshot of a read would refuse the write that follows.
        "sqlite": "pragma database_list",
        # Any role may ask for the time, and no other server started in the same microsecond.
        "postgres": r"select concat_ws(E'\n', current_database(), "
        "extract(epoch from pg_postmaster_start_time()))",
    },
)
RING: Final[Statement[Any]] = Statement("ring", {"any": "select pg_notify(:channel, :payload)"})
_KINDS: Final = (
    "a connection of sqlite3, psycopg or Django, or SQLAlchemy's Connection or Session; "
    "the async twin of this verb takes those of an event loop"
)
_ASYNC_KINDS: Final = (
    "psycopg's AsyncConnection, a connection of asyncpg, or SQLAlchemy's AsyncConnection or "
    "AsyncSession; the blocking twin of this verb takes the others"
)
_WHERE: Final = "the connection"
_RINGS: Final = "towpath"  # where a session's rings wait for its commit


Address = tuple[str, str, str]
"""The host, the port and the name of a database. Without a host it is the local socket."""


@dataclass
class Borrower:
    """An app that borrows connections: where its tables are, its clock and its bell."""

    dialect: Dialect | None  # None: memory://, which no other connection can see
    schema: str
    lifecycle: str  # the setting
    clock: Clock | None
    ring: Callable[[Collection[Wakeup]], None]
    leads_here: Callable[[str], bool]  # says whether the answer to WHERE is that of the app
    address: Address | None = None  # the host, port and name of the app's database, if known
    _known: "WeakSet[Any]" = field(default_factory=WeakSet)  # connections that lead here
    _has_asked: bool = False

    async def alearn(self) -> None:
        """Have the app ask where its own tables are, which would keep an event loop waiting."""
        if not self._has_asked:
            await asyncio.to_thread(self.leads_here, "")
            self._has_asked = True

    def note_address(self, connection: Any, address: Address) -> None:
        """Ask nothing over a connection that was made to the very address of the app's URL."""
        host, *rest = address
        if self.address in {address, ("" if host.startswith("/") else host, *rest)}:
            self._known.add(connection)

    def steps(self, operation: Operation[T], connection: object) -> Steps[T | Changed[T]]:
        """Run an operation over a connection that leads to the app's own database."""
        if connection not in self._known:
            there = (yield WHERE())[0][-1]
            if not self.leads_here(there):
                raise _elsewhere(there)
            with contextlib.suppress(TypeError):  # of some drivers, which are asked each time
                self._known.add(connection)
        return (yield from operation.steps(self.lifecycle))

    def check(self, dialect: str) -> None:
        """Refuse a connection to another kind of database: no worker would look there."""
        if self.dialect is None:
            msg = "memory:// is private to its app: use a file or PostgreSQL to share a transaction"
            raise Invalid(msg)
        if self.dialect != dialect:
            msg = (
                f"this app is on {_NAMES[self.dialect]} and the connection on "
                f"{_NAMES.get(dialect, dialect)}: give one to the app's own database"
            )
            raise Invalid(msg)


_NAMES: Final[dict[str, str]] = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


def _elsewhere(there: str) -> Invalid:
    place = there.partition("\n")[0] or "a database in memory"
    return Invalid(
        f"this connection leads to {place}, which is not the app's own database, so no worker "
        "would find the job; pass a connection to the database in the app's URL"
    )


def run_borrowed(operation: Operation[T], connection: Any, borrower: Borrower) -> T:
    """Run an operation inside the transaction of a blocking connection."""
    return value_of(_run(operation, connection, borrower))


def _run(operation: Operation[T], connection: Any, borrower: Borrower) -> T | Changed[T]:
    if isinstance(connection, sqlite3.Connection):
        return _in_sqlite3(operation, connection, borrower)
    if _is_a(connection, "psycopg", "Connection"):
        return _in_psycopg(operation, connection, borrower)
    if _is_a(connection, "sqlalchemy.orm", "scoped_session"):
        connection = connection()
    if _is_a(connection, "sqlalchemy.orm", "Session"):
        return _in_session(operation, connection, borrower)
    if _is_a(connection, "sqlalchemy", "Connection"):
        return _in_sqlalchemy(operation, connection, borrower)
    if "django.db" in sys.modules and hasattr(connection, "in_atomic_block"):
        return _in_django(operation, connection, borrower)
    raise _refused("a blocking", connection, _KINDS)


async def arun_borrowed(operation: Operation[T], connection: Any, borrower: Borrower) -> T:
    """Run an operation inside the transaction of an async connection."""
    await borrower.alearn()
    if _is_a(connection, "psycopg", "AsyncConnection"):
        return value_of(await _in_async_psycopg(operation, connection, borrower))
    if _is_a(connection, "asyncpg", "Connection") or _is_a(
        connection, "asyncpg.pool", "PoolConnectionProxy"
    ):
        return value_of(await _in_asyncpg(operation, connection, borrower))
    if _is_a(connection, "sqlalchemy.ext.asyncio", "async_scoped_session"):
        connection = connection()
    if _is_a(connection, "sqlalchemy.ext.asyncio", "AsyncConnection", "AsyncSession"):
        # SQLAlchemy runs this in a greenlet and gives it the blocking face of the connection.
        result: T = await connection.run_sync(_run_blocking, operation, borrower)
        return result
    raise _refused("an async", connection, _ASYNC_KINDS)


def _run_blocking(connection: Any, operation: Operation[T], borrower: Borrower) -> T:
    return run_borrowed(operation, connection, borrower)


def _is_a(connection: object, module: str, *names: str) -> bool:
    """Say whether this is an instance of such a class, without importing its module."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(
        connection, tuple(getattr(loaded, name) for name in names)
    )


def _refused(colour: str, connection: object, kinds: str) -> Invalid:
    # Its type, not its text: a URL would carry its password into the message.
    kind = type(connection)
    name = f"{kind.__module__}.{kind.__qualname__}"
    return Invalid(f"{colour} call cannot borrow this {name}: give {kinds}")


def _no_transaction() -> Invalid:
    return Invalid(
        "the connection commits each statement by itself and no transaction is open: "
        "begin one, or leave the connection out"
    )


def _in_sqlite3(
    operation: Operation[T], connection: sqlite3.Connection, borrower: Borrower
) -> T | Changed[T]:
    borrower.check("sqlite")
    with sqlite.translated(_WHERE):
        _begin_sqlite(connection, connection.execute)
        now = (borrower.clock or machine_clock)()
        text_factory, connection.text_factory = connection.text_factory, str
        cursor = connection.cursor()
        cursor.row_factory = None  # it may prefer another kind of row
        try:
            steps = borrower.steps(operation, connection)
            return drive(steps, lambda query: sqlite.execute(cursor, query, now))
        finally:
            connection.text_factory = text_factory


def _begin_sqlite(connection: Any, execute: Callable[[str], Any]) -> None:
    """Begin where sqlite3 would do so only before an INSERT, and not before CREATE TABLE."""
    if connection.in_transaction:
        return
    if connection.isolation_level is None or getattr(connection, "autocommit", -1) is True:
        raise _no_transaction()
    execute("begin immediate")


def _in_psycopg(
    operation: Operation[T], connection: Any, borrower: Borrower, *, rings: bool = True
) -> T | Changed[T]:
    import psycopg  # noqa: PLC0415 - only where it is used
    from psycopg.rows import tuple_row  # noqa: PLC0415 - likewise

    from towpath.database import postgres  # noqa: PLC0415 - likewise

    _check_psycopg(connection, borrower)
    # Not by connection.cursor(), which would make whatever the caller prefers.
    with psycopg.Cursor[Any](connection, row_factory=tuple_row) as cursor:

        def execute(query: Query[Any]) -> list[Row]:
            text = postgres.rendered(query.statement, borrower.schema)
            cursor.execute(text, postgres.bound(query, borrower.clock))
            return list(cursor.fetchall()) if cursor.description else []

        with postgres.translating(psycopg.Error):
            steps = borrower.steps(operation, connection)
            return drive(_ringing(steps, borrower) if rings else steps, execute)


async def _in_async_psycopg(
    operation: Operation[T], connection: Any, borrower: Borrower
) -> T | Changed[T]:
    import psycopg  # noqa: PLC0415 - only where it is used
    from psycopg.rows import tuple_row  # noqa: PLC0415 - likewise

    from towpath.database import postgres  # noqa: PLC0415 - likewise

    _check_psycopg(connection, borrower)
    async with psycopg.AsyncCursor[Any](connection, row_factory=tuple_row) as cursor:

        async def execute(query: Query[Any]) -> list[Row]:
            text = postgres.rendered(query.statement, borrower.schema)
            await cursor.execute(text, postgres.bound(query, borrower.clock))
            return list(await cursor.fetchall()) if cursor.description else []

        with postgres.translating(psycopg.Error):
            steps = borrower.steps(operation, connection)
            return await adrive(_ringing(steps, borrower), execute)


def _check_psycopg(connection: Any, borrower: Borrower) -> None:
    from psycopg.pq import TransactionStatus  # noqa: PLC0415 - only where it is used

    borrower.check("postgres")
    _note_address(connection, borrower)
    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise _no_transaction()


def _note_address(connection: Any, borrower: Borrower) -> None:
    if not connection.closed:  # else its next statement raises the error
        info = connection.info
        borrower.note_address(connection, (info.host, str(info.port), info.dbname))


async def _in_asyncpg(
    operation: Operation[T], connection: Any, borrower: Borrower
) -> T | Changed[T]:
    import asyncpg  # noqa: PLC0415 - only where it is used

    from towpath.database import postgres  # noqa: PLC0415 - likewise

    borrower.check("postgres")
    if not connection.is_in_transaction():
        raise _no_transaction()

    async def execute(query: Query[Any]) -> list[Row]:
        text, names = postgres.numbered(query.statement, borrower.schema)
        params = postgres.bound(query, borrower.clock)
        return [tuple(row) for row in await connection.fetch(text, *(params[n] for n in names))]

    with postgres.translating(asyncpg.PostgresError, asyncpg.InterfaceError):
        return await adrive(_ringing(borrower.steps(operation, connection), borrower), execute)


def _ringing(steps: Steps[T | Changed[T]], borrower: Borrower) -> Steps[T | Changed[T]]:
    """Run an operation, then ring: PostgreSQL does so at the commit, or never."""
    result = yield from steps
    news = _news(result)
    if news:
        yield RING(channel=f"{borrower.schema}_wakeup", payload=encode(news))
    return result


def _news(result: object) -> set[Wakeup]:
    return result.wakeups if has_changed(result) else set()


def _in_django(operation: Operation[T], connection: Any, borrower: Borrower) -> T | Changed[T]:
    connection.validate_no_broken_transaction()
    connection.ensure_connection()
    if not connection.in_atomic_block:  # it may still be in a transaction, without Django's help
        return _run(operation, connection.connection, borrower)
    try:
        result = _in_atomic_block(operation, connection.connection, borrower)
    except DatabaseError:
        connection.needs_rollback = True  # as Django itself says after an error of the database
        raise
    news = _news(result)
    if news:
        connection.on_commit(lambda: borrower.ring(news), robust=True)
    return result


def _in_atomic_block(
    operation: Operation[T], connection: Any, borrower: Borrower
) -> T | Changed[T]:
    if _is_a(connection, "psycopg", "Connection"):
        return _in_psycopg(operation, connection, borrower, rings=False)
    return _run(operation, connection, borrower)


def _in_session(operation: Operation[T], session: Any, borrower: Borrower) -> T | Changed[T]:
    import sqlalchemy  # noqa: PLC0415 - only where it is used

    connection = session.connection()
    if isinstance(session.bind, sqlalchemy.Connection):
        # It may live inside a transaction that is committed elsewhere.
        return _in_sqlalchemy(operation, connection, borrower)
    result = _in_sqlalchemy(operation, connection, borrower, rings=False)
    _ring_after_commit(session, _news(result), borrower)
    return result


def _ring_after_commit(session: Any, news: set[Wakeup], borrower: Borrower) -> None:
    """Ring once the session has committed; a ring too many, after a rollback, does no harm."""
    from sqlalchemy import event  # noqa: PLC0415 - only where it is used

    if _RINGS not in session.info:
        session.info[_RINGS] = defaultdict[Callable[[Collection[Wakeup]], None], set[Wakeup]](set)

        def committed(session: Any) -> None:
            if session.in_nested_transaction():
                return  # a savepoint, which the outer transaction may still take back
            for ring, wakeups in session.info[_RINGS].items():
                ring(wakeups)
            session.info[_RINGS].clear()

        def rolled_back(session: Any) -> None:
            if not session.in_nested_transaction():
                session.info[_RINGS].clear()

        event.listen(session, "after_commit", committed)
        event.listen(session, "after_rollback", rolled_back)
    session.info[_RINGS][borrower.ring] |= news


def _in_sqlalchemy(
    operation: Operation[T], connection: Any, borrower: Borrower, *, rings: bool = True
) -> T | Changed[T]:
    if not connection.in_transaction():
        connection.begin()  # as it would by itself at the first statement
    with _translating_sqlalchemy():
        if connection.dialect.name == "sqlite":
            borrower.check("sqlite")
            _begin_sqlite(connection.connection.driver_connection, connection.exec_driver_sql)
            return drive(
                borrower.steps(operation, connection), _sqlalchemy_sqlite(connection, borrower)
            )
        borrower.check("postgres" if connection.dialect.name == "postgresql" else "")
        execute = _sqlalchemy_postgres(connection, borrower)
        driver_connection = connection.connection.dbapi_connection  # which the pool lends again
        if _is_a(driver_connection, "psycopg", "Connection"):
            _note_address(driver_connection, borrower)
        steps = borrower.steps(operation, driver_connection)
        return drive(_ringing(steps, borrower) if rings else steps, execute)


def _sqlalchemy_sqlite(connection: Any, borrower: Borrower) -> Callable[[Query[Any]], list[Row]]:
    now = (borrower.clock or machine_clock)()
    cursor: Any = _Cursor(connection)
    return lambda query: sqlite.execute(cursor, query, now)


class _Cursor:
    """SQLAlchemy's connection with the few words of a sqlite3 cursor that we use."""

    description: Any

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, text: str, params: dict[str, Any]) -> None:
        self._result = _sqlalchemy_execute(self._connection, text, params)
        names = list(self._result.keys()) if self._result.returns_rows else []
        self.description = [(name,) for name in names] or None

    def executemany(self, text: str, items: list[tuple[Any, ...]]) -> None:
        _sqlalchemy_execute(self._connection, text, items)

    def fetchall(self) -> list[Row]:
        return _rows(self._result)


def _sqlalchemy_postgres(connection: Any, borrower: Borrower) -> Callable[[Query[Any]], list[Row]]:
    from towpath.database import postgres  # noqa: PLC0415 - only where it is used

    def pyformat(query: Query[Any]) -> list[Row]:
        text = postgres.rendered(query.statement, borrower.schema).decode()
        params = postgres.bound(query, borrower.clock)
        return _rows(_sqlalchemy_execute(connection, text, params))

    def dollars(query: Query[Any]) -> list[Row]:
        text, names = postgres.numbered(query.statement, borrower.schema)
        params = postgres.bound(query, borrower.clock)
        return _rows(_sqlalchemy_execute(connection, text, tuple(params[n] for n in names)))

    driver: str = connection.dialect.driver
    if driver not in {"psycopg", "psycopg_async", "psycopg2", "asyncpg"}:
        msg = f"SQLAlchemy's driver {driver!r} cannot be borrowed: use psycopg or asyncpg"
        raise Invalid(msg)
    detect = getattr(connection.dialect, "detect_autocommit_setting", None)
    if detect and detect(connection.connection.dbapi_connection):
        raise _no_transaction()
    return dollars if driver == "asyncpg" else pyformat


def _sqlalchemy_execute(connection: Any, text: str, params: object) -> Any:
    # The caller may stream the rows of his own statements; a write cannot be streamed.
    return connection.exec_driver_sql(
        text, params, execution_options={"stream_results": False, "yield_per": None}
    )


def _rows(result: Any) -> list[Row]:
    return [tuple(row) for row in result.fetchall()] if result.returns_rows else []


@contextlib.contextmanager
def _translating_sqlalchemy() -> Generator[None]:
    """Raise SQLAlchemy's errors as ours."""
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415 - only where it is used

    try:
        yield
    except DBAPIError as error:
        if isinstance(error.orig, sqlite3.Error):
            raise sqlite.as_ours(error.orig, _WHERE) from error
        from towpath.database import postgres  # noqa: PLC0415 - only where it is used

        raise postgres.translated(error.orig or error) from error
