"""The caller's own connection: an operation in the caller's transaction shares its fate.

We never begin, commit or roll back here, and nothing of ours raises inside the database, so the
transaction stays usable whatever we answer. The doorbell is a NOTIFY that PostgreSQL delivers at
the commit; on SQLite the commit itself is seen.
"""

import sqlite3
from collections.abc import Callable
from typing import Any, Final, TypeVar

from towpath.database import sqlite
from towpath.database.clock import machine_clock
from towpath.errors import Invalid
from towpath.operation import Operation, Row, Steps, adrive, drive
from towpath.settings import Settings
from towpath.statement import Query, Statement

T = TypeVar("T")

RING: Final = Statement("ring", {"any": "select pg_notify(:channel, :topics)"})
_KINDS: Final = "sqlite3, psycopg or SQLAlchemy"
_ASYNC_KINDS: Final = "psycopg.AsyncConnection, asyncpg or SQLAlchemy's AsyncConnection"


def run_borrowed(operation: Operation[T], connection: Any, settings: Settings) -> T:
    """Run an operation inside the transaction of a blocking connection."""
    if isinstance(connection, sqlite3.Connection):
        with sqlite.translated(None):
            now = machine_clock()
            return drive(operation.steps(), lambda query: sqlite.execute(connection, query, now))
    match _module(connection):
        case "psycopg":
            return _in_psycopg(operation, connection, settings)
        case "sqlalchemy":
            return _in_sqlalchemy(operation, _sqlalchemy_connection(connection), settings)
        case _:
            msg = f"{connection!r} cannot be borrowed by a blocking call: give {_KINDS}"
            raise Invalid(msg)


async def arun_borrowed(operation: Operation[T], connection: Any, settings: Settings) -> T:
    """Run an operation inside the transaction of an async connection."""
    match _module(connection):
        case "psycopg":
            return await _in_async_psycopg(operation, connection, settings)
        case "asyncpg":
            return await _in_asyncpg(operation, connection, settings)
        case "sqlalchemy" if hasattr(connection, "run_sync"):

            def run(blocking: Any) -> T:
                return _in_sqlalchemy(operation, _sqlalchemy_connection(blocking), settings)

            result: T = await connection.run_sync(run)
            return result
        case _:
            msg = f"{connection!r} cannot be borrowed by an async call: give {_ASYNC_KINDS}"
            raise Invalid(msg)


def _in_psycopg(operation: Operation[T], connection: Any, settings: Settings) -> T:
    import psycopg  # noqa: PLC0415 - only where it is used
    from psycopg.rows import tuple_row  # noqa: PLC0415 - likewise

    from towpath.database import postgres  # noqa: PLC0415 - only where it is used

    if not isinstance(connection, psycopg.Connection):
        msg = f"{connection!r} belongs to an event loop: use the async twin of this verb"
        raise Invalid(msg)
    with connection.cursor(row_factory=tuple_row) as cursor, postgres.translating():

        def execute(query: Query) -> list[Row]:
            text = postgres.rendered(query.statement, settings.schema)
            cursor.execute(text, postgres.bound(query, None))
            return list(cursor.fetchall()) if cursor.description else []

        return drive(_ringing(operation, settings), execute)


async def _in_async_psycopg(operation: Operation[T], connection: Any, settings: Settings) -> T:
    import psycopg  # noqa: PLC0415 - only where it is used
    from psycopg.rows import tuple_row  # noqa: PLC0415 - likewise

    from towpath.database import postgres  # noqa: PLC0415 - only where it is used

    if not isinstance(connection, psycopg.AsyncConnection):
        msg = f"{connection!r} blocks: use the blocking twin of this verb"
        raise Invalid(msg)
    async with connection.cursor(row_factory=tuple_row) as cursor:

        async def execute(query: Query) -> list[Row]:
            text = postgres.rendered(query.statement, settings.schema)
            await cursor.execute(text, postgres.bound(query, None))
            return list(await cursor.fetchall()) if cursor.description else []

        with postgres.translating():
            return await adrive(_ringing(operation, settings), execute)


async def _in_asyncpg(operation: Operation[T], connection: Any, settings: Settings) -> T:
    from towpath.database import postgres  # noqa: PLC0415 - only where it is used

    async def execute(query: Query) -> list[Row]:
        text, names = postgres.numbered(query.statement, settings.schema)
        params = postgres.bound(query, None)
        return [tuple(row) for row in await connection.fetch(text, *(params[n] for n in names))]

    return await adrive(_ringing(operation, settings), execute)


def _in_sqlalchemy(operation: Operation[T], connection: Any, settings: Settings) -> T:
    driver: str = connection.dialect.driver
    if connection.dialect.name == "sqlite":
        execute = _sqlalchemy_sqlite(connection)
        return drive(operation.steps(), execute)

    from towpath.database import postgres  # noqa: PLC0415 - only where it is used

    def pyformat(query: Query) -> list[Row]:
        text = postgres.rendered(query.statement, settings.schema)
        return _rows(connection.exec_driver_sql(text.decode(), postgres.bound(query, None)))

    def dollars(query: Query) -> list[Row]:
        text, names = postgres.numbered(query.statement, settings.schema)
        params = postgres.bound(query, None)
        return _rows(connection.exec_driver_sql(text, tuple(params[name] for name in names)))

    if driver not in {"psycopg", "psycopg_async", "psycopg2", "asyncpg"}:
        msg = f"SQLAlchemy's driver {driver!r} cannot be borrowed: use psycopg or asyncpg"
        raise Invalid(msg)
    return drive(_ringing(operation, settings), dollars if driver == "asyncpg" else pyformat)


def _sqlalchemy_sqlite(connection: Any) -> Callable[[Query], list[Row]]:
    now = machine_clock()

    def execute(query: Query) -> list[Row]:
        return sqlite.execute(_Cursors(connection), query, now)  # type: ignore[arg-type] # has what it uses

    return execute


class _Cursors:
    """SQLAlchemy's connection with the few words of a sqlite3 cursor that we use."""

    description: Any

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def cursor(self) -> "_Cursors":
        return _Cursors(self._connection)

    def execute(self, text: str, params: dict[str, Any]) -> None:
        self._result = self._connection.exec_driver_sql(text, params)
        has_rows = self._result.returns_rows
        names = list(self._result.keys()) if has_rows else []
        self.description = [(name,) for name in names] or None

    def fetchall(self) -> list[Row]:
        return _rows(self._result)


def _sqlalchemy_connection(connection: Any) -> Any:
    """Return the connection of a session, or the connection itself."""
    return (
        connection.connection() if callable(getattr(connection, "connection", None)) else connection
    )


def _rows(result: Any) -> list[Row]:
    return [tuple(row) for row in result.fetchall()] if result.returns_rows else []


def _ringing(operation: Operation[T], settings: Settings) -> Steps[T]:
    """Run an operation, then ring: PostgreSQL does so at the commit, or never."""
    result = yield from operation.steps()
    topics = sorted(operation.wakes(result)) if operation.wakes else []
    if topics:
        yield RING(channel=f"{settings.schema}_wakeup", topics=",".join(topics))
    return result


def _module(connection: object) -> str:
    return type(connection).__module__.partition(".")[0]
