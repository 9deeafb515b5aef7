"""Backoff: how long a failed job waits, in every way to say it."""

import math
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import eventually
from tests.workers import ended, working
from towpath import Backoff, Retry
from towpath.errors import Invalid
from towpath.model.backoff import backoff_of
from towpath.model.job import Options


def waits(app, clock, times, **options):
    """Let a job fail so often, and say how long it waited each time."""
    job = app.jobs.enqueue("mail", {}, max_retries=times + 1, **options)
    found = []
    for _ in range(times):
        [lease] = app.jobs.reserve("mail")
        app.jobs.fail(lease, "no")
        found.append((app.jobs.get(job).run_at - clock.now).total_seconds())
        clock.advance(found[-1])
    app.jobs.delete(job)
    return found


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (Backoff(), [60, 240, 960, 3840]),
        (Backoff.exponential("5s", 2, most="15s"), [5, 10, 15, 15]),
        (Backoff.linear("10s", most=35), [10, 20, 30, 35]),
        (Backoff.linear(10, "5s"), [10, 15, 20, 25]),
        (Backoff.constant(timedelta(seconds=7)), [7, 7, 7, 7]),
        ("15m", [900, 900, 900, 900]),
        (2.5, [2.5, 2.5, 2.5, 2.5]),
        (0, [0, 0, 0, 0]),
        ([1, "1m", timedelta(hours=1)], [1, 60, 3600, 3600]),
        ((3,), [3, 3, 3, 3]),
    ],
    ids=str,
)
def test_a_backoff_is_stored_with_the_job(app, clock, backoff, expected):
    """DQ-14, US4-1: 1 min, 4 min, 16 min … unless told."""
    assert waits(app, clock, 4, backoff=backoff) == expected


def test_jitter_is_a_share_of_the_wait_and_the_same_each_time_it_is_asked_for(app, clock):
    rule = Backoff.constant(100, jitter=0.2)
    jobs = [waits(app, clock, 3, backoff=rule) for _ in range(5)]

    each = [wait for found in jobs for wait in found]
    assert all(80 <= wait <= 120 for wait in each)
    assert len(set(each)) == len(each)
    assert rule.seconds(1, "a job") == rule.seconds(1, "a job") != rule.seconds(2, "a job")


def test_jitter_never_exceeds_the_most():
    rule = Backoff.exponential(10, most=10, jitter=1)

    assert max(rule.seconds(1, job) for job in range(100)) == 10


@pytest.mark.parametrize(
    "wrong",
    [
        Backoff(first=-1),
        Backoff(factor=math.nan),
        Backoff(factor="2"),
        Backoff(jitter=1.5),
        Backoff(first="5s"),
        Backoff(waits=(1, -1)),
        [],
        [1, "soon"],
        [0] * 101,
        "soon",
        -1,
        None,
        True,
        len,
    ],
    ids=str,
)
@pytest.mark.one_database
def test_a_backoff_that_makes_no_sense_is_refused(app, wrong):
    with pytest.raises(Invalid):
        app.jobs.enqueue("mail", {}, backoff=wrong)
    assert app.jobs.stats().ready == 0


def test_no_wait_at_first_is_none_after_a_thousand_failures():
    assert Backoff(first=0.0).seconds(5_000) == 0


rules = st.builds(
    Backoff,
    first=st.floats(0, 1e9),
    factor=st.floats(0, 1e9),
    most=st.floats(0, 1e9),
    step=st.floats(0, 1e9),
    jitter=st.floats(0, 1),
    waits=st.lists(st.floats(0, 1e9), max_size=5).map(tuple),
)


@given(rules, st.integers(1, 100_000))
def test_a_wait_is_between_nothing_and_the_most(rule, failures):
    assert 0 <= rule.seconds(failures, "a job") <= rule.most


@given(rules)
def test_a_rule_is_read_as_it_was_stored(rule):
    options = Options(backoff=backoff_of(rule))

    assert msgspec.json.decode(msgspec.json.encode(options), type=Options) == options


# ---------------------------------------------------------------- a function of the task's own


def first_wait(app, task):
    """Let a worker fail a job of this task once, and say how long it will wait."""
    job = task.enqueue()
    with working(app):
        eventually(lambda: app.jobs.get(job).retries)
    found = app.jobs.get(job)
    [failure] = app.jobs.failures(job)
    return round((found.run_at - failure.failed_at).total_seconds())


def test_a_function_of_the_failures_is_asked_by_the_worker(make_app):
    app = make_app()

    @app.task(backoff=lambda failures: f"{failures * 100}s")
    async def fail() -> None:
        raise ValueError

    assert first_wait(app, fail) == 100


def test_a_function_may_look_at_the_error(make_app):
    app = make_app()
    seen = []

    def wait(failures: int, error: Exception) -> float:
        seen.append((failures, type(error)))
        return 30

    @app.task(backoff=wait)
    def fail() -> None:
        raise Retry from KeyError("who")

    assert first_wait(app, fail) == 30
    assert seen == [(1, KeyError)]


@pytest.mark.parametrize(
    "wrong", [lambda _: 1 / 0, lambda _: "soon", len], ids=["raises", "no wait", "no argument"]
)
def test_a_function_that_fails_leaves_the_default(make_app, wrong):
    app = make_app()

    @app.task(backoff=wrong)
    async def fail() -> None:
        raise ValueError

    assert first_wait(app, fail) == 60


def test_what_a_call_says_goes_before_the_function(make_app):
    app = make_app()

    @app.task(backoff=lambda _: 1_000)
    async def fail() -> None:
        raise ValueError

    assert first_wait(app, fail.using(backoff=[5])) == 5


def test_retry_after_goes_before_the_function(make_app):
    app = make_app()

    @app.task(backoff=lambda _: 1_000)
    async def fail() -> None:
        raise Retry(after="7s")

    assert first_wait(app, fail) == 7


def test_a_retry_that_makes_no_sense_fails_the_job_and_not_the_worker(make_app):
    app = make_app()

    @app.task(max_retries=1)
    async def fail(after: str) -> None:
        raise Retry(after=after)

    with working(app):
        assert "after 'soon' is not" in ended(app, fail.enqueue("soon")).last_error
