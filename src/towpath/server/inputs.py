"""What a request may say.

Names are in camel case; unknown fields are refused. Bounds that the app checks itself, with an
error of its own, stand here only for the OpenAPI document.
"""

import base64
import binascii
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Raw, Struct, field

from towpath.errors import InvalidPayload
from towpath.model.limits import Limit

MOST_AT_ONCE: Final = 1_000  # jobs in one request
MOST_SECONDS: Final = 10**9
MOST_PRIORITY: Final = 2**32 - 1
LONGEST_POLL: Final = 60
MOST_TOPICS: Final = 100  # of one reservation
MOST_SAID: Final = 1_000  # lines, and events, in one request
NULL: Final = Raw(b"null")


def null() -> Raw:
    """Return what stands for nothing."""
    return NULL


def _bounds(**schema: Any) -> Meta:
    """Say what the app will check."""
    return Meta(extra_json_schema=schema)


Text = Annotated[str, _bounds(pattern="^[^\\x00]*$")]
Topic = Annotated[str, _bounds(pattern="^[A-Za-z0-9_-]{1,200}$")]
Key = Annotated[str, _bounds(minLength=1, maxLength=255, pattern="^[^\\x00]*$")]
WorkerName = Key  # the same bounds
Priority = Annotated[int, _bounds(minimum=0, maximum=MOST_PRIORITY)]
Count = Annotated[int, _bounds(minimum=0, maximum=2**31 - 1)]
Seconds = Annotated[float, _bounds(minimum=0, maximum=MOST_SECONDS)]
Waits = Annotated[list[Seconds], _bounds(minItems=1)]
Instant = Annotated[datetime, Meta(tz=True)]
Epoch = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Unique = Literal["skip", "replace", "update", "debounce", "clear"]
Encoding = Literal["json", "text", "base64"]


class Input(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """What a request may say."""


class NewLimit(Input):
    """With which other jobs a job shares how many run at once, or how often one starts."""

    key: Key
    concurrency: Annotated[int, _bounds(minimum=1, maximum=2**31 - 1)] | None = None
    rate: Annotated[str, _bounds(pattern="^[1-9][0-9]{0,5}/(s|m|h|d)$")] | None = None
    burst: Annotated[int, _bounds(minimum=1, maximum=1_000)] = 1


class JobInput(Input):
    """A job to be stored. Null is as good as left out."""

    topic: Topic
    payload: Raw = field(default_factory=null)
    encoding: Encoding = "json"  # text, base64: the payload is text that stands for raw bytes
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
    only_workers: Annotated[list[WorkerName], _bounds(minItems=1)] | None = None
    after: list[UUID] | None = None  # waits until these have completed
    limit: NewLimit | None = None
    headers: dict[Text, Text] | None = None

    def data(self) -> Any:
        """Return what is to be stored as the payload."""
        return self.payload if self.encoding == "json" else raw_bytes(self.payload, self.encoding)

    def arguments(self) -> Raw:
        """Return what a task will take for its arguments."""
        return self.payload if self.encoding == "json" else Raw(self.data())

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
    for name in JobInput.__struct_fields__
    if name not in {"topic", "payload", "encoding", "limit"}
)


class NewJobs(Input):
    """Jobs to be stored: all of them, or none."""

    jobs: Annotated[list[JobInput], Meta(min_length=1, max_length=MOST_AT_ONCE)]


class JobChangeInput(Input):
    """What is to change while a job waits: its priority, its time, or both."""

    priority: Priority | None = None
    delay: Seconds | None = None  # from now; 0: at once
    run_at: Instant | None = None  # instead of a delay


class Wanted(Input):
    """Which jobs a worker wants, and how long it waits for one."""

    topics: Annotated[list[Topic], _bounds(minItems=1), Meta(max_length=MOST_TOPICS)]
    limit: Annotated[int, Meta(ge=1, le=MOST_AT_ONCE)] = 1
    timeout: Annotated[float, Meta(ge=0, le=LONGEST_POLL)] = 0
    token: Annotated[int, Meta(ge=1, le=2**53)] | None = None  # repeated: the same leases again
    worker: WorkerName | None = None  # its name, for the list and for jobs that choose theirs


class Completed(Input):
    """A job is done."""

    epoch: Epoch
    result: Raw = field(default_factory=null)


class Failed(Input):
    """This try failed."""

    epoch: Epoch
    error: Text
    traceback: Text | None = None
    delay: Seconds | None = None  # before the next try, instead of its backoff


class Released(Input):
    """A job is given back, uncounted."""

    epoch: Epoch
    delay: Seconds = 0
    priority: Priority | None = None


class Buried(Input):
    """A job is put aside as failed."""

    epoch: Epoch
    priority: Priority | None = None
    error: Text | None = None  # why; then this try counts as failed


class Touched(Input):
    """A lease is to be extended."""

    epoch: Epoch


class JobOutputInput(Input):
    """What a run says of itself: how far it is, lines and events."""

    epoch: Epoch
    said: Count  # lines and events of this run before these; the same again is kept once
    progress: Annotated[float, _bounds(minimum=0, maximum=1)] | None = None
    message: str | None = None  # about the progress
    lines: Annotated[list[str], Meta(max_length=MOST_SAID)] = []
    events: Annotated[list[Any], Meta(max_length=MOST_SAID)] = []


class Pause(Input):
    """How long a topic is paused; until it is resumed, unless told."""

    duration: Seconds | None = None


class Kick(Input):
    """How many jobs are kicked."""

    limit: Annotated[int, _bounds(minimum=1, maximum=2**31 - 1)] = 1


class ScheduleInput(Input):
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


def raw_bytes(payload: Raw, encoding: Encoding) -> bytes:
    """Return the bytes that text in JSON stands for."""
    try:
        text = msgspec.json.decode(payload, type=str)
        return text.encode() if encoding == "text" else base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        kind = "text" if encoding == "text" else "text in standard base64, with its padding"
        msg = f"with encoding {encoding} the payload is {kind}"
        raise InvalidPayload(msg) from None
