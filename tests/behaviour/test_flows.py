"""Flows: jobs that wait for others."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import eventually
from towpath import State, Status, group
from towpath.errors import Invalid, InvalidArguments, InvalidState, JobFailed, NotFound
from towpath.store import leases
from towpath.worker import Worker


def work(app, topic="mail", **said):
    """Reserve one job and complete it."""
    [lease] = app.jobs.reserve(topic)
    app.jobs.complete(lease, **said)
    return lease.job


# ---------------------------------------------------------------- after


def test_a_job_waits_until_those_before_it_have_completed(app):
    first, second = app.jobs.enqueue_many("mail", [1, 2])
    last = app.jobs.enqueue("report", after=[first, second])
    assert last.state is State.BLOCKED
    assert app.jobs.reserve("report") == []

    work(app)
    assert app.jobs.reserve("report") == []
    work(app)

    assert work(app, "report").id == last.id


def test_a_job_after_completed_ones_is_ready_at_once(app):
    first = app.jobs.enqueue("mail")
    work(app)

    assert app.jobs.enqueue("report", after=[first]).state is State.READY


def test_a_job_can_wait_for_one_that_runs_or_is_delayed_or_waits_itself(app, clock):
    running = app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")
    delayed = app.jobs.enqueue("mail", delay=60)
    waiting = app.jobs.enqueue("mail", after=[running])
    last = app.jobs.enqueue("report", after=[running, delayed, waiting])

    app.jobs.complete(lease)
    assert work(app).id == waiting.id
    clock.advance(60)
    assert work(app).id == delayed.id

    assert work(app, "report").id == last.id


def test_the_delay_of_a_job_holds_after_its_parents_too(app, clock):
    first = app.jobs.enqueue("mail")
    last = app.jobs.enqueue("report", after=[first], delay=60)
    work(app)

    assert app.jobs.get(last).state is State.DELAYED
    clock.advance(60)
    assert work(app, "report").id == last.id


@pytest.mark.parametrize("end", ["bury", "cancel", "delete", "discard", "purge", "fail"])
def test_a_failed_part_fails_the_rest_visibly(app, end):
    first = app.jobs.enqueue("mail", max_retries=1)
    second = app.jobs.enqueue("report", after=[first])
    third = app.jobs.enqueue("post", after=[second])
    if end in {"bury", "discard", "fail"}:
        [lease] = app.jobs.reserve("mail")
        {
            "bury": lambda: app.jobs.bury(lease),
            "discard": lambda: app.jobs.delete(lease),
            "fail": lambda: app.jobs.fail(lease, "no"),
        }[end]()
    elif end == "purge":
        app.jobs.purge("mail")
    else:
        getattr(app.jobs, end)(first)

    for job in (second, third):
        assert app.jobs.get(job).status is Status.FAILED
    assert "waits for" in app.jobs.get(second).last_error
    assert str(second.id) in app.jobs.get(third).last_error


def test_a_try_that_failed_fails_nobody_else(app, clock):
    first = app.jobs.enqueue("mail")
    second = app.jobs.enqueue("report", after=[first])
    [lease] = app.jobs.reserve("mail")
    app.jobs.fail(lease, "not yet", delay=1)
    clock.advance(1)
    work(app)

    assert work(app, "report").id == second.id


@pytest.mark.parametrize("again", ["requeue", "kick_job", "kick"])
def test_another_chance_for_the_failed_part_is_one_for_the_rest(app, again):
    first = app.jobs.enqueue("mail", max_retries=1)
    second = app.jobs.enqueue("report", after=[first])
    third = app.jobs.enqueue("post", after=[second])
    [lease] = app.jobs.reserve("mail")
    app.jobs.fail(lease, "no")

    if again == "kick":
        app.jobs.kick("mail")
    else:
        getattr(app.jobs, again)(first)

    assert app.jobs.get(second).last_error is None
    assert [work(app, topic).id for topic in ("mail", "report", "post")] == [
        first.id, second.id, third.id,
    ]  # fmt: skip


def test_what_waits_for_a_failed_part_cannot_be_requeued_before_it(app):
    first = app.jobs.enqueue("mail")
    second = app.jobs.enqueue("report", after=[first])
    app.jobs.cancel(first)

    for verb in (app.jobs.requeue, app.jobs.kick_job):
        with pytest.raises(InvalidState):
            verb(second)
    assert app.jobs.kick("report") == 0

    assert app.jobs.get(second).state is State.BURIED


def test_to_wait_for_a_failed_or_unknown_job_is_refused_and_nothing_stored(app):
    first = app.jobs.enqueue("mail")
    app.jobs.cancel(first)

    with pytest.raises(InvalidState):
        app.jobs.enqueue("report", after=[first])
    with pytest.raises(NotFound):
        app.jobs.enqueue("report", after=["00000000-0000-7000-8000-000000000000"])
    with pytest.raises(Invalid):
        app.jobs.enqueue("report", after=first)

    assert app.jobs.stats().pending == 0


def test_a_job_that_waits_can_be_reprioritised_and_still_waits(app):
    first = app.jobs.enqueue("mail")
    last = app.jobs.enqueue("report", after=[first])

    app.jobs.reprioritise(last, 3)

    assert app.jobs.reserve("report") == []
    work(app)
    assert work(app, "report").priority == 3


def test_upkeep_tells_those_whom_nobody_told(app, clock, monkeypatch):
    """As if whoever completed the first had died right after."""
    first = app.jobs.enqueue("mail")
    last = app.jobs.enqueue("report", after=[first])

    def died(rows):
        return set()
        yield

    with monkeypatch.context() as patch:
        patch.setattr(leases, "told", died)
        work(app)
    assert app.jobs.get(last).state is State.BLOCKED

    app.upkeep.run()

    assert work(app, "report").id == last.id


def test_what_is_left_of_a_flow_is_forgotten_with_it(app, clock):
    first = app.jobs.enqueue("mail", retention=10)
    app.jobs.enqueue("report", after=[first], retention=10)
    work(app)
    work(app, "report")
    clock.advance("2m")

    app.upkeep.run()

    assert app.jobs.list() == []


# ---------------------------------------------------------------- tasks


@pytest.fixture
def tasks(make_app):
    """An app with some tasks, and a worker that runs until nothing is left."""
    app = make_app()

    @app.task()
    def add(first: int, second: int) -> int:
        return first + second

    @app.task()
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    @app.task()
    def ping() -> str:
        return "pong"

    @app.task(max_retries=1)
    def fails(_given: int) -> int:
        msg = "no"
        raise ValueError(msg)

    return app


@pytest.fixture
def run(tasks):
    """Have a worker wait for a result."""
    worker = Worker(tasks)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(asyncio.run, worker.arun())
        yield lambda job: job.result(20)
        eventually(lambda: worker._loop)
        worker.stop()
        running.result(20)


def test_a_chain_passes_each_result_to_the_next(tasks, run):
    add = tasks.tasks.find("add")

    job = (add.s(1, 2) | add.s(3) | add.s(second=4)).enqueue()

    assert run(job) == 10


def test_a_group_passes_a_list_of_its_results_in_order(tasks, run):
    add, total = tasks.tasks.find("add"), tasks.tasks.find("total")

    job = group(*(add.s(n, n) for n in range(20))).then(total.s()).enqueue()

    assert tasks.jobs.get(job).payload in ({}, {"numbers": [2 * n for n in range(20)]})
    assert run(job) == 380
    assert tasks.jobs.get(job).payload == {"numbers": [2 * n for n in range(20)]}


def test_groups_and_chains_can_be_nested(tasks, run):
    add, total = tasks.tasks.find("add"), tasks.tasks.find("total")

    flow = group(add.s(1, 1) | add.s(1), add.s(2, 2)).then(total.s()) | add.s(100)

    assert run(flow.enqueue()) == 107


def test_a_step_without_room_takes_nothing(tasks, run):
    add, ping = tasks.tasks.find("add"), tasks.tasks.find("ping")

    assert run((add.s(1, 2) | ping.s()).enqueue()) == "pong"
    assert run((add.s(1, 2) | add.s(5, 5).regardless()).enqueue()) == 10


def test_a_chain_whose_part_failed_says_so_at_its_end(tasks, run):
    add, fails = tasks.tasks.find("add"), tasks.tasks.find("fails")

    with pytest.raises(JobFailed, match="fails"):
        run((add.s(1, 2) | fails.s() | add.s(1)).enqueue())


def test_a_step_that_can_never_be_called_is_refused_at_once(tasks):
    add, total = tasks.tasks.find("add"), tasks.tasks.find("total")

    for wrong in (add.s(1, 2) | add.s("three"), add.s(1, 2) | add.s(1, 2, 3), total.s()):
        with pytest.raises(InvalidArguments):
            wrong.enqueue()
    with pytest.raises(Invalid):
        group()

    assert tasks.jobs.list() == []
