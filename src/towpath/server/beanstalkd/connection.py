"""One connection: its commands are answered in order, and its reservations are its own."""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import time
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from towpath.errors import Conflict, DatabaseFull, LimitReached, NotFound, TowpathError
from towpath.server.beanstalkd import commands
from towpath.server.beanstalkd.protocol import BadCommand, ClientCommand, Parser, Read
from towpath.server.beanstalkd.tubes import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from towpath.model.job import Lease
    from towpath.server.beanstalkd.server import BeanstalkdServer

log: Final = logging.getLogger("towpath")

MOST_UNREAD: Final = 65_536  # bytes that wait behind a command
MOST_AT_ONCE: Final = 200  # commands of one kind
MOST_BYTES_AT_ONCE: Final = 2**20
MOST_IN_A_TURN: Final = 50  # answers, before others have theirs
HANG_UP_EVERY: Final = 1.0  # seconds between two looks for one who left while it is not read
GONE: Final = getattr(select, "POLLRDHUP", select.POLLHUP)
NEVER: Final = float("inf")
INTERNAL_ERROR: Final = b"INTERNAL_ERROR\r\n"


class Held(Struct):
    """A reservation, and when its time is over."""

    lease: Lease
    deadline: float


class ClientConnection(asyncio.Protocol):
    """A client, from its first byte to its last."""

    def __init__(self, server: BeanstalkdServer) -> None:
        self.server = server
        self.tube = DEFAULT
        self.watched: dict[str, None] = {DEFAULT: None}
        self.produces = False
        self.works = False
        self.waits = False
        self.ended = False  # the client says no more
        self.task: asyncio.Task[None] | None = None  # answers, from the first byte to the last
        self._held: dict[int, Held] = {}
        self._soonest = NEVER  # no reservation ends before
        self._parser = Parser(server.most_body)
        self._transport: asyncio.Transport
        self._waiting: asyncio.Task[list[Lease]] | None = None
        self._idle: asyncio.Future[None] | None = None  # while all that has come is answered
        self._read_all = False  # that the client has said
        self._paused = False  # reading
        self._looking = False  # for a hang-up, from time to time
        self._writable: asyncio.Future[None] | None = None  # while the client does not read

    # ------------------------------------------------------------ the protocol's events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to answer commands."""
        self._transport = transport  # type: ignore[assignment] # that of a stream
        line = transport.get_extra_info("socket")
        if line is not None:  # a client that has vanished is found out, and holds nothing then
            line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.server.entered(self)
        self.task = asyncio.create_task(self._answer_all())

    def data_received(self, data: bytes) -> None:
        """Read what has come; read no more while much of it waits."""
        self._parser.feed(data)
        if self._idle is not None:
            self._go_on()
        elif len(self._parser) > MOST_UNREAD and not self._paused:
            self._paused = True
            self._transport.pause_reading()
            if not self._looking:
                self._look_for_hang_up()

    def eof_received(self) -> bool:
        """Answer what was asked before; who waits for a job waits no more."""
        self.ended = self._read_all = True
        self.stop_waiting()
        return self._idle is None or self._idle.done()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - either way it is over
        """Give back what it held."""
        self.ended = self._read_all = True
        self.stop_waiting()
        self.resume_writing()
        self._go_on()

    def pause_writing(self) -> None:
        """Answer no more until the client has read."""
        if self._writable is None:
            self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Answer again."""
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def send_away(self) -> None:
        """End the connection from our side."""
        self._transport.abort()

    def stop_waiting(self) -> None:
        """Wait for no job any more."""
        if self._waiting is not None:
            self._waiting.cancel()

    def _look_for_hang_up(self) -> None:
        """Notice that the client says no more though it is not read: it waits for no job then.

        It may only have closed its half, and what it has said before is still to be answered.
        """
        self._looking = self._paused and not self.ended and not self._transport.is_closing()
        if not self._looking:
            return
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), GONE)
        if poll.poll(0):
            self.ended = True
            self.stop_waiting()
        asyncio.get_running_loop().call_later(HANG_UP_EVERY, self._look_for_hang_up)

    # ------------------------------------------------------------ answering

    async def _answer_all(self) -> None:
        """Answer all that comes, in order."""
        answered = 0
        try:
            while not self._transport.is_closing():
                read = self._parser.next()
                if read is None and self._read_all:
                    break
                if read is None:
                    await self._more()
                    continue
                if self._writable is not None:
                    await self._writable
                reply = await self._answer(read)
                if reply is None or self._transport.is_closing():
                    break
                self._transport.write(reply)
                answered += 1
                if answered % MOST_IN_A_TURN == 0:  # most commands do not wait for anything
                    await asyncio.sleep(0)
        finally:
            self._transport.close()
            self.expire()  # what is over is not given back, but taken back, and counted
            self.server.left(self, [held.lease for held in self._held.values()])
            self._held.clear()

    async def _more(self) -> None:
        """Wait for more to come."""
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        self._idle = asyncio.get_running_loop().create_future()
        try:
            await self._idle
        finally:
            self._idle = None

    def _go_on(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def _answer(self, command: Read) -> bytes | None:
        """Answer a command, and those of its kind behind it that can be done together."""
        if isinstance(command, BadCommand):
            self.server.asked[command.verb] += 1
            return command.reply
        run = [command]
        if command.verb in commands.TOGETHER:
            run += self._following(command)
        self.server.asked[command.verb] += 1
        try:
            replies = await commands.answer(self, run)
        except (NotFound, Conflict):
            replies = [commands.NOT_FOUND] * len(run)
        except (LimitReached, DatabaseFull) as error:
            log.warning("beanstalkd's %s: %s", command.verb, error)
            replies = [commands.OUT_OF_MEMORY] * len(run)
        except TowpathError as error:
            log.warning("beanstalkd's %s: %s", command.verb, error)
            replies = [INTERNAL_ERROR] * len(run)
        except Exception:  # one command must not end the connection
            log.exception("beanstalkd's %s", command.verb)
            replies = [INTERNAL_ERROR] * len(run)
        if replies is None:
            return None
        self.server.asked[command.verb] += len(replies) - 1
        for undone in reversed(run[len(replies) :]):
            self._parser.push_back(undone)
        return b"".join(replies)

    def _following(self, command: ClientCommand) -> list[ClientCommand]:
        found: list[ClientCommand] = []
        size = len(command.body)
        while len(found) < MOST_AT_ONCE and size < MOST_BYTES_AT_ONCE:
            following: Read | None = self._parser.next()
            if following is None:
                break
            if not isinstance(following, ClientCommand) or following.verb != command.verb:
                self._parser.push_back(following)
                break
            found.append(following)
            size += len(following.body)
        return found

    async def wait_for(self, reserving: Awaitable[list[Lease]]) -> list[Lease]:
        """Wait for jobs, until the client hangs up."""
        self._waiting = asyncio.ensure_future(reserving)
        self.waits = True
        for tube in self.watched:
            self.server.tube(tube).waiting += 1
        try:
            await asyncio.wait({self._waiting})
            return [] if self._waiting.cancelled() else self._waiting.result()
        finally:
            self._waiting = None
            self.waits = False
            for tube in self.watched:
                self.server.tube(tube).waiting -= 1

    # ------------------------------------------------------------ reservations

    def hold(self, lease: Lease) -> None:
        """Keep a reservation, without its body."""
        deadline = time.monotonic() + lease.job.ttr.total_seconds()
        before = self._held.get(lease.job.seq)
        if before and before.lease.epoch != lease.epoch:
            self.server.timeouts += 1  # the database's clock was ahead: it is the next reservation
        slim = replace(lease, job=replace(lease.job, body=""))
        self._held[lease.job.seq] = Held(slim, deadline)
        self._soonest = min(self._soonest, deadline)

    def held(self, seq: int) -> Lease | None:
        """Return a reservation whose time is not over."""
        self.expire()
        held = self._held.get(seq)
        return held.lease if held else None

    def let_go(self, seq: int) -> None:
        """Keep a reservation no more."""
        self._held.pop(seq, None)

    def expire(self) -> None:
        """Let go of reservations whose time is over: others may have the jobs."""
        now = time.monotonic()
        if now < self._soonest:
            return
        for seq, held in list(self._held.items()):
            if held.deadline <= now:
                del self._held[seq]
                self.server.timeouts += 1
        self._soonest = min((held.deadline for held in self._held.values()), default=NEVER)

    def ends_at(self) -> float:
        """Return when the first of its reservations ends."""
        if (
            self._soonest <= time.monotonic() + commands.SOON
        ):  # one that was let go may have been it
            self._soonest = min((held.deadline for held in self._held.values()), default=NEVER)
        return self._soonest
