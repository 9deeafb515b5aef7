"""Jobs over HTTP: in, looking, and what is done without a lease."""

import contextlib
import hashlib
import re
from collections.abc import Generator, Iterable, Mapping
from typing import Annotated, Any, Final, cast
from uuid import UUID

import msgspec
from msgspec import Meta

from towpath.app.checks import EnqueueOptions
from towpath.errors import Invalid, NotFound
from towpath.model.ids import uuid7
from towpath.model.job import Job, Lease
from towpath.server.asked import MOST_AT_ONCE, Asked, Change, Epoch, Key, NewJob, NewJobs, Topic
from towpath.server.asks import Ask
from towpath.server.listing import jobs_for
from towpath.server.requests import Turns
from towpath.server.routes import Answer, Routes
from towpath.server.told import (
    EventShown,
    FailureShown,
    Items,
    JobPage,
    JobShown,
    LineShown,
    MinuteShown,
    RunShown,
    StatsShown,
    all_shown,
    job_shown,
    outlined,
    shown,
)

routes: Final = Routes("jobs")

MOST_BULK: Final = 16 * 2**20  # bytes of a request with many jobs
IDEMPOTENCY_KEY: Final = re.compile(rb"[!-~]{1,255}")
STORING: Final = ("job_exists", "max_jobs_reached", "max_topics_reached", "not_found")


class Listing(Asked):
    """Which jobs a list shows."""

    topic: Topic | None = None
    status: Annotated[str, Meta(extra_json_schema={"enum": [
        "pending", "processing", "completed", "failed", "cancelled"]})] | None = None  # fmt: skip
    key: Key | None = None
    text: Annotated[str, Meta(extra_json_schema={"maxLength": 255})] | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST_AT_ONCE)] = 50
    offset: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    before: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None = None


class Span(Asked):
    """Which minutes are counted."""

    topic: Topic | None = None
    minutes: Annotated[int, Meta(ge=1, le=32 * 24 * 60)] = 60


class After(Asked):
    """Which event is known already."""

    after: Annotated[int, Meta(ge=0, le=2**62)] = 0


class Holder(Asked):
    """With the epoch of a lease, its holder speaks."""

    epoch: Epoch | None = None


@routes.post("/api/jobs/enqueue", status=201, errors=STORING)
async def enqueue(ask: Ask, body: NewJob) -> Answer[JobShown]:
    """Store a job.

    Repeated with the same id or Idempotency-Key it answers with the same job. 200 means that an
    unfinished job of the topic holds the key, and that one is shown; without its payload and
    results, to who may not manage it. What concerns other jobs too (limit, workers, onlyWorkers, a
    unique other than skip) is for users who may manage the topic. `after` names jobs that the
    caller may manage; any other is not found. Where the server has the task of the topic, the
    payload is an object of its arguments, which are checked.
    """
    _require_enqueue(ask, body, ask.body)
    hidden = await _hidden(ask, [body])
    payload, options = _as_task(ask, body, hidden)
    key = ask.headers.get(b"idempotency-key")
    if key is not None:
        options["id"] = _id_of(ask, body, key)
    elif body.key is not None and body.id is None:
        options["id"] = uuid7()
    with _as_missing(hidden):
        job = await ask.app.jobs.aenqueue(body.topic, payload, **options)
    if "id" in options and job.id != options["id"]:
        return Answer(_holder(ask, job), 200)
    return Answer(_stored(ask, job))


@routes.post("/api/jobs/enqueue-many", status=201, most=MOST_BULK, errors=STORING)
async def enqueue_many(ask: Ask, body: NewJobs) -> Items[JobShown]:
    """Store jobs: all of them, or none. To repeat it without harm, give each job an id."""
    if b"idempotency-key" in ask.headers:
        msg = "an Idempotency-Key is for one job: give each of many an id"
        raise Invalid(msg)
    said: list[object] = msgspec.json.decode(ask.body)["jobs"] if ask.is_ruled else []
    turns = Turns()
    for nth, new in enumerate(body.jobs):
        _require_enqueue(ask, new, said[nth] if said else None)
        await turns.next()
    hidden = await _hidden(ask, body.jobs)
    calls = [(new.topic, *_as_task(ask, new, hidden)) for new in body.jobs]
    with _as_missing(hidden):
        jobs = await ask.app.jobs.aenqueue_all(calls)
    return Items(
        items=[
            _stored(ask, job) if new.key is None else _holder(ask, job)
            for new, job in zip(body.jobs, jobs, strict=True)
        ]
    )


async def _hidden(ask: Ask, new: Iterable[NewJob]) -> dict[UUID, UUID]:
    """Find what `after` names and the caller may not see; give each an id that no job has.

    The store alone knows whether it has to look for them: a job that is stored already waits for
    nothing more. By such an id, what is hidden and what does not exist take the same way there.
    """
    if ask.caller.kind == "superuser":
        return {}
    hidden: dict[UUID, UUID] = {}
    for id in {id: None for job in new for id in job.after or ()}:
        try:
            await ask.job("manage", id)
        except NotFound:
            hidden[id] = uuid7()
    return hidden


@contextlib.contextmanager
def _as_missing(hidden: Mapping[UUID, UUID]) -> Generator[None]:
    """Have an error name a job as the caller has named it."""
    try:
        yield
    except NotFound as error:
        text = str(error)
        for named, unknown in hidden.items():
            text = text.replace(str(unknown), str(named))
        raise NotFound(text) from None


def _as_task(ask: Ask, new: NewJob, hidden: Mapping[UUID, UUID]) -> tuple[Any, EnqueueOptions]:
    """Return payload and options; of a topic whose task is known here, checked by it."""
    options = cast("EnqueueOptions", new.options())
    if new.after is not None:
        options["after"] = [hidden.get(id, id) for id in new.after]
    task = ask.app.tasks.get(new.topic)
    return (new.data(), options) if task is None else task.from_outside(new.arguments(), options)


def _require_enqueue(ask: Ask, new: NewJob, said: object) -> None:
    ask.require_enqueue(new.topic, said)
    if ask.is_ruled and (
        new.limit or new.workers or new.only_workers or new.unique not in {None, "skip"}
    ):
        ask.require("manage", new.topic)


def _stored(ask: Ask, job: Job) -> JobShown:
    """Show a job that was stored; of one that was stored before, not what became of it."""
    return _holder(ask, job) if job.epoch or job.finished_at else job_shown(job)


def _holder(ask: Ask, job: Job) -> JobShown:
    """Show a job that holds a key: to who may not manage it, only that it does."""
    return job_shown(job) if ask.may("manage", job.topic, job) else outlined(job)


@routes.get("/api/jobs")
async def list_jobs(ask: Ask, query: Listing) -> JobPage:
    """Read a page of jobs, newest first.

    Only those that the caller may see. A page may be shorter than its limit, and even empty, where
    many are hidden or payloads are large: as long as `next` is there, more may follow.
    """
    return await jobs_for(ask, query)


@routes.get("/api/jobs/stats")
async def stats(ask: Ask) -> StatsShown:
    """Count every job."""
    ask.require("manage")
    return shown(StatsShown, await ask.app.jobs.astats())


@routes.get("/api/jobs/throughput")
async def throughput(ask: Ask, query: Span) -> Items[MinuteShown]:
    """Count the outcomes of each of the last minutes."""
    ask.require("manage", query.topic)
    return all_shown(MinuteShown, await ask.app.jobs.athroughput(query.topic, query.minutes))


@routes.get("/api/jobs/{id}")
async def get(ask: Ask, id: UUID) -> JobShown:
    """Read a job."""
    return job_shown(await ask.job("manage", id))


@routes.get("/api/jobs/numbered/{number}")
async def numbered(ask: Ask, number: int) -> JobShown:
    """Read the job of this number, by which clients of beanstalkd know it."""
    return job_shown(await ask.job("manage", number))


@routes.delete("/api/jobs/{id}", status=204, errors=("invalid_state", "lease_lost"))
async def delete(ask: Ask, id: UUID, query: Holder) -> None:
    """Forget a job.

    One that is pending, failed or cancelled; with the epoch of its lease, one that the caller
    holds: done and gone.
    """
    if query.epoch is None:
        await ask.app.jobs.adelete(await ask.job("manage", id))
    else:
        job = await ask.job("work", id)
        await ask.app.jobs.adelete(Lease(job=job, epoch=query.epoch, until=None))


@routes.post("/api/jobs/{id}/requeue", errors=("invalid_state", "key_taken"))
async def requeue(ask: Ask, id: UUID) -> JobShown:
    """Make a failed or cancelled job ready again, with retries and crashes back to 0."""
    return job_shown(await ask.app.jobs.arequeue(await ask.job("manage", id)))


@routes.post("/api/jobs/{id}/cancel", errors=("invalid_state",))
async def cancel(ask: Ask, id: UUID) -> JobShown:
    """Stop a job; a running one is asked to stop, and ends when its holder answers."""
    return job_shown(await ask.app.jobs.acancel(await ask.job("manage", id)))


@routes.post("/api/jobs/{id}/kick", errors=("not_buried", "key_taken"))
async def kick(ask: Ask, id: UUID) -> JobShown:
    """Make a buried or delayed job ready, counters kept."""
    return job_shown(await ask.app.jobs.akick_job(await ask.job("manage", id)))


@routes.patch("/api/jobs/{id}", errors=("invalid_state",))
async def change(ask: Ask, id: UUID, body: Change) -> JobShown:
    """Give a pending job another priority, or another time."""
    job = await ask.job("manage", id)
    changed = await ask.app.jobs.areschedule(
        job, delay=body.delay, run_at=body.run_at, priority=body.priority
    )
    return job_shown(changed)


@routes.get("/api/jobs/{id}/failures")
async def failures(ask: Ask, id: UUID) -> Items[FailureShown]:
    """Read the failed tries of a job, oldest first."""
    job = await ask.job("manage", id)
    return all_shown(FailureShown, await ask.app.jobs.afailures(job))


@routes.get("/api/jobs/{id}/logs")
async def logs(ask: Ask, id: UUID) -> Items[LineShown]:
    """Read the lines that the runs of a job have written, oldest first."""
    return all_shown(LineShown, await ask.app.jobs.alogs(await ask.job("manage", id)))


@routes.get("/api/jobs/{id}/events")
async def events(ask: Ask, id: UUID, query: After) -> Items[EventShown]:
    """Read what the runs of a job have published, oldest first, at most 1,000 at once."""
    job = await ask.job("manage", id)
    return all_shown(EventShown, await ask.app.jobs.aevents(job, query.after))


@routes.get("/api/jobs/{id}/runs")
async def runs(ask: Ask, id: UUID) -> Items[RunShown]:
    """Read what each worker made of a job that chooses its workers."""
    return all_shown(RunShown, await ask.app.jobs.aruns(await ask.job("manage", id)))


def _id_of(ask: Ask, new: NewJob, key: bytes) -> UUID:
    """Return the id that an Idempotency-Key stands for: of this caller, in this topic."""
    if new.id is not None:
        msg = "give an id or an Idempotency-Key, not both"
        raise Invalid(msg)
    if not IDEMPOTENCY_KEY.fullmatch(key):
        msg = "an Idempotency-Key has 1 to 255 characters of ASCII, without spaces"
        raise Invalid(msg)
    who = ask.caller.name or ask.client  # strangers are told apart by where they are
    said = f"{who}\0{new.topic}\0".encode() + key
    number = int.from_bytes(hashlib.sha256(said).digest()[:16], "big")
    # Version 8: made from a name, by a rule of our own.
    number = number & ~(0xF << 76) | 8 << 76
    return UUID(int=number & ~(0b11 << 62) | 0b10 << 62)
