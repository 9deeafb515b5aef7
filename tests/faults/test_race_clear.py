"""An enqueue that is repeated because its answer was lost, when its job has finished meanwhile."""

from towpath import State


def test_a_job_that_cleared_the_way_and_has_finished_is_not_stored_again(make_app):
    app = make_app()
    enqueue = app.storing.stored("mail", (1,), {"key": "k", "unique": "clear"})
    app.run(enqueue)
    app.jobs.complete(app.jobs.reserve("mail")[0])

    [again] = app.run(enqueue)  # as a lane does when it has connected anew

    assert again.state is State.COMPLETED
    assert app.jobs.reserve("mail") == []
