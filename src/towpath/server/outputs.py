"""The bodies of answers. Names are in camel case."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Annotated, Any, Final, Generic, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta, Raw, Struct, field

from towpath.model.event import Event, EventPage
from towpath.model.job import SHOWN, FailureKind, Job, Lease, Options, UnreadableJob
from towpath.model.pages import JobBrief
from towpath.model.payload import HIDDEN, redacted
from towpath.model.states import State, Status
from towpath.server.inputs import NULL, Encoding

NO_OPTIONS: Final = Options()  # of a job that this version cannot read

T = TypeVar("T")


class ResponseBody(Struct, rename="camel", kw_only=True):
    """The base of all bodies of answers."""


class JobShown(Struct, rename="camel"):
    """A job."""

    id: UUID
    seq: int
    topic: str
    task: str | None  # the name of its task, unless that is the name of the topic
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
    """A list."""

    items: list[T]


class JobBriefShown(Struct, rename="camel"):
    """What a list shows of a job: no payload, but a preview with secrets hidden."""

    id: UUID
    seq: int
    topic: str
    status: Status
    state: State
    priority: int
    key: str | None
    created_at: datetime
    run_at: datetime
    finished_at: datetime | None
    duration_ms: float | None
    epoch: int
    retries: int
    max_retries: int
    crashes: int
    cancel_requested: bool
    progress: float | None
    progress_message: str | None
    session: str | None  # of its lease; a string, as JavaScript cannot hold the number
    worker: str | None  # that has its lease
    last_error: str | None  # its beginning
    preview: str | None  # the beginning of its payload; null if the payload is long
    size: int  # bytes of its payload as stored


class TotalShown(ResponseBody):
    """How many there are; if it is not exact, there are at least so many."""

    count: int
    exact: bool


NextPage = Annotated[
    str | None,
    Meta(
        description="Where the next page begins: pass it as `before`; with `order=oldest`, as "
        "`after`. While it is not null, more jobs may follow."
    ),
]
PrevPage = Annotated[
    str | None,
    Meta(
        description="Where the page before ends: pass it as `after`; with `order=oldest`, as "
        "`before`. Null on the first page."
    ),
]
LookedTo = Annotated[
    datetime | None,
    Meta(
        description="Set if the search has stopped before the page was full: jobs that were "
        "enqueued up to then were looked at. `next` goes on from there."
    ),
]


class JobPage(ResponseBody):
    """A page of jobs."""

    items: list[JobShown]
    next: NextPage = None
    prev: PrevPage = None
    looked_to: LookedTo = None
    total: TotalShown | None = None  # only with `count`, and if it can be known


class BriefPage(ResponseBody):
    """A page of jobs as a list for people shows them."""

    items: list[JobBriefShown]
    next: NextPage = None
    prev: PrevPage = None
    looked_to: LookedTo = None
    total: TotalShown | None = None  # only with `count`, and if it can be known


class LeaseShown(ResponseBody):
    """The right to run a job; later requests about it give its epoch."""

    job: JobShown
    epoch: int
    until: datetime | None


class Leases(ResponseBody):
    """The reserved jobs; empty if none became ready in time."""

    leases: list[LeaseShown]


class TouchedLease(ResponseBody):
    """A lease that was extended."""

    epoch: int
    until: datetime | None
    cancel_requested: bool  # the worker should stop


CompletedTotal = Annotated[
    int, Meta(description="Jobs that have completed since the tables were created.")
]
FailedNow = Annotated[
    int,
    Meta(description="Jobs whose status is failed now, as the list with `status=failed` shows."),
]
FailedTotal = Annotated[
    int,
    Meta(
        description="Jobs that have failed for good since the tables were created. "
        "A job that was requeued, kicked or deleted afterwards counts; one that was buried "
        "without an error does not."
    ),
]
SuccessRate = Annotated[float, Meta(description="completed / (completed + failedTotal)")]


class StatsShown(ResponseBody):
    """Counts of all jobs."""

    pending: int
    processing: int
    completed: CompletedTotal
    failed: FailedNow
    failed_total: FailedTotal
    cancelled: int
    ready: int
    delayed: int
    blocked: int
    reserved: int
    buried: int
    topics: int
    success_rate: SuccessRate | None
    avg_duration_ms: float | None = field(name="avgExecutionTime")
    at: datetime  # when they were counted
    exact: bool  # if not, there may be more of each state
    completed_now: TotalShown | None = None  # jobs that the list with `status=completed` holds


class FailureShown(ResponseBody):
    """A failed run: 1 is the first, and null says that nothing ran. The epoch is its lease's."""

    run: int | None
    epoch: int
    kind: FailureKind
    error: str
    traceback: str | None
    failed_at: datetime


class LineShown(ResponseBody):
    """A log line of a run; the lines of one run have the same epoch."""

    epoch: int
    text: str
    at: datetime


class SaidShown(ResponseBody):
    """The answer to the output of a run."""

    said: int  # events of this run that are stored
    cancel_requested: bool


class WordShown(ResponseBody):
    """An event of a job's stream."""

    id: UUID
    cursor: str
    type: str | None
    payload: Any
    at: datetime


class StreamShown(ResponseBody):
    """Some events of a job's stream, and whether there are more."""

    events: list[WordShown]
    cursor: str  # read on from here
    current: bool  # there was no event behind these
    ended: str | None  # how the stream ended, if these are the last events


class RunShown(ResponseBody):
    """One worker's run of a job that chooses its workers."""

    worker: str
    state: str
    job: int
    started_at: datetime
    ended_at: datetime | None


class Kicked(ResponseBody):
    """How many jobs became ready."""

    kicked: int


class Purged(ResponseBody):
    """How many jobs were deleted."""

    purged: int


class Complaint(ResponseBody):
    """Why a request was refused."""

    code: str
    message: str
    details: dict[str, Any]


def stored(body: str, encoding: str, redact: str = "") -> Raw:
    """Return a stored body as JSON: unchanged, or text and base64 as a string.

    The values of fields that `redact` names are hidden.
    """
    kind = encoding_shown(encoding)
    if redact and kind != "base64":
        body = redacted(body, redact, strict=kind == "json")
        kind = "text" if body == HIDDEN else kind  # the mark alone is not JSON
    return Raw(body.encode() if kind == "json" else msgspec.json.encode(body))


def headers_shown(headers: dict[str, str], redact: str = "") -> dict[str, str]:
    """Return the headers of a job, with the values hidden of those that `redact` names."""
    if not (redact and headers):
        return headers
    return _headers.decode(redacted(msgspec.json.encode(headers).decode(), redact))


def encoding_shown(encoding: str) -> Encoding:
    """Return the encoding of a body; json if this version does not know it."""
    return "text" if encoding == "text" else "base64" if encoding == "base64" else "json"


def milliseconds(duration: timedelta | None) -> float | None:
    """Return a duration as it is shown."""
    return None if duration is None else round(duration.total_seconds() * 1e3, 3)


def _raw(body: str | None) -> Raw:
    return NULL if body is None else Raw(body.encode())


_CONVERTED: Final[dict[str, Callable[[Any], Any]]] = {
    "encoding": encoding_shown,
    "headers": dict,
    "ttr": timedelta.total_seconds,
    "duration_ms": milliseconds,
    "result": _raw,
}
# By position, which is twice as quick as by name.
_attributes: Final = attrgetter(*(SHOWN[name] for name in JobShown.__struct_fields__))
_conversions: Final = [
    (JobShown.__struct_fields__.index(name), convert) for name, convert in _CONVERTED.items()
]
_PAYLOAD: Final = JobShown.__struct_fields__.index("payload")
_RESULT: Final = JobShown.__struct_fields__.index("result")
_HEADERS: Final = JobShown.__struct_fields__.index("headers")
_headers: Final = msgspec.json.Decoder(dict[str, str])


def job_shown(job: Job, redact: str = "") -> JobShown:
    """Return the JSON form of a job; an unreadable job has default options.

    The values of fields and headers that `redact` names are hidden.
    """
    values = list(_attributes(_readable(job)))
    for place, convert in _conversions:
        values[place] = convert(values[place])
    values[_PAYLOAD] = stored(job.body, job.encoding, redact)
    values[_HEADERS] = headers_shown(values[_HEADERS], redact)
    if redact and job.result_body is not None:
        values[_RESULT] = stored(job.result_body, "json", redact)
    return JobShown(*values)


def _readable(job: Job) -> Job:
    if not isinstance(job, UnreadableJob):
        return job
    known: dict[str, Any] = {
        name: getattr(job, name) for name in Job.__struct_fields__ if name != "options"
    }
    return Job(**known, options=NO_OPTIONS)


def brief_shown(brief: JobBrief) -> JobBriefShown:
    """Return the JSON form of what a list shows of a job."""
    return JobBriefShown(
        id=brief.id,
        seq=brief.seq,
        topic=brief.topic,
        status=brief.status,
        state=brief.state,
        priority=brief.priority,
        key=brief.key,
        created_at=brief.created_at,
        run_at=brief.run_at,
        finished_at=brief.finished_at,
        duration_ms=milliseconds(brief.duration),
        epoch=brief.epoch,
        retries=brief.retries,
        max_retries=brief.max_retries,
        crashes=brief.crashes,
        cancel_requested=brief.cancel_requested,
        progress=brief.progress,
        progress_message=brief.progress_message,
        session=None if brief.session is None else str(brief.session),
        worker=brief.worker,
        last_error=brief.last_error,
        preview=brief.preview,
        size=brief.size,
    )


def outlined(job: Job) -> JobShown:
    """Return the JSON form of a job without payload, headers, result and error."""
    shown = job_shown(job)
    shown.payload = shown.result = NULL
    shown.encoding, shown.headers = "json", {}
    shown.last_error = shown.progress_message = None
    return shown


def lease_shown(lease: Lease) -> LeaseShown:
    """Return the JSON form of a lease."""
    return LeaseShown(job=job_shown(lease.job), epoch=lease.epoch, until=lease.until)


def stream_shown(page: EventPage) -> StreamShown:
    """Return the JSON form of some events of a job's stream."""
    return StreamShown(
        events=[shown(WordShown, event) for event in page.events],
        cursor=page.cursor,
        current=page.is_current,
        ended=page.ended,
    )


def shown(kind: type[T], thing: object) -> T:
    """Convert an object to the body of an answer, by its attributes."""
    return msgspec.convert(thing, kind, from_attributes=True)


def all_shown(kind: type[T], things: Iterable[object]) -> Items[T]:
    """Convert objects to a list in the body of an answer."""
    return Items(items=[shown(kind, thing) for thing in things])


class ChannelEventShown(ResponseBody):
    """An event. Bytes are given as text if they are UTF-8, else as base64."""

    id: str
    cursor: str | None
    at: datetime
    type: str | None
    key: str | None
    headers: Mapping[str, str]
    encoding: Encoding
    payload: Any


class EventPageShown(ResponseBody):
    """Events in a row. Read on from `cursor`; nothing is between `after` and `cursor` but these."""

    events: list[ChannelEventShown]
    after: str
    cursor: str
    oldest: str
    head: str
    ended: str | None  # how the channel was closed, if this page reaches its end


def page_shown(page: EventPage) -> EventPageShown:
    """Return a page as JSON shows it."""
    return EventPageShown(
        events=[event_shown(event) for event in page.events],
        after=page.after,
        cursor=page.cursor,
        oldest=page.oldest,
        head=page.head,
        ended=page.ended,
    )


def event_shown(event: Event) -> ChannelEventShown:
    """Return an event as JSON shows it."""
    return ChannelEventShown(
        id=str(event.id),
        cursor=event.cursor,
        at=event.at,
        type=event.type,
        key=event.key,
        headers=event.headers,
        encoding=encoding_shown(event.encoding),
        payload=stored(event.body, event.encoding),
    )
