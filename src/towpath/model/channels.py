"""Channels: their names, and what a list tells of one."""

import re
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from towpath.errors import InvalidChannel

SYSTEM: Final = "system"
JOB: Final = "job:"  # and the id of a job: what its runs say
CLOSED: Final = "closed"  # how a channel has ended that was closed by a caller

_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
_RESERVED: Final = "__ds"  # the subscriptions of the Durable Streams protocol


class Channel(Struct, frozen=True, kw_only=True):
    """A named log of events, as it was when it was read."""

    name: str  # chosen by the publisher
    oldest: str  # a reader with an older cursor than this one is reset
    head: str  # the cursor of the newest event
    events: int  # that are kept
    size: int  # bytes of all payloads and headers that are kept
    created_at: datetime  # when its first event was published
    ended: str | None  # how it was closed; None while it is open


def stream_of(job: UUID) -> str:
    """Return the name of the channel with what the runs of a job say."""
    return f"{JOB}{job}"


def job_of(channel: str) -> UUID | None:
    """Return the job whose stream has this name, if it is one."""
    if not channel.startswith(JOB):
        return None
    try:
        job = UUID(channel.removeprefix(JOB))
    except ValueError:
        return None
    return job if stream_of(job) == channel else None


def checked_channel(name: Any) -> str:
    """Return the name of a channel; raise InvalidChannel if it cannot be one."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name == _RESERVED:
        msg = (
            f"{name!r} is not a valid channel; use 1 to 200 letters, digits, "
            "underscores, hyphens, dots and colons"
        )
        raise InvalidChannel(msg)
    return name


def checked_own(name: Any) -> str:
    """Return the name of a channel that a user may publish to; raise InvalidChannel otherwise."""
    if checked_channel(name) == SYSTEM or name.startswith(JOB):
        msg = f"channel {name!r} belongs to Towpath; publish to another one"
        raise InvalidChannel(msg)
    return str(name)
