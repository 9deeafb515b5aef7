"""The verbs of events."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from towpath.app.checks import at_least_one, count, headers_of, key_of
from towpath.app.consuming import Consuming
from towpath.app.hub import Hubs
from towpath.app.subscriptions import (
    NOW,
    Place,
    Subscription,
    ThreadSubscription,
    events_of,
    iterate,
    iterate_blocking,
    pieces_of,
)
from towpath.app.subscriptions import START as FIRST
from towpath.database.wakeups import Wakeups
from towpath.errors import ChannelGone, Invalid, TowpathError
from towpath.model.channels import CLOSED, JOB, Channel, checked_channel, checked_own
from towpath.model.consumers import Attachment, Consumer, Owner, checked_consumer
from towpath.model.cursor import START, Cursor
from towpath.model.event import Event, EventPage, NewEvent, StreamEnd, event_type
from towpath.model.ids import uuid7
from towpath.model.instants import Duration, microseconds
from towpath.model.payload import encode
from towpath.operation import answered
from towpath.settings import MOST_LIMIT
from towpath.store import channels, consumers, events, reading, trimming
from towpath.store.channels import Head
from towpath.store.consumers import Ack, Attached
from towpath.store.event_rows import EventBody, encoded
from towpath.store.events import Append
from towpath.store.reading import Found, ReadFrom
from towpath.store.trimming import ChannelLimits

if TYPE_CHECKING:
    from towpath.app.app import App

MOST_PAGE: Final = 1_000  # events of one page
MOST_EVENTS: Final = 10_000  # of one call
MOST_GENERATION: Final = 2**62


class Events:
    """Channels, and the events in them."""

    def __init__(self, app: "App", wakeups: Wakeups) -> None:
        self._app = app
        self._hubs = Hubs(app, wakeups)

    async def apublish(
        self,
        channel: str,
        payload: object = None,
        *,
        type: str | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        connection: object = None,
    ) -> Event:
        """Add an event to a channel; with a connection, in that connection's transaction.

        The channel begins with its first event. If it has an event with this key already, that
        event is returned and nothing is stored. In the caller's transaction the event has no cursor
        yet: it gets its place after the commit, ahead of everything published later.
        """
        event = NewEvent(payload, type, key, headers or {})
        return (await self.apublish_many(channel, [event], connection=connection))[0]

    async def apublish_many(
        self, channel: str, events: Iterable[NewEvent], *, connection: object = None
    ) -> list[Event]:
        """Add events to a channel, in this order and next to each other: all of them or none."""
        return await self._aadded(self._append(checked_own(channel), events), connection)

    async def aread(
        self,
        channel: str,
        after: str | None = None,
        *,
        last: int | None = None,
        since: datetime | None = None,
        types: Sequence[str] | None = None,
        limit: int = MOST_PAGE,
    ) -> EventPage:
        """Read the events behind a cursor, oldest first; without one, from the beginning.

        It may begin elsewhere, and choose events by their types, as `subscribe`. CursorReset if the
        reader cannot go on from there. A page also ends at about 1 MiB. A channel that does not
        exist yet is empty.
        """
        place = Place(channel, after, last, since, types)
        most = min(at_least_one(limit, "limit"), MOST_PAGE)
        first = await self._afirst(place)
        cursor = START if first is None else Cursor.parse(first)
        found = await self.afind(ReadFrom(place.channel, cursor, most))
        return place.wanted(answered(found.page))

    async def afind(self, read: ReadFrom) -> Found:
        """Read events, and what else is known of their channel: for doors."""
        [found] = await self._app.arun(reading.read([read]))
        is_placed = not found.posted
        while not is_placed:
            is_placed = await self._aplace_some(read.channel)
            [found] = await self._app.arun(reading.read([read]))
            if not found.is_current:  # else events that wait for their numbers may belong to it
                break
        if found.renews:
            await self._app.arun(channels.renew([read.channel]))
        return found

    async def aposition(self, channel: str) -> str:
        """Return the cursor of the newest event: what is read after it is published later."""
        return str((await self._ahead(checked_channel(channel))).cursor)

    async def _ahead(self, channel: str) -> Head:
        """Return where a channel stands when all that was posted before has its number."""
        [head] = await self._app.arun(channels.heads([channel]))
        if head.posted:
            while not await self._aplace_some(channel):
                pass
            [head] = await self._app.arun(channels.heads([channel]))
        return head

    async def _aplace_some(self, channel: str) -> bool:
        """Give numbers to some of what is posted; say whether that was all, but for what is new."""
        [answer] = await self._app.arun(events.place([channel]))
        return isinstance(answer, TowpathError) or not answer.posted

    async def aclose(self, channel: str) -> None:
        """End a channel: readers are told, and a later publish is refused with ChannelClosed."""
        append = Append(channel=checked_own(channel), ended=CLOSED, create=False)
        answered((await self._app.arun(events.append([append])))[0])

    async def adelete(self, channel: str) -> bool:
        """Delete a channel and its events; say whether there was one. Its readers are reset."""
        try:
            return await self._app.arun(channels.delete(checked_own(channel)))
        except ChannelGone:
            return False

    async def follow(
        self,
        channel: str,
        after: str | None = None,
        *,
        last: int | None = None,
        since: datetime | None = None,
        types: Sequence[str] | None = None,
        consumer: str | None = None,
        owner: Owner | None = None,
        generation: int | None = None,
        consuming: type[Consuming] = Consuming,
    ) -> Subscription:
        """Begin a subscription that a task reads page by page; options as for `subscribe`.

        For a consumer a page is acked when the next one is asked for, unless another kind of
        `consuming` says otherwise. With an `owner`, the consumer is or becomes its own. With a
        `generation` the subscription goes on as this attachment, if none has replaced it.
        """
        place = Place(channel, after, last, since, types)
        if consumer is None or generation is None:
            first, acking = await self._abegun(place, consumer, owner, consuming)
            return Subscription(self, self._hubs, place, first, acking)
        number = count(generation, "generation", MOST_GENERATION)
        by = None if owner is None else owner.name
        attached = Attached(place.channel, checked_consumer(consumer), number, by)
        attachment = await self._app.arun(consumers.resume(attached))
        acking = consuming(self._app, place.channel, consumer, attachment)
        return Subscription(self, self._hubs, place, attachment.cursor, acking)

    async def _abegun(
        self,
        place: Place,
        consumer: str | None,
        owner: Owner | None = None,
        consuming: type[Consuming] = Consuming,
    ) -> tuple[str | None, Consuming | None]:
        """Return the cursor behind which a subscription begins, and its consumer, attached."""
        first = await self._afirst(place)
        if consumer is None:
            return first, None
        attachment = await self.aattach(place.channel, consumer, first, owner=owner)
        return attachment.cursor, consuming(self._app, place.channel, consumer, attachment)

    async def _afirst(self, place: Place) -> str | None:
        """Return the cursor behind which a reader begins; None: with the oldest event."""
        if place.after == NOW:
            return await self.aposition(place.channel)
        if place.last is not None:
            return await self._abefore_last(place.channel, place.last)
        if place.since is not None:
            cursor = await self._app.arun(channels.before(place.channel, place.since))
            return str(cursor)
        return None if place.after == FIRST else place.after

    async def _abefore_last(self, channel: str, last: int) -> str:
        head = await self._ahead(channel)
        return str(head.cursor._replace(seq=max(head.cursor.seq - last, head.oldest.seq)))

    async def _aadded(self, append: Append, connection: object) -> list[Event]:
        if not append.events:
            return []
        if connection is not None:
            await self.acheck_room(append.channel, connection)
            return await self._app.arun(events.post(append), connection)
        if append.is_plain:
            [stored] = await self._app.arun(events.publish([append]))
            if stored is not None:
                return stored
        await self.acheck_room(append.channel)
        return list(answered((await self._app.arun(events.append([append])))[0]).events)

    async def acheck_room(self, channel: str, connection: object = None) -> None:
        """Raise MaxChannelsReached if the channel would be one too many: for doors."""
        if most := self._app.settings.max_channels:
            await self._app.arun(channels.check_room(channel, most), connection)

    async def aattach(
        self,
        channel: str,
        consumer: str,
        after: str | None = None,
        *,
        owner: Owner | None = None,
    ) -> Attachment:
        """Begin to read as a durable consumer; return its cursor, and the generation for acks.

        A new consumer begins behind the cursor `after`, or at "start" (the default) or "now"; the
        channel is made if there is none. One that is known goes on from its last ack. Readers
        that have attached as this consumer before are fenced: ConsumerFenced.

        With an `owner` a new consumer belongs to it, and one of another owner is refused with
        ConsumerTaken: here, at an ack, a move and a forget.
        """
        cursor = await self._aplace(checked_channel(channel), after)
        name = checked_consumer(consumer)
        if owner is None or owner.makes_channel:
            await self.acheck_room(channel)
        most = self._app.settings.max_consumers
        return await self._app.arun(consumers.attach(channel, name, cursor, owner, most))

    async def aack(
        self,
        channel: str,
        consumer: str,
        cursor: str,
        generation: int,
        *,
        owner: Owner | None = None,
    ) -> str:
        """Note that a consumer is done with all events up to a cursor; return where it is now.

        An older cursor changes nothing. ConsumerFenced if another reader has attached since;
        CursorReset if the channel was made again or restored, or has not so many events.
        """
        ack = Ack(
            checked_channel(channel),
            checked_consumer(consumer),
            Cursor.parse(cursor),
            count(generation, "generation", MOST_GENERATION),
            None if owner is None else owner.name,
        )
        return answered((await self._app.arun(consumers.ack([ack])))[0])

    async def aconsumers(
        self, channel: str, *, after: str = "", limit: int = 100
    ) -> list[Consumer]:
        """List the consumers of a channel and their lags, by name, from behind a name on."""
        if after:
            checked_consumer(after, also_own=True)
        most = min(at_least_one(limit, "limit"), MOST_PAGE)
        ttl = microseconds(self._app.settings.consumer_ttl)
        return await self._app.arun(
            consumers.list_consumers(checked_channel(channel), after, most, ttl)
        )

    async def amove_consumer(
        self, channel: str, consumer: str, after: str, *, owner: Owner | None = None
    ) -> str:
        """Let a consumer go on behind a cursor, or from "start" or "now"; return its cursor.

        For a consumer that was reset, or is to read again or to skip. It may move back. Readers
        that have attached as this consumer are fenced.
        """
        cursor = await self._aplace(checked_channel(channel), after)
        name = checked_consumer(consumer)
        by = None if owner is None else owner.name
        return await self._app.arun(consumers.move(channel, name, cursor, by))

    async def aforget_consumer(
        self, channel: str, consumer: str, *, owner: Owner | None = None
    ) -> bool:
        """Forget a consumer; say whether there was one. Its subscriptions end with NotFound."""
        name = checked_consumer(consumer)
        by = None if owner is None else owner.name
        return await self._app.arun(consumers.forget(checked_channel(channel), name, by))

    async def alimit(
        self,
        channel: str,
        *,
        max_age: Duration | None = None,
        max_bytes: int | None = None,
        max_count: int | None = None,
        drop_acked: bool = False,
    ) -> None:
        """Set what a channel keeps, instead of what the settings say; 0 is no limit.

        A limit that is not given is that of the settings again. With `drop_acked` an event also
        goes as soon as all active consumers have acked it. Upkeep deletes what is over a limit,
        whatever consumers have acked: a reader that it overtakes gets CursorReset. The channel is
        made if there is none; the stream of a job has no limits.
        """
        if checked_channel(channel).startswith(JOB):
            msg = f"channel {channel!r} is the stream of a job, and is kept as long as the job"
            raise Invalid(msg)
        limits = ChannelLimits(
            max_age=None if max_age is None else microseconds(max_age, "max_age"),
            max_bytes=None if max_bytes is None else count(max_bytes, "max_bytes", MOST_LIMIT),
            max_count=None if max_count is None else count(max_count, "max_count", MOST_LIMIT),
            drop_acked=bool(drop_acked),
        )
        await self.acheck_room(channel)
        await self._app.arun(trimming.limit(channel, limits))

    async def _aplace(self, channel: str, after: str | None) -> Cursor | None:
        """Return the cursor of a place; None: the oldest event."""
        if after is None or after == FIRST:
            return None
        return Cursor.parse(await self.aposition(channel) if after == NOW else after)

    async def arestored(self) -> int:
        """Begin a new era after a backup was restored: cursors of before are reset."""
        return await self._app.arun(channels.raise_era())

    async def alist(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[Channel]:
        """List channels whose names begin with `prefix`, by name, from behind a name on."""
        if prefix:
            checked_channel(prefix)
        if after:
            checked_channel(after)
        most = min(at_least_one(limit, "limit"), MOST_PAGE)
        return await self._app.arun(channels.list_channels(prefix, after, most))

    def subscribe(
        self,
        channel: str,
        after: str | None = None,
        *,
        last: int | None = None,
        since: datetime | None = None,
        types: Sequence[str] | None = None,
        timeout: Duration | None = None,
        consumer: str | None = None,
    ) -> Iterator[Event]:
        """Iterate over the events of a channel: those that it has, then those that come.

        It begins behind the cursor `after`, which may also be "start" (the default) or "now"; or
        with the `last` so many events; or with those published `since` a time. `types` such as
        ["order.*"] choose events by their type. It ends with the channel, or when no event came
        for `timeout`. Meanwhile it waits for a database that is away, or locked by another program.
        CursorReset if events are missing.

        A durable `consumer` goes on from its last ack, and begins as said above only when it is
        new. An event is done when the next one is asked for. What is done is acked at the end of
        each page, so before it waits; within a page once a second; and when the loop is left: the
        event in hand then comes again. ConsumerFenced, within about a second, if another reader
        attaches as this consumer.
        """
        place = Place(channel, after, last, since, types)
        first, consuming = self._begun(place, consumer)
        subscription = ThreadSubscription(self, self._hubs, place, first, consuming)
        return iterate_blocking(subscription, timeout, events_of)

    def asubscribe(
        self,
        channel: str,
        after: str | None = None,
        *,
        last: int | None = None,
        since: datetime | None = None,
        types: Sequence[str] | None = None,
        timeout: Duration | None = None,
        consumer: str | None = None,
    ) -> AsyncIterator[Event]:
        """Iterate over the events of a channel, in an event loop; see `subscribe`."""
        subscribing = self.follow(
            channel, after, last=last, since=since, types=types, consumer=consumer
        )
        return iterate(subscribing, timeout, events_of)

    def pieces(
        self, channel: str, after: str | None, timeout: Duration | None
    ) -> Iterator[Event | StreamEnd]:
        """Iterate over the events of a channel, and then over its end."""
        place = Place(channel, after)
        subscription = ThreadSubscription(self, self._hubs, place, self._first(place), None)
        return iterate_blocking(subscription, timeout, pieces_of)

    def apieces(
        self, channel: str, after: str | None, timeout: Duration | None
    ) -> AsyncIterator[Event | StreamEnd]:
        """Iterate over the events of a channel, and then over its end, in an event loop."""
        return iterate(self.follow(channel, after), timeout, pieces_of)

    def _append(self, channel: str, events: Iterable[NewEvent]) -> Append:
        most = self._app.settings.max_payload
        bodies = [_body(event, most) for event in events]
        if len(bodies) > MOST_EVENTS:
            msg = f"{len(bodies):,} events in one call; at most {MOST_EVENTS:,} are allowed"
            raise Invalid(msg)
        return Append(channel=channel, events=bodies, most_bytes=self._app.settings.batch_bytes)

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def publish(
        self,
        channel: str,
        payload: object = None,
        *,
        type: str | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        connection: object = None,
    ) -> Event:
        """Add an event to a channel; with a connection, in that connection's transaction.

        The channel begins with its first event. If it has an event with this key already, that
        event is returned and nothing is stored. In the caller's transaction the event has no cursor
        yet: it gets its place after the commit, ahead of everything published later.
        """
        event = NewEvent(payload, type, key, headers or {})
        return self.publish_many(channel, [event], connection=connection)[0]

    def publish_many(
        self, channel: str, events: Iterable[NewEvent], *, connection: object = None
    ) -> list[Event]:
        """Add events to a channel, in this order and next to each other: all of them or none."""
        return self._added(self._append(checked_own(channel), events), connection)

    def read(
        self,
        channel: str,
        after: str | None = None,
        *,
        last: int | None = None,
        since: datetime | None = None,
        types: Sequence[str] | None = None,
        limit: int = MOST_PAGE,
    ) -> EventPage:
        """Read the events behind a cursor, oldest first; without one, from the beginning.

        It may begin elsewhere, and choose events by their types, as `subscribe`. CursorReset if the
        reader cannot go on from there. A page also ends at about 1 MiB. A channel that does not
        exist yet is empty.
        """
        place = Place(channel, after, last, since, types)
        most = min(at_least_one(limit, "limit"), MOST_PAGE)
        first = self._first(place)
        cursor = START if first is None else Cursor.parse(first)
        found = self.find(ReadFrom(place.channel, cursor, most))
        return place.wanted(answered(found.page))

    def find(self, read: ReadFrom) -> Found:
        """Read events, and what else is known of their channel: for doors."""
        [found] = self._app.run(reading.read([read]))
        is_placed = not found.posted
        while not is_placed:
            is_placed = self._place_some(read.channel)
            [found] = self._app.run(reading.read([read]))
            if not found.is_current:
                break
        if found.renews:
            self._app.run(channels.renew([read.channel]))
        return found

    def position(self, channel: str) -> str:
        """Return the cursor of the newest event: what is read after it is published later."""
        return str(self._head(checked_channel(channel)).cursor)

    def _head(self, channel: str) -> Head:
        """Return where a channel stands when all that was posted before has its number."""
        [head] = self._app.run(channels.heads([channel]))
        if head.posted:
            while not self._place_some(channel):
                pass
            [head] = self._app.run(channels.heads([channel]))
        return head

    def _place_some(self, channel: str) -> bool:
        """Give numbers to some of what is posted; say whether that was all, but for what is new."""
        [answer] = self._app.run(events.place([channel]))
        return isinstance(answer, TowpathError) or not answer.posted

    def close(self, channel: str) -> None:
        """End a channel: readers are told, and a later publish is refused with ChannelClosed."""
        append = Append(channel=checked_own(channel), ended=CLOSED, create=False)
        answered(self._app.run(events.append([append]))[0])

    def delete(self, channel: str) -> bool:
        """Delete a channel and its events; say whether there was one. Its readers are reset."""
        try:
            return self._app.run(channels.delete(checked_own(channel)))
        except ChannelGone:
            return False

    def _begun(
        self,
        place: Place,
        consumer: str | None,
        owner: Owner | None = None,
        consuming: type[Consuming] = Consuming,
    ) -> tuple[str | None, Consuming | None]:
        """Return the cursor behind which a subscription begins, and its consumer, attached."""
        first = self._first(place)
        if consumer is None:
            return (first, None)
        attachment = self.attach(place.channel, consumer, first, owner=owner)
        return (attachment.cursor, consuming(self._app, place.channel, consumer, attachment))

    def _first(self, place: Place) -> str | None:
        """Return the cursor behind which a reader begins; None: with the oldest event."""
        if place.after == NOW:
            return self.position(place.channel)
        if place.last is not None:
            return self._before_last(place.channel, place.last)
        if place.since is not None:
            cursor = self._app.run(channels.before(place.channel, place.since))
            return str(cursor)
        return None if place.after == FIRST else place.after

    def _before_last(self, channel: str, last: int) -> str:
        head = self._head(channel)
        return str(head.cursor._replace(seq=max(head.cursor.seq - last, head.oldest.seq)))

    def _added(self, append: Append, connection: object) -> list[Event]:
        if not append.events:
            return []
        if connection is not None:
            self.check_room(append.channel, connection)
            return self._app.run(events.post(append), connection)
        if append.is_plain:
            [stored] = self._app.run(events.publish([append]))
            if stored is not None:
                return stored
        self.check_room(append.channel)
        return list(answered(self._app.run(events.append([append]))[0]).events)

    def check_room(self, channel: str, connection: object = None) -> None:
        """Raise MaxChannelsReached if the channel would be one too many: for doors."""
        if most := self._app.settings.max_channels:
            self._app.run(channels.check_room(channel, most), connection)

    def attach(
        self, channel: str, consumer: str, after: str | None = None, *, owner: Owner | None = None
    ) -> Attachment:
        """Begin to read as a durable consumer; return its cursor, and the generation for acks.

        A new consumer begins behind the cursor `after`, or at "start" (the default) or "now"; the
        channel is made if there is none. One that is known goes on from its last ack. Readers
        that have attached as this consumer before are fenced: ConsumerFenced.

        With an `owner` a new consumer belongs to it, and one of another owner is refused with
        ConsumerTaken: here, at an ack, a move and a forget.
        """
        cursor = self._place(checked_channel(channel), after)
        name = checked_consumer(consumer)
        if owner is None or owner.makes_channel:
            self.check_room(channel)
        most = self._app.settings.max_consumers
        return self._app.run(consumers.attach(channel, name, cursor, owner, most))

    def ack(
        self,
        channel: str,
        consumer: str,
        cursor: str,
        generation: int,
        *,
        owner: Owner | None = None,
    ) -> str:
        """Note that a consumer is done with all events up to a cursor; return where it is now.

        An older cursor changes nothing. ConsumerFenced if another reader has attached since;
        CursorReset if the channel was made again or restored, or has not so many events.
        """
        ack = Ack(
            checked_channel(channel),
            checked_consumer(consumer),
            Cursor.parse(cursor),
            count(generation, "generation", MOST_GENERATION),
            None if owner is None else owner.name,
        )
        return answered(self._app.run(consumers.ack([ack]))[0])

    def consumers(self, channel: str, *, after: str = "", limit: int = 100) -> list[Consumer]:
        """List the consumers of a channel and their lags, by name, from behind a name on."""
        if after:
            checked_consumer(after, also_own=True)
        most = min(at_least_one(limit, "limit"), MOST_PAGE)
        ttl = microseconds(self._app.settings.consumer_ttl)
        return self._app.run(consumers.list_consumers(checked_channel(channel), after, most, ttl))

    def move_consumer(
        self, channel: str, consumer: str, after: str, *, owner: Owner | None = None
    ) -> str:
        """Let a consumer go on behind a cursor, or from "start" or "now"; return its cursor.

        For a consumer that was reset, or is to read again or to skip. It may move back. Readers
        that have attached as this consumer are fenced.
        """
        cursor = self._place(checked_channel(channel), after)
        name = checked_consumer(consumer)
        by = None if owner is None else owner.name
        return self._app.run(consumers.move(channel, name, cursor, by))

    def forget_consumer(self, channel: str, consumer: str, *, owner: Owner | None = None) -> bool:
        """Forget a consumer; say whether there was one. Its subscriptions end with NotFound."""
        name = checked_consumer(consumer)
        by = None if owner is None else owner.name
        return self._app.run(consumers.forget(checked_channel(channel), name, by))

    def limit(
        self,
        channel: str,
        *,
        max_age: Duration | None = None,
        max_bytes: int | None = None,
        max_count: int | None = None,
        drop_acked: bool = False,
    ) -> None:
        """Set what a channel keeps, instead of what the settings say; 0 is no limit.

        A limit that is not given is that of the settings again. With `drop_acked` an event also
        goes as soon as all active consumers have acked it. Upkeep deletes what is over a limit,
        whatever consumers have acked: a reader that it overtakes gets CursorReset. The channel is
        made if there is none; the stream of a job has no limits.
        """
        if checked_channel(channel).startswith(JOB):
            msg = f"channel {channel!r} is the stream of a job, and is kept as long as the job"
            raise Invalid(msg)
        limits = ChannelLimits(
            max_age=None if max_age is None else microseconds(max_age, "max_age"),
            max_bytes=None if max_bytes is None else count(max_bytes, "max_bytes", MOST_LIMIT),
            max_count=None if max_count is None else count(max_count, "max_count", MOST_LIMIT),
            drop_acked=bool(drop_acked),
        )
        self.check_room(channel)
        self._app.run(trimming.limit(channel, limits))

    def _place(self, channel: str, after: str | None) -> Cursor | None:
        """Return the cursor of a place; None: the oldest event."""
        if after is None or after == FIRST:
            return None
        return Cursor.parse(self.position(channel) if after == NOW else after)

    def restored(self) -> int:
        """Begin a new era after a backup was restored: cursors of before are reset."""
        return self._app.run(channels.raise_era())

    def list(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[Channel]:
        """List channels whose names begin with `prefix`, by name, from behind a name on."""
        if prefix:
            checked_channel(prefix)
        if after:
            checked_channel(after)
        most = min(at_least_one(limit, "limit"), MOST_PAGE)
        return self._app.run(channels.list_channels(prefix, after, most))


def _body(event: Any, most: int) -> EventBody:
    if not isinstance(event, NewEvent):
        msg = f"expected a NewEvent, not {event!r}"
        raise Invalid(msg)
    body, encoding = encode(event.payload, most)
    headers = encoded(headers_of(event.headers))
    return EventBody(
        id=uuid7(),
        body=body,
        encoding=encoding,
        size=len(body.encode()) + len((headers or "").encode()),
        type=event_type(event.type),
        key=key_of(event.key),
        headers=headers,
    )
