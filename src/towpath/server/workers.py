"""Workers over HTTP: which ones live, what they run, and to ask one to stop."""

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from towpath.app.sessions import is_live
from towpath.model.pages import JobBrief
from towpath.model.sessions import RemoteWorker, Session
from towpath.server.outputs import JobBriefShown, ResponseBody, brief_shown, shown
from towpath.server.request import Request
from towpath.server.routes import Routes
from towpath.settings import Settings

routes: Final = Routes("workers")

LATE_AFTER: Final = 2.5  # heartbeats


class WorkerShown(ResponseBody):
    """A worker: with a session, or known by its requests and leases."""

    session: str | None  # a string, as JavaScript cannot hold the number; null: no session
    worker: str
    topics: list[str]
    started_at: datetime
    beat_at: datetime  # its last heartbeat or request
    silent: float
    live: bool
    late: bool  # its session has missed two heartbeats
    stopping: bool  # it was asked to stop
    host: str | None
    pid: int | None
    concurrency: int | None  # jobs that it runs at once
    version: str | None
    leases: int
    jobs: list[JobBriefShown]  # of a session: the first that it holds, at most 20


class UnnamedShown(ResponseBody):
    """The leases of clients that have neither a session nor a name, in one topic."""

    topic: str
    leases: int
    oldest_until: datetime | None


class WorkersShown(ResponseBody):
    """The workers, and what clients hold that are not known by a name."""

    items: list[WorkerShown]
    unnamed: list[UnnamedShown]


@routes.get("/api/workers")
async def list_workers(request: Request) -> WorkersShown:
    """Read the workers, when each was last heard from, and what it runs.

    Workers with a session come first, then workers that reserve by name without one. These are
    listed for an hour after their last request and while they hold a lease, and count as live
    while they hold one. Topics that a rule closes to the caller are left out, with their jobs.
    """
    request.require("manage")
    sessions, closed = request.app.sessions, request.closed_topics("manage")
    jobs = await sessions.ajobs()
    show = partial(_shown, request.app.settings, closed)
    known = [show(each, jobs.get(each.session, ())) for each in await sessions.alist()]
    remote = [show(each) for each in await sessions.aremote()]
    unnamed = [
        shown(UnnamedShown, each) for each in await sessions.aunnamed() if each.topic not in closed
    ]
    return WorkersShown(items=known + remote, unnamed=unnamed)


@routes.post("/api/workers/{session}/stop", status=204)
async def stop_worker(request: Request, session: int) -> None:
    """Ask a worker to stop: at its next heartbeat it ends its jobs and takes no more.

    What supervises the process may start another one.
    """
    request.require_superuser()
    await request.app.sessions.astop(session)
    await request.acted("worker.stopped", session=str(session))


def _shown(
    settings: Settings,
    closed: Collection[str],
    worker: Session | RemoteWorker,
    jobs: Sequence[JobBrief] = (),
) -> WorkerShown:
    place = worker.place
    silent = worker.silent.total_seconds()
    return WorkerShown(
        session=None if worker.session is None else str(worker.session),
        worker=worker.worker,
        topics=[topic for topic in worker.topics if topic not in closed],
        started_at=worker.started_at,
        beat_at=worker.beat_at,
        silent=silent,
        live=is_live(worker, settings.dead_after),
        late=worker.session is not None and silent >= LATE_AFTER * settings.beat_every,
        stopping=worker.stopping,
        host=place.host,
        pid=place.pid,
        concurrency=place.concurrency,
        version=place.version,
        leases=worker.leases,
        jobs=[brief_shown(each) for each in jobs if each.topic not in closed],
    )
