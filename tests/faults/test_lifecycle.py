"""Lifecycle events equal what happened, each once: answers are lost, processes are killed."""

import time
from collections import Counter, defaultdict

import pytest

from tests.faults.chance import dice
from tests.faults.processes import wait_until
from tests.faults.proxy import COMMIT, Proxy
from tests.faults.sizes import many
from towpath import App, State
from towpath.app.outcomes import failure
from towpath.operation import value_of
from towpath.store import leases, reserving
from towpath.store.lifecycle import LEVELS

AFTER = {  # the state of a job after each event, by the one before
    ("", "job.enqueued"): "pending",
    ("pending", "job.reserved"): "running",
    ("pending", "job.cancelled"): "cancelled",
    ("pending", "job.deleted"): "gone",
    ("running", "job.completed"): "completed",
    ("running", "job.retried"): "pending",
    ("running", "job.rescued"): "pending",
    ("running", "job.released"): "pending",
    ("running", "job.failed"): "failed",
    ("running", "job.cancelled"): "cancelled",
    ("running", "job.expired"): "cancelled",
    ("failed", "job.requeued"): "pending",
    ("failed", "job.deleted"): "gone",
}
PROGRAMS = ("juggle", "juggle", "work_in_session", "work_in_session")
JUGGLERS = (0, 1)
ROUNDS, JOBS = many(8), many(1_000)


def events_of(app):
    """All events of channel `system`."""
    found, page = [], app.events.read("system")
    while page.events:
        found += page.events
        page = app.events.read("system", page.cursor)
    return found


@pytest.mark.chaos
def test_the_events_are_the_lives_of_the_jobs(start, place, tmp_path):
    """MS-10, EV-5: whatever ends a job, and whichever process is killed while it does."""
    chance = dice(18)
    settings = {"lifecycle": "all", "beat_every": 0.2, "dead_after": 1.0, "max_crashes": 2}
    url, needed = place

    def begin(nth):
        more = {"record": str(tmp_path / f"record-{nth}")} if PROGRAMS[nth] == "juggle" else {}
        return start(PROGRAMS[nth], settings=settings, seed=chance.random(), **more)

    with App(url, **needed, **settings) as app:
        app.upkeep.start()
        living = {nth: begin(nth) for nth in range(len(PROGRAMS))}
        for _ in range(ROUNDS):
            app.jobs.enqueue_many("mail", range(JOBS // ROUNDS), ttr=0.5)
            app.jobs.enqueue_many("mail", range(3), priority=99, ttr=0.5, expires_after=0.01)
            # Not a wait for anything: the instant is the point.
            time.sleep(chance.uniform(0.1, 0.6))
            victim = chance.choice(list(living))
            living[victim].kill_alive()
            living[victim] = begin(victim)
        for nth in JUGGLERS:  # which enqueue for ever
            living.pop(nth).kill_alive()
        wait_until(lambda: not app.jobs.stats().ready, many(60))
        for each in living.values():
            each.kill_alive()
        one_of_each(app)
        wait_until(lambda: not app.jobs.stats().reserved)
        for topic in app.topics.list():
            app.jobs.purge(topic)  # what is left waits, or has failed

        lives = defaultdict(list)
        for event in events_of(app):
            if event.type.startswith("job."):
                lives[event.payload["id"]].append(event)
        ended = {str(job.id): job for job in all_jobs(app)}
        assert len(lives) >= JOBS + 3 * ROUNDS
        assert ended.keys() <= lives.keys()
        for id, life in lives.items():
            check(life, ended.get(id))
        assert {event.type for life in lives.values() for event in life} == {
            type for type in LEVELS if type.startswith("job.")
        }


def one_of_each(app):
    """End jobs in the ways that chance may have left out."""
    app.jobs.enqueue_many("post", range(5))
    done, failed, released, buried, cancelled = app.jobs.reserve("post", limit=5)
    app.jobs.enqueue("brief", ttr=0.5)
    app.jobs.reserve("brief")  # and its lease ends
    app.jobs.complete(done)
    app.jobs.fail(failed, "bad luck")
    app.jobs.release(released)
    app.jobs.bury(buried)
    app.jobs.kick("post", 1)
    app.jobs.cancel(cancelled.job)
    app.jobs.release(cancelled)
    app.jobs.enqueue("late", delay=0.01, expires_after=0.005)
    wait_until(lambda: not app.jobs.reserve("late") and app.jobs.list(topic="late")[0].finished_at)


def all_jobs(app):
    found = app.jobs.list(limit=1_000)
    while page := app.jobs.list(limit=1_000, before=found[-1]):
        found += page
    return found


def check(life, job):
    """Assert that the events of a job lead to where it is, and count what it counts."""
    state, epoch = "", 0
    for event in life:
        state = AFTER[state, event.type]
        epoch += event.type == "job.reserved"
        assert event.payload["epoch"] == epoch
    if job is None:
        assert state == "gone"
        return
    assert state == {State.COMPLETED: "completed", State.CANCELLED: "cancelled"}[job.state]
    assert epoch == job.epoch
    kinds = Counter(event.payload.get("kind") for event in life)
    assert (kinds["error"], kinds["crash"], kinds["timeout"]) == (
        job.retries,
        job.crashes,
        job.timeouts,
    )


@pytest.mark.parametrize("kind", ["postgres"])
def test_operations_that_share_a_transaction_tell_their_changes_in_order(make_app, kind):
    """The first statements of operations are sent together, and one may see what another did."""
    app = make_app(lifecycle="all")
    job = app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")
    reserve = reserving.reserve(("mail",), limit=1, token=7)
    fail = leases.settle([failure(lease, "no", 0)])
    lane = app._database._lanes.lanes[0]

    [reserved, _] = lane.run([reserve, fail], time.monotonic())

    assert [lease.job.id for lease in value_of(reserved).leases] in ([], [job.id])
    types = [event.type for event in events_of(app)][2:]
    assert types in (["job.retried"], ["job.retried", "job.reserved"])


# ---------------------------------------------------------------- lost answers


@pytest.fixture
def proxy(postgres):
    with Proxy(postgres.port) as proxy:
        yield proxy


CHANGES = {
    "job.enqueued": lambda app, lease: app.jobs.enqueue("mail"),
    "job.reserved": lambda app, lease: app.jobs.reserve("ready"),
    "job.completed": lambda app, lease: app.jobs.complete(lease),
    "job.retried": lambda app, lease: app.jobs.fail(lease, "no"),
    "job.released": lambda app, lease: app.jobs.release(lease),
    "worker.started": lambda app, lease: app.sessions.start("w"),
    "topic.paused": lambda app, lease: app.topics.pause("held", 60),
    "schedule.added": lambda app, lease: app.schedules.set("s", topic="mail", every="5m"),
}


@pytest.mark.parametrize("lose", ["lose_answer", "lose_request"])
@pytest.mark.parametrize("type", CHANGES)
@pytest.mark.parametrize("kind", ["postgres"])
def test_a_change_whose_answer_is_lost_is_one_event(proxy, postgres_schema, type, lose, kind):
    """EV-4"""
    with App(proxy.url(), schema=postgres_schema, lifecycle="all") as app:
        app.jobs.enqueue("ready")
        app.jobs.enqueue("held")
        [lease] = app.jobs.reserve("held")
        before = Counter(event.type for event in events_of(app))
        getattr(proxy, lose)(COMMIT)

        CHANGES[type](app, lease)

        assert proxy.happened.is_set()
        assert Counter(event.type for event in events_of(app)) - before == {type: 1}
