"""The database goes away while webhooks are delivered: the loops wait, repeat and go on."""

import asyncio
import contextlib
import itertools
import sqlite3

import pytest

from tests.behaviour.webhooks import Webhooks
from tests.conftest import Clock
from tests.faults.processes import until
from tests.faults.sizes import many
from tests.servers import PostgresServer
from tests.webhooks.subscribing import subscribe
from tests.webhooks.test_running import URL, Gated, running, statuses
from towpath import App, NewEvent
from towpath.model.sagas import SagaStatus
from towpath.model.sealing import new_key

pytestmark = pytest.mark.chaos

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server():
    """A PostgreSQL server that these tests may crash."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def place(server):
    needed = {"schema": f"outage_{next(_numbers)}", "connect_timeout": 2}
    return server.url(), {**needed, "webhook_key": new_key()}


@pytest.fixture
def app(place):
    url, needed = place
    with App(url, **needed) as app:
        yield app


def test_deliveries_end_once_though_the_database_restarts(server, app, caplog):
    """WH-11: what was answered during the outage is reported after it."""

    async def scenario():
        poster = Gated()
        async with running(app, poster):
            await app.events.apublish_many("orders", [NewEvent(n) for n in range(many(50))])
            await until(lambda: poster.waiting >= 10)
            await asyncio.to_thread(server.stop, "immediate")
            poster.gate.set()  # ten are answered now, and cannot be reported
            await until(lambda: "could not write" in caplog.text)
            await asyncio.to_thread(server.start)
            done = [SagaStatus.COMPLETED] * many(50)
            await until(lambda: len(poster.requests) == many(50) and statuses(app) == done)
        return poster.requests

    subscribe(app, URL, at_once=10)
    requests = asyncio.run(scenario())

    assert sorted(each.payload for each in requests) == list(range(many(50)))
    assert caplog.text.count("orchestrator of webhooks waits for the database") <= 1
    Webhooks(app).check()


class StoppedServer:
    """A PostgreSQL server that is gone."""

    def __init__(self, server):
        self.go, self.come = server.stop, server.start


class LockedFile:
    """A SQLite file that another process keeps locked."""

    def __init__(self, path):
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def go(self):
        self._connection.execute("begin immediate")

    def come(self):
        self._connection.execute("rollback")


def test_deliveries_end_though_a_stopped_server_is_gone_for_a_minute(server, place, caplog):
    """Longer than the leases are, which the cleaner takes back: a saga ends once all the same."""
    gone_for_a_minute(place, StoppedServer(server), caplog)


def test_deliveries_end_though_a_file_is_locked_for_a_minute(tmp_path, caplog):
    place = f"sqlite:///{tmp_path}/test.db", {"webhook_key": new_key(), "busy_timeout": 0.2}
    with App(place[0]) as app:
        app.migrate()
    database = LockedFile(tmp_path / "test.db")
    with contextlib.closing(database._connection):
        gone_for_a_minute(place, database, caplog)


def gone_for_a_minute(place, database, caplog):
    url, needed = place
    clock, events = Clock(), 30

    async def scenario():
        poster = Gated()
        async with App(url, clock=clock, **needed) as app:
            await asyncio.to_thread(subscribe, app, URL, at_once=10)
            async with running(app, poster):
                await app.events.apublish_many("orders", [NewEvent(n) for n in range(events)])
                await until(lambda: poster.waiting == 10)
                await asyncio.to_thread(database.go)
                poster.gate.set()  # ten are answered now, and cannot be reported
                await until(lambda: "could not write" in caplog.text)
                clock.advance(60)
                await asyncio.to_thread(database.come)
                await until(lambda: statuses(app) == [SagaStatus.COMPLETED] * events)
            Webhooks(app).check()
        return poster.requests

    requests = asyncio.run(scenario())

    assert {each.payload for each in requests} == set(range(events))
    assert events <= len(requests) <= events + 10  # those whose leases were over may come again
    assert "Traceback" not in caplog.text
