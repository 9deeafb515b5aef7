"""OpenTelemetry: a span for each enqueue and each run, joined by the headers of the job.

Imported only by a process that has imported OpenTelemetry itself.
"""

from collections.abc import Generator
from contextlib import contextmanager, suppress

from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, StatusCode

from towpath.app.context import Cancel
from towpath.model.job import Job


@contextmanager
def producing(topic: str, headers: dict[str, str]) -> Generator[None]:
    """Trace an enqueue, and store the trace in the headers of its jobs."""
    attributes = _attributes(topic, "send")
    with _tracer().start_as_current_span(
        f"send {topic}", kind=SpanKind.PRODUCER, attributes=attributes
    ):
        propagate.inject(headers)
        yield


@contextmanager
def consuming(job: Job) -> Generator[None]:
    """Trace a run as a part of the trace of its enqueue."""
    attributes = _attributes(job.topic, "process") | {
        "messaging.message.id": str(job.id),
        "towpath.job.epoch": job.epoch,
        "towpath.job.retries": job.retries,
    }
    with _tracer().start_as_current_span(
        f"process {job.topic}",
        context=propagate.extract(job.headers),
        kind=SpanKind.CONSUMER,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except Exception as error:
            if not isinstance(error, Cancel):  # a cancellation is not an error
                span.set_status(StatusCode.ERROR, type(error).__name__)
                with suppress(Exception):  # its __str__ may raise
                    span.set_status(StatusCode.ERROR, f"{type(error).__name__}: {error}")
                    span.record_exception(error)
            raise


def _tracer() -> trace.Tracer:
    return trace.get_tracer("towpath")


def _attributes(topic: str, operation: str) -> dict[str, str | int]:
    return {
        "messaging.system": "towpath",
        "messaging.destination.name": topic,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
