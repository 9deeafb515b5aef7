"""PostgreSQL cannot be reached: every call raises DatabaseUnavailable within `connect_timeout`.

The time counts from the start of the call, also while it waits behind another one that waits for
the database. The bounds here are generous: what is shown is that no wait adds to another.
"""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import pytest

from tests.faults.processes import wait_until
from tests.faults.proxy import COMMIT, Proxy
from towpath import App
from towpath.errors import DatabaseUnavailable
from towpath.operation import Operation
from towpath.server import Api
from towpath.statement import Statement
from towpath.worker import Worker

TIMEOUT = 2.0  # the setting `connect_timeout` of these tests
SLACK = 1.5  # seconds that a loaded machine may add; less than another wait would

BEGIN = "begin\0"

both_colours = pytest.mark.parametrize("colour", ["blocking", "async"], indirect=True)


@pytest.fixture(params=["postgres"])
def kind(request):
    return request.param


@pytest.fixture
def proxy(postgres):
    with Proxy(postgres.port) as proxy:
        yield proxy


@pytest.fixture
def place(proxy, postgres_schema):
    return proxy.url(), {"schema": postgres_schema, "connect_timeout": TIMEOUT}


@pytest.fixture
def black_hole() -> Iterator[str]:
    """An address that answers no packet of a new connection: its line of callers is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        yield f"postgresql://nobody@127.0.0.1:{listener.getsockname()[1]}/nowhere"


@contextlib.contextmanager
def in_time(seconds: float = TIMEOUT) -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds + SLACK


away = pytest.mark.parametrize("away", [Proxy.refuse, Proxy.die])


@both_colours
@away
def test_a_call_is_told_in_time_that_the_database_is_away(make_app, colour, proxy, away):
    app = colour(make_app())
    app.jobs.enqueue("mail")
    away(proxy)

    with in_time(), pytest.raises(DatabaseUnavailable):
        app.jobs.enqueue("mail")
    with in_time(), pytest.raises(DatabaseUnavailable):
        app.jobs.list()


@both_colours
@away
def test_the_first_call_is_told_in_time_that_the_database_is_away(make_app, colour, proxy, away):
    app = colour(make_app())
    away(proxy)

    with in_time(), pytest.raises(DatabaseUnavailable):
        app.jobs.enqueue("mail")


@both_colours
def test_a_call_is_told_in_time_that_packets_to_the_database_vanish(colour, black_hole):
    app = colour(App(black_hole, connect_timeout=TIMEOUT))

    with in_time(), pytest.raises(DatabaseUnavailable, match=r"in time|timeout expired"):
        app.jobs.enqueue("mail")


@both_colours
def test_all_addresses_of_a_database_share_the_time(colour, black_hole):
    """Each of them has its own limit in the driver."""
    address = black_hole.partition("@")[2].partition("/")[0]
    url = black_hole.replace(address, ",".join([address] * 5))
    app = colour(App(url, connect_timeout=TIMEOUT))

    with in_time(), pytest.raises(DatabaseUnavailable):
        app.jobs.enqueue("mail")


@both_colours
@away
def test_calls_that_wait_for_each_other_are_told_in_time(make_app, colour, proxy, away):
    """A delete shares no transaction, so each waits for the one before."""
    app = colour(make_app(lanes=1))
    jobs = [app.jobs.enqueue("mail") for _ in range(8)]
    away(proxy)

    with ThreadPoolExecutor(8) as threads:

        def delete(job):
            with in_time(), pytest.raises(DatabaseUnavailable):
                app.jobs.delete(job.id)

        for told in [threads.submit(delete, job) for job in jobs]:
            told.result(30)


@both_colours
@away
def test_first_calls_of_many_threads_are_told_in_time(make_app, colour, proxy, away):
    """None of them waits until another has looked for the tables."""
    app = colour(make_app(lanes=1))
    away(proxy)

    with ThreadPoolExecutor(8) as threads:

        def enqueue():
            with in_time(), pytest.raises(DatabaseUnavailable):
                app.jobs.enqueue("mail")

        for told in [threads.submit(enqueue) for _ in range(8)]:
            told.result(30)


@both_colours
@away
@pytest.mark.parametrize("statement", [BEGIN, COMMIT])
def test_a_server_that_dies_during_a_call_is_told_in_time(make_app, colour, proxy, away, statement):
    app = colour(make_app())
    job = app.jobs.enqueue("mail")
    proxy.hold(statement)
    with ThreadPoolExecutor(1) as threads:
        deleting = threads.submit(app.jobs.delete, job.id)
        assert proxy.happened.wait(10)
        with in_time():
            away(proxy)
            assert isinstance(deleting.exception(30), DatabaseUnavailable)
    proxy.cut()  # else the server keeps the transaction open


@both_colours
def test_a_database_that_comes_back_in_time_is_waited_for(make_app, colour, proxy):
    """As when another server takes over: first silence, then refusals, then it answers again."""
    app = colour(make_app(connect_timeout=20))
    job = app.jobs.enqueue("mail")
    proxy.die()
    with ThreadPoolExecutor(4) as threads:
        enqueuing = [threads.submit(app.jobs.enqueue, "mail") for _ in range(3)]
        deleting = threads.submit(app.jobs.delete, job.id)
        proxy.refuse()
        refused = proxy.refused
        wait_until(lambda: proxy.refused > refused + 3)
        proxy.revive()

        for each in enqueuing:
            assert each.result(30).topic == "mail"
        assert deleting.exception(30) is None


def sleep(seconds: float, times: int):
    statement = Statement("sleep", {"postgres": f"select pg_sleep({seconds})"})
    for _ in range(times):
        yield statement()
    return "well"


@both_colours
def test_slow_work_of_a_healthy_server_is_not_cut(make_app, colour):
    """In one statement or in many; a call that waits behind it is not late either."""
    app = colour(make_app(lanes=1))
    app.topics.list()
    long = Operation("long", partial(sleep, 2 * TIMEOUT, 1), locks=True)
    many = Operation("many", partial(sleep, TIMEOUT / 4, 10), locks=True)
    with ThreadPoolExecutor(3) as threads:
        slow = [threads.submit(app.run, each) for each in (long, many)]
        wait_until(lambda: slow[0].running() and slow[1].running())

        assert app.jobs.enqueue("mail").topic == "mail"
        assert [each.result(30) for each in slow] == ["well", "well"]


@both_colours
def test_the_time_counts_from_the_last_sign_of_life_of_slow_work(make_app, colour, proxy):
    """The server works for longer than the limit, and then dies."""
    app = colour(make_app(lanes=1))
    app.topics.list()
    slow = Operation("slow", partial(sleep, TIMEOUT, 2))
    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(app.run, slow)
        with pytest.raises(TimeoutError):
            working.result(1.5 * TIMEOUT)
        with in_time():
            proxy.refuse()
            assert isinstance(working.exception(30), DatabaseUnavailable)


@away
def test_a_web_request_is_told_in_time_that_the_database_is_away(make_app, proxy, away):
    async def main():
        async with (
            make_app() as app,
            httpx.AsyncClient(
                transport=httpx.ASGITransport(Api(app)), base_url="http://towpath.test"
            ) as client,
        ):
            _, secret = await app.keys.acreate("web", scopes=["enqueue"])
            post = partial(
                client.post,
                "/api/jobs/enqueue",
                json={"topic": "mail"},
                headers={"authorization": f"Bearer {secret}"},
            )
            assert (await post()).status_code == 201
            away(proxy)
            with in_time():
                return await asyncio.gather(*(post() for _ in range(5)))

    for answer in asyncio.run(main()):
        assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
        assert answer.headers["retry-after"] == "1"


@away
def test_a_worker_waits_longer_than_a_call(make_app, proxy, away, caplog):
    """Its outcomes are written, and its next job runs, when the database is back."""
    app = make_app()
    started, gate = threading.Event(), threading.Event()

    @app.task()
    async def wait() -> str:
        started.set()
        await asyncio.to_thread(gate.wait, 60)
        return "well"

    jobs = [wait.enqueue(), wait.enqueue()]
    worker = Worker(app, concurrency=1)
    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(asyncio.run, worker.arun())
        try:
            assert started.wait(30)
            away(proxy)
            gate.set()
            wait_until(lambda: caplog.text.count("could not write 1 outcomes") > 1, 60)
            wait_until(lambda: "the heartbeat of this worker failed" in caplog.text, 60)
            proxy.revive()

            assert [job.result(60) for job in jobs] == ["well", "well"]
            assert app.jobs.get(jobs[0].id).epoch == 1
        finally:
            proxy.revive()
            gate.set()
            worker.stop()
        working.result(60)
