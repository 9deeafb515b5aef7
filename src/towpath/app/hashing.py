"""Where passwords are hashed: in threads of their own, two at once. Each takes 64 MiB."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from towpath.database.forks import begin_anew_after_fork, keep_inherited

T = TypeVar("T")

AT_ONCE: Final = 2


class Hashing:
    """Two threads; whoever comes third waits."""

    def __init__(self) -> None:
        self._start()
        begin_anew_after_fork(self)

    def _start(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, "towpath-hashing")

    def start_again(self) -> None:
        """Begin anew in a forked child, which has none of the threads."""
        keep_inherited(self._threads)
        self._start()

    def run(self, function: Callable[[], T]) -> T:
        """Call a function when it is its turn, and wait."""
        return self._threads.submit(function).result()

    async def arun(self, function: Callable[[], T]) -> T:
        """Call a function when it is its turn; the event loop goes on."""
        return await asyncio.wrap_future(self._threads.submit(function))


hashing: Final = Hashing()
"""The one of this process."""
