"""Threads for blocking tasks. A thread that never ends does not keep the process alive."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Any

Ended = tuple[Any, BaseException | None]
"""The result and the exception of a call, as values, since a future refuses StopIteration."""


class Threads:
    """Grows to as many threads as are busy at the same time."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Ended]] | None] = SimpleQueue()
        self._idle = Semaphore(0)
        self._started = 0

    def start(self, call: Callable[[], Any]) -> "asyncio.Future[Ended]":
        """Start a call in a thread."""
        ended: Future[Ended] = Future()
        ended.set_running_or_notify_cancel()
        # The thread first: if it cannot be started, the call must not stay in the queue.
        if not self._idle.acquire(blocking=False):
            Thread(target=self._serve, name="towpath-task", daemon=True).start()
            self._started += 1
        self._calls.put((call, ended))
        return asyncio.wrap_future(ended)

    def close(self) -> None:
        """End each thread when its call has ended."""
        for _ in range(self._started):
            self._calls.put(None)

    def _serve(self) -> None:
        while item := self._calls.get():
            call, ended = item
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - passed on to the caller
                ended.set_result((None, error))
            else:
                ended.set_result((result, None))
            del item, call, ended  # they reference arguments and results
            self._idle.release()
