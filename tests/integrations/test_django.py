"""Django: its connections are borrowed, its tasks are jobs."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.apps import apps
from django.core import mail
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate
from django.db.transaction import TransactionManagementError
from django.test import override_settings
from django.utils import timezone

from tests.conftest import eventually
from tests.integrations import users_tasks
from towpath import App, Context
from towpath.errors import DatabaseError, Invalid, JobExists, SchemaMissing
from towpath.integrations.django import (
    TaskResultDoesNotExist,
    _conninfo,
    database_url,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from towpath.operation import Operation
from towpath.statement import Statement
from towpath.testing import isolated
from towpath.worker import Worker


@pytest.fixture
def orders(django_database):
    """A table of the user, gone after the test."""
    name = f"orders_{django_database[1].get('schema', 'of_sqlite')}"
    with connection.cursor() as cursor:
        cursor.execute(f"create table {name} (number integer primary key)")
    yield name
    with connection.cursor() as cursor:
        cursor.execute(f"drop table {name}")


def order(table, number=1):
    with connection.cursor() as cursor:
        cursor.execute(f"insert into {table} values ({number})")  # noqa: S608 - our own


def ordered(table):
    with connection.cursor() as cursor:
        cursor.execute(f"select * from {table} order by 1")  # noqa: S608 - our own
        return [number for (number,) in cursor.fetchall()]


@pytest.fixture
def make_app(django_database):
    """Make apps on Django's database."""
    made = []

    def make(**settings):
        made.append(App(database_url(), **django_database[1], **settings))
        return made[-1]

    yield make
    for app in made:
        app.close()


@pytest.fixture
def app(make_app):
    app = make_app()
    app.migrate()
    return app


# ---------------------------------------------------------------- its connection, borrowed


def test_a_rollback_takes_the_job_and_the_row_with_it(app, orders):
    """US1-5"""

    @app.task()
    def check(number: int) -> None: ...

    with transaction.atomic():
        order(orders)
        check.using(connection=connection).enqueue(1)
        transaction.set_rollback(True)

    assert ordered(orders) == []
    assert app.jobs.list() == []


def test_a_commit_brings_the_job_and_the_row(app, orders):
    """US1-5"""

    @app.task()
    def check(number: int) -> None: ...

    with transaction.atomic():
        order(orders)
        job = check.using(connection=connection).enqueue(1)
        assert app.jobs.list() == []
        assert app.jobs.get(job, connection=connection).payload == {"number": 1}

    assert ordered(orders) == [1]
    assert [lease.job.id for lease in app.jobs.reserve("check")] == [job.id]


@pytest.mark.usefixtures("untouched")
def test_the_first_use_of_a_database_may_be_in_a_transaction(make_app, orders):
    """US1-5"""
    app = make_app()
    with transaction.atomic():
        order(orders)
        app.jobs.enqueue("mail", connection=connections["default"])

    assert len(app.jobs.list()) == 1


def test_a_savepoint_takes_back_what_came_after_it(app, orders):
    """US1-5"""
    with transaction.atomic():
        app.jobs.enqueue("mail", "kept", connection=connection)
        with transaction.atomic():
            order(orders)
            app.jobs.enqueue("mail", "gone", connection=connection)
            transaction.set_rollback(True)

    assert ordered(orders) == []
    assert [job.payload for job in app.jobs.list()] == ["kept"]


def test_a_refusal_leaves_the_transaction_usable(app, orders):
    """US1-5"""
    with transaction.atomic():
        job = app.jobs.enqueue("mail", 1, connection=connection)
        with pytest.raises(JobExists):
            app.jobs.enqueue("mail", 2, id=job.id, connection=connection)
        order(orders)

    assert ordered(orders) == [1]


def test_a_task_completes_its_job_in_a_transaction_of_djangos_connection(app, orders):
    with isolated(app, app.url) as jobs:

        @app.task()
        def store(ctx: Context, *, fails: bool = False) -> str:
            with ctx.transaction(connection) as ending:
                order(orders, 2 if fails else 1)
                ending.result = "stored"
                if fails:
                    raise users_tasks.NoInk
            return "stored"

        job = store.enqueue()
        with jobs.crashing():
            jobs.run()
        assert job.result() == "stored"
        store.enqueue(fails=True)
        with pytest.raises(users_tasks.NoInk):
            jobs.run()

    assert ordered(orders) == [1]


def test_a_transaction_that_ends_a_job_is_not_nested_in_atomic(app):
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        Context(app).transaction(connection).__enter__()


def test_without_a_transaction_the_connection_is_refused(app):
    with pytest.raises(Invalid, match="no transaction is open"):
        app.jobs.enqueue("mail", connection=connection)


def test_a_transaction_without_atomic_will_do(app, orders):
    transaction.set_autocommit(False)
    try:
        order(orders)
        app.jobs.enqueue("mail", "gone", connection=connection)
        transaction.rollback()
        app.jobs.enqueue("mail", "kept", connection=connection)
        transaction.commit()
    finally:
        transaction.set_autocommit(True)

    assert ordered(orders) == []
    assert [job.payload for job in app.jobs.list()] == ["kept"]


def test_a_transaction_that_django_calls_broken_is_refused(app):
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(TransactionManagementError):
            app.jobs.enqueue("mail", connection=connection)


def test_after_an_error_of_the_database_django_rolls_back(make_app, orders):
    """Else PostgreSQL would make a rollback of the commit, without a word."""
    app = make_app()
    app.migrate()
    app.run(_spoiling())
    with transaction.atomic():
        order(orders)
        with pytest.raises(DatabaseError):
            app.jobs.enqueue("mail", connection=connection)
        with pytest.raises(TransactionManagementError):
            order(orders, 2)

    assert ordered(orders) == []


def _spoiling():
    def steps():
        yield Statement("spoil", {"any": "alter table towpath.ready rename to unready"})()

    return Operation("spoil", steps)


# ---------------------------------------------------------------- the doorbell


@pytest.fixture
def waiting(make_app):
    """A caller that waits for mail in another app, whose safety net is out of reach."""
    app = make_app(poll_interval=600)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(app.jobs.reserve, "mail", timeout=30)
        eventually(lambda: app.jobs.stats_waiting() == {"mail": 1})
        yield waiting


def test_the_commit_wakes_a_reserver(app, waiting):
    """FR-020, US1-5"""
    with transaction.atomic():
        job = app.jobs.enqueue("mail", connection=connection)
        time.sleep(0.1)  # nothing can be waited for: the point is that nothing happens
        assert not waiting.done()

    [lease] = waiting.result()
    assert lease.job.id == job.id


@pytest.fixture
def rings(app):
    """What the app is told to ring for."""
    told = []
    app._borrower = replace(app._borrower, ring=lambda wakeups: told.append(set(map(str, wakeups))))
    return told


def test_the_ring_comes_after_the_commit_of_the_outermost_block(app, rings):
    with transaction.atomic():
        with transaction.atomic():
            app.jobs.enqueue("mail", connection=connection)
        assert rings == []

    assert rings == [{"topic/mail"}]


def test_a_rollback_rings_nobody(app, rings):
    with transaction.atomic():
        app.jobs.enqueue("mail", connection=connection)
        transaction.set_rollback(True)

    assert rings == []


@pytest.mark.parametrize("durable_place", ["postgres"], indirect=True)
def test_the_transaction_itself_does_not_notify(app, django_database):
    """NOTIFY in a transaction makes all commits of a server take turns."""
    url, needed = django_database
    with psycopg.connect(url, autocommit=True) as listening:
        listening.execute(f"listen {needed['schema']}_wakeup")
        with transaction.atomic():
            app.jobs.enqueue("mail", connection=connection)
            with connection.cursor() as cursor:
                cursor.execute("select pg_backend_pid()")
                [own] = cursor.fetchone()
        [notice] = listening.notifies(timeout=10, stop_after=1)

    assert (notice.payload, notice.pid == own) == ('["topic/mail"]', False)


# ---------------------------------------------------------------- its tasks


@pytest.fixture
def configured(django_database):
    """Django's tasks on Django's database; returns how to give the backend other options."""

    def configure(**params):
        backend = {
            "BACKEND": "towpath.integrations.django.TowpathBackend",
            "QUEUES": ["default", "mail"],
            "OPTIONS": {**django_database[1]},
            **params,
        }
        return override_settings(TASKS={"default": backend})

    with configure():
        yield configure


@pytest.fixture
def backend(configured):
    users_tasks.seen.clear()
    backend = task_backends["default"]
    yield backend
    backend.app.close()


@pytest.fixture
def jobs(backend):
    """The backend's app, run by the test."""
    with isolated(backend.app, backend.app.url) as jobs:
        yield jobs


def test_a_task_is_enqueued_run_and_its_result_read(jobs):
    """DQ-13"""
    result = users_tasks.double.enqueue(21)

    assert (result.status, result.is_finished, result.attempts) == ("READY", False, 0)
    assert (result.args, result.kwargs, result.enqueued_at) == ([21], {}, jobs.clock.now)
    jobs.clock.advance(5)
    jobs.run()
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 42, 1)
    assert result.started_at == result.last_attempted_at == result.finished_at == jobs.clock.now
    assert result.worker_ids == ["towpath"]
    assert users_tasks.double.get_result(result.id).task == users_tasks.double


def test_a_task_shares_the_fate_of_the_transaction(jobs, orders):
    """US1-5"""
    with transaction.atomic():
        order(orders)
        users_tasks.double.enqueue(1)
        transaction.set_rollback(True)
    jobs.assert_nothing_enqueued()

    with transaction.atomic():
        order(orders)
        result = users_tasks.double.enqueue(2)
        jobs.assert_nothing_enqueued()
        result.refresh()  # this transaction sees it
        assert result.status == "READY"
    assert (ordered(orders), len(jobs.run())) == ([1], 1)


def test_async_tasks_run_and_the_async_verbs_do_the_same(jobs):
    async def enqueue():
        result = await users_tasks.adouble.aenqueue(21)
        return await users_tasks.adouble.aget_result(result.id)

    result = asyncio.run(enqueue())
    jobs.run()
    asyncio.run(result.arefresh())

    assert result.return_value == 42
    asyncio.run(sync_to_async(_forget_connection)())


def _forget_connection():
    """The thread in which Django runs what is blocking lives on, the database does not."""
    connections.close_all()
    del connections["default"]


def test_a_queue_is_a_topic_and_more_priority_is_sooner(jobs):
    users_tasks.double.enqueue(0)
    users_tasks.double.using(priority=-100).enqueue(-100)
    users_tasks.double.using(priority=100).enqueue(100)
    users_tasks.send.enqueue("ada")

    ran = jobs.run()
    assert [(job.topic, job.priority) for job in ran] == [
        ("default", 0), ("mail", 80), ("default", 100), ("default", 200),
    ]  # fmt: skip
    assert users_tasks.send.get_result(str(ran[1].id)).task.priority == 20


def test_run_after_is_when_it_may_run(jobs):
    """DQ-13"""
    after = jobs.clock.now + timedelta(hours=1)
    users_tasks.double.using(run_after=after).enqueue(1)

    assert jobs.run() == []
    jobs.clock.advance("1h")
    assert len(jobs.run()) == 1


def test_a_failed_try_is_an_error_and_the_task_is_ready_again(jobs):
    """US2-4"""
    result = users_tasks.tell.enqueue(last=2)
    with pytest.raises(ValueError, match="again"):
        jobs.run()
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == ("READY", 1, 1)

    jobs.clock.advance("1m")
    jobs.run()
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 2, 2)
    assert users_tasks.seen == [(1, []), (2, [])]


@pytest.mark.parametrize(("how", "kind"), [("ours", users_tasks.NoInk), ("builtin", ValueError)])
def test_the_last_failure_is_final(configured, how, kind):
    """US4-4"""
    with configured(OPTIONS={**task_backends["default"].options, "max_retries": 2}):
        app = task_backends["default"].app
        with isolated(app, app.url) as jobs:
            result = users_tasks.fail.enqueue(how)
            for _ in range(2):
                jobs.run(raises=False)
                jobs.clock.advance("1h")
            result.refresh()
        app.close()

    assert (result.status, result.attempts, result.is_finished) == ("FAILED", 2, True)
    assert [error.exception_class for error in result.errors] == [kind, kind]
    assert "in fail" in result.errors[0].traceback
    assert result.finished_at == jobs.clock.now - timedelta(hours=1)
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


def test_a_crash_is_an_error_too(jobs):
    result = users_tasks.double.enqueue(1)
    with jobs.crashing():
        jobs.run()
    result.refresh()
    assert result.status == "RUNNING"
    jobs.clock.advance("1m")
    jobs.run()
    result.refresh()

    assert (result.status, result.attempts) == ("SUCCESSFUL", 2)
    assert "died" in result.errors[0].traceback
    assert issubclass(result.errors[0].exception_class, Exception)


def test_a_cancelled_task_has_failed(jobs):
    result = users_tasks.double.enqueue(1)
    jobs.app.jobs.cancel(result.id)
    result.refresh()

    assert (result.status, result.errors) == ("FAILED", [])


@pytest.mark.parametrize("id", ["0197a1f0-0000-7000-8000-000000000000", "x" * 32])
def test_a_result_that_does_not_exist(jobs, id):
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(id)


def test_a_job_that_is_no_task_has_no_result(jobs):
    job = jobs.app.jobs.enqueue("default", {"number": 1})

    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(str(job.id))


def test_the_result_of_another_task_is_refused(jobs):
    result = users_tasks.double.enqueue(1)

    with pytest.raises(Exception, match="does not match"):
        users_tasks.send.get_result(result.id)


def test_what_is_not_json_is_refused(jobs):
    with pytest.raises(TypeError):
        users_tasks.double.enqueue(object())
    jobs.assert_nothing_enqueued()


def test_signals_tell_of_each_step(jobs):
    told = []

    def note(signal):
        def receive(sender, task_result, **_):
            told.append((signal, task_result.status, task_result.id))

        return receive

    signals = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}
    for name, signal in signals.items():
        signal.connect(note(name), weak=False, dispatch_uid=name)
    try:
        done = users_tasks.double.enqueue(1)
        failing = users_tasks.fail.using(priority=-1).enqueue("builtin")
        jobs.run(raises=False)
        for _ in range(2):
            jobs.clock.advance("1h")
            jobs.run(raises=False)
    finally:
        for name, signal in signals.items():
            signal.disconnect(dispatch_uid=name)

    assert told == [
        ("enqueued", "READY", done.id),
        ("enqueued", "READY", failing.id),
        ("started", "RUNNING", done.id),
        ("finished", "SUCCESSFUL", done.id),
        *[("started", "RUNNING", failing.id)] * 3,
        ("finished", "FAILED", failing.id),
    ]


def test_a_task_may_use_djangos_database(jobs, orders):
    users_tasks.write.enqueue(orders)
    jobs.run()

    assert ordered(orders) == [7]


def test_a_worker_runs_tasks_and_leaves_no_connection_of_djangos_open(backend, orders):
    """US1-5: in its threads, as manage.py towpath_worker does."""
    opened = []

    def note(connection, **_):
        opened.append(connection)

    backend.app.migrate()
    connection_created.connect(note)
    worker = Worker(backend.app, concurrency=2)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(asyncio.run, worker.arun())
        try:
            with transaction.atomic():
                result = users_tasks.write.enqueue(orders)
            eventually(lambda: result.refresh() or result.is_finished)
        finally:
            worker.stop()
            running.result(30)
            connection_created.disconnect(note)

    assert (result.status, ordered(orders)) == ("SUCCESSFUL", [7])
    assert [each.connection for each in opened] == [None]


def test_without_time_zones_instants_are_local(jobs):
    with override_settings(USE_TZ=False, TIME_ZONE="Europe/Berlin"):
        local = timezone.make_naive(jobs.clock.now, timezone.get_default_timezone())
        later = users_tasks.double.using(run_after=local + timedelta(hours=1)).enqueue(1)

        assert later.enqueued_at == local
        assert jobs.enqueued()[0].run_at == jobs.clock.now + timedelta(hours=1)


# ---------------------------------------------------------------- configuration


def test_what_cannot_work_is_found_by_djangos_checks(configured):
    assert task_backends["default"].check() == []
    with configured(QUEUES=["default", "no spaces"]):
        [error] = task_backends["default"].check()
        assert (error.id, "no spaces" in error.msg) == ("towpath.E001", True)


@pytest.mark.parametrize("name", [":memory:", "file:memorydb_default?mode=memory&cache=shared"])
def test_a_database_in_memory_is_refused(configured, name):
    connections["default"].settings_dict["NAME"] = name
    connections["default"].vendor = "sqlite"

    with pytest.raises(ImproperlyConfigured, match="in memory"):
        database_url()
    assert [error.id for error in task_backends["default"].check()] == ["towpath.E002"]


def test_a_database_of_another_kind_is_refused(configured):
    connections["default"].vendor = "mysql"

    with pytest.raises(ImproperlyConfigured, match="neither SQLite nor PostgreSQL"):
        database_url()


@pytest.mark.usefixtures("untouched")
def test_tables_come_with_djangos_own(configured, make_app):
    """Even where the app itself may not make them."""
    with configured(OPTIONS={**task_backends["default"].options, "migrate": False}):
        call_command("migrate", verbosity=0)

    assert make_app(migrate=False).jobs.list() == []


@pytest.mark.usefixtures("untouched")
def test_tables_are_made_only_in_the_database_of_the_tasks(configured, make_app):
    post_migrate.send(apps.get_app_config("towpath"), using="another")

    with pytest.raises(SchemaMissing):
        make_app(migrate=False).jobs.list()


def test_a_migration_of_tests_in_memory_leaves_us_out(configured):
    connections["default"].settings_dict["NAME"] = ":memory:"
    connections["default"].vendor = "sqlite"

    post_migrate.send(apps.get_app_config("towpath"), using="default")


def test_a_signal_of_a_migration_deletes_jobs_only_under_the_test_runner(backend, monkeypatch):
    """Migrations send it too, to make permissions; `flush` cannot be told from them."""
    users_tasks.write.enqueue("orders")

    post_migrate.send(apps.get_app_config("towpath"), using="default")
    assert len(backend.app.jobs.list()) == 1

    monkeypatch.setattr(mail, "outbox", [], raising=False)
    post_migrate.send(apps.get_app_config("towpath"), using="default")
    assert backend.app.jobs.list() == []


def test_threads_share_an_app(backend):
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(lambda: task_backends["default"].app).result() is backend.app


def test_the_worker_is_only_for_our_backend(django_database):
    module = users_tasks.task.__module__.partition(".base")[0]
    with (
        override_settings(TASKS={"default": {"BACKEND": f"{module}.backends.dummy.DummyBackend"}}),
        pytest.raises(CommandError, match="not a TowpathBackend"),
    ):
        call_command("towpath_worker")


def test_the_worker_knows_its_queues(backend):
    with pytest.raises(CommandError, match="no task for topic letters"):
        call_command("towpath_worker", "--queue", "letters")


def test_the_password_and_the_options_of_postgres_are_kept():
    given = {
        "NAME": "shop", "USER": "ada", "PASSWORD": "p/@ ?", "HOST": "/run/pg", "PORT": "",
        "OPTIONS": {"sslmode": "require", "pool": True},
    }  # fmt: skip

    assert _conninfo(given) == {
        "dbname": "shop", "user": "ada", "password": "p/@ ?", "host": "/run/pg",
        "sslmode": "require",
    }  # fmt: skip
