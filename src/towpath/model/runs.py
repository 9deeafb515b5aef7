"""Jobs that choose their workers: several of them, or only those with certain names."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class Runs(Struct, frozen=True, omit_defaults=True):
    """The workers that a job chooses; stored with the job and with each of its runs."""

    workers: int = 1  # the number of distinct workers that must succeed
    only: tuple[str, ...] | None = None  # the names of the workers that may run it
    ping_interval: float | None = None  # seconds between two pings of a run
    worker_timeout: float | None = None  # seconds without a ping after which a run counts as lost
    max_unexpected_retries: int = 0  # by one worker; also how many failed workers are allowed
    unexpected_retry_delay: float = 0.0  # seconds before each of these retries
    of: int | None = None  # in a run: the number of the job


class RunState(StrEnum):
    """The state of one worker's run of a job."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CRASHED = "crashed"  # the worker died or stopped reporting
    CANCELLED = "cancelled"


class Run(Struct, frozen=True, kw_only=True):
    """One worker's run of a job."""

    worker: str  # its name
    state: RunState  # running, succeeded, failed, crashed or cancelled
    job: int  # the number of the job that is this run
    started_at: datetime
    ended_at: datetime | None
