"""Pages: lists of jobs in parts, and what a list shows of a job."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Generic, TypeVar
from uuid import UUID

from msgspec import Struct

from towpath.model.payload import HIDDEN, Encoding, redacted
from towpath.model.states import STATUS, State, Status

T = TypeVar("T")

MOST_PREVIEW: Final = 200  # characters
MOST_ERROR: Final = 300  # characters of a last error
MOST_PREVIEWED: Final = 2**16  # bytes of a payload that has a preview


class Order(StrEnum):
    """In which order a list shows jobs."""

    NEWEST = "newest"  # by number, the last first
    OLDEST = "oldest"  # by number
    NEXT = "next"  # ready ones as they are reserved, delayed ones by their time, buried as buried


class JobBrief(Struct, frozen=True, kw_only=True):
    """What a list shows of a job: no payload, but a preview with secrets hidden."""

    id: UUID
    seq: int
    topic: str
    state: State
    priority: int
    key: str | None
    created_at: datetime
    run_at: datetime
    finished_at: datetime | None
    duration: timedelta | None
    epoch: int
    retries: int
    max_retries: int
    crashes: int
    cancel_requested: bool
    progress: float | None
    progress_message: str | None
    session: int | None  # of its lease
    worker: str | None  # that has its lease
    last_error: str | None  # its beginning
    preview: str | None  # the beginning of its payload; None if the payload is long
    size: int  # bytes of its payload as stored

    @property
    def status(self) -> Status:
        """Its status, which is coarser than its state."""
        return STATUS[self.state]


class Total(Struct, frozen=True):
    """How many there are; if it is not exact, there are at least so many."""

    count: int
    exact: bool


class Listed(Struct, Generic[T], frozen=True, kw_only=True):
    """A page of a list of jobs, and where the list goes on."""

    items: list[T]
    next: int | None = None  # the number behind which the next page begins; None: there is none
    prev: int | None = None  # the number before which the page before ends
    looked: int = 0  # at so many jobs
    looked_to: datetime | None = None  # the age of the last of these, if more may be behind it
    total: Total | None = None


def preview_of(body: str | None, encoding: str, names: str) -> str | None:
    """Return the beginning of a payload, without the values of the fields that end with `names`."""
    if body is None:
        return None
    if encoding == Encoding.BASE64:
        return shortened(body, MOST_PREVIEW)
    known = encoding in {Encoding.JSON, Encoding.TEXT}
    text = redacted(body, names, strict=encoding == Encoding.JSON) if known else HIDDEN
    return shortened(text, MOST_PREVIEW)


def shortened(text: str, most: int) -> str:
    """Return a text, or its beginning."""
    return text if len(text) <= most else text[: most - 1] + "…"
