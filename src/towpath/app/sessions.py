"""The verbs of sessions: the liveness records of workers."""

import os
import secrets
import socket
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from towpath.app.checks import worker_of
from towpath.model.job import Lease
from towpath.model.pages import JobBrief
from towpath.model.sessions import Beat, RemoteWorker, Session, UnnamedLeases, WorkerPlace
from towpath.model.topics import checked
from towpath.operation import Operation
from towpath.store import listing, sessions

if TYPE_CHECKING:
    from towpath.app.app import App


class Sessions:
    """Start, beat, end. The leases of a session live as long as it beats."""

    def __init__(self, app: "App") -> None:
        self._app = app

    async def astart(
        self,
        worker: str | None = None,
        topics: Iterable[str] = (),
        *,
        concurrency: int | None = None,
    ) -> int:
        """Start the session of a worker that serves these topics, so many jobs at once."""
        return await self._app.arun(_start(worker, topics, concurrency))

    async def abeat(self, session: int, started: Iterable[Lease] = ()) -> Beat:
        """Keep a session alive, and record which of its leases have started.

        Returns the jobs that were asked to stop, and whether the worker was. LeaseLost if the
        session was declared dead.
        """
        return await self._app.arun(sessions.beat(session, _numbers(started)))

    async def acancelled(self, session: int) -> list[tuple[int, int]]:
        """Read number and epoch of the session's jobs that were asked to stop."""
        return await self._app.arun(sessions.cancelled(session))

    async def aend(self, session: int) -> None:
        """End a session; its remaining leases are released, which does not count as failure."""
        await self._app.arun(sessions.end(session))

    async def astop(self, session: int) -> None:
        """Ask a worker to stop: its next beat tells it, then it ends its jobs and takes no more.

        What supervises the process may start another one. NotFound if the session has ended.
        """
        await self._app.arun(sessions.ask_to_stop(session))

    async def ajobs(self, most: int = 20) -> Mapping[int, Sequence[JobBrief]]:
        """Read the first jobs that each session holds, by session."""
        held = await self._app.arun(sessions.held(most))
        numbers = [seq for each in held.values() for seq in each]
        briefs = await self._app.arun(listing.briefs(numbers, self._app.settings.redact))
        return _by_session(held, briefs)

    async def aunnamed(self) -> Sequence[UnnamedLeases]:
        """Count the leases of clients that have neither a session nor a name, by topic."""
        return await self._app.arun(sessions.unnamed())

    async def ahear(self, worker: str, topics: Iterable[str]) -> None:
        """Record that a worker without a session asks for jobs of these topics."""
        await self._app.arun(_hear(worker, topics))

    async def aremote(self) -> "list[RemoteWorker]":
        """Read the workers without a session that were active in the last hour or have a lease."""
        return await self._app.arun(sessions.list_remote())

    async def alist(self) -> list[Session]:
        """Read the sessions that have not ended, oldest first; a silent one may be dead."""
        return await self._app.arun(sessions.list_sessions())

    # From here on written by tools/blocking.py out of the async verbs above: do not edit.

    def start(
        self,
        worker: str | None = None,
        topics: Iterable[str] = (),
        *,
        concurrency: int | None = None,
    ) -> int:
        """Start the session of a worker that serves these topics, so many jobs at once."""
        return self._app.run(_start(worker, topics, concurrency))

    def beat(self, session: int, started: Iterable[Lease] = ()) -> Beat:
        """Keep a session alive, and record which of its leases have started.

        Returns the jobs that were asked to stop, and whether the worker was. LeaseLost if the
        session was declared dead.
        """
        return self._app.run(sessions.beat(session, _numbers(started)))

    def cancelled(self, session: int) -> list[tuple[int, int]]:
        """Read number and epoch of the session's jobs that were asked to stop."""
        return self._app.run(sessions.cancelled(session))

    def end(self, session: int) -> None:
        """End a session; its remaining leases are released, which does not count as failure."""
        self._app.run(sessions.end(session))

    def stop(self, session: int) -> None:
        """Ask a worker to stop: its next beat tells it, then it ends its jobs and takes no more.

        What supervises the process may start another one. NotFound if the session has ended.
        """
        self._app.run(sessions.ask_to_stop(session))

    def jobs(self, most: int = 20) -> Mapping[int, Sequence[JobBrief]]:
        """Read the first jobs that each session holds, by session."""
        held = self._app.run(sessions.held(most))
        numbers = [seq for each in held.values() for seq in each]
        briefs = self._app.run(listing.briefs(numbers, self._app.settings.redact))
        return _by_session(held, briefs)

    def unnamed(self) -> Sequence[UnnamedLeases]:
        """Count the leases of clients that have neither a session nor a name, by topic."""
        return self._app.run(sessions.unnamed())

    def hear(self, worker: str, topics: Iterable[str]) -> None:
        """Record that a worker without a session asks for jobs of these topics."""
        self._app.run(_hear(worker, topics))

    def remote(self) -> "list[RemoteWorker]":
        """Read the workers without a session that were active in the last hour or have a lease."""
        return self._app.run(sessions.list_remote())

    def list(self) -> list[Session]:
        """Read the sessions that have not ended, oldest first; a silent one may be dead."""
        return self._app.run(sessions.list_sessions())


def _start(
    worker: str | None, topics: Iterable[str], concurrency: int | None = None
) -> Operation[int]:
    place = WorkerPlace(
        host=socket.gethostname(),
        pid=os.getpid(),
        concurrency=concurrency,
        version=version("towpath"),
    )
    named = worker or worker_name()
    return sessions.start(new_number(), named, [checked(each) for each in topics], place)


def _by_session(
    held: Mapping[int, Sequence[int]], briefs: Iterable[JobBrief]
) -> Mapping[int, Sequence[JobBrief]]:
    found = {brief.seq: brief for brief in briefs}
    return {
        session: [found[seq] for seq in numbers if seq in found]
        for session, numbers in held.items()
    }


def is_live(worker: Session | RemoteWorker, dead_after: float) -> bool:
    """Say whether a worker counts as alive.

    A lease without a session is valid until its ttr, even if its worker is silent.
    """
    has_lease = worker.session is None and worker.leases > 0
    return has_lease or worker.silent.total_seconds() < dead_after


def _hear(worker: str, topics: Iterable[str]) -> Operation[None]:
    return sessions.hear(worker_of(worker), [checked(each) for each in topics])


def new_number() -> int:
    """Return a random number that fits a signed 64-bit column."""
    return secrets.randbits(62)


def worker_name() -> str:
    """Return a unique name for a worker."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def _numbers(leases: Iterable[Lease]) -> list[tuple[int, int]]:
    return [(lease.job.seq, lease.epoch) for lease in leases]
