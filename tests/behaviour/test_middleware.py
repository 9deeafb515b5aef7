"""Middleware: what is done around every enqueue and every run, and the traces that come of it."""

import asyncio
import contextlib
import contextvars
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.conftest import eventually
from tests.workers import ended, working
from towpath import Cancel, Context, Retry
from towpath.errors import Invalid, InvalidPayload, JobExists

tenant = contextvars.ContextVar("tenant", default="nobody")


@pytest.fixture
def plain(make_app):
    return make_app()


# ---------------------------------------------------------------- headers


def test_headers_travel_with_the_job(app):
    job = app.jobs.enqueue("mail", {}, headers={"tenant": "acme"})
    [lease] = app.jobs.reserve("mail")

    assert job.headers == app.jobs.get(job).headers == lease.job.headers == {"tenant": "acme"}
    assert app.jobs.enqueue("mail", {}).headers == {}
    assert len({job, lease.job}) == 2  # a job may be a key


def test_a_job_without_headers_stores_nothing_for_them(app):
    app.jobs.enqueue("mail", {}, headers={})

    assert app.jobs.peek("mail").options == app.jobs.enqueue("mail", {}).options


@pytest.mark.parametrize(
    "wrong", [["tenant"], "tenant", {"tenant": 1}, {1: "a"}, {"a": "x" * 8_000}], ids=str
)
@pytest.mark.one_database
def test_headers_that_are_not_a_little_text_are_refused(app, wrong):
    with pytest.raises(Invalid, match="header"):
        app.jobs.enqueue("mail", {}, headers=wrong)


# ---------------------------------------------------------------- around an enqueue


def test_what_is_around_an_enqueue_may_add_headers(plain, colour):
    @plain.around_enqueue
    def add(topic: str, headers: dict[str, str]) -> Iterator[None]:
        headers["tenant"] = f"{tenant.get()} of {topic}"
        yield

    @plain.task()
    def work() -> None: ...

    jobs = colour(plain).jobs
    found = [
        jobs.enqueue("mail", {}, headers={"mine": "too"}),
        *jobs.enqueue_many("mail", [1, 2]),
        colour(work).enqueue(),
    ]

    added = {"tenant": "nobody of mail"}
    assert [job.headers for job in found] == [
        {"mine": "too", **added}, added, added, {"tenant": "nobody of work"},
    ]  # fmt: skip


def test_what_is_around_an_enqueue_comes_and_goes_in_order_and_sees_its_errors(plain, colour):
    seen = []

    def around(name):
        def hook(topic, headers):
            seen.append(f"{name} begins")
            try:
                yield
            except Exception as error:
                seen.append(f"{name} saw {type(error).__name__}")
                raise
            seen.append(f"{name} ends")

        return hook

    plain.around_enqueue(around("first"))
    plain.around_enqueue(around("second"))

    colour(plain).jobs.enqueue("mail", {})
    with pytest.raises(InvalidPayload):
        colour(plain).jobs.enqueue("mail", object())

    begun = ["first begins", "second begins"]
    assert seen == [
        *begun, "second ends", "first ends",
        *begun, "second saw InvalidPayload", "first saw InvalidPayload",
    ]  # fmt: skip


def test_an_error_of_an_enqueue_cannot_be_swallowed_but_replaced(plain, colour):
    @plain.around_enqueue
    def swallow(topic, headers):
        try:
            yield
        except InvalidPayload:
            pass
        except JobExists as error:
            raise KeyError(topic) from error

    jobs = colour(plain).jobs
    with pytest.raises(InvalidPayload):
        jobs.enqueue("mail", object())
    job = jobs.enqueue("mail", 1)
    with pytest.raises(KeyError, match="mail"):
        jobs.enqueue("mail", 2, id=job.id)


def test_one_that_refuses_an_enqueue_keeps_it_from_being_stored(plain, colour):
    @plain.around_enqueue
    def refuse(topic, headers):
        if tenant.get() == "nobody":
            raise PermissionError
        yield

    with pytest.raises(PermissionError):
        colour(plain).jobs.enqueue("mail", {})
    assert plain.jobs.stats().ready == 0


def test_what_does_not_yield_is_refused(plain):
    with pytest.raises(Invalid, match="generator function"):
        plain.around_enqueue(lambda topic, headers: None)
    with pytest.raises(Invalid, match="async generator function"):
        plain.around_run(lambda context: None)


# ---------------------------------------------------------------- around a run


def test_what_is_around_a_run_sets_the_scene_for_async_and_blocking_tasks(plain):
    @plain.around_enqueue
    def add(topic: str, headers: dict[str, str]) -> Iterator[None]:
        headers["tenant"] = tenant.get()
        yield

    @plain.around_run
    async def restore(context: Context) -> AsyncIterator[None]:
        token = tenant.set(context.job.headers["tenant"])
        yield
        tenant.reset(token)

    @plain.task()
    async def awho() -> str:
        return tenant.get()

    @plain.task()
    def who() -> str:
        return tenant.get()

    tenant.set("acme")
    jobs = [task.enqueue() for task in (awho, who)]
    tenant.set("nobody")
    with working(plain):
        assert [job.result(20) for job in jobs] == ["acme", "acme"]
        assert awho.enqueue().result(20) == "nobody"


def test_what_is_around_a_run_sees_how_it_ends_and_may_raise_another_error(plain):
    seen = []

    @plain.around_run
    async def outer(context):
        try:
            yield
        except Exception as error:
            seen.append(type(error))
            raise
        seen.append(None)

    @plain.around_run
    async def inner(context):
        try:
            yield
        except KeyError as error:
            raise Cancel from error

    @plain.task(max_retries=1, timeout=0.2)
    async def work(how: str) -> None:
        if how == "key":
            raise KeyError
        if how == "value":
            raise ValueError
        if how == "sleep":
            await asyncio.sleep(60)

    hows = ("fine", "value", "key", "sleep")
    with working(plain, concurrency=1):
        states = [ended(plain, work.enqueue(how)).state for how in hows]
    assert states == ["completed", "buried", "cancelled", "buried"]
    assert [kind and kind.__name__ for kind in seen] == [
        None, "ValueError", "Cancel", "TimeLimitExceeded",
    ]  # fmt: skip


def test_an_error_of_a_run_cannot_be_swallowed(plain):
    @plain.around_run
    async def swallow(context):
        with contextlib.suppress(ValueError):
            yield

    @plain.task(max_retries=1)
    async def fail() -> None:
        raise ValueError("no ink")

    with working(plain):
        assert ended(plain, fail.enqueue()).last_error == "ValueError: no ink"


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_error_around_a_run_fails_the_job_and_not_the_worker(plain, when):
    @plain.around_run
    async def wrong(context):
        if when == "before":
            raise ValueError("not yet")
        yield
        raise ValueError("not any more")

    @plain.task(max_retries=1)
    async def work() -> None: ...

    with working(plain):
        assert all("ValueError: not" in ended(plain, work.enqueue()).last_error for _ in range(2))


# ---------------------------------------------------------------- traces


@pytest.fixture
def spans(monkeypatch):
    """Keeps the spans of one test. A provider that is set stays: other tests would be traced."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return lambda: {span.name: span for span in exporter.get_finished_spans()}


def test_a_trace_goes_from_the_request_over_the_enqueue_to_the_run(plain, colour, spans):
    tracer = trace.get_tracer("test")

    @plain.task()
    async def awork() -> None:
        with tracer.start_as_current_span("inside async"):
            pass

    @plain.task()
    def work() -> None:
        with tracer.start_as_current_span("inside blocking"):
            pass

    with tracer.start_as_current_span("request"):
        first = colour(awork).enqueue()
        second = colour(work).enqueue()
    with working(plain):
        first.result(20)
        second.result(20)
        eventually(lambda: {"process awork", "process work"} <= spans().keys())

    found = spans()
    for topic, inside in (("awork", "inside async"), ("work", "inside blocking")):
        produced, consumed = found[f"send {topic}"], found[f"process {topic}"]
        assert consumed.parent.span_id == produced.context.span_id
        assert found[inside].parent.span_id == consumed.context.span_id
        assert (produced.kind, consumed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
        assert consumed.attributes["messaging.destination.name"] == topic
        assert consumed.context.trace_id == produced.context.trace_id
    assert found["process work"].attributes["messaging.message.id"] == str(second.id)
    assert first.headers.keys() == {"traceparent"}


def test_the_producer_is_a_part_of_the_request(plain, spans):
    with trace.get_tracer("test").start_as_current_span("request"):
        plain.jobs.enqueue("mail", {})

    found = spans()
    assert found["send mail"].parent.span_id == found["request"].context.span_id


def test_a_failure_is_in_the_trace_and_a_decision_is_no_failure(plain, spans):
    @plain.task(max_retries=1)
    async def fail() -> None:
        raise ValueError("no ink")

    @plain.task()
    async def decline() -> None:
        raise Cancel

    @plain.task(max_retries=1)
    async def again() -> None:
        raise Retry

    with working(plain):
        for task in (fail, decline, again):
            ended(plain, task.enqueue())

    found = spans()
    assert found["process fail"].status.status_code is StatusCode.ERROR
    assert found["process fail"].status.description == "ValueError: no ink"
    assert found["process fail"].events[0].attributes["exception.type"] == "ValueError"
    assert found["process decline"].status.status_code is StatusCode.UNSET
    assert found["process again"].status.status_code is StatusCode.ERROR


class Unspeakable(Exception):
    """Cannot say what it is."""

    def __str__(self):
        raise ValueError


def test_a_trace_does_not_change_the_error(plain, spans):
    @plain.task(max_retries=1)
    async def fail() -> None:
        raise Unspeakable

    with working(plain):
        assert (
            ended(plain, fail.enqueue()).last_error
            == "Unspeakable: <exception text unavailable: __str__ raised>"
        )
    assert spans()["process fail"].status.description == "Unspeakable"


def test_a_process_without_traces_does_not_pay_for_them():
    program = (
        "import sys; from towpath import App; app = App('memory://'); "
        "app.jobs.enqueue('mail', {}); app.close(); "
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_each_step_of_a_flow_is_enqueued_through_the_middleware(make_app):
    app = make_app()
    seen = []

    @app.around_enqueue
    def tenant(topic, headers):
        headers["tenant"] = "ada"
        seen.append(topic)
        yield

    @app.task()
    def first() -> int: ...

    @app.task()
    def second(number: int) -> None: ...

    job = (first.s() | second.s()).enqueue()

    assert seen == ["first", "second"]
    assert app.jobs.get(job).headers["tenant"] == "ada"  # beside a trace, if there is one
