"""The bodies of requests.

Names are in camel case; unknown fields are refused. Bounds that the app checks with an error of
its own are repeated here only for the OpenAPI document.
"""

import base64
import binascii
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Raw, Struct, field

from towpath.errors import InvalidPayload
from towpath.model.backoff import MOST_WAITS, Backoff
from towpath.model.instants import LONGEST
from towpath.model.job import MOST_PRIORITY
from towpath.model.limits import Limit
from towpath.settings import MOST_LIMIT

MOST_AT_ONCE: Final = 1_000  # jobs in one request
MOST_SECONDS: Final = int(LONGEST.total_seconds())
LONGEST_POLL: Final = 60
MOST_TOPICS: Final = 100  # of one reservation
MOST_NOTES: Final = 1_000  # log lines, and as many events, in one request
NULL: Final = Raw(b"null")


def null() -> Raw:
    """Return the default of an omitted JSON value."""
    return NULL


def _bounds(**schema: Any) -> Meta:
    """Describe bounds that the app checks."""
    return Meta(extra_json_schema=schema)


Text = Annotated[str, _bounds(pattern="^[^\\x00]*$")]
Topic = Annotated[str, _bounds(pattern="^[A-Za-z0-9_-]{1,200}$")]
ChannelName = Annotated[str, _bounds(pattern="^(?!__ds$)[A-Za-z0-9_.:-]{1,200}$")]
OwnChannel = Annotated[str, _bounds(pattern="^(?!__ds$|system$|job:)[A-Za-z0-9_.:-]{1,200}$")]
ConsumerName = Annotated[str, _bounds(pattern="^[A-Za-z0-9_.:-]{1,200}$")]
OptionalConsumer = Annotated[str, _bounds(pattern="^[A-Za-z0-9_.:-]{0,200}$")]
Prefix = Annotated[str, _bounds(pattern="^(?!__ds$)[A-Za-z0-9_.:-]{0,200}$")]
CursorText = Annotated[str, _bounds(pattern="^(-1|[0-9]{16}_[0-9]{16})$")]
PlaceText = Annotated[str, _bounds(pattern="^(start|now|-1|[0-9]{16}_[0-9]{16})$")]
OptionalPlace = Annotated[str, _bounds(pattern="^(start|now|-1|[0-9]{16}_[0-9]{16})?$")]
EventType = Annotated[str, _bounds(pattern=r"^[^\x00-\x20\x7f*?\[\]]{1,200}$")]
TypePattern = Annotated[str, _bounds(pattern=r"^[^\x00-\x20\x7f?\[\]]{1,200}$")]
Types = Annotated[list[TypePattern], Meta(max_length=50)]  # each is compared with every event
Key = Annotated[str, _bounds(minLength=1, maxLength=255, pattern="^[^\\x00]*$")]
WorkerName = Key  # the same bounds
TaskName = Annotated[str, _bounds(pattern="^[A-Za-z0-9_.-]{1,200}$")]
Priority = Annotated[int, _bounds(minimum=0, maximum=MOST_PRIORITY)]
Count = Annotated[int, _bounds(minimum=0, maximum=2**31 - 1)]
Positive = Annotated[int, _bounds(minimum=1, maximum=2**31 - 1)]
Size = Annotated[int, _bounds(minimum=0, maximum=MOST_LIMIT)]
Seconds = Annotated[float, _bounds(minimum=0, maximum=MOST_SECONDS)]
Waits = Annotated[list[Seconds], _bounds(minItems=1, maxItems=MOST_WAITS)]
Rate = Annotated[str, _bounds(pattern="^[1-9][0-9]{0,8}/([1-9][0-9]{0,3})?(ms|s|m|h|d)$")]
Instant = Annotated[datetime, Meta(tz=True)]
Epoch = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Unique = Literal["skip", "replace", "update", "debounce", "clear"]
Encoding = Literal["json", "text", "base64"]


class Input(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The base of all request bodies."""


class NewLimit(Input):
    """A limit that all jobs with its key share: how many run at once, or how often one starts."""

    key: Key
    concurrency: Positive | None = None
    rate: Rate | None = None
    burst: Positive = 1

    def as_limit(self) -> Limit:
        """Return the limit to store."""
        return Limit(self.key, self.concurrency, self.rate, self.burst)


class JobInput(Input):
    """A job to store. A field that is null counts as omitted."""

    topic: Topic
    payload: Raw = field(default_factory=null)
    encoding: Encoding = "json"  # text, base64: the payload is a string that encodes raw bytes
    id: UUID | None = None  # a repeated enqueue with the same id stores one job
    priority: Priority | None = None  # 0 is the most urgent; default 50
    delay: Seconds | None = None  # the job starts no earlier than this time from now
    run_at: Instant | None = None  # instead of `delay`
    expires_after: Seconds | None = None  # a job that has not started by then is cancelled
    expires_at: Instant | None = None  # instead of `expires_after`
    ttr: Annotated[float, _bounds(minimum=0.000001, maximum=MOST_SECONDS)] | None = None
    task: TaskName | None = None  # the name of the task, if the topic has several
    key: Key | None = None  # at most one unfinished job of a topic has it
    unique: Unique | None = None  # what happens if another job has the key
    max_retries: Count | None = None
    max_crashes: Count | None = None
    backoff: Seconds | Waits | None = None  # the pause after every failure, or a list of pauses
    timeout: Seconds | None = None  # how long one run by a worker may last
    retention: Seconds | None = None  # how long a finished job is kept
    workers: Positive | None = None  # the number of distinct workers that must succeed
    only_workers: Annotated[list[WorkerName], _bounds(minItems=1)] | None = None
    after: list[UUID] | None = None  # jobs that must complete first
    limit: NewLimit | None = None
    headers: dict[Text, Text] | None = None

    def data(self) -> Any:
        """Return the payload to store."""
        return self.payload if self.encoding == "json" else raw_bytes(self.payload, self.encoding)

    def arguments(self) -> Raw:
        """Return the arguments for a task."""
        return self.payload if self.encoding == "json" else Raw(self.data())

    def options(self) -> dict[str, Any]:
        """Return the other fields as options of `enqueue`."""
        given: dict[str, Any] = {}
        for name in _OPTIONS:
            value = getattr(self, name)
            if value is not None:
                given[name] = value
        if self.limit is not None:
            given["limit"] = self.limit.as_limit()
        return given


_OPTIONS: Final = tuple(
    name
    for name in JobInput.__struct_fields__
    if name not in {"topic", "payload", "encoding", "limit"}
)


class NewJobs(Input):
    """Jobs to store: all of them, or none."""

    jobs: Annotated[list[JobInput], Meta(min_length=1, max_length=MOST_AT_ONCE)]


class JobChangeInput(Input):
    """Changes of a pending job: its priority, its time, or both."""

    priority: Priority | None = None
    delay: Seconds | None = None  # from now; 0: at once
    run_at: Instant | None = None  # instead of `delay`


class Wanted(Input):
    """The jobs that a worker wants, and how long it waits for one."""

    topics: Annotated[list[Topic], _bounds(minItems=1), Meta(max_length=MOST_TOPICS)]
    limit: Annotated[int, Meta(ge=1, le=MOST_AT_ONCE)] = 1
    timeout: Annotated[float, Meta(ge=0, le=LONGEST_POLL)] = 0
    token: Annotated[int, Meta(ge=1, le=2**53)] | None = None  # repeat it to get the same leases
    worker: WorkerName | None = None  # listed by this name, and chosen by jobs with `onlyWorkers`


class Completed(Input):
    """The end of a completed job."""

    epoch: Epoch
    result: Raw = field(default_factory=null)


class Failed(Input):
    """A failed run."""

    epoch: Epoch
    error: Text
    traceback: Text | None = None
    delay: Seconds | None = None  # before the next run, instead of the backoff


class Released(Input):
    """A job to give back; this does not count as a failure."""

    epoch: Epoch
    delay: Seconds = 0
    priority: Priority | None = None


class Buried(Input):
    """A job to bury, which counts as failed."""

    epoch: Epoch
    priority: Priority | None = None
    error: Text | None = None  # the reason; if given, this run is stored as a failure


class Touched(Input):
    """A lease to extend."""

    epoch: Epoch


class EventInput(Input):
    """An event to publish."""

    payload: Any = None
    type: EventType | None = None
    key: Key | None = None
    headers: dict[str, str] = field(default_factory=dict)


class StartAt(Input):
    """Where a reader begins: with the newest so many events, or with those since a time."""

    last: Positive | None = None
    since: Instant | None = None


class WordInput(Input):
    """An event of a job's stream."""

    payload: Any = None
    type: str | None = None  # `text` for a piece of text


class JobOutputInput(Input):
    """The progress of a run, its log lines, and the events of its job's stream."""

    epoch: Epoch
    said: Count  # events that this run sent before; those that are stored are not stored again
    progress: Annotated[float, _bounds(minimum=0, maximum=1)] | None = None
    message: str | None = None  # about the progress
    lines: Annotated[list[str], Meta(max_length=MOST_NOTES)] = []
    logged: Count | None = None  # lines that this run sent before; required with `lines`
    events: Annotated[list[WordInput], Meta(max_length=MOST_NOTES)] = []


class Pause(Input):
    """How long to pause a topic; without a duration, until it is resumed."""

    duration: Seconds | None = None
    create: bool = False  # pause the topic before its first job, too


class Kick(Input):
    """How many jobs to kick."""

    limit: Positive = 1


class BackoffInput(Input):
    """The pauses between tries, in seconds: by a rule, or as listed in `waits`."""

    first: Seconds = 60.0  # after the first failure
    factor: Annotated[float, _bounds(minimum=0, maximum=10**9)] = 4.0
    most: Seconds = 86_400.0
    step: Seconds = 0.0  # added each time
    jitter: Annotated[float, _bounds(minimum=0, maximum=1)] = 0.0
    waits: Annotated[list[Seconds], _bounds(maxItems=MOST_WAITS)] = []

    def backoff(self) -> Backoff:
        """Return the backoff to store."""
        return Backoff(
            self.first, self.factor, self.most, self.step, self.jitter, tuple(self.waits)
        ).checked()


class ScheduleOptions(Input):
    """How the jobs of a schedule are run. A schedule tells all of them; give them all to keep them.

    A field that is null counts as omitted.
    """

    priority: Priority | None = None
    ttr: Annotated[float, _bounds(minimum=0.000001, maximum=MOST_SECONDS)] | None = None
    key: Key | None = None
    task: TaskName | None = None
    max_retries: Count | None = None
    max_crashes: Count | None = None
    timeout: Seconds | None = None
    retention: Seconds | None = None
    expires_after: Seconds | None = None
    backoff: BackoffInput | None = None
    limit: NewLimit | None = None
    workers: Positive | None = None
    only_workers: Annotated[list[WorkerName], _bounds(minItems=1)] | None = None
    ping_interval: float | None = None  # seconds, above 0 and below `workerTimeout`
    worker_timeout: float | None = None  # seconds; both or neither
    max_unexpected_retries: Count | None = None
    unexpected_retry_delay: Seconds | None = None
    headers: dict[Text, Text] | None = None

    def options(self) -> dict[str, Any]:
        """Return the fields as options of `enqueue`."""
        given = {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not None
        }
        if self.limit is not None:
            given["limit"] = self.limit.as_limit()
        if self.backoff is not None:
            given["backoff"] = self.backoff.backoff()
        return given


class ScheduleInput(Input):
    """A rule that enqueues jobs repeatedly: by `cron`, or `every` so many seconds."""

    topic: Topic
    payload: Raw = field(default_factory=null)
    encoding: Encoding = "json"  # text, base64: the payload is a string that encodes raw bytes
    keep_payload: bool = False  # of the schedule of this name; `payload` is ignored
    cron: Text | None = None
    every: Annotated[float, _bounds(minimum=1, maximum=MOST_SECONDS)] | None = None
    tz: Text | None = None
    catch_up: Literal["skip", "latest", "all"] = "latest"
    priority: Priority | None = None
    max_retries: Count | None = None
    timeout: Seconds | None = None
    options: ScheduleOptions | None = None  # all others; those above win

    def data(self) -> Any:
        """Return the payload to store."""
        return self.payload if self.encoding == "json" else raw_bytes(self.payload, self.encoding)

    def job_options(self) -> dict[str, Any]:
        """Return the options of `enqueue`."""
        given = {} if self.options is None else self.options.options()
        for name in ("priority", "max_retries", "timeout"):
            if getattr(self, name) is not None:
                given[name] = getattr(self, name)
        return given


class PreviewInput(Input):
    """A rule whose next fires are asked for."""

    cron: Text | None = None
    every: Annotated[float, _bounds(minimum=1, maximum=MOST_SECONDS)] | None = None
    tz: Text | None = None
    since: Instant | None = field(default=None, name="from")  # default: now
    count: Annotated[int, Meta(ge=1, le=20)] = 5


def raw_bytes(payload: Raw, encoding: Encoding) -> bytes:
    """Return the bytes that a JSON string encodes."""
    try:
        text = msgspec.json.decode(payload, type=str)
        return text.encode() if encoding == "text" else base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        kind = "a string" if encoding == "text" else "a string of standard base64, with padding"
        msg = f"with encoding `{encoding}`, give the payload as {kind}"
        raise InvalidPayload(msg) from None
