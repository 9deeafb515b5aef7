"""A database that is away or locked: callers and upkeep wait for it together."""

import asyncio
import contextlib
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.processes import wait_until
from towpath import App
from towpath.errors import DatabaseBusy

on_sqlite = pytest.mark.parametrize("kind", ["sqlite"])


@on_sqlite
def test_many_callers_of_a_locked_file_wait_together(make_app, place):
    """Once, not each in its turn, which would be ten seconds."""
    app = make_app(busy_timeout=0.5)
    app.jobs.enqueue("mail")

    async def main():
        async with asyncio.timeout(5):
            calls = [app.jobs.aenqueue("mail") for _ in range(20)]
            return await asyncio.gather(*calls, return_exceptions=True)

    with contextlib.closing(sqlite3.connect(place[0].removeprefix("sqlite:///"))) as other:
        other.execute("begin immediate")
        answers = asyncio.run(main())

    assert {type(answer) for answer in answers} == {DatabaseBusy}


@on_sqlite
@pytest.mark.parametrize("colour", ["blocking", "async"], indirect=True)
def test_calls_that_wait_for_each_other_wait_together_for_a_locked_file(make_app, place, colour):
    """A delete shares no transaction; the wait behind another delete counts all the same."""
    app = colour(make_app(busy_timeout=1))
    jobs = [app.jobs.enqueue("mail") for _ in range(8)]

    with (
        contextlib.closing(sqlite3.connect(place[0].removeprefix("sqlite:///"))) as other,
        ThreadPoolExecutor(8) as threads,
    ):
        other.execute("begin immediate")
        started = time.monotonic()
        errors = [
            each.exception() for each in [threads.submit(app.jobs.delete, j.id) for j in jobs]
        ]
        took = time.monotonic() - started

    assert {type(error) for error in errors} == {DatabaseBusy}
    assert took < 5  # one after the other they would have taken eight
    app.jobs.delete(jobs[0].id)


def test_upkeep_does_not_try_each_of_its_duties_while_the_database_is_away(caplog):
    """So an app can be closed soon."""
    with App("postgresql://nobody@127.0.0.1:1/nowhere", connect_timeout=0.2) as app:
        app.upkeep.start()
        wait_until(lambda: "upkeep: " in caplog.text)

    tried = [each for each in caplog.records if each.getMessage().startswith("upkeep: ")]
    assert len({record.args[0] for record in tried}) == 1
