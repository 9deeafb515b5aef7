"""How long a failed job waits before its next try."""

from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Final, Self, TypeAlias, cast

from msgspec import Struct

from towpath.errors import Invalid
from towpath.model.instants import Duration, microseconds

MOST_WAITS: Final = 100


class Backoff(Struct, frozen=True, omit_defaults=True):
    """Exponential: `first` seconds, then `factor` times as long each time, up to `most`."""

    first: float = 60.0  # seconds after the first failure
    factor: float = 4.0  # by which each wait is longer than the one before
    most: float = 86_400.0  # seconds of the longest wait
    step: float = 0.0  # seconds that are added each time
    jitter: float = 0.0  # the share of a wait by which it randomly varies, up or down
    waits: tuple[float, ...] = ()  # instead of a rule: these waits in order, then always the last

    @classmethod
    def exponential(
        cls,
        first: Duration = 60,
        factor: float = 4,
        *,
        most: Duration = "1d",
        jitter: float = 0,
    ) -> Self:
        """Wait `first`, then `factor` times as long each time, up to `most`."""
        return cls(_seconds(first), factor, _seconds(most), jitter=jitter).checked()

    @classmethod
    def linear(
        cls,
        first: Duration = 60,
        step: Duration | None = None,
        *,
        most: Duration = "1d",
        jitter: float = 0,
    ) -> Self:
        """Wait `first`, then longer by `step` each time (default: `first`), up to `most`."""
        more = _seconds(first if step is None else step)
        return cls(_seconds(first), 1.0, _seconds(most), more, jitter).checked()

    @classmethod
    def constant(cls, wait: Duration, *, jitter: float = 0) -> Self:
        """Wait the same time after each failure."""
        return cls(_seconds(wait), 1.0, _seconds(wait) * (1 + jitter), jitter=jitter).checked()

    @classmethod
    def listed(cls, waits: Sequence[Duration], *, jitter: float = 0) -> Self:
        """Wait these times in order, then always the last of them."""
        each = tuple(_seconds(wait) for wait in waits)
        if not each:
            raise _wrong_number(0)
        return cls(most=max(each) * (1 + jitter), jitter=jitter, waits=each).checked()

    def checked(self) -> Self:
        """Return the backoff itself; raise Invalid if a number in it is out of range."""
        if len(self.waits) > MOST_WAITS:
            raise _wrong_number(len(self.waits))
        for name in ("first", "most", "step"):
            _number(getattr(self, name), name)
        for wait in self.waits:
            _number(wait, "wait")
        for name, most in (("factor", 10**9), ("jitter", 1)):
            number = getattr(self, name)
            if not isinstance(number, int | float) or not 0 <= number <= most:  # also refuses NaN
                msg = f"{name} {number!r} is not a number between 0 and {most:,}"
                raise Invalid(msg)
        return self

    def seconds(self, failures: int, of: object = None) -> float:
        """Return the wait after the given number of failures (1 is the first) of a job.

        The jitter depends only on the job and the number, so a repeated call gives the same wait.
        """
        wait = self._wait(failures)
        if self.jitter:
            chance = Random(f"{of}:{failures}").uniform(-1, 1)  # noqa: S311 - no secret
            wait *= 1 + self.jitter * chance
        return min(wait, self.most)

    def _wait(self, failures: int) -> float:
        if self.waits:
            return self.waits[min(failures, len(self.waits)) - 1]
        if not self.first:
            return self.step * (failures - 1)
        try:
            wait = self.first * self.factor ** (failures - 1) + self.step * (failures - 1)
        except OverflowError:
            return self.most
        return min(wait, self.most)


def _wrong_number(waits: int) -> Invalid:
    return Invalid(f"a backoff lists 1 to {MOST_WAITS} waits, not {waits}")


def _seconds(duration: Duration) -> float:
    return microseconds(duration) / 1e6


def _number(seconds: float, name: str) -> None:
    if isinstance(seconds, str | timedelta):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        msg = f'{name} {seconds!r} is not a number of seconds; use Backoff.exponential("5s")'
        raise Invalid(msg)
    microseconds(seconds, name)


BackoffOption: TypeAlias = Backoff | Duration | Sequence[Duration]
"""A rule, one wait that is always the same, or a list of waits."""


def backoff_of(given: object) -> Backoff:
    """Read a backoff in any of the forms that callers may give."""
    if isinstance(given, Backoff):
        return given.checked()
    if isinstance(given, list | tuple):
        return Backoff.listed(cast("Sequence[Duration]", given))
    if callable(given):
        msg = "a backoff function cannot be stored with a job; pass it to @app.task(backoff=...)"
        raise Invalid(msg)
    return Backoff.constant(cast("Duration", given))


DEFAULT: Final = Backoff()
