"""Passwords are hashed in two threads, as each hash takes 64 MiB.

If too many calls wait, further ones are refused: their clients would give up before their turn.
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
    """Runs functions in two threads; further calls wait."""

    def __init__(self) -> None:
        self._start()
        begin_anew_after_fork(self)

    def _start(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, "towpath-hashing")
        self._lock = Lock()
        self._waiting = 0

    def start_again(self) -> None:
        """Start again in a forked child, which has none of the threads."""
        keep_inherited(self._threads)
        self._start()

    def run(self, function: Callable[[], T]) -> T:
        """Call a function in a thread, and block until it returns."""
        return self._submitted(function).result()

    async def arun(self, function: Callable[[], T]) -> T:
        """Call a function in a thread, and await its result."""
        return await asyncio.wrap_future(self._submitted(function))

    def _submitted(self, function: Callable[[], T]) -> "Future[T]":
        with self._lock:
            if self._waiting >= MOST_WAITING:
                msg = f"{MOST_WAITING} passwords are waiting to be checked; try again later"
                raise TooManyLogins(msg)
            self._waiting += 1
        future = self._threads.submit(function)
        future.add_done_callback(self._done)  # also if its caller was cancelled
        return future

    def _done(self, _: "Future[Any]") -> None:
        with self._lock:
            self._waiting -= 1


hashing: Final = Hashing()
"""The instance of this process."""
