"""The delay-queue door: beanstalkd's verbs."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from towpath import App, State
from towpath.errors import (
    InvalidState,
    MaxJobsReached,
    MaxTopicsReached,
    NotFound,
    NotReserved,
    PayloadTooLarge,
    ReserveTimeout,
)


def test_put_reserve_delete(app):
    """DQ-5"""
    q = app.queue("email")
    q.put(b"send email", priority=10, ttr=60)

    job = q.reserve(timeout=5)
    assert job.payload == b"send email"
    job.delete()

    with pytest.raises(NotFound):
        q.peek(job.id)


def test_reserve_raises_at_its_timeout(app):
    """DQ-7"""
    with pytest.raises(ReserveTimeout):
        app.queue("email").reserve(timeout=0)
    with pytest.raises(ReserveTimeout):
        app.queue("email").reserve(timeout=0.05)


def test_a_lease_lives_sixty_seconds_at_this_door(app, clock):
    """DQ-4"""
    q = app.queue("email")
    q.put(b"x")
    first = q.reserve(timeout=0)

    clock.advance(60)
    second = q.reserve(timeout=0)

    assert second.id == first.id
    for verb in ("delete", "release", "bury", "touch"):
        with pytest.raises(NotReserved):
            getattr(first, verb)()
    second.delete()


def test_a_buried_job_waits_for_a_kick(app):
    """DQ-5"""
    q = app.queue("email")
    q.put(b"x")
    q.reserve(timeout=0).bury()

    with pytest.raises(ReserveTimeout):
        q.reserve(timeout=0)
    assert q.kick(5) == 1
    assert q.reserve(timeout=0).job.kicks == 1


def test_one_job_is_kicked_by_its_id(app):
    """DQ-5"""
    q = app.queue("email")
    q.put(b"a")
    job = q.reserve(timeout=0)
    job.bury()

    assert q.kick_job(job.id).state is State.READY


def test_a_release_may_delay(app, clock):
    """DQ-5"""
    q = app.queue("email")
    q.put(b"a")
    q.reserve(timeout=0).release(delay=5)

    with pytest.raises(ReserveTimeout):
        q.reserve(timeout=0)
    clock.advance(5)
    assert q.reserve(timeout=0).job.releases == 1


def test_anybody_deletes_what_nobody_reserved(app):
    """DQ-5"""
    q = app.queue("email")
    ready, later, held = q.put(b"a"), q.put(b"b", delay=9), q.put(b"c", priority=1)
    q.reserve(timeout=0)

    q.delete(ready.id)
    q.delete(later.id)
    with pytest.raises(InvalidState):
        q.delete(held.id)


def test_one_reserve_watches_several_topics(app):
    """DQ-7"""
    app.queue("a").put(b"idle", priority=9)
    app.queue("b").put(b"urgent", priority=1)

    assert app.queue("a").reserve(timeout=0, topics=["a", "b"]).payload == b"urgent"


def test_no_more_topics_than_allowed(make_app, colour):
    """DQ-9: S3: checked before anything is stored."""
    app = colour(make_app(max_topics=2))
    app.jobs.enqueue("a", 1)
    app.jobs.enqueue("b", 1)
    app.jobs.enqueue("a", 2)

    with pytest.raises(MaxTopicsReached):
        app.jobs.enqueue("c", 1)

    assert app.topics.list() == ["a", "b"]
    assert len(app.jobs.list()) == 3


def test_no_more_jobs_in_a_topic_than_allowed(make_app, colour):
    """DQ-9"""
    app = colour(make_app(max_jobs_per_topic=3))
    app.jobs.enqueue_many("a", range(2))
    with pytest.raises(MaxJobsReached):
        app.jobs.enqueue_many("a", range(2))
    app.jobs.enqueue("a", 3)
    with pytest.raises(MaxJobsReached):
        app.jobs.enqueue("a", 4)

    app.jobs.enqueue("b", 1)
    [lease] = app.jobs.reserve("a")
    app.jobs.complete(lease)
    app.jobs.enqueue("a", 4)
    assert app.jobs.stats_topic("a").ready == 3


def test_a_job_may_be_limited_in_size(make_app, colour):
    """DQ-9"""
    app = colour(make_app(max_payload=10))
    app.queue("a").put(b"0123456789")
    with pytest.raises(PayloadTooLarge):
        app.queue("a").put(b"0123456789!")


def test_empty_topics_stay_unless_told_otherwise(make_app, colour):
    """DQ-10"""
    app = colour(make_app())
    app.queue("a").put(b"x")
    app.queue("a").reserve(timeout=0).delete()
    app.upkeep.run()
    assert app.topics.list() == ["a"]


def test_empty_topics_are_forgotten_when_asked(make_app, colour):
    """DQ-10"""
    app = colour(make_app(topic_cleanup=True))
    app.queue("empty").put(b"x")
    app.queue("empty").reserve(timeout=0).delete()
    app.queue("full").put(b"x")
    app.topics.pause("paused", create=True)

    app.upkeep.run()

    assert app.topics.list() == ["full", "paused"]
    app.queue("empty").put(b"again")
    assert app.queue("empty").reserve(timeout=0).payload == b"again"


def test_a_topic_that_becomes_empty_is_forgotten_within_the_hour(make_app, colour, clock):
    """DQ-10"""
    app = colour(make_app(clock=clock, topic_cleanup=True))
    app.queue("mail").put(b"x")
    app.upkeep.run()
    assert app.topics.list() == ["mail"]

    app.queue("mail").reserve(timeout=0).delete()
    clock.advance("1h")
    app.upkeep.run()

    assert app.topics.list() == []


def test_many_topics_used_once_are_forgotten_within_a_minute(make_app, colour, clock):
    """DQ-10: As those to which answers are sent, one for each question."""
    app = colour(make_app(clock=clock, topic_cleanup=True))
    app.upkeep.run()
    jobs = app.jobs.enqueue_all([(f"answer-{nth}", nth, {}) for nth in range(1_000)])
    with ThreadPoolExecutor(8) as threads:  # so that many share a commit
        list(threads.map(app.jobs.delete, jobs[1:]))

    clock.advance("1m")
    app.upkeep.run()

    assert app.topics.list() == ["answer-0"]


def test_after_a_restart_everything_is_as_it_was(durable_place, clock):
    """DQ-12"""
    url, needed = durable_place
    with App(url, clock=clock, **needed) as app:
        q = app.queue("mail")
        q.put(b"completed")
        app.jobs.complete(q.reserve(timeout=0).lease)
        q.put(b"buried")
        q.reserve(timeout=0).bury()
        q.put(b"reserved")
        held = q.reserve(timeout=0)
        q.put(b"delayed", delay=30)
        q.put(b"ready")
        q.put(b"cancelled")
        app.jobs.cancel(app.jobs.list(limit=1)[0])
        before = app.jobs.list()
        app.topics.pause("other", create=True)

    with App(url, clock=clock, **needed) as app:
        assert app.jobs.list() == before
        recovered = app.wait_for_recovery(timeout=30)
        assert (recovered.ready, recovered.delayed, recovered.reserved, recovered.buried) == (
            1,
            1,
            1,
            1,
        )
        assert recovered.complete
        assert app.jobs.stats_topic("other").paused
        assert app.queue("mail").reserve(timeout=0).payload == b"ready"
        app.jobs.release(held.lease)  # the holder is still the holder
        assert app.jobs.get(held.id).state is State.READY
        clock.advance(60)
        assert {lease.job.payload for lease in app.jobs.reserve("mail", limit=9)} == {
            b"reserved", b"delayed", b"ready",
        }  # fmt: skip


def test_s17_numbers_are_never_used_again(durable_place):
    url, needed = durable_place
    with App(url, **needed) as app:
        job = app.jobs.enqueue("mail", 1)
        app.jobs.delete(job)
    with App(url, **needed) as app:
        assert app.jobs.enqueue("mail", 1).seq > job.seq
