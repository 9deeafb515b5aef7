"""Waiting: a caller that waits for a job is woken at once, and waiting costs next to nothing.

In most of these tests the callers wait for less time than the safety net takes, so only a real
wakeup can pass them, and no clock is asked how quick it was.
"""

import asyncio
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread

import psycopg
import pytest

from tests.conftest import InLoop, eventually
from towpath import App, Limit
from towpath.app.waiters import ThreadWaiter, Waiters
from towpath.database.bells import QuietBell
from towpath.database.wakeups import Wakeups
from towpath.errors import JobExists, TooManyWaiters
from towpath.operation import Wakeup

pytestmark = pytest.mark.both_colours

FAR = 60  # seconds between two looks of the safety net


class Counting:
    """A database, and what it was asked to do."""

    def __init__(self, database):
        self._database = database
        self.asked: list[str] = []

    def __getattr__(self, name):
        return getattr(self._database, name)

    def run(self, operation):
        self.asked.append(operation.name)
        return self._database.run(operation)

    async def arun(self, operation):
        self.asked.append(operation.name)
        return await self._database.arun(operation)

    def settle(self, seconds=0.15):
        """Wait until no caller asks any more, and count again from 0."""
        before = -1
        while before != len(self.asked):
            before = len(self.asked)
            time.sleep(seconds)  # what is waited for is that nothing happens
        self.asked.clear()


@pytest.fixture(
    params=[
        ("memory", "same app"),
        ("sqlite", "same app"),
        ("sqlite", "another app"),
        ("postgres", "same app"),
        ("postgres", "another app"),
    ],
    ids=" ".join,
)
def where(request) -> tuple[str, str]:
    """The kind of database, and from where the waiter is woken."""
    return request.param


@pytest.fixture
def kind(where) -> str:
    return where[0]


@pytest.fixture
def app(make_app):
    """An app whose callers wait."""
    app = make_app(poll_interval=FAR)
    app.migrate()
    return app


@pytest.fixture
def other(app, where, make_app):
    """The app that wakes them: the same, or one that could be in another process."""
    return app if where[1] == "same app" else make_app()


@pytest.fixture
def start(colour, loop):
    """Start to reserve in the background, as a thread or as a task."""
    with ThreadPoolExecutor(100) as pool:

        def start(app, topics="mail", **options) -> Future:
            options = {"timeout": 20, **options}
            if isinstance(colour(app), InLoop):
                reserve = app.jobs.areserve(topics, **options)
                return asyncio.run_coroutine_threadsafe(reserve, loop)
            return pool.submit(app.jobs.reserve, topics, **options)

        yield start


def waits(app, count=1, topic="mail") -> None:
    eventually(lambda: app.jobs.stats_waiting().get(topic) == count)


def waits_or_has(app, waiting) -> None:
    """What is due by itself can be so before a slow machine gets in line."""
    eventually(lambda: waiting.done() or app.jobs.stats_waiting().get("mail") == 1)


# ---------------------------------------------------------------- what wakes


def _put(app):
    return lambda: app.jobs.enqueue("mail")


def _due_delay(app):
    return lambda: app.jobs.enqueue("mail", delay=0.2)


def _due_delay_from_before(app):
    app.jobs.enqueue("mail", delay=0.5)
    return lambda: None


def _ended_ttr(app):
    app.jobs.enqueue("mail", ttr=0.5)
    app.jobs.reserve("mail")
    return lambda: None


def _release(app):
    app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")
    return lambda: app.jobs.release(lease)


def _release_with_delay(app):
    app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")
    return lambda: app.jobs.release(lease, delay=0.2)


def _failure(app):
    app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")
    return lambda: app.jobs.fail(lease, "no", delay=0.2)


def _buried(app):
    job = app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")
    app.jobs.bury(lease)
    return job


def _kick(app):
    _buried(app)
    return lambda: app.jobs.kick("mail")


def _kick_job(app):
    job = _buried(app)
    return lambda: app.jobs.kick_job(job)


def _reschedule(app):
    job = app.jobs.enqueue("mail", delay=3600)
    return lambda: app.jobs.reschedule(job, delay=0.2)


def _requeue(app):
    job = _buried(app)
    return lambda: app.jobs.requeue(job)


def _resume(app):
    app.jobs.enqueue("mail")
    app.topics.pause("mail")
    return lambda: app.topics.resume("mail")


def _end_of_a_pause(app):
    app.jobs.enqueue("mail")
    app.topics.pause("mail", 0.5)
    return lambda: None


def _shorter_pause(app):
    app.jobs.enqueue("mail")
    app.topics.pause("mail")
    return lambda: app.topics.pause("mail", 0.2)


def _room_in_a_limit(app):
    app.jobs.enqueue_many("mail", range(2), limit=Limit("one", concurrency=1))
    [lease] = app.jobs.reserve("mail")
    return lambda: app.jobs.complete(lease)


def _pace_of_a_limit(app):
    app.jobs.enqueue_many("mail", range(2), limit=Limit("paced", rate="2/s"))
    app.jobs.reserve("mail")
    return lambda: None


def _end_of_a_session(app):
    app.jobs.enqueue("mail")
    session = app.sessions.start()
    app.jobs.reserve("mail", session=session)
    return lambda: app.sessions.end(session)


@pytest.mark.parametrize(
    "cause",
    [
        _put, _due_delay, _due_delay_from_before, _ended_ttr, _release, _release_with_delay,
        _failure, _kick, _kick_job, _requeue, _reschedule, _resume, _end_of_a_pause,
        _shorter_pause, _room_in_a_limit, _pace_of_a_limit, _end_of_a_session,
    ],
    ids=lambda cause: cause.__name__.strip("_").replace("_", " "),
)  # fmt: skip
def test_a_blocked_reserve_wakes_at_once(app, other, start, cause):
    """DQ-7, FR-020: S4, MS-8: time is an event too."""
    app._database = counting = Counting(app._database)
    act = cause(other)
    waiting = start(app)
    waits_or_has(app, waiting)
    counting.settle(0.05)  # so that no look of its own makes up for a lost wakeup
    act()

    [lease] = waiting.result()
    assert lease.job.topic == "mail"


def test_a_waiter_for_several_topics_wakes_for_any_of_them(app, other, start):
    """DQ-7"""
    waiting = start(app, ["mail", "post", "fax"])
    waits(app, topic="fax")
    job = other.jobs.enqueue("post", 1)

    [lease] = waiting.result()
    assert lease.job.id == job.id


def test_a_put_between_the_first_look_and_getting_in_line_is_seen(app, other, start):
    """DQ-7: S5: no wakeup is lost between the two."""

    class PutBetween(Counting):
        def run(self, operation):
            first = not self.asked
            result = super().run(operation)
            if first:
                other.jobs.enqueue("mail")
            return result

        async def arun(self, operation):
            first = not self.asked
            result = await super().arun(operation)
            if first:
                await other.jobs.aenqueue("mail")
            return result

    app._database = PutBetween(app._database)

    assert len(start(app).result()) == 1


@pytest.mark.parametrize(
    "where", [("sqlite", "another app"), ("postgres", "another app")], indirect=True, ids=" ".join
)
def test_an_app_that_closes_right_after_a_put_still_rings(app, other, start):
    """FR-020"""
    app._database = counting = Counting(app._database)
    waiting = start(app)
    waits(app)
    counting.settle()
    for topic in ("post", "fax", "mail"):  # the last while the first are being announced
        other.jobs.enqueue(topic)
    other.close()

    assert len(waiting.result()) == 1


# ---------------------------------------------------------------- what it costs


def test_one_put_wakes_one_of_a_hundred(app, other, start):
    """DQ-7: The rest sleep on: a handful of statements, not a hundred."""
    app._database = counting = Counting(app._database)
    waiting = [start(app) for _ in range(100)]
    waits(app, 100)
    counting.settle()

    job = other.jobs.enqueue("mail")
    eventually(lambda: any(future.done() for future in waiting))
    asked = counting.asked.copy()
    counting.settle()

    [winner] = [future for future in waiting if future.done()]
    [lease] = winner.result()
    assert lease.job.id == job.id
    assert len(asked) <= 6
    waits(app, 99)
    other.jobs.enqueue_many("mail", range(99))
    leases = [lease for future in waiting for lease in future.result()]
    assert len({lease.job.seq for lease in leases}) == 100


@pytest.mark.parametrize("colour", ["async"], indirect=True)
def test_a_task_that_looked_too_early_is_woken_by_the_commit(app, other, start, loop):
    """DQ-7: It was called for a job that was then refused, and for one that came by another way."""
    app._database = counting = Counting(app._database)
    waiting = start(app)
    waits(app)
    counting.settle()

    async def put():
        taken = uuid.uuid4()
        await app.jobs.aenqueue("post", 1, id=taken)
        with pytest.raises(JobExists):
            await app.jobs.aenqueue("mail", 2, id=taken)

    asyncio.run_coroutine_threadsafe(put(), loop).result()
    counting.settle()
    assert not waiting.done()
    job = other.jobs.enqueue("mail")

    [lease] = waiting.result()
    assert lease.job.id == job.id


def test_a_hundred_puts_wake_a_hundred(app, other, start):
    """DQ-7"""
    waiting = [start(app) for _ in range(100)]
    waits(app, 100)
    for _ in range(100):
        other.jobs.enqueue("mail")

    leases = [lease for future in waiting for lease in future.result()]
    assert len({lease.job.seq for lease in leases}) == 100


@pytest.mark.parametrize(
    "where",
    [("memory", "same app"), ("sqlite", "same app"), ("postgres", "same app")],
    indirect=True,
    ids=" ".join,
)
def test_idle_waiting_costs_one_statement_for_each_look_of_the_safety_net(make_app, start):
    app = make_app(poll_interval=0.5)
    app._database = counting = Counting(app._database)
    waiting = [start(app) for _ in range(10)]
    waits(app, 10)
    counting.settle()
    began = time.monotonic()
    time.sleep(1.5)  # a stretch of doing nothing is what is measured
    asked = counting.asked.copy()
    looks = (time.monotonic() - began) / 0.5
    app.jobs.enqueue_many("mail", range(10))
    for future in waiting:
        future.result()

    assert 1 <= len(asked) <= looks + 2


def test_waiting_beside_a_delayed_job_costs_no_statement_before_it_is_due(app, other, start):
    """S4, MS-8: one timer on the next deadline."""
    app._database = counting = Counting(app._database)
    other.jobs.enqueue("mail", delay=1)
    waiting = start(app)
    waits_or_has(app, waiting)
    counting.settle()

    assert len(waiting.result()) == 1
    assert len(counting.asked) <= 2


# ---------------------------------------------------------------- getting out of line


def test_a_waiter_that_leaves_passes_its_ring_on():
    """S6: a ring that comes as the time is up is not lost."""
    wakeups = Wakeups(QuietBell, announces=False, poll_interval=FAR)
    room = Waiters(wakeups, max_waiters=0)
    first, second = ThreadWaiter(("mail",)), ThreadWaiter(("mail",))
    room.enter(first)
    assert first.wait(5)  # to look once more, now that it is in line
    room.enter(second)
    wakeups.ring(Wakeup.topics(["mail"]))
    room.leave(first)

    assert second.wait(5)
    wakeups.close()


def test_a_close_wakes_every_waiter():
    """Also those behind one that never answers, as in an event loop that has ended."""
    wakeups = Wakeups(QuietBell, announces=False, poll_interval=FAR)
    room = Waiters(wakeups, max_waiters=0)
    waiters = [ThreadWaiter(("mail",)) for _ in range(3)]
    room.enter(waiters[0])
    assert waiters[0].wait(5)  # to look once more, now that it is in line
    for waiter in waiters[1:]:
        room.enter(waiter)

    wakeups.close()

    assert all(waiter.wait(5) for waiter in waiters)


def test_nothing_is_remembered_of_topics_that_nobody_waits_for_any_more():
    """However many sets of topics come and go, and although one of their topics stays."""
    wakeups = Wakeups(QuietBell, announces=False, poll_interval=FAR)
    room = Waiters(wakeups, max_waiters=0)
    stays = ThreadWaiter(("mail",))
    room.enter(stays)
    for number in range(100):
        goes = ThreadWaiter(("mail", f"mail-{number}"))
        room.enter(goes)
        room.due(goes.topics, FAR)
        room.leave(goes)
    assert len(wakeups._due) <= 1

    room.leave(stays)
    assert len(wakeups._due) == 0
    assert room.waiting() == {}
    wakeups.close()


def test_what_is_due_as_the_wait_ends_is_still_given(app, other, start):
    """The ring and the end of the wait come at the same moment, in either order."""
    for _ in range(20):
        job = other.jobs.enqueue("mail", delay=0.05)
        [lease] = start(app, timeout=0.05).result()  # which begins later, and so ends later
        assert lease.job.id == job.id


def test_a_waiter_whose_time_is_up_is_not_counted_any_more(app, start):
    """DQ-15"""
    waiting = start(app, timeout=0.1)

    assert waiting.result() == []
    assert app.jobs.stats_waiting() == {}


def test_a_waiter_cancelled_as_its_ring_comes_passes_it_on(app, other, loop):
    """S6"""

    async def cancel_the_first():
        first = asyncio.create_task(app.jobs.areserve("mail", timeout=20))
        second = asyncio.create_task(app.jobs.areserve("mail", timeout=20))
        await asyncio.to_thread(waits, app, 2)
        job = other.jobs.enqueue("mail")  # blocking: neither task runs before the cancellation
        first.cancel()
        return job, await second

    job, [lease] = asyncio.run_coroutine_threadsafe(cancel_the_first(), loop).result()
    assert lease.job.id == job.id


@pytest.mark.parametrize("colour", ["async"], indirect=True)
def test_a_reserve_cancelled_under_way_gives_its_job_to_the_next(app, other, start):
    class CancelsTheWinner(Counting):
        armed = False

        async def arun(self, operation):
            if self.armed and operation.name == "reserve":
                self.armed = False
                # In a moment: the statement is on its way by then, and cannot be called back.
                loop, task = asyncio.get_running_loop(), asyncio.current_task()
                loop.call_soon(loop.call_soon, task.cancel)
            return await super().arun(operation)

    app._database = cancelling = CancelsTheWinner(app._database)
    waiting = [start(app), start(app)]
    waits(app, 2)
    cancelling.settle()
    cancelling.armed = True
    job = other.jobs.enqueue("mail")

    # Where the reservation was too quick for the cancellation, the winner has it.
    eventually(lambda: any(map(_leases, waiting)))
    [lease] = [lease for future in waiting for lease in _leases(future)]
    assert lease.job.id == job.id


def _leases(future):
    return future.result() if future.done() and not future.cancelled() else []


def test_a_blocking_verb_inside_an_event_loop_blocks_it_and_no_more(place):
    """Its async neighbours, already on their way, do not wait for it while it waits for them."""
    url, needed = place

    async def both_colours() -> int:
        async with App(url, **needed, poll_interval=FAR) as app:
            await app.amigrate()
            calls = [asyncio.create_task(app.jobs.aenqueue("mail")) for _ in range(3)]
            await asyncio.sleep(0)
            app.jobs.enqueue("mail")
            waiting = asyncio.create_task(app.jobs.areserve("post", timeout=20))
            await asyncio.to_thread(waits, app, topic="post")
            app.jobs.enqueue("post")
            await asyncio.gather(*calls)
            return len(await waiting) + len(app.jobs.reserve("mail", limit=10))

    found: list[int] = []
    thread = Thread(target=lambda: found.append(asyncio.run(both_colours())), daemon=True)
    thread.start()
    thread.join(20)
    assert found == [5]


# ---------------------------------------------------------------- limits and counts


def test_no_more_callers_wait_for_a_topic_than_allowed(make_app, start):
    """DQ-9"""
    app = make_app(max_waiters_per_topic=2, poll_interval=FAR)
    waiting = [start(app), start(app, ["mail", "post"])]
    waits(app, 2)

    with pytest.raises(TooManyWaiters):
        start(app).result()
    with pytest.raises(TooManyWaiters):
        start(app, ["fax", "mail"]).result()
    assert app.jobs.stats_waiting() == {"mail": 2, "post": 1}

    app.jobs.enqueue("mail")
    app.jobs.enqueue("mail")
    for future in waiting:
        future.result()
    assert start(app, timeout=0.1).result() == []


def test_waiting_callers_are_counted_by_topic(app, start, colour):
    """DQ-15, DQ-6"""
    waiting = [start(app), start(app), start(app, ["mail", "post"])]
    waits(app, 3)

    assert colour(app).jobs.stats_waiting() == {"mail": 3, "post": 1}
    assert colour(app).queue("post").stats_waiting() == 1
    assert colour(app).queue("fax").stats_waiting() == 0

    app.jobs.enqueue_many("mail", range(3))
    for future in waiting:
        future.result()
    assert app.jobs.stats_waiting() == {}


# ---------------------------------------------------------------- the safety net


@pytest.mark.parametrize("where", [("postgres", "another app")], indirect=True, ids=" ".join)
def test_a_job_is_found_although_every_wakeup_is_lost(make_app, start, place):
    """FR-020: Polling is the truth: a row that was not announced."""
    app = make_app(poll_interval=0.2)
    waiting = start(app)
    waits(app)
    url, needed = place
    with psycopg.connect(url) as connection:
        [[seq]] = connection.execute(
            f"""insert into {needed["schema"]}.job
                       (created_at, run_at, priority, ttr, id, topic, encoding, payload)
                values (0, 0, 50, 1000000, %s, 'mail', 'json', '1') returning seq""",  # noqa: S608 - our own
            [uuid.uuid4()],
        )
        connection.execute(
            f"insert into {needed['schema']}.ready (seq, priority, topic) values (%s, 50, 'mail')",  # noqa: S608 - our own
            [seq],
        )

    [lease] = waiting.result()
    assert lease.job.seq == seq
