"""Every action, tried in every state, does what the table in model/states.py says."""

from itertools import product

import pytest

from towpath import Limit, State
from towpath.errors import Conflict, NotFound
from towpath.model.states import TRANSITIONS, Action, allows

WITH_LEASE = {
    Action.COMPLETE: lambda app, lease: app.jobs.complete(lease),
    Action.BACK_OFF: lambda app, lease: app.jobs.fail(lease, "no"),
    Action.GIVE_UP: lambda app, lease: app.jobs.fail(lease, "no"),
    Action.RELEASE: lambda app, lease: app.jobs.release(lease),
    Action.POSTPONE: lambda app, lease: app.jobs.release(lease, delay=5),
    Action.BURY: lambda app, lease: app.jobs.bury(lease),
    Action.DISCARD: lambda app, lease: app.jobs.delete(lease),
}
SAID_AGAIN = {Action.COMPLETE, Action.RELEASE, Action.POSTPONE, Action.BURY}  # holds once
WITHOUT = {
    Action.KICK: lambda app, job: app.jobs.kick_job(job),
    Action.REQUEUE: lambda app, job: app.jobs.requeue(job),
    Action.CANCEL: lambda app, job: app.jobs.cancel(job),
    Action.DELETE: lambda app, job: app.jobs.delete(job),
}


def job_in(app, state, tries):
    """Bring a job that was reserved once before into a state, by the public API only.

    Returns it with its newest lease, which is good only in the state reserved.
    """
    job = app.jobs.enqueue("q", "t", max_retries=tries, limit=Limit("one", concurrency=1))
    [lease] = app.jobs.reserve("q")
    if state is State.RESERVED:
        return job, lease
    if state is State.BURIED:
        app.jobs.bury(lease)
    elif state is State.COMPLETED:
        app.jobs.complete(lease)
    else:
        app.jobs.release(lease, delay=500 if state is State.DELAYED else 0)
    if state is State.BLOCKED:
        app.jobs.enqueue("r", limit=Limit("one", concurrency=1))
        app.jobs.reserve("r", session=app.sessions.start())
        app.jobs.reserve("q")
    if state is State.CANCELLED:
        app.jobs.cancel(job)
    assert app.jobs.get(job).state is state
    return job, lease


@pytest.mark.parametrize(
    ("state", "action"),
    [
        (state, action)
        for state, action in product(State, [*WITH_LEASE, *WITHOUT])
        # Cancelling a running job is a request that test_outcomes.py follows to its end.
        if (state, action) != (State.RESERVED, Action.CANCEL)
    ],
)
def test_every_action_in_every_state(app, state, action):
    """EC-7: deleting a processing job is refused; and so on."""
    job, lease = job_in(app, state, tries=1 if action is Action.GIVE_UP else 3)
    before = app.jobs.get(job)

    def act():
        return WITH_LEASE[action](app, lease) if action in WITH_LEASE else WITHOUT[action](app, job)

    goal = TRANSITIONS[action][1]
    if not allows(state, action):
        if action in SAID_AGAIN and state is goal:
            act()
        else:
            with pytest.raises(Conflict):
                act()
        assert app.jobs.get(job) == before
        return
    act()
    if goal is None:
        with pytest.raises(NotFound):
            app.jobs.get(job)
    else:
        assert app.jobs.get(job).state is goal


@pytest.mark.parametrize("state", State)
def test_only_ready_jobs_are_reserved(app, state):
    job_in(app, state, tries=3)

    assert len(app.jobs.reserve("q")) == allows(state, Action.RESERVE)


@pytest.mark.parametrize("state", State)
def test_upkeep_promotes_and_rescues_what_the_table_says(app, clock, state):
    job, _ = job_in(app, state, tries=3)
    clock.advance("1h")

    app.upkeep.run()

    moved = allows(state, Action.PROMOTE) or allows(state, Action.RESCUE)
    assert app.jobs.get(job).state is (State.READY if moved else state)


def test_every_state_and_action_is_in_the_table():
    reached = {goal for _, goal in TRANSITIONS.values()} - {None}
    left = set().union(*(sources for sources, _ in TRANSITIONS.values()))

    assert set(TRANSITIONS) == set(Action)
    assert reached | left == set(State)
