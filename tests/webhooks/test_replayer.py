"""The replayer: replays run where webhooks are delivered, and outlive their processes."""

import asyncio
import contextlib

import pytest

from tests.conftest import Clock, new_place
from tests.faults.processes import until
from tests.webhooks.subscribing import subscribe
from tests.webhooks.test_running import URL, Gated, in_loop, running, statuses
from towpath import App
from towpath.errors import DatabaseUnavailable
from towpath.model.sagas import SagaStatus
from towpath.model.sealing import new_key
from towpath.model.subscriptions import REPLAY
from towpath.webhooks import replaying
from towpath.webhooks.running import Deliveries


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    url, needed = new_place(request.param, tmp_path, request)
    return url, {**needed, "webhook_key": new_key()}


@contextlib.asynccontextmanager
async def delivered(place, count, clock=None):
    """An app whose only subscription has got some events, and what it has received."""
    url, needed = place
    poster = Gated()
    poster.gate.set()
    async with App(url, clock=clock or Clock(), **needed) as app:
        id = subscribe(app, URL, waits="[]").id
        async with running(app, poster):
            for number in range(count):
                await app.events.apublish("orders", number)
            await until(lambda: statuses(app) == [SagaStatus.COMPLETED] * count)
        yield app, id, poster


@in_loop
async def test_a_replay_runs_where_webhooks_are_delivered(place):
    """WH-8"""
    async with delivered(place, 3) as (app, id, poster), running(app, poster):
        job = await app.webhooks.areplay(id, status="Completed")
        await until(lambda: len(poster.requests) == 6)
        await until(lambda: app.jobs.get(job.id).status == "completed")

        assert app.jobs.get(job.id).returned == {"made": 3}


@in_loop
async def test_a_replay_runs_in_a_process_of_its_own(place):
    async with delivered(place, 3) as (app, id, poster), running(app, poster, only="replayer"):
        job = await app.webhooks.areplay(id, status="Completed")
        await until(lambda: app.jobs.get(job.id).status == "completed")

        assert app.webhooks.health(id).waiting == 3
        assert len(poster.requests) == 3


@in_loop
async def test_a_replay_whose_process_stops_goes_on_at_once_in_another(place, monkeypatch):
    monkeypatch.setattr(replaying, "AT_ONCE", 1)
    async with delivered(place, 3) as (app, id, poster):
        job = await app.webhooks.areplay(id, status="Completed", rate="1/h")
        async with running(app, poster, only="replayer"):
            await until(lambda: app.webhooks.health(id).waiting == 1)
        waiting = app.jobs.get(job.id)
        monkeypatch.setattr(replaying, "_rest", lambda *_: asyncio.sleep(0))
        async with running(app, poster, only="replayer"):
            await until(lambda: app.jobs.get(job.id).status == "completed")

        assert (waiting.status, waiting.retries) == ("pending", 0)
        assert app.jobs.get(job.id).returned == {"made": 3}
        assert app.webhooks.health(id).waiting == 3


@in_loop
async def test_a_replay_whose_process_is_killed_goes_on_after_its_lease(place, monkeypatch):
    monkeypatch.setattr(replaying, "AT_ONCE", 1)
    clock = Clock()
    async with delivered(place, 3, clock) as (app, id, poster):
        job = await app.webhooks.areplay(id, status="Completed", rate="1/h")
        killed = asyncio.create_task(Deliveries(app, only="replayer").arun())
        await until(lambda: app.webhooks.health(id).waiting == 1)
        killed.cancel()
        await asyncio.wait([killed])
        await app.aquiet()  # its last words
        assert app.jobs.get(job.id).status == "processing"
        clock.advance(301)
        monkeypatch.setattr(replaying, "_rest", lambda *_: asyncio.sleep(0))
        async with running(app, poster, only="replayer"):
            await until(lambda: app.jobs.get(job.id).status == "completed")

        assert app.jobs.get(job.id).returned == {"made": 3}
        assert app.webhooks.health(id).waiting == 3


@in_loop
async def test_a_replay_goes_on_after_an_outage_of_the_database(place, monkeypatch, caplog):
    async with delivered(place, 3) as (app, id, poster):
        run, is_down = app.arun, True

        async def failing(operation, *given):
            if is_down and operation.name == "candidates_of_replay":
                raise DatabaseUnavailable("no answer")
            return await run(operation, *given)

        job = await app.webhooks.areplay(id, status="Completed")
        monkeypatch.setattr(app, "arun", failing)
        async with running(app, poster, only="replayer"):
            await until(lambda: "the replayer of webhooks waits" in caplog.text)
            is_down = False
            await until(lambda: app.jobs.get(job.id).status == "completed")

        assert (app.jobs.get(job.id).epoch, app.jobs.get(job.id).retries) == (1, 0)


@in_loop
async def test_a_job_that_is_no_replay_fails_and_the_next_one_runs(place, caplog):
    async with delivered(place, 1) as (app, id, poster), running(app, poster):
        wrong = await app.jobs.aenqueue(REPLAY, {"subscription": "x"}, max_retries=1)
        job = await app.webhooks.areplay(id, status="Completed")
        await until(lambda: app.jobs.get(job.id).status == "completed")

        assert app.jobs.get(wrong.id).status == "failed"
        assert "Expected `int`" in app.jobs.get(wrong.id).last_error
    assert "tries again" not in caplog.text
