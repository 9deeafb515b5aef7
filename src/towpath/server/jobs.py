"""Jobs over HTTP: enqueue, read, and change without a lease."""

import contextlib
import re
from collections.abc import Generator, Iterable, Mapping
from typing import Any, Final, cast
from uuid import UUID

from towpath.app.checks import EnqueueOptions
from towpath.errors import Invalid, NotFound
from towpath.model.channels import stream_of
from towpath.model.ids import uuid7, uuid8_of
from towpath.model.job import Job, Lease
from towpath.server.bodies import Turns
from towpath.server.inputs import (
    CursorText,
    Epoch,
    Input,
    JobChangeInput,
    JobInput,
    NewJobs,
)
from towpath.server.listing import ListInput, jobs_for
from towpath.server.outputs import (
    BriefPage,
    FailureShown,
    Items,
    JobPage,
    JobShown,
    LineShown,
    RunShown,
    StreamShown,
    all_shown,
    job_shown,
    outlined,
    stream_shown,
)
from towpath.server.request import Request, for_rules
from towpath.server.routes import Answer, Routes

routes: Final = Routes("jobs")

MOST_BULK: Final = 16 * 2**20  # bytes of a request with many jobs
IDEMPOTENCY_KEY: Final = re.compile(rb"[!-~]{1,255}")
ENQUEUE_ERRORS: Final = ("job_exists", "max_jobs_reached", "max_topics_reached", "not_found")


class After(Input):
    """The cursor behind which the client reads on."""

    after: CursorText | None = None


class Holder(Input):
    """The epoch of a lease, given by its holder."""

    epoch: Epoch | None = None


@routes.post("/api/jobs/enqueue", status=201, errors=ENQUEUE_ERRORS)
async def enqueue(request: Request, body: JobInput) -> Answer[JobShown]:
    """Store a job.

    A repeated request with the same id or Idempotency-Key returns the same job. Status 200 means
    that an unfinished job of the topic holds the key; the answer is that job, without its payload
    and results unless the caller may manage it. Options that affect other jobs (limit, workers,
    onlyWorkers, a unique other than skip) require the right to manage the topic. `after` names jobs
    that the caller may manage; any other is answered as not found. If the server has the task of
    the topic, the payload is an object of its arguments, which are checked.
    """
    _require_enqueue(request, body, request.body)
    hidden = await _hidden(request, [body])
    payload, options = _as_task(request, body, hidden)
    key = request.headers.get(b"idempotency-key")
    if key is not None:
        options["id"] = _id_of(request, body, key)
    elif body.key is not None and body.id is None:
        options["id"] = uuid7()
    with _named_by_caller(hidden):
        job = await request.app.jobs.aenqueue(body.topic, payload, **options)
    if "id" in options and job.id != options["id"]:
        return Answer(_existing(request, job), 200)
    if request.caller.kind == "superuser":  # by hand; what users enqueue is their application's
        await request.acted("job.enqueued", job=job.id, topic=job.topic)
    return Answer(_stored(request, job))


@routes.post("/api/jobs/enqueue-many", status=201, most=MOST_BULK, errors=ENQUEUE_ERRORS)
async def enqueue_many(request: Request, body: NewJobs) -> Items[JobShown]:
    """Store jobs: all of them, or none. With an id for each job it can be repeated safely."""
    if b"idempotency-key" in request.headers:
        msg = "`Idempotency-Key` works for one job only; give each job an `id`"
        raise Invalid(msg)
    bodies: list[object] = cast("Any", for_rules(request.body))["jobs"] if request.is_ruled else []
    turns = Turns()
    for nth, new in enumerate(body.jobs):
        _require_enqueue(request, new, bodies[nth] if bodies else None)
        await turns.next()
    hidden = await _hidden(request, body.jobs)
    calls = [(new.topic, *_as_task(request, new, hidden)) for new in body.jobs]
    with _named_by_caller(hidden):
        jobs = await request.app.jobs.aenqueue_all(calls)
    if request.caller.kind == "superuser":
        await request.acted("job.enqueued", count=len(jobs))
    return Items(
        items=[
            _stored(request, job) if new.key is None else _existing(request, job)
            for new, job in zip(body.jobs, jobs, strict=True)
        ]
    )


async def _hidden(request: Request, new: Iterable[JobInput]) -> dict[UUID, UUID]:
    """Return a new id for each job in `after` that is hidden from the caller.

    With ids that no job has, the store treats hidden jobs like missing ones. It must decide: a job
    that is stored already ignores `after`, so that a missing job is no error.
    """
    if request.caller.kind == "superuser":
        return {}
    hidden: dict[UUID, UUID] = {}
    for id in {id: None for job in new for id in job.after or ()}:
        try:
            await request.job("manage", id)
        except NotFound:
            hidden[id] = uuid7()
    return hidden


@contextlib.contextmanager
def _named_by_caller(hidden: Mapping[UUID, UUID]) -> Generator[None]:
    """Let an error name a hidden job by the id that the caller gave."""
    try:
        yield
    except NotFound as error:
        text = str(error)
        for original, substitute in hidden.items():
            text = text.replace(str(substitute), str(original))
        raise NotFound(text) from None


def _as_task(
    request: Request, new: JobInput, hidden: Mapping[UUID, UUID]
) -> tuple[Any, EnqueueOptions]:
    """Return payload and options; the task of the topic checks them if the server has it."""
    options = cast("EnqueueOptions", new.options())
    if new.after is not None:
        options["after"] = [hidden.get(id, id) for id in new.after]
    task = request.app.tasks.for_call(new.topic, new.task)
    return (new.data(), options) if task is None else task.from_outside(new.arguments(), options)


def _require_enqueue(request: Request, new: JobInput, body: object) -> None:
    request.require_enqueue(new.topic, body)
    if request.is_ruled and (
        new.limit or new.workers or new.only_workers or new.unique not in {None, "skip"}
    ):
        request.require("manage", new.topic)


def _stored(request: Request, job: Job) -> JobShown:
    """Show a stored job; one that has been reserved was stored by an earlier request."""
    is_earlier = job.epoch or job.finished_at
    return _existing(request, job) if is_earlier else job_shown(job, request.redact)


def _existing(request: Request, job: Job) -> JobShown:
    """Show an existing job; only an outline unless the caller may manage it."""
    may_read = request.may("manage", job.topic, job)
    return job_shown(job, request.redact) if may_read else outlined(job)


@routes.get("/api/jobs")
async def list_jobs(request: Request, query: ListInput) -> JobPage | BriefPage:
    """Read a page of jobs, newest first.

    Only jobs that the caller may manage are listed. One request looks at no more than 50,000 jobs.
    So a page may be shorter than `limit`, or empty, if few jobs fit, many are hidden, or payloads
    are large. While `next` is not null, more jobs may follow. With `brief`, jobs come without their
    payloads, as a list for people shows them. With `count`, `total` tells how many there are. The
    order `next` is that of reservation: for the states ready, delayed and buried, by `topic` only.
    """
    return await jobs_for(request, query)


@routes.get("/api/jobs/numbered/{number}")
async def numbered(request: Request, number: int) -> JobShown:
    """Read a job by its number, which is its id for beanstalkd clients."""
    return job_shown(await request.job("manage", number), request.redact)


@routes.delete("/api/jobs/{id}", status=204, errors=("invalid_state", "lease_lost"))
async def delete(request: Request, id: UUID, query: Holder) -> None:
    """Delete a job.

    The job must be pending, failed or cancelled. With the epoch of its lease, the holder may delete
    a reserved job.
    """
    if query.epoch is None:
        job = await request.job("manage", id)
        await request.app.jobs.adelete(job)
        await _acted(request, "deleted", job)
    else:
        job = await request.job("work", id)
        await request.app.jobs.adelete(Lease(job=job, epoch=query.epoch, until=None))


@routes.post("/api/jobs/{id}/requeue", errors=("invalid_state", "key_taken"))
async def requeue(request: Request, id: UUID) -> JobShown:
    """Make a failed or cancelled job ready again; retries and crashes start at 0."""
    job = await request.app.jobs.arequeue(await request.job("manage", id))
    await _acted(request, "requeued", job)
    return job_shown(job, request.redact)


@routes.post("/api/jobs/{id}/cancel", errors=("invalid_state",))
async def cancel(request: Request, id: UUID) -> JobShown:
    """Cancel a job; a running one is asked to stop and ends when its worker does."""
    job = await request.app.jobs.acancel(await request.job("manage", id))
    await _acted(request, "cancelled", job)
    return job_shown(job, request.redact)


@routes.post("/api/jobs/{id}/kick", errors=("not_buried", "key_taken"))
async def kick(request: Request, id: UUID) -> JobShown:
    """Make a buried or delayed job ready; its counters are kept."""
    job = await request.app.jobs.akick_job(await request.job("manage", id))
    await _acted(request, "kicked", job)
    return job_shown(job, request.redact)


@routes.patch("/api/jobs/{id}", errors=("invalid_state",))
async def change(request: Request, id: UUID, body: JobChangeInput) -> JobShown:
    """Change the priority or the time of a pending job."""
    job = await request.job("manage", id)
    changed = await request.app.jobs.areschedule(
        job, delay=body.delay, run_at=body.run_at, priority=body.priority
    )
    await _acted(request, "changed", changed)
    return job_shown(changed, request.redact)


@routes.get("/api/jobs/{id}/failures")
async def failures(request: Request, id: UUID) -> Items[FailureShown]:
    """Read the failed runs of a job, oldest first."""
    job = await request.job("manage", id)
    return all_shown(FailureShown, await request.app.jobs.afailures(job))


@routes.get("/api/jobs/{id}/logs")
async def logs(request: Request, id: UUID) -> Items[LineShown]:
    """Read the log lines of a job's runs, oldest first."""
    return all_shown(LineShown, await request.app.jobs.alogs(await request.job("manage", id)))


@routes.get("/api/jobs/{id}/stream", errors=("cursor_reset", "invalid_cursor"))
async def stream(request: Request, id: UUID, query: After) -> StreamShown:
    """Read what the runs of a job say, oldest first, at most 1,000 events at once."""
    job = await request.job("manage", id)
    page = await request.app.events.aread(stream_of(job.id), query.after)
    return stream_shown(page)


@routes.get("/api/jobs/{id}/runs")
async def runs(request: Request, id: UUID) -> Items[RunShown]:
    """Read the runs of a job that chooses its workers, one for each worker."""
    return all_shown(RunShown, await request.app.jobs.aruns(await request.job("manage", id)))


async def _acted(request: Request, what: str, job: Job) -> None:
    await request.acted(f"job.{what}", job=job.id, topic=job.topic)


def _id_of(request: Request, new: JobInput, key: bytes) -> UUID:
    """Return a job id made from the Idempotency-Key, the caller and the topic."""
    if new.id is not None:
        msg = "give `id` or `Idempotency-Key`, not both"
        raise Invalid(msg)
    if not IDEMPOTENCY_KEY.fullmatch(key):
        msg = "`Idempotency-Key` must have 1 to 255 printable ASCII characters and no spaces"
        raise Invalid(msg)
    caller = request.caller.name or request.client  # the address tells anonymous callers apart
    return uuid8_of(f"{caller}\0{new.topic}\0".encode() + key)
