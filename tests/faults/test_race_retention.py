"""Retention at the moment at which readers come: each gets all that is kept, or is reset."""

import pytest

from tests.faults.gates import Gate
from towpath.errors import CursorReset
from towpath.model.durable import Fork, NewStream
from towpath.model.ids import uuid7
from towpath.store import creating

pytestmark = pytest.mark.parametrize("kind", ["postgres"])


def published(app, count):
    return [app.events.publish("chat", n).cursor for n in range(count)]


def payloads(app, after=None):
    return [event.payload for event in app.events.read("chat", after).events]


def test_a_reader_before_the_mark_rises_gets_all(make_app, threads):
    """EV-5"""
    app, trimmer = make_app(), make_app(event_max_count=2)
    cursors = published(app, 5)

    with Gate(trimmer, threads).before("raise_low", trimmer.upkeep.run):
        assert payloads(app) == [0, 1, 2, 3, 4]
        assert payloads(app, cursors[0]) == [1, 2, 3, 4]

    assert payloads(app) == [3, 4]


def test_a_reader_between_the_mark_and_the_deletion_is_reset(make_app, threads):
    """EV-5"""
    app, trimmer = make_app(), make_app(event_max_count=2)
    cursors = published(app, 5)

    with Gate(trimmer, threads).before("drop_below", trimmer.upkeep.run):
        assert payloads(app) == [3, 4]
        with pytest.raises(CursorReset) as reset:
            app.events.read("chat", cursors[0])
        assert (reset.value.reason, reset.value.oldest) == ("retention", cursors[2])
        assert payloads(app, cursors[2]) == [3, 4]
        assert app.events.publish("chat", 5).cursor > cursors[4]

    assert payloads(app, cursors[2]) == [3, 4, 5]


def test_a_consumer_that_attaches_while_acked_events_go_misses_nothing(make_app, threads):
    """EV-5: it waits for the mark, and begins there."""
    app, trimmer = make_app(), make_app()
    cursors = published(app, 5)
    app.events.limit("chat", drop_acked=True)
    generation = app.events.attach("chat", "first").generation
    app.events.ack("chat", "first", cursors[3], generation)

    with Gate(trimmer, threads).before("raise_low", trimmer.upkeep.run):
        attaching = threads.submit(app.events.attach, "chat", "second")

    assert attaching.result(10).cursor == cursors[3]
    assert payloads(app, attaching.result().cursor) == [4]


def test_a_consumer_that_attaches_just_before_holds_events_back(make_app, threads):
    """EV-5: retention counts consumers under the row that an attach holds."""
    app, trimmer = make_app(), make_app()
    cursors = published(app, 5)
    app.events.limit("chat", drop_acked=True)
    generation = app.events.attach("chat", "first").generation
    app.events.ack("chat", "first", cursors[3], generation)

    with Gate(trimmer, threads).before("hold_to_trim", trimmer.upkeep.run):
        cursor = app.events.attach("chat", "second").cursor

    assert payloads(app, cursor) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("moment", ["hold_to_trim", "raise_low", "drop_below"])
def test_a_fork_that_is_made_at_that_moment_has_no_hole(make_app, threads, moment):
    """EV-5: it waits for the mark, or the mark rises in it, too."""
    app, trimmer = make_app(), make_app(event_max_count=2)
    cursors = published(app, 5)
    new = NewStream(fork=Fork("chat", None))

    with Gate(trimmer, threads).before(moment, trimmer.upkeep.run):
        making = threads.submit(app.run, creating.create("fork", new, [], uuid7()))
        if moment != "raise_low":  # else the row of its source is held
            making.result(30)
    making.result(30)

    assert payloads(app) == [3, 4]
    assert [event.payload for event in app.events.read("fork").events] == [3, 4]
    with pytest.raises(CursorReset):
        app.events.read("fork", cursors[0])
