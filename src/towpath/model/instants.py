"""Instants and durations: whole microseconds inside, datetime and timedelta in the public API."""

import math
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from towpath.errors import Invalid

Duration = timedelta | float | str
"""A timedelta, seconds, or text such as "250ms", "90s", "15m", "1h30m", "3d"."""

FOREVER: Final = 2**62  # later than every instant, yet fits a signed 64-bit column
LONGEST: Final = timedelta(days=36_500)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_LATEST: Final = (datetime(2255, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND  # exact as a double
_UNITS: Final = {"ms": 10**3, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86400 * 10**6}
_TEXT: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+", re.ASCII)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)


def microseconds(duration: Duration, name: str = "duration") -> int:
    """Return a duration in microseconds; raise Invalid if it is negative or too long."""
    try:
        us = _read(duration, name)
    except OverflowError:
        us = -1  # out of range, as are all negative numbers
    if not 0 <= us <= LONGEST // _MICROSECOND:
        msg = f"{name} {duration!r} is not between 0 and {LONGEST.days} days"
        raise Invalid(msg)
    return us


def _read(duration: Duration, name: str) -> int:
    match duration:
        case timedelta():
            return duration // _MICROSECOND
        case str() if _TEXT.fullmatch(duration):
            return round(sum(float(n) * _UNITS[unit] for n, unit in _PART.findall(duration)))
        case int() | float() if not isinstance(duration, bool) and math.isfinite(duration):
            return round(duration * 10**6)
        case _:
            msg = (
                f"{name} {duration!r} is not a timedelta, a number of seconds, or text with the "
                'units ms, s, m, h and d, such as "1h30m"'
            )
            raise Invalid(msg)


def instant(at: datetime, name: str = "run_at") -> int:
    """Return a datetime as microseconds since 1970; it must have a time zone."""
    if not isinstance(at, datetime):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        msg = f"{name} {at!r} is not a datetime"
        raise Invalid(msg)
    if at.tzinfo is None:
        msg = f"{name} {at!r} has no time zone; use an aware datetime such as datetime.now(UTC)"
        raise Invalid(msg)
    us = (at - _EPOCH) // _MICROSECOND
    if not 0 <= us <= _LATEST:
        msg = f"{name} {at} is not between the years 1970 and 2254"
        raise Invalid(msg)
    return us


@lru_cache(256)  # the jobs of a batch share their instants
def as_datetime(us: int) -> datetime:
    """Return the instant as an aware datetime in UTC."""
    # A double is exact here (see _LATEST), and this is four times as fast as adding a timedelta.
    return datetime.fromtimestamp(us / 1e6, UTC)


@lru_cache(256)
def as_timedelta(us: int) -> timedelta:
    """Return the duration as a timedelta."""
    return timedelta(microseconds=us)


def spoken(duration: timedelta) -> str:
    """Return a duration in its largest unit, rounded down: 250 ms, 12 s, 5 min, 3 h, 2 d."""
    seconds = duration.total_seconds()
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            return f"{int(seconds / size)} {unit}"
    return f"{round(seconds * 1000)} ms"
