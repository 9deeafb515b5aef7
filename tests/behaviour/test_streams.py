"""The streams of jobs: what a run says is read in order, once, and to the end of the job."""

import asyncio
import threading
import time

import pytest

from tests.conftest import InLoop, eventually
from tests.workers import working
from towpath import Context, Limit, NewEvent, StreamEnd
from towpath.app import speech
from towpath.app.subscriptions import Reader
from towpath.errors import (
    CursorReset,
    DatabaseUnavailable,
    Invalid,
    InvalidChannel,
    LeaseLost,
    NotFound,
    StreamBehind,
    WordsMissing,
)
from towpath.model.ids import uuid7
from towpath.operation import Operation, answered
from towpath.statement import Statement
from towpath.store import channels, leases, retention, streams
from towpath.store.events import EventBody
from towpath.store.leases import Outcome
from towpath.worker import heartbeat, outbox


@pytest.fixture
def lease(app):
    app.jobs.enqueue("talk", {}, key="talk")
    return app.jobs.reserve("talk")[0]


def name_of(job):
    return f"job:{job.id}"


def read(app, job, after=None):
    return app.events.read(name_of(job), after)


def spoken(app, job):
    return [event.payload for event in read(app, job).events]


def said_words(app, lease, *words, said=0):
    return app.jobs.say(lease, said=said, events=words)


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


def body(text):
    return EventBody(id=uuid7(), body=text, encoding="json", size=len(text))


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


# ---------------------------------------------------------------- the end


def test_the_end_of_a_job_ends_its_stream(app, lease):
    said_words(app, lease, "word")
    app.jobs.complete(lease)

    page = read(app, lease.job)

    assert [event.payload for event in page.events] == ["word"]
    assert page.ended == "completed"


def retried(app, lease, **outcome):
    """Put a job that has said something back, to wait again."""
    said_words(app, lease, "word")
    app.jobs.release(lease, **outcome)
    return lease.job


def complete(app, lease, clock):
    said_words(app, lease, "word")
    app.jobs.complete(lease)


def fail(app, lease, clock):
    said_words(app, lease, "word")
    app.run(leases.settle([outcome(lease, goal="buried", kind="error", error="no")]))


def bury(app, lease, clock):
    said_words(app, lease, "word")
    app.jobs.bury(lease)


def crash_too_often(app, lease, clock):
    said_words(app, lease, "word")
    app.run(leases.settle([outcome(lease, goal="buried", crashed=1, kind="crash", error="died")]))


def cancel_a_running_job(app, lease, clock):
    said_words(app, lease, "word")
    app.jobs.cancel(lease.job)
    app.jobs.release(lease)


def cancel_a_delayed_job(app, lease, clock):
    app.jobs.cancel(retried(app, lease, delay=60))


def cancel_a_ready_job(app, lease, clock):
    app.jobs.cancel(retried(app, lease))


def outcome(lease, **how):
    return Outcome(seq=lease.job.seq, epoch=lease.epoch, options=lease.job.options, **how)


@pytest.mark.parametrize(
    ("end", "ended"),
    [
        (complete, "completed"),
        (fail, "failed"),
        (bury, "failed"),
        (crash_too_often, "failed"),
        (cancel_a_running_job, "cancelled"),
        (cancel_a_delayed_job, "cancelled"),
        (cancel_a_ready_job, "cancelled"),
    ],
    ids=lambda given: getattr(given, "__name__", given),
)
def test_a_stream_says_how_its_job_ended(app, lease, clock, end, ended):
    end(app, lease, clock)

    page = read(app, lease.job)
    assert ([event.payload for event in page.events], page.ended) == (["word"], ended)


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


@pytest.mark.parametrize("how", ["with its lease", "waiting", "buried"])
def test_a_reader_of_a_job_that_is_deleted_is_told(app, lease, how):
    said_words(app, lease, "word")
    cursor = read(app, lease.job).cursor
    if how == "with its lease":
        app.jobs.delete(lease)
    else:
        (app.jobs.release if how == "waiting" else app.jobs.bury)(lease)
        app.jobs.delete(lease.job)

    assert read(app, lease.job, cursor).ended == "deleted"
    with pytest.raises(NotFound):
        read(app, lease.job)


def test_a_reader_of_a_topic_that_is_purged_is_told(app, lease):
    said_words(app, lease, "word")
    cursor = read(app, lease.job).cursor
    app.jobs.release(lease)
    app.jobs.purge("talk")

    assert read(app, lease.job, cursor).ended == "deleted"


# ---------------------------------------------------------------- silent jobs


def test_a_job_that_says_nothing_has_an_empty_stream_that_ends_with_it(app):
    job = app.jobs.enqueue("talk", {})

    waiting = app.events.read(name_of(job))
    app.jobs.complete(app.jobs.reserve("talk")[0])

    assert ([*waiting.events], waiting.ended) == ([], None)
    assert app.events.read(name_of(job)).ended == "completed"


def test_there_is_no_stream_without_a_job(app):
    with pytest.raises(NotFound, match="there is no job"):
        app.events.read("job:00000000-0000-0000-0000-000000000000")


class Streaming:
    """A reader of a job's stream in a thread or a task of its own."""

    def __init__(self, app, job, *args):
        self.pieces, self.error, self.is_over = [], None, False
        if isinstance(app, InLoop):
            reading = self._async(app._thing.jobs.astream(job, *args))
            asyncio.run_coroutine_threadsafe(reading, app._loop)
        else:
            threading.Thread(
                target=self._blocking, args=[app.jobs.stream(job, *args)], daemon=True
            ).start()

    async def _async(self, pieces):
        try:
            async for piece in pieces:
                self.pieces.append(piece)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        self._end()

    def _blocking(self, pieces):
        try:
            for piece in pieces:
                self.pieces.append(piece)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        self._end()

    def _end(self):
        self.is_over = True

    def all(self):
        """Wait for the end; return the payloads, and how it ended."""
        eventually(lambda: self.is_over)
        assert self.error is None, self.error
        *events, end = self.pieces
        assert isinstance(end, StreamEnd)
        return [event.payload for event in events], end.ended


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


@pytest.mark.parametrize("end", ["complete", "cancel", "delete"])
def test_a_reader_of_a_silent_job_hears_its_end(live, end, monkeypatch):
    begun, taken = threading.Event(), Reader.taken

    def told(reader, page):
        found = taken(reader, page)
        begun.set()
        return found

    monkeypatch.setattr(Reader, "taken", told)
    job = live.jobs.enqueue("talk", {})
    reading = Streaming(live, job)
    begun.wait()
    if end == "complete":
        live.jobs.complete(live.jobs.reserve("talk")[0])
    else:
        getattr(live.jobs, end)(job)

    words = {"complete": "completed", "cancel": "cancelled", "delete": "deleted"}
    assert reading.all() == ([], words[end])


def test_a_job_that_is_deleted_ends_the_stream_of_a_reader_that_waits(live):
    job = live.jobs.enqueue("talk", {})
    [lease] = live.jobs.reserve("talk")
    live.jobs.say(lease, said=0, events=[1])
    reading = Streaming(live, job)
    eventually(lambda: reading.pieces)
    live.jobs.delete(lease)

    assert reading.all() == ([1], "deleted")


# ---------------------------------------------------------------- tries


def tries(app, job):
    return [event.payload["towpath"] for event in read(app, job).events if event.type]


@pytest.mark.parametrize(
    ("how", "after"),
    [
        ({"goal": "ready"}, "release"),
        ({"goal": "ready", "retried": 1, "error": "no", "kind": "error"}, "failure"),
        ({"goal": "ready", "crashed": 1, "error": "died", "kind": "crash"}, "crash"),
    ],
)
def test_another_try_announces_itself(app, lease, how, after):
    said_words(app, lease, "lost")
    app.run(leases.settle([outcome(lease, **how)]))
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


def test_a_silent_try_is_not_announced(app, lease):
    said_words(app, lease, "word")
    app.jobs.release(lease)
    app.jobs.complete(app.jobs.reserve("talk")[0])

    page = read(app, lease.job)
    assert ([event.payload for event in page.events], page.ended) == (["word"], "completed")


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


# ---------------------------------------------------------------- what a task says


@pytest.fixture
def steps():
    """A task waits here until the test lets it go on."""
    return threading.Semaphore(0)


@pytest.fixture
def worked(make_app):
    return make_app(beat_every=60, dead_after=600)


def test_adjacent_text_is_joined(worked):
    @worked.task()
    async def write(ctx: Context) -> None:
        for letter in "Hello":
            ctx.stream(letter)
        ctx.publish({"tool": "search"}, type="call")
        await ctx.astream("Good")
        await ctx.astream("bye")
        await ctx.apublish(None)

    with working(worked):
        job = write.enqueue()
        job.result(20)

    page = read(worked, job)
    texts = "".join(event.payload for event in page.events if event.type == "text")
    assert texts == "HelloGoodbye"
    assert len(page.events) < 8
    assert [event.payload for event in page.events if event.type != "text"] == [
        {"tool": "search"}, None,
    ]  # fmt: skip
    assert page.ended == "completed"


def test_a_word_is_read_while_the_job_runs(worked, steps):
    @worked.task()
    def write(ctx: Context) -> None:
        ctx.stream("now")
        steps.acquire(timeout=20)

    job = write.enqueue()
    with working(worked):
        eventually(lambda: spoken(worked, job) == ["now"])
        steps.release()


def test_words_of_two_threads_keep_their_order(worked):
    def speak(ctx, who):
        for n in range(500):
            ctx.publish([who, n])

    @worked.task()
    def talk(ctx: Context) -> None:
        threads = [threading.Thread(target=speak, args=[ctx, who]) for who in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    with working(worked):
        job = talk.enqueue()
        job.result(60)

    found = read_all(worked, job)
    assert len(found) == 2_000
    for who in range(4):
        assert [n for each, n in found if each == who] == list(range(500))


def read_all(app, job):
    found, after = [], None
    while True:
        page = read(app, job, after)
        found += [event.payload for event in page.events]
        after = page.cursor
        if page.is_current:
            return found


def test_the_next_try_reads_what_was_said_and_readers_drop_it(worked):
    heard = []

    @worked.task(backoff=0)
    async def write(ctx: Context) -> None:
        heard.append([event.payload for event in await ctx.asaid()])
        ctx.stream("lost " if not ctx.tries else "kept")
        if not ctx.tries:
            raise ValueError

    with working(worked):
        job = write.enqueue()
        job.result(20)

    assert heard == [[], ["lost "]]
    text = []
    for piece in worked.jobs.stream(job):
        if isinstance(piece, StreamEnd):
            assert piece.ended == "completed"
        elif piece.type == "towpath.try":
            text = [each for each in text if each.cursor <= piece.payload["towpath"]["since"]]
        else:
            text.append(piece)
    assert "".join(each.payload for each in text) == "kept"


def test_a_word_after_the_lease_was_lost_raises(worked, steps):
    raised = []

    @worked.task()
    def talk(ctx: Context) -> None:
        if ctx.job.epoch > 1:
            return
        ctx.publish("before")
        steps.acquire(timeout=20)
        try:
            for _ in range(1_000):
                ctx.publish("late")
                time.sleep(0.01)
        except LeaseLost as error:
            raised.append(error)

    job = talk.enqueue()
    with working(worked):
        eventually(lambda: spoken(worked, job) == ["before"])
        [held] = worked.jobs.list(status="processing")
        worked.run(leases.settle([Outcome(seq=held.seq, epoch=held.epoch, goal="ready")]))
        steps.release()
        eventually(lambda: raised)
        job.result(20)

    assert spoken(worked, job) == ["before"]


def test_a_cancel_reaches_a_task_by_the_answer_to_its_word(worked, monkeypatch):
    """Not by the heartbeat, which also looks for cancelled jobs."""
    monkeypatch.setattr(heartbeat, "CHECK_EVERY", 60)
    told = threading.Event()

    @worked.task()
    def talk(ctx: Context) -> None:
        while not ctx.cancelled:
            ctx.publish("word")
            time.sleep(0.01)
        told.set()

    job = talk.enqueue()
    with working(worked):
        eventually(lambda: spoken(worked, job))
        worked.jobs.cancel(job)
        assert told.wait(10)
        eventually(lambda: worked.jobs.get(job).status == "cancelled")

    assert read_end(worked, job) == "cancelled"


def read_end(app, job):
    *_, end = app.jobs.stream(job)
    return end.ended


def test_words_wait_for_a_database_that_is_away(worked, monkeypatch):
    failures = []

    def say(words, right=streams.say):
        if len(failures) < 3:
            failures.append(words)
            raise DatabaseUnavailable("away")
        return right(words)

    monkeypatch.setattr(outbox.streams, "say", say)
    monkeypatch.setattr(outbox, "LAST_PAUSE", 0.2)

    @worked.task()
    def talk(ctx: Context) -> None:
        ctx.publish(1)
        eventually(lambda: failures)
        ctx.publish(2)
        ctx.stream("end")

    with working(worked):
        job = talk.enqueue()
        job.result(20)

    assert (spoken(worked, job), read(worked, job).ended) == ([1, 2, "end"], "completed")


def test_what_still_runs_after_its_job_may_say_no_more(worked, steps):
    raised = []

    @worked.task(timeout=0.2, max_retries=1)
    def talk(ctx: Context) -> None:
        ctx.publish("in time")
        steps.acquire(timeout=20)
        try:
            ctx.publish("late")
        except LeaseLost as error:
            raised.append(error)

    job = talk.enqueue()
    with working(worked):
        assert read_end(worked, job) == "failed"
        steps.release()
        eventually(lambda: raised)

    assert spoken(worked, job) == ["in time"]


def test_a_task_that_is_called_has_no_stream(worked):
    @worked.task()
    def talk(ctx: Context) -> None:
        ctx.stream("text")
        ctx.publish(1)
        assert ctx.said() == []

    talk()
    with pytest.raises(Invalid, match="a stream takes text, not 7"):
        Context(worked).stream(7)
    with pytest.raises(Invalid, match="belongs to Towpath"):
        Context(worked).publish(1, type="towpath.try")


# ---------------------------------------------------------------- a buffer that is full


@pytest.fixture
def full(worked):
    """What a run has said while nothing could be written, until there was no room."""
    worked.jobs.enqueue("talk", {})
    [lease] = worked.jobs.reserve("talk")
    buffer = speech.Speech(lease, 2**20, lambda _: None)
    for _ in range(5):
        buffer.hear(body('"' + "x" * 2**18 + '"'))
    return buffer


def write_all(app, buffer):
    while say := buffer.next():
        [answer] = app.run(streams.say([say]))
        buffer.written(answered(answer))


@pytest.mark.one_database
def test_a_thread_waits_for_room_and_nothing_is_dropped(worked, full):
    done = threading.Event()

    def speak():
        full.publish("next", None)
        done.set()

    threading.Thread(target=speak, daemon=True).start()
    assert not done.wait(0.1)
    [answer] = worked.run(streams.say([full.next()]))
    full.written(answered(answer))
    assert done.wait(10)
    write_all(worked, full)

    [job] = worked.jobs.list()
    assert [len(payload) for payload in read_all(worked, job)] == [2**18] * 5 + [4]


@pytest.mark.one_database
def test_a_coroutine_waits_for_room(worked, full):
    async def speak():
        waiting = asyncio.create_task(full.room())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        [answer] = await worked.arun(streams.say([full.next()]))
        full.written(answered(answer))
        await asyncio.wait_for(waiting, 10)

    asyncio.run(speak())


@pytest.mark.one_database
def test_on_an_event_loop_far_too_much_raises(full):
    async def speak():
        for _ in range(100):
            full.publish("x" * 2**18, None)

    with pytest.raises(StreamBehind, match="await `apublish` or `astream`"):
        asyncio.run(speak())
    assert 2**20 < sum(word.size for word in full._words) <= speech.MOST


@pytest.mark.one_database
@pytest.mark.parametrize("over", ["lose", "end"])
def test_a_thread_that_waits_is_told_that_the_run_is_over(full, over):
    raised = []

    def speak():
        try:
            full.publish("late", None)
        except LeaseLost as error:
            raised.append(error)

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    getattr(full, over)()
    thread.join(10)

    assert raised
    assert bool(full) == (over == "end")
