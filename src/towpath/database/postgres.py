"""PostgreSQL, through psycopg: a few lanes for threads, and a few for each event loop."""

import asyncio
import contextlib
import random
import re
import time
import weakref
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import CancelledError
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec
import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus

from towpath.database.batch import grouped
from towpath.database.clock import Clock
from towpath.database.forks import begin_anew_after_fork, keep_inherited
from towpath.database.lanes import Lanes, outcome, running_loop
from towpath.errors import (
    AppClosed,
    DatabaseBusy,
    DatabaseDenied,
    DatabaseError,
    DatabaseFull,
    DatabaseReadOnly,
    DatabaseUnavailable,
    SchemaMissing,
)
from towpath.operation import Mode, Operation, Row, adrive, drive
from towpath.settings import Settings
from towpath.statement import Dialect, Query, Statement

T = TypeVar("T")

# Our statements find rows by key, a batch at a time. A plan made while the tables were small would
# read them whole, and a prepared statement keeps its plan: so we ask for the one that stays right.
BY_KEY: Final = (
    "select set_config(name, value, false) from (values ('plan_cache_mode', 'force_generic_plan'),"
    " ('enable_seqscan', 'off'), ('enable_hashjoin', 'off'), ('enable_mergejoin', 'off'),"
    " ('jit', 'off')) as wished(name, value)"
)
AT_LARGE: Final = (
    "select set_config(name, 'on', true) from (values ('enable_seqscan'), ('enable_hashjoin'),"
    " ('enable_mergejoin')) as wished(name), set_config('plan_cache_mode', 'auto', true)"
)
PATIENCE: Final = 5.0  # seconds that a close waits for what is under way
RETRIES: Final = 10  # of a transaction that lost against another
_AGAIN: Final = {"40001", "40P01"}  # serialization failure, deadlock
_GONE: Final = ("08", "57P", "58")  # connection trouble, shutdown, system error
_ERRORS: Final[Mapping[str, type[DatabaseError]]] = {
    "25006": DatabaseReadOnly,
    "28000": DatabaseDenied,
    "28P01": DatabaseDenied,
    "42501": DatabaseDenied,
    "3D000": DatabaseUnavailable,
    "3F000": SchemaMissing,
    "42P01": SchemaMissing,
    "53100": DatabaseFull,
    "53300": DatabaseUnavailable,
    "55P03": DatabaseBusy,
    "57014": DatabaseBusy,
}
# libpq gives no code for a refusal before the connection stands, only its words.
_DENIED: Final = re.compile(
    r"authentication failed|no password supplied|pg_hba|role .* does not exist"
)
_NO_DATABASE: Final = re.compile(r"database .* does not exist")
_HOPELESS: Final = re.compile(r"database .* does not exist|invalid|missing")
_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z]\w*)")
_JSON_PARAMETER: Final = re.compile(r"cast\((:[a-z]\w*) as json\)")


Operations = Sequence[Operation[Any]]


class PostgresDatabase:
    """Runs operations on a PostgreSQL server."""

    def __init__(self, url: str, settings: Settings, clock: Clock | None = None) -> None:
        self.url = url
        self.dialect: Dialect | None = "postgres"
        self.settings = settings
        self._clock = clock
        self._closed = False
        self._start()
        begin_anew_after_fork(self)

    def _start(self) -> None:
        lanes = [Lane(self) for _ in range(self.settings.lanes)]
        self._all = list(lanes)
        self._lanes: Lanes[Lane] = Lanes(
            lanes, Lane.run, self.settings.batch_size, (DatabaseUnavailable,)
        )
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopLanes] = (
            weakref.WeakKeyDictionary()
        )

    def start_again(self) -> None:
        """Begin anew in a forked child, where the parent's connections must not be touched."""
        keep_inherited(self._all, self._lanes, self._loops)
        self._start()

    def run(self, operation: Operation[T]) -> T:
        """Run an operation and block until it is committed."""
        self.check_open()
        return self._lanes.run(operation)

    async def arun(self, operation: Operation[T]) -> T:
        """Run an operation and await its commit."""
        self.check_open()
        loop = asyncio.get_running_loop()
        lanes = self._loops.get(loop)
        if lanes is None:
            for old in [old for old in self._loops if old.is_closed()]:
                self._loops.pop(old).abandon()  # asyncio.run makes a new loop each time
            lanes = self._loops[loop] = LoopLanes(self)
        return await lanes.run(operation)

    def close(self) -> None:
        """Finish what is under way, in threads and other loops too, and close every connection."""
        self._closed = True
        self._lanes.close(PATIENCE)
        for lane in self._all:
            lane.close()
        for loop, lanes in list(self._loops.items()):
            if loop.is_running() and loop is not running_loop():
                lanes.close_from_outside(PATIENCE)
            lanes.abandon()

    async def aclose(self) -> None:
        """Finish what is under way and close every connection."""
        self._closed = True
        lanes = self._loops.pop(asyncio.get_running_loop(), None)
        if lanes:
            await lanes.close()
        await asyncio.to_thread(self.close)

    def check_open(self) -> None:
        """Raise if the app was closed."""
        if self._closed:
            msg = "this app was closed; make a new one"
            raise AppClosed(msg)

    def bound(self, query: Query) -> tuple[bytes, dict[str, Any]]:
        """Return a query as psycopg takes it."""
        return rendered(query.statement, self.settings.schema), bound(query, self._clock)


class Lane:
    """One connection of the threads."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._connection: Connection[Any] | None = None

    def run(self, operations: Operations) -> list[Any]:
        """Run operations in one transaction, again and again while that can help."""
        trouble = Trouble(self._database.settings)
        while True:
            try:
                return self._run(operations, trouble)
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
            connection = self._connection = connect(self._database.url, self._database.settings)
        cursor = connection.cursor()

        def execute(query: Query) -> list[Row]:
            cursor.execute(*self._database.bound(query))
            return cursor.fetchall() if cursor.description else []

        if len(operations) == 1 and _by_itself(operations[0]):
            trouble.doubtful = True
            return [drive(operations[0].steps(again=again), execute)]
        cursor.execute("begin")
        if any(operation.mode is Mode.SCAN for operation in operations):
            cursor.execute(AT_LARGE)
        try:
            results = [drive(operation.steps(again=again), execute) for operation in operations]
        except BaseException:
            if not connection.closed:
                cursor.execute("rollback")
            raise
        trouble.doubtful = True
        cursor.execute("commit")
        return results

    def close(self) -> None:
        """Close the connection."""
        if self._connection:
            self._connection.close()
            self._connection = None


class LoopLanes:
    """The connections of one event loop, and their inbox."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[LoopCall] = deque()
        self._idle = [AsyncLane(database) for _ in range(database.settings.lanes)]
        self._all = list(self._idle)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation, alone or with those that wait beside it."""
        call = LoopCall(operation, self)
        self.put(call)
        result: T = await call.answer()
        return result

    def put(self, call: "LoopCall") -> None:
        """Put a call into the inbox; a free lane takes it in the next tick, with its neighbours."""
        self._inbox.append(call)
        if self._idle:
            # A task of its own: a cancelled caller must not abort its neighbours.
            task = self._loop.create_task(self._lead(self._idle.pop()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _lead(self, lane: "AsyncLane") -> None:
        try:
            while batch := self._take():
                await lane.serve(batch)
        finally:
            self._idle.append(lane)

    def _take(self) -> list["LoopCall"]:
        batch: list[LoopCall] = []
        size = 0
        while self._inbox and size < self._database.settings.batch_size:
            alone = not self._inbox[0].operation.repeatable
            if alone and batch:
                break  # its answer may be lost, and it cannot be said again for the others' sake
            call = self._inbox.popleft()
            if call.future.cancelled():
                continue
            batch.append(call)
            size += len(call.operation.items) or 1
            if alone:
                break
        return batch

    async def close(self) -> None:
        """Close the connections when what is under way has ended."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        for lane in self._all:
            await lane.close()

    def close_from_outside(self, patience: float) -> None:
        """Have the loop close its connections, and wait a while for that."""
        closing = self.close()
        try:
            asyncio.run_coroutine_threadsafe(closing, self._loop).result(patience)
        except RuntimeError:  # the loop has closed meanwhile
            closing.close()
        except (TimeoutError, CancelledError):
            return

    def abandon(self) -> None:
        """Drop the connections of a loop that may be gone."""
        for lane in self._all:
            lane.abandon()


class LoopCall:
    """An operation that a task awaits."""

    __slots__ = ("_lanes", "future", "operation")

    def __init__(self, operation: Operation[Any], lanes: LoopLanes) -> None:
        self.operation = operation
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._lanes = lanes

    async def answer(self) -> Any:
        """Wait for the answer; one that comes together with a cancellation is undone."""
        try:
            return await self.future
        except asyncio.CancelledError:
            if not self.future.cancelled():
                self._undo(*outcome(self.future))
            raise

    def _undo(self, result: object, error: BaseException | None) -> None:
        if error is None and self.operation.abandon:
            self._lanes.put(LoopCall(self.operation.abandon(result), self._lanes))

    def settle(self, result: object, error: BaseException | None) -> None:
        """Finish the future; what nobody waits for any more is undone if it can be."""
        if self.future.cancelled():
            self._undo(result, error)
        elif error is None:
            self.future.set_result(result)
            if self.operation.told:
                self.operation.told(result)
        else:
            self.future.set_exception(error)
            self.future.exception()  # seen: an abandoned call's error is nobody's


class AsyncLane:
    """One connection of an event loop."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._connection: AsyncConnection[Any] | None = None

    async def serve(self, calls: Sequence[LoopCall]) -> None:
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
            return
        for call in calls:
            await self.serve([call])

    async def run(self, operations: Operations) -> list[Any]:
        """Run operations in one transaction, again and again while that can help."""
        trouble = Trouble(self._database.settings)
        while True:
            try:
                return await self._run(operations, trouble)
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
                self._database.url, self._database.settings
            )
        cursor = connection.cursor()

        async def execute(query: Query) -> list[Row]:
            await cursor.execute(*self._database.bound(query))
            return await cursor.fetchall() if cursor.description else []

        if len(operations) == 1 and _by_itself(operations[0]):
            trouble.doubtful = True
            return [await adrive(operations[0].steps(again=again), execute)]
        await cursor.execute("begin")
        if any(operation.mode is Mode.SCAN for operation in operations):
            await cursor.execute(AT_LARGE)
        try:
            results = [await adrive(each.steps(again=again), execute) for each in operations]
        except BaseException:
            if not connection.closed:
                await cursor.execute("rollback")
            raise
        trouble.doubtful = True
        await cursor.execute("commit")
        return results

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


class Trouble:
    """What to do about an error: wait and try again, or give up."""

    def __init__(self, settings: Settings) -> None:
        self._patience = settings.connect_timeout
        self._tries = 0
        self._since: float | None = None
        self.seen = False
        self.doubtful = False  # it may have been done: the commit was on its way

    def pause(self, error: psycopg.Error, operations: Operations) -> float:
        """Return how long to wait before the next try, or raise."""
        ours = translated(error)
        self._tries += 1
        if error.sqlstate in _AGAIN and self._tries <= RETRIES:
            self.seen = True  # an earlier statement of it may have been committed by itself
            return random.uniform(0, 0.01 * self._tries)  # noqa: S311 - jitter
        if not _passing(error, ours):
            raise ours from error
        writes = any(operation.mode is Mode.WRITE for operation in operations)
        if writes and self.doubtful and not all(each.repeatable for each in operations):
            msg = f"the answer was lost: {error}. It may have been done; look before you try again."
            raise DatabaseUnavailable(msg) from error
        self.seen = True
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since > self._patience:
            raise ours from error
        return min(0.05 * 2.0 ** min(self._tries, 6), 1.0) * random.uniform(0.5, 1)  # noqa: S311


def _at_rest(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    return connection.closed or connection.pgconn.transaction_status == TransactionStatus.IDLE


def _by_itself(operation: Operation[Any]) -> bool:
    """Say whether it needs no BEGIN and COMMIT around it."""
    return operation.whole and operation.mode is not Mode.SCAN


def _passing(error: psycopg.Error, ours: DatabaseError) -> bool:
    """Say whether time may heal it."""
    if not isinstance(ours, DatabaseUnavailable):
        return False
    return error.sqlstate is not None or not _HOPELESS.search(str(error))


def translated(error: BaseException) -> DatabaseError:
    """Return a driver's error as ours."""
    code: str = getattr(error, "sqlstate", None) or ""
    ours = _ERRORS.get(code)
    if ours is None:
        if code.startswith(_GONE):
            ours = DatabaseUnavailable
        elif not code and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            ours = DatabaseDenied if _DENIED.search(str(error)) else DatabaseUnavailable
        else:
            ours = DatabaseError
    text = str(error).strip()
    if code == "3D000" or _NO_DATABASE.search(text):
        return DatabaseUnavailable(f"{text}. Correct the URL, or create it: createdb.")
    return ours(f"{text}. {(ours.__doc__ or '').splitlines()[0]}")


def connect(url: str, settings: Settings) -> Connection[Any]:
    """Open a connection that keeps no session state of ours."""
    connection = psycopg.connect(url, autocommit=True, **_connect_options(settings))
    if behind_a_pooler(connection, connection.execute("select pg_backend_pid()").fetchone()):
        connection.prepare_threshold = None
    else:
        connection.execute(BY_KEY)
    return connection


async def aconnect(url: str, settings: Settings) -> AsyncConnection[Any]:
    """Open a connection that keeps no session state of ours."""
    connection = await AsyncConnection.connect(url, autocommit=True, **_connect_options(settings))
    cursor = await connection.execute("select pg_backend_pid()")
    if behind_a_pooler(connection, await cursor.fetchone()):
        connection.prepare_threshold = None
    else:
        await connection.execute(BY_KEY)
    return connection


def behind_a_pooler(connection: Connection[Any] | AsyncConnection[Any], row: Row | None) -> bool:
    """Say whether PgBouncer or the like stands between: it answers with a process id of its own."""
    return row is not None and row[0] != connection.info.backend_pid


def _connect_options(settings: Settings) -> dict[str, Any]:
    return {
        "connect_timeout": max(2, int(min(settings.connect_timeout, 10))),
        "application_name": "towpath",
        # A cut cable is noticed in half a minute instead of hours.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 25_000,  # keepalives rest while a statement is on its way
    }


@lru_cache(1024)
def rendered(statement: Statement, schema: str) -> bytes:
    """Return a statement's text as psycopg takes it."""
    text = qualified(statement, schema).replace("%", "%%")
    return _PARAMETER.sub(r"%(\1)s", text).encode()


@lru_cache(1024)
def numbered(statement: Statement, schema: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement's text with $1, $2 …, and the names they stand for."""
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"${names.setdefault(match[1], len(names) + 1)}"

    # As text, for many an asyncpg connection has a JSON codec that would encode it once more.
    text = qualified(statement, schema)
    text = _JSON_PARAMETER.sub(r"cast(cast(\1 as text) as json)", text)
    return _PARAMETER.sub(number, text), tuple(names)


def qualified(statement: Statement, schema: str) -> str:
    """Return a statement's text with our schema's name."""
    text = statement.text("postgres").rstrip("; \n")
    return text.replace("towpath.", f'"{schema}".').replace("{schema}", f'"{schema}"')


def bound(query: Query, clock: Clock | None) -> dict[str, Any]:
    """Return a query's parameters; sequences travel as one JSON text."""
    params = {
        name: msgspec.json.encode(value).decode() if isinstance(value, list | tuple) else value
        for name, value in query.params.items()
    }
    if query.items is not None:
        params["items"] = msgspec.json.encode(query.items).decode()
    params["now"] = clock() if clock else None
    return params


@contextlib.contextmanager
def translating(*errors: type[Exception]) -> Generator[None]:
    """Raise a driver's errors as ours."""
    try:
        yield
    except errors as error:
        raise translated(error) from error
