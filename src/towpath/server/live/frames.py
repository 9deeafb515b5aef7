"""The frames of a WebSocket: JSON objects in text messages, each with one verb."""

import random
from typing import Any, Final

import msgspec
from msgspec import Struct

from towpath.errors import Invalid
from towpath.model.event import EventPage
from towpath.server.errors import Refusal, refusal
from towpath.server.inputs import EventInput, PlaceText, StartAt, Types
from towpath.server.outputs import event_shown

MOST_PAUSE: Final = 2.0  # seconds
_encoder: Final = msgspec.json.Encoder()


class FrameInput(Struct, forbid_unknown_fields=True, rename="camel"):
    """A part of what a client sends."""


class Hello(FrameInput):
    """The first frame of a client that has no cookie: its token or key."""

    token: str


class Subscribe(FrameInput):
    """Follow a channel."""

    channel: str
    start: PlaceText | StartAt = msgspec.field(default="start", name="from")
    types: Types | None = None
    consumer: str | None = None  # a durable one; `from` is for a new one
    generation: int | None = None  # of the attachment as which to go on


class AckFrame(FrameInput):
    """A consumer is done with everything up to a cursor."""

    channel: str
    cursor: str
    generation: int | None = None  # that of the subscription


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
    ack: AckFrame | None = None
    unsubscribe: Unsubscribe | None = None
    publish: Publish | None = None
    beat: int | None = None

    @property
    def verb(self) -> Any:
        """What it asks for."""
        names = [name for name in self.__struct_fields__ if name != "id"]
        given = [each for name in names if (each := getattr(self, name)) is not None]
        if len(given) != 1:
            verbs = ", ".join(names)
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


def current(channel: str, cursor: str | None) -> str:
    """Return the frame that says that the client has all that there is."""
    return written(current={"channel": channel, "cursor": cursor})


def closed(channel: str, page: EventPage) -> str:
    """Return the frame that says how a channel has ended."""
    return written(closed={"channel": channel, "cursor": page.cursor, "ended": page.ended})


def reset(channel: str, reason: str, **where: str) -> str:
    """Return the frame that says why a subscription cannot go on."""
    return written(reset={"channel": channel, "reason": reason, **where})


def bye() -> tuple[str, float]:
    """Return the frame that asks a client to come back, and after how many seconds."""
    pause = round(random.uniform(0, MOST_PAUSE), 2)  # noqa: S311 - so that not all come at once
    return written(bye={"code": "going_away", "after": pause}), pause
