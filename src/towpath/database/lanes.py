"""Lanes: connections that take turns at one inbox, so that concurrent calls share commits.

Whoever finds a lane free leads it: takes all that has gathered, runs it in its own thread or loop
tick, and hands the lane to the next one waiting. No timer adds latency and no thread stands between
a lone caller and its database. Callers wait for their own commit; that is the back-pressure.
"""

import contextlib
import time
from collections.abc import Callable
from queue import Empty
from threading import Lock, Thread
from typing import Any, Generic, TypeVar

from towpath.database.batch import interrupted, run_batch, tell
from towpath.database.calls import Inbox, LeadingLoopCall, OrphanCall, ThreadCall
from towpath.errors import AppClosed
from towpath.operation import Changed, OnCommit, Operation

L = TypeVar("L")
T = TypeVar("T")

AnyCall = ThreadCall[L] | LeadingLoopCall | OrphanCall[L]


class Lanes(Generic[L]):
    """Some lanes and their inbox, for threads and event loops alike."""

    def __init__(
        self,
        lanes: list[L],
        run: Callable[[L, list[Operation[Any]]], list[Any]],
        batch_size: int,
        on_commit: OnCommit,
        nobodys: tuple[type[Exception], ...] = (),
        *,
        one_writer: bool = False,
    ) -> None:
        self._idle = lanes
        self._number = len(lanes)
        self._run = run
        self._batch_size = batch_size
        self._on_commit = on_commit
        self._nobodys = nobodys  # errors that are no one call's fault
        self._one_writer = one_writer  # at a time, whatever process it is of
        self._inbox: Inbox[AnyCall[L]] = Inbox()
        self._mutex = Lock()
        self._closed = False

    def run(self, operation: Operation[T], *, last: bool = False) -> T:
        """Run an operation, alone or with those that wait beside it."""
        held: list[L] = []
        try:
            if last or not self._take_resting(held):
                return self._run_in_line(operation, held, last=last)
            # The short way: nobody to share with, nobody to wait for.
            result: T | Changed[T] = self._run(held[0], [operation])[0]
        finally:
            self.let_go(held)
        return tell(self._on_commit, operation, result)

    def run_now(
        self, operation: Operation[T], before: Callable[[L], bool], after: Callable[[L], None]
    ) -> list[T]:
        """Run an operation if a lane rests and is ready; return its result, or nothing."""
        held: list[L] = []
        try:
            if not self._take_resting(held) or not before(held[0]):
                return []
            try:
                results: list[T | Changed[T]] = self._run(held[0], [operation])
            finally:
                after(held[0])
        finally:
            self.let_go(held)
        return [tell(self._on_commit, operation, results[0])]

    def _run_in_line(self, operation: Operation[T], held: list[L], *, last: bool) -> T:
        call: ThreadCall[L] = ThreadCall(operation, self.take_over)
        try:
            self._put(call, held, last=last)
            while True:
                if not held:
                    signal = call.signals.get()
                    if signal is None:
                        break
                    held.append(signal)
                # Several lanes may ask before one serves the call; none may be left lying.
                if call.settled:
                    self.let_go(held)
                else:
                    self._lead(held)
        except BaseException:
            self._withdraw(call)
            raise
        if call.error is not None:
            raise call.error
        return call.result  # type: ignore[return-value] # settle was given the operation's own

    def _take_resting(self, held: list[L]) -> bool:
        with self._mutex:
            if self._idle and not self._inbox and not self._closed:
                held.append(self._idle.pop())
            return bool(held)

    def let_go(self, held: list[L]) -> None:
        """Hand lanes on."""
        while held:
            self.hand_on(held.pop())  # interrupted in between it is lost, which beats two owners

    def _put(self, call: AnyCall[L], held: list[L], *, last: bool = False) -> None:
        """Put a call into the inbox, and take a lane that rests."""
        with self._mutex:
            self._enter(call, last=last)
            if self._idle:
                held.append(self._idle.pop())

    def take_over(self, operation: Operation[Any]) -> None:
        """Run an operation that nobody waits for."""
        held: list[L] = []
        try:
            with contextlib.suppress(AppClosed):  # then what it would undo ends by itself
                self._put(OrphanCall(operation, self._lead_in_thread), held)
        finally:
            self.let_go(held)

    def _lead_in_thread(self, lane: L) -> bool:
        """Lead for those who cannot: nobody waits, or their loops stand still."""
        try:
            Thread(target=self.lead, args=(lane,), name="towpath-lane", daemon=True).start()
        except RuntimeError:  # the interpreter is about to end, or has too many threads
            return False
        return True

    def leave(self, call: LeadingLoopCall) -> bool:
        """Put a call into the inbox for whoever comes first; say whether its loop has to come."""
        with self._mutex:
            before = self._inbox[-1] if self._inbox else None
            self._enter(call)
            # Where the one before in line is of the same loop, that will come already.
            comes = isinstance(before, LeadingLoopCall) and before.loop is call.loop
            return bool(self._idle) and not comes

    def free(self) -> L | None:
        """Return a lane to lead, if one rests while somebody waits."""
        with self._mutex:
            return self._idle.pop() if self._idle and self._inbox else None

    def _enter(self, call: AnyCall[L], *, last: bool = False) -> None:
        if self._closed:
            raise AppClosed
        self._closed = last
        self._inbox.append(call)

    def close(self, patience: float) -> None:
        """Let nobody in any more, and wait a while for all lanes to rest."""
        with self._mutex:
            self._closed = True
        deadline = time.monotonic() + patience
        while len(self._idle) < self._number and time.monotonic() < deadline:
            time.sleep(0.001)

    def _withdraw(self, call: ThreadCall[L]) -> None:
        """Take an interrupted thread out of line, and pass on what it was asked to lead."""
        call.withdrawn = True
        with self._mutex, contextlib.suppress(ValueError):
            self._inbox.remove(call)
        call.undo()
        with contextlib.suppress(Empty):
            while True:
                lane = call.signals.get_nowait()
                if lane is not None:
                    self.hand_on(lane)

    def lead(self, lane: L, after: Callable[[], None] = lambda: None) -> int:
        """Serve what has gathered, then hand the lane on; `after` comes between the two.

        Returns how many were served.
        """
        return self._lead([lane], after)

    def _lead(self, held: list[L], after: Callable[[], None] = lambda: None) -> int:
        batch: list[AnyCall[L]] = []
        try:
            with self._mutex:
                self._inbox.take(self._batch_size, batch, one_writer=self._one_writer)
            if batch:
                run_batch(
                    batch, lambda each: self._run(held[0], each), self._on_commit, self._nobodys
                )
        except BaseException:  # the interrupt of one is not the others'
            for call in batch:
                call.settle(None, interrupted())
            raise
        finally:
            try:
                after()
            finally:
                self.let_go(held)
        return len(batch)

    def hand_on(self, lane: L) -> None:
        """Let the next one lead, or let the lane rest."""
        with self._mutex:
            if not self._inbox:
                self._idle.append(lane)
                return
            loops: dict[object, LeadingLoopCall] = {}
            for call in self._inbox:
                if isinstance(call, LeadingLoopCall):
                    loops.setdefault(call.loop, call)
                elif call.lead(lane):
                    return
            # Each loop is asked, for one may stop before it ticks. Till then the lane is anybody's.
            asked = [call for call in loops.values() if call.ask()]
            if asked or not self._lead_in_thread(lane):
                self._idle.append(lane)
