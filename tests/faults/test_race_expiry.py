"""A job that was reserved and given back unseen has not begun."""

from towpath import Limit, State

ONE = Limit("printer", concurrency=1)


def test_what_only_waited_for_its_limit_still_expires(app, clock):
    """The first look of an app at a topic does not know of limits, and gives them back."""
    app.jobs.enqueue("mail", 1, limit=ONE)
    second = app.jobs.enqueue("mail", 2, limit=ONE, expires_after="1m")
    [lease] = app.jobs.reserve("mail", limit=2)

    clock.advance("2m")
    app.jobs.complete(lease)

    assert app.jobs.reserve("mail") == []
    assert app.jobs.get(second).state is State.CANCELLED


def test_the_key_of_what_only_waited_for_its_limit_is_free_when_it_is_too_late(app, clock):
    app.jobs.enqueue("mail", 1, limit=ONE)
    app.jobs.enqueue("mail", 2, limit=ONE, expires_after="1m", key="k")
    app.jobs.reserve("mail", limit=2)

    clock.advance("2m")

    assert app.jobs.enqueue("mail", 3, key="k").payload == 3


def test_what_a_worker_has_begun_and_could_not_end_does_not_expire(app, clock):
    job = app.jobs.enqueue("mail", expires_after="1m")
    session = app.sessions.start("worker")
    app.jobs.reserve("mail", session=session)
    app.sessions.end(session)

    clock.advance("2m")

    assert [lease.job.id for lease in app.jobs.reserve("mail")] == [job.id]
