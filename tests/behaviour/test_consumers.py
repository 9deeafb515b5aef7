"""Durable consumers: a reader whose place is kept under a name, and moves by acks alone."""

import pytest

from tests.behaviour.test_subscriptions import Following
from tests.conftest import InLoop, eventually
from towpath import App, NewEvent
from towpath.app import consuming
from towpath.errors import ConsumerFenced, CursorReset, Invalid, InvalidCursor, NotFound


def published(app, count, channel="chat"):
    return [app.events.publish(channel, n).cursor for n in range(count)]


def payloads(page):
    return [event.payload for event in page.events]


def the_consumer(app, channel="chat"):
    [found] = app.events.consumers(channel)
    return found


# ---------------------------------------------------------------- attach and ack


def test_a_consumer_goes_on_from_its_last_ack(app):
    """EV-2, EV-6"""
    cursors = published(app, 3)
    first = app.events.attach("chat", "mailer")
    assert payloads(app.events.read("chat", first.cursor)) == [0, 1, 2]
    app.events.ack("chat", "mailer", cursors[1], first.generation)

    again = app.events.attach("chat", "mailer")

    assert again.cursor == cursors[1]
    assert again.generation > first.generation
    assert payloads(app.events.read("chat", again.cursor)) == [2]


def test_an_ack_never_moves_back(app):
    """EV-2"""
    cursors = published(app, 8)
    generation = app.events.attach("chat", "mailer").generation
    ahead = cursors[7][:-1] + "9"

    assert app.events.ack("chat", "mailer", cursors[4], generation) == cursors[4]
    assert app.events.ack("chat", "mailer", cursors[2], generation) == cursors[4]
    assert app.events.ack("chat", "mailer", "-1", generation) == cursors[4]
    with pytest.raises(CursorReset) as refused:
        app.events.ack("chat", "mailer", ahead, generation)
    assert refused.value.reason == "ahead"
    assert the_consumer(app).cursor == cursors[4]


def test_a_new_consumer_begins_where_it_says(app):
    cursors = published(app, 3)

    assert payloads(app.events.read("chat", app.events.attach("chat", "a").cursor)) == [0, 1, 2]
    assert app.events.attach("chat", "b", "now").cursor == cursors[2]
    assert app.events.attach("chat", "c", cursors[0]).cursor == cursors[0]
    assert app.events.attach("chat", "c", "now").cursor == cursors[0]  # known already
    with pytest.raises(CursorReset):
        app.events.attach("chat", "d", cursors[2][:-1] + "9")
    assert [each.name for each in app.events.consumers("chat")] == ["a", "b", "c"]


def test_a_consumer_may_come_before_the_first_event(app):
    cursor = app.events.attach("later", "mailer").cursor
    published(app, 2, "later")

    assert payloads(app.events.read("later", cursor)) == [0, 1]


def test_a_job_that_does_not_exist_has_no_consumers(app):
    with pytest.raises(NotFound):
        app.events.attach("job:1", "mailer")
    assert app.events.list() == []


def test_consumers_of_one_channel_do_not_know_each_other(app):
    """EV-2"""
    cursors = published(app, 2)
    a, b = (app.events.attach("chat", name).generation for name in "ab")
    app.events.ack("chat", "a", cursors[0], a)
    app.events.ack("chat", "b", cursors[1], b)

    assert [each.cursor for each in app.events.consumers("chat")] == cursors


def test_an_older_attachment_is_fenced(app):
    """EV-6"""
    cursors = published(app, 2)
    older = app.events.attach("chat", "mailer").generation
    newer = app.events.attach("chat", "mailer").generation

    with pytest.raises(ConsumerFenced, match="another reader has attached to channel 'chat'"):
        app.events.ack("chat", "mailer", cursors[1], older)
    with pytest.raises(ConsumerFenced):
        app.events.ack("chat", "mailer", "-1", older)
    assert the_consumer(app).lag == 2
    assert app.events.ack("chat", "mailer", cursors[0], newer) == cursors[0]


def test_acks_for_what_is_not_there_are_refused(app):
    [cursor] = published(app, 1)
    [other] = published(app, 1, "other")
    generation = app.events.attach("chat", "mailer").generation

    with pytest.raises(NotFound, match="channel 'chat' has no consumer 'nobody'"):
        app.events.ack("chat", "nobody", cursor, 1)
    with pytest.raises(CursorReset) as refused:
        app.events.ack("chat", "mailer", other, generation)
    assert refused.value.reason == "channel"
    with pytest.raises(CursorReset):
        app.events.ack("gone", "mailer", cursor, generation)
    with pytest.raises(InvalidCursor):
        app.events.ack("chat", "mailer", "soon", generation)
    with pytest.raises(Invalid, match="generation '1' is not a whole number"):
        app.events.ack("chat", "mailer", cursor, "1")
    with pytest.raises(Invalid, match="'' is not a valid consumer"):
        app.events.attach("chat", "")


def test_a_channel_that_was_made_again_has_no_consumers_of_before(app):
    """EV-6"""
    [cursor] = published(app, 1)
    generation = app.events.attach("chat", "mailer").generation
    app.events.delete("chat")
    published(app, 2)

    with pytest.raises(CursorReset) as refused:
        app.events.ack("chat", "mailer", cursor, generation)
    assert refused.value.reason == "channel"
    assert app.events.consumers("chat") == []
    app.upkeep.run()
    assert payloads(app.events.read("chat", app.events.attach("chat", "mailer").cursor)) == [0, 1]


def test_a_restored_backup_resets_acks_of_before(app):
    cursors = published(app, 2)
    generation = app.events.attach("chat", "mailer", cursors[0]).generation
    app.events.restored()

    with pytest.raises(CursorReset) as refused:
        app.events.ack("chat", "mailer", cursors[1], generation)
    assert refused.value.reason == "era"
    again = app.events.attach("chat", "mailer")
    assert payloads(app.events.read("chat", again.cursor)) == [1]


# ---------------------------------------------------------------- list, move, forget


def test_consumers_are_listed_with_their_lag(app, clock):
    cursors = published(app, 5)
    generation = app.events.attach("chat", "mailer").generation
    clock.advance("1h")
    app.events.ack("chat", "mailer", cursors[1], generation)

    found = the_consumer(app)

    assert (found.channel, found.name, found.cursor, found.lag) == ("chat", "mailer", cursors[1], 3)
    assert (found.generation, found.seen_at) == (generation, clock.now)
    assert not found.is_expired
    assert not found.is_overtaken


def test_a_list_of_consumers_goes_on_behind_a_name(app):
    for name in ("a", "b", "c"):
        app.events.attach("chat", name)

    assert [each.name for each in app.events.consumers("chat", limit=2)] == ["a", "b"]
    assert [each.name for each in app.events.consumers("chat", after="b")] == ["c"]
    assert app.events.consumers("nothing") == []


def test_a_silent_consumer_expires_and_comes_back(app, clock):
    """EV-6"""
    cursors = published(app, 2)
    generation = app.events.attach("chat", "mailer").generation
    clock.advance("7d")
    assert not the_consumer(app).is_expired
    clock.advance(1)
    assert the_consumer(app).is_expired

    app.events.ack("chat", "mailer", cursors[0], generation)

    assert not the_consumer(app).is_expired
    assert the_consumer(app).cursor == cursors[0]


def test_a_consumer_may_be_moved(app):
    cursors = published(app, 3)
    generation = app.events.attach("chat", "mailer").generation
    app.events.ack("chat", "mailer", cursors[2], generation)

    assert app.events.move_consumer("chat", "mailer", cursors[0]) == cursors[0]

    with pytest.raises(ConsumerFenced):
        app.events.ack("chat", "mailer", cursors[2], generation)
    assert app.events.attach("chat", "mailer").cursor == cursors[0]
    assert app.events.move_consumer("chat", "mailer", "now") == cursors[2]
    app.events.move_consumer("chat", "mailer", "start")
    assert the_consumer(app).lag == 3
    with pytest.raises(NotFound):
        app.events.move_consumer("chat", "nobody", "start")


def test_a_forgotten_consumer_begins_again(app):
    cursors = published(app, 2)
    generation = app.events.attach("chat", "mailer", "now").generation

    assert app.events.forget_consumer("chat", "mailer")
    assert not app.events.forget_consumer("chat", "mailer")

    assert app.events.consumers("chat") == []
    with pytest.raises(NotFound):
        app.events.ack("chat", "mailer", cursors[1], generation)
    assert payloads(app.events.read("chat", app.events.attach("chat", "mailer").cursor)) == [0, 1]


# ---------------------------------------------------------------- subscriptions


def plain(app):
    """Return the app with blocking verbs."""
    return app._thing if isinstance(app, InLoop) else app


def acked(app, channel="chat"):
    return [each.lag for each in plain(app).events.consumers(channel)] == [0]


def test_a_subscription_acks_what_it_has_handed_over_before_it_waits(live):
    """EV-2, EV-6"""
    following = Following(live, "chat", consumer="mailer")
    published(live, 5)
    assert following.payloads(5) == list(range(5))

    eventually(lambda: acked(live))


def test_a_subscription_of_a_consumer_goes_on_behind_its_ack(live):
    """EV-3, EV-6"""
    published(live, 3)
    first = Following(live, "chat", consumer="mailer")
    assert first.payloads(3) == [0, 1, 2]
    eventually(lambda: acked(live))
    live.events.attach("chat", "mailer")
    eventually(lambda: first.ended)
    live.events.publish_many("chat", [NewEvent(3), NewEvent(4)])
    live.events.close("chat")

    second = Following(live, "chat", "start", consumer="mailer")
    eventually(lambda: second.ended)

    assert second.payloads(2) == [3, 4]
    assert acked(live)


@pytest.mark.both_colours
def test_the_event_in_hand_comes_again_and_those_before_do_not(live, loop):
    """An event is done when the next one is asked for."""
    published(live, 5)
    events = plain(live).events

    async def some(count):
        found = []
        subscribed = events.asubscribe("chat", consumer="mailer")
        async for event in subscribed:
            found.append(event.payload)
            if len(found) == count:
                break
        await subscribed.aclose()
        return found

    def some_blocking(count):
        found = []
        for event in events.subscribe("chat", consumer="mailer"):
            found.append(event.payload)
            if len(found) == count:
                break
        return found

    def handed_over(count):
        if isinstance(live, InLoop):
            return InLoop(Some(some), loop).some(count)
        return some_blocking(count)

    assert handed_over(3) == [0, 1, 2]
    assert handed_over(1) == [2]
    assert handed_over(3) == [2, 3, 4]
    assert the_consumer(live).lag == 1


class Some:
    def __init__(self, some):
        self._some = some

    async def asome(self, count):
        return await self._some(count)


@pytest.mark.both_colours
def test_an_event_whose_handler_fails_comes_again(live, loop):
    published(live, 3)
    events = plain(live).events

    class Handler:
        async def afail_at(self, payload):
            async for event in events.asubscribe("chat", consumer="mailer"):
                if event.payload == payload:
                    raise RuntimeError

        def fail_at(self, payload):
            for event in events.subscribe("chat", consumer="mailer"):
                if event.payload == payload:
                    raise RuntimeError

    handler = InLoop(Handler(), loop) if isinstance(live, InLoop) else Handler()
    with pytest.raises(RuntimeError):
        handler.fail_at(1)

    eventually(lambda: the_consumer(live).lag == 2)
    assert Following(live, "chat", consumer="mailer").payloads(2) == [1, 2]


@pytest.mark.both_colours
def test_a_slow_handler_acks_within_a_page(live, loop, monkeypatch):
    """Else a page of slow events would come again as a whole after a crash."""
    monkeypatch.setattr(consuming, "EVERY", 0)
    live.events.publish_many("chat", [NewEvent(n) for n in range(3)])
    live.events.close("chat")
    events = plain(live).events

    class Handler:
        async def alags(self):
            subscribed = events.asubscribe("chat", consumer="mailer")
            return [(await events.aconsumers("chat"))[0].lag async for _ in subscribed]

        def lags(self):
            subscribed = events.subscribe("chat", consumer="mailer")
            return [events.consumers("chat")[0].lag for _ in subscribed]

    handler = InLoop(Handler(), loop) if isinstance(live, InLoop) else Handler()
    assert handler.lags() == [3, 2, 1]


def test_events_of_other_types_are_acked_in_passing(live):
    following = Following(live, "chat", types=["order.*"], consumer="mailer")
    live.events.publish("chat", 1, type="order.paid")
    assert following.payloads(1) == [1]
    for n in range(3):
        live.events.publish("chat", n, type="noise")

    eventually(lambda: acked(live))


@pytest.mark.both_colours
def test_a_subscription_ends_when_another_reader_attaches(durable_place, colour):
    """EV-6: also in another process, as far as a subscriber can tell."""
    url, needed = durable_place
    with App(url, **needed) as app, App(url, **needed) as other:
        app.migrate()  # both would, and on a loaded machine one waits for too long
        following = Following(colour(app), "chat", consumer="mailer")
        other.events.publish("chat", 1)
        assert following.payloads(1) == [1]
        other.events.attach("chat", "mailer")

        eventually(lambda: following.ended, 10)

        assert isinstance(following.error, ConsumerFenced)


def test_a_subscription_of_a_forgotten_consumer_ends(live):
    """In the stream of a job, too, where it is not the end of the job."""
    live.events.publish("chat", 1)
    stream = f"job:{live.jobs.enqueue('work', {}).id}"
    [lease] = live.jobs.reserve("work")
    live.jobs.say(lease, said=0, events=[1])
    followings = [Following(live, name, consumer="mailer") for name in ("chat", stream)]
    assert [each.payloads(1) for each in followings] == [[1], [1]]
    for name in ("chat", stream):
        live.events.forget_consumer(name, "mailer")

    eventually(lambda: all(each.ended for each in followings))
    assert all(isinstance(each.error, NotFound) for each in followings)


def test_a_subscription_without_events_keeps_its_consumer_alive(make_app, colour, clock):
    app = colour(make_app(clock=clock))
    app.events.publish("chat", 1)
    following = Following(app, "chat", consumer="mailer")
    assert following.payloads(1) == [1]
    eventually(lambda: acked(app))
    clock.advance("6d")

    eventually(lambda: the_consumer(app).seen_at == clock.now)
    assert not following.ended
