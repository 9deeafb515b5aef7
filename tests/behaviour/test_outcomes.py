"""How a lease ends: complete, fail, release, bury, delete, touch."""

import asyncio
import re
from datetime import timedelta
from pathlib import Path

import pytest

import towpath.store
from towpath import Backoff, State, Status
from towpath.errors import InvalidPayload, InvalidTouchTime, LeaseLost, NotFound, TouchLimitExceeded
from towpath.operation import Operation
from towpath.store.leases import Outcome, settle


def reserved(app, topic="mail", **options):
    app.jobs.enqueue(topic, {}, **options)
    [lease] = app.jobs.reserve(topic)
    return lease


def test_a_job_goes_from_pending_over_processing_to_completed(app, clock):
    """US2-1, US2-2, US2-3"""
    job = app.jobs.enqueue("mail", {})
    [lease] = app.jobs.reserve("mail")
    assert app.jobs.get(job).status is Status.PROCESSING
    clock.advance(2)

    app.jobs.complete(lease, {"sent": 3})

    found = app.jobs.get(job)
    assert found.status is Status.COMPLETED
    assert found.returned == {"sent": 3}
    assert found.duration.total_seconds() == 2
    assert found.finished_at == clock.now


def test_completing_twice_with_one_lease_holds_once(app):
    """DESIGN, lost answers."""
    lease = reserved(app)

    app.jobs.complete(lease, 1)
    app.jobs.complete(lease, 1)

    assert app.jobs.stats().completed == 1


@pytest.mark.parametrize("verb", ["fail", "release", "bury"])
def test_any_outcome_said_twice_holds_once(app, verb):
    lease = reserved(app)
    say = {
        "fail": lambda: app.jobs.fail(lease, "no"),
        "release": lambda: app.jobs.release(lease),
        "bury": lambda: app.jobs.bury(lease),
    }[verb]

    say()
    once = app.jobs.get(lease.job)
    say()

    assert app.jobs.get(lease.job) == once


def test_an_outcome_contradicting_the_first_is_refused(app):
    lease = reserved(app)
    app.jobs.complete(lease)

    for say in (
        lambda: app.jobs.fail(lease, "no"),
        lambda: app.jobs.release(lease),
        lambda: app.jobs.bury(lease),
        lambda: app.jobs.touch(lease),
    ):
        with pytest.raises(LeaseLost):
            say()
    assert app.jobs.get(lease.job).state is State.COMPLETED


def test_many_jobs_are_completed_at_once_and_the_lost_ones_named(app):
    app.jobs.enqueue_many("mail", range(5))
    leases = app.jobs.reserve("mail", limit=5)
    app.jobs.release(leases[3])

    assert app.jobs.complete_many(leases) == [leases[3]]
    assert app.jobs.stats().completed == 4


def test_failures_back_off_one_minute_then_four(app, clock):
    """US4-1, US4-2, US4-3, SC-5"""
    job = app.jobs.enqueue("mail", {})
    for minutes in (1, 4):
        [lease] = app.jobs.reserve("mail")
        app.jobs.fail(lease, ValueError("boo"))
        found = app.jobs.get(job)
        assert found.status is Status.PENDING
        assert found.last_error == "ValueError: boo"
        assert (found.run_at - clock.now).total_seconds() == 60 * minutes
        clock.advance(60 * minutes)


def test_the_third_failure_is_the_last(app, clock):
    """US4-4, US2-4"""
    job = app.jobs.enqueue("mail", {})
    for _ in range(3):
        [lease] = app.jobs.reserve("mail")
        app.jobs.fail(lease, "no")
        clock.advance("1h")

    assert app.jobs.get(job).status is Status.FAILED
    assert app.jobs.get(job).retries == 3
    assert app.jobs.reserve("mail") == []


@pytest.mark.parametrize("max_retries", [0, 1])
def test_no_or_one_retry_means_no_second_run(app, max_retries):
    lease = reserved(app, max_retries=max_retries)

    app.jobs.fail(lease, "no")

    assert app.jobs.get(lease.job).state is State.BURIED


def test_errors_keep_type_message_and_traceback(app):
    """US4-5"""
    lease = reserved(app)
    try:
        raise KeyError("who\0\ud800")  # noqa: TRY301 - a real traceback is wanted
    except KeyError as error:
        app.jobs.fail(lease, error)

    [failure] = app.jobs.failures(lease.job)
    assert failure.error.startswith("KeyError: 'who")
    assert "raise KeyError" in failure.traceback
    assert app.jobs.get(lease.job).last_error == failure.error


def test_a_failure_is_written_with_a_kind_that_is_a_parameter():
    """Types bind the parameter to FailureKind; no text of SQL names a kind of its own."""
    [store] = towpath.store.__path__
    written = [
        words
        for file in Path(store).glob("*.sql")
        for words in re.findall(r"into towpath\.failure[^;]*?on conflict", file.read_text())
    ]

    assert [words.count("kind") for words in written] == [2] * 7  # the column, its value


def test_a_backoff_can_be_chosen(app, clock):
    """DQ-14: 5 s · 2ⁿ."""
    lease = reserved(app, backoff=Backoff(first=5, factor=2, most=15), max_retries=9)
    waits = []
    for _ in range(4):
        app.jobs.fail(lease, "no")
        waits.append((app.jobs.get(lease.job).run_at - clock.now).total_seconds())
        clock.advance(waits[-1])
        [lease] = app.jobs.reserve("mail")

    assert waits == [5, 10, 15, 15]


def test_a_failure_may_name_its_own_delay(app, clock):
    lease = reserved(app)

    app.jobs.fail(lease, "no", delay="7s")

    assert (app.jobs.get(lease.job).run_at - clock.now).total_seconds() == 7


def test_a_release_is_not_counted_as_a_failure(app):
    lease = reserved(app)

    app.jobs.release(lease)

    found = app.jobs.get(lease.job)
    assert (found.state, found.releases, found.retries) == (State.READY, 1, 0)


def test_release_and_bury_may_change_the_priority(app, clock):
    """DQ-5"""
    lease = reserved(app, priority=50)
    app.jobs.release(lease, delay=5, priority=7)
    assert app.jobs.get(lease.job).priority == 7
    clock.advance(5)
    [lease] = app.jobs.reserve("mail")
    assert lease.job.priority == 7
    app.jobs.bury(lease, priority=3)
    app.jobs.kick("mail")

    assert app.jobs.peek("mail").priority == 3
    assert app.jobs.reserve("mail")[0].job.priority == 3


def test_deleting_with_a_lease_leaves_no_trace(app):
    """DQ-5"""
    lease = reserved(app)
    app.jobs.fail(lease, "no", delay=0)
    [lease] = app.jobs.reserve("mail")

    app.jobs.delete(lease)

    with pytest.raises(NotFound):
        app.jobs.get(lease.job)
    assert app.jobs.list() == []
    assert app.jobs.stats().completed == 0
    with pytest.raises(NotFound):
        app.jobs.complete(lease)


def test_touch_extends_a_lease_from_now(app, clock):
    lease = reserved(app, ttr=60)
    clock.advance(50)

    touched = app.jobs.touch(lease)

    assert (touched.until - clock.now).total_seconds() == 60
    clock.advance(59)
    assert app.jobs.reserve("mail") == []
    clock.advance(1)
    assert len(app.jobs.reserve("mail")) == 1


def test_two_touches_of_one_lease_at_once_both_succeed(make_app, clock, loop):
    """They share a statement, which can change a row only once."""
    app = make_app(clock=clock, lanes=1)
    lease = reserved(app, ttr=60)
    clock.advance(50)

    touched = at_once(loop, app.jobs.atouch(lease), app.jobs.atouch(lease))

    assert [each.until - clock.now for each in touched] == [timedelta(seconds=60)] * 2


def test_of_two_touches_at_once_at_the_queue_door_one_is_too_soon(make_app, clock, loop):
    """DQ-8"""
    app = make_app(clock=clock, lanes=1)
    app.queue("mail").put(b"x")
    job = app.queue("mail").reserve(timeout=0)
    clock.advance(5)

    answers = at_once(loop, job.atouch(), job.atouch())

    assert sorted(type(answer).__name__ for answer in answers) == ["InvalidTouchTime", "NoneType"]


def at_once(loop, *calls):
    """Make calls in one tick of the loop, so that they share a batch; return answers and errors."""

    async def gathered():
        return await asyncio.gather(*calls, return_exceptions=True)

    return asyncio.run_coroutine_threadsafe(gathered(), loop).result()


def test_at_the_queue_door_touches_keep_a_distance(app, clock):
    """DQ-8"""
    app.queue("mail").put(b"x")
    job = app.queue("mail").reserve(timeout=0)

    clock.advance(4.9)
    with pytest.raises(InvalidTouchTime):
        job.touch()
    clock.advance(0.1)
    job.touch()


def test_at_the_queue_door_ten_touches_are_enough(app, clock):
    """DQ-8"""
    app.queue("mail").put(b"x")
    job = app.queue("mail").reserve(timeout=0)
    for _ in range(10):
        clock.advance(5)
        job.touch()
    clock.advance(5)

    with pytest.raises(TouchLimitExceeded):
        job.touch()


def test_at_the_queue_door_ten_minutes_are_enough(app, clock):
    """DQ-8"""
    app.queue("mail").put(b"x", ttr=400)
    job = app.queue("mail").reserve(timeout=0)
    clock.advance(390)
    job.touch()
    clock.advance(390)

    with pytest.raises(TouchLimitExceeded):
        job.touch()


def test_touch_limits_hold_at_the_queue_door_only(app, clock):
    lease = reserved(app)
    for _ in range(15):
        lease = app.jobs.touch(lease)

    assert app.jobs.get(lease.job).state is State.RESERVED


def test_a_result_that_is_not_json_is_refused_and_the_lease_stays(app):
    lease = reserved(app)

    with pytest.raises(InvalidPayload):
        app.jobs.complete(lease, object())

    app.jobs.complete(lease)


def test_a_cancelled_running_job_ends_when_its_holder_answers(app):
    """MS-10: remote stop."""
    for answer in ("complete", "release", "fail", "bury"):
        lease = reserved(app)
        assert app.jobs.cancel(lease.job).cancel_requested
        assert app.jobs.touch(lease).job.cancel_requested
        if answer == "fail":
            app.jobs.fail(lease, "stopped")
        else:
            getattr(app.jobs, answer)(lease)
        expected = State.COMPLETED if answer == "complete" else State.CANCELLED
        assert app.jobs.get(lease.job).state is expected


def test_a_cancelled_running_job_ends_when_its_lease_does(app, clock):
    lease = reserved(app)
    app.jobs.cancel(lease.job)
    clock.advance("5m")

    assert app.jobs.reserve("mail") == []
    app.upkeep.run()
    assert app.jobs.get(lease.job).state is State.CANCELLED


@pytest.mark.parametrize("first", ["ready", "buried", "gone"])
@pytest.mark.parametrize("second", ["ready", "buried", "gone"])
def test_of_two_ends_of_one_lease_the_first_holds(app, first, second):
    """Two callers may end it in one transaction; each is told the truth."""
    app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")
    ends = [Outcome(seq=lease.job.seq, epoch=lease.epoch, goal=goal) for goal in (first, second)]

    told = app.run(settle(ends))

    states = [job.state for job in app.jobs.list()]
    assert states == ([] if first == "gone" else [first])
    assert told[0].state == (None if first == "gone" else first)
    if first == second:
        assert told[1].state == told[0].state
    else:
        assert isinstance(told[1], LeaseLost | NotFound)


def test_an_end_that_is_told_again_rings_again(app):
    """Its first answer may have been lost, and with it the topic."""
    app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")
    release = settle([Outcome(seq=lease.job.seq, epoch=lease.epoch, goal="ready")])
    app.run(release)

    def again():
        return (yield from release.steps()).topics

    assert app.run(Operation("again", again)) == {"mail"}
