"""A full disk while webhooks are delivered: the parts wait, and go on when there is room."""

import asyncio

import psycopg
import pytest

from tests.behaviour.webhooks import Webhooks
from tests.faults.processes import until
from tests.webhooks.subscribing import subscribe
from tests.webhooks.test_running import URL, Gated, running, statuses
from towpath import App, NewEvent
from towpath.errors import DatabaseFull
from towpath.model.sagas import SagaStatus
from towpath.model.sealing import new_key

EVENTS = 10
LONG = "x" * 20_000  # needs pages of its own
NO_LIMIT = 2**30


class FileSize:
    """The pages that a SQLite file may have: a limit of the connection that writes."""

    def __init__(self, app):
        self._app = app

    def _allow(self, pages):
        connection = self._app._database._writer._connection
        connection.execute(f"pragma max_page_count = {pages}").fetchall()

    def fill(self):
        self._allow(1)  # SQLite takes as many as there are

    def free(self):
        self._allow(NO_LIMIT)


class RefusedRows:
    """Triggers that say what PostgreSQL says when a file cannot grow."""

    def __init__(self, app):
        self._app = app

    def _run(self, text):
        with psycopg.connect(self._app.url) as connection:
            connection.execute(f"set search_path = {self._app.settings.schema}")
            connection.execute(text)

    def fill(self):
        self._run("""
create function is_full() returns trigger language plpgsql as $$
begin
    raise exception using errcode = '53100', message = 'could not extend file: No space left';
end $$;
create trigger is_full before insert on event execute function is_full();
create trigger is_full before insert on webhook_events execute function is_full();
create trigger is_full before update on webhook_delivery_jobs execute function is_full();
""")

    def free(self):
        self._run("drop function is_full cascade")


@pytest.fixture
def app(place):
    url, needed = place
    with App(url, webhook_key=new_key(), **needed) as app:
        app.migrate()
        subscribe(app, URL, at_once=EVENTS)
        yield app


@pytest.fixture
def disk(app, kind):
    return {"sqlite": FileSize, "postgres": RefusedRows}[kind](app)


class LongAnswers(Gated):
    """Answers as soon as the gate is open, with as much as is kept of an answer."""

    async def post(self, *request):
        answer = await super().post(*request)
        answer.body = b"x" * 8_192
        return answer


async def have_arrived(app, poster):
    await until(lambda: statuses(app) == [SagaStatus.COMPLETED] * EVENTS)
    assert sorted(each.payload["n"] for each in poster.requests) == list(range(EVENTS))
    Webhooks(app).check()


def new_events():
    return [NewEvent({"n": number, "text": LONG}) for number in range(EVENTS)]


def test_what_finds_no_room_is_refused_and_what_was_published_is_routed_later(app, disk, caplog):
    """WH-11"""

    async def scenario():
        poster = Gated()
        poster.gate.set()
        await app.events.apublish_many("orders", new_events())
        disk.fill()
        async with running(app, poster):
            await until(lambda: "the router of webhooks waits for the database" in caplog.text)
            assert statuses(app) == []
            with pytest.raises(DatabaseFull, match="free some space"):
                await app.events.apublish_many("orders", new_events())
            disk.free()
            await have_arrived(app, poster)

    asyncio.run(scenario())
    assert "Traceback" not in caplog.text


def test_what_was_answered_while_the_disk_was_full_is_reported_later(app, disk, caplog):
    """WH-11: no request is made again."""

    async def scenario():
        poster = LongAnswers()
        async with running(app, poster):
            await app.events.apublish_many("orders", new_events())
            await until(lambda: poster.waiting == EVENTS)
            disk.fill()
            poster.gate.set()
            await until(lambda: "could not write" in caplog.text)
            assert statuses(app) == [SagaStatus.IN_PROGRESS] * EVENTS
            disk.free()
            await have_arrived(app, poster)

    asyncio.run(scenario())
    assert "Traceback" not in caplog.text
