"""Channels: what is published is read by every reader, in order, once."""

import pytest

from towpath import NewEvent
from towpath.errors import (
    ChannelClosed,
    CursorReset,
    Invalid,
    InvalidChannel,
    InvalidCursor,
    InvalidPayload,
    MaxChannelsReached,
    NotFound,
    PayloadTooLarge,
)
from towpath.operation import Operation
from towpath.statement import Statement
from towpath.store import events


def payloads(page):
    return [event.payload for event in page.events]


def read_all(app, channel, after=None, limit=1_000):
    """Read page by page, to the end."""
    found = []
    while True:
        page = app.events.read(channel, after, limit=limit)
        found += page.events
        after = page.cursor
        if page.is_current:
            return found


# ---------------------------------------------------------------- publish and read


def test_events_are_read_in_the_order_in_which_they_were_published(app):
    """EV-1"""
    for n in range(5):
        app.events.publish("chat:42", {"n": n})

    page = app.events.read("chat:42")

    assert payloads(page) == [{"n": n} for n in range(5)]
    assert [event.cursor for event in page.events] == sorted(e.cursor for e in page.events)
    assert page.is_current


def test_a_reader_goes_on_from_its_cursor(app):
    """EV-3"""
    first = app.events.publish("chat", 1)
    app.events.publish("chat", 2)

    page = app.events.read("chat", first.cursor)
    app.events.publish("chat", 3)

    assert payloads(page) == [2]
    assert payloads(app.events.read("chat", page.cursor)) == [3]


def test_the_answer_to_a_publish_is_the_event_that_is_read(app, clock):
    published = app.events.publish(
        "orders", {"id": 7}, type="order.paid", key="order-7", headers={"turn": "3"}
    )

    [read] = app.events.read("orders").events

    assert read == published
    assert read.at == clock.now
    assert (read.type, read.key, read.headers) == ("order.paid", "order-7", {"turn": "3"})


@pytest.mark.parametrize("payload", [None, 0, "text", [1], {"a": {"b": None}}, b"bytes", b"\0\xff"])
def test_a_payload_is_read_as_it_was_published(app, payload):
    app.events.publish("any", payload)

    assert payloads(app.events.read("any")) == [payload]


def test_many_events_are_stored_next_to_each_other(app):
    app.events.publish_many("chat", [NewEvent(n) for n in range(2_500)])

    assert payloads(app.events.read("chat", limit=2)) == [0, 1]
    assert [event.payload for event in read_all(app, "chat")] == list(range(2_500))


def test_of_many_events_all_are_stored_or_none(app):
    with pytest.raises(InvalidPayload):
        app.events.publish_many("chat", [NewEvent(1), NewEvent(float("nan"))])

    assert app.events.read("chat").events == []
    assert app.events.list() == []


def test_no_events_are_published_without_making_a_channel(app):
    assert app.events.publish_many("chat", []) == []
    assert app.events.list() == []


def test_a_page_ends_at_a_number_of_bytes(app):
    app.events.publish_many("big", [NewEvent("x" * 600_000) for _ in range(3)])

    page = app.events.read("big")

    assert len(page.events) == 2
    assert not page.is_current
    assert len(app.events.read("big", page.cursor).events) == 1


def test_headers_count_among_the_bytes_of_a_page_and_of_a_channel(app):
    """Else pages of events without payloads could be a hundred times as large as others."""
    app.events.publish_many("big", [NewEvent(b"", headers={"a": "x" * 7_991})] * 140)

    [big] = app.events.list()

    assert big.size == 140 * 8_000 - 140
    assert len(app.events.read("big").events) == 132


def test_a_channel_that_nobody_published_to_is_empty(app):
    page = app.events.read("later")

    assert page.events == []
    assert page.is_current
    app.events.publish("later", 1)
    assert payloads(app.events.read("later", page.cursor)) == [1]


def test_channels_have_numbers_of_their_own(app):
    """EV-7"""
    a, b = app.events.publish("a", 1), app.events.publish("b", 1)

    assert a.cursor != b.cursor
    assert payloads(app.events.read("a")) == payloads(app.events.read("b")) == [1]


def test_two_readers_of_one_channel_have_a_position_each(app):
    """EV-2, EV-8"""
    for n in range(3):
        app.events.publish("chat", n)
    ahead = app.events.read("chat", limit=2).cursor
    behind = app.events.read("chat", limit=1).cursor

    assert payloads(app.events.read("chat", ahead)) == [2]
    assert payloads(app.events.read("chat", behind)) == [1, 2]


def test_the_clock_does_not_decide_the_order(app, clock):
    app.events.publish("chat", "first")
    clock.set_back("1h")
    app.events.publish("chat", "second")

    assert payloads(app.events.read("chat")) == ["first", "second"]


def test_the_position_is_behind_all_that_was_published(app):
    assert app.events.read("chat", app.events.position("chat")).events == []
    app.events.publish("chat", 1)
    position = app.events.position("chat")
    app.events.publish("chat", 2)

    assert payloads(app.events.read("chat", position)) == [2]


# ---------------------------------------------------------------- keys


def test_an_event_with_a_key_that_is_there_is_not_stored_again(app):
    first = app.events.publish("orders", {"n": 1}, key="k")
    again = app.events.publish("orders", {"n": 2}, key="k")

    assert again == first
    assert payloads(app.events.read("orders")) == [{"n": 1}]


def test_of_two_events_with_one_key_in_one_call_the_first_holds(app):
    same = app.events.publish_many("orders", [NewEvent(1, key="k"), NewEvent(2, key="k")])

    assert same[0] == same[1]
    assert payloads(app.events.read("orders")) == [1]


def test_a_key_is_of_one_channel(app):
    app.events.publish("a", 1, key="k")
    app.events.publish("b", 2, key="k")

    assert payloads(app.events.read("b")) == [2]


# ---------------------------------------------------------------- closing and deleting


def test_a_closed_channel_takes_no_more_events_and_says_so_to_its_readers(app):
    app.events.publish("chat", 1)
    app.events.close("chat")

    with pytest.raises(ChannelClosed, match="chat"):
        app.events.publish("chat", 2)
    with pytest.raises(ChannelClosed):
        app.events.publish("chat", 2, key="k")
    page = app.events.read("chat")
    assert payloads(page) == [1]
    assert page.ended == "closed"


def test_the_end_is_told_only_with_the_last_page(app):
    app.events.publish_many("chat", [NewEvent(1), NewEvent(2)])
    app.events.close("chat")

    assert app.events.read("chat", limit=1).ended is None
    assert app.events.read("chat", limit=2).ended == "closed"


def test_closing_again_changes_nothing(app):
    app.events.publish("chat", 1, key="k")
    app.events.close("chat")
    app.events.close("chat")

    assert app.events.publish("chat", 1, key="k").payload == 1  # it was stored before the end


def test_a_channel_that_does_not_exist_cannot_be_closed(app):
    with pytest.raises(NotFound, match="nowhere"):
        app.events.close("nowhere")


def test_a_deleted_channel_begins_again_and_resets_its_readers(app):
    """EV-6"""
    old = app.events.publish("chat", 1)

    assert app.events.delete("chat") is True
    assert app.events.delete("chat") is False
    with pytest.raises(CursorReset) as gone:
        app.events.read("chat", old.cursor)
    new = app.events.publish("chat", 2)
    with pytest.raises(CursorReset) as made_again:
        app.events.read("chat", old.cursor)

    assert gone.value.reason == made_again.value.reason == "channel"
    assert made_again.value.head == new.cursor
    assert payloads(app.events.read("chat", made_again.value.oldest)) == [2]


def test_a_channel_that_is_deleted_before_its_events_are_placed_is_not_made_again(app):
    """A reader or a round of upkeep has seen that events wait, and then they are gone."""
    app.events.publish("chat", 1)
    app.events.delete("chat")

    app.run(events.place(["chat"]))

    assert app.events.list() == []


def test_upkeep_deletes_the_events_of_deleted_channels(app):
    app.events.publish_many("chat", [NewEvent(n) for n in range(1_500)])
    app.events.delete("chat")
    for _ in range(3):
        app.upkeep.run()

    assert stored(app, "event") == 0
    assert stored(app, "channel") == 0


def stored(app, table):
    """Count the rows of a table, past the verbs."""

    def steps():
        text = f"select count(*) from towpath.{table}"  # noqa: S608 - a name of ours
        return (yield Statement("count", {"any": text})())[0][0]

    return app.run(Operation("count", steps))


# ---------------------------------------------------------------- cursors


def test_a_cursor_ahead_of_the_channel_is_reset(app):
    event = app.events.publish("chat", 1)
    ahead = event.cursor[:-1] + "9"

    with pytest.raises(CursorReset) as reset:
        app.events.read("chat", ahead)

    assert (reset.value.reason, reset.value.head) == ("ahead", event.cursor)


def test_a_cursor_of_another_channel_is_reset(app):
    foreign = app.events.publish("a", 1)
    app.events.publish("b", 1)

    with pytest.raises(CursorReset) as reset:
        app.events.read("b", foreign.cursor)

    assert reset.value.reason == "channel"


def test_after_a_restored_backup_old_cursors_are_reset(app):
    old = app.events.publish("chat", 1)
    app.events.restored()

    with pytest.raises(CursorReset) as reset:
        app.events.read("chat", old.cursor)

    assert reset.value.reason == "era"
    assert payloads(app.events.read("chat")) == [1]
    new = app.events.publish("chat", 2)
    app.events.restored()
    with pytest.raises(CursorReset):
        app.events.read("chat", new.cursor)


@pytest.mark.parametrize("beginning", [None, "-1", "0000000000000000_0000000000000000"])
def test_a_reader_can_begin_at_the_beginning(app, beginning):
    app.events.publish("chat", 1)

    assert payloads(app.events.read("chat", beginning)) == [1]


@pytest.mark.one_database
@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "soon",
        "1",
        "0000000000000000-0000000000000000",
        5,
        "\N{FULLWIDTH DIGIT ZERO}" * 16 + "_" + "0" * 16,
    ],
)
def test_text_that_is_no_cursor_is_refused(app, cursor):
    with pytest.raises(InvalidCursor, match="is not a cursor"):
        app.events.read("chat", cursor)


# ---------------------------------------------------------------- lists


def test_channels_are_listed_by_name_and_by_prefix(app):
    for name in ("chat:2", "chat:10", "orders", "Chat:1"):
        app.events.publish(name, 1)

    assert [each.name for each in app.events.list()] == ["Chat:1", "chat:10", "chat:2", "orders"]
    assert [each.name for each in app.events.list("chat:")] == ["chat:10", "chat:2"]
    assert [each.name for each in app.events.list(after="chat:10", limit=1)] == ["chat:2"]


def test_a_list_tells_where_a_channel_stands(app, clock):
    app.events.publish("chat", "abc")
    last = app.events.publish("chat", "de")
    app.events.close("chat")

    [chat] = app.events.list()

    assert (chat.events, chat.size, chat.head) == (2, 9, last.cursor)
    assert (chat.created_at, chat.ended) == (clock.now, "closed")


# ---------------------------------------------------------------- wrong values


@pytest.mark.one_database
@pytest.mark.parametrize("name", ["", "a/b", "a b", "ä", "x" * 201, None, 5, "a\n", "__ds"])
def test_a_name_that_is_no_channel_is_refused(app, name):
    with pytest.raises(InvalidChannel, match="is not a valid channel"):
        app.events.publish(name, 1)
    with pytest.raises(InvalidChannel):
        app.events.read(name)


@pytest.mark.one_database
@pytest.mark.parametrize("name", ["system", "job:0199"])
def test_a_channel_of_towpath_is_not_for_users(app, name):
    for verb in (app.events.publish, app.events.close, app.events.delete):
        with pytest.raises(InvalidChannel, match="belongs to Towpath"):
            verb(name)


@pytest.mark.one_database
@pytest.mark.parametrize("type", ["", "a b", "a\nb", "order.*", "x" * 201, 7, "a\0"])
def test_a_wrong_type_is_refused(app, type):
    with pytest.raises(Invalid, match="is not a valid type"):
        app.events.publish("chat", 1, type=type)


@pytest.mark.one_database
def test_wrong_payloads_and_keys_are_refused_and_nothing_is_stored(make_app):
    app = make_app(max_payload=100)
    with pytest.raises(InvalidPayload):
        app.events.publish("chat", float("inf"))
    with pytest.raises(InvalidPayload):
        app.events.publish("chat", "\ud800")
    with pytest.raises(PayloadTooLarge):
        app.events.publish("chat", "x" * 100)
    with pytest.raises(Invalid, match="key"):
        app.events.publish("chat", 1, key="")
    with pytest.raises(Invalid, match="header"):
        app.events.publish("chat", 1, headers={"a": 1})
    with pytest.raises(Invalid, match="NewEvent"):
        app.events.publish_many("chat", [{"payload": 1}])
    with pytest.raises(Invalid, match="at most"):
        app.events.publish_many("chat", [NewEvent(1)] * 10_001)

    assert app.events.list() == []


# ---------------------------------------------------------------- how many channels


def test_no_more_channels_begin_than_allowed(make_app, colour, clock):
    """In whatever way a channel begins; nothing is stored of one that may not."""
    app = colour(make_app(clock=clock, max_channels=2))
    app.jobs.enqueue("mail", max_retries=1)
    [lease] = app.jobs.reserve("mail")
    app.jobs.say(lease, said=0, events=[NewEvent("a word")])  # in a stream
    app.jobs.fail(lease, "no")  # in `system`
    app.upkeep.run()
    app.events.publish("a", 1)
    app.events.publish("b", 1, key="k")
    for begin in (
        lambda: app.events.publish("c", 1),
        lambda: app.events.publish("c", 1, key="k"),
        lambda: app.events.publish_many("c", [NewEvent(1)] * 3),
        lambda: app.events.attach("c", "mailer"),
        lambda: app.events.limit("c", max_count=1),
    ):
        with pytest.raises(MaxChannelsReached, match="raise it"):
            begin()

    assert len(app.events.list()) == 4
    app.events.publish("a", 2)
    app.events.publish("b", 2, key="l")
    app.events.attach("b", "mailer")
    app.events.delete("a")
    app.events.publish("c", 1)
    with pytest.raises(MaxChannelsReached):
        app.events.publish("a", 1)
