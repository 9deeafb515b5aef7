"""Group commit: calls that come at the same time share one transaction.

A *lane* is a connection. A *call* is an operation and the caller that waits for it. A caller that
finds a lane at rest runs its operation there at once, without a queue, a thread or a future.
Otherwise its call waits in the inbox, and the next *leader* takes all calls that have gathered: it
runs them in one transaction, answers every caller, and hands the lane on. The callers whose calls
it takes are its *followers*. A lane has one leader at a time, which is one of these:

- a thread that waits for a call of its own, and leads instead of waiting (`thread_lanes.py`);
- an event loop, in its next tick, so that the calls of this tick share the commit (same file);
- a task, where the connection belongs to an event loop (`task_lanes.py`).

No timer adds latency. Callers wait for their own commit: that is the back-pressure.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import islice
from queue import SimpleQueue
from threading import Lock, get_ident
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from towpath.database.event_loops import running_loop
from towpath.errors import AppClosed, DatabaseUnavailable
from towpath.operation import Changed, OnCommit, Operation, has_changed, value_of

log: Final = logging.getLogger("towpath")

L = TypeVar("L")
T = TypeVar("T")
Operations = Sequence[Operation[Any]]

SHARE: Final = 8  # calls in line that are worth another leader
COMPANY_TICKS: Final = 10  # ticks that a loop waits at most for as many calls as came last time


class Policy(Struct, frozen=True, kw_only=True):
    """How calls share transactions."""

    batch_size: int  # items of one transaction; a call is never split
    batch_bytes: int = 2**62  # of their payloads
    on_commit: OnCommit = lambda _: None
    shared_errors: tuple[
        type[Exception], ...
    ] = ()  # fail all calls at once: waiting once is enough
    company_ticks: int = 0  # see COMPANY_TICKS
    one_writer: bool = False  # in all processes: two transactions cannot deadlock


class Call:
    """An operation on its way to a lane, and its caller if it has one."""

    __slots__ = ("_take_over", "began", "operation")

    def __init__(
        self,
        operation: Operation[Any],
        take_over: Callable[[Operation[Any]], None] | None = None,
    ) -> None:
        self.operation = operation
        self.began = time.monotonic()
        self._take_over = take_over  # runs what undoes the operation

    def is_abandoned(self) -> bool:
        """Say whether the caller has gone before the operation began."""
        return False

    def settle(self, result: object, error: BaseException | None) -> None:
        """Answer the caller; only the first answer counts."""

    def undo(self, result: object, error: BaseException | None) -> None:
        """Undo what was done for a caller that has gone."""
        if error is None and self.operation.undo and self._take_over:
            self._take_over(self.operation.undo(result))


class ThreadCall(Call):
    """A call whose thread waits."""

    __slots__ = ("error", "result", "settled", "signals", "thread", "withdrawn")

    def __init__(
        self, operation: Operation[Any], take_over: Callable[[Operation[Any]], None]
    ) -> None:
        super().__init__(operation, take_over)
        self.thread = get_ident()
        self.signals: SimpleQueue[Any] = SimpleQueue()  # lanes to lead; None: it is settled
        self.settled = False
        self.withdrawn = False  # the thread was interrupted
        self.result: object = None
        self.error: BaseException | None = None

    def settle(self, result: object, error: BaseException | None) -> None:
        """Wake the thread with the answer."""
        if not self.settled:
            self.result, self.error, self.settled = result, error, True
            self.signals.put(None)
            if self.withdrawn:
                self.undo(result, error)

    def withdraw(self) -> None:
        """Note that the thread was interrupted. To undo twice is harmless: it is fenced."""
        self.withdrawn = True
        if self.settled:
            self.undo(self.result, self.error)


class LoopCall(Call):
    """A call that a task awaits."""

    __slots__ = ("future", "loop")

    def __init__(
        self,
        operation: Operation[Any],
        take_over: Callable[[Operation[Any]], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.operation, self._take_over, self.loop = operation, take_over, loop
        self.began = time.monotonic()
        self.future: asyncio.Future[Any] = loop.create_future()

    def is_abandoned(self) -> bool:
        """Say whether the task was cancelled before the operation began."""
        return self.future.cancelled()

    async def answer(self) -> Any:
        """Wait for the answer; an answer that comes together with a cancellation is undone."""
        try:
            return await self.future
        except asyncio.CancelledError:
            if not self.future.cancelled():
                error = self.future.exception()
                self.undo(None if error else self.future.result(), error)
            raise

    def settle(self, result: object, error: BaseException | None) -> None:
        """Finish the future; only in its own loop."""
        if self.future.cancelled():
            self.undo(result, error)
        elif not self.future.done():
            if error is None:
                self.future.set_result(result)
            else:
                self.future.set_exception(error)


Answered = tuple[Call, Any, BaseException | None]


class Inbox(deque[Call]):
    """Calls in line."""

    def take(self, calls: list[Call], policy: Policy, share: int | None = None) -> list[Call]:
        """Move calls that may share a transaction into a list, at most `share` of them.

        An operation that is not repeatable is alone: after a lost answer it cannot be repeated
        for the others. So is an operation that takes contended locks where several write: the locks
        of two could deadlock. Calls that merge with it into one operation share its transaction.
        """
        size = weight = 0
        merge = None
        while self and size < policy.batch_size and len(calls) != share:
            call = self[0]
            operation = call.operation
            weight += operation.batch.size
            if not calls:
                merge = operation.merge
            else:
                merges = merge is not None and operation.merge is merge
                shares = merges or _may_share(calls[0].operation, operation, policy)
                if not shares or weight > policy.batch_bytes:
                    break
            if not call.is_abandoned():
                calls.append(call)  # before it is removed, so that an interrupt loses no call
                size += len(operation.batch.items) or 1
            self.popleft()
        return calls


def began(calls: Sequence[Call]) -> float:
    """Return when the first of the calls began, which may have been long before its run."""
    return min(call.began for call in calls)


def _may_share(first: Operation[Any], other: Operation[Any], policy: Policy) -> bool:
    are_repeatable = first.is_repeatable and other.is_repeatable
    return are_repeatable and (policy.one_writer or not (first.locks or other.locks))


def batch(calls: Sequence[Call], policy: Policy) -> Generator[Operations, Sequence[Any], None]:
    """Run calls in one transaction; if that fails one by one, so that a bad call fails alone.

    Yields the operations of a transaction, is sent their results, and answers the callers.
    """
    merged = _merged(calls)
    try:
        results = yield [operation for operation, _ in merged]
    except Exception as error:  # noqa: BLE001 - the callers raise it
        if len(calls) == 1 or isinstance(error, policy.shared_errors):
            answer([(call, None, error) for call in calls])
            return
    else:
        answers: list[Answered] = []
        for (operation, same), result in zip(merged, results, strict=True):
            # Before the callers are answered, so that they find the changes in force.
            answers += _shares(same, tell(policy.on_commit, operation, result))
        answer(answers)
        return
    for call in calls:
        yield from batch([call], policy)


def _merged(calls: Sequence[Call]) -> list[tuple[Operation[Any], list[Call]]]:
    """Make one operation of calls that have the same `merge`: a name may belong to two operations.

    Calls that wait at the same time have no order that could matter.
    """
    alike: dict[object, list[Call]] = {}
    for call in calls:
        alike.setdefault(call.operation.merge or call, []).append(call)
    merged: list[tuple[Operation[Any], list[Call]]] = []
    for same in alike.values():
        operation = same[0].operation
        if len(same) > 1 and operation.merge:
            operation = operation.merge([i for call in same for i in call.operation.batch.items])
        merged.append((operation, same))
    return merged


def _shares(same: list[Call], result: Any) -> list[Answered]:
    """Give each of the calls that were merged its share of the result."""
    if len(same) == 1:
        return [(same[0], result, None)]
    left: Iterator[Any] = iter(result)
    return [(call, list(islice(left, len(call.operation.batch.items))), None) for call in same]


def answer(answers: Sequence[Answered]) -> None:
    """Answer callers; those of another event loop in one call, as each call wakes that loop."""
    here = running_loop()
    elsewhere: dict[asyncio.AbstractEventLoop, list[Answered]] = {}
    for answered in answers:
        call, result, error = answered
        if isinstance(call, LoopCall) and call.loop is not here:
            elsewhere.setdefault(call.loop, []).append(answered)
        else:
            call.settle(result, error)
    for loop, of_loop in elsewhere.items():
        try:
            loop.call_soon_threadsafe(answer, of_loop)
        except RuntimeError:  # the loop has closed
            for call, result, error in of_loop:
                call.undo(result, error)


def tell(on_commit: OnCommit, operation: Operation[T], result: T | Changed[T]) -> T:
    """Tell of a commit, which stands even if that fails; return the caller's result."""
    if has_changed(result):
        try:
            on_commit(result)
        except Exception:  # a waiter still finds the job by polling
            log.exception("could not ring for %s", operation.name)
    return value_of(result)


def fail(calls: Sequence[Call]) -> None:
    """Answer the followers of a leader that was interrupted."""
    msg = "the commit was interrupted and its result is unknown; check before you try again"
    answer([(call, None, DatabaseUnavailable(msg)) for call in calls])


class Lanes(Generic[L]):
    """Some lanes and the calls that wait for them."""

    def __init__(self, lanes: list[L], policy: Policy) -> None:
        self.lanes = lanes
        self._idle = list(lanes)
        self._policy = policy
        self._inbox = Inbox()
        self._mutex = Lock()
        self._closed = False
        self._expected: dict[object, int] = {}  # calls of each kind that came together last time

    async def arun(self, operation: Operation[T]) -> T:
        """Run an operation in a tick to come, with the calls that wait beside it."""
        loop = asyncio.get_running_loop()
        call = LoopCall(operation, self.take_over, loop)
        with self._mutex:
            is_busy = not self._idle
            needs_leader = not is_busy and self._needs_leader(loop)
            self._enter(call)
        if is_busy:
            self._watch(loop)
        elif needs_leader:
            self._start(loop)
        result: T = await call.answer()
        return result

    def _needs_leader(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Say whether a new call of this loop waits, whatever leaders come by themselves."""
        raise NotImplementedError

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have this loop lead in its next tick."""
        raise NotImplementedError

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look for lost lanes if this takes long."""

    def take_over(self, operation: Operation[Any]) -> None:
        """Run an operation that has no caller."""
        raise NotImplementedError

    def _enter(self, call: Call) -> None:
        if self._closed:
            raise AppClosed
        self._inbox.append(call)

    def _has_company(self, ticks: int) -> bool:
        """Say whether a loop need not wait for more calls, after so many ticks.

        Callers of a plural operation that were just answered often call again at once: to wait a
        few ticks for them makes one commit of two. If they stay away, the next call does not wait.
        """
        kind = self._inbox[0].operation.merge
        if kind is None or len(self._inbox) >= self._expected.get(kind, 0):
            return True
        if ticks < self._policy.company_ticks:
            return False
        del self._expected[kind]
        return True

    def _note_company(self, calls: Sequence[Call]) -> None:
        """Remember how many calls ran or waited at the end of a transaction."""
        kind, number = calls[0].operation.merge, len(calls) + len(self._inbox)
        self._expected[kind] = max(number, self._expected.get(kind, 0) if kind else 0)
