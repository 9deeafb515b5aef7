"""Limits: how many jobs of a key run at once, and how often one of them starts."""

from datetime import datetime
from typing import Final

from msgspec import Struct

from towpath.errors import Invalid
from towpath.model.instants import microseconds

MOST_DIGITS: Final = 9  # of the number of a rate
LATE: Final = 100_000  # microseconds of delay of a start that do not delay the next start
ABSENT: Final = 250_000  # microseconds; after a longer delay the pace begins again
UNLIMITED: Final = 2**62  # a number of starts


class Limit(Struct, frozen=True, omit_defaults=True):
    """Bounds the jobs that share its key, on all workers together.

    `Limit("customer-7", concurrency=1)` runs them one after the other, in the order of priority and
    number within each topic. `Limit("mailer", rate="100/m", burst=10)` starts one every 0.6 s, and
    ten at once after a pause. A start that is late by up to 0.1 s does not delay the next one, so
    in any `t` seconds at most `rate * (t + 0.1) + burst` jobs start. The limit of the newest job
    holds for all jobs of its key.
    """

    key: str  # jobs with the same key share the limit
    concurrency: int | None = None  # jobs that run at once
    rate: str | None = None  # starts in a period, such as "10/s", "100/15m"
    burst: int = 1  # starts at once after a pause

    @property
    def pace(self) -> int | None:
        """Microseconds from one start to the next at an even pace."""
        if self.rate is None:
            return None
        number, _, period = str(self.rate).partition("/")
        if not number.isdecimal() or len(number) > MOST_DIGITS or not int(number) or not period:
            msg = f'rate {self.rate!r} is not a rate; use text such as "10/s" or "100/15m"'
            raise Invalid(msg)
        time = microseconds(f"1{period}" if period.isalpha() else period, "the period of a rate")
        if not time:
            msg = f"rate {self.rate!r} has a period of 0; use a longer one"
            raise Invalid(msg)
        return max(1, time // int(number))


class LimitInUse(Struct, frozen=True, kw_only=True):
    """A limit, and how many jobs it binds."""

    key: str
    concurrency: int | None
    pace: int | None  # microseconds from one start to the next
    burst: int
    running: int
    blocked: int
    exact: bool = True  # if not, more jobs are blocked
    free_at: datetime | None = None  # when the pace allows the next start


class Gauge(Struct):
    """The use of one limit at one instant."""

    running: int
    concurrency: int | None
    pace: int | None
    burst: int
    tat: int  # "theoretical arrival time": the next start at an even pace
    now: int

    def room(self, since: int = 0) -> int:
        """How many jobs may start now that have been waiting since an instant."""
        allowed = UNLIMITED if self.concurrency is None else self.concurrency - self.running
        return max(0, min(allowed, self._paced(since)))

    @property
    def free_at(self) -> int | None:
        """When the pace allows the next start; None if it waits only for a running job to end."""
        if self.pace is None or self._paced(0) > 0:
            return None
        return self.tat - self._early(self.pace)

    def start(self, since: int = 0) -> None:
        """Count the start of a job that has been waiting since an instant."""
        self.running += 1
        if self.pace is not None:
            self.tat = self._due(self.pace, since) + self.pace

    def _paced(self, since: int) -> int:
        if self.pace is None:
            return UNLIMITED
        return (self.now + self._early(self.pace) - self._due(self.pace, since)) // self.pace + 1

    def _due(self, pace: int, since: int) -> int:
        """When the next start is due; a short delay is made up for, a long one is not."""
        due = max(self.tat, min(since, self.now))
        if self.now - due > ABSENT:
            return self.now
        return max(due, self.now - max(0, LATE - self._early(pace)))

    def _early(self, pace: int) -> int:
        return (self.burst - 1) * pace
