"""Lifecycle events: channel `system` says what happens to jobs, workers, topics and schedules."""

import contextlib
import sqlite3

import psycopg
import pytest

from tests.behaviour.test_subscriptions import Following
from towpath import App, State, group
from towpath.errors import ChannelClosed, Invalid, LeaseLost, TowpathError
from towpath.operation import Operation
from towpath.statement import Statement
from towpath.store import events
from towpath.store.events import Append


@pytest.fixture
def told(make_app, colour, clock):
    """An app that posts every change, and whose clock the test moves."""
    return colour(make_app(clock=clock, lifecycle="all"))


def system(app):
    """The events of channel `system`, as type and payload."""
    return [(event.type, event.payload) for event in app.events.read("system").events]


def types(app, job=None):
    """The types of the events, or of those of a job."""
    return [type for type, said in system(app) if job is None or said.get("id") == str(job.id)]


def said(app, type):
    """The payload of the only event of a type."""
    [payload] = [payload for each, payload in system(app) if each == type]
    return payload


def reserved(app, topic="mail", **options):
    app.jobs.enqueue(topic, {"secret": "no event tells this"}, **options)
    [lease] = app.jobs.reserve(topic)
    return lease


def silence(app, clock, seconds):
    """Let time pass while upkeep looks every second."""
    for _ in range(seconds):
        clock.advance(1)
        app.upkeep.run()


# ---------------------------------------------------------------- the ends of a lease

ENDS = {  # what its holder says, and the event
    "complete": (lambda app, lease: app.jobs.complete(lease, "r"), "job.completed", {}),
    "fail": (
        lambda app, lease: app.jobs.fail(lease, "no"),
        "job.retried",
        {"kind": "error", "error": "no"},
    ),
    "bury": (lambda app, lease: app.jobs.bury(lease), "job.failed", {}),
    "bury with an error": (
        lambda app, lease: app.jobs.bury(lease, error="no"),
        "job.failed",
        {"kind": "error", "error": "no"},
    ),
    "release": (lambda app, lease: app.jobs.release(lease), "job.released", {}),
    "release later": (lambda app, lease: app.jobs.release(lease, delay=9), "job.released", {}),
}


@pytest.mark.parametrize("end", ENDS)
def test_each_end_of_a_lease_is_one_event_with_its_epoch(told, end):
    """MS-10"""
    say, type, more = ENDS[end]
    lease = reserved(told)

    say(told, lease)

    named = {"id": str(lease.job.id), "topic": "mail"}
    assert system(told) == [
        ("job.enqueued", {**named, "epoch": 0}),
        ("job.reserved", {**named, "epoch": 1}),
        (type, {**named, "epoch": 1, **more}),
    ]


@pytest.mark.parametrize("end", ENDS)
def test_an_end_that_is_said_again_is_no_second_event(told, end):
    say, type, _ = ENDS[end]
    lease = reserved(told)
    say(told, lease)

    with contextlib.suppress(LeaseLost):
        say(told, lease)

    assert types(told).count(type) == 1


def test_the_last_failure_is_not_a_retry(told):
    lease = reserved(told, max_retries=1)
    told.jobs.fail(lease, "x" * 5_000)

    assert types(told, lease.job)[2:] == ["job.failed"]
    assert said(told, "job.failed")["error"] == "x" * 999 + "…"


def test_a_job_that_is_done_and_deleted_is_deleted(told):
    queue = told.queue("mail")
    queue.put(b"x")
    queue.reserve(timeout=0).delete()

    assert types(told) == ["job.enqueued", "job.reserved", "job.deleted"]
    assert said(told, "job.deleted")["topic"] == "mail"


def test_an_event_names_the_task_unless_it_is_the_topic(told):
    told.jobs.enqueue("mail", {}, task="send")

    assert said(told, "job.enqueued")["task"] == "send"


def test_each_job_of_a_batch_has_its_own_event(told):
    jobs = told.jobs.enqueue_many("mail", list(range(100)))
    for lease in told.jobs.reserve("mail", limit=100):
        told.jobs.complete(lease)

    ids = [str(job.id) for job in jobs]
    for type in ("job.enqueued", "job.reserved", "job.completed"):
        assert [payload["id"] for each, payload in system(told) if each == type] == ids


def test_a_repeated_enqueue_is_no_second_event(told):
    job = told.jobs.enqueue("mail", 1, key="k")
    told.jobs.enqueue("mail", 1, id=job.id, key="k")
    told.jobs.enqueue("mail", 2, key="k")

    assert types(told) == ["job.enqueued"]


def test_a_buried_job_that_is_picked_by_its_number_is_requeued_and_reserved(told):
    lease = reserved(told)
    told.jobs.bury(lease)
    told.jobs.complete(told.queues.pick(lease.job.seq))

    assert types(told, lease.job)[2:] == [
        *("job.failed", "job.requeued", "job.reserved", "job.completed"),
    ]


def test_no_event_tells_a_payload_or_a_result(told, clock):
    lease = reserved(told)
    told.jobs.complete(lease, {"secret": "no event tells this"})
    told.jobs.bury(reserved(told))
    told.jobs.cancel(told.jobs.enqueue("mail", "no event tells this"))
    told.schedules.set("poll", topic="mail", every="5m", payload="no event tells this")

    told.events.position("system")
    bodies = [event.body for event in told.events.read("system").events]
    assert len(bodies) == 9
    assert not any("no event tells this" in body for body in bodies)


# ---------------------------------------------------------------- leases that are taken back


@pytest.mark.parametrize("by", ["reserve", "upkeep"])
def test_a_lease_whose_time_is_over_is_rescued(told, clock, by):
    lease = reserved(told, ttr=60)
    clock.advance(60)
    if by == "reserve":
        assert told.jobs.reserve("mail")
    else:
        told.upkeep.run()

    assert types(told, lease.job)[2:3] == ["job.rescued"]
    rescue = said(told, "job.rescued")
    assert (rescue["epoch"], rescue["kind"]) == (1, "timeout")


def test_the_death_of_a_worker_and_what_becomes_of_its_jobs(told, clock):
    """US5-2: one that crashed too often fails; one that had not begun is rescued."""
    told.jobs.enqueue_many("mail", [1, 2], max_crashes=1)
    session = told.sessions.start("w1", topics=["mail"])
    first, second = told.jobs.reserve("mail", limit=2, session=session)
    told.sessions.beat(session, started=[first])
    told.upkeep.run()
    silence(told, clock, 30)

    worker = {"worker": "w1", "session": str(session), "topics": ["mail"]}
    assert said(told, "worker.started") == said(told, "worker.died") == worker
    assert types(told, first.job)[-1] == "job.failed"
    assert said(told, "job.failed")["kind"] == "crash"
    assert types(told, second.job)[-1] == "job.rescued"
    with pytest.raises(LeaseLost):
        told.jobs.complete(first)
    assert "job.completed" not in types(told)


def test_a_worker_that_ends_gives_back_what_it_holds(told):
    told.jobs.enqueue("mail")
    session = told.sessions.start("w1")
    told.jobs.reserve("mail", session=session)
    told.sessions.end(session)
    told.sessions.end(session)

    assert types(told) == [
        "job.enqueued",
        "worker.started",
        "job.reserved",
        "worker.stopped",
        "job.released",
    ]


# ---------------------------------------------------------------- ends without a lease


def test_cancelled_jobs_wherever_they_are(told, clock):
    ready = told.jobs.enqueue("a")
    delayed = told.jobs.enqueue("b", delay=60)
    blocked = told.jobs.enqueue("c", after=[delayed])
    lease = reserved(told)
    for job in (ready, delayed, lease.job):
        told.jobs.cancel(job)

    assert types(told, lease.job)[-1] == "job.reserved"  # it was only asked to stop
    told.jobs.fail(lease, "stopped")
    for job in (ready, delayed, lease.job):
        assert types(told, job)[-1] == "job.cancelled"
    assert types(told, blocked)[-1] == "job.failed"
    failed = said(told, "job.failed")
    assert (failed["kind"], str(delayed.id) in failed["error"]) == ("dependency", True)


def test_a_job_that_gives_way_to_another_is_cancelled(told):
    first = told.jobs.enqueue("mail", 1, key="k")
    told.jobs.enqueue("mail", 2, key="k", unique="replace")

    assert types(told, first) == ["job.enqueued", "job.cancelled"]


def test_jobs_that_come_too_late_expire(told, clock):
    late = told.jobs.enqueue("mail", expires_after=60)
    clock.advance(61)
    assert told.jobs.reserve("mail") == []

    assert types(told, late) == ["job.enqueued", "job.reserved", "job.expired"]
    assert "expired" in said(told, "job.expired")["kind"]


def test_jobs_that_make_room_for_others_expire(make_app, colour, clock):
    app = colour(make_app(clock=clock, lifecycle="all", max_jobs_per_topic=1))
    late = app.jobs.enqueue("mail", expires_after=60)
    clock.advance(61)
    app.jobs.enqueue("mail")

    assert types(app, late) == ["job.enqueued", "job.expired"]


def test_a_requeued_job_fails_again_and_is_deleted(told):
    lease = reserved(told, max_retries=1)
    child = told.jobs.enqueue("child", after=[lease.job])
    told.jobs.fail(lease, "no")
    told.jobs.requeue(lease.job)
    assert types(told, child) == ["job.enqueued", "job.failed", "job.requeued"]
    told.jobs.bury(told.jobs.reserve("mail")[0])
    told.jobs.kick("mail", 9)
    told.jobs.delete(lease.job)
    told.jobs.purge("child")

    assert types(told, lease.job)[2:] == [
        "job.failed",
        "job.requeued",
        "job.reserved",
        "job.failed",
        "job.requeued",
        "job.deleted",
    ]
    assert types(told, child)[-1] == "job.deleted"


def test_a_flow_that_fails_as_its_last_part_completes(make_app, colour, clock):
    """The operation that completes the part commits by itself, and fails the step then."""
    app = make_app(clock=clock, lifecycle="failures", max_payload=20)

    @app.task()
    def part() -> str: ...

    @app.task()
    def report(texts: list[str]) -> str: ...

    step = group(part.s(), part.s()).then(report.s()).enqueue()
    for lease in app.jobs.reserve("part", limit=2):
        colour(app).jobs.complete(lease, "x" * 18)

    assert app.jobs.get(step.id).state is State.BURIED
    assert [(type, payload["id"]) for type, payload in system(app)] == [
        ("job.failed", str(step.id))
    ]


# ---------------------------------------------------------------- jobs that choose their workers


def test_a_job_that_chooses_its_workers_ends_once_and_its_runs_by_another_name(told):
    job = told.jobs.enqueue("deploy", workers=2, max_unexpected_retries=1)
    leases = {name: told.jobs.reserve("deploy", worker=name)[0] for name in "ab"}
    told.jobs.fail(leases["a"], "no disk")
    told.jobs.complete(leases["b"])
    told.jobs.complete(told.jobs.reserve("deploy", worker="c")[0])

    assert types(told, job) == ["job.enqueued", "job.completed"]
    runs = [(type, said["job"]) for type, said in system(told) if type.startswith("run.")]
    assert runs == [
        (f"run.{what}", str(job.id))
        for what in ("reserved", "reserved", "failed", "completed", "reserved", "completed")
    ]
    assert said(told, "run.failed")["error"] == "no disk"


def test_a_job_whose_runs_fail_fails_once(told):
    job = told.jobs.enqueue("deploy", workers=2, max_unexpected_retries=0)
    first, second = (told.jobs.reserve("deploy", worker=name)[0] for name in "ab")
    told.jobs.release(first)
    told.jobs.fail(second, "no")

    assert types(told, job) == ["job.enqueued", "job.failed"]
    assert [type for type in types(told) if type.startswith("run.")][2:] == [
        "run.released",
        "run.failed",
    ]


# ---------------------------------------------------------------- topics and schedules


def test_a_topic_is_paused_and_resumed_once(told, clock):
    told.topics.pause("mail", 60, create=True)
    told.topics.pause("mail")
    told.topics.resume("mail")
    told.topics.resume("mail")
    told.topics.pause("mail", 60)
    clock.advance(61)
    told.topics.resume("mail")  # it was over by itself
    told.topics.pause("mail")

    assert types(told) == ["topic.paused", "topic.resumed", "topic.paused", "topic.paused"]
    [(_, first), *_, (_, last)] = system(told)
    assert first == {"topic": "mail", "until": "2026-11-15T12:01:00Z"}
    assert last == {"topic": "mail"}


def test_what_becomes_of_a_schedule(told):
    for every in ("5m", "5m", "6m"):
        told.schedules.set("poll", topic="mail", every=every)
    for _ in range(2):
        told.schedules.pause("poll")
    for _ in range(2):
        told.schedules.resume("poll")
    told.schedules.delete("poll")

    named = {"schedule": "poll", "topic": "mail"}
    assert system(told) == [
        (f"schedule.{what}", named) for what in ("added", "changed", "paused", "resumed", "deleted")
    ]


@pytest.mark.parametrize("catch_up", ["latest", "skip", "all"])
def test_fires_that_become_no_job_are_missed(make_app, clock, catch_up):
    app = make_app(clock=clock)
    app.schedules.set("poll", topic="mail", every="5m", catch_up=catch_up)
    clock.advance("5m")
    app.upkeep.run()
    clock.advance("12m")
    app.upkeep.run()

    missed = [payload for type, payload in system(app) if type == "schedule.missed"]
    since = "2026-11-15T12:10:00Z"
    expected = {"schedule": "poll", "topic": "mail", "since": since}
    assert missed == ([] if catch_up == "all" else [expected])


def test_a_schedule_that_cannot_fire_says_why_once(make_app, clock):
    app = make_app(clock=clock)
    app.schedules.set("poll", topic="mail", every="5m")
    spoil = Statement[None]("spoil", {"any": "update towpath.schedule set catch_up = 'some'"})
    app.run(Operation("spoil", lambda: iter(spoil())))
    for _ in range(2):
        clock.advance("5m")
        app.upkeep.run()

    failed = said(app, "schedule.failed")
    assert (failed["schedule"], "catch_up" in failed["error"]) == ("poll", True)


# ---------------------------------------------------------------- the setting


def live_of_a_job(app, clock):
    """A job is retried, rescued, completed; others are cancelled, released, deleted."""
    app.jobs.fail(reserved(app), "no")
    app.jobs.cancel(app.jobs.enqueue("b"))
    app.jobs.release(reserved(app, "c"))
    app.jobs.complete(app.jobs.reserve("c")[0])
    app.jobs.delete(app.jobs.enqueue("d"))
    app.topics.pause("d")


@pytest.mark.parametrize(
    ("setting", "posted"),
    [("none", []), (None, ["job.retried", "job.cancelled", "topic.paused"])],
)
def test_the_setting_chooses_the_events(make_app, colour, clock, setting, posted):
    """MS-10: by default failures, and what seldom changes."""
    app = colour(make_app(clock=clock, **({"lifecycle": setting} if setting else {})))
    live_of_a_job(app, clock)

    assert types(app) == posted


def test_a_setting_that_is_not_known_is_refused():
    with pytest.raises(Invalid, match="lifecycle must be none, failures or all, not 'some'"):
        App("memory://", lifecycle="some")


# ---------------------------------------------------------------- one transaction


def close_system(app):
    """No more can be posted: what would post fails. No verb of the app can do this."""
    app.run(events.append([Append(channel="system", ended="closed")]))


CHANGES = {  # each posts an event
    "enqueue": lambda app, lease: app.jobs.enqueue("a"),
    "enqueue with a key": lambda app, lease: app.jobs.enqueue("a", key="k"),
    "enqueue many": lambda app, lease: app.jobs.enqueue_many("a", [1, 2, 3]),
    "reserve": lambda app, lease: app.jobs.reserve("ready"),
    "complete": lambda app, lease: app.jobs.complete(lease),
    "fail": lambda app, lease: app.jobs.fail(lease, "no"),
    "release": lambda app, lease: app.jobs.release(lease),
    "cancel": lambda app, lease: app.jobs.cancel(app.jobs.list(topic="ready")[0]),
    "delete": lambda app, lease: app.jobs.delete(app.jobs.list(topic="ready")[0]),
    "start": lambda app, lease: app.sessions.start("w"),
    "pause": lambda app, lease: app.topics.pause("mail"),
    "schedule": lambda app, lease: app.schedules.set("poll", topic="mail", every="5m"),
}


def stored(app):
    """All that the changes change."""
    jobs = {job.id: (job.state, job.epoch) for job in app.jobs.list()}
    return jobs, app.sessions.list(), app.schedules.list(), app.topics.stats()


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_and_its_event_are_stored_both_or_neither(told, change):
    """EV-5: also where each statement of the operation would commit by itself."""
    told.jobs.enqueue("ready")
    lease = reserved(told)
    close_system(told)
    before = stored(told)

    with pytest.raises(ChannelClosed):
        CHANGES[change](told, lease)

    assert stored(told) == before


# ---------------------------------------------------------------- who reads them


def test_a_subscriber_hears_of_a_failure(make_app, colour):
    live = colour(make_app(poll_interval=600))
    following = Following(live, "system", types=["job.*"])
    live.topics.pause("other", create=True)
    live.jobs.bury(reserved(live))

    assert following.payloads(1)[0]["topic"] == "mail"
    assert [event.type for event in following.events] == ["job.failed"]


@pytest.mark.both_colours
@pytest.mark.parametrize("kind", ["sqlite", "postgres"], indirect=True)
def test_what_happens_in_the_callers_transaction_is_told_after_its_commit(make_app, place, colour):
    app = make_app(lifecycle="all")
    app.migrate()
    following = Following(colour(app), "system")
    url, _ = place
    connect = sqlite3.connect if url.startswith("sqlite") else psycopg.connect
    with contextlib.closing(connect(url.removeprefix("sqlite:///"))) as connection:
        app.jobs.enqueue("mail", connection=connection)
        connection.rollback()
        job = app.jobs.enqueue("mail", connection=connection)
        assert types(app) == []
        connection.commit()

        assert [said["id"] for said in following.payloads(1)] == [str(job.id)]


def test_no_user_publishes_to_it_or_ends_it(live):
    live.jobs.bury(reserved(live))
    for call in (
        lambda: live.events.publish("system", 1),
        lambda: live.events.close("system"),
        lambda: live.events.delete("system"),
    ):
        with pytest.raises(TowpathError, match="belongs to Towpath"):
            call()


# ---------------------------------------------------------------- many at once


def test_a_burst_is_placed_in_bounded_pieces(make_app):
    """By upkeep in one round, though nothing reads the channel; 1,000 events by a transaction."""
    app = make_app(lifecycle="all")
    app.jobs.enqueue_many("mail", list(range(2_500)))
    app.run(events.place(["system"]))
    assert [each.events for each in app.events.list("system")] == [1_000]

    app.upkeep.run()

    assert [each.events for each in app.events.list("system")] == [2_500]


def test_a_reader_gets_all_of_a_burst(make_app, colour):
    app = colour(make_app(lifecycle="all"))
    jobs = app.jobs.enqueue_many("mail", list(range(2_500)))

    following = Following(app, "system")

    assert [said["id"] for said in following.payloads(2_500)] == [str(job.id) for job in jobs]
    assert app.events.position("system") == following.events[-1].cursor
