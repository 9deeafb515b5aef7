"""One WebSocket: reads frames one after the other, and follows several channels meanwhile.

Each channel has a task that waits for its next page and sends it. `send` waits while the client
reads too slowly, so nothing piles up here: the task then falls behind, and reads the database.
"""

import asyncio
import contextlib
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from towpath.app.consuming import Consuming
from towpath.app.subscriptions import Subscription
from towpath.errors import Invalid
from towpath.model.event import NewEvent
from towpath.model.tokens import MOST_TOKEN
from towpath.server.authentication import COOKIE
from towpath.server.bodies import Receive, Scope, Send, cookie
from towpath.server.errors import Refusal, refusal
from towpath.server.inputs import StartAt
from towpath.server.live import frames
from towpath.server.live.acking import RemoteConsuming
from towpath.server.live.feed import feed
from towpath.server.live.frames import (
    AckFrame,
    ClientFrame,
    Hello,
    Publish,
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
DOOR: Final = "websocket"
LEAVE: Final = 1.0  # seconds for a client to go by itself

# Close codes: come back; log in and come back; do not come back.
GOING_AWAY: Final = 4000
LOGIN_AGAIN: Final = 4100
REFUSED: Final = 4403


class Followed(NamedTuple):
    """A channel that a client follows."""

    feeding: asyncio.Task[None]
    consuming: Consuming | None


class LiveSession:
    """The frames of one client."""

    def __init__(self, shared: "Shared", scope: Scope, receive: Receive, send: Send) -> None:
        self._shared = shared
        self._scope: Scope = {**scope, "method": "WEBSOCKET"}
        self._receive = receive
        self._send = send
        # One at a time: else all that wait for the client send at once, when it has read a little.
        self._sending = asyncio.Lock()
        self._events = shared.app.events
        self._followed: dict[str, Followed] = {}
        self._feeding: set[asyncio.Task[None]] = set()  # also of channels whose end is being sent
        self._login_ended = asyncio.Event()
        self._pass_channels: tuple[str, ...] | None = None  # the only ones, if it has a pass

    async def run(self) -> None:
        """Serve the client until it goes, or is told to come back."""
        await self._receive()  # websocket.connect
        try:
            self._check_origin()
            self._scope, self._pass_channels = await self._shared.redeemed(self._scope)
            await self._authenticated()
        except Exception as error:  # noqa: BLE001 - before it is accepted, every error is a refusal
            await self._close(REFUSED, refusal(error).code)
            return
        await self._send({"type": "websocket.accept"})
        with self._shared.metrics.connected(DOOR):
            await self._serve()

    async def _serve(self) -> None:
        """Read what the client sends, until it goes or its time ends."""
        self._shared.live.add(self)
        timing = asyncio.create_task(self._time())
        closing = asyncio.create_task(self._shared.closing.wait())
        reading = asyncio.create_task(self._read())
        login = asyncio.create_task(self._login_ended.wait())
        ends = (timing, closing, reading, login)
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if login.done():
                await self._close(LOGIN_AGAIN, "invalid_token")
            elif not reading.done():
                await self._say_bye(reading)
        finally:
            self._shared.live.discard(self)
            tasks = (*ends, *self._feeding)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _check_origin(self) -> None:
        """Refuse pages of other sites: for WebSockets a browser asks no permission before."""
        headers: dict[bytes, bytes] = dict(self._scope["headers"])
        origin = headers.get(b"origin")
        if origin is None:
            return  # not a page
        host = headers.get(b"host", b"")
        is_same = origin.partition(b"://")[2] == host
        if not is_same and not self._shared.origins & {str(origin, "latin-1"), "*"}:
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
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE):
                await self._text(frames.bye()[0])
                await asyncio.wait((reading,))
        await self._close(GOING_AWAY, "going_away")

    async def _close(self, code: int, reason: str) -> None:
        # It may be closed already, or the client may not read.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(LEAVE):
                await self._send({"type": "websocket.close", "code": code, "reason": reason})

    async def _text(self, text: str) -> None:
        async with self._sending:
            await self._send({"type": "websocket.send", "text": text})

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
            case AckFrame() as asked:
                place = await self._ack(asked)
                return None if frame.id is None else frames.ok(frame.id, cursor=place)
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
        await self._authenticated(token)
        return frames.ok(frame.id, beat=BEAT)

    async def _publish(self, frame: ClientFrame, asked: Publish) -> str:
        await self._require("publish", asked.channel)
        new = [NewEvent(each.payload, each.type, each.key, each.headers) for each in asked.events]
        stored = await self._events.apublish_many(asked.channel, new)
        self._shared.metrics.published(DOOR, len(stored))
        return frames.ok(frame.id, cursors=[event.cursor for event in stored])

    async def _subscribe(self, frame: ClientFrame, asked: Subscribe) -> None:
        name = asked.channel
        if name in self._followed:
            msg = f"channel {name!r} is subscribed to already; unsubscribe first"
            raise Invalid(msg)
        if len(self._followed) >= MOST_CHANNELS:
            msg = f"{MOST_CHANNELS:,} channels are the most of one connection; open another one"
            raise Invalid(msg)
        if asked.generation is not None and asked.consumer is None:
            msg = "a `generation` is that of a `consumer`; name it"
            raise Invalid(msg)
        request = await self._require("subscribe", name)
        follow = partial(
            self._events.follow,
            name,
            types=asked.types,
            consumer=asked.consumer,
            owner=None if asked.consumer is None else request.consumer_owner(name),
            generation=asked.generation,
            consuming=RemoteConsuming,
        )
        match asked.start:
            case StartAt(last=last, since=since):
                subscription = await follow(last=last, since=since)
            case after:
                subscription = await follow(after)
        consuming = subscription.consuming
        try:
            # A cursor that cannot go on is refused here, and not after the answer.
            page = await self._events.aread(name, subscription.cursor, limit=1)
            subscription.begin(page.after)  # what is told and what is read are one place
            told: dict[str, Any] = {"channel": name, "cursor": subscription.cursor}
            if isinstance(consuming, RemoteConsuming):
                told["generation"] = consuming.generation
            await self._text(frames.ok(frame.id, **told, oldest=page.oldest, head=page.head))
        except BaseException:
            subscription.close()
            raise
        is_current = not page.events
        feeding = asyncio.create_task(self._feed(request, subscription, is_current=is_current))
        self._followed[name] = Followed(feeding, consuming)
        self._feeding.add(feeding)
        feeding.add_done_callback(partial(self._left, name))

    def _left(self, name: str, feeding: "asyncio.Task[None]") -> None:
        """Note that a channel is not fed any more; the client may have subscribed to it again."""
        self._feeding.discard(feeding)
        if name in self._followed and self._followed[name].feeding is feeding:
            del self._followed[name]

    async def _ack(self, asked: AckFrame) -> str:
        followed = self._followed.get(asked.channel)
        if followed is None or not isinstance(followed.consuming, RemoteConsuming):
            msg = f"channel {asked.channel!r} is not subscribed to as a consumer"
            raise Invalid(msg)
        request = await self._require("subscribe", asked.channel)
        owner = request.consumer_owner(asked.channel)
        return await followed.consuming.upto_by_client(asked.cursor, asked.generation, owner)

    async def _unsubscribe(self, name: str) -> None:
        followed = self._followed.pop(name, None)
        if followed is None:
            msg = f"channel {name!r} is not subscribed to"
            raise Invalid(msg)
        followed.feeding.cancel()
        await asyncio.wait((followed.feeding,))  # nothing of it comes behind the answer

    async def _feed(
        self, request: Request, subscription: Subscription, *, is_current: bool
    ) -> None:
        """Send what a channel has, then what comes, to its end."""
        telling = feed(request, subscription, DOOR, is_current=is_current)
        counted = self._shared.metrics.subscribed(DOOR)
        with counted, contextlib.suppress(OSError):  # the client is gone
            async with subscription, contextlib.aclosing(telling):
                await self._all_sent()
                async for told in telling:
                    if told.is_last:  # a client that has read it may subscribe again at once
                        self._followed.pop(subscription.channel, None)
                    await self._text(told.text)
                    await self._all_sent()
                    if told.login_ended:
                        self._login_ended.set()

    async def _all_sent(self) -> None:
        """Wait until no frame waits for a slow client: nothing more is read before that."""
        async with self._sending:
            pass

    async def _require(self, verb: ChannelVerb, name: str) -> Request:
        """Refuse a client that may not do this to a channel, by the rules of this moment."""
        request = await self._authenticated()
        request.refuse_if_closed()
        await request.require_channel(verb, name)
        return request
