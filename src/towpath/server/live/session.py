"""One WebSocket: reads frames one after the other, and follows several channels meanwhile.

Each channel has a task that waits for its next page and sends it. `send` waits while the client
reads too slowly, so nothing piles up here: the task then falls behind, and reads the database.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from towpath.app.subscriptions import Subscription
from towpath.errors import CursorReset, Invalid
from towpath.model.event import EventPage, NewEvent
from towpath.model.tokens import MOST_TOKEN
from towpath.server.authentication import COOKIE
from towpath.server.bodies import Receive, Scope, Send, cookie
from towpath.server.errors import Refusal, refusal
from towpath.server.live import frames
from towpath.server.live.frames import (
    ClientFrame,
    Hello,
    Publish,
    StartAt,
    Subscribe,
    Unsubscribe,
)
from towpath.server.request import ChannelVerb, Request

if TYPE_CHECKING:
    from towpath.server.shared import Shared

BEAT: Final = 25.0  # seconds between two signs of life
LIFETIME: Final = 600.0  # seconds after which a client is asked to connect again
SPREAD: Final = 0.1  # the share by which that differs, so that not all come back at once
MOST_CHANNELS: Final = 1_000
LEAVE: Final = 1.0  # seconds for a client to go by itself
DOOR: Final = "ws"

# Close codes: come back; log in and come back; do not come back.
GOING_AWAY: Final = 4000
LOGIN_AGAIN: Final = 4100
REFUSED: Final = 4403


class LiveSession:
    """The frames of one client."""

    def __init__(self, shared: "Shared", scope: Scope, receive: Receive, send: Send) -> None:
        self._shared = shared
        self._scope: Scope = {**scope, "method": "WEBSOCKET"}
        self._receive = receive
        self._send = send
        self._events = shared.app.events
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._request: Request | None = None
        self._pass_channels: tuple[str, ...] | None = None  # the only ones, if it has a pass

    async def run(self) -> None:
        """Serve the client until it goes, or is told to come back."""
        await self._receive()  # websocket.connect
        try:
            self._check_origin()
            self._scope, self._pass_channels = await self._shared.redeemed(self._scope)
            self._request = await self._authenticated()
        except Exception as error:  # noqa: BLE001 - before it is accepted, every error is a refusal
            await self._close(REFUSED, refusal(error).code)
            return
        await self._send({"type": "websocket.accept"})
        self._shared.live.add(self)
        timing = asyncio.create_task(self._time())
        closing = asyncio.create_task(self._shared.closing.wait())
        reading = asyncio.create_task(self._read())
        try:
            await asyncio.wait((timing, closing, reading), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await self._say_bye(reading)
        finally:
            self._shared.live.discard(self)
            for task in (timing, closing, reading, *self._followed.values()):
                task.cancel()
            await asyncio.gather(
                timing, closing, reading, *self._followed.values(), return_exceptions=True
            )

    def _check_origin(self) -> None:
        """Refuse pages of other sites: for WebSockets a browser asks no permission before."""
        headers: dict[bytes, bytes] = dict(self._scope["headers"])
        origin = headers.get(b"origin")
        if origin is None:
            return  # not a page
        host = headers.get(b"host", b"")
        is_same = origin.partition(b"://")[2] == host
        if not is_same and str(origin, "latin-1") not in self._shared.origins:
            message = "pages of this origin may not connect; allow it by `towpath serve --origin`"
            raise Refusal(403, "origin_refused", message)
        if not is_same and cookie(headers, COOKIE):
            message = "with a cookie, only pages of the same origin may connect; send a token"
            raise Refusal(403, "csrf_refused", message)

    async def _authenticated(self, token: str | None = None) -> Request:
        scope = self._scope
        if token is not None:
            self._pass_channels = None
            headers = [pair for pair in scope["headers"] if pair[0] != b"authorization"]
            scope["headers"] = [*headers, (b"authorization", b"Bearer " + token.encode())]
        request = await self._shared.request(scope, self._receive, is_open=False)
        request.pass_channels = self._pass_channels
        return request

    async def _time(self) -> None:
        """Beat until the session has lived long enough."""
        ends = time.monotonic() + LIFETIME * random.uniform(1 - SPREAD, 1 + SPREAD)  # noqa: S311
        beats = 0
        while time.monotonic() < ends:
            await asyncio.sleep(BEAT)
            beats += 1
            await self._text(frames.written(beat=beats))

    async def _say_bye(self, reading: "asyncio.Task[None]") -> None:
        """Tell the client to come back; it may close the connection, and has read this then."""
        pause = random.uniform(0, 2)  # noqa: S311 - so that not all come back at once
        await self._text(frames.written(bye={"code": "going_away", "after": round(pause, 2)}))
        await asyncio.wait((reading,), timeout=LEAVE)
        await self._close(GOING_AWAY, "going_away")

    async def _close(self, code: int, reason: str) -> None:
        with contextlib.suppress(Exception):  # it may be closed already
            await self._send({"type": "websocket.close", "code": code, "reason": reason})

    async def _text(self, text: str) -> None:
        await self._send({"type": "websocket.send", "text": text})

    # ---------------------------------------------------------------- frames of the client

    async def _read(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            if text is None:
                msg = "send frames as text, not as bytes"
                await self._text(frames.error(None, Invalid(msg)))
                continue
            await self._answer(text)

    async def _answer(self, text: str) -> None:
        id: int | str | None = None
        try:
            frame = frames.read(text)
            id = frame.id
            answer = await self._done(frame)
        except Exception as error:  # noqa: BLE001 - the client gets an answer to every error
            answer = frames.error(frames.id_of(text) if id is None else id, error)
        if answer is not None:
            await self._text(answer)

    async def _done(self, frame: ClientFrame) -> str | None:
        match frame.verb:
            case Hello(token):
                return await self._hello(frame, token)
            case Subscribe() as asked:
                await self._subscribe(frame, asked)
                return None
            case Unsubscribe(channel):
                await self._unsubscribe(channel)
                return frames.ok(frame.id, channel=channel)
            case Publish() as asked:
                return await self._publish(frame, asked)
            case _:
                return None  # a beat needs no answer

    async def _hello(self, frame: ClientFrame, token: str) -> str:
        if self._followed:
            msg = "say hello before the first subscription"
            raise Invalid(msg)
        if len(token) > MOST_TOKEN or not token.isascii():
            msg = f"a token has at most {MOST_TOKEN:,} characters, all of them ASCII"
            raise Invalid(msg)
        self._request = await self._authenticated(token)
        return frames.ok(frame.id, beat=BEAT)

    async def _publish(self, frame: ClientFrame, asked: Publish) -> str:
        await self._require("publish", asked.channel)
        new = [NewEvent(each.payload, each.type, each.key, each.headers) for each in asked.events]
        stored = await self._events.apublish_many(asked.channel, new)
        return frames.ok(frame.id, cursors=[event.cursor for event in stored])

    async def _subscribe(self, frame: ClientFrame, asked: Subscribe) -> None:
        name = asked.channel
        if name in self._followed:
            msg = f"channel {name!r} is subscribed to already; unsubscribe first"
            raise Invalid(msg)
        if len(self._followed) >= MOST_CHANNELS:
            msg = f"{MOST_CHANNELS:,} channels are the most of one connection; open another one"
            raise Invalid(msg)
        await self._require("subscribe", name)
        match asked.start:
            case StartAt(last, since):
                following = self._events.follow(name, last=last, since=since, types=asked.types)
            case after:
                following = self._events.follow(name, after, types=asked.types)
        subscription = await following
        try:
            # A cursor that cannot go on is refused here, and not after the answer.
            page = await self._events.aread(name, subscription.cursor, limit=1)
            told = {"channel": name, "cursor": subscription.cursor or page.after}
            await self._text(frames.ok(frame.id, **told, oldest=page.oldest, head=page.head))
        except BaseException:
            subscription.close()
            raise
        is_current = not page.events
        feeding = asyncio.create_task(self._feed(name, subscription, is_current=is_current))
        self._followed[name] = feeding
        feeding.add_done_callback(lambda _: self._followed.pop(name, None))

    async def _unsubscribe(self, name: str) -> None:
        feeding = self._followed.pop(name, None)
        if feeding is None:
            msg = f"channel {name!r} is not subscribed to"
            raise Invalid(msg)
        feeding.cancel()
        await asyncio.wait((feeding,))  # nothing of it comes behind the answer

    # ---------------------------------------------------------------- frames to the client

    async def _feed(self, name: str, subscription: Subscription, *, is_current: bool) -> None:
        """Send what a channel has, then what comes, to its end."""
        encode: Callable[[EventPage], str] = lambda page: frames.events(name, page)  # noqa: E731
        with contextlib.closing(subscription), contextlib.suppress(OSError):  # the client is gone
            try:
                # A request of its own: each channel is checked in its turn.
                checking = await self._authenticated()
                if is_current:
                    await self._tell_current(name, subscription.cursor)
                while True:
                    shared = await subscription.next()
                    await checking.check_again("subscribe", name)
                    page = shared.page
                    if page.events:
                        await self._text(shared.encoded_by(DOOR, encode))
                    if page.ended is not None:
                        told = {"channel": name, "cursor": page.cursor, "ended": page.ended}
                        await self._text(frames.written(closed=told))
                        return
                    if page.is_current and not is_current:
                        await self._tell_current(name, page.cursor)
                    is_current = page.is_current
            except CursorReset as reset:
                told = {"reason": reset.reason, "oldest": reset.oldest, "head": reset.head}
                await self._text(frames.written(reset={"channel": name, **told}))
            except OSError:
                raise
            except Exception as error:  # noqa: BLE001 - the client is told, and may come back
                told = {"channel": name, "reason": refusal(error).code}
                await self._text(frames.written(reset=told))

    async def _tell_current(self, name: str, cursor: str | None) -> None:
        await self._text(frames.written(current={"channel": name, "cursor": cursor}))

    async def _require(self, verb: ChannelVerb, name: str) -> None:
        """Refuse a client that may not do this to a channel."""
        request = self._request or await self._authenticated()
        request.refuse_if_closed()
        await request.require_channel(verb, name)
