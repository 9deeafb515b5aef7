"""Bulk acts in the bodies of answers."""

from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from towpath.model.bulk import Bulk, BulkState, BulkVerb
from towpath.model.job import Job
from towpath.model.states import State, Status
from towpath.server.outputs import ResponseBody, shown

MOST_ERROR: Final = 300  # characters


class BulkSample(ResponseBody):
    """A job that a bulk act would cover."""

    id: UUID
    seq: int
    topic: str
    status: Status
    state: State
    key: str | None
    created_at: datetime
    last_error: str | None  # its beginning


class BulkPreviewShown(ResponseBody):
    """What a bulk act would do if it began now."""

    count: int
    exact: bool  # if not, there are at least so many
    sample: list[BulkSample]  # the first ten
    up_to: int  # the number of the newest job; give it to begin
    refused: dict[str, int]  # how many would be refused, by code, as far as that is known


class BulkRefused(Struct):
    """A job that a bulk act left as it was."""

    id: UUID
    code: str


class BulkFilterShown(Struct, omit_defaults=True):
    """The ids or the filter of a bulk act."""

    ids: list[UUID] | None = None
    topic: str | None = None
    state: State | None = None
    status: Status | None = None
    key: str | None = None
    text: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class BulkShown(ResponseBody):
    """A bulk act, and how far it is."""

    id: UUID
    verb: BulkVerb
    filter: BulkFilterShown
    up_to: int
    by: str
    created_at: datetime
    begins_at: datetime
    ended_at: datetime | None
    state: BulkState
    count: int  # how many it would cover when it was made
    exact: bool  # if not, at least so many
    looked: int  # so many jobs that fit were found so far
    done: int
    refused: list[BulkRefused]  # the first hundred
    refused_count: int


def bulk_shown(bulk: Bulk) -> BulkShown:
    """Return the JSON form of a bulk act."""
    return BulkShown(
        id=bulk.id,
        verb=bulk.verb,
        filter=shown(BulkFilterShown, bulk.choice),
        up_to=bulk.up_to,
        by=bulk.by,
        created_at=bulk.created_at,
        begins_at=bulk.begins_at,
        ended_at=bulk.ended_at,
        state=bulk.state,
        count=bulk.count,
        exact=bulk.exact,
        looked=bulk.looked,
        done=bulk.done,
        refused=[BulkRefused(each.id, each.code) for each in bulk.refusals],
        refused_count=bulk.refused,
    )


def sample_shown(job: Job) -> BulkSample:
    """Return the JSON form of a job that a bulk act would cover."""
    return BulkSample(
        id=job.id,
        seq=job.seq,
        topic=job.topic,
        status=job.status,
        state=job.state,
        key=job.key,
        created_at=job.created_at,
        last_error=job.last_error and job.last_error[:MOST_ERROR],
    )
