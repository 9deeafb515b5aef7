"""A replay whose process is killed: another process goes on, and makes each delivery once."""

import pytest

from tests.behaviour.webhooks import Webhooks
from tests.faults.processes import wait_until
from towpath import App, NewEvent
from towpath.model.sealing import new_key

EVENTS = 300
RATE = "100/s"  # a hundred, then a second of rest


@pytest.fixture
def place(place):
    url, needed = place
    return url, {**needed, "webhook_key": new_key()}


@pytest.fixture
def hooks(place):
    url, needed = place
    with App(url, **needed) as app:
        yield Webhooks(app)


def made(hooks):
    [(count,)] = hooks.sql("select count(*) from towpath.sagas where replay_no > 0")
    return count


def test_a_replay_that_is_killed_half_way_goes_on_in_another_process(hooks, start):
    """Check 39, WH-8"""
    app, id = hooks.app, hooks.create(concurrency=100).id
    app.events.publish_many("orders", [NewEvent(each) for each in range(EVENTS)])
    hooks.route()
    while hooks.deliver():
        pass
    job = app.webhooks.replay(id, status="Completed", rate=RATE)

    killed = start("deliver", only="replayer")
    wait_until(lambda: made(hooks))
    killed.kill_alive()
    before = made(hooks)
    hooks.sql("update towpath.lease set until = 1")  # as after the five minutes of its lease
    start("deliver", only="replayer")
    wait_until(lambda: app.jobs.get(job.id).status == "completed")

    assert 0 < before < EVENTS
    assert app.jobs.get(job.id).returned == {"made": EVENTS}
    again = hooks.sql("select event_id, replay_no from towpath.sagas where replay_no > 0")
    assert len(again) == len({event for event, _ in again}) == EVENTS
    assert {number for _, number in again} == {1}
    assert app.jobs.get(job.id).epoch == 2
    hooks.check()
