"""What a task says in the stream of its job, and where it waits until it is written."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.behaviour.job_streams import body, read, read_all, spoken
from tests.conftest import eventually
from tests.workers import working
from towpath import Context, StreamEnd
from towpath.app import speech
from towpath.errors import DatabaseUnavailable, Invalid, LeaseLost, StreamBehind
from towpath.operation import answered
from towpath.store import leases, streams
from towpath.store.leases import Outcome
from towpath.worker import heartbeat, outbox


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


@pytest.mark.one_database
def test_joined_text_is_no_larger_than_a_payload_may_be(make_app):
    """Else no word and no outcome of the worker could be written any more."""
    app = make_app(max_payload=100)

    @app.task()
    async def write(ctx: Context) -> None:
        for n in range(10):
            ctx.stream(str(n) * 40)

    with working(app):
        job = write.enqueue()
        job.result(20)

    assert "".join(read_all(app, job)) == "".join(str(n) * 40 for n in range(10))


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

    assert spoken(worked, job)[0] == "before"
    assert "late" not in spoken(worked, job)


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
def test_one_statement_takes_so_many_bytes_of_all_runs(make_app):
    """After an outage every run has up to a MiB to say; all of it at once could be a GiB."""
    app = make_app(batch_bytes=5_000)
    leases = app.jobs.reserve("talk", limit=len(app.jobs.enqueue_many("talk", range(8))))
    written = []

    async def write():
        out = outbox.Outbox(app)
        speeches = {speech.Speech(lease, 2**20, out.hear) for lease in leases}
        for each in speeches:
            each.hear(body('"' + "x" * 2_000 + '"'))
        arun = app.arun

        def counted(operation):
            written.append(operation.batch.size)
            return arun(operation)

        app.arun = counted
        await out._write_words(speeches)

    asyncio.run(write())

    assert written == [4_004] * 4
    assert [len(read_all(app, lease.job)) for lease in leases] == [1] * 8


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
def test_in_the_transaction_that_ends_a_job_far_too_much_raises(worked, full):
    """No word waits for room, which comes with the end of the transaction only."""

    def speak():
        for _ in range(100):
            full.publish("x" * 2**18, None)

    async def aspeak():
        for _ in range(100):
            await full.room()
            full.publish("x" * 2**18, None)

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(speak)
        full.hold()
        with pytest.raises(StreamBehind, match="say less in the block"):
            waiting.result(10)
    with pytest.raises(StreamBehind, match="say less in the block"):
        asyncio.run(asyncio.wait_for(aspeak(), 10))
    assert 7 * 2**20 < sum(word.size for word in full.all().words) <= speech.MOST

    full.release()
    write_all(worked, full)
    full.publish("next", None)  # there is room again


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
