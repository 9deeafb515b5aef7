"""Subscriptions: what a channel has, then what comes, each event once and in order."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from msgspec.structs import replace

from towpath.app.checks import at_least_one
from towpath.app.consuming import EVERY, OUTAGE, Consuming
from towpath.app.hub import (
    MOST_BYTES,
    MOST_EVENTS,
    Hubs,
    SharedPage,
    ThreadListener,
    Watched,
    renewal,
)
from towpath.errors import DatabaseError, Invalid, NotFound
from towpath.model.channels import JOB, checked_channel, job_of
from towpath.model.cursor import START as FIRST
from towpath.model.cursor import Cursor
from towpath.model.event import Event, EventPage, StreamEnd, TypeFilter
from towpath.model.instants import Duration, instant, microseconds
from towpath.operation import answered
from towpath.store.reading import DELETED, Found, ReadFrom

if TYPE_CHECKING:
    from towpath.app.events import Events

T = TypeVar("T")

PAUSE: Final = 1.0  # seconds between two reads while the database is away
START: Final = "start"
NOW: Final = "now"


class Place:
    """Where in a channel a subscription begins, and which events it wants."""

    def __init__(
        self,
        channel: str,
        after: str | None = None,
        last: int | None = None,
        since: datetime | None = None,
        types: Sequence[str] | None = None,
    ) -> None:
        self.channel = checked_channel(channel)
        if channel.startswith(JOB) and job_of(channel) is None:  # a reader would wait for ever
            msg = f"there is no job {channel.removeprefix(JOB)!r}"
            raise NotFound(msg)
        if sum(each is not None for each in (after, last, since)) > 1:
            msg = "pass one of `after`, `last` and `since`"
            raise Invalid(msg)
        self.after = after
        self.last = None if last is None else at_least_one(last, "last")
        self.since = None if since is None else instant(since, "since")
        self._wants = None if types is None else TypeFilter(types)
        if after not in {None, START, NOW}:
            Cursor.parse(after)

    def wanted(self, page: EventPage) -> EventPage:
        """Return a page with only the events that are wanted."""
        if self._wants is None:
            return page
        return replace(page, events=[each for each in page.events if self._wants(each.type)])


class Reader:
    """The position of a subscription."""

    def __init__(self, place: Place, cursor: str | None, consuming: Consuming | None) -> None:
        self.consuming = consuming  # None: no consumer, so no place is kept
        self.cursor = cursor  # everything up to here is done; None: nothing is read yet
        self.channel = place.channel
        self._place = place
        self._told = cursor  # the cursor of the page before
        self._has_read = False

    def begin(self, cursor: str) -> None:
        """Begin behind the cursor that a read has told: a reader that knows it can be reset."""
        self.cursor = self._told = cursor

    def taken(self, shared: SharedPage) -> SharedPage | None:
        """Move behind a page; return what of it is wanted, or None to go on reading."""
        page = shared.page
        self.cursor, self._has_read = page.cursor, True
        if self._told is None:
            self._told = page.after
        wanted = self._place.wanted(page)
        if wanted is not page:
            page = replace(wanted, after=self._told)
            shared = SharedPage(page, {})
        if not page.events and page.ended is None:
            return None
        self._told = page.cursor
        return shared

    def read_from(self, *bounds: int) -> ReadFrom:
        """Return what to read next: at most so many events, and about so many bytes."""
        cursor = FIRST if self.cursor is None else Cursor.parse(self.cursor)
        return ReadFrom(self.channel, cursor, *bounds)

    def page_of(self, found: Found) -> EventPage:
        """Return the page that was found, or the end of a job that was deleted before it spoke."""
        at = self.cursor if self._has_read and self.channel.startswith(JOB) else None
        if at is None or not isinstance(found.page, NotFound):
            return answered(found.page)
        return EventPage(events=[], after=at, cursor=at, oldest=at, head=at, ended=DELETED)

    def check(self, error: DatabaseError) -> None:
        """Raise the error, unless something was read before: then the database comes back."""
        if not self._has_read:
            raise error


class Subscription(Reader):
    """Reads a channel for a task. Leave it, or close it, to end it."""

    def __init__(
        self,
        verbs: "Events",
        hubs: Hubs,
        place: Place,
        cursor: str | None,
        consuming: Consuming | None = None,
    ) -> None:
        super().__init__(place, cursor, consuming)
        self._verbs = verbs
        self._hubs = hubs
        self._watched: Watched | None = hubs.watch(place.channel)

    async def next(self) -> SharedPage:
        """Wait for the next page with events that are wanted, or with the end of the channel."""
        while True:
            watched = self._open()
            news = watched.news()
            shared = watched.page_after(self.cursor) if self.cursor else None
            try:
                if self.consuming:
                    await self.consuming.akeep(self.cursor)
                if shared is None and watched.cursor is not None and watched.cursor == self.cursor:
                    await self._wait(news)  # the hub has read up to here, and reads on
                    continue
                if shared is None:
                    shared = SharedPage(await self._read(watched), {})
            except OUTAGE as error:
                self.check(error)
                await asyncio.sleep(PAUSE)
                continue
            wanted = self.taken(shared)
            if wanted is not None:
                return wanted
            if not shared.page.events and watched.may_wait(shared.page.cursor):
                if news.is_set():  # since the read, and maybe before the hub began
                    news = watched.news()
                    watched.look()
                await self._wait(news)

    async def _wait(self, news: asyncio.Event) -> None:
        """Wait for news; for a consumer not too long, as another reader may attach."""
        if self.consuming is None:
            await news.wait()
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), EVERY)

    async def _read(self, watched: Watched) -> EventPage:
        """Read a page that is no larger than those of the hub: it may stay until it is sent."""
        found = await self._verbs.afind(self.read_from(MOST_EVENTS, MOST_BYTES))
        watched.lives_for(found.ttl)
        return self.page_of(found)

    def _open(self) -> Watched:
        self._hubs.check_open()
        if self._watched is None:
            msg = "this subscription was closed; make a new one"
            raise Invalid(msg)
        return self._watched

    def close(self) -> None:
        """End it."""
        if self._watched is not None:
            self._watched.leave()
            self._watched = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


class ThreadSubscription(Reader):
    """Reads a channel for a thread."""

    def __init__(
        self,
        verbs: "Events",
        hubs: Hubs,
        place: Place,
        cursor: str | None,
        consuming: Consuming | None = None,
    ) -> None:
        super().__init__(place, cursor, consuming)
        self._verbs = verbs
        self._hubs = hubs
        self._listener: ThreadListener = hubs.listen([place.channel])

    def next(self, timeout: float | None) -> SharedPage | None:
        """Wait for the next page with events that are wanted; None if none comes in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._hubs.check_open()
            waits = [EVERY] if self.consuming else []  # as another reader may attach
            try:
                if self.consuming:
                    self.consuming.keep(self.cursor)
                found = self._verbs.find(self.read_from())
            except OUTAGE as error:
                self.check(error)
                left = PAUSE if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    return None
                time.sleep(min(left, PAUSE))
                continue
            page = self.page_of(found)
            if found.ttl is not None:  # each read prolongs the life of the channel
                waits.append(renewal(found.ttl))
            wanted = self.taken(SharedPage(page, {}))
            if wanted is not None:
                return wanted
            if page.events:
                continue
            if deadline is not None:
                waits.append(deadline - time.monotonic())
                if waits[-1] <= 0:
                    return None
            self._listener.wait(min(waits, default=None))

    def close(self) -> None:
        """End it."""
        self._listener.leave()


def events_of(page: EventPage) -> Sequence[Event]:
    """Return the events of a page."""
    return page.events


def pieces_of(page: EventPage) -> Sequence[Event | StreamEnd]:
    """Return the events of a page, and the end of the channel if the page reaches it."""
    if page.ended is None:
        return page.events
    return [*page.events, StreamEnd(page.ended, page.cursor)]


async def iterate(
    subscribing: Coroutine[Any, Any, Subscription],
    timeout: Duration | None,
    items: Callable[[EventPage], Sequence[T]],
) -> AsyncIterator[T]:
    """Iterate over the items of a subscription's pages, to the end of the channel."""
    seconds = None if timeout is None else microseconds(timeout, "timeout") / 1e6
    async with await subscribing as subscription:
        consuming = subscription.consuming
        try:
            while True:
                try:
                    async with asyncio.timeout(seconds):
                        page = (await subscription.next()).page
                except TimeoutError:
                    return
                for item in items(page):
                    yield item
                    if consuming and isinstance(item, Event) and item.cursor:
                        await consuming.aupto(item.cursor)
                if page.ended is not None:
                    return
        finally:
            if consuming:
                await consuming.aleave()


def iterate_blocking(
    subscription: ThreadSubscription,
    timeout: Duration | None,
    items: Callable[[EventPage], Sequence[T]],
) -> Iterator[T]:
    """Iterate over the items of a subscription's pages, to the end of the channel."""
    seconds = None if timeout is None else microseconds(timeout, "timeout") / 1e6
    consuming = subscription.consuming
    with contextlib.closing(subscription):
        try:
            while True:
                shared = subscription.next(seconds)
                if shared is None:
                    return
                for item in items(shared.page):
                    yield item
                    if consuming and isinstance(item, Event) and item.cursor:
                        consuming.upto(item.cursor)
                if shared.page.ended is not None:
                    return
        finally:
            if consuming:
                consuming.leave()
