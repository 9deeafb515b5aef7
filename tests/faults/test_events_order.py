"""The log under many writers: numbers without holes, in the order of commits, nothing lost."""

import asyncio
import contextlib
import itertools
import math
import os
import sqlite3
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Event as Flag

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from tests.faults.callers import CHANNELS, Async, by_driver, by_sqlalchemy, calls, transactions
from tests.faults.gates import Gate
from tests.faults.processes import wait_until
from tests.faults.programs import lines
from tests.faults.sizes import many
from towpath.database.clock import machine_clock
from towpath.errors import ChannelClosed, MaxChannelsReached

KEYS = 200
EACH = 63  # so that eight publish 500 times


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


@pytest.fixture
def deadlocks(kind, request):
    """Count the deadlocks since the beginning of the test, where there can be any."""
    if kind == "sqlite":
        return lambda: 0
    server = request.getfixturevalue("postgres")
    before = server.log.count("deadlock detected")
    return lambda: server.log.count("deadlock detected") - before


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


class Stepping:
    """The real time, which goes back by an hour when it is told to."""

    def __init__(self):
        self.has_stepped = False

    def __call__(self):
        return machine_clock() - self.has_stepped * 3_600_000_000


class Writers:
    """Publishers in threads and tasks, and what they have committed."""

    def __init__(self, apps, url):
        self.apps, self.url = apps, url
        self.committed = {}  # channel, writer, number: when it was begun, when it was committed
        self._moments = itertools.count()

    def note(self, began, channels, payload):
        ended = next(self._moments)
        for channel in channels:
            self.committed[channel, *payload] = began, ended

    def call(self, writer):
        """Publish on the app's own connections."""
        for n, (channel, payload) in enumerate(calls(writer, many(40), CHANNELS)):
            began = next(self._moments)
            self.apps[n % 2].events.publish(channel, payload)
            self.note(began, [channel], payload)

    async def acall(self, writer):
        for channel, payload in calls(writer, many(40), CHANNELS):
            began = next(self._moments)
            await self.apps[0].events.apublish(channel, payload)
            self.note(began, [channel], payload)

    def borrow(self, writer, connect):
        """Publish in transactions that stay open for a while, and of which some are rolled back."""
        with contextlib.closing(connect(self.url)) as caller:
            for sent in transactions(writer, many(15), CHANNELS):
                began = next(self._moments)
                caller.publish(self.apps[0], sent)
                if sent.commits:
                    self.note(began, sent.channels, sent.payload)
                time.sleep(sent.rest)

    async def aborrow(self, writer):
        caller = Async()
        await caller.open(self.url)
        for sent in transactions(writer, many(15), CHANNELS):
            began = next(self._moments)
            await caller.publish(self.apps[0], sent)
            if sent.commits:
                self.note(began, sent.channels, sent.payload)
            await asyncio.sleep(sent.rest)
        await caller.close()

    async def all_async(self):
        await asyncio.gather(*(self.acall(n) for n in (3, 4, 5)), self.aborrow(8))


def test_readers_see_every_event_in_its_place_while_callers_commit_late(
    make_app, start, place, tmp_path, deadlocks
):
    """EV-1, EV-9: 8 own writers and 5 callers' transactions, in threads, tasks and processes.

    Some transactions are rolled back, two processes are killed, and the clock goes back by an hour.
    Readers that poll all the time see numbers without a hole, and just what was committed; what was
    committed before another publish began comes before it.
    """
    clock, stop = Stepping(), Flag()
    app, other = make_app(busy_timeout=60, clock=clock), make_app(busy_timeout=60, clock=clock)
    app.migrate()
    writers = Writers((app, other), place[0])
    records = {tmp_path / f"{each}": (each, each + 1) for each in (20, 30)}
    mortals = [
        start(
            "publish_for_good", record=str(record), writers=list(two), settings={"busy_timeout": 60}
        )
        for record, two in records.items()
    ]
    readers = {channel: Polling(app, channel, stop) for channel in CHANNELS}
    with ThreadPoolExecutor(9) as threads:
        reading = [threads.submit(reader.run) for reader in readers.values()]
        try:
            for record in records:
                wait_until(lambda record=record: len(lines(record)) > 10)
            writing = [threads.submit(writers.call, n) for n in range(3)]
            writing += [threads.submit(writers.borrow, 6, by_driver)]
            writing += [threads.submit(writers.borrow, 7, by_sqlalchemy)]
            writing += [threads.submit(asyncio.run, writers.all_async())]
            wait_until(lambda: len(writers.committed) > many(100))
            clock.has_stepped = True
            for mortal in mortals:
                mortal.kill_alive()
            for each in writing:
                each.result()
        finally:
            stop.set()
        for each in reading:
            each.result()

    told = {(words[0], *map(int, words[1:])) for record in records for words in lines(record)}
    mortal = {writer for two in records.values() for writer in two}
    for channel, reader in readers.items():
        assert numbers(reader.seen) == list(range(1, len(reader.seen) + 1))
        found = [(channel, *event.payload) for event in reader.seen]
        assert len(set(found)) == len(found)
        committed = {key for key in writers.committed if key[0] == channel}
        assert {key for key in found if key[1] not in mortal} == committed
        assert {key for key in told if key[0] == channel} <= set(found)
        assert sorted(found, key=lambda key: key[1]) == sorted(found)  # of each writer in order
        in_time = [writers.committed[key] for key in found if key in writers.committed]
        earliest_end = math.inf
        for began, ended in reversed(in_time):
            assert began < earliest_end, "an event that was committed before this one comes later"
            earliest_end = min(earliest_end, ended)
    unacknowledged = Counter(
        writer
        for channel, reader in readers.items()
        for writer, number in (event.payload for event in reader.seen)
        if writer in mortal and (channel, writer, number) not in told
    )
    assert all(number <= 3 for number in unacknowledged.values())  # its last transaction
    assert deadlocks() == 0


def test_what_was_committed_before_comes_first(make_app, connect):
    """A caller's commit, then a publish, then another commit: in this order, each time."""
    app, other = make_app(), make_app()
    app.migrate()
    stop = Flag()

    def disturb():
        while not stop.wait(0.01):  # on SQLite a caller takes no turns with us, and would starve
            other.events.publish("chat", "noise")

    with ThreadPoolExecutor(4) as threads:
        noise = [threads.submit(disturb) for _ in range(4)]
        try:
            connection = connect()
            for n in range(many(500)):
                app.events.publish("chat", [n, "a"], connection=connection)
                connection.commit()
                app.events.publish("chat", [n, "b"])
                app.events.publish("chat", [n, "c"], connection=connection)
                connection.commit()
        finally:
            stop.set()
        for each in noise:
            each.result()

    found = [event.payload for event in read_all(app, "chat") if event.payload != "noise"]
    assert found == [[n, which] for n in range(many(500)) for which in "abc"]


def test_a_key_is_stored_once_however_many_publish_it(make_app, connect):
    apps = [make_app(), make_app()]
    apps[0].migrate()

    def publish(n):
        return [apps[n % 2].events.publish("orders", n, key=f"k{key}") for key in range(KEYS)]

    def borrow():
        connection = connect()
        for key in range(KEYS):
            apps[0].events.publish("orders", "posted", key=f"k{key}", connection=connection)
            connection.commit()

    with ThreadPoolExecutor(9) as threads:
        borrowing = threads.submit(borrow)
        answers = list(threads.map(publish, range(8)))
        borrowing.result()

    found = read_all(apps[0], "orders")
    assert Counter(event.key for event in found) == Counter(f"k{key}" for key in range(KEYS))
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


def test_a_caller_is_told_that_there_are_too_many_channels_while_it_can_roll_back(
    make_app, connect
):
    app = make_app(max_channels=1)
    app.events.publish("chat", 1)
    connection = connect()
    with pytest.raises(MaxChannelsReached):
        app.events.publish("other", 1, connection=connection)
    app.events.publish("chat", 2, connection=connection)
    connection.commit()

    assert [event.payload for event in app.events.read("chat").events] == [1, 2]


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


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_position_does_not_chase_what_is_posted_meanwhile(make_app, connect, threads):
    app, other = make_app(), make_app()
    connection = connect()
    other.events.publish("chat", 1, connection=connection)
    connection.commit()

    with Gate(app, threads).before("forget_posted", app.events.position, "chat") as asked:
        other.events.publish("chat", 2, connection=connection)
        connection.commit()

    [first, _] = app.events.read("chat").events
    assert asked.result() == first.cursor


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

    def test_an_open_caller_makes_no_one_wait(self, make_app, connect):
        """EV-9: a wait for its transaction would end in DatabaseBusy, as it ends after all others.

        Eight threads publish by two apps, another caller commits, and a job runs and speaks: all
        to their ends while the caller stays open. So it delays none of them, by 100 ms or at all.
        """
        apps = [make_app(busy_timeout=5), make_app(busy_timeout=5)]
        app, beside, open_one = apps[0], connect(), connect()
        for channel in ("chat", "mail"):
            app.events.publish(channel, 0)
            app.events.publish(channel, "late", connection=open_one)

        def publish(writer):
            for n in range(EACH):
                key = f"{writer}:{n}" if n % 2 else None
                apps[writer % 2].events.publish("mail" if n % 3 else "chat", [writer, n], key=key)

        with ThreadPoolExecutor(8) as threads:
            writing = [threads.submit(publish, writer) for writer in range(8)]
            session = app.sessions.start("w")
            for n in range(20):
                app.jobs.enqueue("work", n)
                [lease] = app.jobs.reserve("work", session=session)
                app.sessions.beat(session, started=[lease])
                app.jobs.say(lease, said=0, events=[n])
                app.jobs.complete(lease)
            app.events.publish("chat", "beside", connection=beside)
            beside.commit()
            app.upkeep.run()
            for each in writing:
                each.result(120)
        before = [event.payload for name in ("chat", "mail") for event in read_all(app, name)]

        assert open_one.info.transaction_status is TransactionStatus.INTRANS
        assert len(before) == 2 + 8 * EACH + 1
        assert ("beside" in before, "late" in before) == (True, False)
        open_one.commit()
        for channel in ("chat", "mail"):
            assert read_all(app, channel)[-1].payload == "late"

    def test_an_open_transaction_in_another_database_delays_no_event(
        self, make_app, connect, postgres
    ):
        """It holds back what is visible to all, which an order by transactions would wait for."""
        app = make_app()
        name, connection = f"elsewhere_{os.getpid()}", connect()
        following = app.events.subscribe("chat", timeout=60)
        with psycopg.connect(postgres.url(), autocommit=True) as server:
            server.execute(f"create database {name}")
            with psycopg.connect(postgres.url(name)) as idle:
                idle.execute("create table t (n integer)")
                app.events.publish("chat", 1)
                app.events.publish("chat", 2, connection=connection)
                connection.commit()

                assert [next(following).payload for _ in range(2)] == [1, 2]
            server.execute(f"drop database {name} with (force)")

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

    def test_what_a_caller_commits_after_a_close_is_kept(self, make_app, connect):
        """EV-9: the channel was open when it was published, so the commit must not lose it."""
        app = make_app()
        app.events.publish("chat", 0)
        connection = connect()
        app.events.publish("chat", "late", connection=connection)
        app.events.close("chat")
        seen = app.events.read("chat")
        with pytest.raises(ChannelClosed):
            app.events.publish("chat", "later", connection=connect())
        connection.commit()

        page = app.events.read("chat", seen.cursor)
        assert ([each.payload for each in page.events], page.ended) == (["late"], "closed")
        assert [event.payload for event in read_all(app, "chat")] == [0, "late"]
        with pytest.raises(ChannelClosed):
            app.events.publish("chat", "later")

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
