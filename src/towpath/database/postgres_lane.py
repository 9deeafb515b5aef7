"""One connection to PostgreSQL, of threads or of an event loop, and what runs on it together."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.pq import ExecStatus, TransactionStatus

from towpath.database.batch import grouped, tell
from towpath.database.calls import LoopCall, OrphanCall
from towpath.database.postgres import Operations, Trouble, aconnect, connect
from towpath.errors import DatabaseError, DatabaseUnavailable, TowpathError
from towpath.operation import Operation, Row, Steps, adrive, drive
from towpath.statement import Query

if TYPE_CHECKING:
    from towpath.database.postgres_lanes import PostgresDatabase


class Lane:
    """One connection of the threads."""

    def __init__(self, database: "PostgresDatabase", *, by_key: bool) -> None:
        self._database = database
        self._by_key = by_key
        self._connection: Connection[Any] | None = None

    def run(self, operations: Operations) -> list[Any]:
        """Run operations in one transaction, again and again while that can help."""
        trouble = Trouble(self._database.settings)
        while True:
            try:
                return self._run(operations, trouble)
            except TowpathError as error:
                told = trouble.shared(error, operations)
                if told is error:
                    raise
                raise told from error
            except psycopg.Error as error:
                if self._connection and self._connection.closed:
                    self._connection = None
                pause = trouble.pause(error, operations)
                with contextlib.suppress(psycopg.Error):
                    if self._connection:
                        self._connection.rollback()
                time.sleep(pause)

    def _run(self, operations: Operations, trouble: "Trouble") -> list[Any]:
        again, trouble.doubtful = trouble.seen, False
        connection = self._connection
        if connection is not None and not _at_rest(connection):
            # Interrupted in the middle: what it holds was never acknowledged, and must not be mixed
            # with what comes now.
            connection.close()
            connection = None
        if connection is None:
            self._database.check_open()
            connection = self._connection = connect(
                self._database.url, self._database.settings, by_key=self._by_key
            )
        if len(operations) == 1 and operations[0].whole:
            trouble.doubtful = True
            ask = self._asking(connection)
            return [drive(operations[0].steps(again=again), lambda query: _rows(ask(query)))]
        try:
            results = self._transact(connection, operations, again=again)
        except BaseException:
            if not connection.closed:
                connection.rollback()  # by this word psycopg also forgets what it has not prepared
            raise
        trouble.doubtful = True
        _check_committed(connection.execute("commit"))
        return results

    def _transact(
        self, connection: Connection[Any], operations: Operations, *, again: bool
    ) -> list[Any]:
        """Begin and run operations: all of them ask before the first is answered."""
        ask = self._asking(connection)
        with connection.pipeline():
            connection.execute("begin")
            asked = [
                [(steps, ask(next(steps))) for steps in _started(operation, again=again)]
                for operation in operations
            ]
            return [
                _joined([drive(steps, lambda q: _rows(ask(q)), _rows(a)) for steps, a in parts])
                for parts in asked
            ]

    def _asking(self, connection: Connection[Any]) -> Callable[[Query], Cursor[Any]]:
        return lambda query: connection.cursor().execute(*self._database.bound(query))

    def cut(self) -> None:
        """Cut the connection, from any thread: whoever waits for its answer is told at once."""
        _cut(self._connection)

    def close(self) -> None:
        """Close the connection."""
        if self._connection:
            self._connection.close()
            self._connection = None


class AsyncLane:
    """One connection of an event loop."""

    def __init__(self, database: "PostgresDatabase", *, by_key: bool) -> None:
        self._database = database
        self._by_key = by_key
        self._connection: AsyncConnection[Any] | None = None

    async def serve(self, calls: Sequence[LoopCall | OrphanCall[Any]]) -> None:
        """Run calls together, and one by one if that fails, so that a bad one fails alone."""
        groups = grouped(calls)
        try:
            results = await self.run([group.operation for group in groups])
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for it
            if len(calls) == 1 or isinstance(error, DatabaseUnavailable):
                for call in calls:
                    call.settle(None, error)
                return
        else:
            for group, result in zip(groups, results, strict=True):
                group.settle(result)
                tell(self._database.on_commit, group.operation, result)
            return
        for call in calls:
            await self.serve([call])

    async def run(self, operations: Operations) -> list[Any]:
        """Run operations in one transaction, again and again while that can help."""
        trouble = Trouble(self._database.settings)
        while True:
            try:
                return await self._run(operations, trouble)
            except TowpathError as error:
                told = trouble.shared(error, operations)
                if told is error:
                    raise
                raise told from error
            except psycopg.Error as error:
                if self._connection and self._connection.closed:
                    self._connection = None
                pause = trouble.pause(error, operations)
                with contextlib.suppress(psycopg.Error):
                    if self._connection:
                        await self._connection.rollback()
                await asyncio.sleep(pause)

    async def _run(self, operations: Operations, trouble: "Trouble") -> list[Any]:
        again, trouble.doubtful = trouble.seen, False
        connection = self._connection
        if connection is not None and not _at_rest(connection):
            await connection.close()
            connection = None
        if connection is None:
            self._database.check_open()
            connection = self._connection = await aconnect(
                self._database.url, self._database.settings, by_key=self._by_key
            )
        if len(operations) == 1 and operations[0].whole:
            trouble.doubtful = True
            return [await adrive(operations[0].steps(again=again), self._executing(connection))]
        try:
            results = await self._transact(connection, operations, again=again)
        except BaseException:
            if not connection.closed:
                await connection.rollback()
            raise
        trouble.doubtful = True
        _check_committed(await connection.execute("commit"))
        return results

    async def _transact(
        self, connection: AsyncConnection[Any], operations: Operations, *, again: bool
    ) -> list[Any]:
        """Begin and run operations: all of them ask before the first is answered."""
        execute = self._executing(connection)
        async with connection.pipeline():
            await connection.execute("begin")
            asked = [
                [
                    (steps, await self._ask(connection, next(steps)))
                    for steps in _started(operation, again=again)
                ]
                for operation in operations
            ]
            return [
                _joined([await adrive(steps, execute, await _arows(a)) for steps, a in parts])
                for parts in asked
            ]

    def _executing(
        self, connection: AsyncConnection[Any]
    ) -> Callable[[Query], Awaitable[list[Row]]]:
        async def execute(query: Query) -> list[Row]:
            return await _arows(await self._ask(connection, query))

        return execute

    async def _ask(self, connection: AsyncConnection[Any], query: Query) -> AsyncCursor[Any]:
        return await connection.cursor().execute(*self._database.bound(query))

    def cut(self) -> None:
        """Cut the connection, from any thread: whoever waits for its answer is told at once."""
        _cut(self._connection)

    async def close(self) -> None:
        """Close the connection."""
        if self._connection:
            await self._connection.close()
            self._connection = None

    def abandon(self) -> None:
        """Close the connection's socket without its loop."""
        if self._connection:
            self._connection.pgconn.finish()
            self._connection = None


def _cut(connection: Connection[Any] | AsyncConnection[Any] | None) -> None:
    # Not closed: its number must not go to another file while somebody still waits on it.
    with contextlib.suppress(psycopg.Error, OSError):
        if connection:
            with socket.socket(fileno=os.dup(connection.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)


def _at_rest(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    return connection.closed or connection.pgconn.transaction_status == TransactionStatus.IDLE


def _started(operation: Operation[Any], *, again: bool) -> list[Steps[Any]]:
    """Start an operation, or each of its parts."""
    return [part.steps(again=again) for part in operation.parts or (operation,)]


def _joined(results: list[Any]) -> Any:
    """Return the result of an operation from those of its parts."""
    return results[0] if len(results) == 1 else [answer for part in results for answer in part]


def _rows(cursor: Cursor[Any]) -> list[Row]:
    """Return the rows of a cursor, which may still be on their way."""
    try:
        return cursor.fetchall()
    except psycopg.ProgrammingError as error:
        if _is_without_rows(cursor, error):
            return []
        raise


async def _arows(cursor: AsyncCursor[Any]) -> list[Row]:
    """Return the rows of a cursor, which may still be on their way."""
    try:
        return await cursor.fetchall()
    except psycopg.ProgrammingError as error:
        if _is_without_rows(cursor, error):
            return []
        raise


def _is_without_rows(
    cursor: Cursor[Any] | AsyncCursor[Any], error: psycopg.ProgrammingError
) -> bool:
    # In a pipeline the error may be that of another statement, which the server has named.
    result = cursor.pgresult
    named = error.sqlstate is not None
    return not named and result is not None and result.status == ExecStatus.COMMAND_OK


def _check_committed(cursor: Cursor[Any] | AsyncCursor[Any]) -> None:
    """Raise if the server has answered COMMIT by a rollback, as it does after an error."""
    if cursor.statusmessage != "COMMIT":
        msg = "the transaction was rolled back by the server; nothing was stored"
        raise DatabaseError(msg)
