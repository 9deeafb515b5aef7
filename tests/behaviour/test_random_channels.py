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
from towpath.errors import ChannelClosed, CursorReset, NotFound

_rounds = itertools.count(1)


class ModelChannel:
    """What we expect of one channel."""

    def __init__(self):
        self.events = []  # payloads in order
        self.keys = {}  # the places of events that have one
        self.closed = False
        self.cursors = []  # of each event, once it was read


class Channels(RuleBasedStateMachine):
    """Two channels, as the database has them and as they should be."""

    which = st.sampled_from(["a", "b"])
    keys = st.sampled_from([None, None, "k", "l"])

    def __init__(self, app, connect):
        super().__init__()
        self.app = app
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

    def settle(self, which):
        """Give what callers have committed its place."""
        for each in [each for each in self.committed if each[0] == which]:
            self.committed.remove(each)
            channel = self.model.setdefault(which, ModelChannel())
            if not channel.closed:
                self.add(channel, *each[1:])

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
        channel = self.model.pop(which, None)
        assert self.app.events.delete(self.name(which)) is (channel is not None)
        if channel:
            self.stale += [(which, cursor) for cursor in channel.cursors]

    @precondition(lambda self: not self.posted)
    @rule(which=which, place=st.integers(0, 20), limit=st.integers(1, 5))
    def read(self, which, place, limit):
        """Read a page from the beginning, or from behind an event that was read before."""
        self.settle(which)
        channel = self.model.get(which) or ModelChannel()
        after = min(place, len(channel.cursors))
        cursor = channel.cursors[after - 1] if after else None
        page = self.app.events.read(self.name(which), cursor, limit=limit)
        assert [event.payload for event in page.events] == channel.events[after : after + limit]
        for nth, event in enumerate(page.events, after):
            if nth == len(channel.cursors):
                channel.cursors.append(event.cursor)
            assert channel.cursors[nth] == event.cursor
        reaches_end = after + len(page.events) == len(channel.events)
        assert page.is_current is reaches_end
        assert page.ended == ("closed" if channel.closed and reaches_end else None)

    @precondition(lambda self: self.stale and not self.posted)
    @rule(data=st.data())
    def read_stale(self, data):
        which, cursor = data.draw(st.sampled_from(self.stale))
        with pytest.raises(CursorReset):
            self.app.events.read(self.name(which), cursor)

    @precondition(lambda self: not self.posted)
    @rule()
    def upkeep(self):
        self.app.upkeep.run()
        for which in "ab":
            self.settle(which)

    @invariant()
    def every_channel_holds_what_it_should(self):
        if self.posted or self.committed:
            return
        found = self.app.events.list(f"{self.prefix}:")
        assert {each.name: (each.events, each.ended is not None) for each in found} == {
            self.name(which): (len(channel.events), channel.closed)
            for which, channel in self.model.items()
        }


CONNECT = {
    "sqlite": lambda url: sqlite3.connect(url.removeprefix("sqlite:///")),
    "postgresql": psycopg.connect,
}


def test_random_channels_hold_what_was_published(durable_place):
    """EV-1"""
    url, needed = durable_place
    connect = partial(CONNECT[url.partition(":")[0]], url)
    with App(url, **needed) as app:
        app.migrate()
        run_state_machine_as_test(
            lambda: Channels(app, connect),
            settings=settings(
                max_examples=40,
                stateful_step_count=25,
                suppress_health_check=list(HealthCheck),
            ),
        )
