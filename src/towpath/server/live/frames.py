"""The frames of a WebSocket: JSON objects in text messages, each with one verb."""

from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from towpath.errors import Invalid
from towpath.model.event import EventPage
from towpath.server.channels import EventInput, event_shown
from towpath.server.errors import Refusal, refusal

_encoder: Final = msgspec.json.Encoder()


class FrameInput(Struct, forbid_unknown_fields=True, rename="camel"):
    """A part of what a client sends."""


class Hello(FrameInput):
    """The first frame of a client that has no cookie: its token or key."""

    token: str


class StartAt(FrameInput):
    """Where a subscription begins: with the newest so many events, or with those since a time."""

    last: int | None = None
    since: datetime | None = None


class Subscribe(FrameInput):
    """Follow a channel."""

    channel: str
    start: str | StartAt = msgspec.field(default="start", name="from")
    types: list[str] | None = None


class Unsubscribe(FrameInput):
    """Follow a channel no longer."""

    channel: str


class Publish(FrameInput):
    """Add events to a channel."""

    channel: str
    events: list[EventInput]


class ClientFrame(Struct, forbid_unknown_fields=True):
    """What a client sends: one of the verbs, and a number that comes back with the answer."""

    id: int | str | None = None
    hello: Hello | None = None
    subscribe: Subscribe | None = None
    unsubscribe: Unsubscribe | None = None
    publish: Publish | None = None
    beat: int | None = None

    @property
    def verb(self) -> Any:
        """What it asks for."""
        given = [
            each
            for each in (self.hello, self.subscribe, self.unsubscribe, self.publish, self.beat)
            if each is not None
        ]
        if len(given) != 1:
            verbs = ", ".join(name for name in self.__struct_fields__ if name != "id")
            msg = f"a frame has exactly one of {verbs}; this one has {len(given)}"
            raise Invalid(msg)
        return given[0]


_decoder: Final = msgspec.json.Decoder(ClientFrame)
_id_decoder: Final = msgspec.json.Decoder(dict[str, Any])


def read(text: str) -> ClientFrame:
    """Return the frame of a message; raise Invalid if it is none."""
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        msg = f"this frame cannot be read: {error}"
        raise Invalid(msg) from error


def id_of(text: str) -> int | str | None:
    """Return the id of a frame that is wrong otherwise, so that its sender gets an answer."""
    try:
        found = _id_decoder.decode(text).get("id")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return found if isinstance(found, int | str) else None


def written(**frame: Any) -> str:
    """Return a frame as text."""
    return _encoder.encode(frame).decode()


def ok(id: int | str | None, **told: Any) -> str:
    """Return the answer to a frame."""
    return written(id=id, ok=told)


def error(id: int | str | None, cause: Exception) -> str:
    """Return the answer to a frame that is refused."""
    refused: Refusal = refusal(cause)
    told = {"code": refused.code, "message": str(refused), "details": refused.details}
    return written(id=id, error=told)


def events(channel: str, page: EventPage) -> str:
    """Return the events of a page; nothing is between `from` and `to` but these."""
    told = {
        "channel": channel,
        "from": page.after,
        "to": page.cursor,
        "items": [event_shown(event) for event in page.events],
    }
    return written(events=told)
