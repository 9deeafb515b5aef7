"""A transaction that we begin and end on the caller's own connection, in the words of its kind.

`borrowed.py` works in a transaction that is the caller's; here the block is the transaction. So a
connection that is in one already is refused: the end of our block would not be its end.
"""

import inspect
import sqlite3
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any

from towpath.errors import Conflict, Invalid


def blocking_transaction(connection: object) -> AbstractContextManager[Any]:
    """Begin a transaction on a blocking connection; commit it, or roll it back on an exception."""
    if _is_async(connection):
        msg = f"{_kind(connection)} belongs to an event loop; use `async with`"
        raise Invalid(msg)
    begun: AbstractContextManager[Any] = _begin(connection)
    return begun


def async_transaction(connection: object) -> AbstractAsyncContextManager[Any]:
    """Begin a transaction on an async connection; commit it, or roll it back on an exception."""
    if not _is_async(connection):
        msg = f"{_kind(connection)} is blocking; use `with`, not `async with`"
        raise Invalid(msg)
    begun: AbstractAsyncContextManager[Any] = _begin(connection)
    return begun


def _is_async(connection: object) -> bool:
    # asyncpg's pool lends a proxy, whose methods do not look async.
    return hasattr(connection, "is_in_transaction") or inspect.iscoroutinefunction(
        getattr(connection, "close", None)
    )


def _kind(connection: object) -> str:
    # Its type, not its text: a URL would carry its password into the message.
    return f"this {type(connection).__module__}.{type(connection).__qualname__}"


def _begin(connection: Any) -> Any:
    if isinstance(connection, sqlite3.Connection):
        return _sqlite3(connection)
    if hasattr(connection, "in_atomic_block"):  # Django
        from django.db.transaction import atomic  # noqa: PLC0415 - only where it is used

        return atomic(connection.alias, durable=True)  # which refuses to be nested, as we do
    if hasattr(connection, "is_in_transaction"):  # asyncpg
        _refuse_open(is_open=connection.is_in_transaction())
        return connection.transaction()
    if hasattr(connection, "in_transaction"):  # SQLAlchemy
        _refuse_open(is_open=connection.in_transaction())
        return connection.begin()
    if hasattr(connection, "transaction"):  # psycopg
        _refuse_open(is_open=connection.info.transaction_status.name != "IDLE")
        return connection.transaction()
    msg = (
        f"{_kind(connection)} is not a connection that Towpath knows; pass one of sqlite3, "
        "psycopg, asyncpg or Django, or a connection or session of SQLAlchemy"
    )
    raise Invalid(msg)


def _refuse_open(*, is_open: bool) -> None:
    if is_open:
        msg = (
            "the connection is in a transaction already; commit or roll it back first, or pass "
            "another connection, as this block begins and commits its own transaction"
        )
        raise Conflict(msg)


@contextmanager
def _sqlite3(connection: sqlite3.Connection) -> Generator[None]:
    # From Python 3.12 a connection may always be in a transaction, and only these methods end it.
    always = getattr(connection, "autocommit", None) is False
    if not always:
        _refuse_open(is_open=connection.in_transaction)
        connection.execute("begin immediate")  # a read first could refuse the write that follows
    try:
        yield
        connection.commit() if always else connection.execute("commit")
    except BaseException:
        if always:
            connection.rollback()
        elif connection.in_transaction:
            connection.execute("rollback")
        raise
