"""Wakeups: every subscriber is told of a commit, whatever the name of what has changed.

The safety net is out of reach in most of these tests, so only a real wakeup can pass them.
"""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue

import psycopg
import pytest
from msgspec.structs import replace

from tests.conftest import eventually
from towpath.database.bells import EVERYTHING, MOST_BYTES, decode, encode
from towpath.errors import AppClosed
from towpath.operation import Changed, Wakeup
from towpath.store import topics

pytestmark = pytest.mark.both_colours  # its databases are its own

FAR = 600  # seconds between two looks of the safety net
NAMES = [
    "mail",
    "a,b",
    "a/b//c",
    "/",
    "two\nlines\r\n",
    "\0",
    '"quoted" \\ [1]',
    "'; drop table job; --",
    "Grüße, 世界 🛶",
    "access",
    "@access",
    "%2C%00",
    "x" * 300,
    "🛶" * 300,
]
MAIL = Wakeup("topic", "mail")
POST = Wakeup("topic", "post")
durations = itertools.count(1)  # a commit that changes nothing would not be seen on SQLite


class Subscriber:
    """A subscriber that can be waited for."""

    def __init__(self, wakeups, wakeup):
        self._rings = SimpleQueue()
        self.end = wakeups.subscribe(wakeup, lambda: self._rings.put(None))

    def was_told(self, seconds=30):
        try:
            self._rings.get(timeout=seconds)
        except Empty:
            return False
        return True

    def forget(self):
        """Wait until no more rings come, and forget those that came."""
        while self.was_told(0.05):
            pass


def listening(app, *wakeups):
    """Subscribe, and return as soon as no ring of another process can be missed."""
    first = Subscriber(app._wakeups, MAIL)
    assert first.was_told()  # the first look, once the bell listens
    subscribers = [Subscriber(app._wakeups, wakeup) for wakeup in wakeups]
    first.forget()
    first.end()
    return subscribers


def change(*wakeups):
    """An operation that changes something, and says that it was this."""
    return changing(topics.pause("mail", next(durations)), wakeups)


def changing(operation, wakeups):
    def steps():
        return Changed((yield from operation.inside()), others=wakeups)

    return replace(operation, start=steps)


def names(count, text="🛶"):
    return {Wakeup("channel", f"{text}{number}") for number in range(count)}


@pytest.fixture(
    params=[
        ("memory", "same app"),
        ("sqlite", "same app"),
        ("sqlite", "another app"),
        ("postgres", "same app"),
        ("postgres", "another app"),
    ],
    ids=" ".join,
)
def where(request):
    """The kind of database, and from where a subscriber is told."""
    return request.param


@pytest.fixture
def kind(where):
    return where[0]


@pytest.fixture
def app(make_app):
    app = make_app(poll_interval=FAR)
    app.migrate()
    return app


@pytest.fixture
def other(app, where, make_app):
    """The app that commits: the same, or one that could be in another process."""
    return app if where[1] == "same app" else make_app()


on_postgres = pytest.mark.parametrize(
    "where", [("postgres", "another app")], indirect=True, ids=" ".join
)
here = pytest.mark.parametrize("where", [("memory", "same app")], indirect=True, ids=" ".join)


# ---------------------------------------------------------------- who is told


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_every_subscriber_is_told_of_a_commit(app, other, name):
    wakeup = Wakeup("channel", name)
    first, second = listening(app, wakeup, wakeup)

    other.run(change(wakeup))

    assert first.was_told()
    assert second.was_told()


@pytest.mark.parametrize(
    "where", [("memory", "same app"), ("postgres", "another app")], indirect=True, ids=" ".join
)
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_subscriber_is_not_told_of_another_name_or_kind(app, other, name):
    """On a SQLite file other processes see that something was committed, and not what."""
    others = [Wakeup("channel", f"{name}."), Wakeup("topic", name), Wakeup("channel")]
    told, *silent = listening(app, Wakeup("channel", name), *others)

    other.run(change(Wakeup("channel", name)))

    assert told.was_told()
    assert not any(subscriber.was_told(0.01) for subscriber in silent)


def test_a_job_wakes_one_waiter_and_every_subscriber_of_its_topic(app, other):
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(app.jobs.reserve, "mail", timeout=30) for _ in range(2)]
        eventually(lambda: app.jobs.stats_waiting() == {"mail": 2})
        subscribers = [Subscriber(app._wakeups, MAIL) for _ in range(2)]
        for subscriber in subscribers:
            subscriber.forget()

        other.jobs.enqueue("mail")

        assert all(subscriber.was_told() for subscriber in subscribers)
        eventually(lambda: any(future.done() for future in waiting))
        assert app.jobs.stats_waiting() == {"mail": 1}
        other.jobs.enqueue("mail")
        assert all(len(future.result()) == 1 for future in waiting)


def test_after_its_end_a_subscriber_is_told_no_more_and_nothing_is_remembered(app, other):
    ends, stays = listening(app, MAIL, MAIL)
    ends.end()
    ends.end()  # a second end does no harm

    other.run(change(MAIL))

    assert stays.was_told()
    assert not ends.was_told(0.01)
    stays.end()
    assert app._wakeups._subscribers == {}


def test_subscribers_are_told_although_no_wakeup_came(make_app):
    """FR-020: Wakeups may be lost."""
    app = make_app(poll_interval=0.05)
    subscriber = Subscriber(app._wakeups, Wakeup("channel", "silent"))

    assert all(subscriber.was_told() for _ in range(5))


def test_the_end_of_an_app_tells_every_subscriber(app):
    subscribers = listening(app, MAIL, MAIL, POST)

    app.close()

    assert all(subscriber.was_told() for subscriber in subscribers)
    with pytest.raises(AppClosed):
        app._wakeups.subscribe(MAIL, lambda: None)


# ---------------------------------------------------------------- callbacks


def test_a_callback_that_fails_is_logged_and_stops_no_other(app, other, caplog):
    def fail():
        raise RuntimeError("out of order")

    listening(app, POST)
    app._wakeups.subscribe(MAIL, fail)
    subscriber = Subscriber(app._wakeups, MAIL)

    for _ in range(2):
        other.run(change(MAIL))
        assert subscriber.was_told()

    assert {record.getMessage() for record in caplog.records} == {
        "a subscriber to the wakeup topic/mail failed"
    }
    assert "out of order" in caplog.text


@here
def test_a_callback_may_subscribe_unsubscribe_and_ring(app):
    rings = []
    subscribed = threading.Event()

    def once():
        subscribed.wait(30)
        end()
        app._wakeups.subscribe(POST, lambda: rings.append("post"))
        app._wakeups.ring([POST])

    end = app._wakeups.subscribe(MAIL, once)
    subscribed.set()
    eventually(lambda: rings)  # by the first look
    app._wakeups.ring([MAIL])

    assert set(rings) == {"post"}


@here
def test_a_callback_that_does_not_return_holds_up_no_other_thread(app):
    entered, released = threading.Event(), threading.Event()
    [subscriber] = listening(app, POST)

    def block():
        entered.set()
        released.wait(30)

    with ThreadPoolExecutor(1) as pool:
        app._wakeups.subscribe(MAIL, block)
        committing = pool.submit(app.run, change(MAIL))
        assert entered.wait(30)
        try:
            app._wakeups.subscribe(MAIL, lambda: None)()
            app.run(change(POST))
            app._wakeups.ring_later([POST], 0)
            assert subscriber.was_told()
            assert subscriber.was_told()
        finally:
            released.set()
        committing.result()


@here
def test_subscribers_come_and_go_while_it_rings(app):
    """Hundreds of channels, thousands of subscribers, and no ring is lost on one that stays."""
    channels = [Wakeup("channel", f"{number}") for number in range(200)]
    told = dict.fromkeys(channels, 0)
    errors = []

    def count(channel):
        told[channel] += 1

    def come_and_go():
        try:
            for _ in range(10):
                ends = [app._wakeups.subscribe(channel, lambda: None) for channel in channels]
                for end in ends:
                    end()
        except Exception as error:  # noqa: BLE001 - the test reports it
            errors.append(error)

    listening(app, MAIL)
    for channel in channels:
        app._wakeups.subscribe(channel, lambda channel=channel: count(channel))
    threads = [threading.Thread(target=come_and_go) for _ in range(8)]
    for thread in threads:
        thread.start()
    rounds = 0
    while any(thread.is_alive() for thread in threads):
        app._wakeups.ring(channels)
        rounds += 1
    for thread in threads:
        thread.join()

    assert errors == []
    assert set(told.values()) == {rounds}


# ---------------------------------------------------------------- what PostgreSQL carries


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("kind", ["topic", "channel"])
def test_a_payload_carries_any_name_in_any_encoding(kind, name):
    payload = encode([Wakeup(kind, name), Wakeup("access"), Wakeup(kind, name)])

    assert payload.isascii()
    assert payload.isprintable()
    assert decode(payload.encode()) == {Wakeup(kind, name), Wakeup("access")}


@pytest.mark.parametrize("text", ["x", "🛶", "\n", '"'])
def test_wakeups_that_do_not_fit_into_a_payload_become_everything(text):
    lengths = {len(encode(names(count, text * 40))) for count in range(250)}

    assert len(EVERYTHING) in lengths
    assert max(lengths) <= MOST_BYTES
    assert max(lengths) > MOST_BYTES - 600
    assert decode(EVERYTHING.encode()) is None


@on_postgres
@pytest.mark.parametrize("count", [1, 30, 60, 90, 1_000])
@pytest.mark.parametrize("text", ["x" * 150, "ü" * 150])
def test_a_transaction_of_the_caller_may_change_any_number_of_things(app, place, count, text):
    """NOTIFY refuses 8,000 bytes, and would take the transaction with it."""
    changed = names(count, text)
    subscribers = listening(app, *changed)
    with psycopg.connect(place[0]) as connection:
        app.run(change(*changed), connection=connection)

    assert all(subscriber.was_told() for subscriber in subscribers)


@on_postgres
@pytest.mark.parametrize(
    "payload",
    ["mail,post", "", "@access", "[", "[1]", "null", '{"topic": "mail"}', '["topic/mail"', "ü"],
)
def test_a_payload_of_another_version_tells_every_subscriber(app, place, payload, caplog):
    subscribers = listening(app, MAIL, Wakeup("access"))
    with psycopg.connect(place[0]) as connection:
        connection.execute("select pg_notify(%s, %s)", (f"{place[1]['schema']}_wakeup", payload))

    assert all(subscriber.was_told() for subscriber in subscribers)
    assert caplog.records == []
