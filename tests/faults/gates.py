"""Where a caller stands still, in the middle of an operation: a clock, or a statement."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

from tests.faults.processes import wait_until
from towpath import App
from towpath.database.clock import machine_clock
from towpath.database.postgres_wire import Sent
from towpath.statement import Query


class StoppingClock:
    """The real time, except that one call for it waits until told to go on."""

    def __init__(self) -> None:
        self.stopped = Event()
        self._go_on = Event()
        self._left = 0

    def __call__(self) -> int:
        self._left -= 1
        if self._left == 0:
            self.stopped.set()
            self._go_on.wait(30)
        return machine_clock()

    def stop_at(self, nth: int) -> None:
        """Stop the nth call from now."""
        self.stopped.clear()
        self._go_on.clear()
        self._left = nth

    def go_on(self) -> None:
        """Let it go on, and stop no other caller."""
        self._left = 0
        self._go_on.set()


class Gate:
    """A caller about to run a named statement of an app on PostgreSQL waits to be let through."""

    def __init__(self, app: App, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self._database: Any = app._database
        self._asked = self._database.asked
        self._database.asked = self._passed
        self._name: str | None = None
        self._arrived = Event()
        self._open = Event()

    def _passed(self, query: Query) -> Sent:
        if query.statement.name == self._name:
            self._name = None
            self._arrived.set()
            self._open.wait(30)
        return self._asked(query)

    @contextmanager
    def before(self, name: str, call: Any, *args: Any, **options: Any) -> Iterator[Future[Any]]:
        """Call in a thread; run the block while that is about to run the statement, and go on."""
        self._arrived.clear()
        self._open.clear()
        self._name = name
        doing = self._threads.submit(call, *args, **options)
        try:
            wait_until(lambda: self._arrived.is_set() or doing.done())
            assert self._arrived.is_set(), doing.result()
            yield doing
        finally:
            self._name = None
            self._open.set()
        doing.result(10)
