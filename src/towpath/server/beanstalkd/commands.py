"""The commands: each is a call of the app and a reply in beanstalkd's format."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct

from towpath.errors import Conflict, LimitReached, NotFound, TowpathError
from towpath.model.payload import raw_bytes
from towpath.model.states import State
from towpath.model.subscriptions import REPLAY
from towpath.server.beanstalkd import stats
from towpath.server.beanstalkd.tubes import topic_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from towpath.app.checks import EnqueueOptions
    from towpath.model.delay_queue import JobAt
    from towpath.model.job import Job, Lease
    from towpath.server.beanstalkd.connection import ClientConnection
    from towpath.server.beanstalkd.protocol import ClientCommand

log: Final = logging.getLogger("towpath")

T = TypeVar("T")

NOT_FOUND: Final = b"NOT_FOUND\r\n"
DRAINING: Final = b"DRAINING\r\n"
TIMED_OUT: Final = b"TIMED_OUT\r\n"
DEADLINE_SOON: Final = b"DEADLINE_SOON\r\n"
OUT_OF_MEMORY: Final = b"OUT_OF_MEMORY\r\n"

SOON: Final = 1.0  # seconds before a reservation ends
LONGEST: Final = 36_500 * 86_400  # seconds; longer durations are cut to this
MOST_ID: Final = 2**63 - 1
MOST_KICKS: Final = 2**31 - 1
MOST_RESERVED: Final = 100  # jobs at once
MOST_KICKED: Final = 1_000  # in one transaction
MOST_WATCHED: Final = 1_000  # tubes, by one connection
FINISHED: Final = frozenset({State.COMPLETED, State.CANCELLED})
BATCHED: Final = frozenset({"put", "delete", "reserve"})  # pipelined ones are answered in one call


class WantedJobs(Struct, frozen=True):
    """The jobs that a connection asks for in one `reserve`."""

    topics: tuple[str, ...]
    most: int


async def answer(
    connection: ClientConnection, batch: Sequence[ClientCommand]
) -> list[bytes] | None:
    """Answer commands of one kind, at least the first of them; return None for `quit`."""
    verb = batch[0].verb
    if verb == "put":
        return await put(connection, batch)
    if verb == "delete":
        return await delete(connection, batch)
    if verb == "reserve":
        return await reserve(connection, min(len(batch), connection.server.most_reserved), None)
    if verb == "quit":
        return None
    return [await _HANDLERS[verb](connection, batch[0])]


async def put(connection: ClientConnection, batch: Sequence[ClientCommand]) -> list[bytes]:
    """Store jobs, up to the first one that a limit refuses."""
    connection.is_producer = True
    if connection.server.draining:
        return [DRAINING] * len(batch)
    replies: list[bytes] = []
    size = len(batch)
    while len(replies) < len(batch):
        try:
            replies += await _put(connection, batch[len(replies) : len(replies) + size])
        except LimitReached as error:
            size //= 2
            if size == 0:
                log.warning("beanstalkd command put: %s", error)
                return replies + [OUT_OF_MEMORY] * (len(batch) - len(replies))
        except TowpathError:
            if not replies:
                raise
            break  # the stored ones are answered; the rest of the batch is tried again
    return replies


async def _put(connection: ClientConnection, batch: Sequence[ClientCommand]) -> list[bytes]:
    server = connection.server
    topic = _topic(connection.tube)
    calls = [(topic, command.body, _options(command)) for command in batch]
    stored = await server.app.jobs.aenqueue_all(calls)
    server.total_jobs += len(stored)
    server.tube(connection.tube).total_jobs += len(stored)
    return [b"INSERTED %d\r\n" % job.seq for job in stored]


def _options(command: ClientCommand) -> EnqueueOptions:
    priority, delay, ttr = command.numbers
    options: EnqueueOptions = {"priority": priority, "ttr": max(1, min(ttr, LONGEST))}
    if delay:
        options["delay"] = min(delay, LONGEST)
    return options


async def use(connection: ClientConnection, command: ClientCommand) -> bytes:
    """Choose the tube of later puts, peeks and kicks."""
    await connection.server.forget_if_gone(command.tube)
    connection.server.tube(connection.tube).using -= 1
    connection.tube = command.tube
    connection.server.tube(connection.tube).using += 1
    return b"USING %b\r\n" % command.tube.encode()


async def reserve(connection: ClientConnection, limit: int, timeout: int | None) -> list[bytes]:
    """Reserve up to `limit` ready jobs; if there is none, wait for one."""
    connection.is_worker = True
    jobs, session = connection.server.app.jobs, connection.server.session
    topics = tuple(_topic(tube) for tube in connection.watched)
    end = float("inf") if timeout is None else time.monotonic() + timeout
    leases = await connection.server.reserve(WantedJobs(topics, limit))
    while not leases:
        connection.expire()
        now, soon = time.monotonic(), connection.ends_at() - SOON
        if now >= soon:
            return [DEADLINE_SOON]
        if now >= end or connection.ended:
            return [TIMED_OUT]
        wait = min(end, soon, now + LONGEST) - now
        leases = await connection.wait_for(
            jobs.areserve(topics, limit=1, session=session, expires=True, timeout=wait)
        )
    for lease in leases:
        connection.hold(lease)
    return [_with_body(b"RESERVED", lease.job) for lease in leases]


async def reserve_with_timeout(connection: ClientConnection, command: ClientCommand) -> bytes:
    """Reserve a job; wait for one up to the given time."""
    return (await reserve(connection, 1, command.numbers[0]))[0]


async def reserve_job(connection: ClientConnection, command: ClientCommand) -> bytes:
    """Reserve the job of this number, unless it is reserved already."""
    found = await _find(connection, command.numbers[0])
    if found is None:
        return NOT_FOUND
    lease = await connection.server.app.queues.apick(found.job.seq, connection.server.session)
    connection.is_worker = True
    connection.hold(lease)
    return _with_body(b"RESERVED", lease.job)


async def delete(connection: ClientConnection, batch: Sequence[ClientCommand]) -> list[bytes]:
    """Delete jobs that this connection has reserved, or that are not reserved.

    After an error the jobs that were deleted before it are answered, and the rest is tried again.
    """
    replies: list[bytes] = []
    try:
        while len(replies) < len(batch):
            replies += await _delete_some(connection, batch[len(replies) :])
    except TowpathError:
        if not replies:
            raise
    return replies


async def _delete_some(connection: ClientConnection, batch: Sequence[ClientCommand]) -> list[bytes]:
    """Delete the leading jobs that this connection has reserved, or one that is not reserved."""
    reserved: dict[int, Lease] = {}
    for command in batch:
        number = command.numbers[0]
        lease = connection.held(number)
        if lease is None or number in reserved:
            break
        reserved[number] = lease
    if not reserved:
        return [await _delete_unreserved(connection, batch[0].numbers[0])]
    results = await connection.server.delete(list(reserved.values()))
    replies: list[bytes] = []
    for lease, is_deleted in zip(reserved.values(), results, strict=True):
        connection.forget(lease.job.seq)
        replies.append(_deleted(connection, lease.job) if is_deleted else NOT_FOUND)
    return replies


async def _delete_unreserved(connection: ClientConnection, number: int) -> bytes:
    try:
        found = await _find(connection, number)
        if found is None:
            return NOT_FOUND
        await connection.server.app.jobs.adelete(found.job.id)
    except (NotFound, Conflict):
        return NOT_FOUND
    return _deleted(connection, found.job)


def _deleted(connection: ClientConnection, job: Job) -> bytes:
    connection.server.tube(stats.tube_name(job.topic)).deletes += 1
    return b"DELETED\r\n"


async def release(connection: ClientConnection, command: ClientCommand) -> bytes:
    """Give a reserved job back."""
    number, priority, delay = command.numbers
    lease = connection.held(number)
    if lease is None:
        return NOT_FOUND
    releasing = connection.server.app.jobs.arelease(lease, min(delay, LONGEST), priority)
    await _with_lease(connection, number, releasing)
    connection.forget(number)
    return b"RELEASED\r\n"


async def bury(connection: ClientConnection, command: ClientCommand) -> bytes:
    """Bury a reserved job."""
    number, priority = command.numbers
    lease = connection.held(number)
    if lease is None:
        return NOT_FOUND
    await _with_lease(connection, number, connection.server.app.jobs.abury(lease, priority))
    connection.forget(number)
    return b"BURIED\r\n"


async def touch(connection: ClientConnection, command: ClientCommand) -> bytes:
    """Restart the time of a reservation."""
    number = command.numbers[0]
    lease = connection.held(number)
    if lease is None:
        return NOT_FOUND
    touching = connection.server.app.jobs.atouch(lease)
    connection.hold(await _with_lease(connection, number, touching))
    return b"TOUCHED\r\n"


async def _with_lease(connection: ClientConnection, number: int, call: Awaitable[T]) -> T:
    """Await a call that presents a lease; forget the reservation if the lease is lost."""
    try:
        return await call
    except (NotFound, Conflict):
        connection.forget(number)
        raise


async def watch(connection: ClientConnection, command: ClientCommand) -> bytes:
    """Let later reserves take jobs of this tube too."""
    if command.tube not in connection.watched:
        if len(connection.watched) >= MOST_WATCHED:
            return OUT_OF_MEMORY
        await connection.server.forget_if_gone(command.tube)
        connection.watched[command.tube] = None
        connection.server.tube(command.tube).watching += 1
    return b"WATCHING %d\r\n" % len(connection.watched)


async def ignore(connection: ClientConnection, command: ClientCommand) -> bytes:
    """Let later reserves take no jobs of this tube."""
    if command.tube in connection.watched:
        if len(connection.watched) == 1:
            return b"NOT_IGNORED\r\n"
        del connection.watched[command.tube]
        connection.server.tube(command.tube).watching -= 1
    return b"WATCHING %d\r\n" % len(connection.watched)


async def peek(connection: ClientConnection, command: ClientCommand) -> bytes:
    """Show a job."""
    found = await _find(connection, command.numbers[0])
    return _with_body(b"FOUND", found.job) if found else NOT_FOUND


async def peek_next(connection: ClientConnection, command: ClientCommand) -> bytes:
    """Show the next ready, delayed or buried job of the used tube."""
    app, topic = connection.server.app, _topic(connection.tube)
    await app.queues.acome_due(topic)
    job = await app.jobs.apeek(topic, command.verb.removeprefix("peek-"))
    return _with_body(b"FOUND", job) if job else NOT_FOUND


async def kick(connection: ClientConnection, command: ClientCommand) -> bytes:
    """Make buried jobs of the used tube ready; if there are none, delayed ones."""
    app, topic = connection.server.app, _topic(connection.tube)
    left, kicked = min(command.numbers[0], MOST_KICKS), 0
    await app.queues.acome_due(topic)
    buried = await app.jobs.apeek(topic, "buried")
    while left and (not buried or not kicked or await app.jobs.apeek(topic, "buried")):
        moved = await app.jobs.akick(topic, min(left, MOST_KICKED))
        kicked, left = kicked + moved, left - moved
        if moved == 0:
            break
    return b"KICKED %d\r\n" % kicked


async def kick_job(connection: ClientConnection, command: ClientCommand) -> bytes:
    """Make one buried or delayed job ready."""
    found = await _find(connection, command.numbers[0])
    if found is None:
        return NOT_FOUND
    await connection.server.app.jobs.akick_job(found.job.id)
    return b"KICKED\r\n"


async def pause_tube(connection: ClientConnection, command: ClientCommand) -> bytes:
    """Let no job of a tube be reserved for some seconds."""
    server, seconds = connection.server, min(command.numbers[0], LONGEST)
    if await server.counts(command.tube) is None:
        return NOT_FOUND
    await server.app.topics.apause(_topic(command.tube), seconds, create=True)
    tube = server.tube(command.tube)
    tube.pauses += 1
    tube.pause = seconds
    return b"PAUSED\r\n"


async def list_tubes(connection: ClientConnection, _: ClientCommand) -> bytes:
    """List all tubes."""
    return stats.listed(await connection.server.tubes())


async def list_tubes_watched(connection: ClientConnection, _: ClientCommand) -> bytes:
    """List the tubes that the connection watches."""
    return stats.listed(connection.watched)


async def list_tube_used(connection: ClientConnection, _: ClientCommand) -> bytes:
    """Name the tube that the connection uses."""
    return b"USING %b\r\n" % connection.tube.encode()


async def stats_job(connection: ClientConnection, command: ClientCommand) -> bytes:
    """Show the statistics of a job."""
    found = await _find(connection, command.numbers[0])
    return stats.of_job(found) if found else NOT_FOUND


async def stats_tube(connection: ClientConnection, command: ClientCommand) -> bytes:
    """Show the statistics of a tube."""
    counts = await connection.server.counts(command.tube)
    return stats.of_tube(connection.server, command.tube, counts) if counts else NOT_FOUND


async def stats_all(connection: ClientConnection, _: ClientCommand) -> bytes:
    """Show the statistics of the server."""
    return await stats.of_server(connection.server)


def _topic(tube: str) -> str:
    return topic_of(tube) or tube  # the parser refuses a tube without a topic


async def _find(connection: ClientConnection, number: int) -> JobAt | None:
    """Read an unfinished job; move it first if its delay or its reservation has ended."""
    queues = connection.server.app.queues
    connection.expire()
    found = await queues.alook(number) if number <= MOST_ID else None
    if found is not None and found.state is not found.job.state:
        await queues.acome_due(found.job.topic)
        found = await queues.alook(number)
    is_hidden = found is None or found.job.state in FINISHED or found.job.topic == REPLAY
    return None if is_hidden else found


def _with_body(word: bytes, job: Job) -> bytes:
    body = raw_bytes(job.body, job.encoding)
    return b"%b %d %d\r\n%b\r\n" % (word, job.seq, len(body), body)


_HANDLERS: Final[Mapping[str, Callable[[ClientConnection, ClientCommand], Awaitable[bytes]]]] = {
    "use": use,
    "reserve-with-timeout": reserve_with_timeout,
    "reserve-job": reserve_job,
    "release": release,
    "bury": bury,
    "touch": touch,
    "watch": watch,
    "ignore": ignore,
    "peek": peek,
    "peek-ready": peek_next,
    "peek-delayed": peek_next,
    "peek-buried": peek_next,
    "kick": kick,
    "kick-job": kick_job,
    "pause-tube": pause_tube,
    "list-tubes": list_tubes,
    "list-tubes-watched": list_tubes_watched,
    "list-tube-used": list_tube_used,
    "stats-job": stats_job,
    "stats-tube": stats_tube,
    "stats": stats_all,
}
