"""Retention at the moment at which readers come: each gets all that is kept, or is reset."""

import pytest

from tests.faults.gates import Gate
from towpath.errors import CursorReset
from towpath.operation import Operation
from towpath.statement import Statement

pytestmark = pytest.mark.parametrize("kind", ["postgres"])


def published(app, count):
    return [app.events.publish("chat", n).cursor for n in range(count)]


def forked():
    yield Statement(
        "forked",
        {
            "any": "update towpath.channel set source = (select id from towpath.channel"
            " where name = 'chat') where name = 'fork'"
        },
    )()


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


def test_a_fork_that_is_made_just_before_keeps_its_source(make_app, threads):
    app, trimmer = make_app(), make_app(event_max_count=2)
    published(app, 5)

    with Gate(trimmer, threads).before("hold_to_trim", trimmer.upkeep.run):
        app.events.publish("fork", 1)
        app.run(Operation("forked", forked))

    assert payloads(app) == [0, 1, 2, 3, 4]
