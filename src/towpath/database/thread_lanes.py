"""Lanes of threads and event loops: a thread leads instead of waiting, a loop in its next tick.

A lane knows the thread that leads it. So a lane is found again if an interrupt hits its thread
between two steps of taking it or handing it on: by the next call of that thread at once, by other
callers after a second.
"""

import asyncio
import contextlib
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from queue import Empty
from threading import Thread, get_ident
from types import FrameType
from typing import Any, Final, TypeVar

from towpath.database.group_commit import (
    Call,
    Lanes,
    LoopCall,
    Operations,
    Policy,
    ThreadCall,
    batch,
    began,
    fail,
    tell,
)
from towpath.errors import AppClosed
from towpath.operation import Changed, Operation, drive

L = TypeVar("L")
T = TypeVar("T")

MOMENT: Final = 0.001  # seconds of a tick in which a loop runs calls at once
LOST_AFTER: Final = 1.0  # seconds that a caller waits before it looks for lost lanes
PASSED: Final = 0  # in place of a thread: the lane is on its way to a new one


class ThreadLanes(Lanes[L]):
    """Lanes of threads and event loops, led by whichever of them comes first."""

    def __init__(
        self,
        lanes: list[L],
        run: Callable[[L, Operations, float], Sequence[Any]],
        policy: Policy,
        lead_in_loop: Callable[[L], None] | None = None,
    ) -> None:
        super().__init__(lanes, policy)
        self._run = run
        self._lead_in_loop = lead_in_loop or self.lead
        self._owners: dict[L, int] = {}  # the thread of each lane that does not rest
        self._tick_of: asyncio.AbstractEventLoop | None = None
        self._tick_until = 0.0
        self._watching: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()

    def run(self, operation: Operation[T], *, last: bool = False) -> T:
        """Run an operation, alone or with the calls that wait beside it, or as the last of all."""
        lane = None if last else self._take_resting()
        if lane is None:
            return self._run_in_line(operation, last=last)
        try:
            result: T | Changed[T] = self._run(lane, [operation], time.monotonic())[0]
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
                result: T | Changed[T] = self._run(lane, [operation], time.monotonic())[0]
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
                try:
                    lane = call.signals.get(timeout=LOST_AFTER)
                    if lane is None:
                        break
                except Empty:
                    lane = self._find_lost(call)
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
            return self._own(self._idle.pop())

    def _own(self, lane: L, thread: int | None = None) -> L:
        self._owners[lane] = get_ident() if thread is None else thread
        return lane

    def _put(self, call: Call, *, last: bool = False) -> L | None:
        """Put a call into the inbox, and return a lane to lead if one rests."""
        with self._mutex:
            owners = self._owners
            if not self._idle and (len(owners) < len(self.lanes) or get_ident() in owners.values()):
                self._take_back(calls=1)
            self._enter(call)
            self._closed = last
            return self._own(self._idle.pop()) if self._idle else None

    def _find_lost(self, call: ThreadCall) -> L | None:
        """Return a lane that an interrupted thread has lost."""
        with self._mutex:
            if not call.signals.empty():
                return None  # a lane has come meanwhile: it is this thread's, and not lost
            self._take_back(calls=1)
            return self._own(self._idle.pop()) if self._idle else None

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look for lost lanes if this takes long."""
        if loop not in self._watching:
            self._watching.add(loop)
            loop.call_later(LOST_AFTER, self._look_for_lost, loop)

    def _look_for_lost(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watching.discard(loop)
        with self._mutex:
            if not self._idle:
                self._take_back(calls=0)
        if self._inbox:
            self._watch(loop)
            self._look()

    def _take_back(self, *, calls: int) -> None:
        """Let lost lanes rest: their threads are in no call, but for `calls` of this one.

        A thread loses a lane if it is interrupted while it takes the lane or hands it on.
        """
        frames = sys._current_frames()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented
        depths = {thread: _depth(frame) for thread, frame in frames.items()}
        here = get_ident()
        depths[here] = depths.get(here, calls) - calls  # a greenlet has no frame of its own
        for lane in self.lanes:
            if lane not in self._idle and not depths.get(self._owners.get(lane, PASSED)):
                self._rest(lane)

    def take_over(self, operation: Operation[Any]) -> None:
        """Run an operation that has no caller."""
        with contextlib.suppress(AppClosed):  # then what it would undo ends by itself
            lane = self._put(Call(operation))
            if lane is not None:
                self.hand_on(lane)

    def _lead_in_thread(self, lane: L) -> bool:
        """Have a new thread lead: the calls have no caller, or their loops stand still."""
        try:
            self.lead_in(lane, _start_thread)
        except RuntimeError:  # the interpreter is about to end, or has too many threads
            return False
        return True

    def lead_in(self, lane: L, start: Callable[..., object]) -> None:
        """Have another thread lead; `start` is given a function for it, and the argument."""
        self._own(lane, PASSED)
        start(self._lead_passed, lane)

    def _lead_passed(self, lane: L) -> None:
        """Lead a lane, unless a waiting thread came first and took it for lost."""
        with self._mutex:
            if self._owners.get(lane) != PASSED:
                return
            self._own(lane)
        self.lead(lane)

    def _needs_leader(self, loop: asyncio.AbstractEventLoop) -> bool:
        before = self._inbox[-1] if self._inbox else None
        return not (isinstance(before, LoopCall) and before.loop is loop)  # that one looks

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon(self._look)

    def _look(self, ticks: int = 0) -> None:
        """Lead in this loop if a lane rests while calls wait."""
        with self._mutex:
            if not self._idle or not self._inbox:
                return
            has_company = self._has_company(ticks)
            lane = self._own(self._idle.pop()) if has_company else None
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
                since = began(calls)
                drive(running, lambda operations: self._run(lane, operations, since))
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
                self._rest(lane)
                return
            loops: set[asyncio.AbstractEventLoop] = set()
            for call in self._inbox:
                if isinstance(call, ThreadCall):
                    call.signals.put(self._own(lane, call.thread))
                    return
                if isinstance(call, LoopCall):
                    loops.add(call.loop)
                elif self._lead_in_thread(lane):
                    return
            # Each loop is asked, for one may stop before it ticks. Until then any leader may come.
            asked = [loop for loop in loops if self._ask(loop)]
            if asked or not self._lead_in_thread(lane):
                self._rest(lane)

    def _rest(self, lane: L) -> None:
        self._owners.pop(lane, None)
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


def _depth(frame: FrameType | None) -> int:
    """Count the calls that a thread is in: one may be inside another, by a signal handler."""
    depth = 0
    while frame is not None:
        depth += frame.f_code in _CALLS
        frame = frame.f_back
    return depth


def _start_thread(lead: Callable[..., None], *args: object) -> None:
    Thread(target=lead, args=args, name="towpath-lane", daemon=True).start()


_CALLS: Final = {
    method.__code__
    for name, method in vars(ThreadLanes).items()
    if name in {"run", "run_now", "take_over", "lead", "_lead_passed", "_look"}
}
