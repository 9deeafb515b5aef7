"""One job in full over HTTP: what a page about it shows."""

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, structs

from towpath.errors import Invalid
from towpath.model.backoff import Backoff
from towpath.model.job import Job, UnreadableJob
from towpath.model.payload import Encoding, count_hidden, raw_bytes, redacted
from towpath.model.reasons import LimitNow, Reason, Remedy, Surroundings
from towpath.model.states import State
from towpath.model.tries import TryOutcome
from towpath.server.inputs import Input
from towpath.server.outputs import (
    NO_OPTIONS,
    Items,
    JobBriefShown,
    JobShown,
    ResponseBody,
    all_shown,
    brief_shown,
    job_shown,
    shown,
)
from towpath.server.request import Request
from towpath.server.routes import PLAIN, Answer, Routes

routes: Final = Routes("jobs")

RAW: Final = b"application/octet-stream"


class JobLimitShown(ResponseBody):
    """A limit that all jobs with its key share."""

    key: str
    concurrency: int | None
    rate: str | None
    burst: int


class BackoffShown(ResponseBody):
    """The pauses between tries, in seconds: by a rule, or as listed in `waits`."""

    first: float
    factor: float
    most: float
    step: float
    jitter: float
    waits: list[float]


class JobDetailShown(JobShown, kw_only=True):
    """A job, its lease, and all options."""

    session: str | None  # of its lease; a string, as JavaScript cannot hold the number
    worker: str | None  # that has the lease
    started_at: datetime | None  # when its lease began
    begun: bool | None  # whether the worker has begun it; null: no worker has it, or it says not
    limit: JobLimitShown | None
    backoff: BackoffShown
    workers: int | None  # the number of distinct workers that must succeed
    only_workers: list[str] | None
    parents: int  # jobs that it waited for, as far as they are stored
    children: int  # jobs that wait or waited for it
    hidden: int  # values in payload and result that are shown only if they are revealed
    why_unreadable: str | None  # set if this version cannot read its options and payload


class EdgeShown(ResponseBody):
    """A job, and one that waits for it."""

    parent: UUID
    child: UUID


class FlowGraphShown(ResponseBody):
    """The jobs that wait for each other, directly or through others."""

    nodes: list[JobBriefShown]
    edges: list[EdgeShown]
    gone: int  # jobs that are forgotten already
    whole: bool  # false: there are more


class FlowShown(ResponseBody):
    """A flow: its last job, and how many of its jobs are in each state."""

    job: JobBriefShown
    jobs: dict[str, int]  # by state; `gone` counts those that are forgotten
    whole: bool  # false: there are more


class FlowPage(ResponseBody):
    """A page of flows, newest first."""

    items: list[FlowShown]
    next: str | None  # pass it as `before` to read the next page


class FlowsWanted(Input):
    """Which page of flows is read."""

    before: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


Part = Annotated[
    Literal["payload", "result", "headers"],
    Meta(description="Which of them: payload, result or headers, these as a JSON object."),
]


class BodyWanted(Input):
    """Which part of a job is read, and how."""

    part: Part = "payload"
    reveal: bool = False  # also the values that are redacted
    download: bool = False  # as a file; raw bytes only so


class TryShown(ResponseBody):
    """One lease of a job, or a reason for which it was not run."""

    epoch: int
    worker: str | None
    started_at: datetime | None
    ended_at: datetime | None
    outcome: TryOutcome
    error: str | None
    traceback: str | None


class RelatedJobShown(ResponseBody):
    """Another job that a reason is about."""

    id: UUID
    topic: str
    state: State


class LimitNowShown(ResponseBody):
    """A limit, and how far it is used."""

    key: str
    running: int
    concurrency: int | None
    free_at: datetime | None


class AheadShown(ResponseBody):
    """How many jobs are before one in line; if it is not exact, there are at least so many."""

    count: int
    exact: bool


class RemedyShown(ResponseBody):
    """A request that changes the situation."""

    label: str
    method: str
    path: str
    body: dict[str, Any] | None


class ReasonShown(ResponseBody):
    """One reason why a job is where it is."""

    code: str
    message: str
    at: datetime | None  # since when it holds
    until: datetime | None  # when it ends, or is expected to
    jobs: list[RelatedJobShown]
    limit: LimitNowShown | None
    before: AheadShown | None
    remedies: list[RemedyShown]


@routes.get("/api/jobs/{id}")
async def get(request: Request, id: UUID) -> JobDetailShown:
    """Read a job, its lease and all its options.

    To a superuser with the login cookie, as a browser has it, values of fields and headers that
    the setting `redact` names are sent as "•••", here and wherever a job is the answer.
    """
    job = await request.job("manage", id, any_version=True)
    return _detail(request, job, await request.app.jobs.asurroundings(job))


@routes.get("/api/jobs/{id}/payload", media=PLAIN)
async def read_body(request: Request, id: UUID, query: BodyWanted) -> Answer[str]:
    """Read the payload, the result or the headers of a job as text, to the last digit.

    Values of fields that the setting `redact` names are hidden, unless they are revealed, which is
    noted as an act. Raw bytes are only downloaded.
    """
    job = await request.job("manage", id, any_version=True)
    body, encoding = job.body, job.encoding
    if query.part == "result":
        body, encoding = job.result_body or "", Encoding.JSON
    elif query.part == "headers":
        body, encoding = msgspec.json.encode(job_shown(job).headers).decode(), Encoding.JSON
    is_raw = encoding == Encoding.BASE64
    if is_raw and not query.download:
        msg = "this payload is raw bytes; add `download=true` to get them as a file"
        raise Invalid(msg)
    if query.reveal:
        await request.acted("value.revealed", job=str(job.id), topic=job.topic, part=query.part)
    elif body and not is_raw:
        strict = encoding == Encoding.JSON
        body = redacted(body, request.app.settings.redact, strict=strict)
    if not query.download:
        return Answer(body)
    kind = "bin" if is_raw else "json" if encoding == Encoding.JSON else "txt"
    name = f'attachment; filename="{query.part}-{job.id}.{kind}"'.encode()
    answer: Answer[Any] = Answer(
        raw_bytes(body, encoding), headers=((b"content-disposition", name),), media=RAW
    )
    return answer


@routes.get("/api/jobs/{id}/tries")
async def tries(request: Request, id: UUID) -> Items[TryShown]:
    """Read the tries of a job, oldest first: each lease, its worker, and how it ended."""
    job = await request.job("manage", id, any_version=True)
    return all_shown(TryShown, await request.app.jobs.atries(job))


@routes.get("/api/jobs/{id}/why")
async def why(request: Request, id: UUID) -> Items[ReasonShown]:
    """Read why a job waits, runs, failed or is kept, and what can be done about it.

    Other jobs that the caller may not manage are counted, and not named.
    """
    job = await request.job("manage", id, any_version=True)
    reasons = await request.app.jobs.awhy(job)
    related = [each.id for reason in reasons for each in reason.jobs]
    hidden = {*related} - await _manageable(request, related)
    return Items(items=[_reason(each, hidden) for each in reasons])


@routes.get("/api/jobs/{id}/flow")
async def flow(request: Request, id: UUID) -> FlowGraphShown:
    """Read the jobs that wait for each other around a job, breadth first, at most 500.

    Jobs that the caller may not manage are left out; then the flow is not whole.
    """
    found = await request.app.jobs.aflow(await request.job("manage", id, any_version=True))
    shown = await _manageable(request, [node.id for node in found.nodes])
    return FlowGraphShown(
        nodes=[brief_shown(each) for each in found.nodes if each.id in shown],
        edges=[
            EdgeShown(parent=parent, child=child)
            for parent, child in found.edges
            if parent in shown and child in shown
        ],
        gone=found.gone,
        whole=found.whole and len(shown) == len(found.nodes),
    )


async def _manageable(request: Request, ids: Sequence[UUID]) -> set[UUID]:
    """Return the jobs among these that the caller may manage."""
    if request.caller.kind == "superuser":
        return set(ids)
    jobs = await asyncio.gather(*map(request.app.jobs.aget, ids), return_exceptions=True)
    read = [job for job in jobs if isinstance(job, Job)]
    return {job.id for job in read if request.may("manage", job.topic, job)}


@routes.get("/api/flows")
async def flows(request: Request, query: FlowsWanted) -> FlowPage:
    """Read a page of flows, newest first. A page may be empty; while `next` is set, more follow.

    Of each flow up to 100 jobs are counted.
    """
    request.require_superuser()
    found, next_at = await request.app.jobs.aflows(before=query.before, limit=query.limit)
    return FlowPage(
        items=[
            FlowShown(job=brief_shown(each.job), jobs=each.jobs, whole=each.whole) for each in found
        ],
        next=None if next_at is None else str(next_at),
    )


def _detail(request: Request, job: Job, around: Surroundings) -> JobDetailShown:
    unreadable = isinstance(job, UnreadableJob)
    options = NO_OPTIONS if isinstance(job, UnreadableJob) else job.options
    lease, runs = around.lease, options.runs
    return JobDetailShown(
        **structs.asdict(job_shown(job, request.redact)),
        session=None if lease is None or lease.session is None else str(lease.session),
        worker=None if lease is None else lease.worker,
        started_at=None if lease is None else lease.reserved_at,
        begun=None if lease is None or lease.session is None else lease.started,
        limit=None if options.limit is None else shown(JobLimitShown, options.limit),
        backoff=backoff_shown(options.backoff),
        workers=None if runs is None else runs.workers,
        only_workers=None if runs is None or runs.only is None else list(runs.only),
        parents=around.parents,
        children=around.children,
        hidden=0 if unreadable else _hidden(job, request.app.settings.redact),
        why_unreadable=job.why if isinstance(job, UnreadableJob) else None,
    )


def backoff_shown(backoff: Backoff) -> BackoffShown:
    """Return the JSON form of a backoff."""
    return BackoffShown(
        first=backoff.first,
        factor=backoff.factor,
        most=backoff.most,
        step=backoff.step,
        jitter=backoff.jitter,
        waits=list(backoff.waits),
    )


def _hidden(job: Job, redact: str) -> int:
    number = 0
    if job.encoding != Encoding.BASE64:
        number += count_hidden(job.body, redact, strict=job.encoding == Encoding.JSON)
    if job.result_body is not None:
        number += count_hidden(job.result_body, redact)
    return number


def _reason(reason: Reason, hidden: Collection[UUID]) -> ReasonShown:
    jobs = [each for each in reason.jobs if each.id not in hidden]
    remedies = [each for each in reason.remedies if not any(str(id) in each.path for id in hidden)]
    return ReasonShown(
        code=reason.code,
        message=reason.message,
        at=reason.at,
        until=reason.until,
        jobs=[RelatedJobShown(id=job.id, topic=job.topic, state=job.state) for job in jobs],
        limit=_limit(reason.limit),
        before=None if reason.before is None else shown(AheadShown, reason.before),
        remedies=[remedy_shown(each) for each in remedies],
    )


def _limit(limit: LimitNow | None) -> LimitNowShown | None:
    if limit is None:
        return None
    return LimitNowShown(
        key=limit.key,
        running=limit.running,
        concurrency=limit.concurrency,
        free_at=limit.free_at,
    )


def remedy_shown(remedy: Remedy) -> RemedyShown:
    """Return the JSON form of a remedy."""
    return RemedyShown(label=remedy.label, method=remedy.method, path=remedy.path, body=remedy.body)
