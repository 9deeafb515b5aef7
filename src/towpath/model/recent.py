"""What has ended lately: failures by their errors, and how long jobs took."""

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from towpath.model.pages import JobBrief


class FailureGroup(Struct, frozen=True, kw_only=True):
    """Jobs that failed alike."""

    error: str  # the first line of their last errors
    count: int
    topics: list[str]
    last_at: datetime  # when the last of them was buried
    sample: UUID  # the id of that one


class RecentFailures(Struct, frozen=True, kw_only=True):
    """The failed jobs of the last time, by their errors, the most frequent error first."""

    groups: list[FailureGroup]
    items: list[JobBrief]  # the newest of them
    looked_at: int  # so many of the newest failed jobs


class Took(Struct, frozen=True, kw_only=True):
    """How long a completed job took."""

    finished_at: datetime
    duration: timedelta | None
    waited: timedelta | None  # from when it was due to its only run; None if it ran more than once
