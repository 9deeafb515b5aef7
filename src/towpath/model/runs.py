"""Jobs that several workers run, or only some of them."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class Runs(Struct, frozen=True, omit_defaults=True):
    """By whom a job is run, stored with it and with each of its runs."""

    workers: int = 1  # so many distinct ones are to succeed
    only: tuple[str, ...] | None = None  # the names of those who may
    ping_interval: float | None = None  # seconds from one sign of life of a run to the next
    worker_timeout: float | None = None  # silent for so long, it is taken from its worker
    max_unexpected_retries: int = 0  # by the same worker; more failed workers fail the job
    unexpected_retry_delay: float = 0.0  # seconds before each of them
    of: int | None = None  # in a run: the number of the job


class RunState(StrEnum):
    """What one worker made of a job."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CRASHED = "crashed"  # the worker died or fell silent
    CANCELLED = "cancelled"


class Run(Struct, frozen=True, kw_only=True):
    """One worker's run of a job."""

    worker: str
    state: RunState
    job: int  # the number of the job that is this run
    started_at: datetime
    ended_at: datetime | None
