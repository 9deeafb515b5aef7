"""What a running job says of itself, and what it is told."""

import asyncio
import threading
import time

import pytest

from tests.conftest import eventually
from tests.workers import ended, working
from towpath import Cancel, Context, NewEvent, Retry
from towpath.app.context import Notes
from towpath.errors import Conflict, DatabaseUnavailable, Invalid, LeaseLost, NotFound
from towpath.operation import Operation
from towpath.statement import Statement
from towpath.store import job_output
from towpath.store.job_output import Kind, Note
from towpath.store.leases import Outcome, settle
from towpath.worker import outbox
from towpath.worker.worker import Pace


@pytest.fixture
def app(make_app):
    return make_app(beat_every=60, dead_after=600)


@pytest.fixture
def steps():
    """A task waits here until the test lets it go on."""
    return threading.Semaphore(0)


# ---------------------------------------------------------------- progress


def test_progress_is_seen_while_the_job_runs_and_afterwards(app, colour, steps):
    @app.task()
    def work(ctx: Context) -> None:
        ctx.progress(0.4, "two of five")
        steps.acquire(timeout=20)
        ctx.progress(1)

    job = work.enqueue()
    seen = colour(app).jobs
    assert seen.get(job).progress is None
    with working(app):
        eventually(lambda: seen.get(job).progress == 0.4)
        assert seen.get(job).progress_message == "two of five"
        steps.release()
        job.result(20)

    found = seen.get(job)
    assert (found.progress, found.progress_message) == (1, None)
    assert [each.progress for each in seen.list(status="completed")] == [1]


def test_an_async_task_says_the_same(app):
    @app.task()
    async def work(ctx: Context) -> None:
        await ctx.aprogress(0.5, "half")
        await ctx.alog("a line")
        await ctx.apublish({"n": 1})
        await ctx.atouch()

    with working(app):
        job = work.enqueue()
        job.result(20)

    assert app.jobs.get(job).progress == 0.5
    assert [line.text for line in app.jobs.logs(job)] == ["a line"]
    assert streamed(app, job) == [{"n": 1}]


def streamed(app, job):
    """What the stream of a job has."""
    return [event.payload for event in app.events.read(f"job:{job.id}").events]


def test_a_chatty_job_is_written_a_few_times_and_its_last_word_holds(app, monkeypatch):
    """Ten thousand calls are not ten thousand rows."""
    written = []
    monkeypatch.setattr(outbox, "GATHER", 60)
    monkeypatch.setattr(
        outbox.store,
        "write",
        lambda said, write=job_output.write: written.append(len(said)) or write(said),
    )

    @app.task()
    async def chat(ctx: Context) -> None:
        for n in range(10_000):
            ctx.progress(n / 10_000)

    with working(app):
        job = chat.enqueue()
        job.result(20)

    assert app.jobs.get(job).progress == 0.9999
    assert written == [1]


def test_the_progress_of_a_try_that_failed_is_not_that_of_the_next(app, steps):
    @app.task(backoff=0)
    async def work(ctx: Context) -> None:
        if not ctx.tries:
            ctx.progress(0.9)
            raise ValueError
        await asyncio.to_thread(steps.acquire, timeout=20)

    job = work.enqueue()
    with working(app):
        eventually(lambda: app.jobs.get(job).epoch == 2)
        assert app.jobs.get(job).progress is None
        steps.release()


def test_the_progress_of_the_last_failure_stays(app):
    @app.task(max_retries=1)
    async def work(ctx: Context) -> None:
        ctx.progress(0.9, "nearly")
        raise ValueError

    with working(app):
        assert ended(app, work.enqueue()).progress == 0.9


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), "half", None])
@pytest.mark.one_database
def test_progress_that_makes_no_sense_is_refused(app, share):
    with pytest.raises(Invalid, match="is not a number from 0 to 1"):
        Context(app).progress(share)


# ---------------------------------------------------------------- lines


def test_lines_are_kept_in_order_over_all_tries(app, colour):
    @app.task(backoff=0)
    def work(ctx: Context) -> None:
        ctx.log(f"try {ctx.tries}: begin")
        ctx.log(f"try {ctx.tries}: \0 end \ud800")
        if not ctx.tries:
            raise Retry

    with working(app):
        job = work.enqueue()
        job.result(20)

    lines = colour(app).jobs.logs(job)
    assert [(line.epoch, line.text) for line in lines] == [
        (1, "try 0: begin"),
        (1, "try 0: \N{REPLACEMENT CHARACTER} end ?"),
        (2, "try 1: begin"),
        (2, "try 1: \N{REPLACEMENT CHARACTER} end ?"),
    ]
    assert all(line.at >= job.created_at for line in lines)


def test_of_very_many_lines_the_oldest_are_dropped(app, monkeypatch):
    monkeypatch.setitem(job_output.MOST, Kind.LINE, 10)

    @app.task(backoff=0)
    def work(ctx: Context) -> None:
        for n in range(25):
            ctx.log(f"{ctx.tries}.{n}")
        if not ctx.tries:
            raise Retry

    @app.task()
    def short(ctx: Context) -> None:
        for n in range(3):
            ctx.log(f"{n}")

    with working(app):
        many, few = work.enqueue(), short.enqueue()
        many.result(20)
        few.result(20)

    assert [line.text for line in app.jobs.logs(many)] == [f"1.{n}" for n in range(15, 25)]
    assert [line.text for line in app.jobs.logs(few)] == ["0", "1", "2"]


def test_lines_over_several_tries_are_capped_in_the_database(app, monkeypatch):
    """The second try has room for its own; together they are too many."""
    monkeypatch.setitem(job_output.MOST, Kind.LINE, 10)
    monkeypatch.setitem(job_output.MOST_BYTES, Kind.LINE, 70)

    @app.task(backoff=0)
    def work(ctx: Context, size: int) -> None:
        for n in range(6):
            ctx.log(f"{ctx.tries}.{n}".ljust(size, "é"))
        if not ctx.tries:
            raise Retry

    with working(app):
        by_number, by_bytes = work.enqueue(3), work.enqueue(6)
        by_number.result(20)
        by_bytes.result(20)

    kept = [line.text[:3] for line in app.jobs.logs(by_number)]
    assert kept == ["0.2", "0.3", "0.4", "0.5", *(f"1.{n}" for n in range(6))]
    assert [line.text[:3] for line in app.jobs.logs(by_bytes)] == [
        "0.5", *(f"1.{n}" for n in range(6)),
    ]  # fmt: skip


def test_a_line_is_text_and_not_endless(app):
    @app.task(max_retries=1)
    async def work(ctx: Context, number: int) -> None:
        ctx.log("x" * 100_000 if number else number)

    with working(app):
        assert "must be text, not 0" in ended(app, work.enqueue(0)).last_error
        job = work.enqueue(1)
        job.result(20)
    assert [len(line.text) for line in app.jobs.logs(job)] == [8_000]


# ---------------------------------------------------------------- events


def test_what_is_no_json_is_not_published(app):
    with pytest.raises(Invalid):
        Context(app).publish(object())
    with pytest.raises(Invalid):
        Context(app).publish("x" * 2**21)


def test_of_an_unknown_job_nothing_is_read(app, colour):
    unknown = "00000000-0000-0000-0000-000000000000"

    with pytest.raises(NotFound):
        colour(app).jobs.logs(unknown)
    with pytest.raises(NotFound):
        colour(app).events.read(f"job:{unknown}")


# ---------------------------------------------------------------- fenced, and gone with the job


def said(lease, kind=Kind.LINE, no=1, **words):
    return Note(seq=lease.job.seq, epoch=lease.epoch, kind=kind, no=no, **words)


def test_a_stale_holder_is_refused_and_changes_nothing(app, colour):
    job = app.jobs.enqueue("mail", {}, ttr=60)
    [stale] = app.jobs.reserve("mail")
    app.jobs.release(stale)
    [lease] = app.jobs.reserve("mail")

    words = [
        said(stale, text="stale"),
        said(lease, no=2, text="fresh"),
        said(stale, Kind.PROGRESS, no=0, share=0.9),
    ]
    answers = colour(app).run(job_output.write(words))

    assert [type(answer) for answer in answers] == [LeaseLost, type(None), LeaseLost]
    assert [line.text for line in app.jobs.logs(job)] == ["fresh"]
    assert app.jobs.get(job).progress is None


def test_a_job_whose_lease_was_lost_learns_of_it(app, steps):
    raised = []

    @app.task()
    def work(ctx: Context) -> None:
        if ctx.job.epoch > 1:
            return
        steps.acquire(timeout=20)
        try:
            for _ in range(1_000):
                ctx.log("still here")
                time.sleep(0.01)
        except LeaseLost as error:
            raised.append(error)
            with pytest.raises(LeaseLost):
                ctx.touch()

    job = work.enqueue()
    with working(app):
        eventually(lambda: app.jobs.get(job).status == "processing")
        [(seq, epoch)] = [(each.seq, each.epoch) for each in app.jobs.list(status="processing")]
        app.run(take_away(seq, epoch))
        steps.release()
        eventually(lambda: raised)
        job.result(20)
    assert app.jobs.logs(job) == []


def take_away(seq, epoch):
    return settle([Outcome(seq=seq, epoch=epoch, goal="ready")])


def test_the_same_word_twice_is_kept_once(app):
    """An answer may be lost."""
    job = app.jobs.enqueue("mail", {})
    [lease] = app.jobs.reserve("mail")

    for _ in range(2):
        app.run(job_output.write([said(lease, text="once")]))

    assert [line.text for line in app.jobs.logs(job)] == ["once"]


def rows(app):
    return app.run(count_notes())


def count_notes():
    def steps():
        text = "select count(*) from towpath.note where kind <> 'try'"
        [[found]] = yield Statement("count", {"any": text})()
        return found

    return Operation("count", steps)


def spoken(app, **options):
    """Reserve a job that has said something."""
    app.jobs.enqueue("mail", {}, **options)
    [lease] = app.jobs.reserve("mail")
    words = [said(lease, text="a"), said(lease, Kind.PROGRESS, no=0, share=0.5)]
    app.run(job_output.write(words))
    return lease


def test_what_a_job_has_said_is_forgotten_with_it(make_app, clock):
    app = make_app(clock=clock)
    done, gone, buried = (spoken(app, retention=60) for _ in range(3))
    assert rows(app) == 6

    app.jobs.delete(gone)
    assert rows(app) == 4
    app.jobs.bury(buried)
    app.jobs.delete(buried.job)
    assert rows(app) == 2
    app.jobs.complete(done)
    app.upkeep.run()
    assert rows(app) == 2
    clock.advance("1h")
    app.upkeep.run()
    assert rows(app) == 0


# ---------------------------------------------------------------- said by the holder of the lease


@pytest.fixture
def lease(app):
    app.jobs.enqueue("mail", {})
    return app.jobs.reserve("mail")[0]


def heard(app, job):
    """What a job has said, and how far it is."""
    return (
        [line.text for line in app.jobs.logs(job)],
        streamed(app, job),
        app.jobs.get(job).progress,
        app.jobs.get(job).progress_message,
    )


def test_the_holder_of_a_lease_says_what_a_task_can(app, colour, lease):
    jobs = colour(app).jobs

    half = {"progress": 0.5, "message": "half"}
    jobs.say(lease, said=0, lines=["a", "b"], logged=0, events=[{"n": 1}], **half)
    assert heard(app, lease.job) == (["a", "b"], [{"n": 1}], 0.5, "half")
    jobs.say(lease, said=1, events=[None], lines=["c"], logged=2)
    jobs.say(lease, said=2, progress=1)

    assert heard(app, lease.job) == (["a", "b", "c"], [{"n": 1}, None], 1, None)


def test_a_call_that_is_repeated_keeps_nothing_twice(app, colour, lease):
    """An answer may be lost on its way to the holder of the lease."""
    jobs = colour(app).jobs

    for _ in range(2):
        jobs.say(lease, said=0, lines=["a", "b"], logged=0, events=[1])
    for _ in range(2):
        jobs.say(lease, said=1, lines=["c"], logged=2, events=[2, 3])

    assert heard(app, lease.job)[:2] == (["a", "b", "c"], [1, 2, 3])


def test_the_same_call_twice_at_once_keeps_nothing_twice(app, loop, lease):
    async def repeat():
        words = {"said": 0, "progress": 0.5, "lines": ["a"], "logged": 0, "events": [1]}
        await asyncio.gather(*(app.jobs.asay(lease, **words) for _ in range(3)))

    asyncio.run_coroutine_threadsafe(repeat(), loop).result()

    assert heard(app, lease.job)[:3] == (["a"], [1], 0.5)


def test_of_twins_in_one_statement_the_later_one_holds(app, lease):
    answers = app.run(job_output.write([said(lease, text="first"), said(lease, text="second")]))

    assert answers == [None, None]
    assert heard(app, lease.job)[0] == ["second"]


def test_each_run_counts_for_itself(app, colour, lease):
    jobs = colour(app).jobs
    jobs.say(lease, said=0, lines=["a", "b"], logged=0)
    jobs.release(lease)
    [again] = jobs.reserve("mail")

    jobs.say(again, said=0, lines=["c"], logged=0)

    assert heard(app, lease.job)[0] == ["a", "b", "c"]


@pytest.mark.parametrize("end", ["release", "complete"])
def test_without_its_lease_nothing_is_kept(app, colour, lease, end):
    getattr(app.jobs, end)(lease)

    with pytest.raises(LeaseLost):
        colour(app).jobs.say(lease, said=0, progress=0.5, lines=["late"], logged=0, events=["x"])

    assert rows(app) == 0
    assert streamed(app, lease.job) == []


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({"progress": -0.1}, "progress -0.1 is not a number from 0 to 1"),
        ({"progress": 1.1}, "is not a number from 0 to 1"),
        ({"progress": float("nan")}, "is not a number from 0 to 1"),
        ({"progress": "half"}, "is not a number from 0 to 1"),
        ({"progress": 0.5, "message": 7}, "must be text, not 7"),
        ({"message": "half"}, "`message` requires `progress`"),
        ({"lines": ["good", b"bad"]}, "must be text, not b'bad'"),
        ({"lines": "good"}, "lines must be a list, not 'good'"),
        ({"lines": None}, "lines must be a list, not None"),
        ({"events": {"a": 1}}, "events must be a list"),
        ({"events": [1, object()]}, "the payload is not JSON"),
        ({"events": [float("inf")]}, "NaN and Infinity are not JSON"),
        ({"events": ["x" * 2**20]}, "bytes; at most 1,048,576 are allowed"),
        ({"said": -1, "lines": ["good"]}, "said -1 is not a whole number from 0"),
        ({"said": 2**31, "lines": ["good"]}, "is not a whole number from 0"),
        ({"said": 0.5, "lines": ["good"]}, "is not a whole number from 0"),
        ({"said": -1, "progress": 0.5}, "is not a whole number from 0"),
        ({"logged": -1}, "logged -1 is not a whole number from 0"),
        ({"logged": None}, "`lines` requires `logged`"),
        ({"events": [NewEvent(1, key="a")]}, "no key and no headers"),
        ({"events": [NewEvent(1, type="towpath.try")]}, "belongs to Towpath"),
        ({}, "nothing to add; pass `progress`, `lines` or `events`"),
    ],
)
@pytest.mark.one_database
def test_what_makes_no_sense_is_refused_and_nothing_is_kept(app, colour, lease, words, complaint):
    good = {"lines": ["good"], "logged": 0} if words else {}

    with pytest.raises(Invalid, match=complaint):
        colour(app).jobs.say(lease, **{"said": 0, **good, **words})

    assert rows(app) == 0


def test_only_a_lease_has_something_to_say(app, colour, lease):
    with pytest.raises(Invalid, match="expected a lease, as `reserve` returns it"):
        colour(app).jobs.say(lease.job, said=0, progress=1)


def test_what_is_said_with_a_lease_is_within_the_same_bounds(make_app, monkeypatch):
    app = make_app(max_payload=100)
    monkeypatch.setitem(job_output.MOST, Kind.LINE, 3)
    app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")

    app.jobs.say(lease, said=0, progress=1, message="\0" + "x" * 10_000)
    app.jobs.say(lease, said=0, lines=["y" * 10_000, "b", "c", "\ud800", "d" * 10_000], logged=0)
    with pytest.raises(Invalid, match="at most 100 are allowed"):
        app.jobs.say(lease, said=0, events=["x" * 99])

    lines, events, _, message = heard(app, lease.job)
    assert (message[:2], len(message)) == ("\N{REPLACEMENT CHARACTER}x", 8_000)
    assert lines == ["c", "?", "d" * 7_999 + "…"]
    assert events == []


# ---------------------------------------------------------------- a database that is away


def test_what_could_not_be_written_is_written_later(app, monkeypatch, steps):
    failures = []

    def write(words, right=job_output.write):
        if len(failures) < 2:
            failures.append(len(words))
            raise DatabaseUnavailable("away")
        return right(words)

    monkeypatch.setattr(outbox.store, "write", write)

    @app.task()
    def work(ctx: Context) -> None:
        ctx.log("before")
        ctx.progress(0.1)
        eventually(lambda: failures)
        ctx.log("after")
        ctx.progress(0.2)

    with working(app):
        job = work.enqueue()
        job.result(20)

    assert [line.text for line in app.jobs.logs(job)] == ["before", "after"]
    assert app.jobs.get(job).progress == 0.2


def test_what_waits_to_be_written_is_bounded(app, monkeypatch):
    """However long the database is away."""
    monkeypatch.setitem(job_output.MOST_BYTES, Kind.LINE, 6_000)
    app.jobs.enqueue("mail", {})
    [lease] = app.jobs.reserve("mail")
    news = []
    waiting = Notes(lease, news.append)

    for n in range(1_000):
        waiting.add(Kind.LINE, f"{n}")
        waiting.add(Kind.LINE, f"{n}")
        waiting.add(Kind.PROGRESS, None, n / 1_000)
    taken = waiting.take()
    waiting.add(Kind.PROGRESS, None, 1.0)
    waiting.put_back(taken)

    kinds = [note.kind for note in waiting.take()]
    assert (kinds.count(Kind.LINE), kinds.count(Kind.PROGRESS)) == (1_000, 1)
    assert len(news) == 2


# ---------------------------------------------------------------- being told to stop


@pytest.mark.parametrize("kind_of_task", ["async", "blocking"])
def test_a_cancel_reaches_a_running_task_long_before_the_next_heartbeat(app, colour, kind_of_task):
    started = threading.Event()

    @app.task()
    async def sleep() -> None:
        started.set()
        await asyncio.sleep(60)

    @app.task()
    def wait(ctx: Context) -> None:
        started.set()
        while not ctx.cancelled:
            time.sleep(0.01)

    with working(app):
        job = (sleep if kind_of_task == "async" else wait).enqueue()
        assert started.wait(20)
        colour(app).jobs.cancel(job.id)
        assert ended(app, job).state == "cancelled"


def test_a_cancelled_task_may_clean_up_in_peace(app):
    """The worker looks again and again; it interrupts once."""
    started, cleaned = threading.Event(), []

    @app.task()
    async def work() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(1.3)  # longer than the time between two looks
            cleaned.append(True)

    with working(app):
        job = work.enqueue()
        assert started.wait(20)
        app.jobs.cancel(job.id)
        assert ended(app, job).state == "cancelled"
    assert cleaned == [True]


def test_a_task_that_learned_of_it_by_touch_is_interrupted_all_the_same(app):
    touched = threading.Event()

    @app.task()
    async def work(ctx: Context) -> None:
        while not ctx.cancelled:
            await ctx.atouch()
            await asyncio.sleep(0.001)
        touched.set()
        await asyncio.sleep(60)

    with working(app):
        job = work.enqueue()
        eventually(lambda: app.jobs.get(job).status == "processing")
        app.jobs.cancel(job.id)
        assert touched.wait(20)
        assert ended(app, job).state == "cancelled"


def test_what_a_task_raises_when_it_is_stopped_is_no_failure(app):
    """DQ-14"""
    started, told = threading.Event(), []

    @app.task(on_failure=lambda ctx, error, final: told.append(error))
    async def work() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            raise ValueError("while cleaning up")

    job = work.enqueue()
    with working(app, grace=0.1):
        assert started.wait(20)

    found = app.jobs.get(job)
    assert (found.state, found.retries, found.last_error, told) == ("ready", 0, None, [])


def test_a_task_that_ignores_a_cancellation_leaves_nothing_to_the_next(app, monkeypatch):
    """The next one in its slot is not taken for stopped."""
    monkeypatch.setattr(Pace, "ahead", lambda _: 5)  # so that it waits in the same slot
    started, told = threading.Event(), []

    @app.task()
    async def stubborn() -> str:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "done all the same"

    @app.task(max_retries=1, on_failure=lambda ctx, error, final: told.append(str(error)))
    async def next_one() -> None:
        raise asyncio.CancelledError

    first, second = stubborn.enqueue(), next_one.enqueue()
    with working(app, concurrency=1):
        assert started.wait(20)
        app.jobs.cancel(first.id)
        assert first.result(20) == "done all the same"
        ended(app, second)
    assert told == ["the task was cancelled"]


def test_touch_tells_of_a_cancellation(app, colour):
    job = app.jobs.enqueue("mail", {})
    [lease] = app.jobs.reserve("mail")
    context = Context(app, lease)
    colour(context).touch()
    assert not context.cancelled

    app.jobs.cancel(job)
    colour(context).touch()

    assert context.cancelled


def test_blocking_code_over_its_time_limit_is_told_to_stop(app):
    told = threading.Event()

    @app.task(timeout=0.1, max_retries=1)
    def work(ctx: Context) -> None:
        while not ctx.cancelled:
            time.sleep(0.01)
        told.set()

    with working(app):
        ended(app, work.enqueue())
        assert told.wait(20)


# ---------------------------------------------------------------- without a job


def test_a_task_that_is_called_has_a_context_without_a_job(app):
    @app.task()
    def work(ctx: Context, number: int) -> int:
        ctx.progress(0.5)
        ctx.log("a line")
        ctx.publish(number)
        ctx.touch()
        assert (ctx.tries, ctx.cancelled) == (0, False)
        with pytest.raises(Conflict, match="it has no job"):
            _ = ctx.job
        return number * 2

    @app.task()
    async def awork(ctx: Context, number: int) -> int:
        await ctx.atouch()
        return number * 2

    assert work(21) == 42
    assert asyncio.run(awork(21)) == 42


# ---------------------------------------------------------------- on_failure


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "blocking"])
def test_on_failure_is_called_at_every_failure_and_told_of_the_last(app, is_async):
    """DQ-14"""
    told = []

    async def atell(ctx: Context, error: Exception, final: bool) -> None:
        told.append((ctx.tries, str(error), final))
        ctx.log("told")

    def tell(ctx: Context, error: Exception, final: bool) -> None:
        told.append((ctx.tries, str(error), final))
        ctx.log("told")

    @app.task(max_retries=3, backoff=0, on_failure=atell if is_async else tell)
    async def fail() -> None:
        raise ValueError("no ink")

    with working(app):
        job = fail.enqueue()
        ended(app, job)

    assert told == [(0, "no ink", False), (1, "no ink", False), (2, "no ink", True)]
    assert len(app.jobs.logs(job)) == 3


def test_on_failure_is_told_of_every_kind_of_failure_and_of_nothing_else(app):
    told = {}

    def tell(ctx: Context, error: Exception, final: bool) -> None:
        how = ctx.job.payload["how"] if isinstance(ctx.job.payload, dict) else None
        told[how] = (type(error).__name__, final)

    @app.task(max_retries=2, backoff=1_000, timeout=0.2, on_failure=tell, topic="work")
    async def work(how: str) -> object:
        match how:
            case "retry":
                raise Retry from KeyError("who")
            case "cancel":
                raise Cancel
            case "exit":
                raise SystemExit(3)
            case "interrupt":
                raise asyncio.CancelledError
            case "sleep":
                await asyncio.sleep(60)
            case "odd":
                return object()
        return None

    hows = ("retry", "cancel", "exit", "interrupt", "sleep", "odd", "nothing")
    with working(app):
        jobs = [work.enqueue(how) for how in hows]
        unreadable = app.jobs.enqueue("work", b"\x00\xff", max_retries=1)
        eventually(lambda: all(app.jobs.get(job).state != "ready" for job in [*jobs, unreadable]))
        eventually(lambda: len(told) == 6)

    assert told == {
        "retry": ("KeyError", False),
        "exit": ("RuntimeError", False),
        "interrupt": ("RuntimeError", False),
        "sleep": ("TimeLimitExceeded", False),
        "odd": ("InvalidPayload", False),
        None: ("InvalidArguments", True),
    }


@pytest.mark.parametrize("wrong", [ValueError, SystemExit, StopIteration])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "blocking"])
def test_an_on_failure_that_fails_changes_nothing(app, caplog, is_async, wrong):
    async def atell(ctx, error, final):
        raise wrong

    def tell(ctx, error, final):
        raise wrong

    @app.task(max_retries=1, on_failure=atell if is_async else tell)
    async def fail() -> None:
        raise ValueError("no ink")

    with working(app):
        assert ended(app, fail.enqueue()).last_error == "ValueError: no ink"
    assert "on_failure of topic fail failed" in caplog.text


def test_an_on_failure_that_hangs_has_the_time_limit_of_the_job(app):
    async def tell(ctx, error, final):
        await asyncio.sleep(60)

    @app.task(max_retries=1, timeout=0.2, on_failure=tell)
    async def fail() -> None:
        raise ValueError("no ink")

    with working(app):
        assert ended(app, fail.enqueue()).last_error == "ValueError: no ink"


def test_a_result_that_is_not_kept_is_not_stored(app):
    @app.task(keep_result=False)
    async def work() -> object:
        return object()  # which could not be stored

    with working(app):
        job = work.enqueue()
        assert job.result(20) is None
    assert app.jobs.get(job).result_body is None
