"""Callers that wait for a job: one job wakes one of them.

A wakeup of a topic wakes its first waiter. A waiter that finds a job wakes the next one; after one
that finds nothing the rest sleep on. So a hundred waiters and one job cost a handful of statements.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock

from towpath.database.event_loops import running_loop
from towpath.database.forks import begin_anew_after_fork, keep_inherited
from towpath.database.wakeups import Wakeups
from towpath.errors import TooManyWaiters
from towpath.operation import Wakeup


class Waiter:
    """A caller that waits for a job of some topics."""

    def __init__(self, topics: tuple[str, ...], wake: Callable[[], None]) -> None:
        self.topics = topics
        self.wake = wake
        self.rung = False


class ThreadWaiter(Waiter):
    """A thread that waits."""

    def __init__(self, topics: tuple[str, ...]) -> None:
        self._rings: SimpleQueue[None] = SimpleQueue()
        super().__init__(topics, lambda: self._rings.put(None))

    def wait(self, timeout: float) -> bool:
        """Wait to be woken; return whether that happened in time."""
        try:
            self._rings.get(timeout=max(0, timeout))
        except Empty:
            return False
        self.rung = False
        return True


class TaskWaiter(Waiter):
    """A task that waits."""

    def __init__(self, topics: tuple[str, ...]) -> None:
        loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

        def wake() -> None:
            if running_loop() is loop:
                self._event.set()
                return
            with contextlib.suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(self._event.set)

        super().__init__(topics, wake)

    async def wait(self, timeout: float) -> bool:
        """Wait to be woken; return whether that happened in time."""
        try:
            async with asyncio.timeout(max(0, timeout)):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        self.rung = False
        return True


class Waiters:
    """The waiters of each topic, in the order in which they came."""

    def __init__(self, wakeups: Wakeups, *, max_waiters: int) -> None:
        self._wakeups = wakeups
        self._max_waiters = max_waiters
        self._start()
        begin_anew_after_fork(self)

    def _start(self) -> None:
        self._lock = Lock()
        self._lines: dict[str, dict[Waiter, None]] = {}
        self._unsubscribe: dict[str, Callable[[], None]] = {}  # for each line

    def start_again(self) -> None:
        """Start again in a forked child, which has none of the waiters."""
        keep_inherited(self._lines)
        self._start()

    def enter(self, waiter: Waiter) -> None:
        """Get in line, unless it is full."""
        with self._lock:
            self._wakeups.check_open()
            for topic in waiter.topics:
                if self._max_waiters and len(self._lines.get(topic, ())) >= self._max_waiters:
                    msg = f"{self._max_waiters} callers wait for topic {topic!r} already"
                    raise TooManyWaiters(msg)
            for topic in waiter.topics:
                if topic not in self._lines:
                    self._unsubscribe[topic] = self._wakeups.subscribe(
                        Wakeup("topic", topic), partial(self._ring, topic)
                    )
                    self._lines[topic] = {}
                self._lines[topic][waiter] = None

    def leave(self, waiter: Waiter) -> None:
        """Get out of line; a ring that came too late goes to the next waiter."""
        with self._lock:
            for topic in waiter.topics:
                line = self._lines.get(topic, {})
                line.pop(waiter, None)
                if not line and self._lines.pop(topic, None) is not None:
                    self._unsubscribe.pop(topic)()
            if waiter.rung:
                self._wake_first(waiter.topics)

    def ring_here(self, topics: Iterable[str]) -> None:
        """Wake the first waiter of each topic in this process."""
        with self._lock:
            self._wake_first(topics)

    def due(self, topics: Iterable[str], seconds: float | None) -> None:
        """Wake the first waiter of each topic after a time, which is None for never."""
        self._wakeups.check_open()  # a waiter that passes this is woken by the close
        if seconds is not None:
            self._wakeups.ring_later(Wakeup.topics(topics), seconds)

    def waiting(self) -> dict[str, int]:
        """Count the waiters of each topic."""
        with self._lock:
            return {topic: len(line) for topic, line in self._lines.items()}

    def _ring(self, topic: str) -> None:
        with self._lock:
            if self._wakeups.is_closed:
                for waiter in self._lines.get(topic, ()):
                    waiter.wake()
            else:
                self._wake_first((topic,))

    def _wake_first(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for waiter in self._lines.get(topic, ()):
                if not waiter.rung:
                    waiter.rung = True
                    waiter.wake()
                    break
