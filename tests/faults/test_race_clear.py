"""An enqueue that is repeated because its answer was lost, when its job has moved on meanwhile."""

from functools import partial

import pytest
from msgspec.structs import replace

from towpath import State, Status


def repeated(operation):
    """Return an operation as a lane runs it when its answer was lost."""
    return replace(operation, start=partial(operation.steps, again=True))


def test_a_job_that_cleared_the_way_and_has_finished_is_not_stored_again(make_app):
    app = make_app()
    enqueue = app.storing.stored("mail", (1,), {"key": "k", "unique": "clear"})
    app.run(enqueue)
    app.jobs.complete(app.jobs.reserve("mail")[0])

    [again] = app.run(repeated(enqueue))

    assert again.state is State.COMPLETED
    assert app.jobs.reserve("mail") == []


@pytest.mark.parametrize("unique", ["skip", "replace", "update", "debounce", "clear"])
@pytest.mark.parametrize("end", ["begins", "completes"])
def test_a_job_that_was_stored_and_has_moved_on_is_not_stored_again(make_app, unique, end):
    app = make_app()
    enqueue = app.storing.stored("mail", (1,), {"key": "k", "unique": unique, "delay": 0})
    [job] = app.run(enqueue)
    [lease] = app.jobs.reserve("mail")
    if end == "completes":
        app.jobs.complete(lease)

    [again] = app.run(repeated(enqueue))

    assert again.id == job.id
    assert [each.id for each in app.jobs.list()] == [job.id]


@pytest.mark.parametrize("unique", ["update", "debounce"])
@pytest.mark.parametrize("end", ["begins", "completes"])
def test_a_job_that_was_changed_and_has_moved_on_is_not_followed_by_another(make_app, unique, end):
    app = make_app()
    first = app.jobs.enqueue("mail", 1, key="k")
    enqueue = app.storing.stored("mail", (2,), {"key": "k", "unique": unique, "delay": 0})
    app.run(enqueue)
    [lease] = app.jobs.reserve("mail")
    assert lease.job.payload == 2
    if end == "completes":
        app.jobs.complete(lease)

    [again] = app.run(repeated(enqueue))

    assert again.id == first.id
    assert [each.id for each in app.jobs.list()] == [first.id]


@pytest.mark.parametrize("unique", ["update", "debounce"])
def test_a_repeated_change_does_not_undo_a_later_one(make_app, unique):
    app = make_app()
    app.jobs.enqueue("mail", 1, key="k")
    enqueue = app.storing.stored("mail", (2,), {"key": "k", "unique": unique, "delay": 0})
    app.run(enqueue)
    app.jobs.enqueue("mail", 3, key="k", unique=unique, delay=0)

    [again] = app.run(repeated(enqueue))

    assert again.payload == 3


def test_a_replaced_job_stays_cancelled_and_its_successor_is_not_stored_again(make_app):
    app = make_app()
    first = app.jobs.enqueue("mail", 1, key="k")
    enqueue = app.storing.stored("mail", (2,), {"key": "k", "unique": "replace"})
    [second] = app.run(enqueue)
    app.jobs.complete(app.jobs.reserve("mail")[0])

    [again] = app.run(repeated(enqueue))

    assert (again.id, again.status) == (second.id, Status.COMPLETED)
    assert app.jobs.get(first).status is Status.CANCELLED
    assert len(app.jobs.list()) == 2
