"""Wakeups: tell subscribers, here and in other processes, that a commit has changed something.

A wakeup carries no data and may be lost, so every subscriber is also told at each `poll_interval`.
A subscriber looks at the database to learn what is new, and must not mind a call for no reason.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable
from threading import Lock, Thread
from typing import Final

from towpath.database.bells import Bell, Rung
from towpath.database.forks import begin_anew_after_fork, keep_inherited
from towpath.errors import AppClosed
from towpath.operation import Wakeup

log: Final = logging.getLogger("towpath")

COALESCE: Final = 0.005  # seconds within which announcements share one NOTIFY
NEVER: Final = float("inf")


class Wakeups:
    """The subscribers of one process, and the thread that waits at its bell."""

    def __init__(self, bell: Callable[[], Bell], *, announces: bool, poll_interval: float) -> None:
        self._make_bell = bell
        self._announces = announces  # else other processes notice a commit by themselves
        self._poll_interval = poll_interval
        self._start()
        begin_anew_after_fork(self)

    def _start(self) -> None:
        self._lock = Lock()  # never held during a callback
        self._subscribers: dict[Wakeup, dict[object, Callable[[], None]]] = {}
        self._due: dict[Wakeup, float] = {}  # only of wakeups that have subscribers
        self._announcements: set[Wakeup] = set()
        self._wakes_at = 0.0  # when the thread looks again by itself; its first look is at once
        self._bell: Bell | None = None
        self._thread: Thread | None = None
        self.is_closed = False

    def start_again(self) -> None:
        """Start again in a forked child, which has no thread and none of the subscribers."""
        keep_inherited(self._bell, self._thread, self._subscribers)
        self._start()

    def check_open(self) -> None:
        """Refuse a call after the end."""
        if self.is_closed:
            msg = "this app was closed; make a new one"
            raise AppClosed(msg)

    def subscribe(self, wakeup: Wakeup, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back at every ring of a wakeup, and when this closes; return what ends that.

        The callback runs in the thread that commits or in the one that waits at the bell, so it
        must return at once: it sets an event, and the look at the database is made elsewhere. It
        may subscribe and unsubscribe. A call that is under way may come after the end.
        """
        key = object()
        with self._lock:
            self.check_open()
            bell = self._awake()
            is_first = not self._subscribers
            self._subscribers.setdefault(wakeup, {})[key] = callback
        if is_first:
            bell.interrupt()  # to listen from now on

        def unsubscribe() -> None:
            with self._lock:
                callbacks = self._subscribers.get(wakeup, {})
                if callbacks.pop(key, None) and not callbacks:
                    del self._subscribers[wakeup]
                    self._due.pop(wakeup, None)

        return unsubscribe

    @property
    def hears(self) -> bool:
        """Whether a ring could reach a subscriber; one that comes later looks after that."""
        return self._announces or bool(self._subscribers)

    def ring(self, wakeups: Collection[Wakeup]) -> None:
        """Tell the subscribers here, before this returns, and those of other processes."""
        if not wakeups or not self.hears or self.is_closed:
            return
        self._tell(wakeups)
        if self._announces:
            self._announce(wakeups)

    def ring_later(self, wakeups: Iterable[Wakeup], seconds: float) -> None:
        """Tell the subscribers in this process after so many seconds."""
        at = time.monotonic() + seconds
        with self._lock:
            for wakeup in wakeups:
                if wakeup in self._subscribers:
                    self._due[wakeup] = min(at, self._due.get(wakeup, at))
            bell = self._bell if at < self._wakes_at else None
        if bell:
            bell.interrupt()

    def close(self, patience: float | None = None) -> None:
        """Tell every subscriber and end the thread; with `patience`, wait so many seconds."""
        with self._lock:
            self.is_closed = True
            thread, bell = self._thread, self._bell
            self._thread = self._bell = None
            wakeups = list(self._subscribers)
        self._tell(wakeups)
        if bell:
            bell.interrupt()
        if thread:
            thread.join(patience)

    def _tell(self, wakeups: Iterable[Wakeup]) -> None:
        with self._lock:
            told = [
                (wakeup, callback)
                for wakeup in wakeups
                for callback in self._subscribers.get(wakeup, {}).values()
            ]
        for wakeup, callback in told:
            try:
                callback()
            except Exception:
                log.exception("a subscriber to the wakeup %s failed", wakeup)

    def _announce(self, wakeups: Iterable[Wakeup]) -> None:
        with self._lock:
            if self.is_closed:
                return
            self._announcements.update(wakeups)
            bell = self._awake()
            soon = self._wakes_at <= time.monotonic() + COALESCE
        if not soon:
            bell.interrupt()

    def _awake(self) -> Bell:
        if self._bell is None:
            bell = self._make_bell()
            thread = Thread(target=self._watch, args=(bell,), name="towpath-bell", daemon=True)
            thread.start()
            self._bell, self._thread = bell, thread
        return self._bell

    def _watch(self, bell: Bell) -> None:
        announced = look_at = 0.0
        try:
            while not self.is_closed:
                now = time.monotonic()
                news: set[Wakeup] = set()
                with self._lock:
                    listening = bool(self._subscribers)
                    if self._announcements and now >= announced + COALESCE:
                        news, self._announcements = self._announcements, set()
                    self._wakes_at = self._next(now, look_at, announced, listening=listening)
                    timeout = None if self._wakes_at == NEVER else max(0, self._wakes_at - now)
                if news:
                    _announce(bell, news)
                    announced = time.monotonic()
                    continue
                rung = self._rung(bell, timeout, listening=listening)
                look_at = self._pass_on(rung, look_at)
            if self._announcements:
                _announce(bell, self._announcements)  # a process may enqueue and end
        finally:
            bell.close()

    def _rung(self, bell: Bell, timeout: float | None, *, listening: bool) -> Rung:
        try:
            return bell.wait(timeout, listening=listening)
        except Exception:  # the end of this thread would end the safety net
            log.exception("the bell failed; wakeups are found by polling")
            time.sleep(self._poll_interval)
            return None

    def _next(self, now: float, look_at: float, announced: float, *, listening: bool) -> float:
        times = [NEVER]
        if listening:
            times += [max(look_at, now), *self._due.values()] if look_at else [now]
        if self._announcements or now < announced + COALESCE:
            times.append(announced + COALESCE)  # under load it looks by itself, uninterrupted
        return min(times)

    def _pass_on(self, rung: Rung, look_at: float) -> float:
        """Tell subscribers of rings, of what is due, and at each look; return the next look."""
        now = time.monotonic()
        looks = now >= look_at
        with self._lock:
            due = {wakeup for wakeup, at in self._due.items() if at <= now}
            for wakeup in due:
                del self._due[wakeup]
            wakeups = list(self._subscribers) if rung is None or looks else rung | due
        self._tell(wakeups)
        return now + self._poll_interval if looks else look_at


def _announce(bell: Bell, wakeups: Iterable[Wakeup]) -> None:
    try:
        bell.announce(wakeups)
    except Exception:  # the end of the bell's thread would end the safety net
        log.exception("the bell failed; other processes find these wakeups by polling")
