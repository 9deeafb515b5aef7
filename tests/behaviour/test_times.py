"""Another time: a job that waits is rescheduled, and one that waited too long never begins."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from tests.conftest import eventually
from towpath import Limit, State
from towpath.errors import Invalid, InvalidState, MaxJobsReached


def ready(app, topic="mail"):
    return [lease.job.payload for lease in app.jobs.reserve(topic, limit=100)]


# ---------------------------------------------------------------- another time


def test_a_pending_job_can_be_rescheduled(app, clock):
    job = app.jobs.enqueue("mail", "x")

    later = app.jobs.reschedule(job, delay="10m")
    assert (later.state, later.run_at) == (State.DELAYED, job.created_at + timedelta(minutes=10))
    assert ready(app) == []

    sooner = app.jobs.reschedule(job, run_at=job.created_at + timedelta(minutes=1), priority=3)
    assert (sooner.state, sooner.priority) == (State.DELAYED, 3)
    clock.advance("1m")
    assert ready(app) == ["x"]


def test_a_job_between_two_tries_can_be_rescheduled_and_keeps_its_failures(app):
    app.jobs.enqueue("mail", "x")
    [lease] = app.jobs.reserve("mail")
    app.jobs.fail(lease, "no")

    job = app.jobs.reschedule(lease.job, delay=0)

    assert (job.state, job.retries, job.last_error) == (State.READY, 1, "no")


def test_a_job_that_waits_for_others_is_rescheduled_and_still_waits(app, clock):
    first = app.jobs.enqueue("mail", "first")
    last = app.jobs.enqueue("mail", "last", after=[first])

    assert app.jobs.reschedule(last, delay=60).state is State.BLOCKED
    [lease] = app.jobs.reserve("mail")
    app.jobs.complete(lease)

    assert app.jobs.get(last.id).state is State.DELAYED
    clock.advance(60)
    assert ready(app) == ["last"]


def test_a_limited_job_that_is_rescheduled_gives_up_its_place(app):
    jobs = [app.jobs.enqueue("mail", n, limit=Limit("ada", concurrency=1)) for n in range(3)]
    [lease] = app.jobs.reserve("mail")
    assert app.jobs.reserve("mail") == []

    app.jobs.reschedule(jobs[1], delay=3600)
    app.jobs.complete(lease)

    assert ready(app) == [2]
    assert app.jobs.get(jobs[1].id).state is State.DELAYED


def test_an_offered_job_opens_when_it_is_rescheduled_to(app, clock):
    job = app.jobs.enqueue("mail", "x", workers=1, delay=3600)
    assert app.jobs.reserve("mail", worker="ada") == []

    app.jobs.reschedule(job, delay=0)

    assert len(app.jobs.reserve("mail", worker="ada")) == 1


@pytest.mark.parametrize("state", ["reserved", "completed", "buried", "cancelled"])
def test_only_a_pending_job_can_be_rescheduled(app, state):
    job = app.jobs.enqueue("mail", "x")
    if state == "cancelled":
        app.jobs.cancel(job)
    else:
        [lease] = app.jobs.reserve("mail")
        if state != "reserved":
            {"completed": app.jobs.complete, "buried": app.jobs.bury}[state](lease)

    with pytest.raises(InvalidState, match=state):
        app.jobs.reschedule(job, delay=1)
    assert app.jobs.get(job.id).state == state


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"delay": -1},
        {"delay": 1, "run_at": datetime(2030, 1, 1, tzinfo=UTC)},
        {"run_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - it has no time zone
    ],
)
@pytest.mark.one_database
def test_a_reschedule_that_says_nothing_or_too_much_is_refused(app, wrong):
    job = app.jobs.enqueue("mail", "x")
    with pytest.raises(Invalid):
        app.jobs.reschedule(job, **wrong)
    assert ready(app) == ["x"]


# ---------------------------------------------------------------- too late


@pytest.mark.parametrize("said", ["after", "at"])
def test_a_job_that_was_not_begun_in_time_is_cancelled_when_its_turn_comes(app, clock, said):
    options = {"after": {"expires_after": "10m"}}.get(said) or {
        "expires_at": app.jobs.enqueue("post").created_at + timedelta(minutes=10)
    }
    job = app.jobs.enqueue("mail", "late", **options)
    app.jobs.enqueue("mail", "in time")
    assert job.expires_at == job.created_at + timedelta(minutes=10)

    clock.advance("10m")

    assert ready(app) == ["in time"]
    eventually(lambda: app.jobs.get(job.id).state is State.CANCELLED)
    job = app.jobs.get(job.id)
    assert job.retries == 0
    assert "had to begin before" in job.last_error
    [failure] = app.jobs.failures(job)
    assert failure.kind == "expired"


def test_a_job_that_was_begun_in_time_may_end_later(app, clock):
    app.jobs.enqueue("mail", "x", expires_after=60)
    clock.advance(59)
    [lease] = app.jobs.reserve("mail")
    clock.advance(60)

    app.jobs.complete(lease)

    assert app.jobs.get(lease.job.id).state is State.COMPLETED


@pytest.mark.parametrize("end", ["fail", "release", "ttr"])
def test_a_job_that_was_begun_in_time_is_tried_again_later(app, clock, end):
    """What has begun is not dropped: it may have done half of its work."""
    app.jobs.enqueue("mail", "x", expires_after=60, ttr=30)
    [lease] = app.jobs.reserve("mail")
    if end != "ttr":
        {"fail": partial(app.jobs.fail, lease, "no"), "release": partial(app.jobs.release, lease)}[
            end
        ]()
    clock.advance(120)

    assert ready(app) == ["x"]


def test_a_job_that_was_too_late_can_be_requeued(app, clock):
    job = app.jobs.enqueue("mail", "x", expires_after=60)
    clock.advance(60)
    assert ready(app) == []

    app.jobs.requeue(job)

    assert ready(app) == ["x"]


@pytest.mark.parametrize("where", ["ready", "delayed", "blocked"])
def test_a_job_that_is_too_late_takes_no_place_in_a_full_topic(make_app, colour, clock, where):
    app = colour(make_app(clock=clock, max_jobs_per_topic=2))
    parent = app.jobs.enqueue("post")
    options = {"delayed": {"delay": 3_600}, "blocked": {"after": [parent]}}.get(where, {})
    late = app.jobs.enqueue("mail", "late", key="k", expires_after=60, **options)
    app.jobs.enqueue("mail", "stays")
    assert late.state == where
    with pytest.raises(MaxJobsReached):
        app.jobs.enqueue("mail", "too many")

    clock.advance(60)
    app.jobs.enqueue("mail", "new", key="k")

    late = app.jobs.get(late)
    assert late.state is State.CANCELLED
    assert "had to begin before" in late.last_error
    assert [failure.kind for failure in app.jobs.failures(late)] == ["expired"]
    assert ready(app) == ["stays", "new"]


def test_what_waits_for_a_job_that_was_too_late_in_a_full_topic_fails(make_app, colour, clock):
    app = colour(make_app(clock=clock, max_jobs_per_topic=1))
    late = app.jobs.enqueue("mail", expires_after=60)
    child = app.jobs.enqueue("post", after=[late])
    clock.advance(60)
    app.jobs.enqueue("mail")

    app.upkeep.run()

    assert app.jobs.get(child).state is State.BURIED


def test_a_job_that_was_begun_in_time_keeps_its_place_in_a_full_topic(make_app, colour, clock):
    app = colour(make_app(clock=clock, max_jobs_per_topic=1))
    app.jobs.enqueue("mail", "begun", expires_after=60)
    app.jobs.release(app.jobs.reserve("mail")[0])
    clock.advance(60)

    with pytest.raises(MaxJobsReached):
        app.jobs.enqueue("mail")

    assert ready(app) == ["begun"]


@pytest.mark.parametrize("token", [None, 7])
def test_what_is_too_late_hides_nothing_behind_it(app, clock, token):
    app.jobs.enqueue_many("mail", range(5), expires_after=60)
    clock.advance(60)
    app.jobs.enqueue("mail", "in time")

    [lease] = app.jobs.reserve("mail", token=token)

    assert lease.job.payload == "in time"


@pytest.mark.parametrize("unique", ["update", "debounce"])
def test_a_job_that_is_enqueued_again_expires_from_then_on(app, clock, unique):
    options = {"key": "digest", "expires_after": 60, "delay": 30, "unique": unique}
    for number in range(5):
        app.jobs.enqueue("mail", number, **options)
        clock.advance(20)
    clock.advance(10)

    assert ready(app) == [4]


@pytest.mark.parametrize("where", ["ready", "delayed", "blocked"])
def test_what_can_never_begin_holds_no_key(app, clock, where):
    """Or the next job would be taken for the one that is about to be cancelled."""
    first = app.jobs.enqueue("post")
    more = {"ready": {}, "delayed": {"delay": 3600}, "blocked": {"after": [first]}}[where]
    late = app.jobs.enqueue("mail", "late", key="digest", expires_after=60, **more)
    clock.advance(60)

    new = app.jobs.enqueue("mail", "new", key="digest")

    assert new.id != late.id
    assert app.jobs.enqueue("mail", "newer", key="digest").id == new.id
    if where == "delayed":
        app.jobs.kick_job(late)
    if where == "blocked":
        app.jobs.complete(app.jobs.reserve("post")[0])
    assert ready(app) == ["new"]
    eventually(lambda: app.jobs.get(late.id).state == "cancelled")
    assert app.jobs.enqueue("mail", "newest", key="digest").id == new.id


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+01:00", "1969-12-31T23:59:59+00:00"])
def test_an_instant_that_no_clock_shows_is_refused(app, at):
    for name in ("expires_at", "run_at"):
        with pytest.raises(Invalid, match=name):
            app.jobs.enqueue("mail", **{name: datetime.fromisoformat(at)})


def test_a_call_may_say_another_expiry_than_its_task(make_app):
    app = make_app()

    @app.task(expires_after="1m")
    def note() -> None: ...

    at = datetime(2090, 1, 1, tzinfo=UTC)
    assert note.enqueue().expires_at < at
    assert note.using(expires_at=at).enqueue().expires_at == at


def test_a_key_is_free_again_once_its_job_was_too_late(app, clock):
    first = app.jobs.enqueue("mail", 1, key="digest", expires_after=60)
    clock.advance(60)
    assert app.jobs.reserve("mail") == []

    assert app.jobs.enqueue("mail", 2, key="digest").id != first.id


@pytest.mark.parametrize(
    "wrong",
    [
        {"expires_after": -1},
        {"expires_after": 1, "expires_at": datetime(2030, 1, 1, tzinfo=UTC)},
        {"expires_after": 1, "workers": 2},
    ],
)
@pytest.mark.one_database
def test_an_expiry_that_cannot_be_kept_is_refused(app, wrong):
    with pytest.raises(Invalid):
        app.jobs.enqueue("mail", **wrong)
