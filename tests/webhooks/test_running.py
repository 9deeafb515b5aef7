"""The loops: they hear what happens, share their slots, end in order, and survive mistakes."""

import asyncio
import contextlib
import functools
import json
import logging
import time
from collections import Counter
from datetime import datetime
from uuid import uuid4

import pytest

from tests.behaviour.webhooks import Webhooks
from tests.conftest import Clock, new_place
from tests.faults.processes import until
from tests.webhooks.subscribing import SECOND, subscribe
from towpath import App, NewEvent
from towpath.app.ringing import ANYTHING
from towpath.cli.logs import JsonLines
from towpath.model.sagas import Role, SagaStatus
from towpath.model.sealing import new_key
from towpath.store import deliveries, events, sagas, subscriptions
from towpath.store.advancing import DELIVERIES
from towpath.store.event_rows import EventBody
from towpath.store.events import Append
from towpath.store.subscriptions import SUBSCRIPTIONS
from towpath.webhooks import router, worker
from towpath.webhooks.memory import MemoryPoster, MemoryReceiver
from towpath.webhooks.orchestrator import Orchestrator
from towpath.webhooks.router import Router
from towpath.webhooks.running import Deliveries
from towpath.webhooks.sender import WebhookSender
from towpath.webhooks.worker import DeliveryWorker

URL = "https://receiver.example/hook"
FIVE = {"saga_id", "job_id", "error_code", "lease_expiration", "worker_id"}


class Gated(MemoryPoster):
    """Answers no request before the gate is open."""

    def __init__(self):
        super().__init__()
        self.gate = asyncio.Event()
        self.waiting = 0
        self.receivers[URL] = MemoryReceiver(URL)

    @property
    def requests(self):
        return self.receivers[URL].requests

    async def post(self, *request):
        self.waiting += 1
        try:
            await self.gate.wait()
        finally:
            self.waiting -= 1
        return await super().post(*request)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    url, needed = new_place(request.param, tmp_path, request)
    return url, {**needed, "webhook_key": new_key()}


def in_loop(test):
    """Run a test in an event loop."""

    @functools.wraps(test)
    def run(*args, **fixtures):
        asyncio.run(test(*args, **fixtures))

    return run


@contextlib.asynccontextmanager
async def running(app, poster, **options):
    """Deliver, until the end of the block."""
    found = Deliveries(app, sender=lambda _: WebhookSender(poster=poster), **options)
    task = asyncio.create_task(found.arun())
    try:
        yield found
    finally:
        found.stop()
        await task


def statuses(app):
    return [saga.status for saga in reversed(app.run(sagas.list_sagas(1_000)))]


@in_loop
async def test_an_event_is_delivered_by_wakeups_alone(place):
    url, needed = place
    poster = Gated()
    poster.gate.set()
    app = App(url, poll_interval=3_600, **needed)
    async with app, running(app, poster, concurrency=1):
        await asyncio.sleep(0.2)  # all parts have looked, and sleep
        await asyncio.to_thread(subscribe, app, URL)
        for number in range(3):
            await app.events.apublish("orders", number)
            await until(lambda number=number: len(poster.requests) > number)
        await asyncio.to_thread(subscribe, app, URL, "letters")
        await app.events.apublish("letters", "a")
        await until(lambda: len(poster.requests) == 4)
        await app.events.apublish_many("letters", [NewEvent(each) for each in "bcd"])
        await until(lambda: len(poster.requests) == 7)

    assert [each.payload for each in poster.requests] == [0, 1, 2, *"abcd"]


@in_loop
async def test_an_event_of_another_process_is_delivered(place):
    url, needed = place
    poster = Gated()
    poster.gate.set()
    with App(url, **needed) as other:
        await asyncio.to_thread(subscribe, other, URL)
        async with App(url, **needed) as app, running(app, poster):
            for number in range(5):
                await other.events.apublish("orders", number)
            await until(lambda: len(poster.requests) == 5)
            await until(lambda: statuses(app) == [SagaStatus.COMPLETED] * 5)


@in_loop
async def test_a_stop_claims_no_more_and_ends_what_is_under_way(place):
    url, needed = place
    poster = Gated()
    async with App(url, **needed) as app:
        subscribe(app, URL, concurrency=2, at_once=2)
        async with running(app, poster, concurrency=2) as found:
            for number in range(4):
                await app.events.apublish("orders", number)
            await until(lambda: poster.waiting == 2)
            found.stop()
            await asyncio.sleep(0.1)
            poster.gate.set()

        assert len(poster.requests) == 2
        assert Counter(job.status for job in attempts(app)) == {"Completed": 2}


class StopsSoon(Gated):
    """Answers at once, and stops the sender with the third request."""

    def __init__(self):
        super().__init__()
        self.gate.set()

    async def post(self, *request):
        if len(self.requests) == 2:
            self.sender.stop()
        return await super().post(*request)


@in_loop
async def test_a_stop_claims_no_more_though_many_jobs_wait_for_free_slots(place):
    url, needed = place
    poster = StopsSoon()
    async with App(url, **needed) as app:
        subscribe(app, URL, concurrency=100, at_once=100)
        await app.events.apublish_many("orders", [NewEvent(each) for each in range(100)])
        async with running(app, poster, only="router"), running(app, poster, only="orchestrator"):
            await until(lambda: len(attempts(app)) == 100)
        async with running(app, poster, only="worker", concurrency=2) as poster.sender:
            await until(lambda: poster.sender.is_stopping)

    assert 3 <= len(poster.requests) <= 6


@in_loop
async def test_what_a_claim_gets_during_the_stop_is_delivered(place, monkeypatch):
    url, needed = place
    poster = Gated()
    poster.gate.set()
    claimed, go_on = asyncio.Event(), asyncio.Event()
    async with App(url, **needed) as app:
        run = app.arun

        async def slowly(operation):
            answer = await run(operation)
            if operation.name == "claim_deliveries" and answer:
                claimed.set()
                await go_on.wait()
            return answer

        monkeypatch.setattr(app, "arun", slowly)
        subscribe(app, URL)
        async with running(app, poster) as found:
            await app.events.apublish("orders", 1)
            await claimed.wait()
            found.stop()
            await asyncio.sleep(0.1)
            go_on.set()

        assert [job.status for job in attempts(app)] == ["Completed"]


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@in_loop
async def test_a_round_that_does_not_end_keeps_no_stop_waiting(place, monkeypatch):
    """As where the database answers no more: what was claimed is made again after its lease."""
    monkeypatch.setattr("towpath.webhooks.running.LAST_ROUND", 0.1)
    url, needed = place
    claimed = asyncio.Event()
    async with App(url, **needed) as app:
        run = app.arun

        async def never(operation):
            answer = await run(operation)
            if operation.name == "claim_deliveries" and answer:
                claimed.set()
                await asyncio.Event().wait()
            return answer

        monkeypatch.setattr(app, "arun", never)
        subscribe(app, URL)
        async with asyncio.timeout(60), running(app, Gated(), grace=0):
            await app.events.apublish("orders", 1)
            await claimed.wait()

        assert [job.status for job in attempts(app)] == ["Leased"]


@in_loop
async def test_a_second_stop_abandons_what_is_under_way(place):
    url, needed = place
    poster = Gated()
    async with App(url, **needed) as app:
        subscribe(app, URL)
        async with running(app, poster) as found:
            await app.events.apublish("orders", 1)
            await until(lambda: poster.waiting == 1)
            found.stop()
            found.stop_now()

        assert [job.status for job in attempts(app)] == ["Leased"]


def attempts(app):
    found = [saga.id for saga in app.run(sagas.list_sagas(1_000))]
    return [job for saga in found for job in app.run(sagas.attempts(saga))]


@in_loop
async def test_a_result_after_the_lease_is_logged_and_changes_nothing(place, caplog):
    """Check 31, WH-2, WH-3, WH-12"""
    url, needed = place
    slow, quick = Gated(), Gated()
    quick.gate.set()
    clock = Clock()
    async with App(url, clock=clock, **needed) as app:
        subscribe(app, URL)
        async with running(app, slow, name="slow", concurrency=1):
            await app.events.apublish("orders", 1)
            await until(lambda: slow.waiting == 1)
            async with running(app, quick, only="worker", name="quick"):
                clock.advance(31)
                await until(lambda: len(quick.requests) == 1)
                await until(lambda: statuses(app) == [SagaStatus.COMPLETED])
            slow.gate.set()
        [job] = attempts(app)

    assert (job.worker, job.lease_losses) == ("quick", 1)
    told = [each for each in caplog.records if each.getMessage().startswith("stale_result")]
    assert [each.worker_id for each in told] == ["slow"]
    assert vars(told[0]).keys() >= FIVE
    taken = [each for each in caplog.records if "was taken back" in each.getMessage()]
    assert [(each.worker_id, each.error_code) for each in taken] == [("slow", "lease_lost")]
    assert slow.requests[0].headers["webhook-id"] == quick.requests[0].headers["webhook-id"]


@in_loop
async def test_each_line_of_json_about_an_attempt_has_the_five_fields(place, caplog):
    """WH-12"""
    caplog.set_level(logging.DEBUG, "towpath")
    url, needed = place
    poster = Gated()
    poster.gate.set()
    poster.receivers[URL].answers(500)
    async with App(url, **needed) as app:
        subscribe(app, URL, waits="[]")
        async with running(app, poster, name="one"):
            await app.events.apublish("orders", 1)
            await until(lambda: statuses(app) == [SagaStatus.DEAD_LETTERED])
    [job] = {record.job_id for record in caplog.records if hasattr(record, "job_id")}
    lines = [
        json.loads(JsonLines().format(record))
        for record in caplog.records
        if hasattr(record, "saga_id")
    ]

    told = {line["message"].partition(":")[0]: line for line in lines}
    begins, made = told["an attempt begins"], told["an attempt was made"]
    dead = told["a delivery has failed for good"]
    for line in (begins, made, dead):
        assert line.keys() >= FIVE
        assert (line["saga_id"], line["job_id"], line["worker_id"]) == (1, job, "one")
    for line in (begins, made):
        assert datetime.fromisoformat(line["lease_expiration"])
    assert dead["lease_expiration"] is None  # its lease was over when the worker reported
    assert [line["error_code"] for line in (begins, made, dead)] == [None, "http_500", "http_500"]


@in_loop
async def test_a_saga_that_was_held_for_too_long_is_logged(place, caplog):
    """WH-12"""
    url, needed = place
    clock = Clock()
    async with App(url, clock=clock, **needed) as app:
        made = subscribe(app, URL)
        app.run(subscriptions.pause(made.id))
        async with running(app, Gated()):
            await app.events.apublish("orders", 1)
            await until(lambda: statuses(app) == [SagaStatus.HELD])
            clock.advance("8d")
            await until(lambda: statuses(app) == [SagaStatus.DEAD_LETTERED])
    [told] = [each for each in caplog.records if "held for too long" in each.getMessage()]

    assert vars(told).keys() >= FIVE
    assert (told.saga_id, told.error_code) == (1, "subscription_stopped")


@in_loop
async def test_a_worker_without_the_key_leaves_deliveries_to_others(place, caplog):
    url, needed = place
    poster, none = Gated(), Gated()
    poster.gate.set()
    none.gate.set()
    clock = Clock()
    async with App(url, clock=clock, **needed) as app:
        subscribe(app, URL)
        for wrong in ("", new_key()):
            other = App(url, clock=clock, **{**needed, "webhook_key": wrong})
            async with other, running(other, none):
                await app.events.apublish("orders", 1)
                await until(lambda wrong=wrong: "has to wait" in caplog.text or not wrong)
                await until(lambda: "is not set" in caplog.text)
                await asyncio.sleep(0.1)
        clock.advance(60)
        async with running(app, poster):
            await until(lambda: statuses(app) == [SagaStatus.COMPLETED] * 2)

        assert none.requests == []
        assert [(job.number, job.lease_losses) for job in attempts(app)] == [(1, 0), (1, 0)]
    assert [each.levelno for each in caplog.records if "is not set" in each.getMessage()] == [
        logging.ERROR
    ]


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@in_loop
async def test_neither_prompt_receivers_nor_others_take_all_slots(place):
    url, needed = place
    clock = Clock()
    poster = Gated()
    poster.gate.set()
    async with App(url, clock=clock, **needed) as app:
        failing = [
            subscribe(app, f"{URL}/{each}", "late", waits=f"[{SECOND}]") for each in range(9)
        ]
        await app.events.apublish("late", 1)
        async with running(app, poster):
            await until(lambda: statuses(app) == [SagaStatus.PENDING_RETRY] * len(failing))
        poster.gate.clear()
        async with running(app, poster, concurrency=8, grace=0):
            clock.advance(10)
            await until(lambda: poster.waiting == 6)  # two slots are kept for prompt receivers
            subscribe(app, URL, "prompt", prompt=1, at_once=5)
            for number in range(5):
                await app.events.apublish("prompt", number)
            await until(lambda: poster.waiting == 8)


@in_loop
async def test_attempts_are_counted_by_their_outcomes_and_the_log_tells_the_sum(place, caplog):
    """WH-12"""
    caplog.set_level(logging.INFO)
    url, needed = place
    poster = Gated()
    poster.gate.set()
    async with App(url, **needed) as app:
        await asyncio.to_thread(subscribe, app, URL)
        await asyncio.to_thread(subscribe, app, f"{URL}/none", waits="[]")
        async with running(app, poster) as found:
            await app.events.apublish("orders", 1)
            await until(lambda: sum(found.outcomes.values()) == 2)

            [job] = [each for each in attempts(app) if each.error_code]
            assert found.outcomes == {"completed": 1, job.error_code: 1}
    assert f"has made these attempts: 1 completed, 1 {job.error_code}" in caplog.text


class Claims:
    """Lets a worker claim when its slots are free again, and calls `before` first."""

    def __init__(self, acting, before):
        self._acting = acting
        self._before = before
        self.worker = None
        self.settings = acting.settings
        self.count = 0

    async def arun(self, operation):
        self.count += 1
        if self.worker._slots:
            await asyncio.wait(self.worker._slots)
        await self._before(self.count)
        return await self._acting.arun(operation)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@in_loop
async def test_prompt_receivers_do_not_wait_until_all_others_had_their_turn(place):
    """Check 25: those that fail at once free their slots as quickly as they are claimed."""
    url, needed = place
    poster = Gated()
    poster.gate.set()
    async with App(url, **needed) as app, WebhookSender(poster=poster) as sender:
        for _ in range(40):
            subscribe(app, URL, "late")
        subscribe(app, URL, "prompt", prompt=1)
        with app.acting(Role.MANAGER).hear() as ringing:

            async def publish(channel):
                await app.events.apublish(channel, channel)
                for part in (
                    Router(app.acting(Role.ROUTER)),
                    Orchestrator(app.acting(Role.ORCHESTRATOR)),
                ):
                    while await part.round({ANYTHING}, ringing) == 0:
                        pass

            async def at_third(claim):
                if claim == 3:
                    await publish("prompt")

            await publish("late")
            claims = Claims(app.acting(Role.WORKER), at_third)
            claims.worker = DeliveryWorker(claims, sender, "w", 8)
            await claims.worker.round({DELIVERIES}, ringing)
            await claims.worker.finish_all()

    assert claims.count > 5
    # Four late ones, then six as there was no prompt one, then four beside the prompt one.
    assert "prompt" in [each.payload for each in poster.requests][:15]


class SlowClock:
    """An app in a role, each of whose operations takes a minute by a clock of its own."""

    def __init__(self, acting):
        self._acting = acting
        self.seconds = 0.0

    def monotonic(self):
        return self.seconds

    async def arun(self, operation):
        self.seconds += 60
        return await self._acting.arun(operation)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@in_loop
async def test_the_router_looks_again_soon_although_its_last_look_took_long(place, monkeypatch):
    """A new subscription may ring together with the safety net, and is then known to no ring."""
    url, needed = place
    async with App(url, **needed) as app:
        slow = SlowClock(app.acting(Role.ROUTER))
        monkeypatch.setattr(router, "time", slow)
        asked = Router(slow)
        with app.acting(Role.ROUTER).hear() as ringing:
            await asked.round({ANYTHING}, ringing)
            await asked.round({ANYTHING, SUBSCRIPTIONS}, ringing)
            assert slow.seconds == 120  # one slow look tells nothing: it looked at once
            assert await asked.round({ANYTHING, SUBSCRIPTIONS}, ringing) == router.LONGEST


@in_loop
async def test_an_error_is_logged_once_and_the_part_goes_on(place, caplog, monkeypatch):
    url, needed = place
    poster = Gated()
    poster.gate.set()
    fails = True

    def failing(real):
        def operation(*given):
            if fails:
                raise RuntimeError("something of ours is wrong")
            return real(*given)

        return operation

    for name in ("is_claimable", "claim"):  # each round of the worker begins with one of them
        monkeypatch.setattr(deliveries, name, failing(getattr(deliveries, name)))
    async with App(url, **needed) as app, running(app, poster):
        await asyncio.to_thread(subscribe, app, URL)
        await app.events.apublish("orders", 1)
        await until(lambda: "tries again" in caplog.text)
        await asyncio.sleep(0.5)
        fails = False
        await until(lambda: len(poster.requests) == 1)

    assert caplog.text.count("tries again") == 1


@in_loop
async def test_parts_in_apps_of_their_own_deliver_together(place):
    url, needed = place
    poster = Gated()
    poster.gate.set()
    async with contextlib.AsyncExitStack() as stack:
        for only in ("router", "orchestrator", "orchestrator", "worker", "worker", "cleaner"):
            app = await stack.enter_async_context(App(url, **needed))
            await stack.enter_async_context(running(app, poster, only=only))
        await asyncio.to_thread(subscribe, app, URL)
        for number in range(20):
            await app.events.apublish("orders", number)
        posted = EventBody(id=uuid4(), body="20", encoding="json", size=2)
        await app.arun(events.post(Append(channel="orders", events=[posted])))
        await until(lambda: statuses(app) == [SagaStatus.COMPLETED] * 21)

    assert sorted(each.payload for each in poster.requests) == list(range(21))


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@in_loop
async def test_a_claim_takes_no_more_than_the_memory_for_payloads_can_hold(place, monkeypatch):
    monkeypatch.setattr(worker, "MOST_BYTES", 10_000)
    url, needed = place
    poster = Gated()
    async with App(url, max_payload=1_500, **needed) as app:
        subscribe(app, URL, concurrency=50, at_once=50, prompt=1)
        for _ in range(30):
            await app.events.apublish("orders", "x" * 1_400)
        async with running(app, poster, only="router"), running(app, poster, only="orchestrator"):
            await until(lambda: len(attempts(app)) == 30)
        async with running(app, poster, only="worker"):
            await until(lambda: poster.waiting == 6)
            await asyncio.sleep(0.1)
            assert poster.waiting == 6  # a seventh could be too long
            poster.gate.set()
            await until(lambda: len(poster.requests) == 30)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@in_loop
async def test_failing_receivers_leave_memory_for_the_payloads_of_prompt_ones(place, monkeypatch):
    """Long payloads for receivers that never answer do not stop the others."""
    monkeypatch.setattr(worker, "MOST_BYTES", 10_000)
    url, needed = place
    clock, failing, silent = Clock(), MemoryPoster(), Gated()
    async with App(url, clock=clock, max_payload=1_500, **needed) as app:
        for _ in range(8):
            subscribe(app, URL, waits=f"[{SECOND}]")
        async with running(app, failing):  # there is no receiver
            await app.events.apublish("orders", "x" * 1_400)
            await until(lambda: statuses(app) == [SagaStatus.PENDING_RETRY] * 8)
        clock.advance(60)
        async with running(app, silent, only="orchestrator"):
            await until(lambda: len(attempts(app)) == 16)
        async with running(app, silent):
            await until(lambda: silent.waiting == 3)
            await asyncio.to_thread(subscribe, app, URL, "letters", prompt=1)
            await app.events.apublish("letters", "first")
            await until(lambda: silent.waiting == 4)
            silent.gate.set()


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@in_loop
async def test_short_payloads_do_not_wait_for_each_other_though_long_ones_are_allowed(
    place, monkeypatch
):
    """Check 25: `max_payload` is greater than the memory for payloads; a long one counts by it."""
    monkeypatch.setattr(worker, "MOST_BYTES", 10_000)
    url, needed = place
    silent = Gated()
    async with App(url, max_payload=50_000, **needed) as app:
        for prompt in (0, 1):
            for _ in range(5):
                await asyncio.to_thread(subscribe, app, URL, "short", prompt=prompt)
            for _ in range(3):
                await asyncio.to_thread(subscribe, app, URL, "long", prompt=prompt)
        await app.events.apublish("short", 1)
        async with running(app, silent):
            await until(lambda: silent.waiting == 10)
            await app.events.apublish("long", "x" * 6_000)
            await until(lambda: silent.waiting == 12)  # one to each kind: half is taken
            await until(lambda: len(attempts(app)) == 16)
            await asyncio.sleep(0.1)
            assert silent.waiting == 12
            silent.gate.set()
            await until(lambda: len(silent.requests) == 16)


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
@in_loop
async def test_leases_and_retries_follow_the_database_though_the_process_s_clock_is_wrong(
    place, monkeypatch
):
    """Check 38."""
    for name, day in (("time", 86_400), ("time_ns", 86_400 * 10**9)):
        right = getattr(time, name)
        monkeypatch.setattr(time, name, lambda right=right, day=day: right() + day)
    url, needed = place
    poster = Gated()
    poster.receivers[URL].answers(503)
    async with App(url, **needed) as app:
        await asyncio.to_thread(subscribe, app, URL, waits=f"[{3_600 * SECOND}]")
        look = Webhooks(app).sql
        async with running(app, poster):
            await app.events.apublish("orders", 1)
            await until(lambda: poster.waiting == 1)
            [(lease,)] = look("select lease_until - {now} from towpath.webhook_delivery_jobs")
            app.run(deliveries.reset())
            poster.gate.set()
            await until(lambda: statuses(app) == [SagaStatus.PENDING_RETRY])
        [(wait,)] = look("select next_attempt_at - {now} from towpath.sagas")

        assert 0 < lease <= 30 * SECOND
        assert 3_500 * SECOND < wait <= 4_320 * SECOND
        assert [job.lease_losses for job in attempts(app)] == [0]
