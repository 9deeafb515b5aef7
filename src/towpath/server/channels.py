"""Channels and their events over HTTP, as JSON."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import Meta, field

from towpath.errors import NotFound
from towpath.model.channels import Channel
from towpath.model.event import Event, EventPage, NewEvent
from towpath.model.passes import LIFETIME
from towpath.server.authentication import COOKIE, token_of
from towpath.server.bodies import cookie
from towpath.server.inputs import (
    ChannelName,
    CursorText,
    Encoding,
    EventType,
    Input,
    Key,
    OwnChannel,
    Prefix,
)
from towpath.server.outputs import (
    Items,
    ResponseBody,
    encoding_shown,
    shown,
    stored,
)
from towpath.server.request import Request, login_required
from towpath.server.routes import Routes

routes: Final = Routes("channels")

MOST_WAIT: Final = 30.0  # seconds that a read waits for events


class EventInput(Input):
    """An event to publish."""

    payload: Any = None
    type: EventType | None = None
    key: Key | None = None
    headers: dict[str, str] = field(default_factory=dict)


class EventsInput(Input):
    """Events to publish: all of them or none, next to each other."""

    events: Annotated[list[EventInput], Meta(min_length=1, max_length=10_000)]


class ChannelEventShown(ResponseBody):
    """An event. Bytes are given as text if they are UTF-8, else as base64."""

    id: str
    cursor: str | None
    at: datetime
    type: str | None
    key: str | None
    headers: Mapping[str, str]
    encoding: Encoding
    payload: Any


class EventPageShown(ResponseBody):
    """Events in a row. Read on from `cursor`; nothing is between `after` and `cursor` but these."""

    events: list[ChannelEventShown]
    after: str
    cursor: str
    oldest: str
    head: str
    ended: str | None  # how the channel was closed, if this page reaches its end


class ReadQuery(Input):
    """Which events to read."""

    after: CursorText = ""  # without one, from the beginning
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    wait: Annotated[float, Meta(ge=0, le=MOST_WAIT)] = 0.0  # seconds to wait if there is none


class ListQuery(Input):
    """Which channels to list."""

    prefix: Prefix = ""
    after: Prefix = ""  # a name: the last one of the page before
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class ChannelShown(ResponseBody):
    """A channel, and where it stands."""

    name: str
    oldest: str
    head: str
    events: int
    size: int
    created_at: datetime
    ended: str | None


class PassInput(Input):
    """The channels of a pass."""

    channels: Annotated[list[ChannelName], Meta(min_length=1, max_length=100)]


class PassShown(ResponseBody):
    """A pass for the query of a URL: `?pass=…`."""

    pass_: str = field(name="pass")
    expires_in: float  # seconds


@routes.post("/api/passes", status=201)
async def create_pass(request: Request, body: PassInput) -> PassShown:
    """Get a pass: in the query of a URL it lets in once, to read these channels, for a minute.

    It is for EventSource and WebSocket, which send no Authorization header.
    """
    for name in body.channels:
        await request.require_channel("subscribe", name)
    token = token_of(request.headers) or cookie(request.headers, COOKIE)
    if token is None:
        raise login_required()
    made = await request.app.accounts.aissue_pass(token, body.channels)
    return PassShown(pass_=made, expires_in=LIFETIME / 1e6)


@routes.get("/api/channels")
async def list_channels(request: Request, query: ListQuery) -> Items[ChannelShown]:
    """List channels by name; only those that the caller may manage."""
    found = await request.app.events.alist(query.prefix, after=query.after, limit=query.limit)
    visible = [each for each in found if request.may_channel("manage", each.name)]
    if not visible:
        await request.require_channel("manage", query.prefix or "any")
    return Items(items=[shown(ChannelShown, each) for each in visible])


@routes.get("/api/channels/{name}")
async def get_channel(request: Request, name: ChannelName) -> ChannelShown:
    """Read where a channel stands."""
    await request.require_channel("subscribe", name)
    return shown(ChannelShown, await _channel(request, name))


@routes.delete("/api/channels/{name}", status=204)
async def delete_channel(request: Request, name: OwnChannel) -> None:
    """Delete a channel and its events; its readers are reset."""
    await request.require_channel("manage", name)
    if not await request.app.events.adelete(name):
        raise _unknown(name)


@routes.post("/api/channels/{name}/close", status=204)
async def close_channel(request: Request, name: OwnChannel) -> None:
    """Close a channel: readers are told, and a later publish is refused."""
    await request.require_channel("publish", name)
    await request.app.events.aclose(name)


@routes.post("/api/channels/{name}/events", status=201, errors=("channel_closed",))
async def publish(
    request: Request, name: OwnChannel, body: EventsInput
) -> Items[ChannelEventShown]:
    """Publish events; one whose key the channel has already is not stored again."""
    await request.require_channel("publish", name)
    new = [NewEvent(each.payload, each.type, each.key, each.headers) for each in body.events]
    stored = await request.app.events.apublish_many(name, new)
    return Items(items=[event_shown(each) for each in stored])


@routes.get("/api/channels/{name}/events", errors=("cursor_reset", "invalid_cursor"))
async def read_events(request: Request, name: ChannelName, query: ReadQuery) -> EventPageShown:
    """Read events behind a cursor; with `wait`, wait so many seconds for the first one."""
    await request.require_channel("subscribe", name)
    events, after = request.app.events, query.after or None
    page = await events.aread(name, after, limit=query.limit)
    if query.wait and not page.events and page.ended is None:
        await request.unless_disconnected(_moved(request, name, page.cursor, query.wait))
        await request.check_again("subscribe", name)
        page = await events.aread(name, after, limit=query.limit)
    return page_shown(page)


async def _moved(request: Request, name: str, cursor: str, seconds: float) -> None:
    """Wait until there are events behind a cursor, or the channel ends."""
    async for _ in request.app.events.asubscribe(name, cursor, timeout=seconds):
        return


async def _channel(request: Request, name: str) -> Channel:
    for each in await request.app.events.alist(name, limit=1):
        if each.name == name:
            return each
    raise _unknown(name)


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no channel {name!r}")


def page_shown(page: EventPage) -> EventPageShown:
    """Return a page as JSON shows it."""
    return EventPageShown(
        events=[event_shown(event) for event in page.events],
        after=page.after,
        cursor=page.cursor,
        oldest=page.oldest,
        head=page.head,
        ended=page.ended,
    )


def event_shown(event: Event) -> ChannelEventShown:
    """Return an event as JSON shows it."""
    return ChannelEventShown(
        id=str(event.id),
        cursor=event.cursor,
        at=event.at,
        type=event.type,
        key=event.key,
        headers=event.headers,
        encoding=encoding_shown(event.encoding),
        payload=stored(event.body, event.encoding),
    )
