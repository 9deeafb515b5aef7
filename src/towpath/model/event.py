"""Events: entries of a channel."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from towpath.errors import Invalid
from towpath.model import payload

TEXT: Final = "text"  # the type of a piece of text that a job streams
TRY: Final = "towpath.try"  # says that another try of a job begins to speak
OWN: Final = "towpath."  # begins the types of our own events
_TYPE: Final = re.compile(r"[^\x00-\x20\x7f*?\[\]\ud800-\udfff]{1,200}")
_PATTERN: Final = re.compile(r"[^\x00-\x20\x7f?\[\]\ud800-\udfff]{1,200}")


class NewEvent(Struct, frozen=True):
    """An event to publish."""

    payload: Any = None  # JSON, or bytes
    type: str | None = None  # such as order.paid; subscribers may choose by it
    key: str | None = None  # an event with this key that the channel still has is not stored again
    headers: Mapping[str, str] = {}  # metadata beside the payload


class Event(Struct, frozen=True, kw_only=True):
    """One entry of a channel."""

    id: UUID  # made by the publisher
    channel: str  # the name of its channel
    cursor: str | None  # None: published in the caller's transaction, and numbered after its commit
    at: datetime  # when it was published
    type: str | None  # such as order.paid
    key: str | None  # unique in its channel while it is kept
    headers: Mapping[str, str]  # metadata beside the payload
    body: str  # the payload as stored
    encoding: str  # of the body: json, or text and base64 for bytes

    @property
    def payload(self) -> Any:
        """The data that it was published with."""
        return payload.decode(self.body, self.encoding)


class EventPage(Struct, frozen=True, kw_only=True):
    """Some events of a channel in a row, and where they stand in it."""

    events: Sequence[Event]  # oldest first
    after: str  # the cursor that it begins behind
    cursor: str  # behind the last event of the page; read on from here
    oldest: str  # a reader with an older cursor than this one is reset
    head: str  # the cursor of the newest event
    ended: str | None  # how the channel was closed, if this page reaches its end

    @property
    def is_current(self) -> bool:
        """Whether there was no event behind the page."""
        return self.cursor >= self.head


class StreamEnd(Struct, frozen=True):
    """The end of what the runs of a job say."""

    ended: str  # completed, failed, cancelled, expired or deleted
    cursor: str  # behind the last event


def event_type(type: Any) -> str | None:
    """Return the type of an event; raise Invalid if it cannot be one."""
    if type is None or (isinstance(type, str) and _TYPE.fullmatch(type)):
        return type
    msg = f"{type!r} is not a valid type; use 1 to 200 characters without spaces, *, ?, [ and ]"
    raise Invalid(msg)


class TypeFilter:
    """Selects events by their types; `order.*` stands for all that begin with `order.`."""

    def __init__(self, patterns: Sequence[str]) -> None:
        if isinstance(patterns, str) or not isinstance(patterns, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
            msg = f"types must be a list such as ['order.*'], not {patterns!r}"
            raise Invalid(msg)
        for pattern in patterns:
            if not isinstance(pattern, str) or not _PATTERN.fullmatch(pattern):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
                msg = f"{pattern!r} is not a valid type; only * stands for other characters"
                raise Invalid(msg)
        # No regular expression: to compile one of many stars takes half a second.
        self._exact = frozenset(patterns)
        self._prefixes = tuple(each[:-1] for each in self._exact if each.find("*") == len(each) - 1)
        self._parts = [each.split("*") for each in self._exact if "*" in each[:-1]]

    def __call__(self, type: str | None) -> bool:
        """Say whether events of this type are wanted; those without a type match only `*`."""
        text = type or ""
        return (
            text in self._exact
            or text.startswith(self._prefixes)
            or any(_fits(parts, text) for parts in self._parts)
        )


def _fits(parts: Sequence[str], text: str) -> bool:
    """Say whether a text has these parts in a row, with any other text between them."""
    first, *middle, last = parts
    at, end = len(first), len(text) - len(last)
    if at > end or not (text.startswith(first) and text.endswith(last)):
        return False
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
