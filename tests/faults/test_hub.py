"""The hub: lost rings, events in the middle of an attach, and one look for many channels."""

import asyncio
import sqlite3

import psycopg
import pytest

from tests.behaviour.test_subscriptions import Following
from tests.conftest import InLoop, eventually
from tests.faults.processes import until
from towpath import NewEvent
from towpath.app.hub import AT_ONCE
from towpath.database.bells import QuietBell
from towpath.errors import CursorReset
from towpath.model.cursor import START, Cursor


@pytest.fixture
def connect(place, kind):
    """Open a connection of a caller of its own."""
    opened = []

    def open_one():
        url = place[0]
        is_file = kind == "sqlite"
        path = url.removeprefix("sqlite:///")
        opened.append(sqlite3.connect(path, timeout=60) if is_file else psycopg.connect(url))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


def deaf(app):
    """Have an app hear no ring of another one."""
    app._wakeups._make_bell = QuietBell
    return app


@pytest.fixture
def counted(monkeypatch):
    """Count the operations that an app runs in its loop, by their names and items."""

    def begin(app):
        seen = []
        run = app.arun

        async def counting(operation, connection=None):
            seen.append((operation.name, len(operation.batch.items)))
            return await run(operation, connection)

        monkeypatch.setattr(app, "arun", counting)
        return seen

    return begin


@pytest.mark.parametrize("channels", [1, AT_ONCE + 10], ids=["one", "many"])
def test_what_no_ring_tells_is_found_by_the_safety_net(make_app, loop, connect, channels):
    """Every kind of news, also where one look for all channels has to find it."""
    app, other = deaf(make_app()), make_app()
    names = ["said", "posted", "closed", "deleted", "made again"]
    names = [name.replace(" ", ".") for name in names]
    for name in names:
        other.events.publish(name, 0)
    silent = other.jobs.enqueue("mail")
    told = {name: Following(InLoop(app, loop), name) for name in names}
    stream = Following(InLoop(app, loop), f"job:{silent.id}")
    unborn = Following(InLoop(app, loop), "unborn")
    idle = [Following(InLoop(app, loop), f"idle:{n}") for n in range(channels)]
    assert all(each.payloads(1) == [0] for each in told.values())
    watched = app.events._hubs._hubs[loop]._watched
    eventually(
        lambda: sum(each.cursor is not None for each in list(watched.values())) == channels + 7
    )

    other.events.publish("said", 1)
    connection = connect()
    other.events.publish("posted", 1, connection=connection)
    connection.commit()
    other.events.close("closed")
    other.events.delete("deleted")
    other.events.delete("made.again")
    other.events.publish("made.again", 1)
    other.events.publish("unborn", 1)
    other.jobs.cancel(silent.id)

    assert told["said"].payloads(2) == told["posted"].payloads(2) == [0, 1]
    assert unborn.payloads(1) == [1]
    for ended in (told["closed"], stream):
        eventually(lambda ended=ended: ended.ended)
        assert ended.error is None
    for reset in (told["deleted"], told["made.again"]):
        eventually(lambda reset=reset: reset.ended)
        assert isinstance(reset.error, CursorReset)
    assert not any(each.ended or each.events for each in idle)


def test_a_ring_for_many_channels_is_one_look_and_reads_those_that_moved(make_app, loop, counted):
    app, other = deaf(make_app(poll_interval=60)), make_app()
    following = [Following(InLoop(app, loop), f"chat:{n}") for n in range(AT_ONCE * 2)]
    eventually(lambda: loop in app.events._hubs._hubs)
    hub = app.events._hubs._hubs[loop]
    waiting = lambda: [each for each in list(hub._watched.values()) if each.cursor]  # noqa: E731
    eventually(lambda: len(waiting()) == AT_ONCE * 2 and not hub._rung and not hub._reading)
    seen = counted(app)
    other.events.publish("chat:0", 0)

    def ring_all():
        for name in hub._watched:
            hub._ring(name)

    loop.call_soon_threadsafe(ring_all)
    assert following[0].payloads(1) == [0]
    assert seen == [("moved", 0), ("read", 1)]


def test_a_ring_reads_no_job_that_has_said_nothing(make_app, loop, counted):
    """EV-4: however many queued jobs have readers, and however often a ring comes."""
    app, other = deaf(make_app(poll_interval=60)), make_app()
    jobs = other.jobs.enqueue_many("talk", range(AT_ONCE * 2))
    following = [Following(InLoop(app, loop), f"job:{job.id}") for job in jobs]
    eventually(lambda: loop in app.events._hubs._hubs)
    hub = app.events._hubs._hubs[loop]
    waiting = lambda: [each for each in list(hub._watched.values()) if each.cursor]  # noqa: E731
    eventually(lambda: len(waiting()) == AT_ONCE * 2 and not hub._rung and not hub._reading)
    seen = counted(app)

    def ring_all():
        for name in hub._watched:
            hub._ring(name)

    for n in range(3):
        loop.call_soon_threadsafe(ring_all)
        eventually(lambda n=n: len(seen) > n and not hub._rung and not hub._reading)

    assert seen == [("moved", 0)] * 3
    assert not any(each.ended for each in following)


class Stopped:
    """Stops the next read of an app from a cursor: before it looks, or when it has looked."""

    def __init__(self, app, monkeypatch, cursor, *, after):
        self.arrived, self.go_on = asyncio.Event(), asyncio.Event()
        run = app.arun

        async def stopping(operation, connection=None):
            reads = operation.batch.items if operation.name == "read" else ()
            if self.arrived.is_set() or all(each.after != cursor for each in reads):
                return await run(operation, connection)
            self.arrived.set()
            if not after:
                await self.go_on.wait()
            found = await run(operation, connection)
            if after:
                await self.go_on.wait()
            return found

        monkeypatch.setattr(app, "arun", stopping)


@pytest.mark.parametrize("beside", [0, 1], ids=["alone", "beside a live one"])
@pytest.mark.parametrize("after", [False, True], ids=["before its read", "behind its read"])
def test_what_comes_in_the_middle_of_an_attach_comes_once(
    make_app, loop, monkeypatch, after, beside
):
    """EV-3: between register and read, and between read and live."""
    app = make_app(poll_interval=60)  # the safety net is far away
    first = app.events.publish("chat", -1)
    live = [Following(InLoop(app, loop), "chat") for _ in range(beside)]
    assert all(each.payloads(1) == [-1] for each in live)

    async def attach():
        # The one beside lets the hub read from where it is: so this one begins further back.
        cursor = START if beside else Cursor.parse(first.cursor)
        stopped = Stopped(app, monkeypatch, cursor, after=after)
        subscription = await app.events.follow("chat", str(cursor))
        got = []

        async def read():
            while 49 not in got:
                got.extend(event.payload for event in (await subscription.next()).page.events)

        reading = asyncio.ensure_future(read())
        await stopped.arrived.wait()
        for n in range(50):
            await app.events.apublish_many("chat", [NewEvent(n)])
        hub = app.events._hubs._hubs[loop]
        await until(lambda: not hub._rung and hub._reading is None)  # it has heard of all
        stopped.go_on.set()
        await reading
        subscription.close()
        return got

    got = asyncio.run_coroutine_threadsafe(attach(), loop).result(60)
    assert got == list(range(-1 if beside else 0, 50))
    assert all(each.payloads(51) == list(range(-1, 50)) for each in live)
