"""The server: its connections, the tubes they use and watch, and its counters."""

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from towpath import App
from towpath.database.group_commit import COMPANY_TICKS, Policy
from towpath.database.task_lanes import TaskLanes
from towpath.errors import LeaseLost, TowpathError
from towpath.model.delay_queue import QueueCounts
from towpath.model.job import Lease
from towpath.operation import Batch, Operation, Steps
from towpath.server.beanstalkd.commands import MOST_RESERVED, WantedJobs
from towpath.server.beanstalkd.connection import ClientConnection
from towpath.server.beanstalkd.tubes import DEFAULT, topic_of, tube_of

log: Final = logging.getLogger("towpath")

MOST_BODY: Final = 65_535  # bytes, as beanstalkd has it
BACKLOG: Final = 1_024
MOST_PER_CALL: Final = 1_000  # jobs reserved by one call, for all connections
MOST_BYTES_PER_CALL: Final = 2**24  # of bodies, if each has the largest size
MOST_BYTES_RESERVED: Final = 2**20  # by one connection at once; buffered until the client reads
MOST_RELEASED: Final = 500  # reservations, in one transaction
RELEASE_EVERY: Final = 1.0  # seconds between two attempts
MANY_TUBES: Final = 10_000  # beyond this, the counters of unused tubes are forgotten


class Tube(Struct):
    """The counters that this process keeps for a tube. Its jobs are in the database."""

    using: int = 0
    watching: int = 0
    waiting: int = 0
    total_jobs: int = 0
    deletes: int = 0
    pauses: int = 0
    pause: int = 0  # seconds, of the last pause

    @property
    def used(self) -> bool:
        """Whether a connection uses or watches the tube."""
        return bool(self.using or self.watching)


def _fit(size: int, each: int, most: int) -> int:
    """Return how many items of a size fit, at least 1."""
    return max(1, min(most, size // max(1, each)))


def _reservation(wanted: Sequence[WantedJobs]) -> Operation[list[list[Lease] | BaseException]]:
    """Return an operation that gathers in lanes; the server runs it, by verbs of the app."""
    return Operation("reserve", _no_steps, batch=Batch(wanted, _reservation))


def _no_steps() -> Steps[list[list[Lease] | BaseException]]:
    raise NotImplementedError


class BeanstalkdServer:
    """Serves beanstalkd's protocol for an app.

    Reservations belong to connections. They are leases of one session of this server, so that the
    jobs of a dead process become ready again, and they end at their ttr.
    """

    def __init__(self, app: App, *, name: str | None = None, most_body: int = MOST_BODY) -> None:
        self.app = app
        self.name = name or f"beanstalkd-{socket.gethostname()}-{os.getpid()}"
        self.most_body = min(most_body, app.settings.max_payload)
        self.session = 0
        self.draining = False
        self.id = secrets.token_hex(8)
        self.started_at = time.monotonic()
        self.connections: set[ClientConnection] = set()
        self.total_connections = 0
        self.total_jobs = 0
        self.timeouts = 0
        self.command_counts: Counter[str] = Counter()
        self.most_reserved = _fit(MOST_BYTES_RESERVED, self.most_body, MOST_RESERVED)
        self._most_per_call = _fit(MOST_BYTES_PER_CALL, self.most_body, MOST_PER_CALL)
        self._tubes: dict[str, Tube] = {}
        self._most_tubes = MANY_TUBES
        self._closing = False
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._heartbeat: asyncio.Task[None] | None = None
        # One reservation at a time, for all connections that ask meanwhile.
        policy = Policy(batch_size=MOST_PER_CALL, company_ticks=COMPANY_TICKS)
        self._reservations = TaskLanes(
            [self], lambda _, reservations, __: self._reserve_all(reservations), policy
        )

    async def start(self, *, alone: bool = False) -> None:
        """Start a session. With `alone`, end the sessions that dead servers of this name left."""
        if alone:
            for session in await self.app.sessions.alist():
                if session.worker == self.name:
                    await self.app.sessions.aend(session.session)
        self.session = await self.app.sessions.astart(self.name)
        self._heartbeat = asyncio.create_task(self._beat_forever())

    async def listen(self, bound: socket.socket) -> None:
        """Answer the clients that connect to a bound socket."""
        loop = asyncio.get_running_loop()
        make = loop.create_unix_server if bound.family == socket.AF_UNIX else loop.create_server
        self._servers.append(
            await make(lambda: ClientConnection(self), sock=bound, backlog=BACKLOG)
        )

    def drain(self) -> None:
        """Refuse every further `put`."""
        log.info("%s is draining: it refuses every further put", self.name)
        self.draining = True

    async def close(self) -> None:
        """Stop listening, close all connections and end the session."""
        self._closing = True
        for server in self._servers:
            server.close()
        while self.connections or self._tasks:
            for connection in self.connections:  # again: another may just have been accepted
                connection.abort()
            tasks = {*self._tasks, *(c.task for c in self.connections if c.task)}
            await (asyncio.wait(tasks) if tasks else asyncio.sleep(0))
        if self._heartbeat:
            self._heartbeat.cancel()
            await self.app.sessions.aend(self.session)

    async def _beat_forever(self) -> None:
        while True:
            await asyncio.sleep(self.app.settings.beat_every)
            try:
                await self._beat()
            except TowpathError as error:
                log.warning("%s: the heartbeat failed: %s", self.name, error)

    async def _beat(self) -> None:
        try:
            await self.app.sessions.abeat(self.session)
        except LeaseLost:
            log.warning("%s: the session was declared dead; starting another", self.name)
            self.session = await self.app.sessions.astart(self.name)

    def connected(self, connection: ClientConnection) -> None:
        """Count a new connection."""
        self.connections.add(connection)
        self.total_connections += 1
        self.tube(DEFAULT).using += 1
        self.tube(DEFAULT).watching += 1

    def disconnected(self, connection: ClientConnection, held: Sequence[Lease]) -> None:
        """Forget a connection and give its reservations back."""
        self.connections.discard(connection)
        self.tube(connection.tube).using -= 1
        for tube in connection.watched:
            self.tube(tube).watching -= 1
        if held:
            task = asyncio.create_task(self._give_back(held))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _give_back(self, held: Sequence[Lease]) -> None:
        """Give reservations back in short transactions; repeat until the database takes them."""
        left = held
        while left and not self._closing:  # the end of the session gives back the rest
            try:
                await self.app.queues.agive_back(left[:MOST_RELEASED])
            except TowpathError as error:
                log.warning("cannot give back %d reservations yet: %s", len(left), error)
                await asyncio.sleep(RELEASE_EVERY)
            else:
                left = left[MOST_RELEASED:]

    async def delete(self, leases: Sequence[Lease]) -> list[bool]:
        """Delete jobs; return for each whether its lease was valid."""
        lost = await self.app.queues.adelete_many(leases)
        refused = {(lease.job.seq, lease.epoch) for lease in lost}
        return [(lease.job.seq, lease.epoch) not in refused for lease in leases]

    async def reserve(self, wanted: WantedJobs) -> list[Lease]:
        """Reserve ready jobs without waiting, together with the other connections."""
        [result] = await self._reservations.arun(_reservation([wanted]))
        if isinstance(result, BaseException):
            raise result
        return result

    async def _reserve_all(self, reservations: Sequence[Operation[Any]]) -> list[Any]:
        return [await self._reserve(each.batch.items) for each in reservations]

    async def _reserve(self, wanted: Sequence[WantedJobs]) -> list[list[Lease] | BaseException]:
        """Reserve ready jobs without waiting: one call for all that want the same topics."""
        by_topics: dict[tuple[str, ...], list[int]] = {}
        for nth, each in enumerate(wanted):
            by_topics.setdefault(each.topics, []).append(nth)
        results: dict[int, list[Lease] | BaseException] = {}
        calls = (
            self._reserve_from(topics, [(nth, wanted[nth].most) for nth in numbers], results)
            for topics, numbers in by_topics.items()
        )
        await asyncio.gather(*calls)
        return [results[nth] for nth in range(len(wanted))]

    async def _reserve_from(
        self,
        topics: tuple[str, ...],
        wanted: Sequence[tuple[int, int]],
        results: dict[int, list[Lease] | BaseException],
    ) -> None:
        """Reserve jobs of these topics for each request, in order, until no more are ready."""
        left = list(wanted)
        while left:
            limit = min(sum(most for _, most in left), self._most_per_call)
            try:
                leases = await self.app.jobs.areserve(
                    topics, limit=limit, session=self.session, expires=True
                )
            except Exception as error:  # noqa: BLE001 - raised in the caller that waits for it
                results.update((nth, error) for nth, _ in left)
                return
            there_is_more = len(leases) == limit
            while left and (leases or not there_is_more):
                nth, most = left.pop(0)
                results[nth], leases[:most] = leases[:most], []

    def tube(self, name: str) -> Tube:
        """Return the counters of a tube, new ones if there are none."""
        found = self._tubes.get(name)
        if found is None:
            if len(self._tubes) >= self._most_tubes:
                self._tubes = {name: tube for name, tube in self._tubes.items() if tube.used}
                self._most_tubes = max(MANY_TUBES, 2 * len(self._tubes))
            found = self._tubes[name] = Tube()
        return found

    async def forget_if_gone(self, name: str) -> None:
        """Forget the counters of a tube that is empty and that no connection uses."""
        found = self._tubes.get(name)
        if found is None or found.used:
            return
        with contextlib.suppress(TowpathError):  # the counters are kept then
            if await self.counts(name) is None and not found.used:
                self._tubes.pop(name, None)

    def known(self, name: str) -> Tube:
        """Return the counters of a tube; zeros, not stored, if there are none."""
        return self._tubes.get(name) or Tube()

    async def tubes(self) -> Iterable[str]:
        """Return the names of the tubes that are used, watched or not empty, and the default."""
        names = {DEFAULT: None, **{name: None for name, tube in self._tubes.items() if tube.used}}
        for counts in await self.app.queues.acounts():
            tube = tube_of(counts.topic) if counts.jobs else None
            if tube is not None:
                names[tube] = None
        return names

    async def counts(self, tube: str) -> QueueCounts | None:
        """Count the jobs of a tube; None if the tube does not exist."""
        topic = topic_of(tube)
        found = await self.app.queues.acounts(topic) if topic else []
        if (found and found[0].jobs) or tube == DEFAULT or self.known(tube).used:
            none = QueueCounts(
                topic=topic or "",
                ready=0,
                urgent=0,
                delayed=0,
                reserved=0,
                buried=0,
                paused_for=None,
            )
            return found[0] if found else none
        return None
