"""Flows: jobs that wait for others."""

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.conftest import eventually
from towpath import App, PartOutcome, State, Status, group
from towpath.errors import Invalid, InvalidArguments, InvalidState, JobFailed, NotFound
from towpath.store import dependencies, leases
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
    """As if the process that completed the first had died right after."""
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

    @app.task()
    def pack(parts: list[PartOutcome[int]]) -> list[str]:
        return [f"{each.ok} {each.result} {each.error}" for each in parts]

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


def test_a_group_after_a_step_gives_its_result_to_each_part(tasks, run):
    add, total = tasks.tasks.find("add"), tasks.tasks.find("total")
    spread = group(add.s(10), add.s(20) | add.s(5))

    for flow in (
        add.s(1, 2) | spread | total.s(),
        add.s(1, 2) | spread.then(total.s()),
        add.s(1, 1) | (add.s(1) | spread) | total.s(),
        (add.s(1, 2) | spread).then(total.s()),
    ):
        assert run(flow.enqueue()) == 13 + 28
    assert run((add.s(1, 2) | (add.s(1) | add.s(1))).enqueue()) == 5


def test_a_group_after_a_group_gives_the_list_to_each_part(tasks, run):
    add, total = tasks.tasks.find("add"), tasks.tasks.find("total")

    flow = group(add.s(1, 1), add.s(2, 2)) | group(total.s(), total.s()) | total.s()

    assert run(flow.enqueue()) == 12


def test_a_step_that_fails_before_a_group_fails_the_flow_until_it_is_requeued(parts):
    part = parts.tasks.find("mail")
    flow = part.s(1) | group(part.s(), part.s()) | parts.tasks.find("clean").s()
    last = flow.enqueue()
    [lease] = parts.jobs.reserve("mail")
    parts.jobs.bury(lease)
    assert [job.state for job in parts.jobs.list()] == [State.BURIED] * 4

    parts.jobs.requeue(lease.job)
    assert last.refresh().state is State.BLOCKED
    for result in (7, 8, 9):
        work(parts, result=result)
    assert last.refresh().state is State.READY
    assert [job.payload for job in parts.jobs.list(topic="mail")] == [
        {"_number": 7}, {"_number": 7}, {"_number": 1},
    ]  # fmt: skip


def test_the_outcomes_of_a_group_after_a_step_are_passed_on(tasks, run):
    add, fails, pack = (tasks.tasks.find(name) for name in ("add", "fails", "pack"))

    flow = (add.s(1, 2) | group(add.s(10), fails.s())).outcomes() | pack.s()

    assert run(flow.enqueue()) == ["True 13 None", "False None ValueError: no"]


def test_a_flow_that_ends_in_a_group_is_refused_and_says_what_to_add(tasks):
    add = tasks.tasks.find("add")

    for flow in (group(add.s(1, 2)), add.s(1, 2) | group(add.s(3))):
        with pytest.raises(Invalid, match=r"cannot end in a group; add `\.then\(step\)`"):
            flow.enqueue()
    assert tasks.jobs.list() == []


def test_a_step_without_room_takes_nothing(tasks, run):
    add, ping = tasks.tasks.find("add"), tasks.tasks.find("ping")

    assert run((add.s(1, 2) | ping.s()).enqueue()) == "pong"
    assert run((add.s(1, 2) | add.s(5, 5).regardless()).enqueue()) == 10


def test_a_chain_whose_part_failed_says_so_at_its_end(tasks, run):
    add, fails = tasks.tasks.find("add"), tasks.tasks.find("fails")

    with pytest.raises(JobFailed, match="fails"):
        run((add.s(1, 2) | fails.s() | add.s(1)).enqueue())


@pytest.mark.one_database
def test_a_step_alone_and_a_chain_are_stored_in_the_callers_transaction(tmp_path):
    with App(f"sqlite:///{tmp_path}/shop.db") as app, closing(sqlite3.connect(app.url[10:])) as db:
        app.migrate()

        @app.task()
        def ping() -> None: ...

        for flow, stored in ((ping.s(), 1), (ping.s() | ping.s().regardless(), 3)):
            db.execute("begin")
            flow.enqueue(connection=db)
            db.rollback()
            db.execute("begin")
            flow.enqueue(connection=db)
            db.commit()
            assert len(app.jobs.list()) == stored


def test_a_step_that_can_never_be_called_is_refused_at_once(tasks):
    add, total = tasks.tasks.find("add"), tasks.tasks.find("total")

    for wrong in (add.s(1, 2) | add.s("three"), add.s(1, 2) | add.s(1, 2, 3), total.s()):
        with pytest.raises(InvalidArguments):
            wrong.enqueue()
    with pytest.raises(Invalid):
        group()

    assert tasks.jobs.list() == []


# ---------------------------------------------------------------- results that are too large


@pytest.fixture
def small(make_app, clock):
    """An app of small payloads, whose jobs a test ends by hand."""
    app = make_app(clock=clock, max_payload=300)

    @app.task()
    def mail() -> str: ...

    @app.task()
    def report(texts: list[str]) -> str: ...

    return app


def test_a_step_whose_group_returned_too_much_fails_and_says_how_much(small):
    part, report = small.tasks.find("mail"), small.tasks.find("report")
    last = (group(part.s(), part.s(), part.s()) | report.s() | part.s()).enqueue()
    other = group(part.s(), part.s()).then(report.s()).enqueue()
    for letter in "abcde":
        work(small, result=letter * 100)

    step = small.jobs.numbered(last.seq - 1)
    assert step.state is State.BURIED
    [failure] = small.jobs.failures(step)
    assert failure.kind == "dependency"
    assert "the 3 parts of the group returned 306 bytes together" in failure.error
    assert "`max_payload` allows 300" in failure.error
    assert last.refresh().state is State.BURIED
    assert other.refresh().state is State.READY
    small.upkeep.run()
    assert [job.topic for job in small.jobs.list(status="buried")] == ["mail", "report"]


def test_a_step_whose_group_returned_too_much_can_be_requeued_all_the_same(small):
    part, report = small.tasks.find("mail"), small.tasks.find("report")
    step = group(*(part.s() for _ in range(4))).then(report.s()).enqueue()
    for _ in range(4):
        work(small, result="a" * 100)

    assert small.jobs.requeue(step).payload == {"texts": ["a" * 100] * 4}
    assert work(small, "report").id == step.id


# ---------------------------------------------------------------- outcomes


@pytest.fixture
def parts(make_app, clock):
    """An app whose jobs a test ends by hand: parts, and steps that follow them."""
    app = make_app(clock=clock)

    @app.task(max_retries=1)
    def mail(_number: int) -> int: ...

    @app.task()
    def report(parts: list[PartOutcome[int]]) -> None: ...

    @app.task()
    def clean() -> None: ...

    return app


def grouped(app, number=2):
    """Enqueue a group that passes on outcomes; return its last job."""
    part, pack = app.tasks.find("mail"), app.tasks.find("report")
    return group(*(part.s(n) for n in range(number))).outcomes().then(pack.s()).enqueue()


def outcomes(app, last):
    """Return what the last job of a group was given."""
    return app.jobs.get(last).payload["parts"]


def test_a_group_goes_on_although_a_part_failed_with_results_and_errors_in_order(tasks, run):
    add, fails, pack = map(tasks.tasks.find, ("add", "fails", "pack"))

    flow = group(add.s(1, 1), fails.s(1), add.s(2, 2)).outcomes() | pack.s()

    assert run(flow.enqueue()) == ["True 2 None", "False None ValueError: no", "True 4 None"]


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("fail", "no"),
        ("bury", "failed"),
        ("cancel", "was cancelled"),
        ("cancel_running", "was cancelled"),
        ("delete", "was deleted"),
        ("discard", "was deleted"),
        ("purge", "was deleted"),
    ],
)
def test_every_bad_end_of_a_part_is_an_outcome_with_an_error(parts, end, error):
    last = grouped(parts)
    [good, bad] = parts.jobs.reserve("mail", limit=2)
    parts.jobs.complete(good, result=7)
    if end in {"cancel", "delete", "purge"}:
        parts.jobs.release(bad)
    {
        "fail": lambda: parts.jobs.fail(bad, "no"),
        "bury": lambda: parts.jobs.bury(bad),
        "cancel": lambda: parts.jobs.cancel(bad.job),
        "cancel_running": lambda: (parts.jobs.cancel(bad.job), parts.jobs.release(bad)),
        "delete": lambda: parts.jobs.delete(bad.job),
        "discard": lambda: parts.jobs.delete(bad),
        "purge": lambda: parts.jobs.purge("mail"),
    }[end]()

    assert parts.jobs.get(last).state is State.READY
    first, second = outcomes(parts, last)
    assert first == {"result": 7}
    assert list(second) == ["error"]
    assert error in second["error"]


def test_a_part_that_expired_is_an_outcome_with_that_error(parts, clock):
    part, pack = parts.tasks.find("mail"), parts.tasks.find("report")
    flow = group(part.using(expires_after="1m").s(1)).outcomes().then(pack.s())
    last = flow.enqueue()
    clock.advance("2m")

    assert parts.jobs.reserve("mail") == []
    parts.upkeep.run()

    [outcome] = outcomes(parts, last)
    assert "had to begin before" in outcome["error"]


def test_a_part_with_tries_left_has_not_ended(parts, clock):
    part, pack = parts.tasks.find("mail"), parts.tasks.find("report")
    last = group(part.using(max_retries=2).s(1)).outcomes().then(pack.s()).enqueue()
    [lease] = parts.jobs.reserve("mail")
    parts.jobs.fail(lease, "not yet", delay=1)
    assert parts.jobs.get(last).state is State.BLOCKED
    clock.advance(1)
    work(parts, result=5)

    assert outcomes(parts, last) == [{"result": 5}]


def test_a_chain_in_a_group_ends_with_the_error_of_its_first_failure(parts):
    part, pack = parts.tasks.find("mail"), parts.tasks.find("report")
    last = group(part.s(1) | part.s() | part.s()).outcomes().then(pack.s()).enqueue()
    [lease] = parts.jobs.reserve("mail")
    parts.jobs.fail(lease, "no")

    [outcome] = outcomes(parts, last)
    assert "failed, and this one waits for it" in outcome["error"]
    assert parts.jobs.get(last).state is State.READY


def test_a_step_that_takes_nothing_goes_on_too(parts):
    part, clean = parts.tasks.find("mail"), parts.tasks.find("clean")
    last = group(part.s(1)).outcomes().then(clean.s()).enqueue()
    [lease] = parts.jobs.reserve("mail")
    parts.jobs.bury(lease)

    assert parts.jobs.get(last).state is State.READY


def test_what_follows_the_step_that_went_on_follows_it(parts):
    part, pack, clean = map(parts.tasks.find, ("mail", "report", "clean"))
    last = (group(part.s(1)).outcomes().then(pack.s()) | clean.s()).enqueue()
    [lease] = parts.jobs.reserve("mail")
    parts.jobs.fail(lease, "no")
    assert parts.jobs.get(last).state is State.BLOCKED
    [lease] = parts.jobs.reserve("report")
    parts.jobs.bury(lease)

    assert parts.jobs.get(last).state is State.BURIED


@pytest.mark.parametrize("again", ["requeue", "kick_job", "kick"])
def test_a_group_that_has_not_gone_on_waits_for_a_part_that_runs_again(parts, again):
    last = grouped(parts)
    [first, second] = parts.jobs.reserve("mail", limit=2)
    parts.jobs.fail(first, "no")
    if again == "kick":
        parts.jobs.kick("mail")
    else:
        getattr(parts.jobs, again)(first.job)
    parts.jobs.complete(second, result=2)
    assert parts.jobs.get(last).state is State.BLOCKED

    work(parts, result=1)

    assert outcomes(parts, last) == [{"result": 1}, {"result": 2}]


def test_a_group_that_has_not_gone_on_waits_for_a_chain_that_runs_again(parts):
    part, pack = parts.tasks.find("mail"), parts.tasks.find("report")
    last = group(part.s(1) | part.s(), part.s(2)).outcomes().then(pack.s()).enqueue()
    [failing, other] = parts.jobs.reserve("mail", limit=2)
    parts.jobs.fail(failing, "no")
    parts.jobs.requeue(failing.job)
    parts.jobs.complete(other, result=3)
    assert parts.jobs.get(last).state is State.BLOCKED

    work(parts, result=1)
    work(parts, result=2)

    assert outcomes(parts, last) == [{"result": 2}, {"result": 3}]


def test_a_part_that_runs_again_after_the_group_went_on_changes_nothing(parts):
    last = grouped(parts, 1)
    [lease] = parts.jobs.reserve("mail")
    parts.jobs.fail(lease, "no")
    parts.jobs.requeue(lease.job)
    work(parts, result=1)

    assert outcomes(parts, last) == [{"error": "no"}]
    [lease] = parts.jobs.reserve("report")
    parts.jobs.bury(lease)
    assert parts.jobs.requeue(last).state is State.READY
    assert outcomes(parts, last) == [{"error": "no"}]


def test_a_part_deleted_after_it_failed_keeps_its_error(parts):
    last = grouped(parts)
    [first, second] = parts.jobs.reserve("mail", limit=2)
    parts.jobs.fail(first, "no")
    parts.jobs.delete(first.job)
    parts.jobs.complete(second, result=2)

    assert outcomes(parts, last) == [{"error": "no"}, {"result": 2}]


def test_a_part_forgotten_after_it_completed_keeps_its_result(parts):
    last = grouped(parts)
    [first, second] = parts.jobs.reserve("mail", limit=2)
    parts.jobs.complete(first, result=1)
    parts.jobs.forget(first.job)
    parts.jobs.fail(second, "no")

    assert outcomes(parts, last) == [{"result": 1}, {"error": "no"}]


def test_upkeep_tells_of_a_bad_end_too(parts, monkeypatch):
    """As if the process had died right after the end of the part."""
    last = grouped(parts, 1)
    [lease] = parts.jobs.reserve("mail")

    def died(rows):
        return set()
        yield

    with monkeypatch.context() as patch:
        patch.setattr(leases, "told", died)
        parts.jobs.fail(lease, "no")
    assert parts.jobs.get(last).state is State.BLOCKED

    parts.upkeep.run()

    assert outcomes(parts, last) == [{"error": "no"}]


def test_a_bad_end_that_was_noted_and_not_followed_is_followed_by_upkeep(parts, monkeypatch):
    """As if the process had died then; where that undid the end, its caller repeats it."""
    last = grouped(parts, 1)
    [lease] = parts.jobs.reserve("mail")

    def dies(parents):
        msg = "died"
        raise RuntimeError(msg)
        yield

    with monkeypatch.context() as patch:
        patch.setattr(dependencies, "_let_in", dies)
        with pytest.raises(RuntimeError):
            parts.jobs.fail(lease, "no")
    parts.jobs.fail(lease, "no")

    parts.upkeep.run()

    assert outcomes(parts, last) == [{"error": "no"}]


def test_a_part_that_stands_for_a_failed_job_is_an_outcome_at_once(parts):
    part, pack = parts.tasks.find("mail"), parts.tasks.find("report")
    stored = part.enqueue(1)
    [lease] = parts.jobs.reserve("mail")
    parts.jobs.fail(lease, "no")

    flow = group(part.using(id=stored.id).s(1)).outcomes().then(pack.s())

    assert outcomes(parts, flow.enqueue()) == [{"error": "no"}]
