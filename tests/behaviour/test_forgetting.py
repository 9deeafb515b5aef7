"""Finished jobs are forgotten before their retention is over."""

import pytest

from towpath.errors import Conflict, Invalid, NotFound


@pytest.fixture
def finished(app, clock):
    """Two completed jobs of one topic, an hour apart, a cancelled one, one of another topic."""
    jobs = {}
    for name, topic in {"old": "mail", "new": "mail", "other": "post"}.items():
        jobs[name] = app.jobs.enqueue(topic, name, key=name)
        [lease] = app.jobs.reserve(topic)
        app.jobs.complete(lease)
        clock.advance(3600 if name == "old" else 0)
    jobs["cancelled"] = app.jobs.cancel(app.jobs.enqueue("mail", "cancelled"))
    app.jobs.enqueue("mail", "waiting")
    return jobs


def names(app):
    return {job.payload for job in app.jobs.list()}


ALL = {"old", "new", "other", "cancelled", "waiting"}


def test_one_finished_job_is_forgotten(app, finished):
    app.jobs.forget(finished["old"])

    assert names(app) == ALL - {"old"}
    with pytest.raises(NotFound):
        app.jobs.forget(finished["old"])


def test_a_job_that_has_not_ended_is_not_forgotten(app):
    job = app.jobs.enqueue("mail")

    with pytest.raises(Conflict, match=r"pending.*delete"):
        app.jobs.forget(job)
    assert app.jobs.get(job) == job


@pytest.mark.parametrize(
    ("filters", "gone"),
    [
        ({}, ALL - {"waiting"}),
        ({"topic": "post"}, {"other"}),
        ({"status": "completed"}, {"old", "new", "other"}),
        ({"status": "cancelled"}, {"cancelled"}),
        ({"older_than": "30m"}, {"old"}),
        ({"key": "new"}, {"new"}),
        ({"text": "e"}, {"new", "other", "cancelled"}),
        ({"text": "%"}, set()),
        ({"topic": "mail", "status": "completed", "older_than": 0}, {"old", "new"}),
    ],
)
@pytest.mark.usefixtures("finished")
def test_finished_jobs_are_forgotten_by_filter(app, filters, gone):
    told = []

    assert app.jobs.forget_all(**filters, progress=told.append) == len(gone)
    assert names(app) == ALL - gone
    assert told[-1] == len(gone)


def test_only_finished_jobs_are_forgotten(app):
    with pytest.raises(Invalid, match="only completed and cancelled"):
        app.jobs.forget_all(status="pending")


def test_more_jobs_than_a_page_are_forgotten(app):
    app.jobs.enqueue_many("mail", range(1_500))
    app.jobs.complete_many(app.jobs.reserve("mail", limit=1_500))

    assert app.jobs.forget_all() == 1_500
    assert app.jobs.list() == []
