"""Topics and schedules over HTTP."""

import contextlib
from typing import Any, Final

import msgspec

from towpath.errors import NotFound
from towpath.model.schedule import Schedule
from towpath.server.inputs import Kick, Pause, ScheduleInput, Text, Topic
from towpath.server.outputs import (
    Items,
    JobShown,
    Kicked,
    Purged,
    ScheduleShown,
    job_shown,
    schedule_shown,
    stored,
)
from towpath.server.request import Request
from towpath.server.routes import Routes

routes: Final = Routes("topics")
schedules: Final = Routes("schedules")


@routes.post("/api/topics/{topic}/pause", status=204)
async def pause_topic(request: Request, topic: Topic, body: Pause) -> None:
    """Pause a topic for some seconds, or until it is resumed: its jobs are not reserved.

    A topic to which no job was ever enqueued is not found, unless `create` is true.
    """
    request.require("manage", topic)
    await request.app.topics.apause(topic, body.duration, create=body.create)
    await request.acted("topic.paused", topic=topic, duration=body.duration)


@routes.post("/api/topics/{topic}/resume", status=204)
async def resume_topic(request: Request, topic: Topic) -> None:
    """Resume a paused topic."""
    request.require("manage", topic)
    await request.app.topics.aresume(topic)
    await request.acted("topic.resumed", topic=topic)


@routes.post("/api/topics/{topic}/kick")
async def kick_topic(request: Request, topic: Topic, body: Kick) -> Kicked:
    """Make buried jobs ready, in the order they were buried; if none is buried, delayed ones."""
    request.require("manage", topic)
    kicked = await request.app.jobs.akick(topic, body.limit)
    await request.acted("topic.kicked", topic=topic, count=kicked)
    return Kicked(kicked=kicked)


@routes.post("/api/topics/{topic}/purge")
async def purge_topic(request: Request, topic: Topic) -> Purged:
    """Delete the pending and failed jobs of a topic."""
    request.require("manage", topic)
    purged = await request.app.jobs.apurge(topic)
    await request.acted("topic.purged", topic=topic, count=purged)
    return Purged(purged=purged)


@schedules.get("/api/schedules")
async def list_schedules(request: Request) -> Items[ScheduleShown]:
    """Read the schedules of topics that the caller may manage."""
    found = [
        each for each in await request.app.schedules.alist() if request.may("manage", each.topic)
    ]
    if not found:
        request.require_some("manage")
    return Items(items=[schedule_shown(each) for each in found])


@schedules.get("/api/schedules/{name}")
async def get_schedule(request: Request, name: Text) -> ScheduleShown:
    """Read a schedule."""
    return schedule_shown(await _schedule(request, name))


@schedules.put("/api/schedules/{name}")
async def set_schedule(request: Request, name: Text, body: ScheduleInput) -> ScheduleShown:
    """Create a schedule, or change the schedule of this name."""
    request.require("manage", body.topic)
    with contextlib.suppress(NotFound):  # a new schedule
        request.require("manage", (await request.app.schedules.aget(name)).topic)
    # The schedule will enqueue on the caller's behalf.
    request.require_enqueue(body.topic, request.body)
    options: dict[str, Any] = {}
    for option in ("priority", "max_retries", "timeout"):
        if getattr(body, option) is not None:
            options[option] = getattr(body, option)
    stored = await request.app.schedules.aset(
        name,
        topic=body.topic,
        payload=body.payload,
        cron=body.cron,
        every=body.every,
        tz=body.tz,
        catch_up=body.catch_up,
        **options,
    )
    await request.acted("schedule.set", schedule=name, topic=body.topic)
    return schedule_shown(stored)


@schedules.delete("/api/schedules/{name}", status=204)
async def delete_schedule(request: Request, name: Text) -> None:
    """Delete a schedule; the jobs that it has enqueued stay."""
    await request.app.schedules.adelete((await _schedule(request, name)).name)
    await request.acted("schedule.deleted", schedule=name)


@schedules.post("/api/schedules/{name}/pause", status=204)
async def pause_schedule(request: Request, name: Text) -> None:
    """Pause a schedule until it is resumed."""
    await request.app.schedules.apause((await _schedule(request, name)).name)
    await request.acted("schedule.paused", schedule=name)


@schedules.post("/api/schedules/{name}/resume", status=204)
async def resume_schedule(request: Request, name: Text) -> None:
    """Resume a paused schedule; missed fires are skipped."""
    await request.app.schedules.aresume((await _schedule(request, name)).name)
    await request.acted("schedule.resumed", schedule=name)


@schedules.post("/api/schedules/{name}/run", errors=("max_jobs_reached",))
async def run_schedule(request: Request, name: Text) -> JobShown:
    """Enqueue the job of a schedule now; its fires do not change."""
    schedule = await _schedule(request, name)
    payload = msgspec.json.decode(stored(schedule.body, schedule.encoding))
    new = {"topic": schedule.topic, "payload": payload, "encoding": schedule.encoding}
    request.require_enqueue(schedule.topic, new)
    job = await request.app.schedules.arun(schedule.name)
    await request.acted("schedule.run", schedule=name, job=job.id, topic=job.topic)
    return job_shown(job)


async def _schedule(request: Request, name: str) -> Schedule:
    """Read a schedule whose topic the caller may manage."""
    request.require_some("manage")
    schedule = await request.app.schedules.aget(name)
    if not request.may("manage", schedule.topic):
        msg = f"there is no schedule {name!r}"
        raise NotFound(msg)
    return schedule
