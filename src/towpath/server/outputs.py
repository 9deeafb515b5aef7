"""What an answer says. Names are in camel case."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

import msgspec
from msgspec import Raw, Struct, field

from towpath.app.sessions import is_live
from towpath.model.job import SHOWN, FailureKind, Job, Lease, Options, UnreadableJob
from towpath.model.schedule import Schedule
from towpath.model.sessions import RemoteWorker, Session
from towpath.model.states import State, Status
from towpath.server.inputs import NULL, Encoding

NO_OPTIONS: Final = Options()  # where those of a job cannot be read

T = TypeVar("T")


class ResponseBody(Struct, rename="camel", kw_only=True):
    """What an answer says."""


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


class Items(ResponseBody, Generic[T]):
    """Several of a kind."""

    items: list[T]


class JobPage(ResponseBody):
    """A page of jobs, newest first."""

    items: list[JobShown]
    next: str | None  # to be given as `before`, for those that follow


class LeaseShown(ResponseBody):
    """The right to run a job; every later word about it says its epoch."""

    job: JobShown
    epoch: int
    until: datetime | None


class Leases(ResponseBody):
    """What was reserved; none, if nothing became ready in time."""

    leases: list[LeaseShown]


class TouchedLease(ResponseBody):
    """A lease as it is now."""

    epoch: int
    until: datetime | None
    cancel_requested: bool  # somebody wants the job to stop


class StatsShown(ResponseBody):
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


class MinuteShown(ResponseBody):
    """One minute of outcomes."""

    at: str
    completed: int
    failed: int
    avg_duration_ms: float | None = field(name="avgExecutionTime")


class TopicShown(ResponseBody):
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


class FailureShown(ResponseBody):
    """One failed try."""

    epoch: int
    kind: FailureKind
    error: str
    traceback: str | None
    failed_at: datetime


class LineShown(ResponseBody):
    """A line that a running job has written."""

    epoch: int
    text: str
    at: datetime


class EventShown(ResponseBody):
    """What a running job has published."""

    cursor: int
    epoch: int
    payload: Any
    at: datetime


class RunShown(ResponseBody):
    """One worker's run of a job that chooses its workers."""

    worker: str
    state: str
    job: int
    started_at: datetime
    ended_at: datetime | None


class ScheduleShown(ResponseBody):
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


class WorkerShown(ResponseBody):
    """A worker, as its session says; without one, as its requests and leases say."""

    session: str | None  # a number that JavaScript could not hold; null: it reserves without one
    worker: str
    topics: list[str]
    started_at: datetime
    beat_at: datetime  # its last sign of life
    silent: float
    live: bool
    leases: int


class Kicked(ResponseBody):
    """How many jobs are ready now."""

    kicked: int


class Purged(ResponseBody):
    """How many jobs are gone."""

    purged: int


class Complaint(ResponseBody):
    """Why a request was refused."""

    code: str
    message: str
    details: dict[str, Any]


def stored(body: str, encoding: str) -> Raw:
    """Return a stored body as JSON: itself, or as the text that it is."""
    return Raw(body.encode() if encoding_shown(encoding) == "json" else msgspec.json.encode(body))


def encoding_shown(encoding: str) -> Encoding:
    """Return how a body is encoded; of a job that this version cannot read, nothing is shown."""
    return "text" if encoding == "text" else "base64" if encoding == "base64" else "json"


def _milliseconds(duration: timedelta | None) -> float | None:
    return None if duration is None else round(duration.total_seconds() * 1e3, 3)


def _raw(body: str | None) -> Raw:
    return NULL if body is None else Raw(body.encode())


_CONVERTED: Final[dict[str, Callable[[Any], Any]]] = {
    "encoding": encoding_shown,
    "headers": dict,
    "ttr": timedelta.total_seconds,
    "duration_ms": _milliseconds,
    "result": _raw,
}
# By position, which is twice as quick as by name.
_attributes: Final = attrgetter(*(SHOWN[name] for name in JobShown.__struct_fields__))
_conversions: Final = [
    (JobShown.__struct_fields__.index(name), convert) for name, convert in _CONVERTED.items()
]
_PAYLOAD: Final = JobShown.__struct_fields__.index("payload")


def job_shown(job: Job) -> JobShown:
    """Return a job as JSON shows it; of one that this version cannot read, what is known."""
    values = list(_attributes(_readable(job)))
    for place, convert in _conversions:
        values[place] = convert(values[place])
    values[_PAYLOAD] = stored(job.body, job.encoding)
    return JobShown(*values)


def _readable(job: Job) -> Job:
    if not isinstance(job, UnreadableJob):
        return job
    known: dict[str, Any] = {
        name: getattr(job, name) for name in Job.__struct_fields__ if name != "options"
    }
    return Job(**known, options=NO_OPTIONS)


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
        encoding=encoding_shown(schedule.encoding),
        paused=schedule.paused,
        next_at=schedule.next_at,
        last_at=schedule.last_at,
        error=schedule.error,
    )


def worker_shown(worker: Session | RemoteWorker, dead_after: float) -> WorkerShown:
    """Return a worker as JSON shows it."""
    return WorkerShown(
        session=None if worker.session is None else str(worker.session),
        worker=worker.worker,
        topics=list(worker.topics),
        started_at=worker.started_at,
        beat_at=worker.beat_at,
        silent=worker.silent.total_seconds(),
        live=is_live(worker, dead_after),
        leases=worker.leases,
    )


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()
