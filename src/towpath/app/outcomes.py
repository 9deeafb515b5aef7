"""How a lease ends: the values that the store's `complete`, `settle` and `touch` take."""

from collections.abc import Sequence
from datetime import timedelta
from traceback import format_exception
from typing import Any, Final

import msgspec

from towpath.app.checks import priority_of
from towpath.errors import Invalid
from towpath.model import payload as payloads
from towpath.model.instants import Duration, as_datetime, microseconds
from towpath.model.job import FailureKind, Job, Lease
from towpath.operation import Answer, answered
from towpath.store.leases import Completion, Outcome, Touch, is_run

_MICROSECOND: Final = timedelta(microseconds=1)
MOST_ERROR: Final = 20_000  # characters of an error message or traceback that are kept


def completion(lease: Lease, result: object, most: int) -> Completion:
    """Finish a job with a result of at most `most` bytes."""
    text = None if result is None else payloads.encode_json(result, most, "result")
    return completion_of(lease, text)


def completion_of(lease: Lease, text: str | None) -> Completion:
    """Finish a job with a result that is JSON already."""
    return Completion(
        seq=job_of(lease).seq,
        epoch=lease.epoch,
        options=lease.job.options,
        result=text,
        waited=_waited(lease),
    )


def _waited(lease: Lease) -> int | None:
    """Return how long a job waited for its first lease; for a later one that is not known."""
    job = lease.job
    if lease.epoch != 1 or job.epoch != 1 or job.reserved_at is None:
        return None
    return max(0, (job.reserved_at - job.run_at) // _MICROSECOND)


def job_of(lease: Lease) -> Job:
    """Return the job of a lease; raise Invalid if it is not a lease."""
    if isinstance(lease, Lease):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        return lease.job
    msg = f"expected a lease, as `reserve` returns it, not a {type(lease).__name__}"
    raise Invalid(msg)


def failure(
    lease: Lease, error: BaseException | str, delay: Duration | None, traceback: str | None = None
) -> Outcome:
    """Back off, or bury the job if this try was the last."""
    options, failures = job_of(lease).options, lease.job.retries + 1
    last = failures >= options.max_retries
    wait = options.backoff.seconds(failures, lease.job.id) if delay is None else delay
    return Outcome(
        seq=lease.job.seq,
        epoch=lease.epoch,
        goal="buried" if last else "delayed",
        delay=microseconds(wait, "delay"),
        retried=1,
        options=options,
        kind=FailureKind.ERROR,
        error=clean(_message(error)),
        traceback=_traceback(error) if traceback is None else clean(traceback),
    )


def _message(error: BaseException | str) -> str:
    if isinstance(error, str):
        return error
    if isinstance(error, BaseException):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        return f"{type(error).__name__}: {_text(error)}"
    msg = f"an error must be text or an exception, not {error!r}"
    raise Invalid(msg)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the failure is stored even without its text
        return "<exception text unavailable: __str__ raised>"


def _traceback(error: BaseException | str) -> str | None:
    if isinstance(error, str) or error.__traceback__ is None:
        return None
    return clean("".join(format_exception(error)))


def clean(text: str) -> str:
    """Return an error or a traceback in a form that can be stored."""
    return payloads.clean_text(text, MOST_ERROR)


def release(lease: Lease, delay: Duration, priority: int | None) -> Outcome:
    """Give the job back, now or after a delay."""
    wait = microseconds(delay, "delay")
    if is_run(job_of(lease).options):
        return discard(lease)  # so that another worker can take a run
    return Outcome(
        seq=job_of(lease).seq,
        epoch=lease.epoch,
        goal="delayed" if wait else "ready",
        delay=wait,
        priority=None if priority is None else priority_of(priority),
        released=1,
        options=lease.job.options,
    )


def burial(lease: Lease, priority: int | None, error: BaseException | str | None) -> Outcome:
    """Bury the job; an error is recorded as a failed try."""
    if error is not None:
        moved = None if priority is None else priority_of(priority)
        return msgspec.structs.replace(final_failure(lease, error), priority=moved)
    return Outcome(
        seq=job_of(lease).seq,
        epoch=lease.epoch,
        goal="buried",
        priority=None if priority is None else priority_of(priority),
        options=lease.job.options,
    )


def final_failure(lease: Lease, error: BaseException | str) -> Outcome:
    """Bury the job after a failure, even if tries are left."""
    return msgspec.structs.replace(failure(lease, error, 0), goal="buried")


def not_yet(lease: Lease, reason: str, delay: Duration) -> Outcome:
    """Give back, uncounted, a job that this worker cannot run; a newer one may know its task."""
    outcome = failure(lease, reason, delay)
    return msgspec.structs.replace(
        outcome, goal="delayed", retried=0, kind=FailureKind.UNKNOWN, traceback=None
    )


def cancellation(lease: Lease) -> Outcome:
    """Cancel the job."""
    return msgspec.structs.replace(discard(lease), goal="cancelled")


def return_unseen(lease: Lease) -> Outcome:
    """Give the job back as if it had never been reserved."""
    if is_run(lease.job.options):
        return discard(lease)
    return msgspec.structs.replace(discard(lease), goal="ready")


def discard(lease: Lease) -> Outcome:
    """Finish and delete the job."""
    return Outcome(
        seq=lease.job.seq,
        epoch=lease.epoch,
        goal="gone",
        options=lease.job.options,
    )


def touch(lease: Lease) -> Touch:
    """Extend the lease to its ttr from now."""
    return Touch(seq=job_of(lease).seq, epoch=lease.epoch, ttr=microseconds(lease.job.ttr))


def touched(lease: Lease, answer: Answer[tuple[int | None, bool]]) -> Lease:
    """Return the lease after a touch."""
    until, cancelled = answered(answer)
    end = None if until is None else as_datetime(until)
    job = msgspec.structs.replace(lease.job, until=end, cancel_requested=cancelled)
    return msgspec.structs.replace(lease, job=job, until=end)


def lost(leases: Sequence[Lease], answers: Sequence[Answer[Any]]) -> list[Lease]:
    """Return the leases that were refused."""
    return [
        lease
        for lease, answer in zip(leases, answers, strict=True)
        if isinstance(answer, Exception)
    ]
