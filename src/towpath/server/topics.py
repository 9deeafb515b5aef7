"""Topics over HTTP."""

from typing import Final

from towpath.server.inputs import Kick, Pause, Topic
from towpath.server.outputs import Kicked, Purged
from towpath.server.request import Request
from towpath.server.routes import Routes

routes: Final = Routes("topics")


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
