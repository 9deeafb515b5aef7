"""PostgreSQL: a few connections for all threads, and a few for each event loop."""

import asyncio
import os
import time
import weakref
from concurrent.futures import CancelledError
from threading import Lock
from typing import Any, Final, TypeVar

from psycopg.conninfo import conninfo_to_dict

from towpath.database.borrowed import WHERE, Address
from towpath.database.clock import Clock
from towpath.database.event_loops import running_loop
from towpath.database.forks import begin_anew_after_fork, keep_inherited
from towpath.database.group_commit import Policy
from towpath.database.postgres import Outage, bound, numbered
from towpath.database.postgres_connection import TaskLane, ThreadLane
from towpath.database.postgres_wire import Sent
from towpath.database.task_lanes import TaskLanes
from towpath.database.thread_lanes import ThreadLanes
from towpath.errors import AppClosed, DatabaseUnavailable
from towpath.operation import Mode, OnCommit, Operation, Steps
from towpath.settings import Settings
from towpath.statement import Dialect, Query

T = TypeVar("T")
L = TypeVar("L")

APPENDS: Final = 1  # lanes for channels: two would wait for each other's rows


class PostgresDatabase:
    """Runs operations on a PostgreSQL server."""

    def __init__(
        self, url: str, settings: Settings, clock: Clock | None, on_commit: OnCommit
    ) -> None:
        self.url = url
        self.dialect: Dialect | None = "postgres"
        self.settings = settings
        self.policy = Policy(
            batch_size=settings.batch_size,
            batch_bytes=settings.batch_bytes,
            on_commit=on_commit,
            shared_errors=(DatabaseUnavailable,),
        )
        self._clock = clock
        self._closed = False
        self._place: str | None = None
        self.address = _address(url)
        self._start()
        begin_anew_after_fork(self)

    def _start(self) -> None:
        self.outage = Outage()
        self._all: list[ThreadLane] = []
        self._lanes = self._new_lanes(self.settings.lanes)
        self._scans = self._new_lanes(self.settings.lanes, by_key=False)
        self._appends = self._new_lanes(APPENDS)
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopConnections] = (
            weakref.WeakKeyDictionary()
        )
        self._loops_lock = Lock()

    def _new_lanes(self, number: int, *, by_key: bool = True) -> ThreadLanes[ThreadLane]:
        lanes = [ThreadLane(self, by_key=by_key) for _ in range(number)]
        self._all += lanes
        return ThreadLanes(lanes, ThreadLane.run, self.policy)

    def start_again(self) -> None:
        """Start again in a forked child, which must not touch the parent's connections."""
        keep_inherited(self._all, self._lanes, self._scans, self._appends, self._loops)
        self._start()

    def run(self, operation: Operation[T]) -> T:
        """Run an operation and block until it is committed."""
        self.check_open()
        return _chosen(operation, self._lanes, self._scans, self._appends).run(operation)

    async def arun(self, operation: Operation[T]) -> T:
        """Run an operation and await its commit, which it shares with the others of this tick."""
        self.check_open()
        loop = asyncio.get_running_loop()
        lanes = self._loops.get(loop) or self._lanes_of(loop)
        return await lanes.run(operation)

    def _lanes_of(self, loop: asyncio.AbstractEventLoop) -> "LoopConnections":
        """Make the lanes of a new loop, and drop those of old ones: asyncio.run makes many."""
        with self._loops_lock:
            for old in [old for old in self._loops if old.is_closed()]:
                self._loops.pop(old).abandon()
            lanes = self._loops[loop] = LoopConnections(self)
            return lanes

    def close(self, patience: float) -> None:
        """Finish what is under way, in threads and other loops too, and close every connection.

        Calls that have no answer after so many seconds are given up.
        """
        self._closed = True
        until = time.monotonic() + patience
        for lanes in (self._lanes, self._scans, self._appends):
            lanes.close(_left(until))
        for lane in self._all:
            lane.close()
        with self._loops_lock:
            loops = list(self._loops.items())
        for loop, of_loop in loops:
            if loop.is_running() and loop is not running_loop():
                of_loop.close_from_outside(_left(until))
            of_loop.abandon()

    async def aquiet(self) -> None:
        """Wait until all calls of this loop are done, even those without a caller."""
        lanes = self._loops.get(asyncio.get_running_loop())
        if lanes:
            await lanes.quiet()

    def reconnect(self) -> None:
        """Cut every connection: calls that wait for an answer run again on a new one."""
        with self._loops_lock:
            of_loops = [lane for lanes in self._loops.values() for lane in lanes.lanes()]
        lanes: list[ThreadLane | TaskLane] = [*self._all, *of_loops]
        for lane in lanes:
            lane.cut()

    async def aclose(self, patience: float) -> None:
        """Finish what is under way and close every connection."""
        self._closed = True
        until = time.monotonic() + patience
        with self._loops_lock:
            lanes = self._loops.pop(asyncio.get_running_loop(), None)
        if lanes:
            await lanes.close(patience)
        await asyncio.to_thread(self.close, _left(until))

    def leads_here(self, place: str) -> bool:
        """Say whether a caller's connection leads to this database; see `borrowed.WHERE`."""
        if place != self._place:  # unknown yet, or the server was started again
            self._place = self.run(Operation("where", _where, Mode.READ))
        return place == self._place

    def check_open(self) -> None:
        """Raise if the app was closed."""
        if self._closed:
            raise AppClosed

    def asked(self, query: Query[Any]) -> Sent:
        """Return a query as it goes over the wire."""
        text, names = numbered(query.statement, self.settings.schema)
        params = bound(query, self._clock)
        return Sent(text, [params[name] for name in names])


class LoopConnections:
    """The connections of one event loop."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls = _task_lanes(database, database.settings.lanes)
        self._scans = _task_lanes(database, database.settings.lanes, by_key=False)
        self._appends = _task_lanes(database, APPENDS)
        self._all = (self._calls, self._scans, self._appends)

    def lanes(self) -> list[TaskLane]:
        """Return all lanes of the loop."""
        return [lane for lanes in self._all for lane in lanes.lanes]

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation, alone or with the calls that wait beside it."""
        lanes = _chosen(operation, self._calls, self._scans, self._appends)
        return await lanes.arun(operation)

    async def quiet(self) -> None:
        """Wait until nothing is under way."""
        for lanes in self._all:
            await lanes.quiet()

    async def close(self, patience: float) -> None:
        """Close the connections when what is under way has ended, or after so many seconds."""
        until = time.monotonic() + patience
        for lanes in self._all:
            await lanes.quiet(_left(until))
        self.abandon()

    def close_from_outside(self, patience: float) -> None:
        """Have the loop close its connections, and wait a while for that."""
        closing = self.close(patience)
        try:
            asyncio.run_coroutine_threadsafe(closing, self._loop).result(patience)
        except RuntimeError:  # the loop has closed meanwhile
            closing.close()
        except (TimeoutError, CancelledError):
            return

    def abandon(self) -> None:
        """Drop the connections of a loop that may be gone."""
        for lane in self.lanes():
            lane.close()


def _address(url: str) -> Address:
    parts = conninfo_to_dict(url)
    host = parts.get("host") or os.environ.get("PGHOST", "")
    port = parts.get("port") or os.environ.get("PGPORT", "5432")
    return str(host), str(port), str(parts.get("dbname") or "")


def _where() -> Steps[str]:
    [[place]] = yield WHERE()
    return str(place)


def _left(until: float) -> float:
    return max(0.0, until - time.monotonic())


def _task_lanes(
    database: PostgresDatabase, number: int, *, by_key: bool = True
) -> TaskLanes[TaskLane]:
    lanes = [TaskLane(database, by_key=by_key) for _ in range(number)]
    return TaskLanes(lanes, TaskLane.run, database.policy)


def _chosen(operation: Operation[Any], calls: L, scans: L, appends: L) -> L:
    """Return the lanes of an operation.

    Long reads have lanes of their own, with other plans. So have writes to channels: one that waits
    for another process to commit must not keep reservations and heartbeats waiting.
    """
    if operation.mode is Mode.SCAN:
        return scans
    return appends if operation.mode is Mode.APPEND else calls
