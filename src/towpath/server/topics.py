"""Topics, schedules and workers over HTTP."""

import contextlib
from typing import Any, Final

import msgspec

from towpath.errors import NotFound
from towpath.model.schedule import Schedule
from towpath.server.asked import Kick, NewSchedule, Pause, Text, Topic
from towpath.server.asks import Ask
from towpath.server.routes import Routes
from towpath.server.told import (
    Items,
    JobShown,
    Kicked,
    Purged,
    ScheduleShown,
    TopicShown,
    WorkerShown,
    job_shown,
    schedule_shown,
    shown,
    stored,
    worker_shown,
)

routes: Final = Routes("topics")
schedules: Final = Routes("schedules")
workers: Final = Routes("workers")


@routes.get("/api/topics")
async def list_topics(ask: Ask) -> Items[TopicShown]:
    """Count the jobs of each topic that the caller may manage."""
    found = [topic for topic in await ask.app.topics.astats() if ask.may("manage", topic.topic)]
    if not found:
        ask.require_some("manage")
    return Items(items=[shown(TopicShown, topic) for topic in found])


@routes.post("/api/topics/{topic}/pause", status=204)
async def pause_topic(ask: Ask, topic: Topic, body: Pause) -> None:
    """Hand out no job of this topic for a while, or until it is resumed."""
    ask.require("manage", topic)
    await ask.app.topics.apause(topic, body.duration)


@routes.post("/api/topics/{topic}/resume", status=204)
async def resume_topic(ask: Ask, topic: Topic) -> None:
    """Hand out jobs of this topic again."""
    ask.require("manage", topic)
    await ask.app.topics.aresume(topic)


@routes.post("/api/topics/{topic}/kick")
async def kick_topic(ask: Ask, topic: Topic, body: Kick) -> Kicked:
    """Make buried jobs ready, in bury order; if none is buried, delayed ones."""
    ask.require("manage", topic)
    return Kicked(kicked=await ask.app.jobs.akick(topic, body.limit))


@routes.post("/api/topics/{topic}/purge")
async def purge_topic(ask: Ask, topic: Topic) -> Purged:
    """Forget the pending and failed jobs of a topic."""
    ask.require("manage", topic)
    return Purged(purged=await ask.app.jobs.apurge(topic))


@schedules.get("/api/schedules")
async def list_schedules(ask: Ask) -> Items[ScheduleShown]:
    """Read the schedules of topics that the caller may manage."""
    found = [each for each in await ask.app.schedules.alist() if ask.may("manage", each.topic)]
    if not found:
        ask.require_some("manage")
    return Items(items=[schedule_shown(each) for each in found])


@schedules.get("/api/schedules/{name}")
async def get_schedule(ask: Ask, name: Text) -> ScheduleShown:
    """Read a schedule."""
    return schedule_shown(await _schedule(ask, name))


@schedules.put("/api/schedules/{name}")
async def set_schedule(ask: Ask, name: Text, body: NewSchedule) -> ScheduleShown:
    """Store a schedule, or change the one of this name."""
    ask.require("manage", body.topic)
    with contextlib.suppress(NotFound):  # it may be new
        ask.require("manage", (await ask.app.schedules.aget(name)).topic)
    ask.require_enqueue(body.topic, ask.body)  # for it will
    options: dict[str, Any] = {}
    for option in ("priority", "max_retries", "timeout"):
        if getattr(body, option) is not None:
            options[option] = getattr(body, option)
    stored = await ask.app.schedules.aset(
        name,
        topic=body.topic,
        payload=body.payload,
        cron=body.cron,
        every=body.every,
        tz=body.tz,
        catch_up=body.catch_up,
        **options,
    )
    return schedule_shown(stored)


@schedules.delete("/api/schedules/{name}", status=204)
async def delete_schedule(ask: Ask, name: Text) -> None:
    """Forget a schedule; jobs that it has enqueued stay."""
    await ask.app.schedules.adelete((await _schedule(ask, name)).name)


@schedules.post("/api/schedules/{name}/pause", status=204)
async def pause_schedule(ask: Ask, name: Text) -> None:
    """Fire no more until it is resumed."""
    await ask.app.schedules.apause((await _schedule(ask, name)).name)


@schedules.post("/api/schedules/{name}/resume", status=204)
async def resume_schedule(ask: Ask, name: Text) -> None:
    """Fire again, from now on."""
    await ask.app.schedules.aresume((await _schedule(ask, name)).name)


@schedules.post("/api/schedules/{name}/run", errors=("max_jobs_reached",))
async def run_schedule(ask: Ask, name: Text) -> JobShown:
    """Enqueue its job now, beside its fires."""
    schedule = await _schedule(ask, name)
    payload = msgspec.json.decode(stored(schedule.body, schedule.encoding))
    new = {"topic": schedule.topic, "payload": payload, "encoding": schedule.encoding}
    ask.require_enqueue(schedule.topic, new)
    return job_shown(await ask.app.schedules.arun(schedule.name))


@workers.get("/api/workers")
async def list_workers(ask: Ask) -> Items[WorkerShown]:
    """Read who works, and when each last showed that it lives.

    First workers with a session, then those that reserve by name without one. The latter are listed
    for an hour after their last request, and while they hold a lease; one that holds a lease counts
    as live.
    """
    ask.require("manage")
    dead_after = ask.app.settings.dead_after
    known = [worker_shown(each, dead_after) for each in await ask.app.sessions.alist()]
    remote = [worker_shown(each, dead_after) for each in await ask.app.sessions.aremote()]
    return Items(items=known + remote)


async def _schedule(ask: Ask, name: str) -> Schedule:
    """Read a schedule whose topic the caller may manage."""
    ask.require_some("manage")
    schedule = await ask.app.schedules.aget(name)
    if not ask.may("manage", schedule.topic):
        msg = f"there is no schedule {name!r}"
        raise NotFound(msg)
    return schedule
