"""Random verbs on channels, and callers' transactions beside them: against a small model."""

import itertools
import sqlite3
from functools import partial

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from towpath import App, NewEvent
from towpath.errors import (
    ChannelClosed,
    ConsumerFenced,
    CursorReset,
    Invalid,
    NotFound,
    OutOfOrder,
    ProducerFenced,
)
from towpath.model.cursor import Cursor
from towpath.model.durable import Fork, NewStream, Producer
from towpath.model.ids import uuid7
from towpath.store import creating, events
from towpath.store.events import Append

_rounds = itertools.count(1)


class ModelChannel:
    """What we expect of one channel."""

    def __init__(self):
        self.events = []  # payloads in order, also of those that are trimmed
        self.keys = {}  # the places of events that have one
        self.closed = False
        self.low = 0  # so many are trimmed
        self.most = None  # events that it keeps
        self.consumers = {}  # by name: the number of events it is done with, and its generation
        self.producers = {}  # by name: epoch, and the number of the newest append
        self.order = None  # Stream-Seq of the last append
        self.until = None  # when it expires


class Channels(RuleBasedStateMachine):
    """Two channels, as the database has them and as they should be."""

    which = st.sampled_from(["a", "b"])
    who = st.sampled_from(["x", "y"])
    keys = st.sampled_from([None, None, "k", "l"])

    def __init__(self, app, connect, clock):
        super().__init__()
        self.app = app
        self.clock = clock
        self.connect = connect
        self.prefix = f"r{next(_rounds)}"
        self.model = {}
        self.posted = []  # channel, payload, key: of the open transaction
        self.committed = []  # those that wait for their place
        self.connection = None
        self.numbers = itertools.count()
        self.stale = []  # cursors of channels that were deleted

    def name(self, which):
        return f"{self.prefix}:{which}"

    def teardown(self):
        if self.connection:
            self.connection.rollback()
            self.connection.close()
        for which in self.model:  # a round of upkeep visits so many channels and no more
            self.app.events.delete(self.name(which))

    def place(self, which):
        """Have what is committed placed; return the cursor of the newest event."""
        self.settle(which)
        return self.app.events.position(self.name(which))

    def cursor(self, which, place):
        """Return the cursor behind so many events."""
        return f"{self.place(which)[:17]}{place:016}"

    def settle(self, which):
        """Give what callers have committed its place."""
        for each in [each for each in self.committed if each[0] == which]:
            self.committed.remove(each)
            self.add(self.model.setdefault(which, ModelChannel()), *each[1:])

    def add(self, channel, payload, key):
        if key is not None and key in channel.keys:
            return channel.events[channel.keys[key]]
        if key is not None:
            channel.keys[key] = len(channel.events)
        channel.events.append(payload)
        return payload

    @precondition(lambda self: not self.posted)
    @rule(which=which, keys=st.lists(keys, min_size=1, max_size=3))
    def publish(self, which, keys):
        new = [NewEvent(next(self.numbers), key=key) for key in keys]
        self.settle(which)
        channel = self.model.get(which) or ModelChannel()
        known = all(key is not None and key in channel.keys for key in keys)
        if channel.closed and not known:
            with pytest.raises(ChannelClosed):
                self.app.events.publish_many(self.name(which), new)
            return
        self.model[which] = channel
        expected = [self.add(channel, each.payload, each.key) for each in new]
        told = self.app.events.publish_many(self.name(which), new)
        assert [event.payload for event in told] == expected

    def refusal(self, channel, producer, order):
        """Say why an append is refused; `repeated` if it was stored before."""
        known = channel.producers.get(producer.name) if producer else None
        if known and producer.epoch < known[0]:
            return ProducerFenced
        if known and producer.epoch == known[0] and producer.seq <= known[1]:
            return "repeated"
        if channel.closed:
            return ChannelClosed
        if producer:
            is_new = known is None or known[0] < producer.epoch
            if known and is_new and producer.seq:
                return Invalid
            if producer.seq != (0 if is_new else known[1] + 1):
                return OutOfOrder
        return OutOfOrder if order and channel.order and order <= channel.order else None

    @precondition(lambda self: not self.posted)
    @rule(
        which=which,
        producer=st.none() | st.builds(Producer, who, st.integers(0, 1), st.integers(0, 2)),
        order=st.sampled_from([None, "1", "2", "3"]),
    )
    def append(self, which, producer, order):
        """Add an event as a client of Durable Streams does."""
        self.settle(which)
        payload = next(self.numbers)
        append = Append(
            channel=self.name(which),
            events=self.app.events._append(self.name(which), [NewEvent(payload)]).events,
            create=False,
            producer=producer,
            order_key=order,
        )
        [answer] = self.app.run(events.append([append]))
        channel = self.model.get(which)
        if channel is None:
            assert isinstance(answer, NotFound)
            return
        refusal = self.refusal(channel, producer, order)
        if isinstance(refusal, type):
            assert type(answer) is refusal
            return
        assert answer.is_repeated is (refusal == "repeated")
        if refusal is None:
            self.add(channel, payload, None)
            channel.order = order or channel.order
            if producer:
                channel.producers[producer.name] = producer.epoch, producer.seq

    @precondition(lambda self: not self.posted)
    @rule(which=which, seconds=st.integers(1, 3))
    def make(self, which, seconds):
        """Make a channel that ends by itself."""
        self.place(which)
        if which in self.model:
            return
        until = self.clock() + seconds * 1_000_000
        new = NewStream(media="application/json", expires_at=until)
        self.app.run(creating.create(self.name(which), new, [], uuid7()))
        self.model[which] = ModelChannel()
        self.model[which].until = until

    @precondition(lambda self: not self.posted)
    @rule(seconds=st.integers(1, 3))
    def advance(self, seconds):
        """Let time pass, and channels expire."""
        for which in "ab":
            self.place(which)
        over = self.clock() + seconds * 1_000_000
        for which, channel in [*self.model.items()]:
            if channel.until is not None and channel.until <= over:
                self.note_stale(which)
                del self.model[which]
        self.clock.advance(seconds)

    def note_stale(self, which):
        if self.model[which].events:
            self.stale.append((which, self.cursor(which, len(self.model[which].events))))

    @precondition(lambda self: not self.posted)
    @rule()
    def restored(self):
        """Say that a backup was restored: no cursor of before holds."""
        for which in "ab":
            self.place(which)
        for which in self.model:
            self.note_stale(which)
        self.app.events.restored()

    @rule(which=which, key=keys)
    def post(self, which, key):
        if self.connection is None:
            self.connection = self.connect()
        payload = next(self.numbers)
        channel = self.model.get(which)
        if channel and channel.closed:
            return
        event = self.app.events.publish(
            self.name(which), payload, key=key, connection=self.connection
        )
        assert event.cursor is None
        self.posted.append((which, payload, key))

    @precondition(lambda self: self.posted)
    @rule(commits=st.booleans())
    def end(self, commits):
        if commits:
            self.connection.commit()
            self.committed += self.posted
        else:
            self.connection.rollback()
        self.posted = []

    @precondition(lambda self: not self.posted)
    @rule(which=which)
    def close(self, which):
        self.settle(which)
        if which not in self.model:
            with pytest.raises(NotFound):
                self.app.events.close(self.name(which))
            return
        self.app.events.close(self.name(which))
        self.model[which].closed = True

    @precondition(lambda self: not self.posted)
    @rule(which=which)
    def delete(self, which):
        self.settle(which)
        if which in self.model:
            self.note_stale(which)
        channel = self.model.pop(which, None)
        assert self.app.events.delete(self.name(which)) is (channel is not None)

    @precondition(lambda self: not self.posted)
    @rule(which=which, place=st.integers(0, 20), limit=st.integers(1, 5))
    def read(self, which, place, limit):
        """Read a page from the beginning, or from behind an event."""
        self.settle(which)
        channel = self.model.get(which) or ModelChannel()
        after = min(place, len(channel.events))
        cursor = self.cursor(which, after) if after else None
        if cursor and after < channel.low:
            with pytest.raises(CursorReset, match="deleted the events"):
                self.app.events.read(self.name(which), cursor)
            return
        page = self.app.events.read(self.name(which), cursor, limit=limit)
        after = max(after, channel.low)
        assert [event.payload for event in page.events] == channel.events[after : after + limit]
        assert [event.cursor for event in page.events] == [
            self.cursor(which, nth) for nth in range(after + 1, after + len(page.events) + 1)
        ]
        reaches_end = after + len(page.events) == len(channel.events)
        assert page.is_current is reaches_end
        assert page.ended == ("closed" if channel.closed and reaches_end else None)

    @precondition(lambda self: not self.posted)
    @rule(which=which, place=st.integers(0, 20), who=st.none() | who)
    def subscribe(self, which, place, who):
        """Follow the channel up to what there is, from behind an event or as a consumer."""
        self.place(which)
        channel = self.model.get(which)
        if channel is None:
            return
        after = min(place, len(channel.events))
        cursor = self.cursor(which, after) if after else None
        if who is not None:
            if who not in channel.consumers and cursor and after < channel.low:
                return
            begins = max(after, channel.low) if cursor else channel.low
            after, generation = channel.consumers.get(who, (begins, 0))
            channel.consumers[who] = after, generation + 1
        follow = partial(
            self.app.events.subscribe, self.name(which), cursor, timeout=0, consumer=who
        )
        if after < channel.low and (cursor or who):
            with pytest.raises(CursorReset, match="deleted the events"):
                list(follow())
            return
        found = [event.payload for event in follow()]
        assert found == channel.events[max(after, channel.low) :]
        if who is not None:
            channel.consumers[who] = len(channel.events), channel.consumers[who][1]

    @precondition(lambda self: not self.posted)
    @rule(which=which, most=st.integers(0, 3))
    def limit(self, which, most):
        """Set how many events it keeps; 0: all."""
        self.app.events.limit(self.name(which), max_count=most)
        self.model.setdefault(which, ModelChannel()).most = most or None

    @precondition(lambda self: not self.posted)
    @rule(which=which, after=st.integers(0, 20), most=st.integers(0, 3))
    def fork(self, which, after, most):
        """Add to a fork of the channel, limit and read it, and delete it; 0: no limit."""
        self.place(which)
        channel = self.model.get(which)
        if channel is None or after < channel.low:
            return
        after = min(after, len(channel.events))
        new = NewStream(fork=Fork(self.name(which), Cursor.parse(self.cursor(which, after))))
        self.app.run(creating.create(f"{self.prefix}:fork", new, [], uuid7()))
        self.app.events.publish(f"{self.prefix}:fork", "own")
        if most:
            self.app.events.limit(f"{self.prefix}:fork", max_count=most)
            self.upkeep()
        page = self.app.events.read(f"{self.prefix}:fork")
        found = [event.payload for event in page.events]
        assert found == [*channel.events[channel.low : after], "own"][-most:]
        self.app.events.delete(f"{self.prefix}:fork")

    @precondition(lambda self: not self.posted)
    @rule(which=which, who=who)
    def attach(self, which, who):
        channel = self.model.setdefault(which, ModelChannel())
        acked, generation = channel.consumers.get(who, (channel.low, 0))
        channel.consumers[who] = acked, generation + 1
        told = self.app.events.attach(self.name(which), who)
        assert (told.cursor, told.generation) == (self.cursor(which, acked), generation + 1)

    @precondition(lambda self: not self.posted)
    @rule(which=which, who=who, place=st.integers(0, 20), back=st.integers(0, 1))
    def ack(self, which, who, place, back):
        self.place(which)
        channel = self.model.get(which)
        if channel is None or who not in channel.consumers:
            return
        acked, generation = channel.consumers[who]
        cursor = self.cursor(which, min(place, len(channel.events)))
        if back:
            with pytest.raises(ConsumerFenced):
                self.app.events.ack(self.name(which), who, cursor, generation - 1)
            return
        acked = max(acked, min(place, len(channel.events)))
        channel.consumers[who] = acked, generation
        told = self.app.events.ack(self.name(which), who, cursor, generation)
        assert told == self.cursor(which, acked)

    @precondition(lambda self: not self.posted)
    @rule(which=which, who=who, place=st.integers(0, 20))
    def move_consumer(self, which, who, place):
        self.place(which)
        channel = self.model.get(which)
        if channel is None or who not in channel.consumers:
            return
        place = max(channel.low, min(place, len(channel.events)))
        told = self.app.events.move_consumer(self.name(which), who, self.cursor(which, place))
        assert told == self.cursor(which, place)
        channel.consumers[who] = place, channel.consumers[who][1] + 1

    @precondition(lambda self: not self.posted)
    @rule(which=which, who=who)
    def forget_consumer(self, which, who):
        known = which in self.model and self.model[which].consumers.pop(who, None)
        assert self.app.events.forget_consumer(self.name(which), who) is bool(known)

    @precondition(lambda self: self.stale and not self.posted)
    @rule(data=st.data())
    def read_stale(self, data):
        which, cursor = data.draw(st.sampled_from(self.stale))
        with pytest.raises(CursorReset):
            self.app.events.read(self.name(which), cursor)
        with pytest.raises(CursorReset):
            list(self.app.events.subscribe(self.name(which), cursor, timeout=0))

    @precondition(lambda self: not self.posted)
    @rule()
    def upkeep(self):
        for _ in range(2):  # a deleted fork still holds its source back in the first round
            self.app.upkeep.run()
        for which in "ab":
            self.settle(which)
        for channel in self.model.values():
            if channel.most is not None:
                channel.low = max(channel.low, len(channel.events) - channel.most)
                channel.keys = {k: at for k, at in channel.keys.items() if at >= channel.low}

    @invariant()
    def every_channel_holds_what_it_should(self):
        if self.posted or self.committed:
            return
        found = self.app.events.list(f"{self.prefix}:")
        assert {each.name: (each.events, each.ended is not None) for each in found} == {
            self.name(which): (len(channel.events) - channel.low, channel.closed)
            for which, channel in self.model.items()
        }
        for which, channel in self.model.items():
            assert {
                each.name: (each.lag, each.generation)
                for each in self.app.events.consumers(self.name(which))
            } == {
                name: (len(channel.events) - acked, generation)
                for name, (acked, generation) in channel.consumers.items()
            }


CONNECT = {
    "sqlite": lambda url: sqlite3.connect(url.removeprefix("sqlite:///")),
    "postgresql": psycopg.connect,
}


def test_random_channels_hold_what_was_published(durable_place, clock):
    """EV-1"""
    url, needed = durable_place
    connect = partial(CONNECT[url.partition(":")[0]], url)
    with App(url, clock=clock, **needed) as app:
        app.migrate()
        run_state_machine_as_test(
            lambda: Channels(app, connect, clock),
            settings=settings(
                max_examples=40,
                stateful_step_count=25,
                suppress_health_check=list(HealthCheck),
            ),
        )
