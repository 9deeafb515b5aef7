"""Replays: ended deliveries that are made again, each once, by a job that survives its process."""

import asyncio
from datetime import timedelta

import pytest

from tests.conftest import eventually
from tests.webhooks import delivering
from towpath.errors import Invalid, LeaseLost, NotFound
from towpath.model.sealing import new_key
from towpath.model.subscriptions import REPLAY
from towpath.store import replaying as store
from towpath.webhooks import replaying
from towpath.webhooks.memory import MemoryReceiver

URL = "https://receiver.example/hook"
KEY = new_key()


@pytest.fixture
def made(make_app, clock):
    return make_app(clock=clock, webhook_key=KEY)


@pytest.fixture
def app(made, colour):
    return colour(made)


class Shop:
    """A subscription, its receiver, and the runner of replays."""

    def __init__(self, app, made, loop):
        self.app, self.made, self.loop = app, made, loop
        self.receiver = MemoryReceiver(URL)
        self.id = app.webhooks.create("orders", URL, waits=[])[0].id

    def deliver(self):
        return delivering.deliver(self.made, self.loop, self.receiver)

    def publish(self, count, type="order.paid", status=204):
        """Publish events, and make the only attempt of each."""
        self.receiver.answers(*[status] * count)
        for number in range(count):
            self.app.events.publish("orders", number, type=type)
        while self.deliver():
            self.app.webhooks.enable(self.id)  # after failures, one at a time

    def begin(self):
        """Take the job of a replay, and begin it."""
        [lease] = self.app.jobs.reserve([REPLAY])
        return self.begun(lease)

    def begun(self, lease):
        """Begin the job of a lease."""

        async def made():
            await replaying.replay(self.made, lease, asyncio.Event())

        return asyncio.run_coroutine_threadsafe(made(), self.loop)

    def replay(self, **filter):
        """Ask for a replay and make it; return its job."""
        job = self.app.webhooks.replay(self.id, **filter)
        self.begin().result()
        return self.app.jobs.get(job.id)

    def waiting(self):
        return self.app.webhooks.health(self.id).waiting


@pytest.fixture
def shop(app, made, loop):
    return Shop(app, made, loop)


def test_what_was_delivered_is_delivered_again_once_each(shop, app):
    """Check 39, WH-8"""
    shop.publish(5)
    first = [each.headers["webhook-id"] for each in shop.receiver.requests]

    assert app.webhooks.preview(shop.id, status="Completed") == 5
    job = shop.replay(status="Completed")

    assert (job.status, job.returned, job.progress) == ("completed", {"made": 5}, 1.0)
    assert job.payload["count"] == shop.waiting() == 5
    assert shop.replay(status="Completed").returned == {"made": 0}  # while they are under way
    assert shop.deliver() == 5
    assert [each.headers["webhook-id"] for each in shop.receiver.requests] == first * 2
    assert app.webhooks.preview(shop.id, status="Completed") == 5  # those of the newest sagas


def test_dead_letters_are_requeued_also_when_their_sagas_are_forgotten(shop, app, made, clock):
    """WH-8"""
    shop.publish(3, status=500)
    clock.advance("8d")
    made.upkeep.run()
    assert app.webhooks.sagas.list() == []

    assert app.webhooks.preview(shop.id) == 3
    assert shop.replay().returned == {"made": 3}

    assert app.webhooks.preview(shop.id) == 0
    assert shop.deliver() == 3
    assert {each.status for each in app.webhooks.sagas.list()} == {"Completed"}
    letters = app.webhooks.dead_letters.list()
    assert all(each.requeued_as for each in letters)


def test_a_filter_chooses_by_type_and_time(shop, app, clock):
    shop.publish(1, type="order.paid")
    clock.advance("1h")
    middle = clock.now
    shop.publish(2, type="order.sent")
    clock.advance("1h")
    shop.publish(4, type="other")

    def count(**filter):
        return app.webhooks.preview(shop.id, status="Completed", **filter)

    assert count() == 7
    assert count(types=["order.*"]) == 3
    assert count(since=middle) == 6
    assert count(until=middle) == 1
    assert count(since=middle, until=middle + timedelta(minutes=1), types=["order.*"]) == 2
    assert count(types=["none"]) == app.webhooks.preview(shop.id) == 0
    assert shop.replay(status="Completed", types=["order.sent"]).returned == {"made": 2}


def test_what_ends_later_does_not_belong_to_a_replay(shop, app):
    shop.publish(2)
    job = app.webhooks.replay(shop.id, status="Completed")
    shop.publish(3)
    shop.begin().result()

    assert app.jobs.get(job.id).returned == {"made": 2}


def test_a_replay_that_is_killed_half_way_goes_on(shop, app, clock, monkeypatch):
    """Check 39."""
    monkeypatch.setattr(replaying, "AT_ONCE", 4)
    shop.publish(20)
    job = app.webhooks.replay(shop.id, status="Completed", rate="20/s")
    killed = shop.begin()
    eventually(lambda: shop.waiting() >= 8)
    killed.cancel()
    asyncio.run_coroutine_threadsafe(shop.made.aquiet(), shop.loop).result()  # its last words
    assert shop.waiting() < 20
    clock.advance("301s")
    [lease] = app.jobs.reserve([REPLAY])

    shop.begun(lease).result()

    assert app.jobs.get(job.id).returned == {"made": 20}
    assert shop.waiting() == 20
    assert shop.deliver() == 20
    ids = [each.headers["webhook-id"] for each in shop.receiver.requests[20:]]
    assert len(set(ids)) == 20


def test_two_processes_at_one_replay_make_nothing_twice(shop, app, clock):
    shop.publish(10)
    app.webhooks.replay(shop.id, status="Completed")
    [old] = app.jobs.reserve([REPLAY])
    clock.advance("301s")
    shop.begin().result()

    with pytest.raises(LeaseLost):
        shop.begun(old).result()
    assert shop.waiting() == 10


def test_what_was_chosen_before_another_process_made_it_is_left_out(shop, app):
    shop.publish(3)
    chosen = [saga.id for saga in app.webhooks.sagas.list()]

    made = [app.run(store.send_again(shop.id, chosen)) for _ in range(2)]

    assert made == [3, 0]


def test_a_cancelled_replay_stops(shop, app, monkeypatch):
    monkeypatch.setattr(replaying, "AT_ONCE", 1)
    shop.publish(30)
    job = app.webhooks.replay(shop.id, status="Completed", rate="10/s")
    running = shop.begin()
    eventually(lambda: shop.waiting() >= 1)
    app.jobs.cancel(job.id)
    running.result()

    assert app.jobs.get(job.id).status == "cancelled"
    assert shop.waiting() < 30


def test_a_replay_of_a_deleted_subscription_makes_nothing(shop, app):
    shop.publish(2)
    shop.publish(1, status=500)
    jobs = [app.webhooks.replay(shop.id, status=each) for each in ("Completed", "DeadLettered")]
    app.webhooks.delete(shop.id)
    for job in jobs:
        shop.begin().result()
        assert app.jobs.get(job.id).returned == {"made": 0}
    with pytest.raises(NotFound, match="no subscription"):
        app.webhooks.replay(shop.id)


@pytest.mark.one_database
def test_a_filter_that_makes_no_sense_is_refused(shop, app, clock):
    for filter, message in (
        ({"status": "Pending"}, "Completed, DeadLettered, Cancelled"),
        ({"status": 7}, "not that of an ended delivery"),
        ({"status": ["Completed"]}, "not that of an ended delivery"),
        ({"types": []}, "at least one type"),
        ({"types": "order"}, "must be a list"),
        ({"since": "yesterday"}, "not a datetime"),
        ({"until": clock.now.replace(tzinfo=None)}, "time zone"),
        ({"rate": "fast"}, "not a rate"),
        ({"tipes": []}, "unknown option"),
    ):
        with pytest.raises(Invalid, match=message):
            app.webhooks.preview(shop.id, **filter)
        with pytest.raises(Invalid, match=message):
            app.webhooks.replay(shop.id, **filter)
    with pytest.raises(NotFound):
        app.webhooks.preview(99)
    assert app.jobs.list(topic=REPLAY) == []
