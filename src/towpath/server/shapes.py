"""What travels as JSON: what may be asked, and what is answered.

Names are in camel case; unknown fields are refused. Bounds that the app checks itself, with an
error of its own, stand here only for the OpenAPI document.
"""

import base64
import binascii
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Generic, Literal, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta, Raw, Struct, field

from towpath.errors import InvalidPayload
from towpath.model.job import Job, Lease, Options, UnreadableJob
from towpath.model.limits import Limit
from towpath.model.schedule import Schedule
from towpath.model.states import State, Status
from towpath.store.sessions import Session

MOST_AT_ONCE: Final = 1_000  # jobs in one request
MOST_SECONDS: Final = 10**9
MOST_PRIORITY: Final = 2**32 - 1
LONGEST_POLL: Final = 60
MOST_TOPICS: Final = 100  # of one reservation
NULL: Final = Raw(b"null")
NO_OPTIONS: Final = Options()  # where those of a job cannot be read

T = TypeVar("T")


def null() -> Raw:
    """Return what stands for nothing."""
    return NULL


def _bounds(**schema: Any) -> Meta:
    """Say what the app will check."""
    return Meta(extra_json_schema=schema)


Text = Annotated[str, _bounds(pattern="^[^\\x00]*$")]
Topic = Annotated[str, _bounds(pattern="^[A-Za-z0-9_-]{1,200}$")]
Key = Annotated[str, _bounds(minLength=1, maxLength=255, pattern="^[^\\x00]*$")]
Priority = Annotated[int, _bounds(minimum=0, maximum=MOST_PRIORITY)]
Count = Annotated[int, _bounds(minimum=0, maximum=2**31 - 1)]
Seconds = Annotated[float, _bounds(minimum=0, maximum=MOST_SECONDS)]
Waits = Annotated[list[Seconds], _bounds(minItems=1)]
Instant = Annotated[datetime, Meta(tz=True)]
Epoch = Annotated[int, _bounds(minimum=0, maximum=2**63 - 1)]
Unique = Literal["skip", "replace", "update", "debounce", "clear"]
Encoding = Literal["json", "base64"]


class Asked(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """What a request may say."""


class Told(Struct, rename="camel", kw_only=True):
    """What an answer says."""


class NewLimit(Asked):
    """With which other jobs a job shares how many run at once, or how often one starts."""

    key: Key
    concurrency: Annotated[int, _bounds(minimum=1, maximum=2**31 - 1)] | None = None
    rate: Annotated[str, _bounds(pattern="^[1-9][0-9]{0,5}/(s|m|h|d)$")] | None = None
    burst: Annotated[int, _bounds(minimum=1, maximum=1_000)] = 1


class NewJob(Asked):
    """A job to be stored. Null is as good as left out."""

    topic: Topic
    payload: Raw = field(default_factory=null)
    encoding: Encoding = "json"  # base64: the payload is text that stands for raw bytes
    id: UUID | None = None  # makes a repeated enqueue harmless
    priority: Priority | None = None  # 0 is the most urgent; 50 unless told
    delay: Seconds | None = None  # not before so long from now
    run_at: Instant | None = None  # instead of a delay
    expires_after: Seconds | None = None  # not begun so long from now, it is cancelled
    expires_at: Instant | None = None  # instead of that
    ttr: Annotated[float, _bounds(minimum=0.000001, maximum=MOST_SECONDS)] | None = None
    key: Key | None = None  # while an unfinished job of the topic has it, none is stored
    unique: Unique | None = None  # ...or that job gives way
    max_retries: Count | None = None
    max_crashes: Count | None = None
    backoff: Seconds | Waits | None = None  # the pause after each failure, or one for each
    timeout: Seconds | None = None  # how long one run by a worker may last
    retention: Seconds | None = None  # how long it is kept when it has finished
    workers: Annotated[int, _bounds(minimum=1, maximum=1_000)] | None = None
    only_workers: (
        Annotated[list[Annotated[str, _bounds(minLength=1)]], _bounds(minItems=1)] | None
    ) = None
    after: list[UUID] | None = None  # waits until these have completed
    limit: NewLimit | None = None
    headers: dict[Text, Text] | None = None

    def data(self) -> Any:
        """Return what is to be stored as the payload."""
        return raw_bytes(self.payload) if self.encoding == "base64" else self.payload

    def options(self) -> dict[str, Any]:
        """Return the rest, in the words of `enqueue`."""
        given: dict[str, Any] = {}
        for name in _OPTIONS:
            value = getattr(self, name)
            if value is not None:
                given[name] = value
        if self.limit is not None:
            given["limit"] = Limit(
                self.limit.key, self.limit.concurrency, self.limit.rate, self.limit.burst
            )
        return given


_OPTIONS: Final = tuple(
    name
    for name in NewJob.__struct_fields__
    if name not in {"topic", "payload", "encoding", "limit"}
)


class NewJobs(Asked):
    """Jobs to be stored: all of them, or none."""

    jobs: Annotated[list[NewJob], Meta(min_length=1, max_length=MOST_AT_ONCE)]


class Change(Asked):
    """What is to change while a job waits: its priority, its time, or both."""

    priority: Priority | None = None
    delay: Seconds | None = None  # from now; 0: at once
    run_at: Instant | None = None  # instead of a delay


class Wanted(Asked):
    """Which jobs a worker wants, and how long it waits for one."""

    topics: Annotated[list[Topic], _bounds(minItems=1), Meta(max_length=MOST_TOPICS)]
    limit: Annotated[int, Meta(ge=1, le=MOST_AT_ONCE)] = 1
    timeout: Annotated[float, Meta(ge=0, le=LONGEST_POLL)] = 0
    token: Annotated[int, Meta(ge=1, le=2**53)] | None = None  # repeated: the same leases again
    worker: Text | None = None  # its name, for jobs that choose their workers


class Completed(Asked):
    """A job is done."""

    epoch: Epoch
    result: Raw = field(default_factory=null)


class Failed(Asked):
    """This try failed."""

    epoch: Epoch
    error: Text
    traceback: Text | None = None
    delay: Seconds | None = None  # before the next try, instead of its backoff


class Released(Asked):
    """A job is given back, uncounted."""

    epoch: Epoch
    delay: Seconds = 0
    priority: Priority | None = None


class Buried(Asked):
    """A job is put aside as failed."""

    epoch: Epoch
    priority: Priority | None = None
    error: Text | None = None  # why; then this try counts as failed


class Touched(Asked):
    """A lease is to be extended."""

    epoch: Epoch


class Pause(Asked):
    """How long a topic is paused; until it is resumed, unless told."""

    duration: Seconds | None = None


class Kick(Asked):
    """How many jobs are kicked."""

    limit: Annotated[int, _bounds(minimum=1, maximum=2**31 - 1)] = 1


class NewSchedule(Asked):
    """A rule that enqueues again and again: cron, or every so many seconds."""

    topic: Topic
    payload: Raw = field(default_factory=null)
    cron: Text | None = None
    every: Annotated[float, _bounds(minimum=0.001, maximum=MOST_SECONDS)] | None = None
    tz: Text | None = None
    catch_up: Literal["skip", "latest", "all"] = "latest"
    priority: Priority | None = None
    max_retries: Count | None = None
    timeout: Seconds | None = None


# ---------------------------------------------------------------- answers


class JobShown(Struct, rename="camel"):
    """A job, as it was when it was read."""

    id: UUID
    seq: int
    topic: str
    status: Status
    state: State
    priority: int
    key: str | None
    payload: Raw
    encoding: Encoding
    headers: dict[str, str]
    ttr: float
    timeout: float
    retention: float
    max_retries: int
    max_crashes: int
    created_at: datetime
    run_at: datetime
    expires_at: datetime | None
    epoch: int
    retries: int
    crashes: int
    timeouts: int
    releases: int
    buries: int
    kicks: int
    reserved_at: datetime | None
    until: datetime | None
    cancel_requested: bool
    finished_at: datetime | None
    duration_ms: float | None
    result: Raw
    last_error: str | None
    progress: float | None
    progress_message: str | None


class Items(Told, Generic[T]):
    """Several of a kind."""

    items: list[T]


class JobPage(Told):
    """A page of jobs, newest first."""

    items: list[JobShown]
    next: str | None  # to be given as `before`, for those that follow


class LeaseShown(Told):
    """The right to run a job; every later word about it says its epoch."""

    job: JobShown
    epoch: int
    until: datetime | None


class Leases(Told):
    """What was reserved; none, if nothing became ready in time."""

    leases: list[LeaseShown]


class TouchedLease(Told):
    """A lease as it is now."""

    epoch: int
    until: datetime | None
    cancel_requested: bool  # somebody wants the job to stop


class StatsShown(Told):
    """Every job in numbers."""

    pending: int
    processing: int
    completed: int
    failed: int
    cancelled: int
    ready: int
    delayed: int
    blocked: int
    reserved: int
    buried: int
    topics: int
    success_rate: float | None
    avg_duration_ms: float | None = field(name="avgExecutionTime")


class MinuteShown(Told):
    """One minute of outcomes."""

    at: str
    completed: int
    failed: int
    avg_duration_ms: float | None = field(name="avgExecutionTime")


class TopicShown(Told):
    """One topic in numbers."""

    topic: str
    ready: int
    delayed: int
    blocked: int
    reserved: int
    buried: int
    oldest_at: datetime | None
    paused: bool
    completed: int
    failed: int
    avg_duration_ms: float | None = field(name="avgExecutionTime")


class FailureShown(Told):
    """One failed try."""

    epoch: int
    kind: str
    error: str
    traceback: str | None
    failed_at: datetime


class LineShown(Told):
    """A line that a running job has written."""

    epoch: int
    text: str
    at: datetime


class EventShown(Told):
    """What a running job has published."""

    cursor: int
    epoch: int
    payload: Any
    at: datetime


class RunShown(Told):
    """One worker's run of a job that chooses its workers."""

    worker: str
    state: str
    job: int
    started_at: datetime
    ended_at: datetime | None


class ScheduleShown(Told):
    """A rule that enqueues again and again."""

    name: str
    topic: str
    cron: str | None
    tz: str | None
    every: float | None
    catch_up: str
    payload: Raw
    encoding: Encoding
    paused: bool
    next_at: datetime | None
    last_at: datetime | None
    error: str | None


class WorkerShown(Told):
    """A worker that lives, as its session says."""

    session: str  # a number that JavaScript could not hold
    worker: str
    topics: list[str]
    started_at: datetime
    beat_at: datetime
    silent: float
    leases: int


class Kicked(Told):
    """How many jobs are ready now."""

    kicked: int


class Purged(Told):
    """How many jobs are gone."""

    purged: int


class Complaint(Told):
    """Why a request was refused."""

    code: str
    message: str
    details: dict[str, Any]


def job_shown(job: Job) -> JobShown:
    """Return a job as JSON shows it; of one that this version cannot read, what is known."""
    options = NO_OPTIONS if isinstance(job, UnreadableJob) else job.options
    duration = job.duration
    # By position, which is quicker: the order is that of the class, as a test makes sure.
    return JobShown(
        job.id,
        job.seq,
        job.topic,
        job.status,
        job.state,
        job.priority,
        job.key,
        stored(job.body, job.encoding),
        "base64" if job.encoding == "base64" else "json",
        dict(options.headers),
        job.ttr.total_seconds(),
        options.timeout,
        options.retention,
        options.max_retries,
        options.max_crashes,
        job.created_at,
        job.run_at,
        None if options is NO_OPTIONS else job.expires_at,
        job.epoch,
        job.retries,
        job.crashes,
        job.timeouts,
        job.releases,
        job.buries,
        job.kicks,
        job.reserved_at,
        job.until,
        job.cancel_requested,
        job.finished_at,
        None if duration is None else round(duration.total_seconds() * 1e3, 3),
        NULL if job.result_body is None else Raw(job.result_body.encode()),
        job.last_error,
        job.progress,
        job.progress_message,
    )


def outlined(job: Job) -> JobShown:
    """Return a job without what it holds."""
    shown = job_shown(job)
    shown.payload = shown.result = NULL
    shown.encoding, shown.headers = "json", {}
    shown.last_error = shown.progress_message = None
    return shown


def lease_shown(lease: Lease) -> LeaseShown:
    """Return a lease as JSON shows it."""
    return LeaseShown(job=job_shown(lease.job), epoch=lease.epoch, until=lease.until)


def shown(kind: type[T], thing: object) -> T:
    """Return what a thing says under the names of an answer."""
    return msgspec.convert(thing, kind, from_attributes=True)


def all_shown(kind: type[T], things: Iterable[object]) -> Items[T]:
    """Return several things under the names of an answer."""
    return Items(items=[shown(kind, thing) for thing in things])


def schedule_shown(schedule: Schedule) -> ScheduleShown:
    """Return a schedule as JSON shows it."""
    return ScheduleShown(
        name=schedule.name,
        topic=schedule.topic,
        cron=schedule.cron,
        tz=schedule.tz,
        every=_seconds(schedule.every),
        catch_up=schedule.catch_up,
        payload=stored(schedule.body, schedule.encoding),
        encoding="base64" if schedule.encoding == "base64" else "json",
        paused=schedule.paused,
        next_at=schedule.next_at,
        last_at=schedule.last_at,
        error=schedule.error,
    )


def worker_shown(session: Session) -> WorkerShown:
    """Return a worker as JSON shows it."""
    return WorkerShown(
        session=str(session.session),
        worker=session.worker,
        topics=list(session.topics),
        started_at=session.started_at,
        beat_at=session.beat_at,
        silent=session.silent.total_seconds(),
        leases=session.leases,
    )


def stored(body: str, encoding: str) -> Raw:
    """Return a stored body as JSON: itself, or as text the base64 that it is."""
    return Raw(f'"{body}"'.encode() if encoding == "base64" else body.encode())


def raw_bytes(payload: Raw) -> bytes:
    """Return the bytes that base64 in JSON stands for."""
    try:
        text = bytes(payload).decode().strip()
        if text[:1] != '"':
            raise ValueError  # noqa: TRY301 - said below, as for what else is no base64
        return base64.b64decode(text[1:-1], validate=True)
    except (ValueError, binascii.Error):
        msg = "with encoding base64 the payload is text in standard base64, with its padding"
        raise InvalidPayload(msg) from None


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()
