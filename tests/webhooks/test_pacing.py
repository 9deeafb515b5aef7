"""A rate in real time: test_webhook_lines has the same by a clock that is moved."""

import asyncio
import time

import pytest

from tests.conftest import new_place
from tests.faults.processes import until
from tests.faults.sizes import many
from tests.webhooks.subscribing import SECOND, subscribe
from tests.webhooks.test_running import URL, Gated, in_loop, running
from towpath import App, NewEvent
from towpath.model.sealing import new_key


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    url, needed = new_place(request.param, tmp_path, request)
    return url, {**needed, "webhook_key": new_key()}


class Timed(Gated):
    """Notes when requests arrive."""

    def __init__(self):
        super().__init__()
        self.gate.set()
        self.times = []

    async def post(self, *request):
        self.times.append(time.monotonic())
        return await super().post(*request)


@pytest.mark.soak
@pytest.mark.skipif(many(1) == 1, reason="takes a minute of real time: ./dev soak")
@in_loop
async def test_a_rate_holds_for_a_minute(place):
    """Check 26."""
    url, needed = place
    poster = Timed()
    async with App(url, **needed) as app:
        subscribe(app, URL, pace=SECOND // 10)
        await app.events.apublish_many("orders", [NewEvent(each) for each in range(700)])
        async with running(app, poster):
            await until(lambda: poster.times)
            await asyncio.sleep(60)
            minute = [each for each in poster.times if each < poster.times[0] + 60]

    assert 570 <= len(minute) <= 630
