"""Enqueueing: what is stored, and what is refused before anything is."""

import math
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from towpath import Backoff, Limit, State, Status
from towpath.app import outcomes
from towpath.app.checks import Defaults, new_jobs
from towpath.errors import (
    Invalid,
    InvalidPayload,
    InvalidTopic,
    JobExists,
    PayloadTooLarge,
    TopicRequired,
)
from towpath.operation import Operation
from towpath.store import jobs as store
from towpath.store import leases, reserving


def test_an_enqueued_job_is_stored_and_returned_with_its_id(app):
    """US1-1"""
    job = app.jobs.enqueue("mail_digest", {"userId": "123"})

    assert app.jobs.get(job.id) == job
    assert job.payload == {"userId": "123"}


def test_a_fresh_job_is_pending(app):
    """US1-2"""
    job = app.jobs.enqueue("mail", {})

    assert job.status is Status.PENDING
    assert job.state is State.READY


def test_ids_are_uuid7_and_sort_by_time(app):
    """EC-6"""
    ids = [app.jobs.enqueue("mail").id for _ in range(3)]

    assert {id.version for id in ids} == {7}
    assert ids == sorted(ids)


def test_the_due_time_of_a_delayed_job_can_be_read(app, clock):
    """US3-3"""
    job = app.jobs.enqueue("mail", {}, delay="15m")

    assert job.state is State.DELAYED
    assert app.jobs.get(job.id).run_at == clock.now + timedelta(minutes=15)


def test_a_run_at_in_the_past_means_now(app, clock):
    job = app.jobs.enqueue("mail", {}, run_at=clock.now - timedelta(hours=1))

    assert job.state is State.READY


@pytest.mark.parametrize(
    "payload", [b"", b"\x00\xff raw", "", "text", None, 0, [], {}, {"ä": "\0"}]
)
def test_a_payload_comes_back_as_it_was(app, payload):
    """S11: empty bodies too."""
    app.jobs.enqueue("mail", payload)

    [lease] = app.jobs.reserve("mail")

    assert lease.job.payload == payload


def test_a_payload_over_the_limit_is_refused(app):
    """US1-4, EC-1"""
    app.jobs.enqueue("mail", "x" * (2**20 - 2))
    with pytest.raises(PayloadTooLarge, match="1,048,577"):
        app.jobs.enqueue("mail", "x" * (2**20 - 1))
    with pytest.raises(PayloadTooLarge):
        app.jobs.enqueue("mail", b"x" * (2**20 + 1))

    assert len(app.jobs.list()) == 1


@pytest.mark.parametrize(
    "payload",
    [math.nan, {"a": [math.inf]}, -math.inf, "\ud800", {"\udfff": 1}, object(), {(1, 2): 3}],
)
@pytest.mark.one_database
def test_what_is_not_json_is_refused(app, payload):
    with pytest.raises(InvalidPayload):
        app.jobs.enqueue("mail", payload)

    assert app.jobs.list() == []


def test_a_payload_may_hold_null(app):
    assert app.jobs.enqueue("mail", {"a": None, "b": [1.5, None]}).payload == {
        "a": None,
        "b": [1.5, None],
    }


@pytest.mark.parametrize("topic", ["a b", "a@b", "中文", "a" * 201, "a\n", "a.b", "../x"])
@pytest.mark.one_database
def test_a_topic_outside_the_alphabet_is_refused(app, topic):
    """DQ-1"""
    with pytest.raises(InvalidTopic):
        app.jobs.enqueue(topic, {})
    with pytest.raises(InvalidTopic):
        app.jobs.reserve(topic)


def test_a_topic_is_required(app):
    """DQ-1"""
    with pytest.raises(TopicRequired):
        app.jobs.enqueue("", {})
    with pytest.raises(TopicRequired):
        app.jobs.reserve([])


def test_topics_are_made_on_first_use_and_isolated(app):
    """DQ-1"""
    app.jobs.enqueue("a" * 200, 1)
    app.jobs.enqueue("B-2_c", 2)

    assert app.topics.list() == ["B-2_c", "a" * 200]
    [lease] = app.jobs.reserve("B-2_c", limit=10)
    assert lease.job.payload == 2


@pytest.mark.parametrize(
    "options",
    [
        {"delay": -1},
        {"delay": math.nan},
        {"delay": "soon"},
        {"delay": timedelta(seconds=-1)},
        {"priority": -1},
        {"priority": 2**32},
        {"priority": 1.5},
        {"priority": True},
        {"run_at": datetime(2026, 1, 1)},  # noqa: DTZ001 - that is the point
        {"ttr": -1},
        {"ttr": 0},
        {"run_at": datetime.max.replace(tzinfo=UTC)},
        {"backoff": Backoff(first=-1)},
        {"backoff": Backoff(factor=math.nan)},
        {"key": ""},
        {"key": "a\0b"},
        {"key": "x" * 256},
        {"max_retries": -1},
        {"id": "not-a-uuid"},
        {"wait": 5},
        {"delay": 1, "run_at": datetime.fromisoformat("2027-01-01T00:00:00Z")},
    ],
    ids=str,
)
@pytest.mark.one_database
def test_an_option_that_makes_no_sense_is_refused(app, options):
    with pytest.raises(Invalid):
        app.jobs.enqueue("mail", {}, **options)

    assert app.jobs.list() == []


def test_enqueue_again_with_the_same_id_and_content_returns_the_job(app):
    id = uuid.uuid4()
    first = app.jobs.enqueue("mail", {"a": 1}, id=id)

    assert app.jobs.enqueue("mail", {"a": 1}, id=id) == first
    assert len(app.jobs.list()) == 1


def test_enqueue_again_with_the_same_id_and_other_content_is_refused(app):
    """DQ-16"""
    id = uuid.uuid4()
    app.jobs.enqueue("mail", {"a": 1}, id=id)

    with pytest.raises(JobExists):
        app.jobs.enqueue("mail", {"a": 2}, id=id)
    with pytest.raises(JobExists):
        app.jobs.enqueue("post", {"a": 1}, id=id)
    assert [job.payload for job in app.jobs.list()] == [{"a": 1}]


def test_many_jobs_are_stored_in_order(app):
    jobs = app.jobs.enqueue_many("mail", range(2_500))

    assert [job.payload for job in jobs] == list(range(2_500))
    assert [job.seq for job in jobs] == sorted(job.seq for job in jobs)
    assert app.jobs.reserve("mail", limit=3)[2].job.payload == 2


@pytest.mark.parametrize(
    "options",
    [
        {"delay": 60},
        {"run_at": datetime(2030, 1, 1, tzinfo=UTC)},
        {"priority": 7, "ttr": 5, "max_retries": 9, "headers": {"x": "y"}},
        {"limit": Limit("printer", concurrency=1)},
    ],
)
def test_thousands_of_jobs_are_stored_with_the_options_of_one(app, options):
    """US1: those that differ in nothing but id and payload go a shorter way, to the same place."""
    (one,) = app.jobs.enqueue_many("mail", [b"0"], **options)
    many = app.jobs.enqueue_many("mail", [b"%d" % n for n in range(1, 2_001)], **options)
    assert [job.payload for job in (many[0], many[-1])] == [b"1", b"2000"]
    assert [job.seq for job in many] == sorted(job.seq for job in many)
    for job in (many[0], many[-1]):
        stored = app.jobs.get(job.id)
        assert stored == job
        assert _kind(stored) == _kind(one)


def _kind(job):
    return job.state, job.priority, job.ttr, job.options, job.run_at - job.created_at > timedelta()


def test_many_jobs_are_stored_all_or_none(app):
    with pytest.raises(InvalidPayload):
        app.jobs.enqueue_many("mail", [1, 2, object()])

    assert app.jobs.list() == []


def test_no_jobs_are_no_trouble(app):
    assert app.jobs.enqueue_many("mail", []) == []


def test_a_neighbour_of_a_refused_job_is_stored_once(make_app):
    """Though a worker finishes it before the answer is put together."""
    app = make_app()
    standing = app.jobs.enqueue("mail", "old", id=uuid.uuid4())
    app.jobs.reserve("mail")
    new = [
        *new_jobs("mail", ["old"], {"id": standing.id}, Defaults.of(app.settings)),
        *new_jobs("mail", ["new"], {}, Defaults.of(app.settings)),
    ]
    runs = []

    def steps():
        operation = store.enqueue(new).inside()
        query = next(operation)
        while True:
            rows = yield query
            reserve = reserving.reserve(("mail",), limit=9, token=1)
            for lease in (yield from reserve.inside()).leases:
                runs.append(lease.job.payload)
                yield from leases.settle([outcomes.discard(lease)]).inside()
            try:
                query = operation.send(rows)
            except StopIteration as end:
                return end.value

    app.run(Operation("enqueue", steps))

    assert runs == ["new"]


def test_one_id_cannot_name_several_jobs(app):
    with pytest.raises(Invalid):
        app.jobs.enqueue_many("mail", [1, 2], id=uuid.uuid4())

    assert app.jobs.list() == []
