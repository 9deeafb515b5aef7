"""The log under many writers: numbers without holes, in the order of commits, nothing lost."""

import sqlite3
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Event as Flag

import psycopg
import pytest

from tests.faults.chance import dice
from tests.faults.gates import Gate
from tests.faults.sizes import many
from towpath import NewEvent

CHANNELS = ["a", "b", "c"]


@pytest.fixture
def connect(place, kind):
    """Open a connection of a caller of its own."""
    opened = []

    def open_one():
        url = place[0]
        if kind == "sqlite":
            path = url.removeprefix("sqlite:///")
            opened.append(sqlite3.connect(path, check_same_thread=False, timeout=60))
        else:
            opened.append(psycopg.connect(url))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


def read_all(app, channel, after=None):
    found = []
    while True:
        page = app.events.read(channel, after)
        found += page.events
        after = page.cursor
        if page.is_current:
            return found


def numbers(events):
    return [int(event.cursor.partition("_")[2]) for event in events]


class Polling:
    """A reader that polls as fast as it can, and keeps what it saw."""

    def __init__(self, app, channel, stop):
        self.seen, self._app, self._channel, self._stop = [], app, channel, stop

    def run(self):
        after = None
        while True:
            is_last = self._stop.is_set()
            page = self._app.events.read(self._channel, after)
            self.seen += page.events
            after = page.cursor
            if is_last and page.is_current:
                return
            time.sleep(0.003)


class Writers:
    """Writers of their own and callers' transactions, and what they have committed."""

    def __init__(self, apps, connect):
        self.apps, self.connect = apps, connect
        self.committed = []  # channel, writer, number, place in its call

    def write(self, writer):
        """Publish on the app's own connections."""
        chance = dice(writer)
        for n in range(many(40)):
            channel, events = chance.choice(CHANNELS), self.apps[n % 2].events
            size = 3 if chance.random() < 0.3 else 1
            events.publish_many(channel, [NewEvent([writer, n, k]) for k in range(size)])
            self.committed.extend((channel, writer, n, k) for k in range(size))

    def borrow(self, writer):
        """Publish in transactions that stay open for a while, and of which some are rolled back."""
        chance = dice(writer)
        connection = self.connect()
        for n in range(many(15)):
            channels = chance.sample(CHANNELS, chance.randint(1, 3))
            for channel in channels:
                self.apps[0].events.publish(channel, [writer, n, 0], connection=connection)
            time.sleep(chance.random() / 50)
            if chance.random() < 0.2:
                connection.rollback()
            else:
                connection.commit()
                self.committed.extend((channel, writer, n, 0) for channel in channels)


def test_readers_see_every_event_in_its_place_while_callers_commit_late(make_app, connect):
    """EV-1: 4 own writers and 4 callers' transactions, with delays and rollbacks.

    Readers that poll all the time see numbers without a hole, and just what was committed; each
    writer's events in the order in which it committed them.
    """
    app, other = make_app(), make_app()
    app.migrate()
    writers, stop = Writers((app, other), connect), Flag()
    readers = {channel: Polling(app, channel, stop) for channel in CHANNELS}
    with ThreadPoolExecutor(11) as threads:
        reading = [threads.submit(reader.run) for reader in readers.values()]
        writing = [threads.submit(writers.write, n) for n in range(4)]
        writing += [threads.submit(writers.borrow, n) for n in range(4, 8)]
        for each in writing:
            each.result()
        stop.set()
        for each in reading:
            each.result()

    for channel, reader in readers.items():
        found = [tuple(event.payload) for event in reader.seen]
        assert numbers(reader.seen) == list(range(1, len(found) + 1))
        assert Counter(found) == Counter(key[1:] for key in writers.committed if key[0] == channel)
        assert sorted(found, key=lambda key: key[0]) == sorted(found)  # of each writer in order


def test_what_was_committed_before_comes_first(make_app, connect):
    """A caller's commit, then a publish, then another commit: in this order, each time."""
    app, other = make_app(), make_app()
    app.migrate()
    stop = Flag()

    def disturb():
        while not stop.is_set():
            other.events.publish("chat", "noise")

    with ThreadPoolExecutor(2) as threads:
        noise = threads.submit(disturb)
        try:
            connection = connect()
            for n in range(many(50)):
                app.events.publish("chat", [n, "a"], connection=connection)
                connection.commit()
                app.events.publish("chat", [n, "b"])
                app.events.publish("chat", [n, "c"], connection=connection)
                connection.commit()
        finally:
            stop.set()
        noise.result()

    found = [event.payload for event in read_all(app, "chat") if event.payload != "noise"]
    assert found == [[n, which] for n in range(many(50)) for which in "abc"]


def test_a_key_is_stored_once_however_many_publish_it(make_app, connect):
    apps = [make_app(), make_app()]
    apps[0].migrate()

    def publish(n):
        return [apps[n % 2].events.publish("orders", n, key=f"k{key}") for key in range(20)]

    def borrow():
        connection = connect()
        for key in range(20):
            apps[0].events.publish("orders", "posted", key=f"k{key}", connection=connection)
            connection.commit()

    with ThreadPoolExecutor(9) as threads:
        borrowing = threads.submit(borrow)
        answers = list(threads.map(publish, range(8)))
        borrowing.result()

    found = read_all(apps[0], "orders")
    assert Counter(event.key for event in found) == Counter(f"k{key}" for key in range(20))
    for key, told in enumerate(zip(*answers, strict=True)):
        [stored] = [event for event in found if event.key == f"k{key}"]
        assert {event.cursor for event in told} == {stored.cursor}


def test_what_a_caller_rolls_back_was_never_published(make_app, connect):
    """EV-9"""
    app = make_app()
    app.migrate()
    connection = connect()
    event = app.events.publish("chat", 1, connection=connection)
    connection.rollback()

    assert event.cursor is None
    assert app.events.read("chat").events == []
    assert app.events.list() == []


def test_a_posted_event_is_read_at_once_after_the_commit(make_app, connect):
    app = make_app()
    app.migrate()
    connection = connect()
    posted = app.events.publish("chat", {"a": 1}, type="t", key="k", connection=connection)
    assert app.events.read("chat").events == []
    connection.commit()

    [event] = app.events.read("chat").events
    assert (event.id, event.payload, event.type, event.key) == (posted.id, {"a": 1}, "t", "k")
    assert app.events.position("chat") == event.cursor


def test_upkeep_places_what_no_one_reads(make_app, connect):
    app = make_app()
    app.migrate()
    connection = connect()
    for n in range(3):
        app.events.publish(f"chat{n}", n, connection=connection)
    connection.commit()
    app.upkeep.run()

    assert [channel.events for channel in app.events.list()] == [1, 1, 1]


def test_a_subscriber_hears_of_a_callers_commit(make_app, connect):
    app = make_app()
    app.migrate()
    connection = connect()
    following = app.events.subscribe("chat")
    app.events.publish("chat", 1, connection=connection)
    connection.commit()

    assert next(following).payload == 1


# ---------------------------------------------------------------- PostgreSQL alone


class TestOnPostgres:
    """What only a server with several writers can do."""

    @pytest.fixture(params=["postgres"])
    def kind(self, request):
        return request.param

    def test_an_open_caller_makes_no_publish_wait(self, make_app, connect, threads):
        app = make_app(busy_timeout=1)
        app.events.publish("chat", 0)
        connection = connect()
        app.events.publish("chat", "late", connection=connection)
        # The transaction is open: a publish that had to wait for it would end in DatabaseBusy.
        for n in range(1, 21):
            app.events.publish("chat", n, key=None if n % 2 else f"k{n}")
        connection.commit()

        found = [event.payload for event in read_all(app, "chat")]
        assert found == [*range(21), "late"]

    def test_two_callers_with_channels_in_opposite_order_do_not_deadlock(self, make_app, connect):
        app = make_app()
        app.events.publish("a", 0)
        app.events.publish("b", 0)
        one, two = connect(), connect()
        app.events.publish("a", 1, connection=one)
        app.events.publish("b", 2, connection=two)
        app.events.publish("b", 1, connection=one)
        app.events.publish("a", 2, connection=two)
        two.commit()
        one.commit()

        assert [event.payload for event in read_all(app, "a")] in ([0, 1, 2], [0, 2, 1])

    def test_a_caller_may_work_with_a_snapshot(self, make_app, connect):
        app = make_app()
        app.events.publish("chat", 0)
        connection = connect()
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        connection.execute("select 1")
        app.events.publish("chat", 1)
        app.events.publish("chat", 2, connection=connection)
        connection.commit()

        assert [event.payload for event in read_all(app, "chat")] == [0, 1, 2]

    def test_a_publish_that_waits_for_the_channel_stalls_nothing_else(
        self, make_app, connect, threads, postgres_schema
    ):
        app = make_app(busy_timeout=30)
        app.events.publish("chat", 0)
        connection = connect()
        connection.execute(f'select from "{postgres_schema}".channel for update')
        waiting = [threads.submit(app.events.publish, "chat", n) for n in range(3)]

        for n in range(20):
            app.jobs.enqueue("mail", n)
        leases = app.jobs.reserve("mail", limit=20)
        app.jobs.complete_many(leases)
        assert not any(each.done() for each in waiting)
        connection.rollback()

        assert {each.result().payload for each in waiting} == {0, 1, 2}

    def test_the_same_key_twice_waiting_for_one_channel_is_stored_once(self, make_app, threads):
        """The second looks for the key only when it holds the channel, not while it waits."""
        first, second = make_app(), make_app()
        first.events.publish("chat", 0)
        publishing = Gate(first, threads).before("append", first.events.publish, "chat", 1, key="k")
        with publishing as published:
            other = threads.submit(second.events.publish, "chat", 2, key="k")

        assert published.result().cursor == other.result().cursor
        assert [event.payload for event in read_all(first, "chat")] == [0, 1]
