"""FastAPI and Starlette: a worker in the application's loop."""

import asyncio
import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from tests.conftest import eventually
from tests.faults.processes import until
from towpath import App
from towpath.errors import Invalid
from towpath.integrations.starlette import lifespan
from towpath.model.sealing import new_key
from towpath.store import sessions
from towpath.webhooks.memory import MemoryPoster, MemoryReceiver
from towpath.webhooks.running import Deliveries
from towpath.webhooks.sender import WebhookSender
from towpath.worker import Worker

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def uvicorn(name, durable_place, directory):
    """An application under a real server, in a process of its own."""
    url, needed = durable_place
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "TOWPATH_DATABASE": url,
        "API_DIRECTORY": str(directory),
        **{f"TOWPATH_{key.upper()}": value for key, value in needed.items()},
    }
    with (directory / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", name, "--port", "0"],
            cwd=directory,
            env=environment,
            stderr=log,
        )
    try:
        eventually(lambda: _address(directory) or server.poll() is not None)
        assert server.poll() is None, (directory / "log").read_text()
        yield server, _address(directory)
    finally:
        server.kill()
        server.wait()


def ended_well(server, directory):
    """Uvicorn shuts down gracefully, and then lets the signal end the process after all."""
    assert server.wait(60) in {0, -signal.SIGTERM}
    log = (directory / "log").read_text()
    assert "Application shutdown complete" in log, log
    assert "Error" not in log, log


def _address(directory):
    found = re.search(r"running on (http://[\d.:]+)", (directory / "log").read_text())
    return found and found[1]


@pytest.fixture
def app(durable_place):
    url, needed = durable_place
    with App(url, **needed) as app:
        yield app


def test_the_job_that_runs_at_sigterm_is_finished_before_the_end(app, durable_place, tmp_path):
    with uvicorn("tests.integrations.api_program:api", durable_place, tmp_path) as (server, url):
        id = httpx.post(f"{url}/jobs", params={"name": "go"}, timeout=30).json()
        eventually(lambda: app.jobs.get(id).state == "reserved")
        server.send_signal(signal.SIGTERM)
        eventually(lambda: not _answers(url))
        assert app.jobs.get(id).state == "reserved"
        (tmp_path / "go").touch()

        ended_well(server, tmp_path)
    assert app.jobs.get(id).returned == "go"
    notes = (tmp_path / "notes").read_text().splitlines()
    assert notes == ["own begins", "task begins", "task ends", "own ends"]


def _answers(url):
    try:
        httpx.get(url, timeout=30)
    except httpx.TransportError:
        return False
    return True


def test_answers_that_go_on_end_at_sigterm(app, durable_place, tmp_path):
    """Otherwise uvicorn waits for them until their lifetime ends."""
    headers = {"authorization": f"Bearer {app.keys.create('k', scopes=['subscribe'])[1]}"}
    path = "/queue/api/channels/chat/events"
    with uvicorn("tests.integrations.mounted_program:web", durable_place, tmp_path) as (
        server,
        url,
    ):
        events = {"accept": "text/event-stream"}
        with httpx.stream("GET", url + path, headers=headers | events, timeout=60) as answer:
            lines = answer.iter_lines()
            assert any('"current"' in line for line in lines)
            server.send_signal(signal.SIGTERM)
            ends = time.monotonic() + 60
            last = itertools.takewhile(lambda _: time.monotonic() < ends, lines)  # beats come, too
            assert any('"bye"' in line for line in last)

        ended_well(server, tmp_path)


def test_the_example_reports_what_it_was_asked_for(durable_place, tmp_path):
    with uvicorn("examples.fastapi_reports:api", durable_place, tmp_path) as (server, url):
        with httpx.Client(base_url=url, timeout=30) as client:
            id = client.post("/reports", params={"title": "boats"}).json()["id"]
            eventually(lambda: client.get(f"/reports/{id}").json()["status"] == "completed")

            assert client.get(f"/reports/{id}").json()["report"] == "All about boats"
            assert client.get(f"/reports/{uuid.uuid4()}").status_code == 404
        server.send_signal(signal.SIGTERM)
        ended_well(server, tmp_path)


# ---------------------------------------------------------------- in this process


@pytest.fixture
def serving(loop):
    """Begin and end an application as a server does."""

    @contextlib.contextmanager
    def serving(made):
        api = Starlette(lifespan=made)
        living = api.router.lifespan_context(api)
        yield asyncio.run_coroutine_threadsafe(living.__aenter__(), loop).result(30)
        asyncio.run_coroutine_threadsafe(living.__aexit__(None, None, None), loop).result(30)

    return serving


@pytest.fixture
def double(app):
    @app.task()
    async def double(number: int) -> int:
        return number * 2

    return double


def test_the_worker_lives_as_long_as_the_application(app, double, serving):
    made = lifespan(app)
    for _ in range(2):  # as in a suite of tests, one server after the other
        with serving(made):
            assert double.enqueue(21).result(30) == 42

    assert app.jobs.get(double.enqueue(1)).state == "ready"
    assert app.run(sessions.observe()) == []


def test_the_state_of_an_own_lifespan_is_passed_on(app, double, serving):
    @contextlib.asynccontextmanager
    async def own(api):
        yield {"greeting": "hello"}

    for worker in (True, False):
        with serving(lifespan(app, own, worker=worker)) as state:
            assert state == {"greeting": "hello"}


def test_without_a_worker_jobs_are_only_enqueued(app, double, serving):
    with serving(lifespan(app, worker=False)):
        double.enqueue(1)
        assert app.run(sessions.observe()) == []


def test_the_worker_is_made_as_told(app, double, serving):
    made = []

    def make():
        made.append(Worker(app, concurrency=1, name="ada"))
        return made[-1]

    with serving(lifespan(app, worker=make)):
        assert double.enqueue(21).result(30) == 42
    assert [worker.name for worker in made] == ["ada"]


def test_a_worker_that_cannot_begin_keeps_the_application_from_starting(app, serving):
    with pytest.raises(Invalid, match="no task"), serving(lifespan(app)):
        pass


def test_a_worker_that_ends_by_an_error_is_reported(app, double, serving, caplog):
    class Broken(Worker):
        async def arun(self):
            raise ZeroDivisionError

    made = lifespan(app, worker=lambda: Broken(app))
    with pytest.raises(ZeroDivisionError), serving(made):
        eventually(lambda: "the worker of this application failed" in caplog.text)


def test_webhooks_are_delivered_in_the_loop_of_the_application(durable_place):
    url, needed = durable_place
    poster = MemoryPoster()
    poster.receivers["https://a.example/"] = receiver = MemoryReceiver("https://a.example/")

    async def live():
        async with App(url, webhook_key=new_key(), **needed) as app:
            own = lambda: Deliveries(app, sender=lambda _: WebhookSender(poster=poster))  # noqa: E731
            site = Starlette(lifespan=lifespan(app, worker=False, deliveries=own))
            async with site.router.lifespan_context(site):
                await app.webhooks.acreate("orders", receiver.url)
                await app.events.apublish("orders", 1)
                await until(lambda: receiver.requests)
            # It has ended with the application, and has written its reports.
            [attempt] = await app.webhooks.sagas.aattempts(1)
            assert attempt.status == "Completed"

    asyncio.run(live())


@pytest.mark.parametrize("key", ["", "wrong"])
def test_an_application_may_deliver_webhooks_by_default_options(durable_place, key):
    url, needed = durable_place

    async def live():
        async with App(url, webhook_key=key, **needed) as app:
            site = Starlette(lifespan=lifespan(app, worker=False, deliveries=True))
            async with site.router.lifespan_context(site):
                await asyncio.sleep(0)

    is_wrong = key == "wrong"
    with pytest.raises(Invalid) if is_wrong else contextlib.nullcontext():
        asyncio.run(live())
