"""Tries: each lease of a job, its worker, and how it ended."""

from datetime import timedelta

from towpath.model.tries import TryOutcome


def outcomes(app, job):
    """Epoch, worker, seconds and outcome of each try."""
    return [
        (each.epoch, each.worker, (each.ended_at - each.started_at).seconds, str(each.outcome))
        for each in app.jobs.tries(job)
        if each.ended_at
    ]


def test_a_job_remembers_each_try_its_worker_and_its_outcome(app, clock):
    """US6-4"""
    job = app.jobs.enqueue("mail", max_retries=5, ttr=10)
    session = app.sessions.start("web-1")
    [lease] = app.jobs.reserve("mail", session=session)
    clock.advance(2)
    app.jobs.fail(lease, ValueError("no"), delay=0)
    [lease] = app.jobs.reserve("mail", worker="node-7")
    clock.advance(3)
    app.jobs.release(lease)
    app.jobs.reserve("mail", worker="node-8")
    clock.advance(11)
    app.upkeep.run()
    [lease] = app.jobs.reserve("mail")
    clock.advance(1)
    [*_, running] = app.jobs.tries(job)
    assert (running.outcome, running.ended_at) == (TryOutcome.RUNNING, None)
    assert clock.now - running.started_at == timedelta(seconds=1)
    app.jobs.complete(lease)

    assert outcomes(app, job) == [
        (1, "web-1", 2, "error"),
        (2, "node-7", 3, "released"),
        (3, "node-8", 11, "timeout"),
        (4, None, 1, "completed"),
    ]
    [first, *_] = app.jobs.tries(job)
    assert first.error == "ValueError: no"


def test_tries_that_are_no_failures_are_not_listed_as_such(app, clock):
    job = app.jobs.enqueue("mail", ttr=10)
    [lease] = app.jobs.reserve("mail")
    app.jobs.fail(lease, "the only error", delay=0)
    [lease] = app.jobs.reserve("mail")
    app.jobs.release(lease)
    app.jobs.reserve("mail")
    clock.advance(11)
    app.upkeep.run()

    found = app.jobs.get(job)
    assert (found.last_error, found.retries) == ("the only error", 1)
    assert [failure.error for failure in app.jobs.failures(job)] == ["the only error"]
    assert app.jobs.logs(job) == []
    assert [each.outcome for each in app.jobs.tries(job)] == ["error", "released", "timeout"]


def test_a_dead_worker_is_named_in_the_try_that_it_took_with_it(app, clock):
    """US5-2"""
    job = app.jobs.enqueue("mail")
    session = app.sessions.start("web-1")
    [lease] = app.jobs.reserve("mail", session=session)
    app.sessions.beat(session, started=[lease])
    app.upkeep.run()
    for _ in range(30):
        clock.advance(1)
        app.upkeep.run()

    [crashed] = app.jobs.tries(job)
    assert (crashed.worker, crashed.outcome) == ("web-1", TryOutcome.CRASH)
    assert crashed.error == "the worker died while it ran this job"


def test_a_cancelled_and_a_buried_try_are_remembered_too(app, clock):
    cancelled, buried, waiting = app.jobs.enqueue_many("mail", [1, 2, 3])
    first, second = app.jobs.reserve("mail", limit=2, worker="node-7")
    app.jobs.cancel(cancelled)
    app.jobs.cancel(waiting)
    clock.advance(4)
    app.jobs.release(first)
    app.jobs.bury(second)

    assert outcomes(app, cancelled) == [(1, "node-7", 4, "cancelled")]
    assert outcomes(app, buried) == [(1, "node-7", 4, "buried")]
    assert app.jobs.tries(waiting) == []


def test_of_many_releases_the_last_hundred_are_kept_and_every_error(app):
    job = app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")
    app.jobs.fail(lease, "long ago", delay=0)
    for _ in range(105):
        [lease] = app.jobs.reserve("mail")
        app.jobs.release(lease)

    tries = app.jobs.tries(job)
    assert [each.epoch for each in tries] == [1, *range(7, 107)]
    assert app.jobs.get(job).last_error == "long ago"


def test_what_is_known_of_the_tries_is_forgotten_with_the_job(app):
    job = app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")
    app.jobs.release(lease)
    app.jobs.delete(job)
    again = app.jobs.enqueue("mail", id=job.id)

    assert app.jobs.tries(again) == []
