"""What a running task may know of its job, and say about it."""

from threading import Event
from typing import TYPE_CHECKING

from towpath.model.instants import Duration
from towpath.model.job import Job, Lease

if TYPE_CHECKING:
    from towpath.app.app import App


class Context:
    """Given to a task whose first parameter is annotated with it."""

    def __init__(self, app: "App", lease: Lease) -> None:
        self.app = app
        self._lease = lease
        self._cancelled = Event()

    @property
    def job(self) -> Job:
        """The job that runs, as it was when it was reserved."""
        return self._lease.job

    @property
    def tries(self) -> int:
        """How often it has failed before."""
        return self._lease.job.retries

    @property
    def cancelled(self) -> bool:
        """Whether the job was asked to stop. Blocking code has to look; a task is interrupted."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Say that the job was asked to stop."""
        self._cancelled.set()


class Retry(Exception):
    """Raised by a task: try again after a while. It counts as a failure, so that it ends."""

    def __init__(self, after: Duration | None = None) -> None:
        super().__init__("the task asked to be tried again")
        self.after = after


class Cancel(Exception):
    """Raised by a task: the job is not to be done after all."""


class Bury(Exception):
    """Raised by a task: no further try; somebody has to look at it."""
