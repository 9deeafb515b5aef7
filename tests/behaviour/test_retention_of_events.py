"""Retention of events: what a channel keeps, and what a reader is told of the rest."""

import pytest

from tests.behaviour.test_consumers import payloads, published, the_consumer
from tests.behaviour.test_events import read_all
from towpath import NewEvent
from towpath.app import upkeep
from towpath.errors import CursorReset, Invalid
from towpath.model.durable import Fork, NewStream
from towpath.model.ids import uuid7
from towpath.operation import Operation
from towpath.statement import Statement
from towpath.store import creating, trimming


def stored(app):
    """Count the rows that are really there."""

    def steps():
        return (yield Statement("count", {"any": "select count(*) from towpath.event"})())[0][0]

    return app.run(Operation("count", steps))


def kept(app, channel="chat"):
    return [event.payload for event in read_all(app, channel)]


# ---------------------------------------------------------------- hard limits


def test_an_event_is_kept_for_seven_days(app, clock):
    """EV-6"""
    app.events.publish("chat", "old")
    clock.advance("1d")
    app.events.publish("chat", "young")
    clock.advance("6d")
    app.upkeep.run()
    assert kept(app) == ["old", "young"]
    clock.advance(1)
    app.upkeep.run()

    assert kept(app) == ["young"]
    assert stored(app) == 1


def test_the_settings_say_how_many_events_a_channel_keeps(make_app, colour, clock):
    """EV-6"""
    app = colour(make_app(clock=clock, event_max_count=3))
    published(app, 5)
    published(app, 2, "other")
    app.upkeep.run()

    assert kept(app) == [2, 3, 4]
    assert kept(app, "other") == [0, 1]


def test_the_settings_say_how_many_bytes_a_channel_keeps(make_app, colour, clock):
    """EV-6"""
    app = colour(make_app(clock=clock, event_max_bytes=30))
    for n in range(5):
        app.events.publish("chat", str(n) * 8)  # and two quotes
    app.upkeep.run()

    [channel] = app.events.list()
    assert kept(app) == ["2" * 8, "3" * 8, "4" * 8]
    assert (channel.events, channel.size) == (3, 30)


def test_a_limit_of_zero_is_none(make_app, colour, clock):
    app = colour(make_app(clock=clock, event_max_age=0, event_max_bytes=0, event_max_count=0))
    published(app, 3)
    clock.advance("300d")
    app.upkeep.run()

    assert kept(app) == [0, 1, 2]


def test_a_channel_may_have_limits_of_its_own(app, clock):
    for name in ("count", "bytes", "age", "none"):
        published(app, 5, name)
    app.events.limit("count", max_count=2)
    app.events.limit("bytes", max_bytes=3)
    app.events.limit("age", max_age="1h")
    app.events.limit("none", max_age=0)
    clock.advance("61m")
    app.upkeep.run()

    assert [kept(app, name) for name in ("count", "bytes", "age")] == [[3, 4], [2, 3, 4], []]
    app.events.limit("count")
    clock.advance("8d")
    app.upkeep.run()
    assert kept(app, "count") == []
    assert kept(app, "none") == [0, 1, 2, 3, 4]


def test_limits_may_be_set_before_the_first_event(app):
    app.events.limit("chat", max_count=1)
    published(app, 3)
    app.upkeep.run()

    assert kept(app) == [2]


@pytest.mark.one_database
def test_wrong_limits_are_refused(make_app):
    app = make_app()
    with pytest.raises(Invalid, match="max_count -1 is not a whole number"):
        app.events.limit("chat", max_count=-1)
    with pytest.raises(Invalid, match="max_age 'soon' is not"):
        app.events.limit("chat", max_age="soon")
    with pytest.raises(Invalid, match="kept as long as the job"):
        app.events.limit("job:1", max_count=1)
    with pytest.raises(Invalid, match="event_max_count must be 0"):
        make_app(event_max_count=-1)
    assert app.events.list() == []


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"max_count": 3}, [4, 5, "own"]),
        ({"max_count": 1}, ["own"]),
        ({"max_age": "1h"}, [3, 4, 5, "own"]),
        ({"max_bytes": 6}, [0, 1, 2, 3, 4, 5, "own"]),
        ({"max_bytes": 5}, ["own"]),
        ({"drop_acked": True}, [4, 5, "own"]),
    ],
)
def test_a_fork_lets_go_of_its_oldest_events_which_its_source_keeps(app, clock, limits, left):
    """EV-6: of what the source of its source has, then of what its source has, then of its own."""
    published(app, 3, "chat")
    clock.advance("61m")
    fork(app, "chat", "branch")
    app.events.publish_many("branch", [NewEvent(3), NewEvent(4)])
    fork(app, "branch", "twig")
    cursors = [app.events.publish("twig", each).cursor for each in (5, "own")]
    if "drop_acked" in limits:
        generation = app.events.attach("twig", "mailer").generation
        app.events.ack("twig", "mailer", f"{cursors[0][:17]}{4:016}", generation)

    app.events.limit("twig", **limits)
    app.upkeep.run()

    assert kept(app, "twig") == left
    [twig] = app.events.list("twig")
    assert (twig.events, twig.size) == (len(left), 6 if 5 in left else 5)
    assert kept(app, "branch") == [0, 1, 2, 3, 4]
    assert kept(app, "chat") == [0, 1, 2]


def fork(app, source, name):
    app.run(creating.create(name, NewStream(fork=Fork(source, None)), [], uuid7()))


def test_the_lifecycle_is_kept_for_a_day(app, clock):
    published(app, 1, "lifecycle")
    does(app, "update towpath.channel set name = 'system' where name = 'lifecycle'")
    clock.advance("24h")
    app.upkeep.run()
    assert kept(app, "system") == [0]
    clock.advance(1)
    app.upkeep.run()

    assert kept(app, "system") == []


def does(app, text):
    """Do something to the database that no verb does."""

    def steps():
        yield Statement("does", {"any": text})()

    app.run(Operation("does", steps))


def test_the_stream_of_a_job_is_kept_as_long_as_its_job(app, clock):
    published(app, 2, "stream")
    app.jobs.enqueue("mail")
    does(
        app,
        "update towpath.channel set job = (select seq from towpath.job) where name = 'stream'",
    )
    clock.advance("8d")
    app.upkeep.run()

    assert kept(app, "stream") == [0, 1]


# ---------------------------------------------------------------- what readers are told


def test_a_reader_that_is_overtaken_is_reset(make_app, colour, clock):
    """EV-6"""
    app = colour(make_app(clock=clock, event_max_count=2))
    cursors = published(app, 4)
    in_catch_up = app.events.read("chat", limit=1).cursor
    app.upkeep.run()

    with pytest.raises(CursorReset) as reset:
        app.events.read("chat", in_catch_up)

    assert (reset.value.reason, reset.value.oldest) == ("retention", cursors[1])
    assert reset.value.head == cursors[3]
    assert payloads(app.events.read("chat", reset.value.oldest)) == [2, 3]
    assert payloads(app.events.read("chat", cursors[1])) == [2, 3]


def test_numbers_go_on_when_a_channel_is_emptied(app, clock):
    before = published(app, 2)[-1]
    clock.advance("8d")
    app.upkeep.run()
    assert kept(app) == []
    assert stored(app) == 0
    assert app.events.position("chat") == before

    assert app.events.publish("chat", "next").cursor > before
    assert payloads(app.events.read("chat", before)) == ["next"]
    [channel] = app.events.list()
    assert (channel.events, channel.size) == (1, len('"next"'))


def test_a_key_is_free_again_when_its_event_is_gone(app, clock):
    first = app.events.publish("chat", 1, key="once")
    clock.advance("8d")
    app.upkeep.run()

    assert app.events.publish("chat", 2, key="once").cursor > first.cursor


def test_hard_limits_overtake_a_consumer_which_is_told(make_app, colour, clock):
    """EV-6"""
    app = colour(make_app(clock=clock, event_max_count=2))
    cursors = published(app, 4)
    app.events.attach("chat", "mailer")
    app.upkeep.run()
    assert the_consumer(app).is_overtaken

    again = app.events.attach("chat", "mailer")
    with pytest.raises(CursorReset) as reset:
        app.events.read("chat", again.cursor)

    assert app.events.move_consumer("chat", "mailer", reset.value.oldest) == cursors[1]
    assert payloads(app.events.read("chat", app.events.attach("chat", "mailer").cursor)) == [2, 3]


# ---------------------------------------------------------------- acked events


def test_what_all_consumers_have_acked_goes_if_the_channel_says_so(app):
    """EV-5"""
    cursors = published(app, 5)
    app.events.limit("chat", drop_acked=True)
    app.upkeep.run()
    assert kept(app) == [0, 1, 2, 3, 4]  # no consumer, nothing acked
    quick, slow = (app.events.attach("chat", name).generation for name in ("quick", "slow"))
    app.events.ack("chat", "quick", cursors[4], quick)
    app.upkeep.run()
    assert kept(app) == [0, 1, 2, 3, 4]

    app.events.ack("chat", "slow", cursors[1], slow)
    app.upkeep.run()

    assert kept(app) == [2, 3, 4]
    assert payloads(app.events.read("chat", app.events.attach("chat", "slow").cursor)) == [2, 3, 4]


def test_acked_events_are_kept_without_that_option(app):
    cursors = published(app, 2)
    generation = app.events.attach("chat", "mailer").generation
    app.events.ack("chat", "mailer", cursors[1], generation)
    app.upkeep.run()

    assert kept(app) == [0, 1]


def test_an_expired_consumer_holds_nothing_back(app, clock):
    """EV-6"""
    app.events.limit("chat", max_age=0, drop_acked=True)
    cursors = published(app, 3)
    app.events.attach("chat", "gone")
    clock.advance("7d")
    live = app.events.attach("chat", "live").generation
    app.events.ack("chat", "live", cursors[1], live)
    app.upkeep.run()
    assert kept(app) == [0, 1, 2]
    clock.advance(1)
    app.upkeep.run()

    assert kept(app) == [2]
    back = app.events.attach("chat", "gone")
    with pytest.raises(CursorReset) as reset:
        app.events.read("chat", back.cursor)
    assert reset.value.reason == "retention"


# ---------------------------------------------------------------- bounded work


def test_a_round_visits_some_channels_and_the_next_one_the_others(make_app, clock, monkeypatch):
    monkeypatch.setattr(trimming, "VISITED_AT_ONCE", 2)
    app = make_app(clock=clock)
    names = ["a", "b", "c", "d", "e"]
    for name in names:
        app.events.publish(name, 1)
    clock.advance("8d")

    lengths = []
    for _ in range(3):
        app.upkeep.run()
        lengths.append(sum(bool(kept(app, name)) for name in names))

    assert lengths == [3, 1, 0]


def test_streams_of_jobs_and_deleted_channels_do_not_delay_the_round(make_app, clock, monkeypatch):
    """EV-6: a byte limit is kept soon, however many streams are retained."""
    monkeypatch.setattr(trimming, "VISITED_AT_ONCE", 2)
    app = make_app(clock=clock, event_max_bytes=10)
    app.jobs.enqueue_many("talk", range(5))
    for lease in app.jobs.reserve("talk", limit=5):
        app.jobs.say(lease, said=0, events=["word"])
        app.jobs.complete(lease)
    for n in range(5):
        app.events.publish(f"gone{n}", 1)
        app.events.delete(f"gone{n}")
    app.events.publish("chat", "x" * 100)

    app.upkeep.run()

    assert kept(app, "chat") == []
    assert len(app.events.list("job:")) == 5


def test_a_round_deletes_some_events_of_a_channel_and_the_next_one_the_others(
    make_app, clock, monkeypatch
):
    monkeypatch.setattr(trimming, "AT_ONCE", 10)
    monkeypatch.setattr(upkeep, "MOST_OF_CHANNEL", 3)
    app = make_app(clock=clock)
    app.events.publish_many("chat", [NewEvent(n) for n in range(100)])
    clock.advance("8d")

    app.upkeep.run()

    assert kept(app) == list(range(30, 100))
    for _ in range(3):
        app.upkeep.run()
    assert kept(app) == []
    assert stored(app) == 0


def test_rows_that_a_crash_left_below_the_mark_are_deleted(app, clock):
    published(app, 3)
    clock.advance("8d")
    [channel] = app.run(trimming.visit(0, trimming.Kept.of(app.settings))).channels
    app.run(trimming.trim(channel, trimming.Kept.of(app.settings)))
    assert kept(app) == []
    assert stored(app) == 3

    app.upkeep.run()

    assert stored(app) == 0
