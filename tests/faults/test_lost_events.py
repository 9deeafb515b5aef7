"""Answers that get lost on their way from the log: what was published is there once.

The proxy lets PostgreSQL do the work and closes the connection instead of handing on its answer.
"""

import psycopg
import pytest

from tests.faults.gates import Gate
from tests.faults.proxy import COMMIT, Proxy
from towpath import NewEvent
from towpath.errors import DatabaseUnavailable
from towpath.model.durable import Producer
from towpath.model.ids import uuid7
from towpath.operation import answered
from towpath.store.event_rows import EventBody
from towpath.store.events import Append, append

# Words that only this statement has.
PUBLISH = "numbered as materialized ("
ACK = "moved as ("


@pytest.fixture(params=["postgres"])
def kind(request):
    return request.param


@pytest.fixture
def proxy(postgres):
    with Proxy(postgres.port) as proxy:
        yield proxy


@pytest.fixture
def place(proxy, postgres_schema):
    return proxy.url(), {"schema": postgres_schema}


@pytest.fixture
def app(live):
    live.topics.list()  # the tables are there
    return live


@pytest.mark.parametrize("lose", ["lose_answer", "lose_request"])
def test_an_event_whose_answer_is_lost_is_stored_once(app, proxy, lose):
    app.events.publish("chat", 0)
    getattr(proxy, lose)(PUBLISH)

    event = app.events.publish("chat", 1)

    assert proxy.happened.is_set()
    page = app.events.read("chat")
    assert [each.payload for each in page.events] == [0, 1]
    assert page.events[-1] == event


@pytest.mark.parametrize("options", [{}, {"key": "k"}], ids=str)
def test_the_first_event_of_a_channel_whose_answer_is_lost_is_stored_once(app, proxy, options):
    proxy.lose_answer(COMMIT)

    event = app.events.publish("chat", 1, **options)

    assert proxy.happened.is_set()
    assert app.events.read("chat").events == [event]


def test_many_events_whose_answer_is_lost_are_stored_once(app, proxy):
    app.events.publish("chat", -1)
    proxy.lose_answer(PUBLISH)

    told = app.events.publish_many("chat", [NewEvent(n) for n in range(1_500)])

    assert proxy.happened.is_set()
    assert app.events.read("chat", told[0].cursor).events[0] == told[1]
    assert app.events.position("chat") == told[-1].cursor


def test_a_close_whose_answer_is_lost_holds(app, proxy):
    app.events.publish("chat", 1)
    proxy.lose_answer(COMMIT)
    app.events.close("chat")

    assert proxy.happened.is_set()
    assert app.events.read("chat").ended == "closed"


def test_a_lost_event_is_found_although_others_came_after_it(make_app, threads, proxy):
    """The repeated publish looks for what it has stored, behind a thousand newer events."""
    app, other = make_app(), make_app()
    app.events.publish("chat", 0)
    proxy.lose_answer(PUBLISH)

    # Only a repeated publish asks this.
    with Gate(app, threads).before("hold", app.events.publish, "chat", "lost") as published:
        other.events.publish_many("chat", [NewEvent(n) for n in range(1_500)])

    assert proxy.happened.is_set()
    found = []
    while not found or found[-1].cursor != app.events.position("chat"):
        found += app.events.read("chat", found[-1].cursor if found else None).events
    assert [event for event in found if event.payload == "lost"] == [published.result()]


@pytest.mark.parametrize("closes", [None, "closed"])
def test_the_append_of_a_producer_whose_answer_is_lost_is_stored_once(app, proxy, closes):
    app.events.publish("chat", 0)
    event = EventBody(id=uuid7(), body="1", encoding="json", size=1)
    new = Append(channel="chat", events=[event], producer=Producer("p", 0, 0), ended=closes)
    proxy.lose_answer(COMMIT)

    [told] = app.run(append([new]))

    assert proxy.happened.is_set()
    assert (answered(told).said, answered(told).ended) == (0, closes)
    page = app.events.read("chat")
    assert ([each.payload for each in page.events], page.ended) == ([0, 1], closes)


def test_what_is_posted_is_placed_once_though_the_answer_is_lost(app, make_app, proxy, postgres):
    app.events.publish("chat", 0)
    with psycopg.connect(postgres.url()) as connection:
        make_app().events.publish("chat", 1, connection=connection)
    proxy.lose_answer(COMMIT)

    found = app.events.read("chat").events

    assert proxy.happened.is_set()
    assert [event.payload for event in found] == [0, 1]
    assert app.events.position("chat") == found[-1].cursor


@pytest.mark.parametrize("lose", ["lose_answer", "lose_request"])
def test_an_ack_whose_answer_is_lost_holds(app, proxy, lose):
    cursors = [app.events.publish("chat", n).cursor for n in range(2)]
    generation = app.events.attach("chat", "mailer").generation
    getattr(proxy, lose)(ACK)

    assert app.events.ack("chat", "mailer", cursors[0], generation) == cursors[0]
    assert proxy.happened.is_set()
    assert [each.lag for each in app.events.consumers("chat")] == [1]


def test_an_attachment_whose_answer_is_lost_holds(app, proxy):
    cursor = app.events.publish("chat", 1).cursor
    proxy.lose_answer(COMMIT)

    attached = app.events.attach("chat", "mailer")

    assert proxy.happened.is_set()
    assert app.events.ack("chat", "mailer", cursor, attached.generation) == cursor


@pytest.mark.parametrize("verb", ["delete", "forget_consumer"])
def test_a_deletion_whose_answer_is_lost_is_not_repeated(app, proxy, verb):
    """It would delete what has been made meanwhile under the same name."""
    app.events.publish("chat", 1)
    app.events.attach("chat", "mailer")
    proxy.lose_answer(COMMIT if verb == "delete" else "delete from")

    with pytest.raises(DatabaseUnavailable, match="may have been done"):
        getattr(app.events, verb)("chat", *["mailer"][: verb == "forget_consumer"])

    assert proxy.happened.is_set()
    assert app.events.consumers("chat") == []
