"""Keys: what an enqueue does when an unfinished job holds its key (MS-1)."""

import pytest

from towpath import Limit, State, Status
from towpath.errors import Invalid


def test_skip_returns_the_standing_job(app):
    """MS-1"""
    first = app.jobs.enqueue("mail", 1, key="a")

    again = app.jobs.enqueue("mail", 2, key="a", unique="skip")

    assert (again.id, again.payload) == (first.id, 1)


def test_replace_cancels_the_standing_job_and_stores_the_new_one(app):
    """MS-1"""
    first = app.jobs.enqueue("mail", 1, key="a")

    second = app.jobs.enqueue("mail", 2, key="a", unique="replace")

    assert app.jobs.get(first).status is Status.CANCELLED
    assert [lease.job.id for lease in app.jobs.reserve("mail", limit=5)] == [second.id]


def test_replace_asks_a_running_job_to_stop(app):
    """MS-1"""
    first = app.jobs.enqueue("mail", 1, key="a")
    [lease] = app.jobs.reserve("mail")

    second = app.jobs.enqueue("mail", 2, key="a", unique="replace")

    assert second.id != first.id
    assert app.jobs.get(first).cancel_requested
    app.jobs.complete(lease)  # it was quicker
    assert app.jobs.enqueue("mail", 3, key="a").id == second.id


def test_update_changes_a_pending_job_in_its_place(app):
    """MS-1"""
    first = app.jobs.enqueue("mail", 1, key="a", delay=60)
    limit = Limit("smtp", concurrency=1)

    second = app.jobs.enqueue(
        "mail", 2, key="a", unique="update", priority=7, max_retries=9, ttr=7, limit=limit
    )

    assert (second.id, second.payload, second.priority) == (first.id, 2, 7)
    assert second.run_at == first.run_at
    assert (second.options.max_retries, second.options.limit) == (9, limit)
    assert second.ttr.seconds == 7
    assert app.jobs.stats().pending == 1


@pytest.mark.parametrize("unique", ["update", "debounce"])
def test_beside_a_job_that_runs_a_new_one_is_stored(app, clock, unique):
    """MS-1: What was asked while it ran is not lost, and both end by themselves."""
    first = app.jobs.enqueue("mail", 1, key="a")
    [lease] = app.jobs.reserve("mail")

    second = app.jobs.enqueue("mail", 2, key="a", unique=unique, delay=5)
    third = app.jobs.enqueue("mail", 3, key="a", unique=unique, delay=5)

    assert second.id == third.id != first.id
    assert app.jobs.get(second).payload == 3
    app.jobs.complete(lease)
    assert app.jobs.get(first).status is Status.COMPLETED
    assert app.jobs.enqueue("mail", 4, key="a").id == second.id
    clock.advance(5)
    [lease] = app.jobs.reserve("mail", limit=5)
    assert lease.job.payload == 3


@pytest.mark.parametrize("unique", ["replace", "update", "debounce"])
def test_a_new_job_may_run_beside_the_one_that_had_its_key(app, unique):
    app.jobs.enqueue("mail", 1, key="a")
    app.jobs.reserve("mail")

    app.jobs.enqueue("mail", 2, key="a", unique=unique, delay=0)

    assert [lease.job.payload for lease in app.jobs.reserve("mail")] == [2]


@pytest.mark.parametrize("unique", ["replace", "update", "debounce"])
def test_with_a_limit_of_one_a_new_job_waits_for_the_one_that_had_its_key(app, unique):
    options = {"key": "a", "limit": Limit("totals", concurrency=1)}
    app.jobs.enqueue("mail", 1, **options)
    [lease] = app.jobs.reserve("mail")

    app.jobs.enqueue("mail", 2, **options, unique=unique, delay=0)

    assert app.jobs.reserve("mail") == []
    app.jobs.complete(lease)
    assert [lease.job.payload for lease in app.jobs.reserve("mail", limit=2)] == [2]


def test_a_job_that_let_go_of_its_key_does_not_take_it_from_the_other(app):
    first = app.jobs.enqueue("mail", 1, key="a")
    [lease] = app.jobs.reserve("mail")
    second = app.jobs.enqueue("mail", 2, key="a", unique="update")
    app.jobs.release(lease, delay=60)

    app.jobs.cancel(first)

    assert app.jobs.enqueue("mail", 3, key="a").id == second.id


def test_debounce_waits_anew_with_every_call(app, clock):
    """MS-1"""
    app.jobs.enqueue("mail", 1, key="a", unique="debounce", delay=10)
    for number in (2, 3, 4):
        clock.advance(8)
        app.jobs.enqueue("mail", number, key="a", unique="debounce", delay=10)
        assert app.jobs.reserve("mail") == []

    clock.advance(10)

    [lease] = app.jobs.reserve("mail", limit=5)
    assert lease.job.payload == 4


def test_debounce_makes_a_ready_job_wait_again(app, clock):
    job = app.jobs.enqueue("mail", 1, key="a")

    app.jobs.enqueue("mail", 2, key="a", unique="debounce", delay=10)

    assert app.jobs.get(job).state is State.DELAYED


@pytest.mark.parametrize("end", ["complete", "bury", "cancel"])
def test_clear_forgets_finished_runs_and_starts_again(app, end):
    """MS-1"""
    first = app.jobs.enqueue("mail", 1, key="a")
    [lease] = app.jobs.reserve("mail")
    app.jobs.fail(lease, "no", delay=0)
    [lease] = app.jobs.reserve("mail")
    if end == "cancel":
        app.jobs.release(lease)
        app.jobs.cancel(first)
    else:
        getattr(app.jobs, end)(lease)

    second = app.jobs.enqueue("mail", 2, key="a", unique="clear")

    assert [job.id for job in app.jobs.list(key="a")] == [second.id]
    assert app.jobs.failures(first) == []


def test_clear_leaves_an_unfinished_job_alone(app):
    """MS-1"""
    first = app.jobs.enqueue("mail", 1, key="a")

    assert app.jobs.enqueue("mail", 2, key="a", unique="clear").id == first.id


def test_the_content_of_a_blocked_job_can_be_updated(app):
    limit = Limit("one", concurrency=1)
    app.jobs.enqueue("mail", "holds it", limit=limit)
    job = app.jobs.enqueue("mail", 1, key="a", limit=limit)
    app.jobs.reserve("mail", limit=2)
    assert app.jobs.get(job).state is State.BLOCKED

    app.jobs.enqueue("mail", 2, key="a", unique="update", limit=limit)

    assert app.jobs.get(job).state is State.BLOCKED
    assert app.jobs.get(job).payload == 2


@pytest.mark.parametrize(
    "options",
    [
        {"unique": "replace"},
        {"unique": "at times", "key": "a"},
        {"unique": "debounce", "key": "a"},
    ],
)
@pytest.mark.one_database
def test_a_wish_that_makes_no_sense_is_refused(app, options):
    with pytest.raises(Invalid):
        app.jobs.enqueue("mail", 1, **options)

    assert app.jobs.stats().pending == 0
