"""Another chance for a job whose other parent is gone for good, or for what is no job by itself."""

import pytest

from tests.faults.gates import Gate
from towpath import State
from towpath.errors import InvalidState


def test_a_job_that_waits_for_one_that_was_deleted_is_not_let_wait_again(app):
    """It would wait for ever: what is gone cannot be requeued."""
    first, second = app.jobs.enqueue("mail"), app.jobs.enqueue("mail")
    third = app.jobs.enqueue("report", after=[first, second])
    app.jobs.cancel(first)
    app.jobs.delete(second)

    app.jobs.requeue(first)
    app.jobs.complete(app.jobs.reserve("mail")[0])

    assert app.jobs.get(third).state is State.BURIED


def test_a_job_whose_parents_have_both_failed_waits_again_with_the_last_of_them(app):
    first, second = app.jobs.enqueue("mail"), app.jobs.enqueue("mail")
    third = app.jobs.enqueue("report", after=[first, second])
    app.jobs.cancel(first)
    app.jobs.cancel(second)

    app.jobs.requeue(first)
    assert app.jobs.get(third).state is State.BURIED
    app.jobs.requeue(second)
    assert app.jobs.get(third).state is State.BLOCKED
    for lease in app.jobs.reserve("mail", limit=2):
        app.jobs.complete(lease)

    assert app.jobs.get(third).state is State.READY


@pytest.mark.parametrize("kind", ["postgres"])
@pytest.mark.parametrize("verb", ["kick", "requeue", "kick_job"])
def test_a_run_that_has_just_failed_is_not_given_another_chance_by_itself(
    make_app, threads, books, verb
):
    """It lies among the buried until its job has heard of it."""
    app, other = make_app(), make_app()
    job = app.jobs.enqueue("mail", workers=2)
    [lease] = app.jobs.reserve("mail", worker="w")

    with Gate(app, threads).before("hand_in", lambda: app.jobs.bury(lease, error="no")):
        if verb == "kick":
            assert other.jobs.kick("mail") == 0
        else:
            with pytest.raises(InvalidState):
                getattr(other.jobs, verb)(lease.job)

    assert books.rows("select seq from towpath.ready") == []
    assert app.jobs.get(job).state is State.BURIED  # one failed worker is one too many
    assert [job.seq for job in app.jobs.list(topic="mail", status="pending")] == []
