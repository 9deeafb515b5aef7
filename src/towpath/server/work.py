"""The routes for workers in any language: reserve, and the calls that present a lease."""

import asyncio
import contextlib
import hashlib
import math
import time
from typing import Final
from uuid import UUID

import msgspec

from towpath.errors import InvalidPayload, TowpathError
from towpath.model.event import NewEvent
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
from towpath.server.outputs import Leases, SaidShown, TouchedLease, lease_shown
from towpath.server.request import Request
from towpath.server.routes import Routes

routes: Final = Routes("work")
LOST: Final = ("lease_lost",)
PORTION: Final = 100  # jobs per reservation
MOST_BYTES: Final = 16 * 2**20  # of payloads in one answer; the last portion may exceed it
NOTED_PER_DEAD_AFTER: Final = 3  # how often a worker that asks for jobs is stored
MOST_NOTED: Final = 10_000  # workers for which the time of the last write is kept
MOST_OUTPUT: Final = 2 * 2**20  # bytes: the largest event, and as much again


@routes.post("/api/jobs/reserve", errors=("too_many_waiters",))
async def reserve(request: Request, body: Wanted) -> Leases:
    """Reserve jobs, most urgent first; wait for one if none is ready.

    There may be fewer than `limit` if payloads are large, though more jobs are ready. A lease ends
    at `until` unless it is touched. A client that disconnects while it waits reserves nothing.
    """
    for topic in body.topics:
        request.require("work", topic)
    leases = await request.unless_disconnected(_reserve_and_note(request, body))
    if request.is_disconnected:  # in the same tick in which jobs were reserved
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
    """Complete a job."""
    try:
        result = msgspec.json.decode(body.result)
    except (ValueError, RecursionError) as error:
        msg = f"the result is not JSON: {error}"
        raise InvalidPayload(msg) from None
    await request.app.jobs.acomplete(await _lease(request, id, body.epoch), result)


@routes.post("/api/jobs/{id}/fail", status=204, errors=LOST)
async def fail(request: Request, id: UUID, body: Failed) -> None:
    """Report that this run failed: the job waits for its backoff, or is buried after the last."""
    lease = await _lease(request, id, body.epoch)
    await request.app.jobs.afail(lease, body.error, body.delay, traceback=body.traceback)


@routes.post("/api/jobs/{id}/release", status=204, errors=LOST)
async def release(request: Request, id: UUID, body: Released) -> None:
    """Give a job back; this does not count as a failure."""
    lease = await _lease(request, id, body.epoch)
    await request.app.jobs.arelease(lease, body.delay, body.priority)


@routes.post("/api/jobs/{id}/bury", status=204, errors=LOST)
async def bury(request: Request, id: UUID, body: Buried) -> None:
    """Bury a job: it counts as failed until it is kicked, requeued or deleted."""
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
    most=MOST_OUTPUT,
    errors=(*LOST, "words_missing", "invalid_payload", "payload_too_large"),
)
async def say(request: Request, id: UUID, body: JobOutputInput) -> SaidShown:
    """Store the progress of a run, its log lines, and the events of its job's stream.

    A repeated request stores nothing twice. If events before these are missing, nothing is stored.
    Of too many lines, the oldest are dropped.
    """
    said = await request.app.jobs.asay(
        await _lease(request, id, body.epoch),
        said=body.said,
        progress=body.progress,
        message=body.message,
        lines=body.lines,
        logged=body.logged,
        events=[NewEvent(word.payload, word.type) for word in body.events],
    )
    return SaidShown(said=said.said, cancel_requested=said.cancel_requested)


async def _reserve_and_note(request: Request, wanted: Wanted) -> list[Lease]:
    """Reserve jobs; store that a named worker asks for them, at once and while it waits."""
    if wanted.worker is None:
        return await _reserve(request, wanted)
    await _note(request, wanted.worker, wanted.topics)
    noting = asyncio.create_task(_keep_noting(request, wanted.worker, wanted.topics))
    try:
        return await _reserve(request, wanted)
    finally:
        noting.cancel()


async def _keep_noting(request: Request, worker: str, topics: list[str]) -> None:
    while True:
        await asyncio.sleep(request.app.settings.dead_after / NOTED_PER_DEAD_AFTER)
        with contextlib.suppress(TowpathError):  # the worker's next request tries it again
            await _note(request, worker, topics)


async def _note(request: Request, worker: str, topics: list[str]) -> None:
    """Store that a worker asks for jobs: seldom, so that an empty poll costs no write."""
    noted, now = request.shared.noted_workers, time.monotonic()
    pause = request.app.settings.dead_after / NOTED_PER_DEAD_AFTER
    if now - noted.get(worker, -math.inf) < pause:
        return
    if len(noted) >= MOST_NOTED:
        noted.clear()
    noted[worker] = now
    await request.app.sessions.ahear(worker, topics)


async def _reserve(request: Request, wanted: Wanted) -> list[Lease]:
    """Reserve in portions, until the payloads fill one answer."""
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
    """Release the leases if the caller lost its permission while it waited."""
    try:
        now = await request.shared.request(request.scope, request.receive, is_open=False)
        now.refuse_if_closed()
        for topic in wanted.topics:
            now.require("work", topic)
    except BaseException:
        await asyncio.gather(*map(request.app.jobs.arelease, leases))
        raise


def _token(request: Request, wanted: Wanted, before: int) -> int:
    """Return a number for a client's token, unique to its caller, topics and portion."""
    text = f"{request.caller.name}\0{' '.join(sorted(wanted.topics))}\0{wanted.token}\0{before}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


async def _lease(request: Request, id: UUID, epoch: int) -> Lease:
    """Return the lease that the caller claims; the call that presents it checks the epoch."""
    return Lease(job=await request.job("work", id), epoch=epoch, until=None)
