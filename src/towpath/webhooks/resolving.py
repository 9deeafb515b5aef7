"""HostNames of receivers, looked up in threads of our own.

`getaddrinfo` cannot be cancelled, and an event loop has four to six threads for it: a few names
that never answer would stop every new connection. Here a name has at most one look-up at a time,
an old answer serves while a new one is fetched, and names that failed before have threads apart.
"""

import asyncio
import contextlib
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from queue import SimpleQueue
from typing import Final

from towpath.model.addresses import Address
from towpath.model.attempts import AttemptError

Resolver = Callable[[str], Sequence[str]]
"""Returns the addresses of a name, or raises OSError; it is called in a thread and may block."""

FRESH: Final = 30.0  # seconds for which an answer counts as new,
USABLE: Final = 300.0  # and for which it serves while a new one is fetched
FAILED: Final = 5.0  # seconds for which a failure is remembered
PATIENCE: Final = 5.0  # seconds that a delivery waits for a look-up
MOST_FIRST: Final = 384  # look-ups at a time,
MOST_AGAIN: Final = 64  # and of names whose last one failed
MOST_NAMES: Final = 10_000  # that are remembered


class Unanswered(OSError):
    """The reason why there is no connection; aiohttp passes an OSError on as a cause."""

    def __init__(self, code: AttemptError) -> None:
        super().__init__(code.value)
        self.code = code


@dataclass(slots=True)
class Known:
    """What the last look-ups of a name have found."""

    addresses: tuple[Address, ...] = ()
    fresh_until: float = 0.0  # no other look-up before
    usable_until: float = 0.0
    failed: bool = False  # the last look-up


def look_up(name: str) -> Sequence[str]:
    """Ask the system's resolver."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [str(each[4][0]) for each in found]


class HostNames:
    """Resolves the names of one event loop, and remembers the answers."""

    def __init__(
        self,
        resolver: Resolver = look_up,
        *,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._resolver = resolver
        self._patience = patience
        self._clock = clock
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._running: dict[str, asyncio.Future[None]] = {}
        self._first = LookUpThreads(MOST_FIRST)
        self._again = LookUpThreads(MOST_AGAIN)

    async def resolve(self, name: str) -> tuple[Address, ...]:
        """Return the addresses of a name; raise Unanswered."""
        now, known = self._clock(), self._remembered(name)
        looking = self._look_up(name, known) if now >= known.fresh_until else None
        if looking is not None and now >= known.usable_until:
            await self._wait(looking)
        if self._clock() >= known.usable_until:
            raise Unanswered(AttemptError.DNS_FAILED)
        return known.addresses

    async def _wait(self, looking: "asyncio.Future[None]") -> None:
        try:
            async with asyncio.timeout(self._patience):
                await asyncio.shield(looking)
        except TimeoutError:
            raise Unanswered(AttemptError.DNS_TIMEOUT) from None

    def _look_up(self, name: str, known: Known) -> "asyncio.Future[None]":
        """Return the look-up of a name that runs, or start one."""
        looking = self._running.get(name)
        if looking is None:
            loop = asyncio.get_running_loop()
            looking = self._running[name] = loop.create_future()
            threads = self._again if known.failed else self._first
            threads.start(lambda: self._ask(name, loop))
        return looking

    def _ask(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        """Look up a name, in a thread, and tell the loop."""
        addresses: tuple[Address, ...] = ()
        with contextlib.suppress(Exception):  # whatever a resolver says of a name without address
            addresses = tuple(dict.fromkeys(map(ip_address, self._resolver(name))))
        with contextlib.suppress(RuntimeError):  # the loop was closed before the answer came
            loop.call_soon_threadsafe(self._found, name, addresses)

    def _found(self, name: str, addresses: tuple[Address, ...]) -> None:
        now, known = self._clock(), self._remembered(name)
        known.failed = not addresses
        known.fresh_until = now + (FRESH if addresses else FAILED)
        if addresses:
            known.addresses, known.usable_until = addresses, now + USABLE
        looking = self._running.pop(name)
        if not looking.done():
            looking.set_result(None)

    def _remembered(self, name: str) -> Known:
        """Return what is known of a name; forget the name that was not used for longest."""
        known = self._known.setdefault(name, Known())
        self._known.move_to_end(name)
        while len(self._known) > MOST_NAMES:
            self._known.popitem(last=False)
        return known

    def close(self) -> None:
        """End the threads, each when its look-up has ended."""
        self._first.close()
        self._again.close()


class LookUpThreads:
    """Grows to as many threads as are busy; they do not keep the process alive."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._busy = self._started = 0

    def start(self, call: Callable[[], None]) -> None:
        """Run a call in a thread, now or when one is free."""
        self._calls.put(call)
        with self._lock:
            self._busy += 1
            if self._started < min(self._busy, self._most):
                with contextlib.suppress(
                    RuntimeError
                ):  # no more threads: those that are there do it
                    threading.Thread(target=self._serve, name="towpath-dns", daemon=True).start()
                    self._started += 1

    def _serve(self) -> None:
        while call := self._calls.get():
            call()
            with self._lock:
                self._busy -= 1

    def close(self) -> None:
        """End each thread when its call has ended."""
        for _ in range(self._started):
            self._calls.put(None)
