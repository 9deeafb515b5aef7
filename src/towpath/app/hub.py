"""The hub: reads each channel once for all of its subscribers in one event loop.

A subscriber keeps its own position. Behind it, it takes what the hub has read last; if that does
not reach back so far, it reads the database itself. So a slow subscriber falls behind without
being cut off, nothing is queued for it, and no subscriber polls.
"""

import asyncio
import contextlib
import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from towpath.database.forks import begin_anew_after_fork
from towpath.database.wakeups import Wakeups
from towpath.errors import DatabaseError, TowpathError
from towpath.model.cursor import Cursor
from towpath.model.event import EventPage
from towpath.operation import Wakeup
from towpath.store import events
from towpath.store.events import Found, ReadFrom

if TYPE_CHECKING:
    from towpath.app.app import App

log: Final = logging.getLogger("towpath")

T = TypeVar("T")

KEPT: Final = 2**18  # bytes of each channel that are kept in memory
AT_ONCE: Final = 50  # channels that one statement reads
MOST_EVENTS: Final = 500  # of one channel that one statement reads


class SharedPage(Struct, frozen=True):
    """A page that several subscribers get; each door encodes it once for all of them."""

    page: EventPage
    encoded: dict[str, Any] = {}

    def encoded_by(self, door: str, encode: Callable[[EventPage], T]) -> T:
        """Return the page in the form of a door."""
        if door not in self.encoded:
            self.encoded[door] = encode(self.page)
        return cast("T", self.encoded[door])


class Watched:
    """A channel that has subscribers, and what was read of it last."""

    def __init__(self, name: str, leave: Callable[[], None]) -> None:
        self.name = name
        self.leave = leave  # called by each subscriber at its end
        self.subscribers = 0
        self.cursor: str | None = None  # up to which the hub has read; None: not yet
        self._pages: OrderedDict[str, SharedPage] = OrderedDict()  # by the cursor before them
        self._bytes = 0
        self._news = asyncio.Event()

    def page_after(self, cursor: str) -> SharedPage | None:
        """Return the events behind a cursor, as far as they are kept here."""
        found = self._pages.get(cursor)
        if found is not None:
            return found
        for each in reversed(self._pages.values()):
            page = each.page
            if page.after < cursor < page.cursor:  # between two of its events
                later = [event for event in page.events if (event.cursor or "") > cursor]
                return SharedPage(replace(page, events=later, after=cursor))
        return None

    def may_wait(self, cursor: str) -> bool:
        """Say whether a subscriber that found nothing may wait; else it has to read again.

        The hub reads on from the first that waits. No subscriber waits behind it: that one would
        not hear of the events between.
        """
        if self.cursor is None:
            self.cursor = cursor
        return self.cursor <= cursor

    def add(self, page: EventPage) -> None:
        """Keep what the hub has read, and wake the subscribers."""
        self._pages[page.after] = SharedPage(page, {})
        self._bytes += _size(page)
        while self._bytes > KEPT and len(self._pages) > 1:
            _, oldest = self._pages.popitem(last=False)
            self._bytes -= _size(oldest.page)
        self.cursor = page.cursor
        self.wake()

    def forget(self) -> None:
        """Have every subscriber read for itself."""
        self._pages.clear()
        self._bytes = 0
        self.cursor = None
        self.wake()

    def wake(self) -> None:
        """Wake all subscribers."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def news(self) -> asyncio.Event:
        """Return an event that is set as soon as there may be more to read."""
        return self._news


def _size(page: EventPage) -> int:
    return sum(len(event.body) for event in page.events)


class Hub:
    """The channels that one event loop watches."""

    def __init__(self, app: "App", wakeups: Wakeups) -> None:
        self._app = app
        self._wakeups = wakeups
        self._loop = asyncio.get_running_loop()
        self._watched: dict[str, Watched] = {}
        self._rung: set[str] = set()  # added to by any thread
        self._reading: asyncio.Task[None] | None = None

    def watch(self, name: str) -> Watched:
        """Watch a channel for one more subscriber, until it calls `leave`."""
        watched = self._watched.get(name)
        if watched is None:
            unsubscribe = self._wakeups.subscribe(
                Wakeup("channel", name), partial(self._ring, name)
            )
            watched = Watched(name, partial(self._leave, name, unsubscribe))
            self._watched[name] = watched
        watched.subscribers += 1
        return watched

    def _leave(self, name: str, unsubscribe: Callable[[], None]) -> None:
        watched = self._watched[name]
        watched.subscribers -= 1
        if not watched.subscribers:
            del self._watched[name]
            unsubscribe()

    def _ring(self, name: str) -> None:
        """Note that a channel may have moved; called by any thread."""
        if name not in self._rung:
            self._rung.add(name)
            with contextlib.suppress(RuntimeError):  # the loop has closed
                self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        if self._reading is None:
            self._reading = self._loop.create_task(self._read())

    async def _read(self) -> None:
        """Read the channels that have moved, until none is left."""
        try:
            while self._rung:
                names = [self._rung.pop() for _ in range(min(len(self._rung), AT_ONCE))]
                await self._read_some([self._watched[n] for n in names if n in self._watched])
        except DatabaseError as error:
            log.debug("the hub could not read: %s", error)  # the next wakeup comes within a second
        except Exception:  # it must not end for all subscribers
            log.exception("the hub failed")
        finally:
            self._reading = None

    async def _read_some(self, channels: list[Watched]) -> None:
        at: list[Watched] = []
        reads: list[ReadFrom] = []
        for each in channels:
            if each.cursor is None or self._wakeups.is_closed:
                each.wake()  # its subscribers look for themselves
            else:
                at.append(each)
                reads.append(ReadFrom(each.name, Cursor.parse(each.cursor), MOST_EVENTS, KEPT))
        if not at:
            return
        found = await self._app.arun(events.read(reads))
        posted = [each.name for each, of_it in zip(at, found, strict=True) if of_it.posted]
        if posted:
            await self._app.arun(events.place(posted))
            found = await self._app.arun(events.read(reads))
        for each, of_it in zip(at, found, strict=True):
            self._pass_on(each, of_it)

    def _pass_on(self, watched: Watched, found: Found) -> None:
        page = found.page
        if isinstance(page, TowpathError):
            watched.forget()
            return
        if page.events or page.ended is not None:
            watched.add(page)
        if not page.is_current:
            self._ring(watched.name)


class Hubs:
    """The hub of each event loop."""

    def __init__(self, app: "App", wakeups: Wakeups) -> None:
        self._app = app
        self._wakeups = wakeups
        self._start()
        begin_anew_after_fork(self)

    def _start(self) -> None:
        self._hubs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = (
            weakref.WeakKeyDictionary()
        )

    def start_again(self) -> None:
        """Start again in a forked child, which has none of the subscribers."""
        self._start()

    def check_open(self) -> None:
        """Raise AppClosed if the app was closed."""
        self._wakeups.check_open()

    def watch(self, name: str) -> Watched:
        """Watch a channel, from a task."""
        loop = asyncio.get_running_loop()
        hub = self._hubs.get(loop)
        if hub is None:
            hub = self._hubs[loop] = Hub(self._app, self._wakeups)
        return hub.watch(name)

    def listen(self, names: Iterable[str]) -> "ThreadListener":
        """Hear of channels, from a thread."""
        return ThreadListener(self._wakeups, names)


class ThreadListener:
    """A thread that hears of channels, and reads them itself."""

    def __init__(self, wakeups: Wakeups, names: Iterable[str]) -> None:
        self._news = threading.Event()
        self._unsubscribe = [
            wakeups.subscribe(Wakeup("channel", name), self._news.set) for name in names
        ]

    def wait(self, timeout: float | None) -> bool:
        """Wait for news since the last call; return whether there is any."""
        heard = self._news.wait(timeout)
        self._news.clear()
        return heard

    def leave(self) -> None:
        """Hear no more."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()
