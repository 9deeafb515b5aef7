"""The database goes away while a job speaks: its task waits, and no word is lost or overtaken."""

import asyncio
import contextlib
import sqlite3
import threading
import time

import pytest

from tests.faults.processes import wait_until
from tests.faults.proxy import Proxy
from tests.faults.sizes import many
from tests.workers import working
from towpath import Context, StreamEnd
from towpath.app.speech import ROOM

WORDS, BEFORE, SIZE = 400, 50, 10_000
SECONDS = 0 if many(1) == 1 else 20  # that the outage lasts when all has come to a stop


@contextlib.contextmanager
def locked(path):
    """Let another program hold the file."""
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("begin immediate")
        yield


@contextlib.contextmanager
def refusing(proxy):
    proxy.refuse()
    yield
    proxy.revive()


@pytest.fixture
def proxy(kind, request):
    if kind == "sqlite":
        yield None
    else:
        with Proxy(request.getfixturevalue("postgres").port) as proxy:
            yield proxy


@pytest.fixture
def place(proxy, tmp_path, request):
    if proxy is None:
        return f"sqlite:///{tmp_path}/test.db", {"busy_timeout": 0.2}
    schema = request.getfixturevalue("postgres_schema")
    return proxy.url(), {"schema": schema, "connect_timeout": 2}


@pytest.fixture
def outage(proxy, tmp_path):
    return locked(tmp_path / "test.db") if proxy is None else refusing(proxy)


class Speaker:
    """A task that says numbered words, and stands still once before the outage."""

    def __init__(self, app, colour):
        self.said = 0  # words that `publish` has taken
        self.has_begun, self.goes_on = threading.Event(), threading.Event()
        self.enqueue = app.task(topic="talk")(getattr(self, colour)).enqueue

    def thread(self, ctx: Context) -> None:
        for n in range(WORDS):
            if n == BEFORE:
                self.has_begun.set()
                self.goes_on.wait(60)
            ctx.publish([n, "x" * SIZE])
            self.said += 1

    async def coroutine(self, ctx: Context) -> None:
        for n in range(WORDS):
            if n == BEFORE:
                self.has_begun.set()
                await asyncio.to_thread(self.goes_on.wait, 60)
            await ctx.apublish([n, "x" * SIZE])
            self.said += 1


async def followed(app, job, seen):
    async for piece in app.jobs.astream(job):
        seen.append(piece.ended if isinstance(piece, StreamEnd) else piece.payload[0])


@pytest.mark.soak
@pytest.mark.parametrize("colour", ["thread", "coroutine"])
def test_a_stream_goes_on_after_an_outage(make_app, loop, outage, colour, caplog):
    """EV-3, EV-4: the buffer is bounded, so the task waits; the reader waits, too."""
    app = make_app(beat_every=60, dead_after=600)
    speaker, seen = Speaker(app, colour), []
    job = speaker.enqueue()
    reading = asyncio.run_coroutine_threadsafe(followed(app, job, seen), loop)
    with working(app):
        assert speaker.has_begun.wait(60)
        wait_until(lambda: len(seen) == BEFORE)
        with outage:
            speaker.goes_on.set()
            wait_until(lambda: speaker.said > BEFORE + ROOM // SIZE)
            wait_until(lambda: caplog.text.count("could not write") > 1)
            time.sleep(SECONDS)
            assert speaker.said <= BEFORE + ROOM // SIZE + 2
            assert len(seen) == BEFORE
        job.result(120)

    reading.result(60)
    assert seen == [*range(WORDS), "completed"]
    assert app.jobs.get(job).epoch == 1


@pytest.mark.parametrize("colour", ["thread", "task"])
def test_a_consumer_waits_for_the_database_until_its_timeout(make_app, loop, outage, colour):
    """EV-6: what it could not ack comes again."""
    app = make_app(connect_timeout=0.3)
    app.events.publish("chat", 1)
    options = {"consumer": "mailer", "timeout": 0.5}

    def begin():
        if colour == "thread":
            return app.events.subscribe("chat", **options)
        subscribed = app.events.asubscribe("chat", **options)

        def advance():
            return asyncio.run_coroutine_threadsafe(anext(subscribed, None), loop).result(60)

        return iter(advance, None)

    following = begin()
    assert next(following).payload == 1
    with outage:
        assert list(following) == []
    app.events.publish("chat", 2)

    assert [event.payload for event in begin()] == [1, 2]
