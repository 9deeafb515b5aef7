"""The verbs of sessions: the liveness records of workers."""

import os
import secrets
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING

from towpath.app.checks import worker_of
from towpath.model.job import Lease
from towpath.model.sessions import RemoteWorker, Session
from towpath.model.topics import checked
from towpath.operation import Operation
from towpath.store import sessions

if TYPE_CHECKING:
    from towpath.app.app import App


class Sessions:
    """Start, beat, end. The leases of a session live as long as it beats."""

    def __init__(self, app: "App") -> None:
        self._app = app

    async def astart(self, worker: str | None = None, topics: Iterable[str] = ()) -> int:
        """Start the session of a worker that serves these topics."""
        return await self._app.arun(_start(worker, topics))

    async def abeat(self, session: int, started: Iterable[Lease] = ()) -> list[tuple[int, int]]:
        """Keep a session alive, and record which of its leases have started.

        Returns number and epoch of the jobs that were asked to stop. LeaseLost if the session was
        declared dead.
        """
        return await self._app.arun(sessions.beat(session, _numbers(started)))

    async def acancelled(self, session: int) -> list[tuple[int, int]]:
        """Read number and epoch of the session's jobs that were asked to stop."""
        return await self._app.arun(sessions.cancelled(session))

    async def aend(self, session: int) -> None:
        """End a session; its remaining leases are released, which does not count as failure."""
        await self._app.arun(sessions.end(session))

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

    def start(self, worker: str | None = None, topics: Iterable[str] = ()) -> int:
        """Start the session of a worker that serves these topics."""
        return self._app.run(_start(worker, topics))

    def beat(self, session: int, started: Iterable[Lease] = ()) -> list[tuple[int, int]]:
        """Keep a session alive, and record which of its leases have started.

        Returns number and epoch of the jobs that were asked to stop. LeaseLost if the session was
        declared dead.
        """
        return self._app.run(sessions.beat(session, _numbers(started)))

    def cancelled(self, session: int) -> list[tuple[int, int]]:
        """Read number and epoch of the session's jobs that were asked to stop."""
        return self._app.run(sessions.cancelled(session))

    def end(self, session: int) -> None:
        """End a session; its remaining leases are released, which does not count as failure."""
        self._app.run(sessions.end(session))

    def hear(self, worker: str, topics: Iterable[str]) -> None:
        """Record that a worker without a session asks for jobs of these topics."""
        self._app.run(_hear(worker, topics))

    def remote(self) -> "list[RemoteWorker]":
        """Read the workers without a session that were active in the last hour or have a lease."""
        return self._app.run(sessions.list_remote())

    def list(self) -> list[Session]:
        """Read the sessions that have not ended, oldest first; a silent one may be dead."""
        return self._app.run(sessions.list_sessions())


def _start(worker: str | None, topics: Iterable[str]) -> Operation[int]:
    return sessions.start(new_number(), worker or worker_name(), [checked(each) for each in topics])


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
