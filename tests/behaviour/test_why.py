"""Why a job is where it is: one situation for each reason, and the sentence that explains it."""

from datetime import timedelta

from towpath import Limit
from towpath.model.states import State


def why(app, job, code):
    """Return the reason with this code."""
    found = {each.code: each for each in app.jobs.why(job)}
    assert code in found, found
    return found[code]


def codes(app, job):
    return [each.code for each in app.jobs.why(job)]


def labels(reason):
    return [each.label for each in reason.remedies]


def serve(app, topic, worker="web-1"):
    """Start a live worker of a topic."""
    return app.sessions.start(worker, [topic])


def test_a_delayed_job_says_until_when(app):
    job = app.jobs.enqueue("mail", delay=60)

    reason = why(app, job, "delayed")

    assert reason.message == "It is delayed: its time has not come."
    assert reason.until == job.run_at
    assert labels(reason) == ["Run now", "Cancel"]
    assert reason.remedies[0].path == f"/api/jobs/{job.id}/kick"


def test_a_job_that_is_due_says_that_it_will_be_put_in_line(app, clock):
    job = app.jobs.enqueue("mail", delay=60)
    clock.advance(61)

    assert codes(app, job) == ["due"]


def test_a_job_that_backs_off_says_what_went_wrong_and_how_often(app):
    job = app.jobs.enqueue("mail", max_retries=3)
    [lease] = app.jobs.reserve("mail")
    app.jobs.fail(lease, "SMTP: refused.\nand more", delay=30)

    reason = why(app, job, "backing_off")

    assert reason.message == (
        "It waits before its next try: 1 of at most 3 tries failed, with: SMTP: refused."
    )
    assert reason.until == app.jobs.get(job).run_at


def test_a_ready_job_of_a_paused_topic_says_so(app, clock):
    job = app.jobs.enqueue("mail")
    serve(app, "mail")
    app.topics.pause("mail", 60)

    reason = why(app, job, "paused")

    assert reason.message == "Topic mail is paused."
    assert reason.until == clock.now + timedelta(seconds=60)
    assert [each.path for each in reason.remedies] == ["/api/topics/mail/resume"]
    app.topics.pause("mail")
    assert why(app, job, "paused").until is None
    app.topics.resume("mail")
    assert codes(app, job) == ["in_line"]


def test_a_ready_job_that_no_worker_serves_says_so(app):
    job = app.jobs.enqueue("mail")
    serve(app, "reports")

    assert "No live worker serves topic mail" in why(app, job, "no_worker").message
    serve(app, "mail")
    assert codes(app, job) == ["in_line"]


def test_a_client_that_holds_a_lease_serves_the_topic_too(app):
    job, other = app.jobs.enqueue_many("mail", [1, 2])
    app.jobs.reprioritise(other, 1)
    app.jobs.reserve("mail")

    assert codes(app, job) == ["in_line"]


def test_a_silent_worker_serves_nothing(app, clock):
    job = app.jobs.enqueue("mail")
    serve(app, "mail")
    clock.advance(app.settings.dead_after + 1)

    assert codes(app, job) == ["no_worker", "in_line"]


def test_a_ready_job_says_how_many_are_before_it_and_when_its_turn_comes(app, clock):
    serve(app, "mail")
    app.jobs.enqueue_many("mail", range(10))
    for _ in range(10):
        [lease] = app.jobs.reserve("mail")
        app.jobs.complete(lease)
    app.jobs.enqueue_many("mail", range(4))
    app.jobs.enqueue("mail", priority=60)
    job = app.jobs.enqueue("mail", priority=55)

    reason = why(app, job, "in_line")

    assert (reason.before.count, reason.before.exact) == (4, True)
    assert reason.message.startswith("It is ready. 4 jobs are before it. 2 jobs of its topic")
    assert reason.until == clock.now + timedelta(minutes=2)
    first = app.jobs.enqueue("mail", priority=0)
    assert why(app, first, "in_line").message.startswith("It is ready. No job is before it.")


def test_a_job_over_its_limit_says_how_far_the_limit_is_used(app):
    limit = Limit("mailer", concurrency=1)
    app.jobs.enqueue("mail", limit=limit)
    job = app.jobs.enqueue("mail", limit=limit)
    app.jobs.reserve("mail", limit=2)
    assert app.jobs.get(job).state is State.BLOCKED

    reason = why(app, job, "limit")

    assert reason.message == "Limit mailer is reached: 1 of 1 jobs run."
    assert (reason.limit.key, reason.limit.running, reason.limit.concurrency) == ("mailer", 1, 1)


def test_a_job_that_is_held_back_by_a_pace_says_when_it_may_start(app, clock):
    limit = Limit("mailer", rate="6/m")
    app.jobs.enqueue("mail", limit=limit)
    job = app.jobs.enqueue("mail", limit=limit)
    app.jobs.reserve("mail", limit=2)

    reason = why(app, job, "limit")

    assert reason.message == "Limit mailer is reached; one may start every 10 s."
    assert reason.until == clock.now + timedelta(seconds=10)


def test_a_job_that_waits_for_others_names_them(app):
    first, second = app.jobs.enqueue_many("mail", [1, 2])
    job = app.jobs.enqueue("report", after=[first, second])
    assert why(app, job, "parents").message == "It waits for 2 jobs to complete."
    [lease] = app.jobs.reserve("mail")
    app.jobs.complete(lease)

    reason = why(app, job, "parents")

    assert reason.message == "It waits for 1 job to complete."
    [parent] = reason.jobs
    assert (parent.id, parent.topic, parent.state) == (second.id, "mail", State.READY)


def test_a_job_that_chooses_its_workers_says_which_it_still_wants(app):
    job = app.jobs.enqueue("deploy", only_workers=["a", "b", "c"], workers=3)
    [lease] = app.jobs.reserve("deploy", worker="a")
    app.jobs.complete(lease)
    app.jobs.reserve("deploy", worker="b")
    app.sessions.start("d", ["deploy"])

    reason = why(app, job, "offer")

    assert reason.message == (
        "It wants 3 different workers: 1 have succeeded, 1 run it now. "
        "Only these may still run it: c. Of these, no sign of life: c."
    )


def test_a_running_job_names_its_worker(app, clock):
    job = app.jobs.enqueue("mail", timeout=60)
    session = serve(app, "mail")
    [lease] = app.jobs.reserve("mail", session=session)

    reason = why(app, job, "not_begun")
    assert reason.message == "Worker web-1 has it in hand, and has not begun it."
    app.sessions.beat(session, started=[lease])
    reason = why(app, job, "running")
    assert reason.message == "Worker web-1 runs it."
    assert (reason.at, reason.until) == (clock.now, clock.now + timedelta(seconds=60))
    assert labels(reason) == ["Stop"]


def test_a_job_of_a_client_without_a_name_says_until_when_it_has_it(app, clock):
    job = app.jobs.enqueue("mail", ttr=20)
    app.jobs.reserve("mail")

    reason = why(app, job, "running")

    assert reason.message == "A client without a name runs it."
    assert reason.until == clock.now + timedelta(seconds=20)


def test_a_running_job_that_was_asked_to_stop_says_so(app):
    job = app.jobs.enqueue("mail")
    app.jobs.reserve("mail")
    app.jobs.cancel(job)

    assert codes(app, job) == ["running", "cancel_requested"]
    assert why(app, job, "running").remedies == ()


def test_a_job_of_a_silent_worker_says_so(app, clock):
    job = app.jobs.enqueue("mail")
    app.jobs.reserve("mail", session=serve(app, "mail"))
    clock.advance(app.settings.dead_after)

    assert codes(app, job) == ["not_begun", "silent"]


def test_a_failed_job_says_its_error_and_how_many_failed_alike(app):
    jobs = app.jobs.enqueue_many("mail", range(4), max_retries=1)
    for nth, lease in enumerate(app.jobs.reserve("mail", limit=4)):
        app.jobs.fail(lease, f"{'SMTP: refused' if nth < 3 else 'other'}\nline {nth}")

    reason = why(app, jobs[0], "failed")

    assert reason.message == ("It failed for good: 1 of at most 1 try failed, with: SMTP: refused.")
    assert labels(reason) == ["Re-queue", "Delete"]
    assert reason.at == app.jobs.get(jobs[0]).finished_at
    alike = "2 other failed jobs of topic mail have the same error."
    assert why(app, jobs[0], "alike").message == alike
    assert codes(app, jobs[3]) == ["failed"]


def test_a_job_that_was_put_aside_says_so(app):
    job = app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")
    app.jobs.bury(lease)

    assert labels(why(app, job, "buried")) == ["Kick", "Re-queue"]


def test_a_job_whose_parent_failed_offers_to_requeue_the_parent(app):
    parent = app.jobs.enqueue("mail", max_retries=1)
    job = app.jobs.enqueue("report", after=[parent])
    [lease] = app.jobs.reserve("mail")
    app.jobs.fail(lease, "no")

    reason = why(app, job, "parent_failed")

    assert [each.id for each in reason.jobs] == [parent.id]
    assert labels(reason) == ["Re-queue the mail job before it", "Re-queue"]
    assert reason.remedies[0].path == f"/api/jobs/{parent.id}/requeue"
    app.jobs.requeue(parent)
    assert codes(app, job) == ["parents"]


def test_a_completed_job_says_until_when_it_is_kept(app, clock):
    job = app.jobs.enqueue("mail", retention="2h")
    [lease] = app.jobs.reserve("mail")
    app.jobs.complete(lease)

    reason = why(app, job, "completed")

    assert (reason.at, reason.until) == (clock.now, clock.now + timedelta(hours=2))


def test_a_cancelled_job_and_an_expired_one_say_which(app, clock):
    cancelled = app.jobs.enqueue("mail")
    app.jobs.cancel(cancelled)
    expired = app.jobs.enqueue("mail", expires_after=5)
    clock.advance(10)
    app.jobs.reserve("mail")
    app.upkeep.run()

    assert why(app, cancelled, "cancelled").message.startswith("It was cancelled.")
    assert why(app, expired, "expired").message.startswith("It did not begin in time, with: it had")
