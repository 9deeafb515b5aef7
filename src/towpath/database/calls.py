"""Calls: operations on their way to a lane, and whoever waits for them."""

import asyncio
from asyncio import _get_running_loop  # the public one costs an exception where none runs
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from towpath.database.batch import Call
from towpath.operation import Operation

L = TypeVar("L")
C = TypeVar("C", bound=Call)


class ThreadCall(Generic[L]):
    """A call whose thread waits."""

    __slots__ = ("_take_over", "error", "operation", "result", "settled", "signals", "withdrawn")

    def __init__(
        self, operation: Operation[Any], take_over: Callable[[Operation[Any]], None]
    ) -> None:
        self.operation = operation
        self._take_over = take_over
        self.signals: SimpleQueue[L | None] = SimpleQueue()
        self.settled = False
        self.withdrawn = False  # the thread was interrupted
        self.result: object = None
        self.error: BaseException | None = None

    def settle(self, result: object, error: BaseException | None) -> None:
        """Wake the thread with what came of it."""
        if not self.settled:
            self.result, self.error, self.settled = result, error, True
            self.signals.put(None)
            if self.withdrawn:
                self.undo()

    def undo(self) -> None:
        """Undo what was done for nobody. Twice does no harm: what is undone is fenced."""
        if self.settled and self.error is None and self.operation.undo:
            self._take_over(self.operation.undo(self.result))

    def is_abandoned(self) -> bool:
        """Say that somebody waits: a thread that is interrupted takes its call out of line."""
        return False

    def lead(self, lane: L) -> bool:
        """Ask the thread to lead."""
        self.signals.put(lane)
        return True


class LoopCall:
    """A call that a task awaits."""

    __slots__ = ("future", "loop", "operation", "take_over")

    def __init__(
        self,
        operation: Operation[Any],
        loop: asyncio.AbstractEventLoop,
        take_over: Callable[[Operation[Any]], None],
    ) -> None:
        self.operation = operation
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.take_over = take_over

    async def answer(self) -> Any:
        """Wait for the answer; one that comes together with a cancellation is undone."""
        try:
            return await self.future
        except asyncio.CancelledError:
            if not self.future.cancelled():
                error = self.future.exception()
                self._undo(None if error else self.future.result(), error)
            raise

    def settle(self, result: object, error: BaseException | None) -> None:
        """Finish the future, in its own loop."""
        if running_loop() is self.loop:
            self._finish(result, error)
        else:
            try:
                self.loop.call_soon_threadsafe(self._finish, result, error)
            except RuntimeError:  # the loop has closed, nobody waits
                self._undo(result, error)

    def is_abandoned(self) -> bool:
        """Say whether nobody waits any more."""
        return self.future.cancelled()

    def _finish(self, result: object, error: BaseException | None) -> None:
        if self.future.cancelled():
            self._undo(result, error)
        elif not self.future.done():
            if error is None:
                self.future.set_result(result)
            else:
                self.future.set_exception(error)

    def _undo(self, result: object, error: BaseException | None) -> None:
        if error is None and self.operation.undo:
            self.take_over(self.operation.undo(result))


class LeadingLoopCall(LoopCall):
    """A call that a task awaits whose loop can lead a lane."""

    __slots__ = ("_look",)

    def __init__(
        self,
        operation: Operation[Any],
        loop: asyncio.AbstractEventLoop,
        take_over: Callable[[Operation[Any]], None],
        look: Callable[[], None],
    ) -> None:
        super().__init__(operation, loop, take_over)
        self._look = look

    def ask(self) -> bool:
        """Ask the loop to look for a lane to lead; say whether it may do so."""
        if not self.loop.is_running():
            return False
        try:
            self.loop.call_soon_threadsafe(self._look)
        except RuntimeError:  # closed
            return False
        return True


class OrphanCall(Generic[L]):
    """A call that nobody waits for."""

    __slots__ = ("_take_lead", "operation")

    def __init__(self, operation: Operation[Any], take_lead: Callable[[L], bool]) -> None:
        self.operation = operation
        self._take_lead = take_lead

    def settle(self, result: object, error: BaseException | None) -> None:
        """Tell nobody."""

    def is_abandoned(self) -> bool:
        """Say that it is to be done all the same."""
        return False

    def lead(self, lane: L) -> bool:
        """Have it led."""
        return self._take_lead(lane)


class Inbox(deque[C]):
    """Calls in line."""

    def take(self, most: int, batch: list[C], *, one_writer: bool = False) -> list[C]:
        """Move calls that may share a commit into a batch; calls that were given up are dropped.

        An operation that is not repeatable is alone: after a lost answer it cannot be repeated
        for the others. So is one that takes contended locks where several write: the locks of two
        could deadlock. Calls that merge with it into one operation share its transaction.
        """
        size = 0
        while self and size < most:
            call = self[0]
            operation = call.operation
            if batch and not _share(batch[0].operation, operation, one_writer=one_writer):
                break
            if not call.is_abandoned():
                batch.append(call)  # first there, so that an interrupt loses none
                size += len(operation.batch.items) or 1
            self.popleft()
        return batch


def _share(first: Operation[Any], other: Operation[Any], *, one_writer: bool) -> bool:
    if first.merge is not None and first.merge is other.merge:
        return True
    are_repeatable = first.is_repeatable and other.is_repeatable
    return are_repeatable and (one_writer or not (first.locks or other.locks))


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop of this thread, if one runs."""
    return _get_running_loop()
