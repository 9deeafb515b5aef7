"""A real backup that is restored: what came after it is gone, and every reader of it is told."""

import subprocess
from pathlib import Path

import psycopg
import pytest

from tests.behaviour.test_subscriptions import Following
from tests.conftest import eventually
from tests.servers import postgres_programs
from towpath import App, NewEvent
from towpath.errors import CursorReset


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request):
    return request.param


@pytest.fixture
def backup(place, kind, tmp_path):
    """Back up the database; return what restores it, with no process at work."""
    url, needed = place

    def of_file():
        copy, file = tmp_path / "copy.db", url.removeprefix("sqlite:///")
        with App(url) as app:
            app.backup(copy)

        def restore():
            for end in ("", "-wal", "-shm"):
                Path(f"{file}{end}").unlink(missing_ok=True)
            copy.rename(file)

        return restore

    def of_schema():
        programs, copy, schema = postgres_programs(), tmp_path / "copy", needed["schema"]
        dump = [programs / "pg_dump", "--format=custom", "--schema", schema, "--file", copy, url]
        subprocess.run(dump, check=True)

        def restore():
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f"drop schema {schema} cascade")
            subprocess.run([programs / "pg_restore", "--dbname", url, copy], check=True)

        return restore

    return of_file if kind == "sqlite" else of_schema


def test_readers_of_a_restored_database_are_reset(untouched, place, backup):
    """EV-6: also where the numbers of their cursors were given again, to other events."""
    url, needed = place
    with App(url, **needed) as app:
        kept = app.events.publish_many("chat", [NewEvent(n) for n in range(3)])
        generation = app.events.attach("chat", "mailer").generation
        app.events.ack("chat", "mailer", kept[1].cursor, generation)
    restore = backup()
    with App(url, **needed) as app:
        lost = app.events.publish_many("chat", [NewEvent("lost")] * 3)
        app.events.ack("chat", "mailer", lost[-1].cursor, generation)
    restore()

    with App(url, **needed) as app:
        app.events.restored()
        again = app.events.publish_many("chat", [NewEvent("again")] * 3)
        assert [event.payload for event in app.events.read("chat").events] == [
            0, 1, 2, "again", "again", "again"
        ]  # fmt: skip
        for old in (kept[0], kept[2], lost[0], lost[2]):
            following = Following(app, "chat", old.cursor)
            eventually(lambda following=following: following.ended)
            assert isinstance(following.error, CursorReset)
            assert (following.error.reason, following.events) == ("era", [])
            assert following.error.head == again[-1].cursor
            with pytest.raises(CursorReset):
                app.events.read("chat", old.cursor)
            with pytest.raises(CursorReset):
                app.events.ack("chat", "mailer", old.cursor, generation)
        mailer = app.events.subscribe("chat", consumer="mailer", timeout=0)
        assert [event.payload for event in mailer] == [2, "again", "again", "again"]
