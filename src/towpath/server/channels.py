"""Channels and their events over HTTP, as JSON."""

from datetime import datetime
from functools import partial
from typing import Annotated, Final

from msgspec import Meta, field

from towpath.errors import ChannelGone, NotFound
from towpath.model.channels import Channel
from towpath.model.event import NewEvent
from towpath.model.passes import LIFETIME
from towpath.server.authentication import COOKIE, token_of
from towpath.server.bodies import cookie
from towpath.server.inputs import (
    ChannelName,
    EventInput,
    Input,
    Instant,
    OptionalPlace,
    OwnChannel,
    Positive,
    Prefix,
    Types,
)
from towpath.server.live.feed import SSE, as_server_sent, goodbye
from towpath.server.outputs import (
    ChannelEventShown,
    EventPageShown,
    Items,
    ResponseBody,
    event_shown,
    page_shown,
    shown,
)
from towpath.server.request import Request, login_required
from towpath.server.routes import Answer, Routes, Streamed
from towpath.server.streaming import MEDIA, server_sent

routes: Final = Routes("channels")

HTTP: Final = "http"  # the door
MOST_WAIT: Final = 30.0  # seconds that a read waits for events
AT_ONCE: Final = 100  # channels per query of a list
MOST_READ: Final = 2_000  # channels per list, hidden ones included


class EventsInput(Input):
    """Events to publish: all of them or none, next to each other."""

    events: Annotated[list[EventInput], Meta(min_length=1, max_length=10_000)]


class ReadQuery(Input):
    """Which events to read; `limit` and `wait` are not for server-sent events."""

    after: OptionalPlace = ""  # a cursor, `start` (the default) or `now`
    last: Positive | None = None  # begin with the newest so many events
    since: Instant | None = None  # begin with the events since a time
    types: Types | None = None  # such as order.*
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    wait: Annotated[float, Meta(ge=0, le=MOST_WAIT)] = 0.0  # seconds to wait if there is none
    pass_: str = field(default="", name="pass")  # instead of a token


class ListQuery(Input):
    """Which channels to list."""

    prefix: Prefix = ""
    after: Prefix = ""  # a name: `next` of the page before
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


class ChannelPage(ResponseBody):
    """Channels by name."""

    items: list[ChannelShown]
    next: str | None  # `after` of the next page; null if no channel is left


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
async def list_channels(request: Request, query: ListQuery) -> ChannelPage:
    """List channels by name; only those that the caller may manage.

    A page may have less than `limit` of them, even none, and a `next` all the same.
    """
    page = ChannelPage(items=[], next=query.after)
    count = 0
    while page.next is not None and count < MOST_READ and len(page.items) < query.limit:
        found = await request.app.events.alist(query.prefix, after=page.next, limit=AT_ONCE)
        count += len(found)
        page.next = found[-1].name if len(found) == AT_ONCE else None
        visible = [each for each in found if request.may_channel("manage", each.name)]
        room = query.limit - len(page.items)
        if len(visible) > room:
            page.next = visible[room - 1].name
        page.items += [shown(ChannelShown, each) for each in visible[:room]]
    if not page.items and page.next is None and not query.after:
        await request.require_channel("manage", query.prefix or "any")
    return page


@routes.get("/api/channels/{name}", errors=("channel_gone",))
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
    await request.acted("channel.deleted", channel=name)


@routes.post("/api/channels/{name}/close", status=204)
async def close_channel(request: Request, name: OwnChannel) -> None:
    """Close a channel: readers are told, and a later publish is refused."""
    await request.require_channel("publish", name)
    await request.app.events.aclose(name)


@routes.post(
    "/api/channels/{name}/events", status=201, errors=("channel_closed", "max_channels_reached")
)
async def publish(
    request: Request, name: OwnChannel, body: EventsInput
) -> Items[ChannelEventShown]:
    """Publish events; one whose key the channel has already is not stored again."""
    await request.require_channel("publish", name)
    new = [NewEvent(each.payload, each.type, each.key, each.headers) for each in body.events]
    stored = await request.app.events.apublish_many(name, new)
    request.shared.metrics.published(HTTP, len(stored))
    return Items(items=[event_shown(each) for each in stored])


@routes.get(
    "/api/channels/{name}/events", takes_pass=True, errors=("cursor_reset", "invalid_cursor")
)
async def read_events(
    request: Request, name: ChannelName, query: ReadQuery
) -> EventPageShown | Streamed | Answer[None]:
    """Read events behind a cursor; with `wait`, wait so many seconds for the first one.

    With `Accept: text/event-stream`, follow the channel as server-sent events, which are
    the frames of the WebSocket.
    """
    await request.require_channel("subscribe", name)
    read = partial(request.app.events.aread, name, types=query.types)
    if request.scope["method"] == "GET" and MEDIA in request.headers.get(b"accept", b""):
        return await _follow(request, name, query)
    after = query.after or None
    page = await read(after, last=query.last, since=query.since, limit=query.limit)
    if query.wait and page.is_current and page.ended is None and not page.events:
        await request.unless_disconnected(_moved(request, name, query, page.cursor))
        await request.check_again("subscribe", name)
        page = await read(page.after, limit=query.limit)
    request.shared.metrics.sent(HTTP, len(page.events))
    return page_shown(page)


async def _moved(request: Request, name: str, query: ReadQuery, cursor: str) -> None:
    """Wait until there are events behind a cursor, or the channel ends."""
    events = request.app.events
    async for _ in events.asubscribe(name, cursor, types=query.types, timeout=query.wait):
        return


async def _follow(request: Request, name: str, query: ReadQuery) -> Streamed | Answer[None]:
    """Send events as they come, from behind the last one that a browser has got."""
    last = str(request.headers.get(b"last-event-id", b""), "latin-1")
    # A cursor that cannot go on is refused here, and not after the head of the answer.
    read = partial(request.app.events.aread, name, types=query.types, limit=1)
    if last:
        page = await read(last)
    else:
        page = await read(query.after or None, last=query.last, since=query.since)
    if last and page.ended is not None and page.after == page.head:
        return Answer(None, 204)  # a browser's EventSource does not come back
    pieces = as_server_sent(request, name, page, query.types)
    return server_sent(request, pieces, door=SSE, goodbye=goodbye())


async def _channel(request: Request, name: str) -> Channel:
    for each in await request.app.events.alist(name, limit=1):
        if each.name == name:
            return each
    try:
        await request.app.durable_streams.look(name)
    except ChannelGone:
        raise
    except NotFound:
        pass
    raise _unknown(name)


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no channel {name!r}")
