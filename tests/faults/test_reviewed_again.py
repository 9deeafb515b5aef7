"""What a hostile reader broke the second time: limits, flows, unique keys. Each stays mended."""

import asyncio
import contextlib
import functools
from contextlib import ExitStack
from threading import Thread

import psycopg
import pytest
from msgspec.structs import replace

from tests.faults.proxy import Proxy
from towpath import App, Limit, State, group
from towpath.errors import Invalid, InvalidState, MaxJobsReached, NotFound
from towpath.operation import Operation
from towpath.store import dependencies, leases, limits, reserving
from towpath.worker import Worker
from towpath.worker.threads import Threads

on_postgres = pytest.mark.parametrize("kind", ["postgres"])
ONE = Limit("printer", concurrency=1)


def numbers(found):
    return [lease.job.payload for lease in found]


def work(app, topic="mail", **said):
    """Reserve one job and complete it."""
    [lease] = app.jobs.reserve(topic)
    app.jobs.complete(lease, **said)
    return lease.job


def pong() -> str:
    return "pong"


def died(_rows):
    """As if whoever ended a lease had died before it could tell those that wait."""
    return set()
    yield


@pytest.fixture
def transaction(place):
    """A caller's own transaction, which is committed where the test says so."""
    with psycopg.connect(place[0]) as connection:
        yield connection


# ---------------------------------------------------------------- jobs that wait for others


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
            yield dependencies.sql["fail_children"](parent=parent, error="no")

    with monkeypatch.context() as patch:
        patch.setattr(dependencies, "_told_of_failed", half)
        app.jobs.fail(lease, "no")
    app.upkeep.run()

    assert app.jobs.get(second).state is State.BURIED
    assert app.jobs.get(third).state is State.BURIED


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

    after = app.run(replace(operation, start=operation.restart or operation.start))

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


# ---------------------------------------------------------------- limits

LEAVES = {
    "cancel": lambda app, job: app.jobs.cancel(job),
    "delete": lambda app, job: app.jobs.delete(job),
    "replace": lambda app, job: app.jobs.enqueue("print", "new", key="k", unique="replace"),
    "update": lambda app, job: app.jobs.enqueue("print", "new", key="k", unique="update"),
    "debounce": lambda app, job: app.jobs.enqueue(
        "print", "new", key="k", unique="debounce", delay=60, limit=ONE
    ),
}


@pytest.mark.parametrize("leave", LEAVES)
def test_one_that_leaves_the_line_makes_room_for_the_next(app, leave):
    app.jobs.enqueue("print", 1, limit=ONE)
    second = app.jobs.enqueue("print", 2, limit=ONE, key="k")
    app.jobs.enqueue("print", 3, limit=ONE)
    [lease] = app.jobs.reserve("print", limit=9)
    app.jobs.complete(lease)
    assert app.jobs.get(second).state is State.READY

    LEAVES[leave](app, second)

    assert 3 in numbers(app.jobs.reserve("print", limit=9))


def test_a_purged_topic_makes_room_for_another(app):
    app.jobs.enqueue("print", 1, limit=ONE)
    app.jobs.enqueue("print", 2, limit=ONE, priority=90)
    [lease] = app.jobs.reserve("print", limit=9)
    app.jobs.complete(lease)
    app.jobs.purge("print")
    app.jobs.enqueue("print", 3, limit=ONE)

    assert numbers(app.jobs.reserve("print", limit=9)) == [3]


@pytest.mark.parametrize(
    "limit",
    [
        Limit(None, concurrency=1), Limit("x", rate=10), Limit("x", rate="9" * 5_000 + "/s"),
        Limit("x", rate="1/nand"), Limit("x", rate=float("nan")), Limit("a\0b", concurrency=1),
        Limit("x", rate="1/36500d", burst=2**31 - 1), Limit("\ud800", concurrency=1),
        Limit("x", rate="1/0s"),
    ],
)  # fmt: skip
def test_a_limit_that_would_wedge_its_topic_is_refused(app, limit):
    with pytest.raises(Invalid):
        app.jobs.enqueue("print", limit=limit)


def test_a_rate_that_becomes_a_number_lets_go_of_those_that_waited(app, clock):
    app.jobs.enqueue_many("mail", range(3), limit=Limit("smtp", rate="1/m"))
    assert numbers(app.jobs.reserve("mail", limit=3)) == [0]
    app.jobs.enqueue("mail", 3, limit=Limit("smtp", concurrency=4))

    found = app.jobs.reserve("mail", limit=9)
    found += app.jobs.reserve("mail", limit=9)

    assert sorted(numbers(found)) == [1, 2, 3]
    clock.advance("2m")
    assert app.run(overdue()) is None


def overdue():
    """Read when a reservation of another topic should have looked again, if that is past."""

    def steps():
        [[due_at, now]] = yield reserving.sql["next_due"](topics=("other",))
        return None if due_at is None or due_at > now else due_at

    return Operation("next_due", steps)


def test_upkeep_looks_at_every_key_in_its_turn(app, monkeypatch):
    monkeypatch.setattr(limits, "KEYS_AT_ONCE", 2)
    for key in "abcd":
        app.jobs.enqueue_many("mail", [key, key], limit=Limit(key, concurrency=1))
    *_, last = app.jobs.reserve("mail", limit=9)
    with monkeypatch.context() as patch:
        patch.setattr(leases, "freed", died)
        app.jobs.complete(last)

    for _ in range(3):
        app.upkeep.run()

    assert app.jobs.stats_topic("mail").ready == 1


def test_the_end_of_one_does_not_forget_what_others_start_meanwhile(app):
    """Whoever frees a place on PostgreSQL holds nothing from one statement to the next."""
    app.jobs.enqueue_many("mail", range(4), limit=Limit("smtp", rate="1/m", burst=2))
    app.jobs.reserve("mail")
    freeing, rows = limits.freed(["smtp"]), None
    with contextlib.suppress(StopIteration):
        while True:
            query = freeing.send(rows)
            if query.statement.name == "pace_limits":
                assert numbers(app.jobs.reserve("mail", limit=4)) == [1]
            rows = app.run(Operation("ask", functools.partial(asking, query), whole=True))
    app.upkeep.run()

    assert app.jobs.reserve("mail", limit=4) == []


def test_a_reservation_with_a_token_finds_what_has_a_limit(app):
    """Also the first one, which did not expect any."""
    app.jobs.enqueue_many("print", range(2), limit=ONE)

    first, again = (app.jobs.reserve("print", limit=2, token=7) for _ in range(2))

    assert numbers(first) == numbers(again) == [0]


def asking(query):
    return (yield query)


# ---------------------------------------------------------------- workers


def test_a_call_for_which_there_was_no_thread_is_not_made_later(monkeypatch):
    """Its job has failed by then, and may run elsewhere."""
    calls = []

    def refused(_thread):
        raise RuntimeError

    async def main():
        threads = Threads()
        with monkeypatch.context() as patch:
            patch.setattr(Thread, "start", refused)
            with pytest.raises(RuntimeError):
                threads.start(lambda: calls.append("lost"))
        await threads.start(lambda: calls.append("found"))
        await threads.start(lambda: calls.append("found"))
        threads.close()

    asyncio.run(main())
    assert calls == ["found", "found"]


@on_postgres
def test_a_reservation_on_its_way_takes_nothing_when_its_worker_has_ended(postgres, place):
    """It reaches the server when the worker was told to stop, and nobody reads the answer."""
    with Proxy(postgres.port) as proxy, App(proxy.url(), **place[1]) as app:
        job = app.task(topic="ping")(pong).enqueue()
        proxy.hold("leased as")
        worker = Worker(app)
        working = Thread(target=asyncio.run, args=[worker.arun()])
        working.start()
        assert proxy.happened.wait(10)
        worker.stop()
        app.upkeep.stop()
        working.join(1)
        proxy.let_go()
        working.join()

        assert app.jobs.get(job).state is State.READY
