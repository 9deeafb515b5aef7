"""Durable Streams: channels at `/v1/stream/{channel}`, as docs/reference/durable-streams.md says.

Each method reads its headers and its query, makes one call, and says the result in headers.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl, quote

from msgspec import Struct

from towpath.app.durable_streams import MOST_BYTES
from towpath.app.hub import KEPT
from towpath.errors import (
    ChannelClosed,
    CursorReset,
    Invalid,
    InvalidChannel,
    OutOfOrder,
    ProducerFenced,
)
from towpath.model.durable import StreamState
from towpath.model.event import EventPage
from towpath.model.instants import as_datetime
from towpath.server.bodies import MOST_PARAMETERS, Receive, Scope
from towpath.server.endpoint import Headers, Written
from towpath.server.errors import Refusal, refusal
from towpath.server.request import Request
from towpath.server.routes import Streamed
from towpath.server.shared import Shared
from towpath.server.stream_headers import SentHeaders
from towpath.server.stream_pages import DOOR, StreamEvents, body_of_page, stream_cursor
from towpath.server.streaming import server_sent

PATH: Final = "/v1/stream/{channel}"
METHODS: Final = ("GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS")
NOW: Final = "now"
SENT: Final = (
    "if-none-match", "last-event-id", "stream-seq", "stream-closed", "stream-ttl",
    "stream-expires-at", "stream-forked-from", "stream-fork-offset", "stream-fork-sub-offset",
    "producer-id", "producer-epoch", "producer-seq",
)  # fmt: skip
"""The headers that pages of other sites may send."""

TOLD: Final = (
    "etag", "location", "stream-next-offset", "stream-up-to-date", "stream-closed",
    "stream-cursor", "stream-ttl", "stream-expires-at", "stream-sse-data-encoding",
    "producer-epoch", "producer-seq", "producer-expected-seq", "producer-received-seq",
    "towpath-ended",
)  # fmt: skip
"""The headers that pages of other sites may read."""

# A stream may be HTML: opened in a browser, it must not act for the person who opens it.
SAFE: Final[Headers] = (
    (b"cross-origin-resource-policy", b"cross-origin"),
    (b"content-security-policy", b"sandbox; default-src 'none'"),
)


class StreamQuery(Struct, frozen=True):
    """What the query asks for. Other parameters are ignored, as the protocol demands."""

    offset: str | None
    live: str | None
    cursor: str | None

    @classmethod
    def of(cls, scope: Scope) -> "StreamQuery":
        """Read the query."""
        text = str(scope["query_string"], "latin-1")
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_PARAMETERS)
        except ValueError as error:
            raise Refusal(400, "invalid", f"the query cannot be read: {error}") from None
        named = dict(pairs)
        for name in ("offset", "live", "cursor"):
            if sum(each == name for each, _ in pairs) > 1:
                raise Refusal(400, "invalid", f"the query names `{name}` twice")
        live = named.get("live")
        if live is not None and live not in {"long-poll", "sse"}:
            raise Refusal(400, "invalid", f"live is long-poll or sse, not {live[:100]!r}")
        if live is not None and "offset" not in named:
            raise Refusal(400, "invalid", "live needs an offset; -1 is the beginning")
        return cls(named.get("offset"), live, named.get("cursor"))


class StreamEndpoint:
    """Answers one method of all streams."""

    path: Final = PATH

    def __init__(self, shared: Shared, method: str) -> None:
        self._shared = shared
        self._handler = HANDLERS[method]

    async def answer(
        self, scope: Scope, receive: Receive, parameters: Mapping[str, str]
    ) -> Written | Streamed:
        """Return the answer to a request; `parameters` are those of its path."""
        try:
            channels: tuple[str, ...] | None = None
            if self._handler is get:
                scope, channels = await self._shared.redeemed(scope)
            request = self._shared.cached_request(scope, receive) or await self._shared.request(
                scope, receive, is_open=self._handler is options
            )
            request.pass_channels = channels
            if self._handler is not options:
                request.refuse_if_closed()
            written = await self._handler(request, parameters["channel"])
        except Exception as error:
            found = refusal(error)
            found.headers |= {
                **_told_by(error),
                **{str(name, "ascii"): str(value, "ascii") for name, value in SAFE},
            }
            raise found from error
        if isinstance(written, Streamed):
            return written
        status, media, body, headers = written
        return status, media, body, (*headers, *SAFE)


def _told_by(error: Exception) -> dict[str, str]:
    """Return what headers say of an error."""
    match error:
        case ChannelClosed(head=str(head)):
            return {"stream-closed": "true", "stream-next-offset": head}
        case ProducerFenced():
            return {"producer-epoch": str(error.epoch)}
        case OutOfOrder(expected=int(expected), received=received):
            return {
                "producer-expected-seq": str(expected),
                "producer-received-seq": str(received),
            }
        case _:
            return {}


async def options(_request: Request, _name: str) -> Written:
    """Say what is allowed; pages of other sites are answered before, by Starlette."""
    return 204, b"", b"", ((b"allow", ", ".join(METHODS).encode()),)


async def put(request: Request, name: str) -> Written:
    """Make a stream."""
    await request.require_channel("publish", name)
    headers = SentHeaders(request)
    new = headers.new_stream()
    if new.fork is not None:
        await request.require_channel("subscribe", new.fork.source)
    created = await request.app.durable_streams.create(name, new, await headers.body())
    state = created.state
    told = [(b"location", _location(request.scope, name)), *_told_of(state)]
    return (201 if created.is_new else 200), state.media.encode(), b"", tuple(told)


async def post(request: Request, name: str) -> Written:
    """Add to a stream, close it, or both."""
    await request.require_channel("publish", name)
    headers = SentHeaders(request)
    try:
        producer, order_key = headers.producer(), headers.text("stream-seq")
        media, closes = headers.media(), headers.closes
        body = await headers.body()
        _refuse_nothing(body, closes=closes)
        appended = await request.app.durable_streams.append(
            name, media, body, producer=producer, order_key=order_key, closes=closes
        )
    except InvalidChannel:
        raise
    except (Invalid, Refusal):
        await _refuse_by_state(request, name, headers)
        raise
    if not appended.is_repeated:
        request.shared.metrics.published(DOOR, len(appended.events))
    told = [(b"stream-next-offset", appended.head.encode())]
    if appended.ended is not None:
        told += _told_of_end(appended.ended)
    if producer is not None:
        told.append((b"producer-epoch", b"%d" % producer.epoch))
        told.append((b"producer-seq", b"%d" % (appended.said or 0)))
    is_news = producer is not None and bool(body) and not appended.is_repeated
    return (200 if is_news else 204), b"", b"", tuple(told)


def _refuse_nothing(body: bytes, *, closes: bool) -> None:
    if not body and not closes:
        raise Refusal(400, "invalid", "the body is empty; send a message, or Stream-Closed")


async def _refuse_by_state(request: Request, name: str, headers: SentHeaders) -> None:
    """Refuse an append for the state of its stream, which comes before what is wrong in itself."""
    state = await request.app.durable_streams.look(name)
    if state.ended is not None and not headers.closes:
        msg = f"channel {name!r} was closed; publish to another one"
        raise ChannelClosed(msg, state.head)


async def delete(request: Request, name: str) -> Written:
    """Delete a stream."""
    await request.require_channel("manage", name)
    await request.app.durable_streams.delete(name)
    return 204, b"", b"", ()


async def head(request: Request, name: str) -> Written:
    """Say how a stream stands."""
    await request.require_channel("subscribe", name)
    state = await request.app.durable_streams.look(name)
    media = (b"content-type", state.media.encode())
    return 200, b"", b"", (media, *_told_of(state))


async def get(request: Request, name: str) -> Written | Streamed:
    """Read a stream: what it has, and with `live` what comes."""
    await request.require_channel("subscribe", name)
    query = StreamQuery.of(request.scope)
    streams = request.app.durable_streams
    last = SentHeaders(request).text("last-event-id") if query.live == "sse" else None
    after = last or query.offset
    if after == NOW:
        after = (await streams.look(name)).head
    # A page of events that are sent one after the other may wait for its client.
    found = await streams.read(name, after, KEPT if query.live == "sse" else MOST_BYTES)
    page = found.page
    if query.live == "sse":
        if last is not None and page.ended is not None and not page.events:
            return 204, b"", b"", ()  # a browser's EventSource does not come back
        told_live = StreamEvents(found.media, query.cursor)
        pieces = told_live.follow(request, name, found)
        return server_sent(request, pieces, *told_live.headers, *SAFE, door=DOOR)
    told: list[tuple[bytes, bytes]] = []
    if query.live == "long-poll":
        if not page.events and page.ended is None:
            page = await _wait(request, name, page.cursor) or page
            await request.check_again("subscribe", name)
        told.append((b"stream-cursor", stream_cursor(query.cursor).encode()))
    told.append((b"stream-next-offset", page.cursor.encode()))
    if page.is_current:
        told.append((b"stream-up-to-date", b"true"))
    if page.ended is not None:
        told += _told_of_end(page.ended)
    if query.live and not page.events:
        return 204, b"", b"", tuple(told)
    etag = f'"{page.after}:{page.cursor}:{page.ended or ""}"'.encode()
    told.append((b"etag", etag))
    if etag in re.split(rb"\s*,\s*", request.headers.get(b"if-none-match", b"")):
        return 304, b"", b"", tuple(told)
    request.shared.metrics.sent(DOOR, len(page.events))
    return 200, found.media.encode(), body_of_page(found.media, page), tuple(told)


async def _wait(request: Request, name: str, after: str) -> EventPage | None:
    """Wait for a page behind a cursor; None if none comes in time."""
    try:
        async with (
            asyncio.timeout(request.app.settings.stream_wait),
            await request.app.events.follow(name, after) as subscription,
        ):
            shared = await request.unless_disconnected(subscription.next())
            return shared.page if shared is not None else None
    except TimeoutError:
        return None
    except CursorReset:
        await request.app.durable_streams.look(name)  # it was deleted
        raise


HANDLERS: Final[Mapping[str, Callable[[Request, str], Awaitable[Written | Streamed]]]] = {
    "GET": get,
    "HEAD": head,
    "PUT": put,
    "POST": post,
    "DELETE": delete,
    "OPTIONS": options,
}


def _told_of(state: StreamState) -> list[tuple[bytes, bytes]]:
    told = [(b"stream-next-offset", state.head.encode())]
    if state.ttl is not None:
        told.append((b"stream-ttl", b"%d" % (state.ttl // 1_000_000)))
    elif state.expires_at is not None:
        at = as_datetime(state.expires_at).isoformat(timespec="milliseconds")
        told.append((b"stream-expires-at", at.replace("+00:00", "Z").encode()))
    if state.ended is not None:
        told += _told_of_end(state.ended)
    return told


def _told_of_end(ended: str) -> list[tuple[bytes, bytes]]:
    return [(b"stream-closed", b"true"), (b"towpath-ended", ended.encode())]


def _location(scope: Scope, name: str) -> bytes:
    host = next((value for key, value in scope["headers"] if key == b"host"), None)
    if host is None:
        host = "{}:{}".format(*(scope.get("server") or ("localhost", 80))).encode()
    path = f"{scope.get('root_path', '')}/v1/stream/{quote(name, safe=':')}"
    return b"%b://%b%b" % (scope.get("scheme", "http").encode(), host, path.encode())
