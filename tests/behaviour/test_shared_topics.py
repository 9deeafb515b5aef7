"""Several tasks share a topic; a job names its task, and a worker may not know it yet."""

import logging

import pytest

from tests.conftest import eventually
from tests.workers import ended, working
from towpath import App, Context
from towpath.errors import Conflict, DatabaseUnavailable, Invalid, TowpathError
from towpath.model.job import FailureKind
from towpath.testing import isolated

pytestmark = pytest.mark.one_database


@pytest.fixture
def slow(app):
    """Two tasks of one topic."""

    @app.task(topic="slow")
    def resize(image: int) -> str:
        return f"small {image}"

    @app.task(topic="slow", name="images.crop")
    async def crop(ctx: Context, image: int) -> str:
        return f"square {image}"

    return resize, crop


def test_each_job_runs_its_own_task(app, slow):
    resize, crop = slow
    with working(app):
        assert resize.enqueue(1).result(20) == "small 1"
        assert crop.enqueue(2).result(20) == "square 2"
    assert [job.topic for job in app.jobs.list()] == ["slow", "slow"]


def test_a_job_says_which_task_it_calls(app, slow):
    resize, crop = slow
    mail = app.jobs.enqueue("mail")

    jobs = [resize.enqueue(1), crop.enqueue(2), mail]

    assert [job.task_name for job in jobs] == ["resize", "images.crop", None]


def test_the_log_of_a_worker_says_which_task_ran(app, slow, caplog):
    caplog.set_level(logging.INFO, "towpath")
    with working(app):
        slow[0].enqueue(1).result(20)
        app.jobs.enqueue("slow", task="gone")
        eventually(lambda: "given back" in caplog.text)

    assert "job 1 of topic 'slow' (resize) has started" in caplog.text
    assert "job 1 of topic 'slow' (resize) has completed after" in caplog.text
    assert "of topic 'slow' (gone) is given back" in caplog.text


def test_a_step_of_a_flow_names_its_task(app, slow):
    resize, _ = slow

    @app.task(topic="slow")
    def count(text: str) -> int:
        return len(text)

    with working(app):
        assert (resize.s(1) | count.s()).enqueue().result(20) == len("small 1")


def test_a_plain_job_can_name_its_task(app, slow):
    with working(app):
        job = app.jobs.enqueue("slow", {"image": 3}, task="resize")
        assert ended(app, job).returned == "small 3"


def test_a_topic_with_one_task_takes_plain_jobs(app):
    @app.task(topic="slow")
    def resize(image: int) -> str:
        return f"small {image}"

    with working(app):
        assert ended(app, app.jobs.enqueue("slow", {"image": 1})).returned == "small 1"


def test_a_task_with_the_name_of_the_topic_takes_plain_jobs(app, slow):
    @app.task(name="slow")
    def other(image: int) -> str:
        return f"other {image}"

    with working(app):
        assert ended(app, app.jobs.enqueue("slow", {"image": 1})).returned == "other 1"


def test_a_name_with_dots_makes_a_topic_with_hyphens(app):
    @app.task(name="images.crop")
    def crop() -> str:
        return "done"

    assert crop.topic == "images-crop"
    with working(app):
        assert crop.enqueue().result(20) == "done"


def test_a_renamed_task_serves_the_jobs_of_its_old_name(app):
    old, shared = app.jobs.enqueue("greet"), app.jobs.enqueue("slow", task="hello")

    @app.task(alias="greet")
    def welcome() -> str:
        return "welcome"

    @app.task(topic="slow", alias=["hello", "hi"])
    def salute() -> str:
        return "salute"

    with working(app):
        assert ended(app, old).returned == "welcome"
        assert ended(app, shared).returned == "salute"
        assert welcome.enqueue().result(20) == "welcome"


@pytest.mark.parametrize("name", ["", "a b", "x" * 201, 7])
def test_what_is_no_name_of_a_task_is_refused(app, name):
    with pytest.raises(Invalid, match="not a valid task name"):
        app.task(name=name, topic="mail")(test_what_is_no_name_of_a_task_is_refused)


@pytest.mark.usefixtures("slow")
def test_two_tasks_of_one_name_and_topic_are_refused_with_both_places(app):
    with pytest.raises(Conflict, match=r"slow\.<locals>\.resize.*both_places\.<locals>\.resize"):

        @app.task(topic="slow")
        def resize() -> None: ...


@pytest.mark.usefixtures("slow")
def test_concurrency_holds_for_the_whole_topic(app):
    with pytest.raises(Conflict, match="concurrency"):

        @app.task(topic="slow", concurrency=2)
        def other() -> None: ...


# ---------------------------------------------------------------- a deploy is under way


@pytest.fixture
def jobs(app):
    with isolated(app) as jobs:
        yield jobs


def try_for(jobs, minutes):
    """Run what is ready, again and again, for so long."""
    for _ in range(minutes):
        jobs.run(raises=False)
        jobs.clock.advance("1m")


def test_arguments_that_do_not_fit_are_put_off_uncounted_and_fail_after_an_hour(app, jobs):
    @app.task(max_retries=1)
    def greet(name: str) -> str:
        return f"hello {name}"

    old = app.jobs.enqueue("greet", {"nom": "Ada"}, max_retries=1)
    try_for(jobs, 55)
    waiting = app.jobs.get(old)
    assert (waiting.state, waiting.retries) == ("delayed", 0)
    assert "unknown field `nom`" in waiting.last_error
    assert {failure.kind for failure in app.jobs.failures(old)} == {FailureKind.UNKNOWN}
    greet.enqueue("Ada")
    assert "hello Ada" in [job.returned for job in jobs.run(raises=False)]

    try_for(jobs, 15)
    assert app.jobs.get(old).state == "buried"


def test_a_job_of_an_unknown_task_waits_for_a_worker_that_knows_it(make_app, caplog):
    app, newer = make_app(), make_app()

    @app.task(topic="slow")
    def resize() -> None: ...

    @newer.task(topic="slow")
    def crop() -> str:
        return "square"

    caplog.set_level(logging.WARNING, "towpath")
    job = crop.enqueue()
    with working(app):
        waiting = ended_or_delayed(app, job)
    assert (waiting.state, waiting.retries) == ("delayed", 0)
    assert waiting.last_error == "UnknownTask: topic 'slow' has no task 'crop' here"
    assert "is given back: UnknownTask" in caplog.text

    app.jobs.reschedule(job, delay=0)
    with working(newer):
        assert job.result(20) == "square"


def ended_or_delayed(app: App, job):
    eventually(lambda: app.jobs.get(job).state == "delayed")
    return app.jobs.get(job)


def test_another_program_is_told_of_the_tasks_of_a_topic(app, slow):
    with pytest.raises(TowpathError, match=r"several tasks; pass `task`.*images.crop, resize"):
        app.tasks.for_call("slow", None)
    with pytest.raises(TowpathError, match="no task 'rezise'"):
        app.tasks.for_call("slow", "rezise")
    assert app.tasks.for_call("slow", "resize") is slow[0]
    assert app.tasks.for_call("mail", "resize") is None


def test_a_job_that_cannot_be_put_off_by_the_clock_is_put_off_all_the_same(app, jobs, monkeypatch):
    """Otherwise its lease would live as long as the worker."""

    async def failures(*_):
        raise DatabaseUnavailable

    @app.task()
    def greet(name: str) -> None: ...

    job = app.jobs.enqueue("greet", {"nom": "Ada"})
    monkeypatch.setattr(app.jobs, "afailures", failures)
    jobs.run(raises=False)

    assert app.jobs.get(job).state == "delayed"
