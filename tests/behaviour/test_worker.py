"""Workers: what they run, how often, and how they stop."""

import asyncio
import contextlib
import logging
import os
import re
import threading
import time

import pytest

from tests import workers
from tests.conftest import eventually
from towpath import Backoff, Bury, Cancel, Context, Retry
from towpath.errors import Invalid, JobFailed
from towpath.store import sessions
from towpath.worker import Worker
from towpath.worker import worker as worker_module

AT_ONCE = Backoff(first=0.0)


@pytest.fixture
def app(make_app):
    return make_app(beat_every=0.1, dead_after=5)


@pytest.fixture
def working():
    return workers.working


def ended(app, job, seconds=10):
    """Wait until a job has ended, and read it."""
    eventually(lambda: app.jobs.get(job.id).status not in {"pending", "processing"}, seconds)
    return app.jobs.get(job.id)


def test_a_worker_runs_async_and_blocking_tasks(app, working):
    """US2-1"""

    @app.task()
    async def double(number: int) -> int:
        return number * 2

    @app.task()
    def halve(number: int) -> float:
        return number / 2

    with working(app):
        assert double.enqueue(21).result(10) == 42
        assert halve.enqueue(21).result(10) == 10.5
    assert app.jobs.stats().completed == 2


def test_a_job_goes_from_pending_through_processing_to_completed(app, working):
    """US2-2, US2-1, US2-3"""
    started, gate = threading.Event(), threading.Event()

    @app.task()
    def wait() -> str:
        started.set()
        gate.wait(30)
        return "done"

    job = wait.enqueue()
    statuses = [app.jobs.get(job.id).status]
    with working(app):
        assert started.wait(30)
        statuses.append(app.jobs.get(job.id).status)
        gate.set()
        statuses.append(ended(app, job).status)
    assert statuses == ["pending", "processing", "completed"]


def test_two_workers_share_a_topic(app, working):
    """US10-2, US2-5, US10-3: each job runs once, and both have a part in it."""
    runs, both = [], threading.Barrier(2)

    @app.task()
    def share(number: int) -> None:
        runs.append(number)
        if number < 2:
            both.wait(30)  # one worker alone has one slot

    jobs = share.enqueue_many([{"number": n} for n in range(50)])
    with working(app, concurrency=1), working(app, concurrency=1):
        for job in jobs:
            job.result(30)

    assert sorted(runs) == list(range(50))
    assert {app.jobs.get(job.id).epoch for job in jobs} <= {1, 2}  # one may be given back unseen


def test_each_topic_has_the_task_that_was_registered_for_it(app, working):
    """US10-1, US10-5: a worker takes the topics that it is told, or all that have a task."""

    @app.task(topic="mail")
    async def send() -> str:
        return "sent"

    @app.task(topic="report")
    def write() -> str:
        return "written"

    with working(app, topics=["report"]):
        mail = send.enqueue()
        assert write.enqueue().result(30) == "written"
        assert app.jobs.get(mail.id).status == "pending"
    with working(app):
        assert mail.result(30) == "sent"


def test_a_failure_is_kept_and_the_job_waits_for_its_next_try(app, working):
    """US2-4"""

    @app.task()
    async def fail() -> None:
        raise ValueError("no ink")

    job = fail.enqueue()
    with working(app):
        eventually(lambda: app.jobs.get(job.id).retries)

    found = app.jobs.get(job.id)
    assert (found.state, found.last_error) == ("delayed", "ValueError: no ink")
    assert "raise ValueError" in app.jobs.failures(job)[0].traceback
    assert 55 <= (found.run_at - found.created_at).total_seconds() <= 70


def test_the_last_failure_buries_the_job(app, working):
    """US4-4"""
    tries = []

    @app.task(max_retries=3, backoff=AT_ONCE)
    async def fail(ctx: Context) -> None:
        tries.append(ctx.tries)
        raise ValueError("no ink")

    with working(app):
        job = fail.enqueue()
        with pytest.raises(JobFailed, match="no ink"):
            job.result(10)

    assert tries == [0, 1, 2]


def test_a_task_says_what_is_to_become_of_its_job(app, working):
    seen = []

    @app.task(backoff=AT_ONCE)
    async def choose(how: str) -> str:
        seen.append(how)
        if how == "retry" and seen.count("retry") == 1:
            raise Retry(after=0)
        if how == "cancel":
            raise Cancel
        if how == "bury":
            raise Bury
        return how

    with working(app):
        retry, cancel, bury = (choose.enqueue(how) for how in ("retry", "cancel", "bury"))
        assert retry.result(10) == "retry"
        assert ended(app, cancel).state == "cancelled"
        assert ended(app, bury).state == "buried"
    assert app.jobs.get(retry.id).retries == 1


def test_retry_counts_as_a_failure_so_that_it_ends(app, working):
    @app.task(max_retries=2)
    async def again() -> None:
        raise Retry(after=0)

    with working(app):
        assert ended(app, again.enqueue()).retries == 2


def test_a_job_over_its_time_limit_is_stopped_and_counts_as_a_failure(app, working):
    """EC-2, FR-019: ten minutes unless told otherwise."""
    stopped = []

    @app.task(timeout=0.1, max_retries=1)
    async def sleep() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.append(True)

    assert app.jobs.enqueue("other").options.timeout == 600
    with working(app):
        job = ended(app, sleep.enqueue())
    assert job.last_error == "TimeLimitExceeded: the job ran longer than its timeout of 0.1 s"
    assert stopped == [True]


def test_a_timeout_of_the_tasks_own_is_its_own(app, working):
    @app.task(max_retries=1)
    async def connect() -> None:
        raise TimeoutError("the printer is far away")

    with working(app):
        job = ended(app, connect.enqueue())
    assert job.last_error == "TimeoutError: the printer is far away"


def test_a_running_job_that_is_cancelled_stops(app, working):
    started = threading.Event()

    @app.task()
    async def sleep() -> None:
        started.set()
        await asyncio.sleep(60)

    @app.task()
    def wait(ctx: Context) -> str:
        started.set()
        while not ctx.cancelled:
            time.sleep(0.01)
        return "stopped"

    with working(app):
        for task in (sleep, wait):
            job = task.enqueue()
            assert started.wait(10)
            started.clear()
            app.jobs.cancel(job.id)
            assert ended(app, job).state == "cancelled"


def test_a_task_that_is_cancelled_may_tidy_up(app, working):
    """Though each beat of the heart says again that it is to stop."""
    started, tidied = threading.Event(), []

    @app.task()
    async def sleep() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            beats = beats_of(app)
            while beats_of(app) < beats + 3:  # noqa: ASYNC110 - the heart tells no caller
                await asyncio.sleep(0.01)
            tidied.append(True)

    with working(app):
        job = sleep.enqueue()
        assert started.wait(10)
        app.jobs.cancel(job.id)
        assert ended(app, job).state == "cancelled"
    assert tidied == [True]


def beats_of(app):
    [(_, beats, _)] = app.run(sessions.observe())
    return beats


def test_a_task_runs_what_was_put_as_the_text_of_its_arguments(app, working):
    """DQ-17: as clients of beanstalkd put it."""

    @app.task()
    def resize(image: int, big: bool = False) -> list[int | bool]:
        return [image, big]

    text = app.jobs.enqueue("resize", b' {"image": 7, "big": true}')
    raw = app.jobs.enqueue("resize", b"\x00\xff", max_retries=1)
    with working(app):
        assert ended(app, text).returned == [7, True]
        assert ended(app, raw).last_error == (
            "InvalidArguments: the payload of resize is bytes; "
            "a task needs a JSON object of arguments"
        )


def test_a_result_that_cannot_be_stored_fails_the_job(app, working):
    @app.task(max_retries=1)
    async def report() -> object:
        return object()

    with working(app):
        assert "the result is not JSON" in ended(app, report.enqueue()).last_error


def test_ten_jobs_run_at_once_unless_told_otherwise(app, working):
    """US10-4"""
    now, most = [0], [0]

    @app.task()
    async def count() -> None:
        now[0] += 1
        most[0] = max(most[0], now[0])
        await asyncio.sleep(0.02)
        now[0] -= 1

    jobs = [count.enqueue() for _ in range(40)]
    with working(app):
        for job in jobs:
            job.result(20)
    assert most == [10]


def test_two_thousand_sleeping_tasks_run_at_once_in_one_worker(app, working):
    now, everybody = [0], asyncio.Event()

    @app.task()
    async def sleep() -> None:
        now[0] += 1
        if now[0] == 2_000:
            everybody.set()
        await everybody.wait()

    jobs = sleep.enqueue_many([{}] * 2_000)
    with working(app, concurrency=2_000):
        for job in jobs:
            job.result(50)
    assert now == [2_000]


# ---------------------------------------------------------------- concurrency of a topic


def test_a_topic_has_its_own_concurrency_and_holds_nobody_else_up(app, working):
    """What cannot run is not reserved either: another worker may have room for it."""
    now, most, gate = [0], [0], threading.Event()

    @app.task(concurrency=2, priority=0)
    async def narrow() -> None:
        now[0] += 1
        most[0] = max(most[0], now[0])
        await asyncio.to_thread(gate.wait, 30)
        now[0] -= 1

    @app.task()
    async def wide() -> None: ...

    slow = narrow.enqueue_many([{}] * 9)
    with working(app, concurrency=5):
        for job in wide.enqueue_many([{}] * 100):
            job.result(30)
        assert [app.jobs.get(job.id).status for job in slow].count("processing") == 2
        gate.set()
        for job in slow:
            job.result(30)
    assert most == [2]
    assert {app.jobs.get(job.id).epoch for job in slow} <= {1, 2}


def test_a_topic_that_was_full_is_served_as_soon_as_it_has_room(make_app, working, monkeypatch):
    """The worker does not wait out a reservation in its other topics."""
    monkeypatch.setattr(worker_module, "RESERVE_TIMEOUT", 3_600)
    app = make_app(dead_after=7_200)

    @app.task(concurrency=1)
    async def narrow(number: int) -> int:
        await asyncio.sleep(0)
        return number

    @app.task()
    async def never() -> None: ...

    jobs = narrow.enqueue_many([{"number": n} for n in range(20)])
    with working(app):
        assert [job.result(30) for job in jobs] == list(range(20))


def test_concurrency_is_at_least_one(app):
    with pytest.raises(Invalid, match="concurrency must be at least 1"):

        @app.task(concurrency=0)
        async def never() -> None: ...


def test_a_reservation_takes_at_most_so_many_of_a_topic(make_app, colour):
    app = colour(make_app())
    app.jobs.enqueue_many("narrow", [1, 2, 3], priority=0)
    app.jobs.enqueue_many("wide", [4, 5, 6])

    leases = app.jobs.reserve(["narrow", "wide"], limit=4, most={"narrow": 1})
    assert [lease.job.payload for lease in leases] == [1, 4, 5, 6]
    assert len(app.jobs.reserve("narrow", limit=4, most={"narrow": 1})) == 1


def test_what_was_reserved_ahead_is_given_back_when_nothing_moves(app, working, monkeypatch):
    """Another worker may have room for it."""
    ahead = [5]
    monkeypatch.setattr(worker_module.Pace, "ahead", lambda _: ahead[0])
    gate = threading.Event()

    @app.task()
    def wait() -> None:
        gate.wait(30)

    jobs = wait.enqueue_many([{}] * 6)
    with working(app, concurrency=1):
        eventually(lambda: app.jobs.stats().reserved == 6)
        ahead[0] = 0
        eventually(lambda: app.jobs.stats().reserved == 1)
        gate.set()
        for job in jobs:
            job.result(30)
    assert app.jobs.stats().completed == 6


# ---------------------------------------------------------------- what tasks may do to a worker


def test_a_thread_past_its_time_limit_keeps_its_slot_until_it_ends(app, working, caplog):
    gate, runs = threading.Event(), []

    @app.task(timeout=0.1, max_retries=1)
    def stuck() -> None:
        gate.wait(60)

    @app.task()
    def after() -> None:
        runs.append(gate.is_set())

    with working(app, concurrency=1):
        job = ended(app, stuck.enqueue())
        assert job.last_error == "TimeLimitExceeded: the job ran longer than its timeout of 0.1 s"
        assert f"job {job.id} of topic 'stuck' has ended, but its thread still runs" in caplog.text
        waiting = after.enqueue()
        time.sleep(0.3)  # it would have begun by now
        assert app.jobs.get(waiting.id).state == "ready"
        gate.set()
        waiting.result(30)
    assert runs == [True]


def test_a_task_that_does_not_stop_is_given_back_all_the_same(app, caplog):
    """A worker ends without it; only its loop cannot."""
    started, gate = asyncio.Event(), asyncio.Event()

    @app.task()
    async def stubborn() -> None:
        started.set()
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()

    job = stubborn.enqueue()

    async def work():
        worker = Worker(app, grace=0)
        working = asyncio.create_task(worker.arun())
        await started.wait()
        worker.stop()
        await working
        state = (await app.jobs.aget(job.id)).state
        gate.set()
        return state

    assert asyncio.run(work()) == "ready"
    assert f"job {job.id} does not stop" in caplog.text


def test_a_worker_ends_though_a_thread_does_not(app, working):
    gate, started = threading.Event(), threading.Event()

    @app.task()
    def stuck() -> None:
        started.set()
        gate.wait(60)

    job = stuck.enqueue()
    with working(app, grace=0.1):
        assert started.wait(30)
    found = app.jobs.get(job.id)
    assert (found.state, found.retries, found.crashes) == ("ready", 0, 0)
    gate.set()


class Unreadable(Exception):
    def __str__(self):
        raise ValueError("I do not tell")


class NotOurs(BaseException):
    """What some libraries raise past every `except Exception`."""


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (SystemExit("enough"), "the task exited: enough"),
        (KeyboardInterrupt(), "the task raised KeyboardInterrupt"),
        (NotOurs("odd"), "the task raised NotOurs"),
        (asyncio.CancelledError(), "the task was cancelled"),
        (Unreadable(), "Unreadable: <exception text unavailable: __str__ raised>"),
        (StopIteration("early"), "StopIteration"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, BaseException) else "",
)
def test_whatever_a_task_raises_is_the_failure_of_its_job(app, working, error, kept):
    """MS-9"""

    @app.task(max_retries=1)
    async def fail() -> None:
        raise error

    @app.task(max_retries=1)
    def fail_too() -> None:
        raise error

    @app.task()
    async def go_on() -> str:
        return "well"

    with working(app, concurrency=1):
        for task in (fail, fail_too):
            assert kept in ended(app, task.enqueue()).last_error
        assert go_on.enqueue().result(10) == "well"


def test_a_task_that_calls_itself_without_end_fails_alone(app, working):
    """MS-9"""

    @app.task(max_retries=1)
    async def deep() -> None:
        def dig() -> None:
            dig()

        dig()

    with working(app):
        assert "RecursionError" in ended(app, deep.enqueue()).last_error


def test_a_worker_has_a_name_that_no_other_has(app):
    """MS-9"""

    @app.task()
    async def known() -> None: ...

    names = {Worker(app).name for _ in range(100)}
    assert len(names) == 100
    assert all(f"-{os.getpid()}-" in name for name in names)
    assert Worker(app, name="first").name == "first"


def test_a_job_of_an_unknown_topic_stays_pending(app, working):
    """EC-3"""

    @app.task()
    async def known() -> None: ...

    other = app.jobs.enqueue("unknown")
    with working(app):
        known.enqueue().result(10)
    assert app.jobs.get(other.id).status == "pending"


def test_a_worker_without_a_task_is_refused(app):
    with pytest.raises(Invalid, match="no tasks"):
        Worker(app)

    @app.task()
    async def known() -> None: ...

    with pytest.raises(Invalid, match="no task for topic unknown; known topics: "):
        Worker(app, topics=["unknown"])


# ---------------------------------------------------------------- stopping


def test_a_worker_that_stops_finishes_what_runs_and_takes_nothing_more(app, working):
    """DQ-14"""
    started = threading.Event()

    @app.task()
    async def slow(number: int) -> int:
        started.set()
        await asyncio.sleep(0.3)
        return number

    first = slow.enqueue(1)
    with working(app, concurrency=1):
        assert started.wait(10)
        second = slow.enqueue(2)

    assert app.jobs.get(first.id).returned == 1
    found = app.jobs.get(second.id)
    assert (found.state, found.retries, found.releases, found.crashes) == ("ready", 0, 0, 0)


def test_what_is_not_finished_in_the_grace_period_is_given_back_uncounted(app, working):
    """DQ-14"""
    started = threading.Event()

    @app.task()
    async def endless() -> None:
        started.set()
        await asyncio.sleep(60)

    job = endless.enqueue()
    with working(app, grace=0.1):
        assert started.wait(10)

    found = app.jobs.get(job.id)
    assert (found.state, found.retries, found.crashes, found.timeouts) == ("ready", 0, 0, 0)


def test_a_worker_leaves_no_session_behind(app, working):
    @app.task()
    async def known() -> None: ...

    with working(app):
        known.enqueue().result(10)
        assert len(app.run(sessions.observe())) == 1

    assert app.run(sessions.observe()) == []


def test_a_worker_that_is_stopped_before_it_begins_takes_nothing(app):
    @app.task()
    async def known() -> None: ...

    known.enqueue()
    worker = Worker(app)
    worker.stop()
    asyncio.run(worker.arun())

    assert app.jobs.stats().ready == 1


def test_a_worker_goes_on_when_its_outcomes_are_written(app, working, monkeypatch):
    """It takes nothing new while too many of them wait."""
    monkeypatch.setattr(worker_module, "MOST_UNWRITTEN", 0)

    @app.task()
    async def known() -> None: ...

    jobs = known.enqueue_many([{}] * 50)
    with working(app):
        for job in jobs:
            job.result(10)


def test_a_thousand_short_jobs_run_once_each(app, working):
    runs = []

    @app.task()
    async def short(number: int) -> None:
        runs.append(number)

    jobs = short.enqueue_many([{"number": n} for n in range(1_000)])
    with working(app):
        for job in jobs:
            job.result(30)

    assert sorted(runs) == list(range(1_000))
    assert app.jobs.stats().completed == 1_000


def test_the_start_and_the_end_of_a_run_are_a_line_each(app, working, caplog):
    """With its duration; with a traceback only where no other try follows."""
    caplog.set_level(logging.INFO, "towpath")

    @app.task(max_retries=2, backoff=AT_ONCE)
    async def mail(to: str) -> None:
        if to == "eve":
            raise ValueError(to)

    with working(app, concurrency=1):
        ended(app, mail.enqueue("ada"))
        ended(app, mail.enqueue("eve"))

    lines = [(each.levelname, each.getMessage()) for each in caplog.records]
    shown = [(level, re.sub(r"after \d+\.\d{3} s", "after … s", text)) for level, text in lines]
    last = shown.pop()
    assert shown == [
        ("INFO", "job 1 of topic 'mail' has started"),
        ("INFO", "job 1 of topic 'mail' has completed after … s"),
        ("INFO", "job 2 of topic 'mail' has started"),
        (
            "WARNING",
            "job 2 of topic 'mail' failed after … s and is tried again in 0 s: ValueError: eve",
        ),
        ("INFO", "job 2 of topic 'mail' has started"),
    ]
    told = "job 2 of topic 'mail' failed after … s and is buried: ValueError: eve\nTraceback"
    assert last[0] == "ERROR"
    assert last[1].startswith(told)


def test_a_burst_ends_when_no_job_is_left_that_can_run_now(app):
    """What its own jobs enqueue counts; what is delayed or paused does not."""

    @app.task(concurrency=1)
    async def count_down(number: int) -> None:
        if number:
            await count_down.aenqueue(number - 1)

    @app.task()
    def paused() -> None: ...

    later = count_down.using(delay="1h").enqueue(0)
    paused.enqueue()
    app.topics.pause("paused")
    count_down.enqueue(3)
    Worker(app, burst=True).run()

    assert app.jobs.stats().completed == 4
    assert app.jobs.get(later).state == "delayed"
    Worker(app, burst=True).run()  # there is nothing to do
