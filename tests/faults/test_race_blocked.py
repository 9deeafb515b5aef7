"""A job that waits is changed at the very moment at which what it waits for comes."""

import pytest

from tests.faults.gates import Gate
from tests.faults.processes import wait_until
from towpath import Limit, State

ONE = Limit("printer", concurrency=1)


def reprioritise(app, job):
    app.jobs.reprioritise(job, 3)


def reschedule(app, job):
    app.jobs.reschedule(job, delay=0)


def rewrite(app, job):
    app.jobs.enqueue(job.topic, 2, key="k", unique="update", limit=job.options.limit)


@pytest.fixture(params=["postgres"])
def kind(request):
    return request.param


@pytest.fixture
def changing(make_app, threads, books):
    """Change a job; before that is committed, say something else."""
    app = make_app()
    app.jobs.enqueue("other")
    gate = Gate(app, threads)

    def locked():
        return books.rows("select pid from pg_stat_activity where wait_event_type = 'Lock'")

    def change(job, how, then, *args):
        with gate.before(how.__name__, how, app, job):
            saying = threads.submit(then, *args)
            wait_until(lambda: saying.done() or locked())
        saying.result(10)

    return change


@pytest.mark.parametrize("change", [reprioritise, reschedule, rewrite])
@pytest.mark.parametrize(("end", "state"), [("complete", State.READY), ("bury", State.BURIED)])
def test_a_job_that_is_changed_while_its_parent_ends_is_told(
    make_app, changing, change, end, state
):
    app = make_app()
    first = app.jobs.enqueue("mail")
    second = app.jobs.enqueue("report", 1, after=[first], key="k")
    [lease] = app.jobs.reserve("mail")

    changing(second, change, getattr(app.jobs, end), lease)

    assert app.jobs.get(second).state is state


@pytest.mark.parametrize("change", [reprioritise, reschedule])
@pytest.mark.parametrize(("end", "state"), [("complete", State.COMPLETED), ("bury", State.BURIED)])
def test_a_job_that_is_changed_while_its_last_run_ends_ends_too(
    make_app, changing, change, end, state
):
    app = make_app()
    job = app.jobs.enqueue("mail", workers=1)
    [lease] = app.jobs.reserve("mail", worker="w")
    said = {"error": "no"} if end == "bury" else {}

    changing(job, change, lambda: getattr(app.jobs, end)(lease, **said))

    assert app.jobs.get(job).state is state


@pytest.mark.parametrize("change", [reprioritise, rewrite])
def test_a_job_that_is_changed_while_there_is_room_again_comes_into_line(
    make_app, changing, change
):
    app = make_app()
    app.jobs.enqueue("report", 0, limit=ONE)
    second = app.jobs.enqueue("report", 1, limit=ONE, key="k")
    [lease] = app.jobs.reserve("report", limit=2)

    changing(second, change, app.jobs.complete, lease)

    assert [each.job.id for each in app.jobs.reserve("report")] == [second.id]
