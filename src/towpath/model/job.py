"""A job, and the right to run it."""

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


class Options(Struct, frozen=True, omit_defaults=True):
    """How a job is run; stored with it only where it differs from these defaults."""

    max_retries: int = 3  # the failure that reaches it is the last
    max_crashes: int = 3  # workers it may take down with it
    timeout: float = 600.0  # seconds that one run may last
    retention: float = 259_200.0  # seconds that a finished job is kept
    expires_after: float | None = None  # seconds since it was made: its first run begins no later
    expires_at: int | None = None  # instead of that, an instant
    backoff: Backoff = DEFAULT
    limit: Limit | None = None
    runs: Runs | None = None  # by whom it is run, if not by anybody once
    takes: Takes | None = None  # which argument gets the results of those that it waits for
    headers: tuple[tuple[str, str], ...] = ()  # pairs, so that a job can be hashed


class Job(Struct, frozen=True):
    """One piece of work, as it was when it was read."""

    # Read from rows by position: so many names would take ten times as long.

    seq: int  # its number: allocation order, never reused
    id: UUID
    topic: str
    state: State
    priority: int  # smaller is more urgent
    key: str | None
    body: str  # the payload as stored
    encoding: str
    ttr: timedelta
    options: Options
    created_at: datetime
    run_at: datetime  # not before; between tries, the time of the next
    epoch: int = 0  # reservations so far
    retries: int = 0  # failures so far
    crashes: int = 0
    timeouts: int = 0
    releases: int = 0
    buries: int = 0
    kicks: int = 0
    reserved_at: datetime | None = None
    until: datetime | None = None  # the end of its lease, unless a session holds it
    cancel_requested: bool = False
    finished_at: datetime | None = None
    duration: timedelta | None = None
    result_body: str | None = None
    last_error: str | None = None
    progress: float | None = None  # from 0 to 1, as its last run has said
    progress_message: str | None = None

    @property
    def payload(self) -> Any:
        """The data it was enqueued with."""
        return payload.decode(self.body, self.encoding)

    @property
    def expires_at(self) -> datetime | None:
        """When it is too late to begin it, if it was not begun."""
        if self.options.expires_at is not None:
            return as_datetime(self.options.expires_at)
        if self.options.expires_after is not None:
            return self.created_at + timedelta(seconds=self.options.expires_after)
        return None

    @property
    def headers(self) -> dict[str, str]:
        """What travels with it, beside its payload."""
        return dict(self.options.headers)

    @property
    def returned(self) -> Any:
        """What `complete` was told, or None."""
        return None if self.result_body is None else payload.decode(self.result_body, "json")

    @property
    def status(self) -> Status:
        """Its state in coarser words."""
        return STATUS[self.state]


SHOWN_OTHERWISE: Final[dict[str, dict[str, str]]] = {
    "state": {"state": "state", "status": "status"},
    "body": {"payload": "body"},
    "options": {
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
    """A job that a newer version has written: where it lies is known, what it says is not.

    Reading its payload or options raises IncompatibleData, so nobody runs it by guesses.
    """

    why: str

    @property
    def payload(self) -> NoReturn:
        """Raise IncompatibleData."""
        raise IncompatibleData(self.why)

    @property
    def expires_at(self) -> None:
        """Say nothing: that stands in its options."""

    # Frozen, so that it is only ever read, as a property is.
    @property  # type: ignore[misc]
    def options(self) -> NoReturn:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Raise IncompatibleData."""
        raise IncompatibleData(self.why)


class Lease(Struct, frozen=True, kw_only=True):
    """The right to run one job for a while.

    Every later word about the job presents it; a stale one is refused with LeaseLost.
    """

    job: Job
    epoch: int  # grows with every reservation, never goes back: the fencing number
    until: datetime | None  # None while a session holds it
    session: int | None = None


class LogLine(Struct, frozen=True, kw_only=True):
    """A line that a running job has written."""

    epoch: int  # of the run that wrote it
    text: str
    at: datetime


class JobEvent(Struct, frozen=True, kw_only=True):
    """What a running job has published."""

    cursor: int  # its place among the events of this job
    epoch: int
    payload: Any
    at: datetime


class FailureKind(StrEnum):
    """Why a job has a failure on record."""

    ERROR = "error"  # its run failed, or no run could read it
    CRASH = "crash"  # its worker died, or fell silent
    EXPIRED = "expired"  # its first run did not begin in time
    DEPENDENCY = "dependency"  # a job that it waits for failed, was cancelled or deleted


class Failure(Struct, frozen=True, kw_only=True):
    """One failed try."""

    epoch: int
    kind: FailureKind
    error: str
    traceback: str | None
    failed_at: datetime
