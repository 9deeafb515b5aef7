"""Schedules over HTTP."""

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from towpath.errors import Invalid, NotFound
from towpath.model.cron_words import words_of
from towpath.model.instants import as_datetime, instant
from towpath.model.payload import HIDDEN, Encoding, redacted
from towpath.model.schedule import Fire, Rule, Schedule, next_fires, rule_of
from towpath.model.states import State
from towpath.server import inputs
from towpath.server.bodies import Turns
from towpath.server.inputs import (
    BackoffInput,
    Input,
    NewLimit,
    PreviewInput,
    ScheduleInput,
    ScheduleOptions,
    Text,
)
from towpath.server.outputs import (
    Items,
    JobShown,
    ResponseBody,
    encoding_shown,
    headers_shown,
    job_shown,
    shown,
    stored,
)
from towpath.server.request import Request, for_rules
from towpath.server.routes import PLAIN, Answer, Routes

routes: Final = Routes("schedules")

NEXT: Final = 5  # fires that are told


class FireShown(ResponseBody):
    """A fire of a schedule, and what became of its job."""

    at: datetime
    job: UUID | None  # null: it has made no job, or the job is forgotten
    state: State | None


class ScheduleShown(ResponseBody):
    """A rule that enqueues jobs repeatedly."""

    name: str
    topic: str
    cron: str | None
    tz: str | None
    every: float | None
    catch_up: str
    words: str  # the rule, for people
    payload: msgspec.Raw
    encoding: inputs.Encoding
    options: ScheduleOptions  # how its jobs are run; PUT takes them as they are
    paused: bool
    declared: bool | None  # by the code of the server; null: this server knows no such code
    next_at: datetime | None
    last_at: datetime | None
    error: str | None
    next_fires: list[datetime]  # with details: the next 5
    history: list[FireShown]  # with details: the last 20 fires, newest first


class PreviewShown(ResponseBody):
    """When a rule fires next, and what it says in words."""

    fires: list[datetime]
    words: str


class PayloadWanted(Input):
    """How the payload is read."""

    reveal: bool = False  # also the values that are redacted


class Detailed(Input):
    """Whether a list also tells the next and the last fires, which takes longer."""

    details: bool = False


@routes.get("/api/schedules")
async def list_schedules(request: Request, query: Detailed) -> Items[ScheduleShown]:
    """Read the schedules of topics that the caller may manage."""
    found = [
        each for each in await request.app.schedules.alist() if request.may("manage", each.topic)
    ]
    if not found:
        request.require_some("manage")
    if not query.details:
        return Items(items=[_shown(request, each) for each in found])
    turns = Turns()
    items: list[ScheduleShown] = []
    for each in found:
        items.append(await _detailed(request, each))
        await turns.next()
    return Items(items=items)


@routes.post("/api/schedule-preview")
async def preview_schedule(request: Request, body: PreviewInput) -> PreviewShown:
    """Say when a rule would fire, and in words; nothing is stored.

    Not below /api/schedules, where it would hide a schedule that is named preview.
    """
    request.require_superuser()
    found = await request.app.schedules.apreview(
        cron=body.cron, every=body.every, tz=body.tz, since=body.since, count=body.count
    )
    return shown(PreviewShown, found)


@routes.get("/api/schedules/{name}")
async def get_schedule(request: Request, name: Text) -> ScheduleShown:
    """Read a schedule, its next fires, and what became of the last ones."""
    return await _detailed(request, await _schedule(request, name))


@routes.get("/api/schedules/{name}/payload", media=PLAIN)
async def read_payload(request: Request, name: Text, query: PayloadWanted) -> Answer[str]:
    """Read the payload of a schedule as the text that is stored, to the last digit.

    Values of fields that the setting `redact` names are hidden, unless they are revealed, which is
    noted as an act.
    """
    schedule = await _schedule(request, name)
    if schedule.encoding == Encoding.BASE64:
        msg = "this payload is raw bytes; read the schedule to get them"
        raise Invalid(msg)
    if query.reveal:
        await request.acted("value.revealed", schedule=name, topic=schedule.topic, part="payload")
        return Answer(schedule.body)
    strict = schedule.encoding == Encoding.JSON
    return Answer(redacted(schedule.body, request.app.settings.redact, strict=strict))


@routes.put("/api/schedules/{name}")
async def set_schedule(request: Request, name: Text, body: ScheduleInput) -> ScheduleShown:
    """Create a schedule, or change the schedule of this name.

    What is left out gets its default: to change a schedule, give the `options` that it tells, and
    its payload or `keepPayload`. A header whose value was told as "•••" keeps its value.
    """
    request.require("manage", body.topic)
    before = None
    with contextlib.suppress(NotFound):  # a new schedule
        before = await request.app.schedules.aget(name)
        request.require("manage", before.topic)
    wanted: object = request.body
    if body.keep_payload:
        if before is None:
            msg = f"there is no schedule {name!r} whose payload could be kept; give `payload`"
            raise Invalid(msg)
        body.payload = stored(before.body, before.encoding)
        body.encoding = encoding_shown(before.encoding)
        if request.is_ruled:
            kept = {"payload": for_rules(bytes(body.payload)), "encoding": body.encoding}
            wanted = {**cast("Any", for_rules(request.body)), **kept}
    elif request.redact and HIDDEN.encode() in bytes(body.payload):
        msg = f"`payload` has {HIDDEN} in place of a hidden value; give the value, or `keepPayload`"
        raise Invalid(msg)
    if request.redact and body.options is not None and body.options.headers is not None:
        kept_headers = {} if before is None else dict(before.options.headers)
        body.options.headers = _with_hidden(body.options.headers, kept_headers)
    # The schedule will enqueue on the caller's behalf.
    request.require_enqueue(body.topic, wanted)
    changed = await request.app.schedules.aset(
        name,
        topic=body.topic,
        payload=body.data(),
        cron=body.cron,
        every=body.every,
        tz=body.tz,
        catch_up=body.catch_up,
        **body.job_options(),
    )
    await request.acted("schedule.set", schedule=name, topic=body.topic)
    return _shown(request, changed)


@routes.delete("/api/schedules/{name}", status=204)
async def delete_schedule(request: Request, name: Text) -> None:
    """Delete a schedule; the jobs that it has enqueued stay."""
    await request.app.schedules.adelete((await _schedule(request, name)).name)
    await request.acted("schedule.deleted", schedule=name)


@routes.post("/api/schedules/{name}/pause", status=204)
async def pause_schedule(request: Request, name: Text) -> None:
    """Pause a schedule until it is resumed."""
    await request.app.schedules.apause((await _schedule(request, name)).name)
    await request.acted("schedule.paused", schedule=name)


@routes.post("/api/schedules/{name}/resume", status=204)
async def resume_schedule(request: Request, name: Text) -> None:
    """Resume a paused schedule; missed fires are skipped."""
    await request.app.schedules.aresume((await _schedule(request, name)).name)
    await request.acted("schedule.resumed", schedule=name)


@routes.post("/api/schedules/{name}/run", errors=("max_jobs_reached",))
async def run_schedule(request: Request, name: Text) -> JobShown:
    """Enqueue the job of a schedule now; its fires do not change."""
    schedule = await _schedule(request, name)
    payload = (
        for_rules(bytes(stored(schedule.body, schedule.encoding))) if request.is_ruled else None
    )
    new = {"topic": schedule.topic, "payload": payload, "encoding": schedule.encoding}
    request.require_enqueue(schedule.topic, new)
    job = await request.app.schedules.arun(schedule.name)
    await request.acted("schedule.run", schedule=name, job=job.id, topic=job.topic)
    return job_shown(job, request.redact)


def _with_hidden(headers: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Return headers with the values that they had before in place of hidden ones."""
    for name, value in headers.items():
        if value == HIDDEN and name not in before:
            msg = f"header {name!r} has {HIDDEN} in place of a hidden value; give the value"
            raise Invalid(msg)
    return {name: before[name] if value == HIDDEN else value for name, value in headers.items()}


async def _schedule(request: Request, name: str) -> Schedule:
    """Read a schedule whose topic the caller may manage."""
    request.require_some("manage")
    schedule = await request.app.schedules.aget(name)
    if not request.may("manage", schedule.topic):
        msg = f"there is no schedule {name!r}"
        raise NotFound(msg)
    return schedule


async def _detailed(request: Request, schedule: Schedule) -> ScheduleShown:
    return _shown(
        request, schedule, await request.app.schedules.ahistory(schedule.name), details=True
    )


def _shown(
    request: Request, schedule: Schedule, history: Sequence[Fire] = (), *, details: bool = False
) -> ScheduleShown:
    rule = _rule(schedule)
    fires: list[datetime] = []
    if details and rule is not None and schedule.next_at is not None:
        fires = [as_datetime(at) for at in next_fires(rule, instant(schedule.next_at) - 1, NEXT)]
    return ScheduleShown(
        name=schedule.name,
        topic=schedule.topic,
        cron=schedule.cron,
        tz=schedule.tz,
        every=None if schedule.every is None else schedule.every.total_seconds(),
        catch_up=schedule.catch_up,
        words=schedule.cron or "" if rule is None else words_of(rule),
        payload=stored(schedule.body, schedule.encoding, request.redact),
        encoding=encoding_shown(schedule.encoding),
        options=_options(schedule, request.redact),
        paused=schedule.paused,
        declared=request.app.schedules.is_declared(schedule.name),
        next_at=schedule.next_at,
        last_at=schedule.last_at,
        error=schedule.error,
        next_fires=fires,
        history=[shown(FireShown, fire) for fire in history],
    )


def _rule(schedule: Schedule) -> Rule | None:
    try:
        return rule_of(schedule.cron, schedule.every, schedule.tz)
    except Invalid:  # of a newer version, or of a time zone that is not known here
        return None


def _options(schedule: Schedule, redact: str) -> ScheduleOptions:
    options = schedule.options
    backoff, limit, runs = options.backoff, options.limit, options.runs
    told = ScheduleOptions(
        priority=schedule.priority,
        ttr=schedule.ttr.total_seconds(),
        key=schedule.key,
        task=options.task,
        max_retries=options.max_retries,
        max_crashes=options.max_crashes,
        timeout=options.timeout,
        retention=options.retention,
        expires_after=options.expires_after,
        backoff=BackoffInput(
            first=backoff.first,
            factor=backoff.factor,
            most=backoff.most,
            step=backoff.step,
            jitter=backoff.jitter,
            waits=list(backoff.waits),
        ),
        limit=None
        if limit is None
        else NewLimit(
            key=limit.key, concurrency=limit.concurrency, rate=limit.rate, burst=limit.burst
        ),
        headers=headers_shown(dict(options.headers), redact) or None,
    )
    if runs is not None:
        told.workers = runs.workers
        told.only_workers = None if runs.only is None else list(runs.only)
        told.ping_interval = runs.ping_interval
        told.worker_timeout = runs.worker_timeout
        told.max_unexpected_retries = runs.max_unexpected_retries
        told.unexpected_retry_delay = runs.unexpected_retry_delay
    return told
