"""The test kit: what a user's test can say about tasks, on every database."""

import asyncio
import contextlib
import signal
import sqlite3
import threading
import time
from datetime import UTC, datetime

import pytest

from tests.conftest import new_place
from towpath import App, Backoff, Bury, Cancel, Context, Retry
from towpath.app.connect import sqlite_path
from towpath.errors import (
    Invalid,
    InvalidToken,
    ResultTimeout,
    SchemaMissing,
    TimeLimitExceeded,
)
from towpath.model.durable import NewStream
from towpath.testing import MOST_RUNS, Crash, isolated


@pytest.fixture
def app(tmp_path):
    """The user's app, on the database that no test may touch."""
    with App(f"sqlite:///{tmp_path}/real.db") as app:
        yield app


@pytest.fixture
def jobs(app, kind, tmp_path, request):
    url, _ = new_place(kind, tmp_path, request)
    with isolated(app, url) as jobs:
        yield jobs


@pytest.fixture(params=["blocking", "async"])
def run(jobs, request):
    """Run what is ready, in either colour."""
    if request.param == "blocking":
        return jobs.run
    return lambda *args, **options: asyncio.run(jobs.arun(*args, **options))


# ---------------------------------------------------------------- a database of its own


def test_a_test_leaves_nothing_in_the_real_database(app, tmp_path):
    @app.task()
    def note(number: int) -> None: ...

    note.enqueue(1)
    with isolated(app) as jobs:
        assert jobs.enqueued() == []
        note.enqueue(2)
        app.jobs.enqueue("plain", 3)
        app.queue("email").put(b"4")
        assert len(jobs.enqueued()) == 3

    assert [job.payload for job in app.jobs.list()] == [{"number": 1}]
    with isolated(app) as jobs:
        jobs.assert_nothing_enqueued()


def test_an_app_is_as_before_even_if_the_test_fails(app):
    before = dict(vars(app))
    with pytest.raises(Invalid), isolated(app):
        app.jobs.enqueue("")

    assert vars(app) == before


def test_a_schema_of_postgres_is_gone_afterwards(app, postgres):
    with isolated(app, postgres.url()):
        app.jobs.enqueue("mail")
        schema = app.settings.schema
    with App(postgres.url(), schema=schema, migrate=False) as other, pytest.raises(SchemaMissing):
        other.jobs.list()


def test_an_app_is_isolated_once_at_a_time(app):
    with isolated(app), pytest.raises(Invalid, match="already"), isolated(app):
        pass
    with isolated(app):
        pass


def test_tables_are_made_even_where_the_app_may_not(tmp_path):
    with App(f"sqlite:///{tmp_path}/real.db", migrate=False) as app, isolated(app):
        app.jobs.enqueue("mail")


# ---------------------------------------------------------------- the clock


def test_time_passes_when_the_test_says_so(app, jobs, run):
    """DQ-13"""

    @app.task()
    def remind(who: str) -> str:
        return who

    job = remind.using(delay="15m").enqueue("ada")

    assert run() == []
    jobs.clock.advance("14m")
    assert run() == []
    jobs.clock.advance("1m")
    [ran] = run()
    assert (ran.id, ran.finished_at, job.result(0)) == (job.id, jobs.clock.now, "ada")


def test_the_clock_starts_now_or_when_told(app):
    with isolated(app) as jobs:
        assert abs((jobs.clock.now - datetime.now(UTC)).total_seconds()) < 60
    with isolated(app, now=datetime(2000, 2, 29, tzinfo=UTC)):
        assert app.jobs.enqueue("mail").created_at == datetime(2000, 2, 29, tzinfo=UTC)


# ---------------------------------------------------------------- running


def test_run_returns_what_ran_most_urgent_first(app, jobs, run):
    @app.task()
    def double(number: int) -> int:
        return number * 2

    @app.task()
    async def halve(ctx: Context, number: int) -> float:
        return ctx.job.payload["number"] / 2

    double.enqueue(21)
    halve.using(priority=1).enqueue(21)

    assert [job.returned for job in run()] == [10.5, 42]
    assert run() == []


def test_run_goes_on_with_what_a_task_has_enqueued(app, jobs, run):
    @app.task()
    def count_down(number: int) -> None:
        if number:
            count_down.enqueue(number - 1)

    count_down.enqueue(3)

    assert [job.payload["number"] for job in run()] == [3, 2, 1, 0]


def test_run_takes_only_the_tasks_that_are_named(app, jobs, run):
    @app.task()
    def one() -> None: ...

    @app.task()
    def two() -> None: ...

    one.enqueue()
    two.enqueue()

    assert [job.topic for job in run(two)] == ["two"]
    jobs.assert_enqueued(one)


def test_the_error_of_a_task_is_stored_and_then_raised(app, jobs, run):
    @app.task()
    def fail() -> None:
        raise ValueError("no ink")

    job = fail.enqueue()
    with pytest.raises(ValueError, match="no ink"):
        run()

    found = app.jobs.get(job)
    assert (found.state, found.retries, found.last_error) == ("delayed", 1, "ValueError: no ink")


def test_errors_can_be_collected_and_tries_go_on_as_time_passes(app, jobs, run):
    """US4-4"""

    @app.task(max_retries=2, backoff=Backoff(first=60.0))
    async def fail() -> None:
        raise ValueError("no ink")

    fail.enqueue()
    fail.enqueue()

    assert [job.state for job in run(raises=False)] == ["delayed", "delayed"]
    jobs.clock.advance("1m")
    assert [job.state for job in run(raises=False)] == ["buried", "buried"]


def test_what_a_task_says_of_its_job_is_no_error(app, jobs, run):
    @app.task()
    def say(how: str) -> None:
        raise {"retry": Retry(after="1m"), "cancel": Cancel(), "bury": Bury()}[how]

    for how in ("retry", "cancel", "bury"):
        say.enqueue(how)

    assert [job.state for job in run()] == ["delayed", "cancelled", "buried"]


def test_arguments_that_fit_no_more_are_an_error(app, jobs, run):
    @app.task()
    def note(number: int) -> None: ...

    app.jobs.enqueue("note", {"numer": 1})
    with pytest.raises(Invalid, match="numer"):
        run()


def test_a_time_limit_is_an_error(app, jobs, run):
    @app.task(timeout=0.05)
    async def sleep() -> None:
        await asyncio.sleep(60)

    sleep.enqueue()
    with pytest.raises(TimeLimitExceeded):
        run()


def test_blocking_tasks_run_in_the_thread_of_the_test_without_a_loop(app, jobs):
    """As Django asks for, whose connections belong to a thread."""

    threads = []

    @app.task()
    def look() -> None:
        threads.append(threading.current_thread())
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()

    look.enqueue()
    jobs.run()
    assert threads == [threading.current_thread()]


def test_async_tasks_run_in_the_loop_of_an_async_test(app, jobs):
    loops = []

    @app.task()
    async def look() -> None:
        loops.append(asyncio.get_running_loop())

    async def test():
        await look.aenqueue()
        await jobs.arun()
        loops.append(asyncio.get_running_loop())

    asyncio.run(test())
    assert loops[0] is loops[1]


def test_a_run_can_be_broken_off(app, jobs):
    begun = []

    @app.task()
    async def hang(number: int) -> None:
        begun.append(number)
        await asyncio.sleep(600)

    async def test():
        for number in range(2):
            await hang.aenqueue(number)
        running = asyncio.create_task(jobs.arun())
        while not begun:  # noqa: ASYNC110 - the task is not to know that it is watched
            await asyncio.sleep(0.005)
        running.cancel()
        await asyncio.wait([running])
        return running.cancelled()

    assert asyncio.run(test())
    assert begun == [0]


def test_an_interrupt_does_not_wait_for_the_loop(app, jobs):
    @app.task()
    async def hang() -> None:
        await asyncio.sleep(600)

    @app.task()
    def interrupt() -> None:
        raise KeyboardInterrupt

    interrupt.enqueue()
    hang.enqueue()
    with pytest.raises(KeyboardInterrupt):
        jobs.run()


def test_an_app_may_be_isolated_inside_an_event_loop(app, kind, tmp_path, request):
    url, _ = new_place(kind, tmp_path, request)

    @app.task()
    async def double(number: int) -> int:
        return number * 2

    async def test():
        with isolated(app, url) as jobs:
            await double.aenqueue(21)
            jobs.assert_enqueued(double, 21)
            return [job.returned for job in await jobs.arun()]

    assert asyncio.run(test()) == [42]


def test_a_task_that_enqueues_itself_for_ever_is_found_out():
    app = App("memory://")

    @app.task()
    def again() -> None:
        again.enqueue()

    with isolated(app) as jobs:
        again.enqueue()
        with pytest.raises(AssertionError, match=f"{MOST_RUNS} jobs ran"):
            jobs.run()


def test_an_app_without_tasks_has_nothing_to_run(app, jobs):
    with pytest.raises(Invalid, match="no task"):
        jobs.run()


# ---------------------------------------------------------------- tasks that share a topic


@pytest.fixture
def documents(app):
    """Two tasks of one topic, with other parameters."""

    @app.task(topic="documents")
    def invoice(order: int) -> str:
        return f"invoice {order}"

    @app.task(topic="documents")
    def receipt(number: int, copies: int = 1) -> str:
        return f"{copies} receipts {number}"

    return invoice, receipt


def test_run_takes_only_the_named_task_of_a_shared_topic(app, jobs, run, documents):
    invoice, receipt = documents
    first = receipt.using(priority=1).enqueue(7)
    invoice.enqueue(1)
    last = receipt.enqueue(8)
    invoice.enqueue(2)

    assert [job.returned for job in run(invoice)] == ["invoice 1", "invoice 2"]
    others = [app.jobs.get(job) for job in (first, last)]
    assert [(job.state, job.releases) for job in others] == [("ready", 0), ("ready", 0)]
    assert [job.returned for job in run()] == ["1 receipts 7", "1 receipts 8"]


def test_a_crash_in_a_shared_topic_is_not_counted_for_the_other_tasks(app, jobs, run, documents):
    invoice, receipt = documents
    other = receipt.enqueue(7)
    invoice.enqueue(1)
    with jobs.crashing():
        run(invoice)

    jobs.clock.advance("1m")
    run()
    assert (app.jobs.get(other).state, app.jobs.get(other).crashes) == ("completed", 0)


def test_what_waits_is_told_apart_by_its_task(app, jobs, documents):
    invoice, receipt = documents
    other = receipt.enqueue(1, 2)

    assert jobs.enqueued(invoice) == []
    jobs.assert_nothing_enqueued(invoice)
    with pytest.raises(AssertionError, match=r"no job of 'invoice' waits with order=1.*\n  none"):
        jobs.assert_enqueued(invoice, 1)
    with pytest.raises(AssertionError, match=r"1 job waits\n  receipt {"):
        jobs.assert_nothing_enqueued(receipt)
    job = invoice.enqueue(1)
    assert jobs.assert_enqueued(invoice, 1).id == job.id
    assert jobs.assert_enqueued(receipt, 1, copies=2).id == other.id


def test_a_job_that_names_no_task_is_of_the_only_task_of_its_topic(app, jobs, run):
    @app.task(topic="documents")
    def invoice(order: int) -> int:
        return order

    job = app.jobs.enqueue("documents", {"order": 1})

    assert jobs.assert_enqueued(invoice, 1).id == job.id
    assert [job.returned for job in run(invoice)] == [1]


# ---------------------------------------------------------------- crashes


def test_a_job_whose_worker_crashed_runs_again_when_that_is_noticed(app, jobs, run):
    runs = []

    @app.task()
    def charge() -> None:
        runs.append("charged")

    job = charge.enqueue()
    with jobs.crashing():
        run()
        runs.append("never said")

    assert run() == []
    assert app.jobs.get(job).state == "reserved"
    jobs.clock.advance(app.settings.dead_after)
    [again] = run()
    assert (again.state, again.crashes, runs) == ("completed", 1, ["charged", "charged"])


def test_a_job_that_crashes_its_workers_ends_buried(app, jobs, run):
    @app.task(max_crashes=2)
    async def kill() -> None:
        raise Crash

    job = kill.enqueue()
    for _ in range(2):
        with pytest.raises(Crash):
            run()
        jobs.clock.advance("1m")
    run()

    found = app.jobs.get(job)
    assert (found.state, found.crashes) == ("buried", 2)


def test_a_crash_may_come_in_the_middle_of_a_task(app, jobs, run):
    done = []

    @app.task()
    def pay() -> None:
        done.append("debit")
        if len(done) == 1:
            raise Crash
        done.append("credit")

    pay.enqueue()
    with pytest.raises(Crash):
        run()
    jobs.clock.advance("1m")
    run()

    assert done == ["debit", "debit", "credit"]


def test_a_crash_that_did_not_happen_fails_the_test(app, jobs):
    @app.task()
    def note() -> None: ...

    with pytest.raises(AssertionError, match="no job ran"), jobs.crashing():
        jobs.run()


# ---------------------------------------------------------------- what was enqueued


@pytest.fixture
def send(app):
    @app.task()
    def send(
        ctx: Context, to: str, subject: str = "hello", *, at: datetime | None = None
    ) -> None: ...

    return send


def test_a_waiting_job_is_found_by_some_of_its_arguments(jobs, send):
    """DQ-13"""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    first = send.enqueue("ada", "hi", at=at)
    second = send.enqueue("bob")

    assert jobs.assert_enqueued(send).id == first.id
    assert jobs.assert_enqueued(send, "bob").id == second.id
    assert jobs.assert_enqueued(send, at=at).id == first.id
    assert jobs.assert_enqueued(send, subject="hello").id == second.id
    assert [job.id for job in jobs.enqueued(send)] == [first.id, second.id]


def test_a_waiting_job_is_found_by_its_options(jobs, send):
    """DQ-13"""
    send.enqueue("ada")
    job = send.using(delay="15m", priority=5, key="k", timeout="1h", max_retries=1).enqueue("ada")

    for options in (
        {"delay": 900}, {"priority": 5}, {"key": "k"}, {"timeout": 3600}, {"max_retries": 1},
        {"run_at": job.run_at}, {"id": job.id}, {"delay": "15m", "priority": 5},
    ):  # fmt: skip
        assert jobs.assert_enqueued(send.using(**options), to="ada").id == job.id


@pytest.mark.parametrize(
    "options", [{"delay": "16m"}, {"priority": 6}, {"key": "other"}, {"max_retries": 2}]
)
def test_what_is_not_enqueued_fails_the_test_and_shows_what_is(jobs, send, options):
    send.using(delay="15m", priority=5, key="k").enqueue("ada")

    with pytest.raises(AssertionError, match=r'send {"to":"ada"} delay=0:15:00'):
        jobs.assert_enqueued(send.using(**options), "ada")
    with pytest.raises(AssertionError, match="to='bob'"):
        jobs.assert_enqueued(send, to="bob")
    with pytest.raises(AssertionError, match="1 job waits"):
        jobs.assert_nothing_enqueued()


def test_what_has_run_waits_no_more(jobs, send):
    send.enqueue("ada")
    jobs.run()

    jobs.assert_nothing_enqueued()
    jobs.assert_nothing_enqueued(send)
    with pytest.raises(AssertionError, match="none"):
        jobs.assert_enqueued(send)


def test_more_than_a_page_of_jobs_is_seen(app, jobs, send):
    send.enqueue_many({"to": str(n)} for n in range(1_100))

    assert [job.payload["to"] for job in jobs.enqueued()] == [str(n) for n in range(1_100)]


def test_a_result_that_nobody_has_run_for_is_not_waited_for(jobs, app, run):
    @app.task()
    def double(number: int) -> int:
        return number * 2

    job = double.enqueue(21)
    with pytest.raises(ResultTimeout, match="has not run"):
        job.result()
    run()
    assert job.result() == 42


def test_schedules_that_are_declared_beside_their_tasks_fire_in_a_test(jobs, app, run):
    ran = []

    @app.schedule(every="5m")
    @app.task()
    def tick() -> None:
        ran.append(jobs.clock.now)

    run()
    jobs.clock.advance("5m")
    run()
    assert len(ran) == 1


# ---------------------------------------------------------------- what the first users missed


def test_the_callers_transaction_is_shared(app):
    @app.task()
    def note(number: int) -> None: ...

    with isolated(app) as jobs, sqlite3.connect(sqlite_path(jobs.url)) as db:
        db.execute("create table orders (number)")
        db.execute("insert into orders values (1)")
        note.using(connection=db).enqueue(1)
        db.rollback()
        jobs.assert_nothing_enqueued()

        note.using(connection=db).enqueue(2)
        db.commit()
        jobs.assert_enqueued(note, 2)
    db.close()


@pytest.mark.parametrize("driver", ["", "+psycopg", "+asyncpg"])
def test_the_url_is_the_one_that_was_given_with_its_driver(app, postgres, driver):
    url = postgres.url().replace("postgresql:", f"postgresql{driver}:")

    with isolated(app, url) as jobs:
        assert jobs.url == url


@pytest.mark.usefixtures("untouched")
def test_the_database_of_the_users_tests_is_left_without_our_tables(app, kind, tmp_path, request):
    url, _ = new_place(kind, tmp_path, request)
    for number in range(2):
        with isolated(app, url) as jobs:
            jobs.assert_nothing_enqueued()
            app.jobs.enqueue("mail", number)
    if kind == "sqlite":
        with sqlite3.connect(sqlite_path(url)) as db:
            ours = "select name from sqlite_master where name like 'towpath%'"
            assert db.execute(ours).fetchall() == []
        db.close()


def test_a_file_with_jobs_is_refused_and_left_as_it_is(app):
    app.jobs.enqueue("mail", "real")

    with pytest.raises(Invalid, match="has jobs"), isolated(app, app.url):
        pass

    assert [job.payload for job in app.jobs.list()] == ["real"]


def test_a_file_with_schedules_is_refused_and_left_as_it_is(app):
    app.schedules.set("tidy", topic="tidy", every="1h")

    with pytest.raises(Invalid, match="schedules"), isolated(app, app.url):
        pass

    assert [each.name for each in app.schedules.list()] == ["tidy"]


def test_tables_that_were_there_stay(app):
    """Those of the user, and our own if they are empty, as Django has made them."""
    app.migrate()
    path = sqlite_path(app.url)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("create table towpath_blog (a)")
    for _ in range(2):
        with isolated(app, app.url) as jobs:
            jobs.assert_nothing_enqueued()
            app.jobs.enqueue("mail")

    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("select * from towpath_blog").fetchall() == []
    assert app.jobs.list() == []


def test_a_url_that_is_not_understood_leaves_the_app_as_it_was(app):
    for _ in range(2):
        with pytest.raises(Invalid), isolated(app, "nonsense://x"):
            pass
    assert app.jobs.list() == []


def test_the_output_of_a_task_is_kept(app, jobs, run):
    @app.task()
    def work(ctx: Context) -> None:
        ctx.progress(0.5, "half")
        ctx.log("a line")
        ctx.publish({"token": 1})

    job = work.enqueue()
    run()

    assert app.jobs.get(job).progress == 0.5
    assert [line.text for line in app.jobs.logs(job)] == ["a line"]
    assert [event.payload for event in app.events.read(f"job:{job.id}").events] == [{"token": 1}]


def test_schedules_are_declared_in_each_isolated_app(app):
    @app.schedule(every="1h")
    @app.task()
    def tidy() -> None: ...

    for _ in range(2):
        with isolated(app):
            app.schedules.declare()
            assert [each.name for each in app.schedules.list()] == ["tidy"]
    app.schedules.declare()
    assert [each.name for each in app.schedules.list()] == ["tidy"]


def test_a_blocking_task_past_its_time_limit_is_interrupted(app, jobs):
    @app.task(timeout=0.1, max_retries=1)
    def hang() -> None:
        time.sleep(600)

    job = hang.enqueue()
    before = signal.getsignal(signal.SIGUSR1)

    with pytest.raises(TimeLimitExceeded):
        jobs.run()

    assert "TimeLimitExceeded" in app.jobs.get(job).last_error
    assert signal.getsignal(signal.SIGUSR1) is before


# ---------------------------------------------------------------- events


def test_published_events_are_found_by_payload_and_type(jobs):
    paid = jobs.app.events.publish("orders", {"id": 7, "by": "ada"}, type="order.paid")
    sent = jobs.app.events.publish("orders", {"id": 7}, type="order.sent")
    jobs.app.events.publish("orders", b"raw")

    assert jobs.assert_published("orders") == paid
    assert jobs.assert_published("orders", {"id": 7}) == paid
    assert jobs.assert_published("orders", {"id": 7}, type="order.sent") == sent
    assert jobs.assert_published("orders", type="order.sent") == sent
    assert jobs.assert_published("orders", b"raw").type is None
    assert [event.type for event in jobs.published("orders")] == ["order.paid", "order.sent", None]


def test_an_event_that_was_not_published_is_told_with_those_that_were(jobs):
    jobs.app.events.publish("orders", {"id": 7}, type="order.paid")

    for wanted, told in (
        (({"id": 8},), "no event of 'orders' has the payload {'id': 8}; its events:"),
        (({"id": 7, "by": "ada"},), "no event of 'orders' has the payload"),
        ((None,), "no event of 'orders' has the payload None"),
    ):
        with pytest.raises(AssertionError) as failed:
            jobs.assert_published("orders", *wanted)
        assert str(failed.value).startswith(told)
        assert str(failed.value).endswith('  order.paid {"id":7}')
    with pytest.raises(AssertionError, match=r"the type 'order\.sent'"):
        jobs.assert_published("orders", type="order.sent")
    with pytest.raises(AssertionError, match="has come; its events:\n  none"):
        jobs.assert_published("nothing")
    jobs.assert_nothing_published("nothing")
    with pytest.raises(AssertionError, match="'orders' has 1 events"):
        jobs.assert_nothing_published("orders")


def test_the_clock_ends_the_retention_of_events_and_consumers(jobs):
    jobs.app.events.publish("orders", 1)
    jobs.app.events.attach("orders", "mailer")
    jobs.clock.advance("8d")
    assert jobs.app.events.consumers("orders")[0].is_expired

    jobs.app.upkeep.run()

    jobs.assert_nothing_published("orders")


def test_the_clock_ends_the_lifetimes_of_channels_and_passes(jobs):
    """A read is a use: the channel then lives as long as before."""
    draft = NewStream(media="application/json", ttl=60_000_000)
    asyncio.run(jobs.app.durable_streams.create("draft", draft, b"[1]"))
    account = jobs.app.accounts.create("users", "ada@example.org", "correct horse")
    made = jobs.app.accounts.issue_pass(jobs.app.accounts.token(account), ["draft"])
    jobs.clock.advance(59)
    jobs.assert_published("draft", 1)
    jobs.clock.advance(59)
    jobs.assert_published("draft", 1)
    jobs.clock.advance(60)

    jobs.assert_nothing_published("draft")
    assert jobs.app.events.list() == []
    with pytest.raises(InvalidToken):
        jobs.app.accounts.redeem_pass(made)


def test_a_file_with_events_is_not_used_for_tests(app, tmp_path):
    with App(f"sqlite:///{tmp_path}/other.db") as other:
        other.events.publish("chat", 1)

    with pytest.raises(Invalid, match="has jobs, events, schedules or accounts"):
        isolated(app, f"sqlite:///{tmp_path}/other.db").__enter__()
