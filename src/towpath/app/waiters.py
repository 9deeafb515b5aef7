"""The waiting room: whoever waits for a job sits here until a bell rings for one of its topics.

A ring wakes one waiter of each topic. If that one finds a job it rings for the next, if not, the
rest sleep on: a hundred waiters and one job cost a handful of statements. A thread of the room
watches the bell, the next instant at which something is due, and the safety net.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Final

from towpath.database.calls import running_loop
from towpath.database.forks import begin_anew_after_fork, keep_inherited
from towpath.database.wakeups import COALESCE, Bell, Rung
from towpath.errors import AppClosed, TooManyWaiters

log: Final = logging.getLogger("towpath")


class Waiter:
    """One who waits for a job of some topics."""

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
        """Wait for a ring; say whether one came."""
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
        """Wait for a ring; say whether one came."""
        try:
            async with asyncio.timeout(max(0, timeout)):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        self.rung = False
        return True


class Waiters:
    """Waiters in line for each topic, and the thread that wakes them."""

    def __init__(
        self, bell: Callable[[], Bell], *, announces: bool, poll_interval: float, max_waiters: int
    ) -> None:
        self._make_bell = bell
        self._announces = announces
        self._poll_interval = poll_interval
        self._max_waiters = max_waiters
        self._start()
        begin_anew_after_fork(self)

    def _start(self) -> None:
        self._lock = Lock()
        self._lines: dict[str, dict[Waiter, None]] = {}
        self._due: dict[str, float] = {}  # only of topics that have a line
        self._announcements: set[str] = set()
        self._wakes_at = 0.0  # when the thread looks again by itself; its first look is at once
        self._bell: Bell | None = None
        self._thread: Thread | None = None
        self._closing = False

    def start_again(self) -> None:
        """Begin anew in a forked child, which has no thread and none of the waiters."""
        keep_inherited(self._bell, self._thread, self._lines)
        self._start()

    def check_open(self) -> None:
        """Refuse whoever comes after closing time."""
        if self._closing:
            msg = "this app was closed; make a new one"
            raise AppClosed(msg)

    def enter(self, waiter: Waiter) -> None:
        """Get in line, unless it is full."""
        with self._lock:
            self.check_open()
            for topic in waiter.topics:
                if self._max_waiters and len(self._lines.get(topic, ())) >= self._max_waiters:
                    msg = f"{self._max_waiters} callers wait for topic {topic!r} already"
                    raise TooManyWaiters(msg)
            for topic in waiter.topics:
                self._lines.setdefault(topic, {})[waiter] = None
            bell = self._awake()
        bell.interrupt()

    def leave(self, waiter: Waiter) -> None:
        """Get out of line; a ring that came too late goes to the next."""
        with self._lock:
            for topic in waiter.topics:
                line = self._lines.get(topic, {})
                line.pop(waiter, None)
                if not line:
                    self._lines.pop(topic, None)
                    self._due.pop(topic, None)
            if waiter.rung:
                self._wake_first(waiter.topics)

    @property
    def hears(self) -> bool:
        """Whether a ring could wake somebody; who gets in line now looks after that."""
        return self._announces or bool(self._lines)

    def ring(self, topics: Iterable[str]) -> None:
        """Wake whoever is first in line, here and in other processes."""
        if not self.hears:
            return
        with self._lock:
            news = set(topics)
            if not news or self._closing:
                return
            self._wake_first(news)
            if not self._announces or self._closing:
                return
            self._announcements |= news
            bell = self._awake()
            soon = self._wakes_at <= time.monotonic() + COALESCE
        if not soon:
            bell.interrupt()

    def ring_here(self, topics: Iterable[str]) -> None:
        """Wake whoever is first in line in this process."""
        with self._lock:
            self._wake_first(topics)

    def due(self, topics: tuple[str, ...], seconds: float | None) -> None:
        """Ring for these topics after a time, if nothing else does before."""
        at = _NEVER if seconds is None else time.monotonic() + seconds
        with self._lock:
            self.check_open()  # whoever waits from here on is woken if it closes
            if seconds is None:
                return
            for topic in topics:
                self._due[topic] = min(at, self._due.get(topic, at))
            bell = self._bell if at < self._wakes_at else None
        if bell:
            bell.interrupt()

    def waiting(self) -> dict[str, int]:
        """Count who waits for jobs, by topic."""
        with self._lock:
            lines = self._lines.items()
            return {topic: len(line) for topic, line in lines if not topic.startswith("@")}

    def close(self, patience: float | None = None) -> None:
        """Wake everybody and end the thread; with `patience`, wait so many seconds for that."""
        with self._lock:
            self._closing = True
            thread, bell = self._thread, self._bell
            self._thread = self._bell = None
            waiters = {waiter for line in self._lines.values() for waiter in line}
        for waiter in waiters:
            waiter.wake()
        if bell:
            bell.interrupt()
        if thread:
            thread.join(patience)

    def _awake(self) -> Bell:
        if self._bell is None:
            bell = self._make_bell()
            thread = Thread(target=self._watch, args=(bell,), name="towpath-bell", daemon=True)
            thread.start()
            self._bell, self._thread = bell, thread
        return self._bell

    def _wake_first(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for waiter in self._lines.get(topic, ()):
                if not waiter.rung:
                    waiter.rung = True
                    waiter.wake()
                    break

    def _watch(self, bell: Bell) -> None:
        announced = look_at = 0.0
        try:
            while not self._closing:
                now = time.monotonic()
                with self._lock:
                    listening = bool(self._lines)
                    news: Sequence[str] = ()
                    if self._announcements and now >= announced + COALESCE:
                        news = list(self._announcements)
                        self._announcements.clear()
                    self._wakes_at = self._next(now, look_at, announced, listening=listening)
                    timeout = None if self._wakes_at == _NEVER else self._wakes_at - now
                if news:
                    bell.announce(news)
                    announced = time.monotonic()
                    continue
                rung = self._rung(bell, None if timeout is None else max(0, timeout), listening)
                look_at = self._pass_on(rung, look_at)
            if self._announcements:
                bell.announce(self._announcements)  # a process may enqueue and end
        finally:
            bell.close()

    def _rung(self, bell: Bell, timeout: float | None, listening: bool) -> Rung:  # noqa: FBT001 - the bell's own word
        try:
            return bell.wait(timeout, listening=listening)
        except Exception:  # without this thread nobody would ever be woken
            log.exception("the bell failed; waiters are found by polling")
            time.sleep(self._poll_interval)
            return None

    def _next(self, now: float, look_at: float, announced: float, *, listening: bool) -> float:
        times = [_NEVER]
        if listening:
            times += [max(look_at, now), *self._due.values()] if look_at else [now]
        if self._announcements or now < announced + COALESCE:
            times.append(announced + COALESCE)  # under load it looks by itself, uninterrupted
        return min(times)

    def _pass_on(self, rung: Rung, look_at: float) -> float:
        """Wake waiters for what rang, what is due, and for the safety net; return its next time."""
        now = time.monotonic()
        with self._lock:
            topics: set[str] = set(self._lines) if rung is None else set(rung & self._lines.keys())
            for topic, at in list(self._due.items()):
                if at <= now:
                    del self._due[topic]
                    topics.add(topic)
            if now >= look_at:
                topics.update(self._lines)
                look_at = now + self._poll_interval
            self._wake_first(topics)
        return look_at


_NEVER = float("inf")
