"""/readyz: whether writes work, told soon, whatever the database does."""

import asyncio
import sqlite3

import pytest

from tests.faults.proxy import Proxy
from tests.server.conftest import Web, refused
from towpath import App
from towpath.errors import DatabaseBusy, DatabaseReadOnly


@pytest.fixture(scope="session")
def postgres(own_postgres):
    """A server that a proxy may stand before."""
    return own_postgres


class Counted(App):
    """An app that counts its probes."""

    probes = 0

    async def aprobe(self) -> None:
        self.probes += 1
        await super().aprobe()


@pytest.fixture
def serve(loop):
    """Serve an app, until the test ends."""
    served: list[Web] = []

    def serve(app: App) -> Web:
        served.append(Web(app, loop))
        return served[-1]

    yield serve
    for web in served:
        web.close()


@pytest.fixture
def read_only(postgres, postgres_schema):
    """PostgreSQL that takes no writes, as a standby does not."""
    with App(postgres.url(), schema=postgres_schema) as app:
        app.migrate()
    options = "?options=-c%20default_transaction_read_only%3Don"
    with App(postgres.url() + options, schema=postgres_schema) as app:
        yield app


@pytest.fixture
def locked(tmp_path):
    """SQLite that another writes to, for as long as the test takes."""
    with App(f"sqlite:///{tmp_path}/test.db", busy_timeout=0.2) as app:
        app.migrate()
        other = sqlite3.connect(tmp_path / "test.db", isolation_level=None)
        other.execute("begin immediate")
        yield app
        other.close()


def test_a_database_that_takes_writes_is_ready(web):
    assert web.get("/readyz").json() == {"status": "ok"}
    assert web.app.sessions.list() == []


def test_a_database_that_only_reads_is_not_ready(serve, read_only):
    answer = serve(read_only).get("/readyz")

    assert refused(answer) == (503, "unavailable")
    assert answer.json()["message"] == "the database takes no writes: database_read_only"


def test_a_database_that_another_holds_locked_is_not_ready(serve, locked):
    answer = serve(locked).get("/readyz")

    assert refused(answer) == (503, "unavailable")
    assert answer.json()["message"] == "the database takes no writes: database_busy"


def test_a_database_whose_file_was_deleted_is_not_ready_until_it_is_put_back(serve, tmp_path):
    """Each API begins with a probe of its own."""
    path, aside = tmp_path / "test.db", tmp_path / "aside.db"
    with App(f"sqlite:///{path}") as app:
        assert serve(app).get("/readyz").status_code == 200
        path.rename(aside)

        answer = serve(app).get("/readyz")
        assert refused(answer) == (503, "unavailable")
        assert answer.json()["message"] == "the database takes no writes: database_unavailable"

        aside.rename(path)
        assert serve(app).get("/readyz").status_code == 200


def test_a_database_that_does_not_answer_is_not_ready_in_time(serve, postgres, postgres_schema):
    """The probe itself would wait for a minute."""
    with Proxy(postgres.port) as proxy, App(proxy.url(), schema=postgres_schema) as app:
        app.migrate()
        web = serve(app)
        assert web.get("/readyz").status_code == 200
        proxy.die()

        answer = web.get("/readyz")
        while answer.status_code == 200:  # the probe of before still holds
            answer = web.get("/readyz")

        assert refused(answer) == (503, "unavailable")
        assert "takes no writes: no answer for " in answer.json()["message"]
        app.close(patience=0)


def test_all_that_ask_at_once_share_a_probe(serve, loop, tmp_path):
    """It is a commit, and several balancers may ask each second."""
    with Counted(f"sqlite:///{tmp_path}/test.db") as app:
        web = serve(app)

        async def ask():
            await asyncio.gather(*(web.api.shared.readiness.problem() for _ in range(20)))

        asyncio.run_coroutine_threadsafe(ask(), loop).result(20)

        assert app.probes == 1


@pytest.mark.parametrize("colour", ["blocking", "async"], indirect=True)
def test_an_app_says_what_keeps_it_from_writing(read_only, locked, colour):
    with pytest.raises(DatabaseReadOnly):
        colour(read_only).probe()
    with pytest.raises(DatabaseBusy):
        colour(locked).probe()
