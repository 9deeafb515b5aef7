"""The words of a worker in any language: reserve, and what is said with a lease."""

import asyncio
import contextlib
import hashlib
import math
import time
from typing import Final
from uuid import UUID

import msgspec

from towpath.errors import InvalidPayload, TowpathError
from towpath.model.job import Lease
from towpath.server.inputs import (
    Buried,
    Completed,
    Failed,
    JobOutputInput,
    Released,
    Touched,
    Wanted,
)
from towpath.server.outputs import Leases, TouchedLease, lease_shown
from towpath.server.request import Request
from towpath.server.routes import Routes

routes: Final = Routes("work")
LOST: Final = ("lease_lost",)
PORTION: Final = 100  # jobs that are reserved together
MOST_BYTES: Final = 16 * 2**20  # of payloads in one answer, and those of one more portion
HEARD: Final = 3  # times in `dead_after`, a worker that asks for jobs is noted
MOST_HEARD: Final = 10_000  # workers of which the last note is remembered
MOST_NOTES: Final = 2 * 2**20  # bytes: the largest event, and as much beside it


@routes.post("/api/jobs/reserve", errors=("too_many_waiters",))
async def reserve(request: Request, body: Wanted) -> Leases:
    """Lease jobs, most urgent first; wait for one if there is none.

    They may be fewer than `limit` though more are ready, where their payloads are large. A lease
    lives until `until`, unless it is touched. A client that goes away while it waits leaves
    nothing reserved.
    """
    for topic in body.topics:
        request.require("work", topic)
    leases = await request.unless_gone(_heard(request, body))
    if request.is_gone:  # at the very moment that a job came
        await asyncio.gather(*map(request.app.jobs.arelease, leases or ()))
    elif leases and body.timeout:
        await _check_again(request, body, leases)
    return Leases(leases=[lease_shown(lease) for lease in leases or ()])


@routes.post(
    "/api/jobs/{id}/complete",
    status=204,
    errors=(*LOST, "invalid_payload", "payload_too_large"),
)
async def complete(request: Request, id: UUID, body: Completed) -> None:
    """Finish a job."""
    try:
        result = msgspec.json.decode(body.result)
    except (ValueError, RecursionError) as error:
        msg = f"the result is not JSON: {error}"
        raise InvalidPayload(msg) from None
    await request.app.jobs.acomplete(await _lease(request, id, body.epoch), result)


@routes.post("/api/jobs/{id}/fail", status=204, errors=LOST)
async def fail(request: Request, id: UUID, body: Failed) -> None:
    """Say that this try failed: the job backs off, or is buried if it was the last."""
    lease = await _lease(request, id, body.epoch)
    await request.app.jobs.afail(lease, body.error, body.delay, traceback=body.traceback)


@routes.post("/api/jobs/{id}/release", status=204, errors=LOST)
async def release(request: Request, id: UUID, body: Released) -> None:
    """Give a job back, uncounted."""
    lease = await _lease(request, id, body.epoch)
    await request.app.jobs.arelease(lease, body.delay, body.priority)


@routes.post("/api/jobs/{id}/bury", status=204, errors=LOST)
async def bury(request: Request, id: UUID, body: Buried) -> None:
    """Put a job aside as failed, until somebody kicks, requeues or deletes it."""
    lease = await _lease(request, id, body.epoch)
    await request.app.jobs.abury(lease, body.priority, error=body.error)


@routes.post("/api/jobs/{id}/touch", errors=LOST)
async def touch(request: Request, id: UUID, body: Touched) -> TouchedLease:
    """Extend a lease by its ttr, from now."""
    touched = await request.app.jobs.atouch(await _lease(request, id, body.epoch))
    return TouchedLease(
        epoch=touched.epoch,
        until=touched.until,
        cancel_requested=touched.job.cancel_requested,
    )


@routes.post(
    "/api/jobs/{id}/notes",
    status=204,
    most=MOST_NOTES,
    errors=(*LOST, "invalid_payload", "payload_too_large"),
)
async def say(request: Request, id: UUID, body: JobOutputInput) -> None:
    """Keep what a run says of itself: how far it is, lines and events.

    The same again, with the same `said`, is kept once. Of very many, the oldest are dropped.
    """
    await request.app.jobs.asay(
        await _lease(request, id, body.epoch),
        said=body.said,
        progress=body.progress,
        message=body.message,
        lines=body.lines,
        events=body.events,
    )


async def _heard(request: Request, wanted: Wanted) -> list[Lease]:
    """Reserve; note a worker that has a name, at once and while it waits."""
    if wanted.worker is None:
        return await _reserved(request, wanted)
    await _hear(request, wanted.worker, wanted.topics)
    noting = asyncio.create_task(_keep_hearing(request, wanted.worker, wanted.topics))
    try:
        return await _reserved(request, wanted)
    finally:
        noting.cancel()


async def _keep_hearing(request: Request, worker: str, topics: list[str]) -> None:
    while True:
        await asyncio.sleep(request.app.settings.dead_after / HEARD)
        with contextlib.suppress(TowpathError):  # its next request is noted, or fails
            await _hear(request, worker, topics)


async def _hear(request: Request, worker: str, topics: list[str]) -> None:
    """Note that a worker asks for jobs: seldom, so that an empty poll costs no write."""
    heard, now = request.shared.heard, time.monotonic()
    if now - heard.get(worker, -math.inf) < request.app.settings.dead_after / HEARD:
        return
    if len(heard) >= MOST_HEARD:
        heard.clear()
    heard[worker] = now
    await request.app.sessions.ahear(worker, topics)


async def _reserved(request: Request, wanted: Wanted) -> list[Lease]:
    """Reserve in portions, until there are enough payloads for one answer."""
    leases: list[Lease] = []
    size, timeout = 0, wanted.timeout
    try:
        while True:
            limit = min(PORTION, wanted.limit - len(leases))
            portion = await request.app.jobs.areserve(
                wanted.topics,
                limit=limit,
                timeout=timeout,
                token=None if wanted.token is None else _token(request, wanted, len(leases)),
                worker=wanted.worker,
            )
            leases += portion
            size += sum(len(lease.job.body) for lease in portion)
            if len(portion) < limit or len(leases) == wanted.limit or size >= MOST_BYTES:
                return leases
            timeout = 0
    except BaseException:
        await asyncio.gather(*map(request.app.jobs.arelease, leases))
        raise


async def _check_again(request: Request, wanted: Wanted, leases: list[Lease]) -> None:
    """Give back what came to somebody who has waited, and may no longer."""
    try:
        now = await request.shared.enter(request.scope, request.receive, is_open=False)
        now.refuse_if_closed()
        for topic in wanted.topics:
            now.require("work", topic)
    except BaseException:
        await asyncio.gather(*map(request.app.jobs.arelease, leases))
        raise


def _token(request: Request, wanted: Wanted, before: int) -> int:
    """Return the number of a caller's token: nobody else's, for no other topics or portion."""
    said = f"{request.caller.name}\0{' '.join(sorted(wanted.topics))}\0{wanted.token}\0{before}"
    return int.from_bytes(hashlib.sha256(said.encode()).digest()[:8], "big") >> 1


async def _lease(request: Request, id: UUID, epoch: int) -> Lease:
    """Return the lease that somebody says to hold; whether it does, the word itself will show."""
    return Lease(job=await request.job("work", id), epoch=epoch, until=None)
