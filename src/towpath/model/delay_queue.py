"""Jobs as a delay queue sees them: a job that is due is ready."""

from datetime import datetime, timedelta

from msgspec import Struct

from towpath.model.job import Job
from towpath.model.states import State


class QueueCounts(Struct, frozen=True, kw_only=True):
    """One topic as a delay queue: what is due is ready, what is blocked is delayed."""

    topic: str
    ready: int
    urgent: int  # of those that are ready
    delayed: int
    reserved: int
    buried: int
    paused_for: timedelta | None  # from now on

    @property
    def jobs(self) -> int:
        """All that are not finished."""
        return self.ready + self.delayed + self.reserved + self.buried


class JobAt(Struct, frozen=True):
    """A job, and the instant at which it was read."""

    job: Job
    at: datetime

    @property
    def state(self) -> State:
        """Where it lies; what is due is ready, whether or not it was moved yet."""
        until = self.job.until
        due = (self.job.state is State.DELAYED and self.job.run_at <= self.at) or (
            self.job.state is State.RESERVED and until is not None and until <= self.at
        )
        return State.READY if due else self.job.state
