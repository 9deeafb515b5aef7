"""The streams of jobs: what a run says is read in order, once, and to the end of the job."""

import pytest

from tests.behaviour.job_streams import (
    Streaming,
    body,
    name_of,
    outcome,
    read,
    said_words,
    spoken,
)
from tests.conftest import eventually
from towpath import Limit, NewEvent
from towpath.errors import InvalidChannel, LeaseLost, WordsMissing
from towpath.operation import Operation, answered
from towpath.statement import Statement
from towpath.store import leases, streams


@pytest.fixture
def lease(app):
    app.jobs.enqueue("talk", {}, key="talk")
    return app.jobs.reserve("talk")[0]


# ---------------------------------------------------------------- in order, each word once


def test_what_a_run_says_is_read_in_order(app, lease):
    first = app.jobs.say(lease, said=0, events=["a", NewEvent({"n": 1}, type="found")])
    second = app.jobs.say(lease, said=first.said, events=[None])

    page = read(app, lease.job)
    assert [(event.type, event.payload) for event in page.events] == [
        (None, "a"), ("found", {"n": 1}), (None, None),
    ]  # fmt: skip
    assert (first.said, second.said) == (2, 3)
    assert page.ended is None


def test_words_that_are_sent_again_are_stored_once(app, lease):
    """An answer may be lost, and the next call may carry more."""
    app.jobs.say(lease, said=0, events=[1, 2])

    again = app.jobs.say(lease, said=0, events=[1, 2])
    more = app.jobs.say(lease, said=1, events=[2, 3])

    assert spoken(app, lease.job) == [1, 2, 3]
    assert (again.said, more.said) == (2, 3)


def test_words_that_come_too_early_are_refused_and_the_writer_sends_them_again(app, lease):
    app.jobs.say(lease, said=0, events=[1])

    with pytest.raises(WordsMissing, match="3 words of this run were sent before, and 1") as early:
        app.jobs.say(lease, said=3, events=[4], lines=["early"], logged=0)
    assert early.value.said == 1
    assert app.jobs.logs(lease.job) == []
    app.jobs.say(lease, said=1, events=[2, 3, 4])

    assert spoken(app, lease.job) == [1, 2, 3, 4]


def test_words_that_come_too_early_begin_no_stream_that_stays_open(app, lease):
    with pytest.raises(WordsMissing):
        said_words(app, lease, "late", said=1)
    app.jobs.complete(lease)

    page = read(app, lease.job)
    assert ([*page.events], page.ended) == ([], "completed")


def test_two_threads_that_speak_at_once_are_heard_in_order(app, lease):
    """The calls may share a statement, in either order."""
    word = streams.Say(seq=lease.job.seq, epoch=lease.epoch, said=0, words=[body("1")])
    later = streams.Say(seq=lease.job.seq, epoch=lease.epoch, said=1, words=[body("2")])

    answers = app.run(streams.say([later, word, later]))

    assert [answered(answer).said for answer in answers] == [2, 1, 2]
    assert spoken(app, lease.job) == [1, 2]


def test_many_jobs_speak_in_one_statement(app):
    app.jobs.enqueue_many("talk", range(5))
    held = app.jobs.reserve("talk", limit=5)
    words = [
        streams.Say(seq=each.job.seq, epoch=each.epoch, said=0, words=[body(str(n))])
        for n, each in enumerate(held)
    ]
    app.jobs.release(held[2])

    answers = app.run(streams.say(words))

    assert [isinstance(answer, LeaseLost) for answer in answers] == [n == 2 for n in range(5)]
    assert [spoken(app, each.job) for each in held] == [[0], [1], [], [3], [4]]


def test_words_can_be_part_of_another_operation(app, lease):
    """They are stored with what that operation does, or not at all."""

    def steps(*, fails):
        word = streams.Say(seq=lease.job.seq, epoch=lease.epoch, said=0, words=[body("1")])
        changed = yield from streams.said([word])
        if fails:
            raise ValueError
        return changed

    with pytest.raises(ValueError):  # noqa: PT011 - our own
        app.run(Operation("both", lambda: steps(fails=True)))
    assert spoken(app, lease.job) == []
    app.run(Operation("both", lambda: steps(fails=False)))

    assert spoken(app, lease.job) == [1]


def test_only_the_run_of_a_job_writes_to_its_stream(app, lease):
    with pytest.raises(InvalidChannel, match="belongs to Towpath"):
        app.events.publish(name_of(lease.job), 1)


# ---------------------------------------------------------------- fenced by the lease


@pytest.mark.parametrize("end", ["release", "complete", "bury"])
def test_without_its_lease_a_run_says_nothing(app, lease, end):
    said_words(app, lease, "in time")
    getattr(app.jobs, end)(lease)

    with pytest.raises(LeaseLost):
        app.jobs.say(lease, said=1, events=["late"])

    assert spoken(app, lease.job) == ["in time"]


def test_a_stale_run_says_nothing_beside_the_next(app, lease):
    said_words(app, lease, "old")
    app.jobs.release(lease)
    [again] = app.jobs.reserve("talk")
    said_words(app, again, "new")

    with pytest.raises(LeaseLost):
        said_words(app, lease, "late", said=1)

    assert spoken(app, lease.job)[2:] == ["new"]


def test_the_answer_to_a_word_says_that_the_job_was_cancelled(app, lease):
    assert not app.jobs.say(lease, said=0, events=[1]).cancel_requested
    app.jobs.cancel(lease.job)

    assert app.jobs.say(lease, said=1, events=[2]).cancel_requested
    assert app.jobs.say(lease, said=2, progress=0.5).cancel_requested


# ---------------------------------------------------------------- tries


def tries(app, job):
    return [event.payload["towpath"] for event in read(app, job).events if event.type]


AFTER = {  # how the lost try ended
    "release": {"goal": "ready"},
    "failure": {"goal": "ready", "retried": 1, "error": "no", "kind": "error"},
    "crash": {"goal": "ready", "crashed": 1, "error": "died", "kind": "crash"},
}


@pytest.mark.parametrize("after", [*AFTER])
def test_another_try_announces_itself(app, lease, after):
    said_words(app, lease, "lost")
    app.run(leases.settle([outcome(lease, **AFTER[after])]))
    [again] = app.jobs.reserve("talk")
    said_words(app, again, "kept", "word")

    _, announced, *rest = read(app, lease.job).events

    assert announced.type == "towpath.try"
    beginning = "0000000000000000_0000000000000000"
    assert announced.payload == {"towpath": {"try": 2, "since": beginning, "after": after}}
    assert [event.payload for event in rest] == ["kept", "word"]


def test_a_try_that_follows_a_silent_one_is_not_announced(app, lease):
    app.jobs.release(lease)
    [again] = app.jobs.reserve("talk")
    said_words(app, again, "first")

    assert spoken(app, lease.job) == ["first"]


def complete(app, lease):
    app.jobs.complete(lease)


def bury(app, lease):
    app.jobs.bury(lease)


def cancel(app, lease):
    app.jobs.cancel(lease.job)
    app.jobs.release(lease)


def cancel_later(app, lease):
    """While it waits for a third try."""
    app.jobs.release(lease)
    app.jobs.cancel(lease.job)


@pytest.mark.parametrize("how", [*AFTER])
@pytest.mark.parametrize(
    ("end", "ended"),
    [
        (complete, "completed"),
        (bury, "failed"),
        (cancel, "cancelled"),
        (cancel_later, "cancelled"),
    ],
)
def test_a_silent_last_try_is_announced_at_the_end(app, lease, how, end, ended):
    """EV-4: what the lost try said is not the answer of the job."""
    said_words(app, lease, "lost")
    app.run(leases.settle([outcome(lease, **AFTER[how])]))
    end(app, app.jobs.reserve("talk")[0])

    page = read(app, lease.job)
    beginning = "0000000000000000_0000000000000000"
    announced = {"towpath": {"try": 2, "since": beginning, "after": how}}
    assert [event.payload for event in page.events] == ["lost", announced]
    assert [event.type for event in page.events] == [None, "towpath.try"]
    assert (page.ended, page.is_current) == (ended, True)


def test_a_reader_that_waits_hears_of_the_silent_try_and_of_the_end(live):
    job = live.jobs.enqueue("talk", {})
    [lease] = live.jobs.reserve("talk")
    live.jobs.say(lease, said=0, events=["lost"])
    reading = Streaming(live, job)
    eventually(lambda: reading.pieces)
    live.jobs.release(lease)
    [again] = live.jobs.reserve("talk")
    live.jobs.complete(again)
    live.jobs.complete(again)  # its answer may have been lost

    [_, announced], ended = reading.all()
    assert (announced["towpath"]["try"], ended) == (2, "completed")


def test_many_ends_announce_their_own_silent_tries_only(app):
    """One statement ends them all."""
    app.jobs.enqueue_many("talk", range(4))
    spoke, never, *both = app.jobs.reserve("talk", limit=4)
    for each in both:
        said_words(app, each, "lost")
        app.jobs.release(each)
    said_words(app, spoke, "word")
    again = app.jobs.reserve("talk", limit=2)
    held = [spoke, never, *again]
    app.run(leases.complete([leases.Completion(seq=e.job.seq, epoch=e.epoch) for e in held]))

    assert [len(tries(app, each.job)) for each in held] == [0, 0, 1, 1]
    assert all(read(app, each.job).ended == "completed" for each in held)


def test_upkeep_announces_a_silent_try_that_was_not(app, lease):
    """Its process died between the end of the job and that of its stream."""
    said_words(app, lease, "lost")
    app.jobs.release(lease)
    [again] = app.jobs.reserve("talk")
    unmark = Statement("unmark", {"any": "update towpath.lease set streamed = null"})
    app.run(Operation("unmark", lambda: iter(unmark())))
    app.jobs.complete(again)
    assert (len(tries(app, lease.job)), read(app, lease.job).ended) == (0, None)

    app.upkeep.run()

    assert (len(tries(app, lease.job)), read(app, lease.job).ended) == (1, "completed")


def test_a_parked_job_keeps_its_stream(app):
    """Over its limit, the ticket of a job moves once more."""
    one = Limit("one", concurrency=1)
    app.jobs.enqueue("talk", {}, limit=one)
    [lease] = app.jobs.reserve("talk")
    said_words(app, lease, "word")
    other = app.jobs.enqueue("talk", {}, limit=one, priority=0)
    app.jobs.release(lease)
    [urgent] = app.jobs.reserve("talk")
    assert urgent.job.id == other.id
    assert app.jobs.reserve("talk") == []
    app.jobs.complete(urgent)
    app.jobs.complete(app.jobs.reserve("talk")[0])

    assert read(app, lease.job).ended == "completed"
