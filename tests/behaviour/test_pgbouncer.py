"""Behind PgBouncer, which lends a server's connection for one transaction at a time."""

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.behaviour.webhooks import Webhooks
from tests.conftest import eventually
from tests.faults.processes import until
from tests.servers import PgBouncer, PostgresServer
from tests.webhooks.subscribing import subscribe
from tests.webhooks.test_running import URL, Gated, running, statuses
from towpath import App, State
from towpath.errors import DatabaseBusy
from towpath.model.sealing import new_key

pytestmark = pytest.mark.skipif(
    PgBouncer.program() is None, reason="the program pgbouncer is not installed"
)


@pytest.fixture(scope="session")
def postgres(own_postgres) -> PostgresServer:
    """A server that lets PgBouncer in."""
    return own_postgres


@pytest.fixture(scope="module")
def bouncer(postgres) -> Iterator[PgBouncer]:
    """A PgBouncer with fewer connections than its clients have."""
    with PgBouncer(postgres, {"default_pool_size": 2}) as bouncer:
        yield bouncer


@pytest.fixture
def place(bouncer, postgres_schema) -> tuple[str, dict[str, str]]:
    return bouncer.url(), {"schema": postgres_schema}


@pytest.mark.usefixtures("untouched")
def test_every_verb_works_behind_a_pooler(live):
    """The tables too are made through it."""
    jobs = [live.jobs.enqueue("mail", number) for number in range(20)]
    live.jobs.enqueue("mail", "delayed", delay=60)

    leases = live.jobs.reserve(["mail", "post"], limit=30)
    assert [lease.job.payload for lease in leases] == list(range(20))
    live.jobs.touch(leases[0])
    live.jobs.complete(leases[0], "well")
    live.jobs.fail(leases[1], "badly")
    live.jobs.release(leases[2])
    live.jobs.bury(leases[3])

    assert [live.jobs.get(job).state for job in jobs[:5]] == [
        State.COMPLETED,
        State.DELAYED,
        State.READY,
        State.BURIED,
        State.RESERVED,
    ]
    assert live.jobs.kick("mail") == 1
    assert len(live.jobs.list()) == 21


def test_many_callers_share_the_few_connections_of_a_pooler(make_app):
    """No session state on lanes: statements are not prepared where the next one may not be."""
    app = make_app(lanes=8)
    with ThreadPoolExecutor(16) as pool:
        for _ in range(3):
            list(pool.map(lambda number: app.jobs.enqueue("mail", number), range(100)))
            leases = list(pool.map(lambda _: app.jobs.reserve("mail", limit=5), range(20)))
            list(pool.map(app.jobs.complete, [lease for five in leases for lease in five]))

    assert app.jobs.stats().completed == 300


@pytest.mark.usefixtures("untouched")
def test_two_processes_that_start_together_make_the_tables_once(make_app):
    apps = [make_app() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(App.migrate, apps))

    assert len({app.jobs.enqueue("mail").seq for app in apps}) == 4


LOCKED = {
    "a statement alone": lambda jobs: jobs.enqueue("mail"),
    "a transaction": lambda jobs: jobs.kick("mail"),
    "a scan": lambda jobs: jobs.list(),
}


@pytest.mark.parametrize("call", LOCKED.values(), ids=LOCKED)
def test_a_table_that_another_holds_locked_is_told_behind_a_pooler(
    make_app, colour, postgres, postgres_schema, call
):
    """`busy_timeout` is no setting of a session there, but of every transaction."""
    app = colour(make_app(busy_timeout=0.3))
    app.jobs.enqueue("mail")
    tables = ", ".join(f"{postgres_schema}.{name}" for name in ("job", "ready", "buried"))
    with ThreadPoolExecutor(1) as pool, psycopg.connect(postgres.url()) as other:
        other.execute(f"lock table {tables}")
        calling = pool.submit(call, app.jobs)

        assert isinstance(calling.exception(20), DatabaseBusy)
    assert len(app.jobs.list()) == 1


def test_a_blocked_reserve_finds_the_job_of_another_process_by_polling(make_app, colour, caplog):
    """FR-020: No process can listen through a pooler, and that is said once it matters."""
    waiting, elsewhere = make_app(poll_interval=0.2), colour(make_app())
    with ThreadPoolExecutor(1) as pool, caplog.at_level(logging.WARNING, logger="towpath"):
        reserve = pool.submit(colour(waiting).jobs.reserve, "mail", timeout=10)
        eventually(lambda: "polling" in caplog.text)
        job = elsewhere.jobs.enqueue("mail", 1)
        [lease] = reserve.result()

    assert lease.job.id == job.id
    warning = caplog.messages[0]
    assert "PgBouncer" in warning
    assert "every 0.2 s" in warning


def test_a_blocked_reserve_is_woken_at_once_by_its_own_process(make_app, colour):
    """DQ-7"""
    app = make_app(poll_interval=60)
    with ThreadPoolExecutor(1) as pool:
        reserve = pool.submit(colour(app).jobs.reserve, "mail", timeout=10)
        eventually(lambda: app.jobs.stats_waiting() == {"mail": 1})
        job = colour(app).jobs.enqueue("mail", 1, delay=0.2)
        [lease] = reserve.result()

    assert lease.job.id == job.id


def test_webhooks_are_delivered_behind_a_pooler_by_polling(make_app):
    """WH-11: transactions of several statements go through it, too."""
    options = {"poll_interval": 0.2, "webhook_key": new_key()}
    app, elsewhere = make_app(**options), make_app(**options)
    poster = Gated()

    async def scenario():
        poster.gate.set()
        async with app, running(app, poster):
            await asyncio.to_thread(subscribe, elsewhere, URL, ordered=True)
            for number in range(20):
                await asyncio.to_thread(elsewhere.events.publish, "orders", number)
            await until(lambda: statuses(elsewhere) == ["Completed"] * 20)

    asyncio.run(scenario())

    assert [each.payload for each in poster.requests] == list(range(20))
    Webhooks(elsewhere).check()
