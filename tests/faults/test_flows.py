"""Jobs that wait for others, while transactions are open and processes die."""

from contextlib import ExitStack
from threading import Thread

import psycopg
import pytest
from msgspec.structs import replace

from towpath import State, group
from towpath.errors import Invalid, InvalidState, MaxJobsReached, NotFound
from towpath.store import dependencies, leases

on_postgres = pytest.mark.parametrize("kind", ["postgres"])


@pytest.fixture
def transaction(place):
    """A caller's own transaction, which is committed where the test says so."""
    with psycopg.connect(place[0]) as connection:
        yield connection


def work(app, topic="mail", **said):
    """Reserve one job and complete it."""
    [lease] = app.jobs.reserve(topic)
    app.jobs.complete(lease, **said)
    return lease.job


@on_postgres
def test_a_second_child_does_not_overlook_the_end_of_its_parent(make_app, transaction):
    """The parent was awaited already; it ended while the second child was not committed yet."""
    app = make_app()
    first = app.jobs.enqueue("mail")
    app.jobs.enqueue("report", after=[first])
    [lease] = app.jobs.reserve("mail")

    app.jobs.enqueue("bill", after=[first], connection=transaction)
    ending = Thread(target=app.jobs.complete, args=[lease])
    ending.start()
    ending.join(0.5)
    transaction.commit()
    ending.join()
    app.upkeep.run()

    assert work(app, "bill").state is State.RESERVED


@on_postgres
def test_what_was_refused_is_not_stored_by_the_callers_commit(make_app, transaction):
    app = make_app()
    failed = app.jobs.enqueue("mail")
    app.jobs.cancel(failed)

    with pytest.raises(NotFound):
        app.jobs.enqueue(
            "report", after=["00000000-0000-7000-8000-000000000000"], connection=transaction
        )
    with pytest.raises(InvalidState):
        app.jobs.enqueue("report", after=[failed], connection=transaction)
    transaction.commit()

    assert app.jobs.list(topic="report") == []


def test_a_job_cannot_be_made_to_wait_for_itself(app):
    first = app.jobs.enqueue("mail")
    second = app.jobs.enqueue("mail", after=[first])

    again = app.jobs.enqueue("mail", id=first.id, after=[second])
    app.jobs.enqueue("mail", id=second.id, after=[second])

    assert again.state is State.READY
    assert [work(app).id for _ in range(2)] == [first.id, second.id]


def pong() -> str:
    return "pong"


def test_a_flow_that_names_one_id_twice_is_refused(make_app):
    app = make_app()
    ping = app.task(topic="ping")(pong)
    once = ping.using(id="00000000-0000-7000-8000-000000000000")

    with pytest.raises(Invalid):
        (once.s() | once.s()).enqueue()


def test_those_behind_a_failed_one_are_told_even_if_the_teller_dies(app, monkeypatch):
    """It dies when it has failed the child, and not yet those that wait for the child."""
    first = app.jobs.enqueue("mail", max_retries=1)
    second = app.jobs.enqueue("report", after=[first])
    third = app.jobs.enqueue("post", after=[second])
    [lease] = app.jobs.reserve("mail")

    def half(parents):
        for parent in parents:
            yield dependencies.sql.fail_children(parent=parent, kind="dependency", error="no")
        return set()

    with monkeypatch.context() as patch:
        patch.setattr(dependencies, "_told_of_failed", half)
        app.jobs.fail(lease, "no")
    app.upkeep.run()

    assert app.jobs.get(second).state is State.BURIED
    assert app.jobs.get(third).state is State.BURIED


def died(_rows):
    """As if the process that ended a lease had died before it could tell those that wait."""
    return set()
    yield


def test_another_chance_counts_even_if_nobody_was_told_of_the_failure(app, monkeypatch):
    first = app.jobs.enqueue("mail", max_retries=1)
    second = app.jobs.enqueue("report", after=[first])
    [lease] = app.jobs.reserve("mail")
    with monkeypatch.context() as patch:
        patch.setattr(leases, "told", died)
        app.jobs.fail(lease, "no")

    app.jobs.requeue(first)
    app.upkeep.run()
    assert app.jobs.get(second).state is State.BLOCKED
    work(app)

    assert work(app, "report").id == second.id


def test_a_long_chain_gets_another_chance(make_app):
    app = make_app()
    first = last = app.jobs.enqueue("mail")
    for _ in range(1_100):
        last = app.jobs.enqueue("mail", after=[last])
    app.jobs.cancel(first)

    app.jobs.requeue(first)

    assert app.jobs.get(last).state is State.BLOCKED


def test_jobs_that_wait_are_counted_as_any_others(make_app):
    app = make_app(max_jobs_per_topic=2)
    first = app.jobs.enqueue("mail")
    app.jobs.enqueue("mail", after=[first])

    with pytest.raises(MaxJobsReached):
        app.jobs.enqueue("mail", after=[first])
    ping = app.task(topic="ping")(pong)
    with pytest.raises(MaxJobsReached):
        (ping.s() | ping.s() | ping.s()).enqueue()

    assert app.jobs.stats().pending == 2


def test_a_repeated_flow_finds_the_job_that_stood_for_one_of_its_steps(make_app):
    """As when the answer was lost."""
    app = make_app()
    ping = app.task(topic="ping")(pong)
    other = app.task(topic="pong")(pong)
    standing = ping.using(key="k").enqueue()
    flow = other.s() | ping.using(key="k").s()
    operation = app.storing.flow(flow.nodes(ExitStack()))
    before = app.run(operation)

    after = app.run(replace(operation, start=lambda: operation.steps(again=True)))

    assert [job.id for job in after] == [job.id for job in before]
    assert after[1].id == standing.id


def test_a_job_that_stood_for_a_part_of_a_group_gives_its_result_in_its_place(make_app):
    app = make_app()
    ping = app.task(topic="ping")(pong)

    @app.task(topic="total")
    def total(parts: list[str]) -> None: ...

    ping.using(key="k").enqueue()
    last = group(ping.using(key="k").s(), ping.s()).then(total.s()).enqueue()
    work(app, "ping", result="first")
    work(app, "ping", result="second")

    assert app.jobs.get(last).payload == {"parts": ["first", "second"]}


def test_a_key_has_one_job_when_others_get_another_chance(app):
    """What waited and failed gave its key away; it stays failed while another one holds it."""
    first = app.jobs.enqueue("mail")
    waiting = app.jobs.enqueue("report", key="k", after=[first])
    app.jobs.cancel(first)
    app.jobs.enqueue("report", key="k")

    app.jobs.requeue(first)

    assert app.jobs.get(waiting).state is State.BURIED
    assert len(app.jobs.list(topic="report", status="pending")) == 1
    work(app, "report")
    work(app)
    assert app.jobs.requeue(waiting).state is State.READY


def test_what_is_done_around_every_enqueue_is_done_around_the_steps_of_a_flow(make_app):
    app = make_app()
    ping = app.task(topic="ping")(pong)
    stored = []

    @app.around_enqueue
    def of_a_tenant(topic, headers):
        headers["tenant"] = "7"
        yield
        stored.append(topic)

    (ping.s() | ping.s()).enqueue()

    assert [job.headers["tenant"] for job in app.jobs.list()] == ["7"] * 2
    assert stored == ["ping"] * 2
