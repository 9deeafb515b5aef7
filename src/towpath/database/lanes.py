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

from towpath.database.batch import run_batch
from towpath.database.calls import Inbox, LeadingLoopCall, OrphanCall, ThreadCall
from towpath.errors import AppClosed
from towpath.operation import OnCommit, Operation

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
    ) -> None:
        self._idle = lanes
        self._number = len(lanes)
        self._run = run
        self._batch_size = batch_size
        self._on_commit = on_commit
        self._nobodys = nobodys  # errors that are no one call's fault
        self._inbox: Inbox[AnyCall[L]] = Inbox()
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
            self._on_commit(operation, result)
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
            self._enter(call, last=last)
            return self._idle.pop() if self._idle else None

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
            msg = "this app was closed; make a new one"
            raise AppClosed(msg)
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
        with self._mutex, contextlib.suppress(ValueError):
            self._inbox.remove(call)
        with contextlib.suppress(Empty):
            while True:
                lane = call.signals.get_nowait()
                if lane is not None:
                    self.hand_on(lane)

    def lead(self, lane: L, after: Callable[[], None] = lambda: None) -> None:
        """Serve what has gathered, then hand the lane on; `after` comes between the two."""
        with self._mutex:
            batch = self._inbox.take(self._batch_size)
        try:
            if batch:
                run_batch(batch, lambda each: self._run(lane, each), self._on_commit, self._nobodys)
        except BaseException as error:
            for call in batch:
                call.settle(None, error)
            raise
        finally:
            try:
                after()
            finally:
                self.hand_on(lane)

    def hand_on(self, lane: L) -> None:
        """Let the next one lead, or let the lane rest."""
        with self._mutex:
            while self._inbox:
                first = self._inbox[0]
                if isinstance(first, LeadingLoopCall) and first.is_asleep():
                    # Its loop stands still and may never tick again: others are waiting behind it.
                    Thread(target=self.lead, args=(lane,), name="towpath-lane", daemon=True).start()
                    return
                if isinstance(first, LeadingLoopCall) and first.ask():
                    break  # the lane rests until the loop ticks, and is anybody's until then
                if not isinstance(first, LeadingLoopCall) and first.lead(lane):
                    return
                self._inbox.popleft()
            self._idle.append(lane)
