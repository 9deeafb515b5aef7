"""Limits: how many jobs of a key run at once, and how often one of them may start."""

from typing import Final

from msgspec import Struct

from towpath.errors import Invalid
from towpath.model.instants import FOREVER, microseconds

MOST_DIGITS: Final = 9  # of the number of a rate
LATE: Final = 100_000  # microseconds by which a look may be late and the rate still be reached
ABSENT: Final = 250_000  # microseconds; a wait that is longer is not made up for at all


class Limit(Struct, frozen=True, omit_defaults=True):
    """Bounds the jobs that share its key, on all workers together.

    `Limit("customer-7", concurrency=1)` runs them one after the other, in the order of priority and
    number within each topic. `Limit("mailer", rate="100/m", burst=10)` starts one every 0.6 s, and
    ten at once after a rest. A start that is late by up to 0.1 s brings the next one no later, so
    in any `t` seconds at most `rate * (t + 0.1) + burst` start. The newest job says what holds for
    all of its key.
    """

    key: str
    concurrency: int | None = None  # so many at once
    rate: str | None = None  # so many starts in a time, such as "10/s", "100/15m"
    burst: int = 1  # so many starts at once after a rest

    @property
    def pace(self) -> int | None:
        """Microseconds from one start to the next at an even pace."""
        if self.rate is None:
            return None
        number, _, period = str(self.rate).partition("/")
        if not number.isdecimal() or len(number) > MOST_DIGITS or not int(number) or not period:
            msg = f'rate {self.rate!r} is not so many starts in a time, such as "10/s" or "100/15m"'
            raise Invalid(msg)
        time = microseconds(f"1{period}" if period.isalpha() else period, "the time of a rate")
        if not time:
            msg = f"rate {self.rate!r} is about no time at all"
            raise Invalid(msg)
        return max(1, time // int(number))


class LimitInUse(Struct, frozen=True, kw_only=True):
    """A limit, and who is bound by it."""

    key: str
    concurrency: int | None
    pace: int | None  # microseconds from one start to the next
    burst: int
    running: int
    blocked: int


class Gauge(Struct):
    """What a limit leaves room for, at one instant."""

    running: int
    concurrency: int | None
    pace: int | None
    burst: int
    tat: int  # when the next start would be due at an even pace
    now: int

    def room(self, since: int = 0) -> int:
        """How many may start now, of those that are in line since an instant."""
        allowed = FOREVER if self.concurrency is None else self.concurrency - self.running
        return max(0, min(allowed, self._paced(since)))

    @property
    def free_at(self) -> int | None:
        """When the pace allows the next start; None if only the end of another one can."""
        if self.pace is None or self._paced(0) > 0:
            return None
        return self.tat - self._early(self.pace)

    def start(self, since: int = 0) -> None:
        """Count the start of one that is in line since an instant."""
        self.running += 1
        if self.pace is not None:
            self.tat = self._due(self.pace, since) + self.pace

    def _paced(self, since: int) -> int:
        if self.pace is None:
            return FOREVER
        return (self.now + self._early(self.pace) - self._due(self.pace, since)) // self.pace + 1

    def _due(self, pace: int, since: int) -> int:
        """When the next start is due: a late look is made up for, a rest or an absence is not."""
        due = max(self.tat, min(since, self.now))
        if self.now - due > ABSENT:
            return self.now
        return max(due, self.now - max(0, LATE - self._early(pace)))

    def _early(self, pace: int) -> int:
        return (self.burst - 1) * pace
