"""A process that is stopped inside a transaction on SQLite: the others are told in time."""

import asyncio
import contextlib

import pytest

from tests.faults.processes import wait_until
from tests.server.live import Served
from tests.workers import working
from towpath.errors import DatabaseBusy


@pytest.fixture
def kind():
    return "sqlite"


@pytest.fixture
def frozen(start, make_app):
    """A process that holds the write lock and does nothing, not even die."""
    make_app().migrate()
    program = start("stop_inside")
    assert program.hear() == "in the middle"
    program.pause()
    return program


@pytest.fixture
def impatient(make_app, colour):
    return colour(make_app(busy_timeout=0.2))


def test_a_call_is_told_that_the_database_is_busy(impatient, frozen):
    for _ in range(2):
        with pytest.raises(DatabaseBusy, match=r"test\.db-turn.*busy_timeout"):
            impatient.jobs.enqueue("mail")

    assert impatient.jobs.list() == []  # readers do not wait


def test_callers_at_once_are_all_told(impatient, frozen, threads):
    calls = [threads.submit(impatient.jobs.enqueue, "mail") for _ in range(4)]

    assert [type(call.exception(20)) for call in calls] == [DatabaseBusy] * 4


def test_everybody_goes_on_when_the_process_does(impatient, frozen, start, tmp_path, books):
    with pytest.raises(DatabaseBusy):
        impatient.jobs.enqueue("mail")

    frozen.resume()
    frozen.say("go on")
    frozen.finish()
    # A wait that was given up does not keep the lock that it gets too late.
    start("produce", record=str(tmp_path / "record"), number=1).finish(20)
    wait_until(lambda: enqueued(impatient))
    books.check()


def test_everybody_goes_on_when_the_process_is_killed(impatient, frozen, start, tmp_path, books):
    with pytest.raises(DatabaseBusy):
        impatient.jobs.enqueue("mail")

    frozen.end()
    start("produce", record=str(tmp_path / "record"), number=1).finish(20)
    wait_until(lambda: enqueued(impatient))
    books.check()


def enqueued(app):
    with contextlib.suppress(DatabaseBusy):
        return app.jobs.enqueue("mail")


def test_an_app_can_be_closed_meanwhile(make_app, frozen, start, tmp_path):
    app = make_app(busy_timeout=0.2)
    with pytest.raises(DatabaseBusy):
        app.jobs.enqueue("mail")

    app.close()
    frozen.end()
    start("produce", record=str(tmp_path / "record"), number=1).finish(20)  # no lock is left


def test_an_app_of_an_event_loop_can_be_closed_meanwhile(make_app, frozen):
    async def main():
        async with make_app(busy_timeout=0.2) as app:
            with pytest.raises(DatabaseBusy):
                await app.jobs.aenqueue("mail")

    asyncio.run(main())


def test_a_worker_can_be_stopped_meanwhile(make_app, start):
    app = make_app(busy_timeout=0.2)

    @app.task()
    def mail() -> None:
        """Do nothing."""

    with working(app):
        wait_until(app.sessions.list)
        program = start("stop_inside")
        assert program.hear() == "in the middle"
        program.pause()
        with pytest.raises(DatabaseBusy):
            app.jobs.enqueue("mail")
    app.close()


def test_sigterm_ends_a_server_meanwhile(make_app, start, tmp_path, place, monkeypatch):
    monkeypatch.setenv("TOWPATH_BUSY_TIMEOUT", "0.2")
    url, _ = place
    server = Served(url, tmp_path)
    try:
        program = start("stop_inside", settings={"busy_timeout": 5})
        assert program.hear() == "in the middle"
        program.pause()
        status, said = server.ask("POST", "/api/jobs/enqueue", {"topic": "mail"})
        assert (status, said["code"]) == (503, "database_busy")

        server.end()
    finally:
        server.kill()
