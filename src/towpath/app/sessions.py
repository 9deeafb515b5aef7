"""The verbs of sessions: a worker's sign of life."""

import os
import secrets
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING

from towpath.model.job import Lease
from towpath.model.topics import checked
from towpath.operation import Operation
from towpath.store import sessions
from towpath.store.sessions import Session

if TYPE_CHECKING:
    from towpath.app.app import App


class Sessions:
    """Start, beat, end. A session's leases live as long as it beats."""

    def __init__(self, app: "App") -> None:
        self._app = app

    def start(self, worker: str | None = None, topics: Iterable[str] = ()) -> int:
        """Begin a session, of a worker that serves these topics."""
        return self._app.run(_start(worker, topics))

    async def astart(self, worker: str | None = None, topics: Iterable[str] = ()) -> int:
        """Begin a session, of a worker that serves these topics."""
        return await self._app.arun(_start(worker, topics))

    def beat(self, session: int, started: Iterable[Lease] = ()) -> list[tuple[int, int]]:
        """Say that the session lives, and which of its leases have started.

        Returns number and epoch of the jobs that were asked to stop; LeaseLost if it is dead.
        """
        return self._app.run(sessions.beat(session, _places(started)))

    async def abeat(self, session: int, started: Iterable[Lease] = ()) -> list[tuple[int, int]]:
        """Say that the session lives, and which of its leases have started."""
        return await self._app.arun(sessions.beat(session, _places(started)))

    def cancelled(self, session: int) -> list[tuple[int, int]]:
        """Read number and epoch of the jobs that a session holds and that were asked to stop."""
        return self._app.run(sessions.cancelled(session))

    async def acancelled(self, session: int) -> list[tuple[int, int]]:
        """Read number and epoch of the jobs that a session holds and that were asked to stop."""
        return await self._app.arun(sessions.cancelled(session))

    def end(self, session: int) -> None:
        """End a session; what it still holds is released, uncounted."""
        self._app.run(sessions.end(session))

    async def aend(self, session: int) -> None:
        """End a session; what it still holds is released, uncounted."""
        await self._app.arun(sessions.end(session))

    async def alist(self) -> list[Session]:
        """Read the sessions that were not ended, oldest first; a silent one may be dead."""
        return await self._app.arun(sessions.list_sessions())

    # Last, because from here on the name is taken.
    def list(self) -> list[Session]:
        """Read the sessions that were not ended, oldest first; a silent one may be dead."""
        return self._app.run(sessions.list_sessions())


def _start(worker: str | None, topics: Iterable[str]) -> Operation[int]:
    return sessions.start(new_number(), worker or worker_name(), [checked(each) for each in topics])


def new_number() -> int:
    """Return a random number that fits a signed 64-bit column."""
    return secrets.randbits(62)


def worker_name() -> str:
    """Return a name that no other worker has."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def _places(leases: Iterable[Lease]) -> list[tuple[int, int]]:
    return [(lease.job.seq, lease.epoch) for lease in leases]
