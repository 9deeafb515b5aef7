"""Workers: what they run, how often, and how they stop."""

import asyncio
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

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
    """Run a worker in a thread for a while."""

    @contextlib.contextmanager
    def working(app, **options):
        worker = Worker(app, **options)
        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(asyncio.run, worker.arun())
            try:
                yield worker
            finally:
                eventually(lambda: worker._loop)
                worker.stop()
                running.result(20)

    return working


def ended(app, job, seconds=10):
    """Wait until a job has ended, and read it."""
    eventually(lambda: app.jobs.get(job.id).status not in {"pending", "processing"}, seconds)
    return app.jobs.get(job.id)


def test_us2_1_a_worker_runs_async_and_blocking_tasks(app, working):
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


def test_us2_4_a_failure_is_kept_and_the_job_waits_for_its_next_try(app, working):
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


def test_us4_4_the_last_failure_buries_the_job(app, working):
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


def test_ec_2_a_job_over_its_time_limit_is_stopped_and_counts_as_a_failure(app, working):
    """FR-019: ten minutes unless told otherwise."""
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
    assert job.last_error == "TimeLimitExceeded: it ran longer than 0.1 s"
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


def test_a_payload_that_no_longer_fits_fails_the_job_and_not_the_worker(app, working):
    @app.task(max_retries=1)
    async def greet(name: str) -> str:
        return f"hello {name}"

    with working(app):
        old = app.jobs.enqueue("greet", {"nom": "Ada"}, max_retries=1)
        assert "Object contains unknown field `nom`" in ended(app, old).last_error
        assert greet.enqueue("Ada").result(10) == "hello Ada"


def test_a_result_that_cannot_be_stored_fails_the_job(app, working):
    @app.task(max_retries=1)
    async def report() -> object:
        return object()

    with working(app):
        assert "the result is not JSON" in ended(app, report.enqueue()).last_error


def test_us10_4_ten_jobs_run_at_once_unless_told_otherwise(app, working):
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


def test_ec_3_a_job_of_an_unknown_topic_stays_pending(app, working):
    @app.task()
    async def known() -> None: ...

    other = app.jobs.enqueue("unknown")
    with working(app):
        known.enqueue().result(10)
    assert app.jobs.get(other.id).status == "pending"


def test_a_worker_without_a_task_is_refused(app):
    with pytest.raises(Invalid, match="there is no task"):
        Worker(app)

    @app.task()
    async def known() -> None: ...

    with pytest.raises(Invalid, match="there is no task for unknown"):
        Worker(app, topics=["unknown"])


# ---------------------------------------------------------------- stopping


def test_dq_14_a_worker_that_stops_finishes_what_runs_and_takes_nothing_more(app, working):
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


def test_dq_14_what_is_not_finished_in_the_grace_period_is_given_back_uncounted(app, working):
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
