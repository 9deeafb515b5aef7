"""Channels as streams of the Durable Streams protocol, below its door."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from towpath import NewEvent
from towpath.errors import (
    ChannelClosed,
    ChannelExists,
    ChannelGone,
    CursorReset,
    Invalid,
    InvalidChannel,
    InvalidPayload,
    NotFound,
    OutOfOrder,
    PayloadTooLarge,
    ProducerFenced,
    WrongMedia,
)
from towpath.model.cursor import START, Cursor
from towpath.model.durable import Fork, NewStream, Producer
from towpath.operation import Operation
from towpath.statement import Statement
from towpath.store import events

TEXT = NewStream(media="text/plain")
JSON = NewStream(media="application/json")
SECOND = 1_000_000


class Streams:
    """The async verbs, called by a blocking test."""

    def __init__(self, app, loop):
        self.app = app
        self._loop = loop

    def __getattr__(self, name):
        verb = getattr(self.app.durable_streams, name)
        return lambda *args, **more: asyncio.run_coroutine_threadsafe(
            verb(*args, **more), self._loop
        ).result()

    def text(self, name, after=None):
        """Return all bytes of a stream in a row."""
        return b"".join(event.payload for event in self.read(name, after).page.events).decode()


@pytest.fixture
def streams(make_app, clock, loop):
    return Streams(make_app(clock=clock), loop)


def rows(app, table):
    """Count what a table has."""
    counting = Statement("count", {"any": f"select count(*) from towpath.{table}"})  # noqa: S608 - our own name

    def steps():
        return (yield counting())[0][0]

    return app.run(Operation("count", steps))


def change(app, text, **params):
    """Change the database behind our back."""

    def steps():
        yield Statement("change", {"any": text})(**params)

    app.run(Operation("change", steps))


# ---------------------------------------------------------------- create and append


def test_a_stream_is_made_once(streams):
    made = streams.create("chat", TEXT, b"hello")
    found = streams.create("chat", TEXT, b"other")

    assert (made.is_new, found.is_new) == (True, False)
    assert found.state == made.state
    assert streams.text("chat") == "hello"


@pytest.mark.parametrize(
    "other",
    [
        JSON,
        NewStream(),
        NewStream(media="text/plain", ttl=SECOND),
        NewStream(media="text/plain", expires_at=SECOND),
        NewStream(media="text/plain", is_closed=True),
    ],
)
def test_a_stream_that_was_made_in_another_way_is_not_found(streams, other):
    streams.create("chat", NewStream(media="Text/Plain; charset=utf-8"))

    with pytest.raises(ChannelExists, match="differs in"):
        streams.create("chat", other)
    assert not streams.create("chat", TEXT).is_new


def test_of_callers_that_make_a_stream_at_the_same_time_one_has_made_it(streams):
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda n: streams.create("chat", TEXT, b"%d" % n), range(8)))

    assert sum(each.is_new for each in made) == 1
    assert len(streams.text("chat")) == 1


def test_a_stream_has_to_be_made_before_it_is_written_to(streams):
    with pytest.raises(NotFound):
        streams.append("chat", "text/plain", b"x")
    with pytest.raises(NotFound):
        streams.read("chat", None)
    assert streams.app.events.list() == []


def test_the_values_of_a_json_array_are_events(streams):
    streams.create("chat", JSON, b'[1, {"a": [2]}]')
    streams.append("chat", "application/json; charset=utf-8", b"[[3]]")
    streams.append("chat", "APPLICATION/JSON", b' "x" ')

    assert [e.payload for e in streams.app.events.read("chat").events] == [1, {"a": [2]}, [3], "x"]


@pytest.mark.parametrize("body", [b"{", b"[1,]", b"[NaN]", b'"\xff"', b"1 2", b"[" * 100_000])
def test_what_is_not_json_is_not_stored(streams, body):
    streams.create("chat", JSON)

    with pytest.raises(InvalidPayload):
        streams.append("chat", "application/json", body)
    assert streams.read("chat", None).page.events == []


@pytest.mark.one_database
def test_an_append_has_bounds(streams):
    streams.create("chat", JSON)
    streams.create("bytes", NewStream())

    with pytest.raises(Invalid, match="10,001 messages"):
        streams.append("chat", "application/json", b"[" + b"0," * 10_000 + b"0]")
    with pytest.raises(PayloadTooLarge):
        streams.append("bytes", "application/octet-stream", b"\xff" * (2**20 + 1))
    with pytest.raises(InvalidChannel):
        streams.create("job:1", TEXT)


def test_a_stream_takes_bodies_of_its_media_type_only(streams):
    streams.create("chat", TEXT)

    with pytest.raises(WrongMedia, match="text/plain"):
        streams.append("chat", "application/json", b"1")
    streams.append("chat", "application/json", closes=True)  # there is nothing of that type
    assert streams.look("chat").ended == "closed"


def test_a_channel_of_the_app_is_a_stream_of_json(streams):
    streams.app.events.publish("chat", {"n": 1})
    streams.append("chat", "application/json", b"2")

    assert not streams.create("chat", JSON).is_new
    assert [e.payload for e in streams.read("chat", None).page.events] == [{"n": 1}, 2]


# ---------------------------------------------------------------- producers, order, close


def test_what_a_producer_repeats_is_stored_once(streams):
    streams.create("chat", TEXT)
    for seq in (0, 1, 1, 0):
        answer = streams.append("chat", "text/plain", b"%d" % seq, producer=Producer("p", 0, seq))

    assert streams.text("chat") == "01"
    assert (answer.is_repeated, answer.said) == (True, 1)


def test_a_producer_that_has_started_again_fences_its_older_self(streams):
    streams.create("chat", TEXT)
    streams.append("chat", "text/plain", b"a", producer=Producer("p", 3, 0))
    streams.append("chat", "text/plain", b"b", producer=Producer("p", 4, 0))

    with pytest.raises(ProducerFenced) as fenced:
        streams.append("chat", "text/plain", b"c", producer=Producer("p", 3, 1))
    with pytest.raises(Invalid, match="Producer-Seq 0"):
        streams.append("chat", "text/plain", b"c", producer=Producer("p", 5, 1))
    assert fenced.value.epoch == 4
    assert streams.text("chat") == "ab"


def test_an_append_ahead_of_a_missing_one_is_refused(streams):
    streams.create("chat", TEXT)
    streams.append("chat", "text/plain", b"a", producer=Producer("p", 0, 0))

    with pytest.raises(OutOfOrder) as gap:
        streams.append("chat", "text/plain", b"c", producer=Producer("p", 0, 2))
    with pytest.raises(OutOfOrder):
        streams.append("chat", "text/plain", b"c", producer=Producer("q", 0, 1))
    assert (gap.value.expected, gap.value.received) == (1, 2)


def test_a_refused_append_does_not_count_for_its_producer(streams):
    streams.create("chat", TEXT)
    first = Producer("p", 0, 0)
    streams.append("chat", "text/plain", b"x", order_key="5")

    with pytest.raises(OutOfOrder):
        streams.append("chat", "text/plain", b"a", producer=first, order_key="4")
    with pytest.raises(WrongMedia):
        streams.append("chat", "text/html", b"a", producer=first)
    assert not streams.append("chat", "text/plain", b"a", producer=first).is_repeated


def test_the_order_that_an_application_gives_is_compared_by_bytes(streams):
    streams.create("chat", TEXT)
    for key in ("09", "10", "B", "a"):
        streams.append("chat", "text/plain", key.encode(), order_key=key)
        with pytest.raises(OutOfOrder, match="is not greater"):
            streams.append("chat", "text/plain", b"-", order_key=key)
    streams.append("chat", "text/plain", b"!")  # needs none

    assert streams.text("chat") == "0910Ba!"


def test_a_closed_stream_knows_what_its_producer_repeats(streams):
    streams.create("chat", TEXT)
    streams.append("chat", "text/plain", b"a", producer=Producer("p", 0, 0))
    last = Producer("p", 0, 1)
    streams.append("chat", "text/plain", b"b", producer=last, closes=True)

    again = streams.append("chat", "text/plain", b"other", producer=last, closes=True)
    with pytest.raises(ChannelClosed) as closed:
        streams.append("chat", "text/plain", b"c", producer=Producer("p", 0, 2))

    assert (again.is_repeated, again.ended) == (True, "closed")
    assert closed.value.head == again.head
    assert streams.text("chat") == "ab"


def test_an_append_whose_answer_was_lost_is_stored_once(streams):
    """Also where its number, its order and the end would refuse it the second time."""
    app = streams.app
    streams.create("chat", TEXT)
    append = events.Append(
        channel="chat",
        events=[events.EventBody(id=app.events.publish("x").id, body="a", encoding="text", size=1)],
        ended="closed",
        create=False,
        media="text/plain",
        producer=Producer("p", 0, 0),
        order_key="1",
    )
    operation = events.append([append])
    [first] = app.run(operation)
    [again] = app.run(Operation("again", lambda: operation.steps(again=True)))

    assert again == first
    assert streams.text("chat") == "a"


# ---------------------------------------------------------------- lifetimes


def test_a_stream_that_is_not_used_expires(streams, clock):
    streams.create("chat", NewStream(media="text/plain", ttl=10 * SECOND), b"a")
    clock.advance(9)
    streams.look("chat")  # does not count
    clock.advance(1)

    for verb in (streams.look, lambda name: streams.read(name, None), streams.delete):
        with pytest.raises(NotFound):
            verb("chat")
    with pytest.raises(NotFound):
        streams.append("chat", "text/plain", b"b")
    assert streams.app.events.list() == []
    assert streams.app.events.read("chat").events == []


@pytest.mark.parametrize("use", ["read", "append", "publish", "close"])
def test_use_prolongs_the_life_of_a_stream(streams, clock, use):
    streams.create("chat", NewStream(media="application/json", ttl=10 * SECOND))
    uses = {
        "read": lambda: streams.read("chat", None),
        "append": lambda: streams.append("chat", "application/json", b"1"),
        "publish": lambda: streams.app.events.publish("chat", 1),
        "close": lambda: streams.append("chat", None, closes=True),
    }
    clock.advance(9)
    uses[use]()
    clock.advance(9)

    assert streams.look("chat").ttl == 10 * SECOND


def test_a_stream_that_expires_at_a_time_is_not_prolonged(streams, clock):
    at = clock.us + 10 * SECOND
    streams.create("chat", NewStream(media="text/plain", expires_at=at), b"a")
    clock.advance(9)
    streams.read("chat", None)
    streams.append("chat", "text/plain", b"b")
    clock.advance(1)

    with pytest.raises(NotFound):
        streams.read("chat", None)


def test_an_expired_stream_is_made_again_at_once(streams, clock):
    old = streams.create("chat", NewStream(media="text/plain", ttl=SECOND), b"a")
    streams.append("chat", "text/plain", b"b", producer=Producer("p", 0, 0), order_key="5")
    clock.advance(1)
    new = streams.create("chat", NewStream(media="text/html"), b"n")
    streams.append("chat", "text/html", b"b", producer=Producer("p", 0, 0), order_key="1")

    assert new.is_new
    assert streams.text("chat") == "nb"
    with pytest.raises(CursorReset) as reset:
        streams.read("chat", old.state.head)
    assert reset.value.reason == "channel"


def test_a_publish_to_an_expired_stream_begins_a_channel(streams, clock):
    streams.create("chat", NewStream(media="application/json", ttl=SECOND), b"1")
    clock.advance(1)
    streams.app.events.publish("chat", 2)

    assert [e.payload for e in streams.app.events.read("chat").events] == [2]
    assert streams.look("chat").ttl is None


def test_consumers_and_limits_of_an_expired_stream_are_over(streams, clock):
    """Also before upkeep comes: what attaches then attaches to a new channel."""
    app = streams.app
    streams.create("a", NewStream(media="application/json", ttl=SECOND), b"[1, 2]")
    attached = app.events.attach("a", "mailer")
    app.events.limit("a", max_count=1)
    clock.advance(1)

    with pytest.raises(CursorReset):
        app.events.ack("a", "mailer", attached.cursor[:-1] + "1", attached.generation)
    assert app.events.consumers("a") == []
    assert app.events.forget_consumer("a", "mailer") is False
    with pytest.raises(NotFound):
        app.events.move_consumer("a", "mailer", "start")
    assert app.events.attach("a", "mailer").generation == 1
    assert app.events.consumers("a")[0].lag == 0


def test_upkeep_deletes_expired_streams(streams, clock):
    for n in range(3):
        streams.create(f"s{n}", NewStream(media="text/plain", ttl=SECOND), b"a")
    streams.create("kept", TEXT, b"a")
    clock.advance(1)
    streams.app.upkeep.run()

    assert (rows(streams.app, "channel"), rows(streams.app, "event")) == (1, 1)
    assert rows(streams.app, "lifetime") == 0


# ---------------------------------------------------------------- forks


def forked(source, after=None, more=0, **given):
    return NewStream(fork=Fork(source, after, more), **given)


def test_a_fork_begins_with_the_events_of_its_source(streams):
    streams.create("a", TEXT, b"1")
    middle = streams.append("a", "text/plain", b"2").head
    streams.append("a", "text/plain", b"3")
    streams.create("b", forked("a", Cursor.parse(middle)))
    streams.append("a", "text/plain", b"4")
    streams.append("b", "text/plain", b"x")

    assert (streams.text("a"), streams.text("b")) == ("1234", "12x")
    assert rows(streams.app, "event") == 5  # none is copied


def test_every_offset_of_a_fork_is_one_to_go_on_from(streams):
    streams.create("a", TEXT, b"0")
    streams.append("a", "text/plain", b"1")
    streams.create("b", forked("a"), b"2")
    streams.append("b", "text/plain", b"3")
    streams.create("c", forked("b"), b"4")

    page = streams.app.events.read("c")
    assert [event.cursor for event in page.events] == sorted(e.cursor for e in page.events)
    for n, event in enumerate(page.events):
        assert streams.text("c", event.cursor) == "01234"[n + 1 :]
        one = streams.app.events.read("c", event.cursor, limit=1)
        assert one.is_current == (n >= 3)
    for source, length in (("a", 2), ("b", 4)):
        for n, event in enumerate(streams.app.events.read(source).events):
            assert streams.text("c", event.cursor) == "01234"[n + 1 :]
        assert length == n + 1


def test_an_offset_of_the_source_behind_the_fork_does_not_fit(streams):
    streams.create("a", TEXT, b"0")
    streams.create("b", forked("a"), b"1")
    later = streams.append("a", "text/plain", b"2").head

    with pytest.raises(CursorReset) as reset:
        streams.read("b", later)
    assert reset.value.reason == "channel"


def test_a_fork_may_begin_within_what_its_source_has_inherited(streams):
    streams.create("a", TEXT, b"0")
    first = streams.look("a").head
    streams.append("a", "text/plain", b"1")
    streams.create("b", forked("a"), b"2")
    streams.create("c", forked("b", Cursor.parse(first)), b"x")

    assert streams.text("c") == "0x"


@pytest.mark.parametrize(("more", "expected"), [(0, ""), (2, "he"), (5, "hello")])
def test_a_fork_may_have_a_part_of_the_next_body(streams, more, expected):
    streams.create("a", TEXT, b"hello")
    streams.append("a", "text/plain", b"there")
    new = forked("a", START, more)

    streams.create("b", new, b"!")

    assert streams.text("b") == expected + "!"
    assert not streams.create("b", new).is_new
    with pytest.raises(ChannelExists, match="Stream-Fork-Offset"):
        streams.create("b", forked("a", START, 3))
    with pytest.raises(Invalid, match="5 bytes are there"):
        streams.create("c", forked("a", START, 6))


def test_a_part_of_bytes_is_as_many_bytes(streams):
    streams.create("a", NewStream(), bytes(range(128, 138)))
    streams.create("b", forked("a", START, 7))

    [event] = streams.read("b", None).page.events
    assert event.payload == bytes(range(128, 135))
    assert not streams.create("b", forked("a", START, 7)).is_new


def test_a_fork_has_the_media_type_and_the_lifetime_of_its_source(streams, clock):
    streams.create("a", NewStream(media="text/plain", ttl=10 * SECOND), b"1")
    streams.create("b", forked("a"))
    streams.create("c", forked("a", ttl=20 * SECOND))

    assert (streams.look("b").media, streams.look("b").ttl) == ("text/plain", 10 * SECOND)
    clock.advance(15)
    assert streams.text("c") == "1"  # its source has expired
    streams.app.upkeep.run()
    assert streams.text("c") == "1"
    with pytest.raises(WrongMedia):
        streams.create("d", forked("c", media="text/html"))


def test_producers_and_order_do_not_travel_to_a_fork(streams):
    streams.create("a", TEXT)
    streams.append("a", "text/plain", b"1", producer=Producer("p", 0, 0), order_key="5")
    streams.create("b", forked("a"))

    answer = streams.append("b", "text/plain", b"2", producer=Producer("p", 0, 0), order_key="1")
    assert not answer.is_repeated
    assert streams.text("b") == "12"


def test_a_deleted_source_is_kept_for_its_forks(streams):
    streams.create("a", TEXT, b"1")
    streams.create("b", forked("a"), b"2")
    streams.create("c", forked("b"), b"3")
    streams.delete("a")
    streams.delete("b")
    streams.app.upkeep.run()

    assert streams.text("c") == "123"
    for name in ("a", "b"):
        for verb in (streams.look, lambda name: streams.read(name, None), streams.delete):
            with pytest.raises(ChannelGone):
                verb(name)
        with pytest.raises(ChannelGone):
            streams.append(name, "text/plain", b"x")
        with pytest.raises(ChannelExists):
            streams.create(name, TEXT)
    with pytest.raises(ChannelExists, match="cannot be forked"):
        streams.create("d", forked("a"))
    assert streams.app.events.delete("a") is False


def test_a_deleted_source_goes_with_its_last_fork(streams):
    streams.create("a", TEXT, b"1")
    streams.create("b", forked("a"), b"2")
    streams.create("c", forked("a"), b"3")
    streams.create("d", forked("c"), b"4")
    for name in ("a", "c", "b"):
        streams.delete(name)
    with pytest.raises(ChannelGone):
        streams.look("a")
    streams.delete("d")

    for name in "abcd":
        with pytest.raises(NotFound, match="there is no channel"):
            streams.look(name)
    streams.app.upkeep.run()
    assert (rows(streams.app, "channel"), rows(streams.app, "event")) == (0, 0)


def test_a_deleted_source_goes_when_its_last_fork_expires(streams, clock):
    streams.create("a", TEXT, b"1")
    streams.create("b", forked("a", ttl=SECOND))
    streams.delete("a")
    clock.advance(1)
    streams.app.upkeep.run()

    with pytest.raises(NotFound, match="there is no channel"):
        streams.look("a")
    assert rows(streams.app, "channel") == 0


def test_what_retention_deletes_of_a_source_is_gone_from_its_forks(streams):
    streams.create("a", TEXT, b"1")
    streams.append("a", "text/plain", b"2")
    streams.append("a", "text/plain", b"3")
    first = streams.app.events.read("a", limit=1).cursor
    streams.create("b", forked("a"), b"x")
    change(streams.app, "update towpath.channel set low = 2 where name = 'a'")
    change(streams.app, "delete from towpath.event where seq <= 2")

    assert streams.text("b") == "3x"
    with pytest.raises(CursorReset) as reset:
        streams.read("b", first)
    assert reset.value.reason == "retention"
    assert streams.text("b", reset.value.oldest) == "3x"
    streams.create("c", forked("b", START))
    assert streams.text("c") == ""


@pytest.mark.parametrize("end", ["lives", "is deleted", "expires"])
def test_a_fork_does_not_keep_its_source_from_its_hard_limits(streams, clock, end):
    """EV-6: readers of the fork, and of the fork's fork, are reset; what is left is as before."""
    app = streams.app
    streams.create("news", NewStream(media="text/plain", ttl=60 * SECOND))
    for n in range(10):
        streams.append("news", "text/plain", b"%d" % n)
    page = app.events.read("news")
    cursors = [event.cursor for event in page.events]
    app.events.limit("news", max_count=4)
    streams.create("mine", forked("news", Cursor.parse(cursors[7]), expires_at=10**16), b"x")
    streams.create("ours", forked("mine", Cursor.parse(cursors[5]), expires_at=10**16), b"y")
    if end == "is deleted":
        streams.delete("news")
    elif end == "expires":
        clock.advance(60)
    app.upkeep.run()
    app.upkeep.run()

    assert rows(app, "event") == 4 + 2
    assert (streams.text("mine"), streams.text("ours")) == ("67x", "y")
    for name in ("mine", "ours"):
        with pytest.raises(CursorReset) as reset:
            app.events.read(name, cursors[3])
        assert reset.value.reason == "retention"
        assert streams.text(name, reset.value.oldest) == streams.text(name)
        everything = app.events.read(name, since=datetime(2000, 1, 1, tzinfo=UTC)).events
        assert app.events.read(name, last=100).events == everything
        [shown] = app.events.list(name)
        assert shown.events == len(everything) == len(streams.text(name))
    if end == "lives":
        assert streams.text("news") == "6789"


def test_a_fork_keeps_what_consumers_of_its_source_have_acked(streams):
    """That is no hard limit: with its last fork it goes."""
    app = streams.app
    app.events.limit("news", drop_acked=True)
    cursor = app.events.publish_many("news", [NewEvent(n) for n in range(3)])[-1].cursor
    streams.create("mine", forked("news"))
    attached = app.events.attach("news", "mailer")
    app.events.ack("news", "mailer", cursor, attached.generation)
    app.upkeep.run()
    assert len(app.events.read("mine").events) == 3
    streams.delete("mine")
    for _ in range(3):
        app.upkeep.run()

    assert rows(app, "event") == 0


def test_a_fork_is_read_page_by_page(streams):
    streams.create("a", TEXT, b"0")
    for n in range(1, 5):
        streams.append("a", "text/plain", b"%d" % n)
    streams.create("b", forked("a"), b"5")
    found, after = [], None
    while True:
        page = streams.app.events.read("b", after, limit=2)
        found += [event.payload for event in page.events]
        after = page.cursor
        if page.is_current:
            break

    assert b"".join(found) == b"012345"


def test_a_subscription_of_a_fork_begins_among_the_events_of_its_source(streams, clock):
    events = streams.app.events
    for n in range(4):
        events.publish("a", n)
        clock.advance(1)
    streams.create("b", forked("a"), b"[4]")
    events.close("b")

    assert [e.payload for e in events.subscribe("b")] == [0, 1, 2, 3, 4]
    assert [e.payload for e in events.subscribe("b", last=3)] == [2, 3, 4]
    since = events.read("a").events[2].at
    assert [e.payload for e in events.subscribe("b", since=since)] == [2, 3, 4]
    second = events.read("a").events[1].cursor
    assert [e.payload for e in events.subscribe("b", second, consumer="c")] == [2, 3, 4]
    assert events.move_consumer("b", "c", second) == events.read("b").events[1].cursor


def test_a_fork_cannot_begin_where_its_source_has_no_event(streams):
    streams.create("a", TEXT, b"1")

    with pytest.raises(Invalid, match="cannot be forked at"):
        streams.create("b", forked("a", Cursor.parse("9" * 16 + "_" + "9" * 16)))
    with pytest.raises(NotFound):
        streams.create("b", forked("nothing"))
    streams.delete("a")
    with pytest.raises(NotFound):
        streams.look("a")  # no fork was left behind
