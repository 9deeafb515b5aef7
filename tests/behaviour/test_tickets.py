"""Without a lease: kick, requeue, cancel, delete, reprioritise, purge, and unique keys."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import pytest

from towpath import App, State, Status
from towpath.errors import (
    Invalid,
    InvalidState,
    JobExists,
    KeyTaken,
    LeaseLost,
    NotBuried,
    NotFound,
)
from towpath.operation import Operation
from towpath.store import admin


def buried(app, *names, topic="mail", **options):
    for name in names:
        app.jobs.enqueue(topic, name, **options)
    leases = app.jobs.reserve(topic, limit=len(names))
    for lease in leases:
        app.jobs.bury(lease)
    return [lease.job for lease in leases]


def ready(app, topic="mail"):
    return [lease.job.payload for lease in app.jobs.reserve(topic, limit=100)]


def test_kick_takes_buried_jobs_in_bury_order(app):
    app.jobs.enqueue_many("mail", "abc")
    a, b, c = app.jobs.reserve("mail", limit=3)
    for lease in (c, a, b):
        app.jobs.bury(lease)

    assert app.jobs.kick("mail", 2) == 2
    assert ready(app) == ["a", "c"]


def test_kick_takes_delayed_jobs_only_if_none_is_buried(app):
    app.jobs.enqueue("mail", "far", delay=100)
    app.jobs.enqueue("mail", "near", delay=50)
    buried(app, "aside")

    assert app.jobs.kick("mail", 10) == 1
    assert ready(app) == ["aside"]
    assert app.jobs.kick("mail", 1) == 1
    assert ready(app) == ["near"]
    assert app.jobs.kick("mail", 10) == 1
    assert app.jobs.kick("mail", 10) == 0


def test_a_kick_keeps_the_counters_and_counts_itself(app):
    [job] = buried(app, "a")

    kicked = app.jobs.kick_job(job)

    assert (kicked.state, kicked.kicks, kicked.buries, kicked.epoch) == (State.READY, 1, 1, 1)


def test_many_jobs_are_kicked(app):
    app.jobs.enqueue_many("mail", range(1_200))
    with ThreadPoolExecutor(8) as threads:  # so that many share a commit
        list(threads.map(app.jobs.bury, app.jobs.reserve("mail", limit=1_200)))

    assert app.jobs.kick("mail", 1_100) == 1_100
    assert app.jobs.stats().buried == 100


def test_only_buried_or_delayed_jobs_are_kicked(app):
    """DQ-16"""
    job = app.jobs.enqueue("mail", {})

    with pytest.raises(NotBuried):
        app.jobs.kick_job(job)


def test_requeue_starts_again_from_retry_zero(app):
    """US6-5"""
    job = app.jobs.enqueue("mail", {}, max_retries=1)
    [lease] = app.jobs.reserve("mail")
    app.jobs.fail(lease, "no")

    requeued = app.jobs.requeue(job)

    assert (requeued.status, requeued.retries, requeued.crashes) == (Status.PENDING, 0, 0)
    assert requeued.last_error == "no"
    [again] = app.jobs.reserve("mail")
    assert again.epoch == 2


def test_a_stale_worker_cannot_touch_a_requeued_job(app):
    """The epoch never goes back."""
    job = app.jobs.enqueue("mail", {}, max_retries=1)
    [first] = app.jobs.reserve("mail")
    app.jobs.fail(first, "no")
    app.jobs.requeue(job)
    [second] = app.jobs.reserve("mail")

    with pytest.raises(LeaseLost):
        app.jobs.complete(first)
    app.jobs.complete(second)


def test_only_failed_and_cancelled_jobs_are_requeued(app):
    job = app.jobs.enqueue("mail", {})

    with pytest.raises(InvalidState, match="ready"):
        app.jobs.requeue(job)


def test_a_cancelled_job_does_not_run(app):
    job = app.jobs.enqueue("mail", {})

    assert app.jobs.cancel(job).status is Status.CANCELLED
    assert ready(app) == []


def test_what_does_not_exist_is_not_found(app):
    nobody = uuid.uuid4()
    for verb in ("get", "requeue", "cancel", "delete", "kick_job"):
        with pytest.raises(NotFound, match=str(nobody)):
            getattr(app.jobs, verb)(nobody)
    with pytest.raises(Invalid, match="not the id"):
        app.jobs.get("nonsense")
    with pytest.raises(NotFound):
        app.topics.resume("nowhere")


def test_a_pending_job_can_be_reprioritised(app):
    app.jobs.enqueue("mail", "first")
    second = app.jobs.enqueue("mail", "second")
    third = app.jobs.enqueue("mail", "third", delay=0.000001)

    assert app.jobs.reprioritise(second, 1).priority == 1
    assert app.jobs.reprioritise(third, 90).state is State.DELAYED
    assert ready(app)[0] == "second"


def test_a_topic_can_be_purged(app):
    app.jobs.enqueue_many("mail", range(3))
    app.jobs.enqueue("mail", "later", delay=60)
    [lease] = app.jobs.reserve("mail")
    app.jobs.enqueue("post", "stays")

    assert app.jobs.purge("mail") == 3
    app.jobs.complete(lease)
    assert [job.payload for job in app.jobs.list()] == ["stays", 0]


def test_an_unfinished_job_with_the_key_is_returned_not_doubled(app):
    """MS-1"""
    first = app.jobs.enqueue("mail", 1, key="digest")

    assert app.jobs.enqueue("mail", 2, key="digest").id == first.id
    assert app.jobs.enqueue("post", 2, key="digest").id != first.id
    [lease] = app.jobs.reserve("mail")
    assert app.jobs.enqueue("mail", 3, key="digest").id == first.id
    app.jobs.release(lease, delay=10)
    assert app.jobs.enqueue("mail", 4, key="digest").id == first.id


@pytest.mark.parametrize("end", ["complete", "bury", "cancel", "discard", "delete", "fail"])
def test_a_finished_job_frees_its_key(app, end):
    first = app.jobs.enqueue("mail", 1, key="k", max_retries=1)
    if end == "cancel":
        app.jobs.cancel(first)
    elif end == "delete":
        app.jobs.delete(first)
    else:
        [lease] = app.jobs.reserve("mail")
        {
            "complete": lambda: app.jobs.complete(lease),
            "bury": lambda: app.jobs.bury(lease),
            "discard": lambda: app.jobs.delete(lease),
            "fail": lambda: app.jobs.fail(lease, "no"),
        }[end]()

    assert app.jobs.enqueue("mail", 2, key="k").id != first.id


def test_a_kick_or_requeue_that_would_collide_is_refused_for_that_job_alone(app):
    [taken], [free] = buried(app, "taken", key="k"), buried(app, "free", key="f")
    app.jobs.enqueue("mail", "newer", key="k")

    with pytest.raises(KeyTaken):
        app.jobs.requeue(taken)
    with pytest.raises(KeyTaken):
        app.jobs.kick_job(taken)
    assert app.jobs.get(taken).state is State.BURIED
    assert app.jobs.kick("mail", 10) == 1
    assert app.jobs.get(free).state is State.READY
    assert app.jobs.enqueue("mail", "again", key="f").id == free.id


def test_one_key_many_times_in_one_call_makes_one_job(app):
    jobs = app.jobs.enqueue_many("mail", range(5), key="once")

    assert len({job.id for job in jobs}) == 1
    assert len(app.jobs.list()) == 1


def test_a_key_of_a_job_that_is_gone_is_free(app):
    """A key that leaked, however, is not held for ever."""
    job = app.jobs.enqueue("mail", 1, key="k")
    [lease] = app.jobs.reserve("mail")
    app.jobs.complete(lease)
    app.run(leak_key(job))

    fresh = app.jobs.enqueue("mail", 2, key="k")

    assert fresh.id != job.id
    assert app.jobs.enqueue("mail", 3, key="k").id == fresh.id


def leak_key(job):
    """Claim the job's key behind everybody's back."""

    def steps():
        yield admin.sql.claim_key(seq=job.seq)

    return Operation("leak_key", steps)


def test_a_kick_never_claims_a_key_for_a_job_that_somebody_else_moved(durable_place):
    """Two kicks at once: one of them does it, and the key is free when the job is done."""
    url, needed = durable_place
    with App(url, **needed) as one, App(url, **needed) as two:
        for _ in range(20):
            [job] = buried(one, 1, key="k")
            kicks = [Thread(target=app.jobs.kick, args=("mail", 1)) for app in (one, two)]
            for kick in kicks:
                kick.start()
            for kick in kicks:
                kick.join()
            for lease in one.jobs.reserve("mail", limit=5):
                one.jobs.complete(lease)
            assert one.jobs.enqueue("mail", 2, key="k").id != job.id
            one.jobs.purge("mail")


def test_one_id_under_two_keys_claims_only_one(app):
    id = uuid.uuid4()
    app.jobs.enqueue("mail", 1, id=id, key="a")
    with pytest.raises(JobExists):
        app.jobs.enqueue("mail", 1, id=id, key="b")

    assert app.jobs.enqueue("mail", 2, key="b").payload == 2
