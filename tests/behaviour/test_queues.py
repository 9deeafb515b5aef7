"""DQ-17: app.queues, what a server of delay queues needs beyond the verbs of jobs."""

import pytest

from towpath import Limit, State
from towpath.errors import InvalidState, LeaseLost, NotFound
from towpath.model.states import Action, allows


def job_in(app, state):
    job = app.jobs.enqueue("q", "t")
    if state is State.BLOCKED:
        parent = app.jobs.enqueue("parents")
        return app.jobs.enqueue("q", "t", after=[parent])
    if state is State.DELAYED:
        return app.jobs.enqueue("q", "t", delay=500)
    [lease] = app.jobs.reserve("q") if state is not State.READY else [None]
    if state is State.BURIED:
        app.jobs.bury(lease)
    elif state is State.COMPLETED:
        app.jobs.complete(lease)
    elif state is State.CANCELLED:
        app.jobs.release(lease)
        app.jobs.cancel(job)
    return job


@pytest.mark.parametrize("state", State)
def test_a_job_is_picked_by_its_number_where_the_table_says_so(app, state):
    job = job_in(app, state)
    before = app.jobs.get(job)
    assert before.state is state

    if allows(state, Action.PICK):
        lease = app.queues.pick(job.seq)
        assert lease.job == app.jobs.get(job)
        assert lease.job.state is State.RESERVED
        assert lease.epoch == before.epoch + 1
        app.jobs.complete(lease)
    else:
        with pytest.raises(InvalidState):
            app.queues.pick(job.seq)
        assert app.jobs.get(job) == before


def test_what_is_picked_comes_back_at_its_ttr(app, clock):
    job = app.jobs.enqueue("q", ttr=10)
    lease = app.queues.pick(job.seq)
    clock.advance(11)

    [again] = app.jobs.reserve("q")

    assert again.job.timeouts == 1
    with pytest.raises(LeaseLost):
        app.jobs.complete(lease)


def test_there_is_nothing_to_pick(app):
    with pytest.raises(NotFound):
        app.queues.pick(77)
    assert app.queues.look(77) is None


def test_a_job_with_a_limit_is_not_picked(app):
    job = app.jobs.enqueue("q", limit=Limit("one", concurrency=1))

    with pytest.raises(InvalidState):
        app.queues.pick(job.seq)


def test_a_buried_job_with_a_key_is_not_picked(app):
    """Another may hold its key by now: a kick sees to that."""
    job = app.jobs.enqueue("q", key="k")
    app.jobs.bury(app.jobs.reserve("q")[0])

    with pytest.raises(InvalidState):
        app.queues.pick(job.seq)
    assert app.jobs.get(job).state is State.BURIED


def test_a_lease_of_a_session_may_expire_too(app, clock):
    session = app.sessions.start()
    app.jobs.enqueue("q", ttr=10)
    [lease] = app.jobs.reserve("q", session=session, expires=True)
    clock.advance(9)
    app.jobs.touch(lease)
    clock.advance(9)
    assert app.jobs.reserve("q") == []

    clock.advance(2)

    assert len(app.jobs.reserve("q")) == 1


def test_a_lease_of_a_session_that_expires_comes_back_with_the_session(app):
    session = app.sessions.start()
    for topics in ("q", ["q", "r"]):
        app.jobs.enqueue("q", ttr=1_000)
        assert app.jobs.reserve(topics, session=session, expires=True)

    app.sessions.end(session)

    leases = app.jobs.reserve("q", limit=2)
    assert [(lease.job.timeouts, lease.job.crashes) for lease in leases] == [(0, 0), (0, 0)]


def test_what_is_due_counts_as_ready(app, clock):
    app.jobs.enqueue("q", ttr=10, priority=2_000)
    app.jobs.reserve("q")
    app.jobs.enqueue("q", delay=5)
    app.jobs.enqueue("q", delay=50)
    app.jobs.enqueue("r")
    app.topics.pause("q", 100)
    [before] = app.queues.counts("q")
    clock.advance(10)

    [after] = app.queues.counts("q")

    assert (before.ready, before.urgent, before.delayed, before.reserved) == (0, 0, 2, 1)
    assert (after.ready, after.urgent, after.delayed, after.reserved) == (2, 1, 1, 0)
    assert after.paused_for.total_seconds() == 90
    assert [each.topic for each in app.queues.counts()] == ["q", "r"]


def test_what_is_seen_is_where_it_belongs_by_the_clock(app, clock):
    delayed, held = app.jobs.enqueue("q", delay=5), app.jobs.enqueue("r", ttr=5)
    app.jobs.reserve("r")
    clock.advance(6)

    for job in (delayed, held):
        assert app.queues.look(job.seq).state is State.READY
        assert app.queues.look(job.seq).at == clock.now
        assert app.jobs.get(job).state is not State.READY
    app.queues.come_due(["q", "r"])
    for job in (delayed, held):
        assert app.jobs.get(job).state is State.READY


def test_leases_are_deleted_and_given_back_together(app):
    for _ in range(4):
        app.jobs.enqueue("q")
    leases = app.jobs.reserve("q", limit=4)
    app.jobs.complete(leases[0])

    assert app.queues.delete_many(leases[:2]) == leases[:1]
    app.queues.give_back(leases[2:])
    app.queues.give_back(leases)

    again = app.jobs.reserve("q", limit=4)
    assert [lease.job.seq for lease in again] == [lease.job.seq for lease in leases[2:]]
    assert [lease.job.releases for lease in again] == [0, 0]
