"""A key whose job is in line, wanted for one that chooses its workers; and the other way round."""

import pytest

from towpath import State


@pytest.mark.parametrize("unique", [{"unique": "update"}, {"unique": "debounce", "delay": 0}])
def test_a_job_in_line_that_is_to_choose_its_workers_is_not_given_to_others_too(app, unique):
    first = app.jobs.enqueue("mail", 1, key="k")

    app.jobs.enqueue("mail", 2, key="k", workers=1, **unique)

    assert app.jobs.reserve("mail", limit=2) == []
    assert [each.job.payload for each in app.jobs.reserve("mail", worker="w")] == [2]
    assert app.jobs.get(first).state is State.CANCELLED


def test_a_job_that_is_to_choose_its_workers_no_more_comes_into_line(app):
    app.jobs.enqueue("mail", 1, key="k", workers=1)

    app.jobs.enqueue("mail", 2, key="k", unique="update")

    assert app.jobs.reserve("mail", worker="w")[0].job.payload == 2
    assert app.jobs.reserve("mail", worker="w") == []


def test_a_job_that_chooses_its_workers_can_be_postponed_by_its_key(app, clock):
    for payload in (1, 2):
        app.jobs.enqueue("mail", payload, key="k", workers=1, unique="debounce", delay=5)
        clock.advance(4)

    assert app.jobs.reserve("mail", worker="w") == []
    clock.advance(1)
    assert [each.job.payload for each in app.jobs.reserve("mail", worker="w")] == [2]
