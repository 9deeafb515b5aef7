"""Lanes: connections that take turns at one inbox, so that concurrent calls share commits.

Whoever finds a lane free leads it: takes all that has gathered, runs it in its own thread or loop
tick, and hands the lane to the next one waiting. No timer adds latency and no thread stands between
a lone caller and its database. Callers wait for their own commit; that is the back-pressure.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Generic, TypeVar

from towpath.database.batch import run_batch
from towpath.errors import AppClosed
from towpath.operation import Operation

L = TypeVar("L")
T = TypeVar("T")


class ThreadCall(Generic[L]):
    """A call whose thread waits."""

    __slots__ = ("error", "operation", "result", "settled", "signals")

    def __init__(self, operation: Operation[Any]) -> None:
        self.operation = operation
        self.signals: SimpleQueue[L | None] = SimpleQueue()
        self.settled = False
        self.result: object = None
        self.error: BaseException | None = None

    def settle(self, result: object, error: BaseException | None) -> None:
        """Wake the thread with what came of it."""
        if not self.settled:
            self.result, self.error, self.settled = result, error, True
            self.signals.put(None)

    def lead(self, lane: L) -> bool:
        """Ask the thread to lead."""
        self.signals.put(lane)
        return True


class LoopCall(Generic[L]):
    """A call that a task awaits."""

    __slots__ = ("future", "loop", "operation", "take_lead", "take_over")

    def __init__(
        self,
        operation: Operation[Any],
        loop: asyncio.AbstractEventLoop,
        take_lead: Callable[[L], None],
        take_over: Callable[[Operation[Any]], None],
    ) -> None:
        self.operation = operation
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.take_lead = take_lead
        self.take_over = take_over

    async def answer(self) -> Any:
        """Wait for the answer; one that comes together with a cancellation is undone."""
        try:
            return await self.future
        except asyncio.CancelledError:
            if not self.future.cancelled():
                self._undo(*outcome(self.future))
            raise

    def settle(self, result: object, error: BaseException | None) -> None:
        """Finish the future, in its own loop."""
        if running_loop() is self.loop:
            self._finish(result, error)
        else:
            with contextlib.suppress(RuntimeError):  # the loop has closed, nobody waits
                self.loop.call_soon_threadsafe(self._finish, result, error)

    def _finish(self, result: object, error: BaseException | None) -> None:
        if self.future.cancelled():
            self._undo(result, error)
        elif not self.future.done():
            if error is None:
                self.future.set_result(result)
            else:
                self.future.set_exception(error)

    def is_asleep(self) -> bool:
        """Say whether the loop stands still, though it may go on."""
        return not self.loop.is_running() and not self.loop.is_closed()

    def _undo(self, result: object, error: BaseException | None) -> None:
        if error is None and self.operation.abandon:
            self.take_over(self.operation.abandon(result))

    def lead(self, lane: L) -> bool:
        """Ask the loop to lead, unless it has closed or may do so because nobody waits there."""
        if self.future.cancelled():
            return False
        try:
            self.loop.call_soon_threadsafe(self.take_lead, lane)
        except RuntimeError:
            return False
        return True


class OrphanCall(Generic[L]):
    """A call that nobody waits for."""

    __slots__ = ("operation", "take_lead")

    def __init__(self, operation: Operation[Any], take_lead: Callable[[L], None]) -> None:
        self.operation = operation
        self.take_lead = take_lead

    def settle(self, result: object, error: BaseException | None) -> None:
        """Tell whoever listens."""
        if error is None and self.operation.told:
            self.operation.told(result)

    def lead(self, lane: L) -> bool:
        """Have it led, unless all is closing."""
        try:
            self.take_lead(lane)
        except RuntimeError:
            return False
        return True


AnyCall = ThreadCall[L] | LoopCall[L] | OrphanCall[L]


class Lanes(Generic[L]):
    """Some lanes and their inbox, for threads and event loops alike."""

    def __init__(
        self,
        lanes: list[L],
        run: Callable[[L, list[Operation[Any]]], list[Any]],
        batch_size: int,
        nobodys: tuple[type[Exception], ...] = (),
    ) -> None:
        self._idle = lanes
        self._number = len(lanes)
        self._run = run
        self._batch_size = batch_size
        self._nobodys = nobodys  # errors that are no one call's fault
        self._inbox: deque[AnyCall[L]] = deque()
        self._mutex = Lock()
        self._closed = False

    def run(self, operation: Operation[T], *, last: bool = False) -> T:
        """Run an operation, alone or with those that wait beside it."""
        resting = None if last else self._take_resting()
        if resting is not None:  # the short way: nobody to share with, nobody to wait for
            try:
                result: T = self._run(resting, [operation])[0]
            finally:
                self.hand_on(resting)
            return result
        call: ThreadCall[L] = ThreadCall(operation)
        lane = self.put(call, last=last)
        try:
            while lane is not None or (lane := call.signals.get()) is not None:
                # Several lanes may ask before one serves the call; none may be left lying.
                asking, lane = lane, None
                if call.settled:
                    self.hand_on(asking)
                else:
                    self.lead(asking)
        except BaseException:
            self._withdraw(call)
            raise
        if call.error is not None:
            raise call.error
        return call.result  # type: ignore[return-value] # settle was given the operation's own

    def _take_resting(self) -> L | None:
        with self._mutex:
            resting = self._idle and not self._inbox and not self._closed
            return self._idle.pop() if resting else None

    def put(self, call: AnyCall[L], *, last: bool = False) -> L | None:
        """Put a call into the inbox; return a lane if the caller is to lead it."""
        with self._mutex:
            if self._closed:
                msg = "this app was closed; make a new one"
                raise AppClosed(msg)
            self._closed = last
            self._inbox.append(call)
            return self._idle.pop() if self._idle else None

    def close(self, patience: float) -> None:
        """Let nobody in any more, and wait a while for all lanes to rest."""
        with self._mutex:
            self._closed = True
        deadline = time.monotonic() + patience
        while len(self._idle) < self._number and time.monotonic() < deadline:
            time.sleep(0.001)

    def _withdraw(self, call: ThreadCall[L]) -> None:
        """Take an interrupted thread out of line, and pass on what it was asked to lead."""
        with self._mutex, contextlib.suppress(ValueError):
            self._inbox.remove(call)
        with contextlib.suppress(Empty):
            while True:
                lane = call.signals.get_nowait()
                if lane is not None:
                    self.hand_on(lane)

    def lead(self, lane: L, after: Callable[[], None] = lambda: None) -> None:
        """Serve what has gathered, then hand the lane on; `after` comes between the two."""
        batch = self.take()
        try:
            if batch:
                run_batch(batch, lambda operations: self._run(lane, operations), self._nobodys)
        except BaseException as error:
            for call in batch:
                call.settle(None, error)
            raise
        finally:
            try:
                after()
            finally:
                self.hand_on(lane)

    def take(self) -> list[AnyCall[L]]:
        """Take a batch out of the inbox, without those that nobody waits for any more."""
        batch: list[AnyCall[L]] = []
        size = 0
        with self._mutex:
            while self._inbox and size < self._batch_size:
                alone = not self._inbox[0].operation.repeatable
                if alone and batch:
                    break  # its answer may be lost, and it cannot be said again for the others
                call = self._inbox.popleft()
                if isinstance(call, LoopCall) and call.future.cancelled():
                    continue
                batch.append(call)
                size += len(call.operation.items) or 1
                if alone:
                    break
        return batch

    def hand_on(self, lane: L) -> None:
        """Let the next one lead, or let the lane rest."""
        with self._mutex:
            while self._inbox:
                first = self._inbox[0]
                if isinstance(first, LoopCall) and first.is_asleep():
                    # Its loop stands still and may never tick again: others are waiting behind it.
                    Thread(target=self.lead, args=(lane,), name="towpath-lane", daemon=True).start()
                    return
                if first.lead(lane):
                    return
                self._inbox.popleft()
            self._idle.append(lane)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop of this thread, if one runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def outcome(future: asyncio.Future[Any]) -> tuple[object, BaseException | None]:
    """Return the result of a finished future, or its error."""
    error = future.exception()
    return (None, error) if error else (future.result(), None)
