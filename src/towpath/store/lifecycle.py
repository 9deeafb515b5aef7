"""Lifecycle events: changes of jobs, workers, topics, schedules, webhooks, in channel `system`.

A change and its event are one transaction. An operation whose statements may commit one by one asks
`is_posted` before it makes the change; to post ends that. LEVELS says from which setting on a type
is posted. An act, which is what a person did over HTTP, is posted after it, in a transaction of its
own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from towpath.model.channels import SYSTEM
from towpath.model.ids import uuid7
from towpath.model.payload import Encoding, clean_text
from towpath.operation import Operation, Steps, Wakeup, is_posted, posted, rings
from towpath.statement import Statements, rows
from towpath.store import events
from towpath.store.event_rows import EventBody
from towpath.store.rows import known_options, uuid_from

FAILURES: Final = "failures"
ALL: Final = "all"
LEVELS: Final[Mapping[str, str]] = {
    "job.enqueued": ALL,
    "job.reserved": ALL,
    "job.completed": ALL,
    "job.released": ALL,
    "job.requeued": ALL,
    "job.deleted": ALL,
    "job.retried": FAILURES,
    "job.rescued": FAILURES,
    "job.failed": FAILURES,
    "job.cancelled": FAILURES,
    "job.expired": FAILURES,
    "worker.started": FAILURES,
    "worker.stopped": FAILURES,
    "worker.died": FAILURES,
    "topic.paused": FAILURES,
    "topic.resumed": FAILURES,
    "schedule.added": FAILURES,
    "schedule.changed": FAILURES,
    "schedule.paused": FAILURES,
    "schedule.resumed": FAILURES,
    "schedule.deleted": FAILURES,
    "schedule.missed": FAILURES,
    "schedule.failed": FAILURES,
    "subscription.added": ALL,
    "subscription.changed": ALL,
    "subscription.paused": ALL,
    "subscription.resumed": ALL,
    "subscription.enabled": ALL,
    "subscription.deleted": ALL,
    "subscription.failing": FAILURES,
    "subscription.stopped": FAILURES,
    "subscription.recovered": FAILURES,
    "saga.dead_lettered": FAILURES,
    "webhooks.gap": FAILURES,
}
ACT: Final = "act."  # begins the types of what people did
MOST_ERROR: Final = 1_000  # characters
_encoder: Final = msgspec.json.Encoder()


class LifecycleEvent(NamedTuple):
    """What has happened to a worker, a topic, a schedule or a webhook."""

    type: str
    fields: Mapping[str, Any]  # those that are None are left out


class JobEvent(NamedTuple):
    """What has happened to a job."""

    what: str  # the type, without the word before the dot
    seq: int
    epoch: int
    kind: str | None = None  # of a failure
    error: str | None = None


class NamedJob(NamedTuple):
    """What a lifecycle event tells of a job: never its payload."""

    seq: int
    id: Any
    topic: str
    options: str | None
    run_of: Any  # of a run, the id of its job


class sql(Statements):
    """The statements of lifecycle.sql."""

    named = rows(NamedJob)


Names = Mapping[int, NamedJob]


def named(level: str, jobs: Iterable[int]) -> Steps[Names]:
    """Read what events tell of jobs that are about to be forgotten, if these are posted."""
    if not (yield from is_posted(level, begins=False)):
        return {}
    return (yield from _named(jobs))


def _named(jobs: Iterable[int]) -> Steps[Names]:
    items = [{"seq": seq} for seq in dict.fromkeys(jobs)]
    return {row.seq: row for row in (yield from sql.named(items))} if items else {}


def post_jobs(changes: Sequence[JobEvent], gone: Names | None = None) -> Steps[None]:
    """Post what has happened to jobs; `gone` has those that are forgotten by now."""
    levels = yield from _posted_levels(LEVELS[f"job.{each.what}"] for each in changes)
    wanted = [each for each in changes if LEVELS[f"job.{each.what}"] in levels]
    known = gone or {}
    names = {**(yield from _named(each.seq for each in wanted if each.seq not in known)), **known}
    yield from _post([_of_job(each, names[each.seq]) for each in wanted if each.seq in names])


def _of_job(change: JobEvent, job: NamedJob) -> LifecycleEvent:
    options = known_options(job.options)
    is_run = options.runs is not None and options.runs.of is not None
    fields = {
        "id": uuid_from(job.id),
        "job": None if job.run_of is None else uuid_from(job.run_of),
        "topic": job.topic,
        "task": options.task,
        "epoch": change.epoch,
        "kind": change.kind,
        "error": change.error,
    }
    return LifecycleEvent(f"{'run' if is_run else 'job'}.{change.what}", fields)


def post(changes: Sequence[LifecycleEvent]) -> Steps[None]:
    """Post what has happened to workers, topics, schedules or webhooks."""
    levels = yield from _posted_levels(LEVELS[each.type] for each in changes)
    yield from _post([each for each in changes if LEVELS[each.type] in levels])


def post_act(what: str, fields: Mapping[str, Any]) -> Operation[None]:
    """Post what a person did, whatever the setting says."""
    bodies = [_body(LifecycleEvent(f"{ACT}{what}", fields))]  # once: its id stays in a repetition

    def steps() -> Steps[None]:
        yield from _post_bodies(bodies)

    return Operation("post_act", steps)


def _posted_levels(levels: Iterable[str]) -> Steps[Collection[str]]:
    found: set[str] = set()
    for level in dict.fromkeys(levels):
        if (yield from is_posted(level, begins=False)):
            found.add(level)
    return found


def _post(changes: Sequence[LifecycleEvent]) -> Steps[None]:
    if changes:
        yield from _post_bodies([_body(each) for each in changes])
    yield from posted()


def _post_bodies(bodies: Sequence[EventBody]) -> Steps[None]:
    yield from events.post(events.Append(channel=SYSTEM, events=bodies)).inside()
    yield from rings(Wakeup("channel", SYSTEM))


def _body(change: LifecycleEvent) -> EventBody:
    fields = {name: value for name, value in change.fields.items() if value is not None}
    if "error" in fields:
        fields["error"] = clean_text(fields["error"], MOST_ERROR)
    body = _encoder.encode(fields)
    return EventBody(
        id=uuid7(), body=body.decode(), encoding=Encoding.JSON, size=len(body), type=change.type
    )
