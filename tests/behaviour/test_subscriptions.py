"""Subscriptions: what a channel has, then what comes, each event once and in order."""

import asyncio
import itertools
import threading
from datetime import timedelta

import pytest

from tests.conftest import InLoop, eventually
from towpath import App, NewEvent
from towpath.errors import AppClosed, CursorReset, DatabaseUnavailable, Invalid, InvalidCursor
from towpath.store import events, reading


class Following:
    """A subscriber in a thread or a task of its own, blocking or async as the app is."""

    def __init__(self, app, *args, **options):
        self.events, self.error, self.ended = [], None, False
        self._loop = getattr(app, "_loop", None) if isinstance(app, InLoop) else None
        self._events = app._thing.events if self._loop else app.events
        if self._loop:
            self._task = asyncio.run_coroutine_threadsafe(self._async(*args, **options), self._loop)
        else:
            threading.Thread(target=self._blocking, args=args, kwargs=options, daemon=True).start()

    async def _async(self, *args, **options):
        try:
            async for event in self._events.asubscribe(*args, **options):
                self.events.append(event)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        self.ended = True

    def _blocking(self, *args, **options):
        try:
            for event in self._events.subscribe(*args, **options):
                self.events.append(event)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        self.ended = True

    def payloads(self, count):
        eventually(lambda: len(self.events) >= count or self.ended)
        return [event.payload for event in self.events]


def test_a_subscriber_gets_what_is_there_and_what_comes(live):
    """EV-3"""
    live.events.publish("chat", 0)
    following = Following(live, "chat")
    assert following.payloads(1) == [0]

    for n in range(1, 20):
        live.events.publish("chat", n)

    assert following.payloads(20) == list(range(20))


def test_a_subscriber_may_come_before_the_first_event(live):
    following = Following(live, "later")
    other = Following(live, "later")
    live.events.publish("later", 1)

    assert following.payloads(1) == other.payloads(1) == [1]


def test_a_subscription_ends_with_its_channel(live):
    following = Following(live, "chat")
    live.events.publish("chat", 1)
    assert following.payloads(1) == [1]
    live.events.close("chat")

    eventually(lambda: following.ended)
    assert following.error is None
    late = Following(live, "chat")
    eventually(lambda: late.ended)
    assert late.payloads(1) == [1]


def test_a_subscription_goes_on_from_a_cursor(live):
    cursors = [live.events.publish("chat", n).cursor for n in range(5)]
    live.events.close("chat")

    assert Following(live, "chat", cursors[2]).payloads(3) == [3, 4]


def test_a_subscription_may_begin_now(live):
    live.events.publish("chat", "old")
    events = live.events if not isinstance(live, InLoop) else live._thing.events
    position = events.position("chat")
    live.events.publish("chat", "new")
    live.events.close("chat")

    assert Following(live, "chat", "now").payloads(1) == []
    assert Following(live, "chat", position).payloads(1) == ["new"]
    assert Following(live, "chat", "start").payloads(2) == ["old", "new"]


def test_a_subscription_may_begin_with_the_last_events(live):
    live.events.publish_many("chat", [NewEvent(n) for n in range(10)])
    live.events.close("chat")

    assert Following(live, "chat", last=3).payloads(3) == [7, 8, 9]
    assert Following(live, "chat", last=99).payloads(10) == list(range(10))
    assert Following(live, "nothing", last=3, timeout=0.01).payloads(1) == []


def test_a_subscription_may_begin_at_a_time(app, clock):
    for n in range(20):
        app.events.publish("chat", n)
        clock.advance("1m")
    app.events.close("chat")
    start = clock.now - timedelta(minutes=20)

    for minutes, first in ((-5, 0), (0, 0), (3, 3), (3.5, 4), (19, 19), (25, 20)):
        since = start + timedelta(minutes=minutes)
        assert Following(app, "chat", since=since).payloads(20) == list(range(first, 20))
        page = app.events.read("chat", since=since)
        assert [event.payload for event in page.events] == list(range(first, 20))


def test_a_read_begins_and_chooses_as_a_subscription_does(app):
    events = [NewEvent(n, type=f"t{n % 2}") for n in range(10)]
    cursors = [event.cursor for event in app.events.publish_many("chat", events)]
    last, chosen = app.events.read("chat", last=3), app.events.read("chat", types=["t1"], limit=6)
    now = app.events.read("chat", "now")

    assert [event.payload for event in last.events] == [7, 8, 9]
    assert [event.payload for event in chosen.events] == [1, 3, 5]
    assert (last.after, chosen.cursor, now.after) == (cursors[6], cursors[5], cursors[9])
    assert now.events == []


def test_events_are_chosen_by_their_types(live):
    types = ["order.paid", "order.shipped", "chat", None, "orders"]
    live.events.publish_many("all", [NewEvent(type, type=type) for type in types])
    live.events.close("all")

    assert Following(live, "all", types=["order.*"]).payloads(2) == types[:2]
    assert Following(live, "all", types=["chat", "orders"]).payloads(2) == ["chat", "orders"]
    assert Following(live, "all", types=["*"]).payloads(5) == types
    assert Following(live, "all", types=[]).payloads(1) == []


def test_a_subscription_ends_when_nothing_came_for_its_timeout(live):
    live.events.publish("chat", 1)
    following = Following(live, "chat", timeout=0.05)

    eventually(lambda: following.ended)
    assert following.payloads(1) == [1]


def test_a_subscriber_of_a_deleted_channel_is_reset(live):
    live.events.publish("chat", 1)
    following = Following(live, "chat")
    assert following.payloads(1) == [1]
    live.events.delete("chat")

    eventually(lambda: following.ended)
    assert isinstance(following.error, CursorReset)
    assert following.error.reason == "channel"


def test_the_end_of_the_app_ends_subscriptions(make_app, colour):
    app = make_app()
    app.events.publish("chat", 1)
    following = Following(colour(app), "chat")
    assert following.payloads(1) == [1]
    app.close()

    eventually(lambda: following.ended)
    assert isinstance(following.error, AppClosed)


def test_many_subscribers_each_get_every_event_once(live):
    """EV-2, EV-8"""
    following = [Following(live, "chat") for _ in range(20)]
    for n in range(100):
        live.events.publish("chat", n)

    assert all(each.payloads(100) == list(range(100)) for each in following)


@pytest.mark.both_colours
def test_events_of_another_app_are_heard(durable_place, colour):
    """Of another process, as far as a subscriber can tell."""
    url, needed = durable_place
    with App(url, **needed) as app, App(url, **needed) as other:
        following = Following(colour(app), "chat")
        for n in range(10):
            other.events.publish("chat", n)

        assert following.payloads(10) == list(range(10))


@pytest.mark.one_database
def test_wrong_options_are_refused(make_app):
    app = make_app()
    with pytest.raises(Invalid, match="one of `after`, `last` and `since`"):
        app.events.subscribe("chat", "now", last=3)
    with pytest.raises(InvalidCursor):
        app.events.subscribe("chat", "soon")
    with pytest.raises(Invalid, match="at least 1"):
        app.events.subscribe("chat", last=0)
    with pytest.raises(Invalid, match=r"types must be a list such as \['order.\*'\], not 'chat'"):
        app.events.subscribe("chat", types="chat")
    with pytest.raises(Invalid, match="is not a valid type"):
        app.events.subscribe("chat", types=["a b"])


# ---------------------------------------------------------------- what comes at the wrong moment


def nothing():
    pass


@pytest.fixture
def around_reads(monkeypatch):
    """Let something happen before and after each of the next reads of an app."""

    def surround(app, happenings):
        app = app._thing if isinstance(app, InLoop) else app
        run, arun, left = app.run, app.arun, iter(happenings)

        def moments(operation):
            return (
                next(left, (nothing, nothing)) if operation.name == "read" else (nothing, nothing)
            )

        def surrounded(operation, connection=None):
            before, after = moments(operation)
            before()
            found = run(operation, connection)
            after()
            return found

        async def asurrounded(operation, connection=None):
            before, after = moments(operation)
            await asyncio.to_thread(before)
            found = await arun(operation, connection)
            await asyncio.to_thread(after)
            return found

        monkeypatch.setattr(app, "run", surrounded)
        monkeypatch.setattr(app, "arun", asurrounded)

    return surround


@pytest.mark.both_colours
def test_no_event_is_missed_that_comes_while_a_subscriber_attaches(live, around_reads):
    """EV-3: before and after its reads, the first that makes it live and those that follow."""
    live.events.publish("chat", 0)
    numbers = itertools.count(1)

    def publish():
        for _ in range(5):
            live.events.publish("chat", next(numbers))

    around_reads(live, [(publish, publish)] * 3)
    following = Following(live, "chat")

    assert following.payloads(31) == list(range(31))


@pytest.mark.both_colours
@pytest.mark.parametrize("moment", ["before its read", "after it"])
def test_a_subscriber_that_upkeep_overtakes_gets_all_or_is_told(
    make_app, colour, around_reads, moment
):
    """EV-5, EV-6: it begins at the low-water mark."""
    app = colour(make_app(event_max_count=2))
    cursors = [app.events.publish("chat", n).cursor for n in range(4)]
    app.upkeep.run()

    def overtake():
        for _ in range(4):
            app.events.publish("chat", "next")
        app.upkeep.run()

    is_before = moment == "before its read"
    around_reads(app, [(overtake, nothing) if is_before else (nothing, overtake)])
    following = Following(app, "chat", cursors[1])
    eventually(lambda: following.ended)

    assert following.payloads(0) == ([] if is_before else [2, 3])
    assert following.error.reason == "retention"


# ---------------------------------------------------------------- the hub


@pytest.mark.one_database
@pytest.mark.parametrize(("headers", "most"), [({}, 300), ({"a": "x" * 7_000}, 40)])
def test_the_hub_keeps_few_events_though_each_is_empty(make_app, loop, headers, most):
    """EV-3: an event of no bytes takes memory, too, and so do headers."""
    app = make_app()
    follow = Following(InLoop(app, loop), "chat")
    for n in range(6):
        app.events.publish_many("chat", [NewEvent(b"", headers=headers)] * 100)
        follow.payloads(100 * (n + 1))
    [watched] = app.events._hubs._hubs[loop]._watched.values()

    assert sum(len(each.page.events) for each in watched._pages.values()) <= most


def test_the_hub_reads_for_all_subscribers_at_once(make_app, loop, monkeypatch):
    """A hundred subscribers of one channel cost a statement for each batch, not a hundred."""
    app = make_app()
    app.events.publish("chat", -1)
    following = [Following(InLoop(app, loop), "chat") for _ in range(100)]
    assert all(each.payloads(1) == [-1] for each in following)
    [watched] = app.events._hubs._hubs[loop]._watched.values()
    eventually(lambda: len(watched.news()._waiters) == 100)  # each has read once more, for itself
    reads = []
    run = app.arun

    async def counting(operation, connection=None):
        if operation.name == "read":
            reads.append(operation)
        return await run(operation, connection)

    monkeypatch.setattr(app, "arun", counting)
    for n in range(10):
        app.events.publish("chat", n)
    assert all(each.payloads(11) == list(range(-1, 10)) for each in following)

    assert len(reads) < 100


def test_a_look_at_a_thousand_idle_channels_finds_nothing(app):
    """Then none of them is read: that is what a ring for all channels costs."""
    names = [f"chat{n}" for n in range(1_000)]
    app.run(events.append([app.events._append(name, [NewEvent(0)]) for name in names]))
    heads = {each.name: each.head for each in app.events.list("chat", limit=1_000)}
    assert len(heads) == 1_000

    assert app.run(reading.moved(heads, silent=True)) == set()
    app.events.publish("chat7", 1)
    assert app.run(reading.moved(heads, silent=True)) == {"chat7"}


def test_a_subscriber_far_behind_reads_the_database_and_comes_back(make_app, loop):
    app = make_app()
    quick = Following(InLoop(app, loop), "chat")
    start = app.events.publish("chat", "first").cursor
    assert quick.payloads(1) == ["first"]
    for n in range(40):
        app.events.publish("chat", [n, "x" * 30_000])  # more than the hub keeps
    slow = Following(InLoop(app, loop), "chat", start)
    assert [n for n, _ in slow.payloads(40)] == list(range(40))
    app.events.publish("chat", "last")

    assert quick.payloads(42)[-1] == slow.payloads(41)[-1] == "last"


def test_what_comes_between_a_read_and_the_wait_is_not_missed(make_app, loop):
    """The hub has read on for another subscriber when this one, behind it, begins to wait."""
    app = make_app()
    app.events.publish("chat", 0)

    async def both():
        first = await app.events.follow("chat")
        second = await app.events.follow("chat")
        page = (await first.next()).page
        for n in range(1, 4):
            await app.events.apublish("chat", n)
        # The second one reads to the end and waits there: the hub goes on from its place.
        seen = 0
        while seen < 4:
            seen += len((await second.next()).page.events)
        waiting = asyncio.ensure_future(second.next())
        await asyncio.sleep(0)
        got = [event.payload for event in page.events]
        while len(got) < 4:
            got += [event.payload for event in (await first.next()).page.events]
        waiting.cancel()
        first.close()
        second.close()
        return got

    got = asyncio.run_coroutine_threadsafe(both(), loop).result(30)
    assert got == [0, 1, 2, 3]


def test_a_wakeup_that_comes_while_the_hub_cannot_read_is_not_the_last(make_app, loop, monkeypatch):
    """The database goes away during a read, and an event rings before that read has failed."""
    app = make_app()
    app.events.publish("chat", 0)
    following = Following(InLoop(app, loop), "chat")
    assert following.payloads(1) == [0]
    [hub] = app.events._hubs._hubs.values()
    eventually(lambda: hub._watched["chat"].cursor)  # from then on the hub reads, for all
    run, fails = app.arun, iter([True])

    async def failing(operation, connection=None):
        if operation.name == "read" and next(fails, False):
            await app.events.apublish("chat", 1)
            raise DatabaseUnavailable("away")
        return await run(operation, connection)

    monkeypatch.setattr(app, "arun", failing)

    assert following.payloads(2) == [0, 1]


def test_pages_of_a_subscription_join_without_a_gap_under_a_filter(make_app, loop):
    app = make_app()
    wanted = itertools.cycle(["a", "b"])
    app.events.publish("chat", 0, type="a")

    async def pages():
        found = []
        async with await app.events.follow("chat", types=["a"]) as subscription:
            while len(found) < 5:
                found.append((await subscription.next()).page)
                for _ in range(2):
                    await app.events.apublish("chat", 1, type=next(wanted))
        return found

    found = asyncio.run_coroutine_threadsafe(pages(), loop).result(30)
    assert all(a.cursor == b.after for a, b in itertools.pairwise(found))


def test_the_hub_forgets_channels_without_subscribers(make_app, loop):
    app = make_app()
    app.events.publish("chat", 1)
    hubs = app.events._hubs

    async def closed():
        subscription = await app.events.follow("chat")
        await subscription.next()
        subscription.close()
        return dict(hubs._hubs[asyncio.get_running_loop()]._watched)

    assert asyncio.run_coroutine_threadsafe(closed(), loop).result(30) == {}
