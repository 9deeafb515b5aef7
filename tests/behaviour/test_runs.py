"""Jobs that choose their workers: N distinct ones, or only some by name (document 004)."""

import asyncio

import pytest

from tests.conftest import eventually
from tests.workers import ended, working
from towpath import Bury, Limit, State, Status
from towpath.errors import Invalid, MaxJobsReached, NotFound, TowpathError
from towpath.store import dependencies, leases, retention, runs, sessions


def take(app, worker, **options):
    """Reserve one run for a worker by its name, or nothing."""
    leases = app.jobs.reserve("deploy", worker=worker, **options)
    return leases[0] if leases else None


def states(app, job):
    return {run.worker: str(run.state) for run in app.jobs.runs(job)}


# ---------------------------------------------------------------- N distinct workers


def test_a_job_runs_on_n_distinct_workers_and_then_is_done(app):
    """MS-2"""
    job = app.jobs.enqueue("deploy", "v1", workers=2)
    first, second = take(app, "a"), take(app, "b")
    assert first.job.payload == second.job.payload == "v1"

    app.jobs.complete(first, "one")
    assert app.jobs.get(job).status is Status.PENDING
    app.jobs.complete(second, "two")

    found = app.jobs.get(job)
    assert (found.status, sorted(found.returned)) == (Status.COMPLETED, ["one", "two"])
    assert states(app, job) == {"a": "succeeded", "b": "succeeded"}


def test_no_more_run_at_once_than_are_wanted(app):
    """MS-2"""
    app.jobs.enqueue("deploy", workers=2)
    assert take(app, "a")
    assert take(app, "b")

    assert take(app, "c") is None


def test_a_worker_that_ran_it_never_gets_it_again(app):
    """MS-2"""
    app.jobs.enqueue("deploy", workers=2)
    lease = take(app, "a")
    assert take(app, "a") is None
    app.jobs.complete(lease)

    assert take(app, "a") is None
    assert take(app, "b") is not None


def test_without_a_name_nobody_gets_it(app):
    app.jobs.enqueue("deploy", workers=2)

    assert app.jobs.reserve("deploy") == []


def test_what_becomes_of_a_job_follows_from_its_runs(app):
    """MS-6"""
    job = app.jobs.enqueue("deploy", workers=1, max_unexpected_retries=1)
    assert (app.jobs.get(job).state, states(app, job)) == (State.BLOCKED, {})
    lease = take(app, "a")
    assert states(app, job) == {"a": "running"}
    app.jobs.fail(lease, "no")
    assert (app.jobs.get(job).status, states(app, job)) == (Status.PENDING, {"a": "failed"})

    app.jobs.complete(take(app, "b"), "well")

    assert (app.jobs.get(job).status, app.jobs.get(job).returned) == (Status.COMPLETED, "well")


def test_more_failed_workers_than_allowed_fail_the_job(app):
    """MS-5"""
    job = app.jobs.enqueue("deploy", workers=3, max_unexpected_retries=1)
    first, second = take(app, "a"), take(app, "b")
    app.jobs.fail(first, "no disk")
    assert app.jobs.get(job).status is Status.PENDING

    app.jobs.fail(second, "no disk either")

    found = app.jobs.get(job)
    assert (found.status, found.last_error) == (Status.FAILED, "no disk either")
    assert take(app, "c") is None


def test_those_who_still_run_are_asked_to_stop_when_it_is_over(app):
    job = app.jobs.enqueue("deploy", workers=2)
    first, second = take(app, "a"), take(app, "b")
    app.jobs.fail(first, "no")
    assert app.jobs.get(job).status is Status.FAILED

    assert app.jobs.get(second.job).cancel_requested


def test_crashes_are_counted_apart_and_bounded(app):
    """MS-5"""
    job = app.jobs.enqueue("deploy", max_crashes=2, only_workers=["a", "b", "c"])
    for worker in ("a", "b"):
        session = app.sessions.start(worker)
        assert take(app, worker, session=session)
        [[found, beats, _]] = [each for each in observed(app) if each[0] == session]
        bury(app, found, beats)

    assert states(app, job) == {"a": "crashed", "b": "crashed"}
    assert app.jobs.get(job).status is Status.FAILED


def observed(app):
    return plain(app).run(sessions.observe())


def bury(app, session, beats):
    plain(app).run(sessions.bury_session(session, beats))


def plain(app):
    return getattr(app, "_thing", app)


def test_a_run_that_is_given_back_leaves_its_place_to_any(app):
    job = app.jobs.enqueue("deploy", workers=1)
    app.jobs.release(take(app, "a"))
    assert states(app, job) == {}

    assert take(app, "a") is not None


@pytest.mark.parametrize("end", ["complete", "fail"])
@pytest.mark.parametrize("where", ["before it is noted", "before the job is weighed"])
def test_upkeep_finds_a_run_whose_end_was_told_only_half(app, monkeypatch, end, where):
    """As by a worker that died between two statements."""
    job = app.jobs.enqueue("deploy", workers=1)
    lease = take(app, "a")
    with monkeypatch.context() as patch:
        if where == "before it is noted":
            patch.setattr(leases, "told", died)
        else:
            patch.setattr(runs, "_weighed", died)
            patch.setattr(dependencies, "_told_of", died)
        if end == "complete":
            app.jobs.complete(lease)
        else:
            app.jobs.fail(lease, "no")
    assert app.jobs.get(job).status is Status.PENDING

    app.upkeep.run()

    assert app.jobs.get(job).status is (Status.COMPLETED if end == "complete" else Status.FAILED)


@pytest.mark.parametrize("gone", ["deleted", "pruned", "offered again"])
def test_a_failed_run_that_its_job_never_heard_of_leaves_nothing(app, clock, monkeypatch, gone):
    """Its worker died right after the failure was stored, and upkeep tells too late."""
    job = app.jobs.enqueue("deploy", workers=2, retention=60)
    run = take(app, "a")
    with monkeypatch.context() as patch:
        patch.setattr(leases, "told", died)
        app.jobs.fail(run, "no")
    if gone == "deleted":
        app.jobs.delete(job)
    else:
        app.jobs.cancel(job)
    if gone == "pruned":
        clock.advance("2m")
        plain(app).run(retention.prune())
    if gone == "offered again":
        app.jobs.requeue(job)

    app.upkeep.run()

    with pytest.raises(NotFound):
        app.jobs.get(run.job)
    assert app.jobs.stats().buried == 0
    assert app.jobs.kick("deploy", 9) == 0  # what is buried there would be refused


def died(*_):
    """Stand for what a worker that died did not do any more."""
    return frozenset()
    yield


@pytest.mark.parametrize("verb", ["delete", "requeue"])
def test_a_run_that_its_job_forgets_is_asked_to_stop(app, monkeypatch, verb):
    """Also where the one that failed the job died before it could ask."""
    job = app.jobs.enqueue("deploy", workers=2)
    first, second = take(app, "a"), take(app, "b")
    with monkeypatch.context() as patch:
        patch.setattr(runs, "withdraw", died)
        app.jobs.fail(first, "no")
    assert not app.jobs.get(second.job).cancel_requested

    getattr(app.jobs, verb)(job)

    assert app.jobs.get(second.job).cancel_requested
    assert (take(app, "c") is not None) is (verb == "requeue")
    app.jobs.fail(second, "no")
    assert app.jobs.get(second.job).status is Status.CANCELLED


# ---------------------------------------------------------------- by name


def test_only_those_who_are_named_get_it(app):
    """MS-3"""
    app.jobs.enqueue("deploy", only_workers=["b"])

    assert take(app, "a") is None
    assert take(app, "b") is not None


def test_jobs_that_name_a_worker_come_first(app):
    """MS-3"""
    app.jobs.enqueue("deploy", "for anybody", workers=1, priority=0)
    app.jobs.enqueue("deploy", "for b", only_workers=["b"], priority=99)

    assert take(app, "b").job.payload == "for b"


def test_a_runner_that_is_no_longer_named_is_stopped(app):
    """MS-7"""
    app.jobs.enqueue("deploy", 1, key="k", only_workers=["a", "b"])
    lease = take(app, "a")

    app.jobs.enqueue("deploy", 1, key="k", only_workers=["b"], unique="update")

    assert app.jobs.get(lease.job).cancel_requested


def test_other_changes_hold_from_the_next_claim(app):
    """MS-7"""
    app.jobs.enqueue("deploy", 1, key="k", workers=2, timeout=10)
    first = take(app, "a")

    app.jobs.enqueue("deploy", 2, key="k", workers=2, timeout=20, unique="update")

    second = take(app, "b")
    assert (first.job.payload, first.job.options.timeout) == (1, 10)
    assert (second.job.payload, second.job.options.timeout) == (2, 20)


def test_more_workers_can_be_wanted_later(app):
    """MS-7"""
    job = app.jobs.enqueue("deploy", 1, key="k", workers=1)
    take(app, "a")
    assert take(app, "b") is None

    again = app.jobs.enqueue("deploy", 1, key="k", workers=2, unique="update")

    assert again.id == job.id
    assert take(app, "b") is not None


# ---------------------------------------------------------------- pings


def test_a_silent_runner_is_preempted_told_and_refused(app, clock):
    """MS-4"""
    job = app.jobs.enqueue("deploy", workers=1, ping_interval=1, worker_timeout=5, max_crashes=3)
    old = take(app, "a", session=app.sessions.start("a"))
    clock.advance(4)
    app.jobs.touch(old)
    clock.advance(4)
    assert take(app, "b") is None  # it has just been heard of
    clock.advance(2)
    app.upkeep.run()

    new = take(app, "b")

    assert states(app, job) == {"a": "crashed", "b": "running"}
    with pytest.raises(TowpathError):
        app.jobs.complete(old, "stale")
    app.jobs.complete(new, "fresh")
    assert app.jobs.get(job).returned == "fresh"


# ---------------------------------------------------------------- as any other job


def test_it_can_be_cancelled_and_its_runs_with_it(app):
    job = app.jobs.enqueue("deploy", workers=2)
    lease = take(app, "a")

    app.jobs.cancel(job)

    assert app.jobs.get(job).status is Status.CANCELLED
    assert app.jobs.get(lease.job).cancel_requested
    assert take(app, "b") is None


@pytest.mark.parametrize("verb", ["requeue", "kick_job", "kick"])
def test_a_failed_one_begins_anew_with_all_workers(app, verb):
    job = app.jobs.enqueue("deploy", workers=1)
    run = take(app, "a")
    app.jobs.fail(run, "no")
    assert app.jobs.get(job).status is Status.FAILED

    if verb == "kick":
        app.jobs.kick("deploy", 5)
    else:
        getattr(app.jobs, verb)(job)

    app.jobs.complete(take(app, "a"))
    assert app.jobs.get(job).status is Status.COMPLETED


def test_a_run_that_failed_is_remembered_with_its_job_and_is_no_job_itself(app):
    job = app.jobs.enqueue("deploy", workers=1)
    run = take(app, "a")
    app.jobs.fail(run, "no")

    assert [failure.error for failure in app.jobs.failures(job)] == ["no"]
    assert app.jobs.list(status="failed") == [app.jobs.get(job)]
    with pytest.raises(NotFound):
        app.jobs.get(run.job)


def test_it_can_be_deleted(app):
    job = app.jobs.enqueue("deploy", workers=2)
    app.jobs.delete(job)

    assert take(app, "a") is None


def test_others_can_wait_for_it(app):
    job = app.jobs.enqueue("deploy", workers=2)
    last = app.jobs.enqueue("report", after=[job])
    for worker in "ab":
        app.jobs.complete(take(app, worker))

    assert app.jobs.get(last).state is State.READY


def test_a_paused_topic_offers_nothing(app):
    app.jobs.enqueue("deploy", workers=2)
    app.topics.pause("deploy")

    assert take(app, "a") is None


def test_a_delayed_one_is_offered_when_its_time_has_come(app, clock):
    app.jobs.enqueue("deploy", workers=1, delay=60)
    assert take(app, "a") is None

    clock.advance(60)

    assert take(app, "a") is not None


@pytest.mark.parametrize(
    "options",
    [
        {"workers": 0},
        {"only_workers": []},
        {"only_workers": "a"},
        {"only_workers": [7]},
        {"ping_interval": 5},
        {"ping_interval": 5, "worker_timeout": 5},
        {"workers": 2, "limit": Limit("x", concurrency=1)},
        {"workers": 2, "after": ["00000000-0000-7000-8000-000000000000"]},
    ],
)
@pytest.mark.one_database
def test_what_makes_no_sense_is_refused(app, options):
    with pytest.raises(Invalid):
        app.jobs.enqueue("deploy", **options)

    assert app.jobs.stats().pending == 0


# ---------------------------------------------------------------- real workers


@pytest.fixture
def live(make_app):
    return make_app(beat_every=0.2, dead_after=5)


def test_real_workers_share_a_job_that_wants_two_of_them(live):
    """MS-2"""
    ran = []

    @live.task()
    async def deploy() -> int:
        ran.append(1)
        return len(ran)

    with working(live, name="a"), working(live, name="b"):
        job = deploy.using(workers=2).enqueue()
        assert ended(live, job).status is Status.COMPLETED

    assert len(ran) == 2
    assert set(states(live, job)) == {"a", "b"}


def test_what_was_not_expected_is_tried_again_by_the_same_worker(live):
    """MS-5"""
    tries = []

    @live.task()
    async def deploy() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError
        return "well"

    with working(live, name="a"):
        job = deploy.using(
            workers=1, max_unexpected_retries=2, unexpected_retry_delay=0.01
        ).enqueue()
        assert ended(live, job).returned == "well"

    assert states(live, job) == {"a": "succeeded"}


def test_a_word_of_the_task_itself_is_not_tried_again(live):
    """MS-5"""
    tries = []

    @live.task()
    async def deploy() -> None:
        tries.append(1)
        raise Bury

    with working(live, name="a"):
        job = deploy.using(workers=1, max_unexpected_retries=5).enqueue()
        eventually(lambda: states(live, job) == {"a": "failed"})

    assert len(tries) == 1


def test_a_run_shows_that_it_lives_while_it_runs(live):
    """MS-4"""

    @live.task()
    async def deploy() -> str:
        await asyncio.sleep(1.5)
        return "well"

    with working(live, name="a"), working(live, name="b"):
        job = deploy.using(workers=1, ping_interval=0.1, worker_timeout=1).enqueue()
        assert ended(live, job).returned == "well"

    assert len(states(live, job)) == 1


def test_a_new_ping_interval_holds_from_the_next_ping(app, clock):
    """MS-7"""
    app.jobs.enqueue("deploy", 1, key="k", ping_interval=1, worker_timeout=9)
    lease = take(app, "a")
    options = {"ping_interval": 3, "worker_timeout": 9, "unique": "update"}
    app.jobs.enqueue("deploy", 1, key="k", **options)

    assert plain(app).run(leases.ping(lease.job.seq, lease.epoch, 9_000_000)) == 3


def test_a_running_task_hears_that_it_is_no_longer_named(live):
    """MS-7"""

    @live.task()
    async def deploy() -> None:
        await asyncio.sleep(30)

    with working(live, name="a"):
        job = deploy.using(key="k", only_workers=["a", "b"]).enqueue()
        eventually(lambda: states(live, job) == {"a": "running"})
        deploy.using(key="k", only_workers=["b"], unique="update").enqueue()
        eventually(lambda: states(live, job) == {"a": "cancelled"})

    assert live.jobs.get(job).status is Status.PENDING


def test_a_step_of_a_flow_does_not_choose_its_workers(live):
    """It would run once, on any worker."""

    @live.task()
    def deploy() -> None: ...

    with pytest.raises(Invalid, match="workers"):
        (deploy.s() | deploy.using(workers=2).s()).enqueue()
    assert live.jobs.list() == []


def test_the_bounds_of_a_topic_hold_for_it_too(make_app):
    """DQ-9"""
    app = make_app(max_jobs_per_topic=1)
    app.jobs.enqueue("deploy", workers=2)

    with pytest.raises(MaxJobsReached):
        app.jobs.enqueue("deploy", workers=2)
