"""Where passwords are hashed: in threads of their own, two at once. Each takes 64 MiB.

A line that has grown too long takes no more: whoever waits in it would be gone before its turn.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, Final, TypeVar

from towpath.database.forks import begin_anew_after_fork, keep_inherited
from towpath.errors import TooManyLogins

T = TypeVar("T")

AT_ONCE: Final = 2
MOST_WAITING: Final = 100


class Hashing:
    """Two threads; whoever comes third waits."""

    def __init__(self) -> None:
        self._start()
        begin_anew_after_fork(self)

    def _start(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, "towpath-hashing")
        self._lock = Lock()
        self._waiting = 0

    def start_again(self) -> None:
        """Begin anew in a forked child, which has none of the threads."""
        keep_inherited(self._threads)
        self._start()

    def run(self, function: Callable[[], T]) -> T:
        """Call a function when it is its turn, and wait."""
        return self._submitted(function).result()

    async def arun(self, function: Callable[[], T]) -> T:
        """Call a function when it is its turn; the event loop goes on."""
        return await asyncio.wrap_future(self._submitted(function))

    def _submitted(self, function: Callable[[], T]) -> "Future[T]":
        with self._lock:
            if self._waiting >= MOST_WAITING:
                msg = f"{MOST_WAITING} passwords wait to be checked; try again soon"
                raise TooManyLogins(msg)
            self._waiting += 1
        future = self._threads.submit(function)
        future.add_done_callback(self._done)  # also if whoever waited has gone
        return future

    def _done(self, _: "Future[Any]") -> None:
        with self._lock:
            self._waiting -= 1


hashing: Final = Hashing()
"""The one of this process."""
