"""One connection: its commands are answered in order, and its reservations belong to it."""

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

MOST_BUFFERED: Final = 65_536  # bytes behind the command that is being answered
MOST_AT_ONCE: Final = 200  # commands of one kind, in one call
MOST_BYTES_AT_ONCE: Final = 2**20
MOST_PER_TURN: Final = 50  # answers, before the event loop serves other connections
CHECK_HANG_UP_EVERY: Final = 1.0  # seconds, while reading is paused
HANG_UP: Final = getattr(select, "POLLRDHUP", select.POLLHUP)
NEVER: Final = float("inf")
INTERNAL_ERROR: Final = b"INTERNAL_ERROR\r\n"


class HeldLease(Struct):
    """A reservation of a connection, and when it ends."""

    lease: Lease
    deadline: float


class ClientConnection(asyncio.Protocol):
    """The connection of one client."""

    def __init__(self, server: BeanstalkdServer) -> None:
        self.server = server
        self.tube = DEFAULT
        self.watched: dict[str, None] = {DEFAULT: None}
        self.is_producer = False
        self.is_worker = False
        self.is_waiting = False
        self.ended = False  # the client sends no more
        self.task: asyncio.Task[None] | None = None  # answers all commands
        self._held: dict[int, HeldLease] = {}
        self._soonest = NEVER  # no reservation ends before this time
        self._parser = Parser(server.most_body)
        self._transport: asyncio.Transport
        self._waiting: asyncio.Task[list[Lease]] | None = None
        self._idle: asyncio.Future[None] | None = None  # set while no command is left to answer
        self._read_all = False  # no more bytes will arrive
        self._paused = False  # reading is paused
        self._checks_hang_up = False
        self._writable: asyncio.Future[None] | None = None  # set while the client does not read

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to answer commands."""
        self._transport = transport  # type: ignore[assignment] # the transport of a stream
        sock = transport.get_extra_info("socket")
        if sock is not None:  # keepalive ends the reservations of a client that has vanished
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.server.connected(self)
        self.task = asyncio.create_task(self._answer_all())

    def data_received(self, data: bytes) -> None:
        """Buffer the data; pause reading while much of it is unanswered."""
        self._parser.feed(data)
        if self._idle is not None:
            self._resume_answering()
        elif len(self._parser) > MOST_BUFFERED and not self._paused:
            self._paused = True
            self._transport.pause_reading()
            if not self._checks_hang_up:
                self._check_hang_up()

    def eof_received(self) -> bool:
        """Answer the commands that have arrived, and end a waiting `reserve`."""
        self.ended = self._read_all = True
        self.stop_waiting()
        return self._idle is None or self._idle.done()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the reason is the same to us
        """End the answering task, which gives back the reservations."""
        self.ended = self._read_all = True
        self.stop_waiting()
        self.resume_writing()
        self._resume_answering()

    def pause_writing(self) -> None:
        """Stop answering until the client reads."""
        if self._writable is None:
            self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Go on answering."""
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def stop_waiting(self) -> None:
        """Cancel a waiting `reserve`."""
        if self._waiting is not None:
            self._waiting.cancel()

    def _check_hang_up(self) -> None:
        """End a waiting `reserve` if the client hangs up while reading is paused.

        The client may have closed only its sending half, so earlier commands are still answered.
        """
        self._checks_hang_up = self._paused and not self.ended and not self._transport.is_closing()
        if not self._checks_hang_up:
            return
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), HANG_UP)
        if poll.poll(0):
            self.ended = True
            self.stop_waiting()
        asyncio.get_running_loop().call_later(CHECK_HANG_UP_EVERY, self._check_hang_up)

    async def _answer_all(self) -> None:
        """Answer commands in order until the connection ends."""
        answered = 0
        try:
            while not self._transport.is_closing():
                read = self._parser.next()
                if read is None and self._read_all:
                    break
                if read is None:
                    await self._wait_for_data()
                    continue
                if self._writable is not None:
                    await self._writable
                reply = await self._answer(read)
                if reply is None or self._transport.is_closing():
                    break
                self._transport.write(reply)
                answered += 1
                if answered % MOST_PER_TURN == 0:  # most commands never yield to the event loop
                    await asyncio.sleep(0)
        finally:
            self._transport.close()
            self.expire()  # an expired reservation counts as a timeout and is not given back
            self.server.disconnected(self, [held.lease for held in self._held.values()])
            self._held.clear()

    async def _wait_for_data(self) -> None:
        """Wait for more bytes, or for the end of the connection."""
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        self._idle = asyncio.get_running_loop().create_future()
        try:
            await self._idle
        finally:
            self._idle = None

    def _resume_answering(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def _answer(self, command: Read) -> bytes | None:
        """Answer a command, together with those of its kind that follow it."""
        if isinstance(command, BadCommand):
            self.server.command_counts[command.verb] += 1
            return command.reply
        batch = [command]
        if command.verb in commands.BATCHED:
            batch += self._following(command)
        self.server.command_counts[command.verb] += 1
        try:
            replies = await commands.answer(self, batch)
        except (NotFound, Conflict):
            replies = [commands.NOT_FOUND] * len(batch)
        except (LimitReached, DatabaseFull) as error:
            log.warning("beanstalkd command %s: %s", command.verb, error)
            replies = [commands.OUT_OF_MEMORY] * len(batch)
        except TowpathError as error:
            log.warning("beanstalkd command %s: %s", command.verb, error)
            replies = [INTERNAL_ERROR] * len(batch)
        except Exception:  # one command must not end the connection
            log.exception("beanstalkd command %s", command.verb)
            replies = [INTERNAL_ERROR] * len(batch)
        if replies is None:
            return None
        self.server.command_counts[command.verb] += len(replies) - 1
        for unanswered in reversed(batch[len(replies) :]):
            self._parser.push_back(unanswered)
        return b"".join(replies)

    def _following(self, command: ClientCommand) -> list[ClientCommand]:
        """Return the commands of the same kind that have already arrived."""
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
        """Wait for jobs until the client hangs up."""
        self._waiting = asyncio.ensure_future(reserving)
        self.is_waiting = True
        for tube in self.watched:
            self.server.tube(tube).waiting += 1
        try:
            await asyncio.wait({self._waiting})
            return [] if self._waiting.cancelled() else self._waiting.result()
        finally:
            self._waiting = None
            self.is_waiting = False
            for tube in self.watched:
                self.server.tube(tube).waiting -= 1

    def hold(self, lease: Lease) -> None:
        """Remember a reservation, without the body of its job."""
        deadline = time.monotonic() + lease.job.ttr.total_seconds()
        before = self._held.get(lease.job.seq)
        if before and before.lease.epoch != lease.epoch:
            self.server.timeouts += 1  # the database's clock is ahead: it has ended the earlier one
        without_body = replace(lease, job=replace(lease.job, body=""))
        self._held[lease.job.seq] = HeldLease(without_body, deadline)
        self._soonest = min(self._soonest, deadline)

    def held(self, seq: int) -> Lease | None:
        """Return the reservation of a job, unless it has ended."""
        self.expire()
        held = self._held.get(seq)
        return held.lease if held else None

    def forget(self, seq: int) -> None:
        """Forget a reservation."""
        self._held.pop(seq, None)

    def expire(self) -> None:
        """Forget the reservations that have ended: other workers may have the jobs."""
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
        # `_soonest` may be the deadline of a reservation that was forgotten since.
        if self._soonest <= time.monotonic() + commands.SOON:
            self._soonest = min((held.deadline for held in self._held.values()), default=NEVER)
        return self._soonest
