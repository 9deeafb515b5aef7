"""Lanes of threads and event loops: a thread leads instead of waiting, a loop in its next tick."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from queue import Empty
from threading import Thread
from typing import Any, Final, TypeVar

from towpath.database.group_commit import (
    Call,
    Lanes,
    LoopCall,
    Operations,
    Policy,
    ThreadCall,
    batch,
    fail,
    tell,
)
from towpath.errors import AppClosed
from towpath.operation import Changed, Operation, drive

L = TypeVar("L")
T = TypeVar("T")

MOMENT: Final = 0.001  # seconds of a tick in which a loop runs calls at once


class ThreadLanes(Lanes[L]):
    """Lanes of threads and event loops, led by whichever of them comes first."""

    def __init__(
        self,
        lanes: list[L],
        run: Callable[[L, Operations], Sequence[Any]],
        policy: Policy,
        lead_in_loop: Callable[[L], None] | None = None,
    ) -> None:
        super().__init__(lanes, policy)
        self._run = run
        self._lead_in_loop = lead_in_loop or self.lead
        self._tick_of: asyncio.AbstractEventLoop | None = None
        self._tick_until = 0.0

    def run(self, operation: Operation[T], *, last: bool = False) -> T:
        """Run an operation, alone or with the calls that wait beside it, or as the last of all."""
        lane = None if last else self._take_resting()
        if lane is None:
            return self._run_in_line(operation, last=last)
        try:
            result: T | Changed[T] = self._run(lane, [operation])[0]
        finally:
            self.hand_on(lane)
        return tell(self._policy.on_commit, operation, result)

    def run_now(
        self, operation: Operation[T], before: Callable[[L], bool], after: Callable[[L], None]
    ) -> list[T]:
        """Run an operation if a lane rests and is ready; return its result, or nothing."""
        lane = self._take_resting()
        if lane is None:
            return []
        try:
            if not before(lane):
                return []
            try:
                result: T | Changed[T] = self._run(lane, [operation])[0]
            finally:
                after(lane)
        finally:
            self.hand_on(lane)
        return [tell(self._policy.on_commit, operation, result)]

    def is_lone(self, operation: Operation[Any], loop: asyncio.AbstractEventLoop) -> bool:
        """Say whether an operation may run at once in this loop: for a moment of each tick.

        Where several call in one tick, all but the first wait for the next and share a commit.
        """
        if self._expected.get(operation.merge, 0) > 1:
            return False
        if self._tick_of is None:
            self._tick_of, self._tick_until = loop, time.monotonic() + MOMENT
            loop.call_soon(self._end_tick)
        return self._tick_of is loop and time.monotonic() < self._tick_until

    def _end_tick(self) -> None:
        self._tick_of = None

    def _run_in_line(self, operation: Operation[T], *, last: bool) -> T:
        call = ThreadCall(operation, self.take_over)
        try:
            lane = self._put(call, last=last)
            while True:
                # A call may be given several lanes before one of them serves it.
                if lane is not None and call.settled:
                    self.hand_on(lane)
                elif lane is not None:
                    self.lead(lane)
                lane = call.signals.get()
                if lane is None:
                    break
        except BaseException:
            self._withdraw(call)
            raise
        if call.error is not None:
            raise call.error
        return call.result  # type: ignore[return-value] # settle was given the operation's own

    def _take_resting(self) -> L | None:
        with self._mutex:
            if not self._idle or self._inbox or self._closed:
                return None
            return self._idle.pop()

    def _put(self, call: Call, *, last: bool = False) -> L | None:
        """Put a call into the inbox, and return a lane to lead if one rests."""
        with self._mutex:
            self._enter(call)
            self._closed = last
            return self._idle.pop() if self._idle else None

    def take_over(self, operation: Operation[Any]) -> None:
        """Run an operation that has no caller."""
        with contextlib.suppress(AppClosed):  # then what it would undo ends by itself
            lane = self._put(Call(operation))
            if lane is not None:
                self.hand_on(lane)

    def _lead_in_thread(self, lane: L) -> bool:
        """Have a new thread lead: the calls have no caller, or their loops stand still."""
        try:
            Thread(target=self.lead, args=(lane,), name="towpath-lane", daemon=True).start()
        except RuntimeError:  # the interpreter is about to end, or has too many threads
            return False
        return True

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon(self._look)

    def _look(self, ticks: int = 0) -> None:
        """Lead in this loop if a lane rests while calls wait."""
        with self._mutex:
            if not self._idle or not self._inbox:
                return
            has_company = self._has_company(ticks)
            lane = self._idle.pop() if has_company else None
        if lane is not None:
            self._lead_in_loop(lane)
        else:
            asyncio.get_running_loop().call_soon(self._look, ticks + 1)

    def close(self, patience: float) -> None:
        """Refuse new calls, and wait a while for all lanes to rest."""
        with self._mutex:
            self._closed = True
        deadline = time.monotonic() + patience
        while len(self._idle) < len(self.lanes) and time.monotonic() < deadline:
            time.sleep(0.001)

    def _withdraw(self, call: ThreadCall) -> None:
        """Take the call of an interrupted thread out of line, and hand on its lanes."""
        with self._mutex, contextlib.suppress(ValueError):
            self._inbox.remove(call)
        call.withdraw()
        with contextlib.suppress(Empty):
            while True:
                lane = call.signals.get_nowait()
                if lane is not None:
                    self.hand_on(lane)

    def lead(self, lane: L, after: Callable[[], None] = lambda: None) -> None:
        """Serve the calls that have gathered, then hand the lane on; `after` comes between them."""
        calls: list[Call] = []
        try:
            with self._mutex:
                self._inbox.take(calls, self._policy)
            if calls:
                running = batch(calls, self._policy)
                drive(running, lambda operations: self._run(lane, operations))
                self._note_company(calls)
        except BaseException:  # an interrupt of the leader is not one of its followers
            fail(calls)
            raise
        finally:
            try:
                after()
            finally:
                self.hand_on(lane)

    def hand_on(self, lane: L) -> None:
        """Let the next call lead, or let the lane rest."""
        with self._mutex:
            if not self._inbox:
                self._idle.append(lane)
                return
            loops: set[asyncio.AbstractEventLoop] = set()
            for call in self._inbox:
                if isinstance(call, ThreadCall):
                    call.signals.put(lane)
                    return
                if isinstance(call, LoopCall):
                    loops.add(call.loop)
                elif self._lead_in_thread(lane):
                    return
            # Each loop is asked, for one may stop before it ticks. Until then any leader may come.
            asked = [loop for loop in loops if self._ask(loop)]
            if asked or not self._lead_in_thread(lane):
                self._idle.append(lane)

    def _ask(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Ask a loop to lead; say whether it may do so."""
        if not loop.is_running():
            return False
        try:
            loop.call_soon_threadsafe(self._look)
        except RuntimeError:  # it has closed
            return False
        return True
