"""Mistakes that are easily made: each is refused with words that help."""

import asyncio
import subprocess
import sys

import pytest

from towpath import App, group
from towpath.errors import (
    Conflict,
    Invalid,
    InvalidPayload,
    InvalidTopic,
    InvalidUrl,
)
from towpath.worker import Worker

LEASE_VERBS = ("complete", "release", "bury", "touch")


@pytest.mark.parametrize("verb", LEASE_VERBS)
@pytest.mark.parametrize("given", ["job", "list of leases"])
def test_a_verb_of_a_lease_says_so_when_it_is_given_something_else(app, verb, given):
    job = app.jobs.enqueue("mail")
    leases = app.jobs.reserve("mail")

    with pytest.raises(Invalid, match="expected a lease, as `reserve` returns it"):
        getattr(app.jobs, verb)(job if given == "job" else leases)


def test_a_failure_needs_an_error(app):
    app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")

    with pytest.raises(Invalid, match="text or an exception, not None"):
        app.jobs.fail(lease, None)


def test_an_unknown_option_is_answered_with_those_that_there_are(app):
    with pytest.raises(Invalid, match=r"`prioriy` \(did you mean `priority`\?\)"):
        app.jobs.enqueue("mail", prioriy=1)
    with pytest.raises(Invalid, match=r"`state` \(did you mean `status`\?\)"):
        app.jobs.list(state="buried")


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("countdown", "(use `delay`)"),
        ("eta", "(use `run_at`)"),
        ("queue", "(it is `topic` here, but not an option)"),
        ("max_attempts", "(use `max_retries`)"),
        ("acks_late", "(not needed: a job is done only when its task has ended)"),
        ("expires", "(use `expires_after`)"),
        ("soft_time_limit", "(use `timeout`)"),
        ("task_id", "(use `id`)"),
        ("retry_backoff", "(use `backoff`)"),
        ("rate_limit", "(use `limit`)"),
        ("colour", "`colour`; known options: after, backoff, delay,"),
    ],
)
@pytest.mark.one_database
def test_options_of_other_queues_are_translated(app, option, advice):
    with pytest.raises(Invalid) as refused:
        app.jobs.enqueue("mail", **{option: 5})

    assert str(refused.value).startswith(f"unknown option `{option}`")
    assert advice in str(refused.value)


def test_an_unknown_option_of_a_worker_or_an_app_is_named_with_the_nearest(make_app):
    app = make_app()
    app.task()(print_nothing)
    for option, advice in (("concurency", "did you mean `concurrency`?"), ("queues", "`topics`")):
        with pytest.raises(Invalid) as refused:
            Worker(app, **{option: 5})
        assert advice in str(refused.value)
    with pytest.raises(Invalid, match=r"unknown settings `a`, `conect_timeout` \(did you mean"):
        App("memory://", conect_timeout=5, a=1)


def print_nothing() -> None: ...


@pytest.mark.one_database
def test_a_duration_that_is_not_understood_is_answered_with_the_units(app):
    with pytest.raises(Invalid, match=r"delay '5 minutes' is not .* the units ms, s, m, h and d"):
        app.jobs.enqueue("mail", delay="5 minutes")


def test_what_is_no_datetime_job_or_key_is_named(app):
    with pytest.raises(Invalid, match="run_at 'tomorrow' is not a datetime"):
        app.jobs.enqueue("mail", run_at="tomorrow")
    with pytest.raises(Invalid, match="'the last' is not the number of a job"):
        app.jobs.list(before="the last")
    with pytest.raises(Invalid, match="key 7 is not text"):
        app.jobs.list(key=7)


def test_a_result_that_is_not_json_is_called_a_result(app):
    app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")

    with pytest.raises(InvalidPayload, match="the result is not JSON"):
        app.jobs.complete(lease, object())


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("sqlite:///:memory:", "use memory://"),
        ("sqlite:/app.db", "use sqlite:///relative.db"),
        ("sqlite://app.db", "use sqlite:///relative.db"),
        (
            "mysql://ada@localhost/app",
            "'mysql://ada@localhost/app' is not a database; use sqlite:/",
        ),
        ("sqlite+aiosqlite://", "'sqlite://' is not a SQLite URL"),
        ("localhost", "'localhost' is not a database"),
        (5, "5 is not a database"),
    ],
)
def test_a_url_that_cannot_mean_a_database_is_refused_at_once(url, advice):
    with pytest.raises(InvalidUrl, match=advice):
        App(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mysql://ada:hunter2@host/db", "mysql://ada:***@host/db"),
        ("postgresql://ada:hunter2/x@y@host/db", "postgresql://ada:***@host/db"),
        ("postgresql://ada:hunter2", "postgresql://ada:***"),
        ("postgresql://ada:1hunter2/x", "postgresql://ada:***"),
        ("postgresql://host:5432/db?ssl=1&password=hunter2", "host:5432/db?ssl=***&password=***"),
        ("mysql://ada:1?hunter2@host", "mysql://ada:***@host"),
        ("postgresql://host/db?password=hunter1&hunter2", "host/db?password=***&***"),
        ("ada:hunter2@host/db", "ada:***@host/db"),
        ("host=x password = 'hunter2 x' dbname=y", "'host=***' is not"),
        ("sqlite://ada:hunter2@app.db", "sqlite://ada:***@app.db"),
        ("postgresql:ada:hunter2", "this is not"),
        ("postgresql:/ada:hunter2", "this is not"),
        ("postgres//ada:hunter2/db", "this is not"),
        ("//ada:hunter2", "this is not"),
        ("postgresql://host/db password=hunter2", "this is not"),
        ("host=db password=a://hunter2", "'host=***' is not"),
    ],
)
def test_a_url_that_is_not_understood_is_quoted_without_its_password(url, shown):
    with pytest.raises(InvalidUrl) as refused:
        App(url)

    assert shown in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "used"),
    [
        ("postgresql+psycopg://ada:x@host/db", "postgresql://ada@host/db"),
        ("postgresql+asyncpg://host/db", "postgresql://host/db"),
        ("postgresql+psycopg2://host/db", "postgresql://host/db"),
        ("sqlite+aiosqlite:///app.db", "sqlite:///app.db"),
        ("sqlite+pysqlite:////srv/app.db", "sqlite:////srv/app.db"),
    ],
)
def test_urls_of_sqlalchemy_lose_their_driver(url, used):
    with App(url) as app:
        assert app.database == used


def test_the_command_line_migrates_and_says_what_is_wrong_in_one_line(tmp_path):
    def towpath(*words):
        return subprocess.run(
            [sys.executable, "-m", "towpath", *words],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    url = f"sqlite:///{tmp_path}/app.db"
    assert towpath("migrate", url).returncode == 0
    with App(url, migrate=False) as app:
        assert app.jobs.list() == []
    refused = towpath("migrate", f"sqlite:///{tmp_path}/nowhere/app.db")
    assert refused.returncode == 1
    assert refused.stderr.startswith("towpath: the directory ")
    assert len(refused.stderr.splitlines()) == 1


def test_a_task_without_parentheses_says_so(make_app):
    with pytest.raises(Invalid, match="parentheses"):
        make_app().task(print)


def test_a_lambda_is_asked_for_a_topic(make_app):
    with pytest.raises(InvalidTopic, match="lambda"):
        make_app().task()(lambda: None)


def test_a_flow_of_tasks_instead_of_steps_says_so(make_app):
    app = make_app()

    @app.task()
    def one() -> int: ...

    for wrong in (lambda: one.s() | one, lambda: group(one), lambda: group(one.s()).then(one)):
        with pytest.raises(Invalid, match=r"task\.s\(\)"):
            wrong()
    with pytest.raises(Invalid, match="then"):
        group(one.s()).enqueue()


def test_a_worker_in_a_running_loop_says_what_to_await(make_app):
    app = make_app()

    @app.task()
    def one() -> int: ...

    async def inside() -> None:
        Worker(app).run()

    with pytest.raises(Conflict, match="arun"):
        asyncio.run(inside())
