"""Durable consumers and the limits of channels over HTTP."""

from datetime import datetime
from typing import Annotated, Final

from msgspec import Meta, field

from towpath.app.subscriptions import START
from towpath.errors import NotFound
from towpath.model.consumers import Attachment, Owner
from towpath.server.inputs import (
    ChannelName,
    ConsumerName,
    CursorText,
    Input,
    OptionalConsumer,
    PlaceText,
    Seconds,
    Size,
)
from towpath.server.outputs import Items, ResponseBody, shown
from towpath.server.request import Request
from towpath.server.routes import Routes

routes: Final = Routes("channels")

Generation = Annotated[int, Meta(ge=0, le=2**62)]


class ConsumersQuery(Input):
    """Which consumers to list."""

    after: OptionalConsumer = ""  # a name: the last one of the page before
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class AttachInput(Input):
    """Where a new consumer begins: behind a cursor, at `start` or `now`."""

    start: PlaceText = field(default=START, name="from")


class MoveInput(Input):
    """Where a consumer goes on: behind a cursor, at `start` or `now`."""

    start: PlaceText = field(name="from")


class AckInput(Input):
    """Up to where an attached consumer is done."""

    cursor: CursorText
    generation: Generation


class LimitsInput(Input):
    """What a channel keeps; 0 is no limit, and one that is omitted is that of the settings."""

    max_age: Seconds | None = None
    max_bytes: Size | None = None
    max_count: Size | None = None
    drop_acked: bool = False  # an event also goes when all active consumers have acked it


class ConsumerShown(ResponseBody):
    """A consumer, and how far behind it is."""

    name: str
    cursor: str  # everything up to here is acked
    lag: int  # events behind it
    generation: int
    seen_at: datetime
    is_expired: bool  # silent for so long that it holds no events back
    is_overtaken: bool  # some events behind its cursor are gone
    owner: str | None  # the user or key that made it; null: only callers that may manage use it


class AttachmentShown(ResponseBody):
    """The right to read as a consumer, until another reader attaches."""

    cursor: str
    generation: int


class PlaceShown(ResponseBody):
    """Up to where a consumer is done."""

    cursor: str


@routes.get("/api/channels/{name}/consumers")
async def list_consumers(
    request: Request, name: ChannelName, query: ConsumersQuery
) -> Items[ConsumerShown]:
    """List the consumers of a channel and their lags, by name."""
    await request.require_channel("manage", name)
    found = await request.app.events.aconsumers(name, after=query.after, limit=query.limit)
    return Items(items=[shown(ConsumerShown, each) for each in found])


@routes.put(
    "/api/channels/{name}/consumers/{consumer}",
    errors=("cursor_reset", "invalid_cursor", "consumer_taken", "max_consumers_reached"),
)
async def attach(
    request: Request, name: ChannelName, consumer: ConsumerName, body: AttachInput
) -> AttachmentShown:
    """Begin to read as a consumer: a new one begins at `from`, another goes on from its last ack.

    Readers that have attached as this consumer before are fenced. A new consumer belongs to the
    caller, unless the caller may manage the channel.
    """
    await request.require_channel("subscribe", name)
    owner = request.consumer_owner(name)
    made: Attachment = await request.app.events.aattach(name, consumer, body.start, owner=owner)
    return shown(AttachmentShown, made)


@routes.post(
    "/api/channels/{name}/consumers/{consumer}/ack",
    errors=("cursor_reset", "invalid_cursor", "consumer_fenced", "consumer_taken"),
)
async def ack(
    request: Request, name: ChannelName, consumer: ConsumerName, body: AckInput
) -> PlaceShown:
    """Note that a consumer is done with everything up to a cursor; an older one changes nothing."""
    await request.require_channel("subscribe", name)
    owner = request.consumer_owner(name)
    place = await request.app.events.aack(name, consumer, body.cursor, body.generation, owner=owner)
    return PlaceShown(cursor=place)


@routes.post(
    "/api/channels/{name}/consumers/{consumer}/move",
    errors=("cursor_reset", "invalid_cursor", "consumer_taken"),
)
async def move_consumer(
    request: Request, name: ChannelName, consumer: ConsumerName, body: MoveInput
) -> PlaceShown:
    """Let a consumer go on from elsewhere, forward or back; its readers are fenced."""
    owner = await _owner(request, name)
    place = await request.app.events.amove_consumer(name, consumer, body.start, owner=owner)
    await _acted(request, "moved", name, consumer, owner)
    return PlaceShown(cursor=place)


@routes.delete("/api/channels/{name}/consumers/{consumer}", status=204, errors=("consumer_taken",))
async def forget_consumer(request: Request, name: ChannelName, consumer: ConsumerName) -> None:
    """Forget a consumer; its readers are reset."""
    owner = await _owner(request, name)
    if not await request.app.events.aforget_consumer(name, consumer, owner=owner):
        msg = f"channel {name!r} has no consumer {consumer!r}"
        raise NotFound(msg)
    await _acted(request, "forgotten", name, consumer, owner)


async def _acted(
    request: Request, what: str, channel: str, consumer: str, owner: Owner | None
) -> None:
    """Post an act; what a reader does with its own consumer is part of reading."""
    if owner is None:
        await request.acted(f"consumer.{what}", channel=channel, consumer=consumer)


async def _owner(request: Request, name: str) -> Owner | None:
    """Return as whom the caller changes a consumer; it may manage the channel, or read it."""
    if request.may_channel("manage", name):
        return None
    await request.require_channel("subscribe", name)
    return request.consumer_owner(name)


@routes.put("/api/channels/{name}/limits", status=204)
async def limit_channel(request: Request, name: ChannelName, body: LimitsInput) -> None:
    """Set what a channel keeps, instead of what the settings say."""
    await request.require_channel("manage", name)
    await request.app.events.alimit(
        name,
        max_age=body.max_age,
        max_bytes=body.max_bytes,
        max_count=body.max_count,
        drop_acked=body.drop_acked,
    )
    await request.acted("channel.limited", channel=name)
