"""What a client is told of a channel that it follows: the same frames at every door."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from towpath.app.subscriptions import Subscription
from towpath.errors import ConsumerFenced, CursorReset, InvalidToken
from towpath.model.event import EventPage
from towpath.server.errors import refusal
from towpath.server.live import frames
from towpath.server.live.acking import RemoteConsuming
from towpath.server.request import Request
from towpath.server.streaming import COMMENT

SSE: Final = "sse"  # the door


class Told(NamedTuple):
    """A frame."""

    upto: str | None  # the cursor up to which the client then has everything
    text: str
    login_ended: bool = False  # the token or key of the client is not valid any more
    is_last: bool = False  # the channel is followed no more


async def feed(
    request: Request, subscription: Subscription, door: str, *, is_current: bool
) -> AsyncGenerator[Told]:
    """Tell what a channel has, then what comes, to its end, or why it cannot go on.

    Before each page the right to read is checked again; `is_current`: there is nothing at first.
    """
    name, metrics = subscription.channel, request.shared.metrics
    try:
        if is_current:
            yield Told(subscription.cursor, frames.current(name, subscription.cursor))
        while True:
            text, count, page = await _next(subscription)
            await request.check_again("subscribe", name)
            if text:
                metrics.sent(door, count)
                # A client that was cut off between the last events and the end gets both again.
                yield Told(page.cursor if page.ended is None else None, text)
            if page.ended is not None:
                yield Told(page.cursor, frames.closed(name, page), is_last=True)
                return
            if page.is_current and not is_current:
                yield Told(page.cursor, frames.current(name, page.cursor))
            is_current = page.is_current
    except Exception as error:  # noqa: BLE001 - the client is told, and may come back
        reason, where = _why(error)
        metrics.reset(reason)
        text = frames.reset(name, reason, **where)
        yield Told(None, text, login_ended=isinstance(error, InvalidToken), is_last=True)


def _why(error: Exception) -> tuple[str, dict[str, str]]:
    """Return why a subscription cannot go on, and where the channel stands."""
    match error:
        case CursorReset(reason=reason, oldest=oldest, head=head):
            return reason, {"oldest": oldest, "head": head}
        case ConsumerFenced():
            return "fenced", {}
        case _:
            return refusal(error).code, {}


async def _next(subscription: Subscription) -> tuple[str | None, int, EventPage]:
    """Return the frame of the next page, how many events it has, and the page without them.

    So only the text stays in memory while it waits for a slow client.
    """
    shared = await subscription.next()
    if isinstance(subscription.consuming, RemoteConsuming):
        await subscription.consuming.room_for(shared.page)
    encode = partial(frames.events, subscription.channel)
    text = shared.encoded_by("frame", encode) if shared.page.events else None
    return text, len(shared.page.events), replace(shared.page, events=[])


async def as_server_sent(
    request: Request, name: str, first: EventPage, types: Sequence[str] | None
) -> AsyncGenerator[bytes]:
    """Tell the same as server-sent events, from where a page begins."""
    yield COMMENT  # shows that no proxy holds the answer back
    async with await request.app.events.follow(name, first.after, types=types) as subscription:
        telling = feed(request, subscription, SSE, is_current=first.after >= first.head)
        async with aclosing(telling):
            async for told in telling:
                id = "" if told.upto is None else f"id: {told.upto}\n"
                yield f"{id}data: {told.text}\n\n".encode()


def goodbye() -> bytes:
    """Return the event that asks a client to come back, and delays its EventSource."""
    text, pause = frames.bye()
    return f"retry: {round(pause * 1e3)}\ndata: {text}\n\n".encode()
