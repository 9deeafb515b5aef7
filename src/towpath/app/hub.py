"""The hub: reads each channel once for all of its subscribers in one event loop.

A subscriber keeps its own position. Behind it, it takes what the hub has read last; if that does
not reach back so far, it reads the database itself. So a slow subscriber falls behind without
being cut off, nothing is queued for it, and no subscriber polls.

A channel that expires when it is not used is in use while it has a subscriber: the hub renews it.
"""

import asyncio
import contextlib
import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from towpath.database.forks import begin_anew_after_fork
from towpath.database.wakeups import Wakeups
from towpath.errors import DatabaseError, TowpathError
from towpath.model.cursor import Cursor
from towpath.model.event import EventPage
from towpath.operation import Wakeup
from towpath.store import channels as channel_store
from towpath.store import events, reading
from towpath.store.reading import Found, ReadFrom

if TYPE_CHECKING:
    from towpath.app.app import App

log: Final = logging.getLogger("towpath")

T = TypeVar("T")

KEPT: Final = 2**18  # bytes of each channel that are kept in memory
PER_EVENT: Final = 1_024  # bytes that an event takes beside its body, with its frame for each door
AT_ONCE: Final = 50  # channels that one statement reads
SILENT_EVERY: Final = 0.5  # seconds between two looks for the ends of jobs that have said nothing
MOST_EVENTS: Final = 500  # of one channel that one statement reads
MOST_BYTES: Final = 2**16  # of their bodies: a page may wait in memory for each slow client
LEAST_RENEWAL: Final = 0.1  # seconds


def renewal(ttl: int) -> float:
    """Return after how many seconds a reader that waits renews a channel of this lifetime."""
    return max(ttl / 3e6, LEAST_RENEWAL)


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

    def __init__(
        self,
        name: str,
        look: Callable[[], None],
        leave: Callable[[], None],
        renew: Callable[[], Coroutine[Any, Any, object]],
    ) -> None:
        self.name = name
        self.look = look  # has the hub read
        self.leave = leave  # called by each subscriber at its end
        self.subscribers = 0
        self._renew = renew
        self._ttl: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
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
            if page.cursor <= cursor:
                return None  # the pages before it are older still
            if page.after < cursor:  # between two of its events
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
        # Not by page.after: a channel that was not there yet has cursors of its own now.
        self._pages[self.cursor or page.after] = SharedPage(page, {})
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

    def lives_for(self, ttl: int | None) -> None:
        """Note how long the channel lives when it is not used: while it is watched, it is used."""
        self._ttl = ttl
        if self._timer is None and self._renewing is None:
            self._set_timer()

    def _set_timer(self) -> None:
        self._timer = None
        if self._ttl is not None and self.subscribers:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(renewal(self._ttl), self._begin_to_renew)

    def _begin_to_renew(self) -> None:
        self._timer = None
        self._renewing = asyncio.ensure_future(self._use())

    async def _use(self) -> None:
        with contextlib.suppress(TowpathError):  # it is tried again
            await self._renew()
        self._renewing = None
        self._set_timer()

    def stop(self) -> None:
        """Renew it no more, as it has no subscribers."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _size(page: EventPage) -> int:
    return sum(len(event.body) + len(str(event.headers)) + PER_EVENT for event in page.events)


class Hub:
    """The channels that one event loop watches."""

    def __init__(self, app: "App", wakeups: Wakeups) -> None:
        self._app = app
        self._wakeups = wakeups
        self._loop = asyncio.get_running_loop()
        self._watched: dict[str, Watched] = {}
        self._rung: set[str] = set()  # added to by any thread
        self._will_look = False
        self._silent_looked_at = 0.0
        self._reading: asyncio.Task[None] | None = None

    def watch(self, name: str) -> Watched:
        """Watch a channel for one more subscriber, until it calls `leave`."""
        watched = self._watched.get(name)
        if watched is None:
            ring = partial(self._ring, name)
            unsubscribe = self._wakeups.subscribe(Wakeup("channel", name), ring)
            leave = partial(self._leave, name, unsubscribe)
            watched = Watched(name, ring, leave, partial(self._renew, name))
            self._watched[name] = watched
        watched.subscribers += 1
        return watched

    def _leave(self, name: str, unsubscribe: Callable[[], None]) -> None:
        watched = self._watched[name]
        watched.subscribers -= 1
        if not watched.subscribers:
            del self._watched[name]
            watched.stop()
            unsubscribe()

    async def _renew(self, name: str) -> None:
        await self._app.arun(channel_store.renew([name]))

    def _ring(self, name: str) -> None:
        """Note that a channel may have moved; called by any thread."""
        self._rung.add(name)
        if not self._will_look:  # one call for many rings
            self._will_look = True
            with contextlib.suppress(RuntimeError):  # the loop has closed
                self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self._will_look = False
        if self._reading is None:
            self._reading = self._loop.create_task(self._read())

    async def _read(self) -> None:
        """Read the channels that have moved, until none is left."""
        try:
            while self._rung:
                names = [self._rung.pop() for _ in range(len(self._rung))]
                await self._read_all([self._watched[n] for n in names if n in self._watched])
        except DatabaseError as error:
            log.debug("the hub could not read: %s", error)  # the next wakeup comes within a second
        except Exception:  # it must not end for all subscribers
            log.exception("the hub failed")
        finally:
            self._reading = None

    async def _read_all(self, channels: list[Watched]) -> None:
        cursors: dict[str, str] = {}
        for each in channels:
            if each.cursor is None or self._wakeups.is_closed:
                each.wake()  # its subscribers look for themselves
            else:
                cursors[each.name] = each.cursor
        moved = set(cursors)
        if len(cursors) > AT_ONCE:  # all were rung, of which few have moved
            moved = await self._app.arun(reading.moved(cursors, silent=self._is_silent_due()))
        left = iter([each for each in channels if each.name in moved])
        while some := list(islice(left, AT_ONCE)):
            await self._read_some(some)

    def _is_silent_due(self) -> bool:
        """Say whether to look for ends of silent jobs: the safety net finds them soon enough."""
        is_due = self._loop.time() >= self._silent_looked_at + SILENT_EVERY
        if is_due:
            self._silent_looked_at = self._loop.time()
        return is_due

    async def _read_some(self, waiting: Sequence[Watched]) -> None:
        reads = [
            ReadFrom(each.name, Cursor.parse(each.cursor), MOST_EVENTS, MOST_BYTES)
            for each in waiting
        ]
        found = await self._app.arun(reading.read(reads))
        posted = [each.name for each, of_it in zip(waiting, found, strict=True) if of_it.posted]
        if posted:
            await self._app.arun(events.place(posted))
            found = await self._app.arun(reading.read(reads))
        for each, of_it in zip(waiting, found, strict=True):
            self._pass_on(each, of_it)

    def _pass_on(self, watched: Watched, found: Found) -> None:
        page = found.page
        watched.lives_for(found.ttl)
        if isinstance(page, TowpathError):
            watched.forget()
            return
        if page.events or page.ended is not None:
            watched.add(page)
        if found.posted or not page.is_current:
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
