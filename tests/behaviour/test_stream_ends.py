"""Every stream of a job ends, and says how; then it goes with its job."""

import threading
from collections import Counter

import pytest

from tests.behaviour.job_streams import Streaming, name_of, outcome, read, said_words, spoken
from tests.conftest import InLoop, eventually
from towpath import Limit
from towpath.app.subscriptions import Reader
from towpath.errors import CursorReset, NotFound
from towpath.model.cursor import START
from towpath.model.event import TRY
from towpath.operation import Operation
from towpath.statement import Statement
from towpath.store import channels, leases, reading, retention


@pytest.fixture
def lease(app):
    app.jobs.enqueue("talk", {}, key="talk", max_crashes=2)
    return app.jobs.reserve("talk")[0]


def retried(app, lease, **outcome):
    """Put a job that has said something back, to wait again."""
    app.jobs.release(lease, **outcome)
    return lease.job


def complete(app, lease, clock):
    app.jobs.complete(lease)


def fail(app, lease, clock):
    app.run(leases.settle([outcome(lease, goal="buried", kind="error", error="no")]))


def bury(app, lease, clock):
    app.jobs.bury(lease)


def crash_too_often(app, lease, clock):
    app.jobs.release(lease)
    for _ in range(2):
        session = app.sessions.start()
        [held] = app.jobs.reserve("talk", session=session)
        app.sessions.beat(session, started=[held])
        for _ in range(31):
            app.upkeep.run()
            clock.advance(1)


def cancel_a_running_job(app, lease, clock):
    app.jobs.cancel(lease.job)
    app.jobs.release(lease)


def cancel_a_job_that_runs_too_long(app, lease, clock):
    app.jobs.cancel(lease.job)
    clock.advance("1d")
    app.upkeep.run()


def cancel_a_delayed_job(app, lease, clock):
    app.jobs.cancel(retried(app, lease, delay=60))


def cancel_a_ready_job(app, lease, clock):
    app.jobs.cancel(retried(app, lease))


def replace(app, lease, clock):
    """By a job with the same key."""
    app.jobs.release(lease)
    app.jobs.enqueue("talk", {}, key="talk", unique="replace")


ends = pytest.mark.parametrize(
    ("end", "ended"),
    [
        (complete, "completed"),
        (fail, "failed"),
        (bury, "failed"),
        (crash_too_often, "failed"),
        (cancel_a_running_job, "cancelled"),
        (cancel_a_job_that_runs_too_long, "cancelled"),
        (cancel_a_delayed_job, "cancelled"),
        (cancel_a_ready_job, "cancelled"),
        (replace, "cancelled"),
    ],
    ids=lambda given: getattr(given, "__name__", given),
)


@ends
def test_a_stream_says_how_its_job_ended(app, lease, clock, end, ended):
    """EV-4"""
    said_words(app, lease, "word")
    end(app, lease, clock)

    page = read(app, lease.job)
    words = [event.payload for event in page.events if event.type != TRY]
    assert (words, page.ended) == (["word"], ended)


@ends
def test_the_empty_stream_of_a_silent_job_says_how_it_ended(app, lease, clock, end, ended):
    """EV-4"""
    end(app, lease, clock)

    page = read(app, lease.job)
    assert ([*page.events], page.ended) == ([], ended)


def test_a_parked_job_that_is_cancelled_ends_its_stream(app):
    """EV-4: over its limit, a job lies in `blocked`."""
    one = Limit("one", concurrency=1)
    app.jobs.enqueue("talk", {}, limit=one)
    [lease] = app.jobs.reserve("talk")
    said_words(app, lease, "word")
    app.jobs.enqueue("talk", {}, limit=one, priority=0)
    app.jobs.release(lease)
    assert len(app.jobs.reserve("talk", limit=2)) == 1
    assert app.jobs.get(lease.job).state == "blocked"
    app.jobs.cancel(lease.job)

    assert read(app, lease.job).ended == "cancelled"


def test_a_failure_that_is_tried_again_leaves_the_stream_open(app, lease):
    said_words(app, lease, "word")
    app.jobs.fail(lease, "no", delay=0)

    assert read(app, lease.job).ended is None


def test_a_job_that_is_too_late_ends_its_stream_as_expired(app, clock):
    """A job that has spoken has begun, and begun jobs do not expire; so it is silent."""
    job = app.jobs.enqueue("talk", {}, expires_at=clock.now)
    clock.advance(60)
    assert app.jobs.reserve("talk") == []

    assert read(app, job).ended == "expired"


def test_a_job_fails_with_the_one_it_waits_for_and_so_does_its_stream(app):
    parent = app.jobs.enqueue("talk", {}, max_retries=1)
    child = app.jobs.enqueue("talk", {}, after=[parent])
    app.jobs.fail(app.jobs.reserve("talk")[0], "no")
    app.upkeep.run()

    assert read(app, child).ended == "failed"


def test_each_run_of_a_job_that_chooses_its_workers_has_a_stream(app):
    job = app.jobs.enqueue("talk", {}, workers=2)
    runs = [app.jobs.reserve("talk", worker=name)[0] for name in "ab"]
    for run in runs:
        said_words(app, run, run.job.seq)
    assert read(app, job).ended is None
    for run in runs:
        app.jobs.complete(run)
    app.upkeep.run()

    for run in runs:
        page = read(app, run.job)
        assert ([event.payload for event in page.events], page.ended) == (
            [run.job.seq], "completed",
        )  # fmt: skip
    assert (spoken(app, job), read(app, job).ended) == ([], "completed")


def test_a_failed_run_is_gone_and_its_readers_are_told(app):
    """Its failure becomes one of the job."""
    job = app.jobs.enqueue("talk", {}, workers=1)
    [run] = app.jobs.reserve("talk", worker="a")
    said_words(app, run, "word")
    cursor = read(app, run.job).cursor
    app.jobs.fail(run, "no")

    assert read(app, run.job, cursor).ended == "deleted"
    assert read(app, job).ended == "failed"


# ---------------------------------------------------------------- jobs that are deleted


def delete_with_its_lease(app, lease, clock):
    app.jobs.delete(lease)


def delete_while_it_waits(app, lease, clock):
    app.jobs.delete(retried(app, lease))


def delete_buried(app, lease, clock):
    app.jobs.bury(lease)
    app.jobs.delete(lease.job)


def purge(app, lease, clock):
    app.jobs.release(lease)
    app.jobs.purge("talk")


def purge_buried(app, lease, clock):
    app.jobs.bury(lease)
    app.jobs.purge("talk")


def forget(app, lease, clock):
    app.jobs.complete(lease)
    app.jobs.forget(lease.job)


def forget_all(app, lease, clock):
    app.jobs.complete(lease)
    app.jobs.forget_all(topic="talk")


def prune(app, lease, clock):
    app.jobs.complete(lease)
    clock.advance("4d")
    app.upkeep.run()


def make_way(app, lease, clock):
    """For a job with the same key."""
    app.jobs.complete(lease)
    app.jobs.enqueue("talk", {}, key="talk", unique="clear")


@pytest.mark.parametrize(
    "gone",
    [
        delete_with_its_lease, delete_while_it_waits, delete_buried, purge, purge_buried, forget,
        forget_all, prune, make_way,
    ],
    ids=lambda given: given.__name__,
)  # fmt: skip
def test_a_reader_of_a_job_that_is_gone_is_told(app, lease, clock, gone):
    """EV-4: with a cursor; without one there is nothing to be found."""
    said_words(app, lease, "word")
    cursor = read(app, lease.job).cursor
    gone(app, lease, clock)

    page = read(app, lease.job, cursor)
    assert ([*page.events], page.ended) == ([], "deleted")
    with pytest.raises(NotFound):
        read(app, lease.job)


# ---------------------------------------------------------------- jobs that begin again


@pytest.mark.parametrize("again", ["requeue", "kick_job", "kick", "after a cancel"])
def test_a_job_that_begins_again_begins_another_stream(app, lease, again):
    said_words(app, lease, "old")
    cursor = read(app, lease.job).cursor
    if again == "after a cancel":
        app.jobs.cancel(lease.job)
        app.jobs.release(lease)
        app.jobs.requeue(lease.job)
    else:
        app.jobs.bury(lease)
        if again == "kick":
            app.jobs.kick("talk")
        else:
            getattr(app.jobs, again)(lease.job)

    assert read(app, lease.job).ended is None
    assert spoken(app, lease.job) == []
    with pytest.raises(CursorReset, match="begins again"):
        read(app, lease.job, cursor)
    [held] = app.jobs.reserve("talk")
    said_words(app, held, "new")
    app.jobs.complete(held)
    page = read(app, lease.job)
    assert ([event.payload for event in page.events], page.ended) == (["new"], "completed")
    with pytest.raises(CursorReset) as reset:
        read(app, lease.job, cursor)
    assert reset.value.reason == "channel"


# ---------------------------------------------------------------- silent jobs


def test_a_job_that_says_nothing_has_an_empty_stream_that_ends_with_it(app):
    job = app.jobs.enqueue("talk", {})

    waiting = app.events.read(name_of(job))
    app.jobs.complete(app.jobs.reserve("talk")[0])

    assert ([*waiting.events], waiting.ended) == ([], None)
    assert app.events.read(name_of(job)).ended == "completed"


def test_there_is_no_stream_without_a_job(app):
    """A reader of a name with a mistake in it would wait for ever."""
    id = str(app.jobs.enqueue("work", {}).id)
    for wrong in ("00000000-0000-0000-0000-000000000000", id.upper(), id[:-1], "x", ""):
        with pytest.raises(NotFound, match="there is no job"):
            app.events.read(f"job:{wrong}")


def test_a_look_finds_nothing_in_queued_jobs_that_say_nothing(app):
    """EV-4: their readers cost a look, and no reads."""
    jobs = app.jobs.enqueue_many("talk", range(100))
    cursors = {name_of(job): str(START) for job in jobs}

    assert not app.run(reading.moved(cursors, silent=False))
    assert not app.run(reading.moved(cursors, silent=True))


def test_a_look_finds_the_ends_and_the_first_words_of_silent_jobs(app):
    jobs = app.jobs.enqueue_many("talk", range(5))
    cursors = {name_of(job): str(START) for job in jobs}
    done, said, *_ = app.jobs.reserve("talk", limit=3)
    app.jobs.complete(done)
    said_words(app, said, "word")
    app.jobs.cancel(jobs[3])
    app.jobs.delete(jobs[4])

    quick = app.run(reading.moved(cursors, silent=False))
    thorough = app.run(reading.moved(cursors, silent=True))

    assert quick == {name_of(said.job)}
    assert thorough == {name_of(job) for job in jobs if job.id != jobs[2].id}


# ---------------------------------------------------------------- readers that wait


def test_a_reader_hears_the_words_and_the_end(live):
    job = live.jobs.enqueue("talk", {})
    reading = Streaming(live, job)
    [lease] = live.jobs.reserve("talk")
    live.jobs.say(lease, said=0, events=[1, 2])
    eventually(lambda: len(reading.pieces) == 2)
    live.jobs.say(lease, said=2, events=[3])
    live.jobs.complete(lease)

    assert reading.all() == ([1, 2, 3], "completed")


def test_a_reader_goes_on_from_its_cursor_to_the_end(live):
    job = live.jobs.enqueue("talk", {})
    [lease] = live.jobs.reserve("talk")
    live.jobs.say(lease, said=0, events=[1, 2])
    first = live.events.read(f"job:{job.id}").events[0]
    live.jobs.complete(lease)

    assert Streaming(live, job, first.cursor).all() == ([2], "completed")


@pytest.fixture
def has_read(monkeypatch):
    """Set as soon as a reader has read once; from then on it waits."""
    begun, taken = threading.Event(), Reader.taken

    def told(reader, page):
        found = taken(reader, page)
        begun.set()
        return found

    monkeypatch.setattr(Reader, "taken", told)
    return begun


def test_a_reader_of_a_silent_job_hears_its_end_at_the_next_look(live, has_read, monkeypatch):
    """EV-4: no commit rings for it, so the safety net looks: each second, and once is enough.

    A look that has begun before the end may come first, or may see the end already.
    """
    job = live.jobs.enqueue("talk", {})
    reading = Streaming(live, job)
    assert has_read.wait(60)
    live.jobs.complete(live.jobs.reserve("talk")[0])
    looks = counted_looks(live, monkeypatch)

    assert reading.all() == ([], "completed")
    assert max(looks.values(), default=0) <= 2
    assert live.settings.poll_interval <= 1


def counted_looks(app, monkeypatch):
    """Count from now on how often a thread or the hub looks whether a channel has moved."""
    looks, app = Counter(), app._thing if isinstance(app, InLoop) else app
    run, arun = app.run, app.arun

    def counting(operation, connection=None):
        looks[operation.name] += operation.name in {"read", "moved"}
        return run(operation, connection)

    async def acounting(operation, connection=None):
        looks[operation.name] += operation.name in {"read", "moved"}
        return await arun(operation, connection)

    monkeypatch.setattr(app, "run", counting)
    monkeypatch.setattr(app, "arun", acounting)
    return looks


@pytest.mark.parametrize(("end", "ended"), [("cancel", "cancelled"), ("delete", "deleted")])
def test_a_silent_job_that_is_cancelled_or_deleted_rings(make_app, colour, has_read, end, ended):
    """There is no safety net here."""
    app = colour(make_app(poll_interval=3_600))
    job = app.jobs.enqueue("talk", {})
    reading = Streaming(app, job)
    assert has_read.wait(60)
    getattr(app.jobs, end)(job)

    assert reading.all() == ([], ended)


def test_a_job_that_is_deleted_ends_the_stream_of_a_reader_that_waits(live):
    job = live.jobs.enqueue("talk", {})
    [lease] = live.jobs.reserve("talk")
    live.jobs.say(lease, said=0, events=[1])
    reading = Streaming(live, job)
    eventually(lambda: reading.pieces)
    live.jobs.delete(lease)

    assert reading.all() == ([1], "deleted")


def test_a_reader_that_waits_is_reset_when_the_job_begins_again(live):
    """EV-4, EV-6: it has seen the end, or it is told that this is another stream."""
    job = live.jobs.enqueue("talk", {})
    [lease] = live.jobs.reserve("talk")
    live.jobs.say(lease, said=0, events=[1])
    [event] = live.events.read(f"job:{job.id}").events
    live.jobs.bury(lease)
    live.jobs.requeue(job)
    reading = Streaming(live, job, event.cursor)
    eventually(lambda: reading.is_over)

    assert (reading.pieces, reading.error.reason) == ([], "channel")


# ---------------------------------------------------------------- gone with the job


def count(app, table):
    def steps():
        query = f"select count(*) from towpath.{table}"  # noqa: S608 - our own
        [[found]] = yield Statement("count", {"any": query})()
        return found

    return app.run(Operation("count", steps))


def test_the_stream_of_a_forgotten_job_goes_some_events_at_a_time(app, lease, clock, monkeypatch):
    monkeypatch.setattr(channels, "AT_ONCE", 10)
    app.jobs.say(lease, said=0, events=range(25))
    app.jobs.complete(lease)
    clock.advance("4d")
    app.run(retention.prune())

    assert (count(app, "job"), count(app, "event")) == (0, 25)
    left = []
    while app.run(channels.drop_deleted()):
        left.append(count(app, "event"))
    assert left == [15, 5]
    assert (count(app, "event"), count(app, "channel")) == (0, 0)


def test_upkeep_takes_it_all(app, lease, clock):
    app.jobs.say(lease, said=0, events=range(25))
    app.jobs.complete(lease)
    clock.advance("4d")
    for _ in range(2):
        app.upkeep.run()

    assert (count(app, "event"), count(app, "channel")) == (0, 0)


def test_one_round_of_upkeep_drops_many_small_channels(app, clock, monkeypatch):
    """EV-5"""
    monkeypatch.setattr(channels, "DELETED_AT_ONCE", 10)
    for n in range(25):
        app.events.publish(f"chat{n}", n)
        app.jobs.enqueue("talk", {})
    for lease in app.jobs.reserve("talk", limit=25):
        said_words(app, lease, "word")
        app.jobs.complete(lease)
    clock.advance("4d")
    app.run(retention.prune())
    for n in range(25):
        app.events.delete(f"chat{n}")
    app.upkeep.run()

    assert (count(app, "event"), count(app, "channel")) == (0, 0)


def test_upkeep_ends_streams_that_an_older_version_left_open(app, lease):
    """During a deploy, older code moves tickets without the mark."""
    said_words(app, lease, "word")
    unmark = Statement("unmark", {"any": "update towpath.lease set streamed = null"})
    app.run(Operation("unmark", lambda: iter(unmark())))
    app.jobs.complete(lease)
    assert read(app, lease.job).ended is None

    app.upkeep.run()

    assert read(app, lease.job).ended == "completed"


def test_upkeep_leaves_the_streams_of_waiting_and_running_jobs(app, lease):
    said_words(app, lease, "word")
    app.upkeep.run()
    app.jobs.release(lease)
    app.upkeep.run()

    assert read(app, lease.job).ended is None
