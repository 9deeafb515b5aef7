"""The door: who is connected, what they use and watch, and what has been asked so far."""

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from towpath import App
from towpath.app.checks import EnqueueOptions
from towpath.errors import LeaseLost, TowpathError
from towpath.model.delay_queue import QueueCounts
from towpath.model.job import Job, Lease
from towpath.server.beanstalkd.commands import MOST_RESERVED, WantedJobs
from towpath.server.beanstalkd.connection import ClientConnection
from towpath.server.beanstalkd.together import Batcher
from towpath.server.beanstalkd.tubes import DEFAULT, topic_of, tube_of

log: Final = logging.getLogger("towpath")

MOST_BODY: Final = 65_535  # bytes, as beanstalkd has it
BACKLOG: Final = 1_024
MOST_TAKEN: Final = 1_000  # jobs, by one look,
MOST_BYTES_TAKEN: Final = 2**24  # and their bodies, if they are as large as they may be
MOST_BYTES_RESERVED: Final = 2**20  # by one connection at once: they wait until the client reads
MOST_GIVEN_BACK: Final = 500  # reservations, in one transaction
GIVE_BACK_EVERY: Final = 1.0  # seconds between two tries
MANY_TUBES: Final = 10_000  # of which is remembered what was done, though nobody uses them


class Tube(Struct):
    """What this process knows of a tube. What lies in it is known by the database."""

    using: int = 0
    watching: int = 0
    waiting: int = 0
    total_jobs: int = 0
    deletes: int = 0
    pauses: int = 0
    pause: int = 0  # seconds, of the last one

    @property
    def used(self) -> bool:
        """Whether a connection uses or watches it."""
        return bool(self.using or self.watching)


def _fit(size: int, each: int, most: int) -> int:
    return max(1, min(most, size // max(1, each)))


class BeanstalkdServer:
    """Speaks beanstalkd's protocol for an app.

    Reservations belong to connections. They are leases of one session, of this door, so that
    whatever a dead process held comes back; and they end at their ttr.
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
        self.asked: Counter[str] = Counter()
        self.most_reserved = _fit(MOST_BYTES_RESERVED, self.most_body, MOST_RESERVED)
        self._most_taken = _fit(MOST_BYTES_TAKEN, self.most_body, MOST_TAKEN)
        self._tubes: dict[str, Tube] = {}
        self._most_tubes = MANY_TUBES
        self._closing = False
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._beating: asyncio.Task[None] | None = None
        self.put: Batcher[tuple[str, object, EnqueueOptions], Job] = Batcher(app.jobs.aenqueue_all)
        self.delete: Batcher[Lease, bool] = Batcher(self._delete)
        self.take: Batcher[WantedJobs, list[Lease] | BaseException] = Batcher(self._take)

    async def start(self, *, alone: bool = False) -> None:
        """Begin a session. Who is alone with its database ends those that others have left."""
        if alone:
            for left in await self.app.sessions.alist():
                if left.worker == self.name:
                    await self.app.sessions.aend(left.session)
        self.session = await self.app.sessions.astart(self.name)
        self._beating = asyncio.create_task(self._beat())

    async def listen(self, bound: socket.socket) -> None:
        """Answer whoever connects to a bound socket."""
        loop = asyncio.get_running_loop()
        make = loop.create_unix_server if bound.family == socket.AF_UNIX else loop.create_server
        self._servers.append(
            await make(lambda: ClientConnection(self), sock=bound, backlog=BACKLOG)
        )

    def drain(self) -> None:
        """Take no more jobs."""
        log.info("%s takes no more jobs: it is draining", self.name)
        self.draining = True

    async def close(self) -> None:
        """Let nobody in any more, send everybody away, and end the session."""
        self._closing = True
        for server in self._servers:
            server.close()
        while self.connections or self._tasks:
            for connection in self.connections:  # also one that was let in just now
                connection.send_away()
            tasks = {*self._tasks, *(c.task for c in self.connections if c.task)}
            await (asyncio.wait(tasks) if tasks else asyncio.sleep(0))
        if self._beating:
            self._beating.cancel()
            await self.app.sessions.aend(self.session)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.app.settings.beat_every)
            try:
                await self._show_life()
            except TowpathError as error:
                log.warning("%s could not show that it lives: %s", self.name, error)

    async def _show_life(self) -> None:
        try:
            await self.app.sessions.abeat(self.session)
        except LeaseLost:
            log.warning("the session of %s was called dead; it begins another", self.name)
            self.session = await self.app.sessions.astart(self.name)

    # ------------------------------------------------------------ connections

    def entered(self, connection: ClientConnection) -> None:
        """Know a connection."""
        self.connections.add(connection)
        self.total_connections += 1
        self.tube(DEFAULT).using += 1
        self.tube(DEFAULT).watching += 1

    def left(self, connection: ClientConnection, held: Sequence[Lease]) -> None:
        """Forget a connection; what it held goes back into line."""
        self.connections.discard(connection)
        self.tube(connection.tube).using -= 1
        for tube in connection.watched:
            self.tube(tube).watching -= 1
        if held:
            task = asyncio.create_task(self._give_back(held))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _give_back(self, held: Sequence[Lease]) -> None:
        """Give back so many at once that others do not wait for long, as soon as that can be."""
        left = held
        while left and not self._closing:  # at the end, all that the session holds is given back
            try:
                await self.app.queues.agive_back(left[:MOST_GIVEN_BACK])
            except TowpathError as error:
                log.warning("%d reservations wait to be given back: %s", len(left), error)
                await asyncio.sleep(GIVE_BACK_EVERY)
            else:
                left = left[MOST_GIVEN_BACK:]

    async def _delete(self, leases: Sequence[Lease]) -> list[bool]:
        """Delete jobs; say of each whether its lease was good."""
        lost = await self.app.queues.adelete_many(leases)
        refused = {(lease.job.seq, lease.epoch) for lease in lost}
        return [(lease.job.seq, lease.epoch) not in refused for lease in leases]

    async def _take(self, wishes: Sequence[WantedJobs]) -> list[list[Lease] | BaseException]:
        """Reserve what there is: one look for all who watch the same; who asked first gets it."""
        alike: dict[tuple[str, ...], list[int]] = {}
        for nth, wish in enumerate(wishes):
            alike.setdefault(wish.topics, []).append(nth)
        given: dict[int, list[Lease] | BaseException] = {}
        looks = (
            self._look(topics, [(nth, wishes[nth].most) for nth in places], given)
            for topics, places in alike.items()
        )
        await asyncio.gather(*looks)
        return [given[nth] for nth in range(len(wishes))]

    async def _look(
        self,
        topics: tuple[str, ...],
        wanted: Sequence[tuple[int, int]],
        given: dict[int, list[Lease] | BaseException],
    ) -> None:
        """Give each of these so many jobs: look until all have some, or there are no more."""
        left = list(wanted)
        while left:
            limit = min(sum(most for _, most in left), self._most_taken)
            try:
                found = await self.app.jobs.areserve(
                    topics, limit=limit, session=self.session, expires=True
                )
            except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for it
                given.update((nth, error) for nth, _ in left)
                return
            there_is_more = len(found) == limit
            while left and (found or not there_is_more):
                nth, most = left.pop(0)
                given[nth], found[:most] = found[:most], []

    # ------------------------------------------------------------ tubes

    def tube(self, name: str) -> Tube:
        """Return what is known of a tube."""
        found = self._tubes.get(name)
        if found is None:
            if len(self._tubes) >= self._most_tubes:
                self._tubes = {name: tube for name, tube in self._tubes.items() if tube.used}
                self._most_tubes = max(MANY_TUBES, 2 * len(self._tubes))
            found = self._tubes[name] = Tube()
        return found

    async def begin_anew(self, name: str) -> None:
        """Forget what was done in a tube if it has vanished: nobody used it, and it is empty."""
        found = self._tubes.get(name)
        if found is None or found.used:
            return
        with contextlib.suppress(TowpathError):  # then its counters go on
            if await self.counts(name) is None and not found.used:
                self._tubes.pop(name, None)

    def known(self, name: str) -> Tube:
        """Return what is known of a tube, without remembering it."""
        return self._tubes.get(name) or Tube()

    async def tubes(self) -> Iterable[str]:
        """Name the tubes: those that are used or watched, or not empty, and the default one."""
        names = {DEFAULT: None, **{name: None for name, tube in self._tubes.items() if tube.used}}
        for counts in await self.app.queues.acounts():
            tube = tube_of(counts.topic) if counts.jobs else None
            if tube is not None:
                names[tube] = None
        return names

    async def counts(self, tube: str) -> QueueCounts | None:
        """Count the jobs of a tube; None if there is no such tube."""
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
