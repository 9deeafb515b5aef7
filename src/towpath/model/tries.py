"""Tries: each lease of a job, by its epoch, and how it ended."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class TryOutcome(StrEnum):
    """How a try has ended; that of the running one is still open."""

    RUNNING = "running"
    COMPLETED = "completed"
    ERROR = "error"  # it failed
    CRASH = "crash"  # its worker died or stopped reporting
    TIMEOUT = "timeout"  # its lease ended before its worker did
    RELEASED = "released"  # its worker gave the job back
    BURIED = "buried"  # its worker put the job aside without an error
    CANCELLED = "cancelled"
    EXPIRED = "expired"  # nothing ran: the job began too late
    UNKNOWN = "unknown"  # nothing ran: the worker did not know the task, or its arguments
    DEPENDENCY = "dependency"  # nothing ran: a job before it did not complete


class Try(Struct, frozen=True, kw_only=True):
    """One lease of a job, or a reason for which it was not run."""

    epoch: int  # of the lease
    worker: str | None  # that had the lease; None if it is not known
    started_at: datetime | None  # when the lease began; None if it is not known, or nothing ran
    ended_at: datetime | None  # None while it runs
    outcome: TryOutcome  # how it ended
    error: str | None = None  # the message of a failure
    traceback: str | None = None  # of the exception, if there was one
