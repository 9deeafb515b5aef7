"""Streams that several transactions write to, fork and delete at once."""

import pytest

from tests.faults.gates import Gate
from tests.faults.processes import wait_until
from towpath.errors import ChannelGone, NotFound, OutOfOrder
from towpath.model.durable import Fork, NewStream, Producer
from towpath.model.ids import uuid7
from towpath.operation import answered
from towpath.store import creating, events

TEXT = NewStream(media="text/plain")
FORK = NewStream(fork=Fork("source", None))


@pytest.fixture(params=["postgres"])
def kind(request):
    return request.param


def create(app, name, new=TEXT):
    return app.run(creating.create(name, new, [], uuid7()))


def append(app, name="source", body="x", **given):
    event = events.EventBody(id=uuid7(), body=body, encoding="text", size=1)
    each = events.Append(channel=name, events=[event], create=False, **given)
    return answered(app.run(events.append([each]))[0])


def text(app, name):
    return b"".join(event.payload for event in app.events.read(name).events).decode()


def is_waiting(books):
    return books.rows("select pid from pg_stat_activity where wait_event_type = 'Lock'")


def test_an_append_that_two_senders_repeat_is_stored_once(make_app, threads, books):
    """The second looks for the producer after it has waited, not before."""
    app, other = make_app(), make_app()
    create(app, "source")
    producer = Producer("p", 0, 0)
    with Gate(app, threads).before("append", append, app, producer=producer):
        second = threads.submit(append, other, producer=producer)
        wait_until(lambda: is_waiting(books))

    assert second.result(10).is_repeated
    assert text(app, "source") == "x"


def test_an_order_is_compared_with_that_of_the_append_before(make_app, threads, books):
    app, other = make_app(), make_app()
    create(app, "source")
    with Gate(app, threads).before("append", append, app, order_key="5"):
        second = threads.submit(append, other, order_key="4")
        wait_until(lambda: is_waiting(books))

    with pytest.raises(OutOfOrder):
        second.result(10)


def test_a_source_that_is_deleted_while_it_is_forked_is_kept(make_app, threads, books):
    app, other = make_app(), make_app()
    create(app, "source")
    append(app)
    with Gate(app, threads).before("make_channel", create, app, "fork", FORK):
        deleted = threads.submit(other.events.delete, "source")
        wait_until(lambda: is_waiting(books))

    assert deleted.result(10)
    other.upkeep.run()
    assert text(other, "fork") == "x"
    with pytest.raises(ChannelGone):
        text(other, "source")


def test_a_source_that_is_forked_while_it_is_deleted_is_gone(make_app, threads, books):
    app, other = make_app(), make_app()
    create(app, "source")
    with Gate(app, threads).before("delete_channel", app.events.delete, "source"):
        forked = threads.submit(create, other, "fork", FORK)
        wait_until(lambda: is_waiting(books))

    with pytest.raises(NotFound):
        forked.result(10)
    assert app.events.list() == []


def test_the_last_two_forks_that_are_deleted_at_once_free_the_name(make_app, threads):
    """Neither sees that the other goes; upkeep does."""
    app, other = make_app(), make_app()
    create(app, "source")
    for name in ("one", "two"):
        create(app, name, FORK)
    app.events.delete("source")
    with Gate(app, threads).before("free_name", app.events.delete, "one"):
        other.events.delete("two")
    app.upkeep.run()

    assert create(app, "source", NewStream(media="text/html")).is_new
