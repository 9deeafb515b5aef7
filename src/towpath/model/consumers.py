"""Durable consumers: readers of a channel whose places are kept under a name."""

import re
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from towpath.errors import Invalid

OWN: Final = "towpath."  # begins the names of our own consumers
_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,200}")


class Attachment(Struct, frozen=True):
    """The right to read as a consumer, until another reader attaches under the same name."""

    cursor: str  # everything up to here is acked
    generation: int  # grows with each attach: the fencing token


class Owner(Struct, frozen=True):
    """A caller that may use its own consumers of a channel, and no others."""

    name: str  # unique among callers
    makes_channel: bool  # if there is none


class Consumer(Struct, frozen=True, kw_only=True):
    """A reader whose place is kept, as it was when it was read."""

    channel: str  # that it reads
    name: str  # chosen by the reader
    cursor: str  # everything up to here is acked
    lag: int  # events behind it
    generation: int  # grows with each attach
    seen_at: datetime  # of the last attach or ack, or a sign of life of its subscription
    is_expired: bool  # silent for longer than `consumer_ttl`: it holds no events back
    is_overtaken: bool  # some events behind its cursor are gone: it is reset when it reads
    owner: str | None  # the caller of the HTTP API that made it; None: only managers use it


def checked_consumer(name: Any, *, also_own: bool = False) -> str:
    """Return the name of a consumer; raise Invalid if it cannot be one, or is Towpath's own."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        msg = (
            f"{name!r} is not a valid consumer; use 1 to 200 letters, digits, "
            "underscores, hyphens, dots and colons"
        )
        raise Invalid(msg)
    if name.startswith(OWN) and not also_own:
        msg = f"{name!r} is not a valid consumer; names that begin with {OWN} belong to Towpath"
        raise Invalid(msg)
    return name
