"""PostgreSQL: a few lanes for threads, and a few for each event loop."""

import asyncio
import time
import weakref
from concurrent.futures import CancelledError
from threading import Lock
from typing import Any, Final, TypeVar

from towpath.database.batch import interrupted
from towpath.database.calls import Inbox, LoopCall, OrphanCall, running_loop
from towpath.database.clock import Clock
from towpath.database.forks import begin_anew_after_fork, keep_inherited
from towpath.database.lanes import Lanes
from towpath.database.postgres import bound, numbered
from towpath.database.postgres_connection import AsyncLane, Lane
from towpath.database.postgres_wire import Sent
from towpath.errors import AppClosed, DatabaseUnavailable
from towpath.operation import Mode, OnCommit, Operation
from towpath.settings import Settings
from towpath.statement import Dialect, Query

T = TypeVar("T")

SHARE: Final = 8  # calls in line that are worth another lane: it works while ours prepare the next


class PostgresDatabase:
    """Runs operations on a PostgreSQL server."""

    def __init__(
        self, url: str, settings: Settings, clock: Clock | None, on_commit: OnCommit
    ) -> None:
        self.url = url
        self.on_commit = on_commit
        self.dialect: Dialect | None = "postgres"
        self.settings = settings
        self._clock = clock
        self._closed = False
        self._start()
        begin_anew_after_fork(self)

    def _start(self) -> None:
        self._all: list[Lane] = []
        self._lanes = self._new_lanes(by_key=True)
        self._scans = self._new_lanes(by_key=False)
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopLanes] = (
            weakref.WeakKeyDictionary()
        )
        self._loops_lock = Lock()

    def _new_lanes(self, *, by_key: bool) -> "Lanes[Lane]":
        lanes = [Lane(self, by_key=by_key) for _ in range(self.settings.lanes)]
        self._all += lanes
        return Lanes(
            lanes, Lane.run, self.settings.batch_size, self.on_commit, (DatabaseUnavailable,)
        )

    def start_again(self) -> None:
        """Begin anew in a forked child, where the parent's connections must not be touched."""
        keep_inherited(self._all, self._lanes, self._scans, self._loops)
        self._start()

    def run(self, operation: Operation[T]) -> T:
        """Run an operation and block until it is committed."""
        self.check_open()
        return (self._lanes if _by_key(operation) else self._scans).run(operation)

    async def arun(self, operation: Operation[T]) -> T:
        """Run an operation and await its commit, which it shares with the others of this tick."""
        self.check_open()
        loop = asyncio.get_running_loop()
        lanes = self._loops.get(loop) or self._lanes_of(loop)
        return await lanes.run(operation)

    def _lanes_of(self, loop: asyncio.AbstractEventLoop) -> "LoopLanes":
        """Make the lanes of a new loop, and drop those of old ones: asyncio.run makes many."""
        with self._loops_lock:
            for old in [old for old in self._loops if old.is_closed()]:
                self._loops.pop(old).abandon()
            lanes = self._loops[loop] = LoopLanes(self)
            return lanes

    def close(self, patience: float) -> None:
        """Finish what is under way, in threads and other loops too, and close every connection.

        What has no answer after so many seconds is given up.
        """
        self._closed = True
        until = time.monotonic() + patience
        self._lanes.close(_left(until))
        self._scans.close(_left(until))
        for lane in self._all:
            lane.close()
        with self._loops_lock:
            loops = list(self._loops.items())
        for loop, of_loop in loops:
            if loop.is_running() and loop is not running_loop():
                of_loop.close_from_outside(_left(until))
            of_loop.abandon()

    async def aquiet(self) -> None:
        """Wait until what this loop has asked for is done, even if nobody waits for it."""
        lanes = self._loops.get(asyncio.get_running_loop())
        if lanes:
            await lanes.quiet()

    def reconnect(self) -> None:
        """Cut every connection: whoever waits for an answer asks again on a new one."""
        with self._loops_lock:
            of_loops = [lane for lanes in self._loops.values() for lane in lanes.lanes()]
        lanes: list[Lane | AsyncLane] = [*self._all, *of_loops]
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

    def check_open(self) -> None:
        """Raise if the app was closed."""
        if self._closed:
            raise AppClosed

    def asked(self, query: Query[Any]) -> Sent:
        """Return a query as it goes over the wire."""
        text, names = numbered(query.statement, self.settings.schema)
        params = bound(query, self._clock)
        return Sent(text, [params[name] for name in names])


class LoopLanes:
    """The connections of one event loop."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls = LoopInbox(database, by_key=True)
        self._scans = LoopInbox(database, by_key=False)

    def lanes(self) -> "list[AsyncLane]":
        """Return all lanes of the loop."""
        return [*self._calls.lanes, *self._scans.lanes]

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation, alone or with those that wait beside it."""
        inbox = self._calls if _by_key(operation) else self._scans
        call = LoopCall(operation, self._loop, inbox.take_over)
        inbox.put(call)
        result: T = await call.answer()
        return result

    async def quiet(self) -> None:
        """Wait until nothing is under way."""
        await self._calls.quiet()
        await self._scans.quiet()

    async def close(self, patience: float) -> None:
        """Close the connections when what is under way has ended, or after so many seconds."""
        until = time.monotonic() + patience
        await self._calls.quiet(_left(until))
        await self._scans.quiet(_left(until))
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
        self._calls.abandon()
        self._scans.abandon()


class LoopInbox:
    """Calls of one event loop, and the lanes that serve them."""

    def __init__(self, database: PostgresDatabase, *, by_key: bool) -> None:
        self._batch_size = database.settings.batch_size
        self._calls: Inbox[LoopCall | OrphanCall[AsyncLane]] = Inbox()
        self._idle = [AsyncLane(database, by_key=by_key) for _ in range(database.settings.lanes)]
        self.lanes = list(self._idle)
        self._starting: set[AsyncLane] = set()  # those that will look here in the next tick
        self._tasks: set[asyncio.Task[None]] = set()
        self._led: dict[AsyncLane, asyncio.Task[None]] = {}

    def take_over(self, operation: Operation[Any]) -> None:
        """Run an operation that nobody waits for."""
        self.put(OrphanCall(operation, lambda _: False))

    def put(self, call: "LoopCall | OrphanCall[AsyncLane]") -> None:
        """Put a call in line; a free lane takes it in the next tick, with its neighbours."""
        self._calls.append(call)
        self._start()

    def _start(self) -> None:
        if self._idle and len(self._calls) > len(self._starting) * SHARE:
            lane = self._idle.pop()
            self._starting.add(lane)
            # A task of its own: a cancelled caller must not abort its neighbours.
            task = asyncio.get_running_loop().create_task(self._lead(lane))
            self._tasks.add(task)
            self._led[lane] = task
            task.add_done_callback(lambda task: self._ended(task, lane))

    async def _lead(self, lane: "AsyncLane") -> None:
        share = -(-len(self._calls) // len(self._starting))
        self._starting.discard(lane)
        batch = self._calls.take(min(share, self._batch_size), [])
        try:
            while batch:
                await lane.serve(batch)
                batch = self._calls.take(self._batch_size, [])
        except BaseException:
            for call in batch:
                call.settle(None, interrupted())
            raise
        self._let_rest(lane)  # at once: who asks again in the next tick finds it still warm

    def _ended(self, task: asyncio.Task[None], lane: "AsyncLane") -> None:
        self._tasks.discard(task)
        if self._led.get(lane) is task:  # somebody has cancelled it
            self._let_rest(lane)

    def _let_rest(self, lane: "AsyncLane") -> None:
        """Let a lane rest, or start it anew for those who wait."""
        del self._led[lane]
        self._starting.discard(lane)
        self._idle.append(lane)
        self._start()

    async def quiet(self, patience: float | None = None) -> None:
        """Wait until nothing is under way, or for so many seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience)

    def abandon(self) -> None:
        """Drop the connections."""
        for lane in self.lanes:
            lane.close()


def _left(until: float) -> float:
    return max(0.0, until - time.monotonic())


def _by_key(operation: Operation[Any]) -> bool:
    """Say whether it finds its rows by key: what reads many has other lanes, with other plans."""
    return operation.mode is not Mode.SCAN
