"""A job, its lease, and the records of its runs."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NoReturn
from uuid import UUID

from msgspec import Struct

from towpath.errors import IncompatibleData
from towpath.model import payload
from towpath.model.backoff import DEFAULT, Backoff
from towpath.model.flows import Takes
from towpath.model.instants import as_datetime
from towpath.model.limits import Limit
from towpath.model.runs import Runs
from towpath.model.states import STATUS, State, Status

MOST_PRIORITY: Final = 2**32 - 1


class Options(Struct, frozen=True, omit_defaults=True):
    """How a job is run; an option is stored only if it differs from its default here."""

    max_retries: int = 3  # the job is buried when its failures reach this number
    max_crashes: int = 3  # the job is buried when the crashes of its workers reach this number
    timeout: float = 600.0  # seconds that one run may last
    retention: float = 259_200.0  # seconds that a finished job is kept
    expires_after: float | None = None  # seconds from enqueue to the latest begin of the first run
    expires_at: int | None = None  # the same as an instant
    backoff: Backoff = DEFAULT  # the pause after each failure
    limit: Limit | None = None  # bounds how many jobs of its key run at once, or start
    runs: Runs | None = None  # set if the job chooses its workers
    takes: Takes | None = None  # the argument that receives the results of previous jobs
    task: str | None = None  # the name of its task, unless that is the name of the topic
    headers: tuple[tuple[str, str], ...] = ()  # metadata beside the payload; pairs can be hashed


class Job(Struct, frozen=True):
    """One piece of work, as it was when it was read."""

    # Made from rows by position: keyword arguments would take ten times as long.

    seq: int  # its number: allocation order, never reused
    id: UUID  # a UUIDv7, unless the caller has chosen one
    topic: str  # the line in which it waits
    state: State  # the table in which its ticket lies, such as ready or buried
    priority: int  # smaller is more urgent
    key: str | None  # at most one unfinished job of its topic has it
    body: str  # the payload as stored
    encoding: str  # of the body: json, or text and base64 for bytes
    ttr: timedelta  # how long a lease without a session lives, unless it is touched
    options: Options  # how it is run
    created_at: datetime  # when it was enqueued
    run_at: datetime  # the earliest start; between two tries, that of the next one
    epoch: int = 0  # reservations so far, also those in which nothing ran
    retries: int = 0  # failures so far
    crashes: int = 0  # deaths of its workers while they ran it
    timeouts: int = 0  # ends of a lease at its ttr
    releases: int = 0  # how often it was given back
    buries: int = 0  # how often it was put aside as failed
    kicks: int = 0  # how often it was made ready again by a kick
    reserved_at: datetime | None = None  # when its lease began; None if no worker has it
    until: datetime | None = None  # the end of its lease; None if the lease belongs to a session
    cancel_requested: bool = False  # it runs, and was asked to stop
    finished_at: datetime | None = None  # when it completed, was buried or was cancelled
    duration: timedelta | None = None  # of its last run, from the reservation to the end
    result_body: str | None = None  # the result as stored, in JSON
    last_error: str | None = None  # the message of its last failure
    progress: float | None = None  # from 0 to 1, reported by its last run
    progress_message: str | None = None  # reported with the progress

    @property
    def payload(self) -> Any:
        """The data that it was enqueued with."""
        return payload.decode(self.body, self.encoding)

    @property
    def expires_at(self) -> datetime | None:
        """The latest begin of its first run; None if it does not expire."""
        if self.options.expires_at is not None:
            return as_datetime(self.options.expires_at)
        if self.options.expires_after is not None:
            return self.created_at + timedelta(seconds=self.options.expires_after)
        return None

    @property
    def task_name(self) -> str | None:
        """The name of its task; None if that is the name of the topic, or not known."""
        return self.options.task

    @property
    def headers(self) -> dict[str, str]:
        """The headers that it was enqueued with."""
        return dict(self.options.headers)

    @property
    def returned(self) -> Any:
        """The result that `complete` was given, or None."""
        return None if self.result_body is None else payload.decode(self.result_body, "json")

    @property
    def status(self) -> Status:
        """Its status, which is coarser than its state."""
        return STATUS[self.state]


SHOWN_OTHERWISE: Final[dict[str, dict[str, str]]] = {
    "state": {"state": "state", "status": "status"},
    "body": {"payload": "body"},
    "options": {
        "task": "task_name",
        "headers": "options.headers",
        "timeout": "options.timeout",
        "retention": "options.retention",
        "max_retries": "options.max_retries",
        "max_crashes": "options.max_crashes",
        "expires_at": "expires_at",
    },
    "duration": {"duration_ms": "duration"},
    "result_body": {"result": "result_body"},
}
"""The fields that HTTP and rules show under other names, each with its attribute of Job.

A field that they must not show stands here without any name.
"""

SHOWN: Final = {
    name: attribute
    for field in Job.__struct_fields__
    for name, attribute in SHOWN_OTHERWISE.get(field, {field: field}).items()
}
"""Every name under which HTTP and rules show a job, each with its attribute of Job."""


class UnreadableJob(Job, frozen=True, kw_only=True):
    """A job written by a newer version: its state can be read, its payload and options cannot.

    Reading these raises IncompatibleData, so that no worker runs the job on a guess.
    """

    why: str

    @property
    def payload(self) -> NoReturn:
        """Raise IncompatibleData."""
        raise IncompatibleData(self.why)

    @property
    def expires_at(self) -> None:
        """None: the expiry is part of the options."""

    @property
    def task_name(self) -> None:
        """None: the name is part of the options."""

    # The struct is frozen, so a property may stand in for the field.
    @property  # type: ignore[misc]
    def options(self) -> NoReturn:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Raise IncompatibleData."""
        raise IncompatibleData(self.why)


class Lease(Struct, frozen=True, kw_only=True):
    """The right to run one job for a while.

    Every later call about the job presents it; a stale lease is refused with LeaseLost.
    """

    job: Job  # as it was when it was reserved
    epoch: int  # grows with every reservation, never decreases: the fencing number
    until: datetime | None  # None if the lease belongs to a session
    session: int | None = None  # of the worker that has it


class LogLine(Struct, frozen=True, kw_only=True):
    """A line of a running job's log."""

    epoch: int  # of the run that wrote it
    text: str  # of the line
    at: datetime  # when it was stored


class Said(Struct, frozen=True, kw_only=True):
    """The answer to the words of a run."""

    said: int  # words of this run in the stream of its job
    cancel_requested: bool  # the run should stop


class FailureKind(StrEnum):
    """The reason of a recorded failure."""

    ERROR = "error"  # the run failed, or the stored job could not be read
    CRASH = "crash"  # the worker died or stopped reporting
    EXPIRED = "expired"  # the first run did not begin before the job expired
    UNKNOWN = "unknown"  # the worker did not know its task, or could not decode its arguments
    DEPENDENCY = (
        "dependency"  # what it waits for failed, was cancelled or deleted, or returned too much
    )


RAN: Final = frozenset({FailureKind.ERROR, FailureKind.CRASH})
"""The failures of runs; of the other kinds, no task has run."""


class Failure(Struct, frozen=True, kw_only=True):
    """One failed try, or another reason for which a job did not run."""

    run: int | None  # 1 for the first failed run that is kept; None if nothing ran
    epoch: int  # of the lease under which it failed
    kind: FailureKind  # error, crash, expired, unknown or dependency
    error: str  # the message
    traceback: str | None  # of the exception, if there was one
    failed_at: datetime  # when it was recorded
