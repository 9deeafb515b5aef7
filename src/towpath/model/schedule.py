"""Schedules: when a rule fires, and what is made of the fires that nobody was there to make.

Instants are whole microseconds since 1970. Nothing here knows what time it is.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any, ClassVar, Final, Literal, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Struct

from towpath.errors import Invalid
from towpath.model import payload
from towpath.model.instants import Duration, as_datetime, instant, microseconds

CatchUp = Literal["skip", "latest", "all"]
"""What is made of missed fires: nothing, one job for all of them, or a job for each."""

MOST_CAUGHT_UP: Final = 1_000  # fires of one schedule at once
GRACE: Final = 60 * 10**6  # a fire is not missed before it is so late
SHORTEST: Final = 10**6
CORRECTION: Final = 3 * 3600 * 10**6  # a clock that is set back by more was wrong

_MINUTE: Final = 60 * 10**6
_DAY: Final = timedelta(days=1)
_FIELDS: Final = 5
_MOST_NAME: Final = 200


class Every(Struct, frozen=True):
    """Fires at each multiple of a duration since 1970, so that nobody's restart shifts it."""

    us: int
    follows_the_clock: ClassVar[bool] = True  # also where it is set back

    def after(self, at: int) -> int | None:
        """Return the first fire after an instant."""
        return (at // self.us + 1) * self.us


class Cron(Struct, frozen=True):
    """Fires when the clock on the wall of a time zone says so, as Debian's cron does.

    A rule with a fixed time fires once a day: where the clock leaps over that time, at the end of
    the leap; where it shows it twice, the first time. A rule whose minute or hour begins with *
    follows the clock: not at all in a leap, twice where the clock goes back.
    """

    text: str
    tz: str

    def after(self, at: int) -> int | None:
        """Return the first fire after an instant, or None if there is none in 50 years."""
        zone = zone_named(self.tz)
        since = as_datetime(at)
        found: datetime | None = None
        for wall in CronSim(self.text, _earliest_wall(since, zone)):
            instants = self._instants(wall, zone)
            later = (each for each in (*instants, found) if each and each > since)
            found = min(later, default=None)
            # Only the second pass of an hour that comes twice is overtaken by a later time.
            if found and instants and instants[0] >= found:
                break
        return None if found is None else instant(found)

    def _instants(self, wall: datetime, zone: ZoneInfo) -> list[datetime]:
        """Return when the clock on the wall shows a time, as far as the rule fires then."""
        first = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
        second = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
        if first < second:
            return [first, second] if self.follows_the_clock else [first]
        if first == second:
            return [first]
        return [] if self.follows_the_clock else [_end_of_leap(wall, zone)]

    @property
    def follows_the_clock(self) -> bool:
        """Whether the rule fires again where the clock shows its times again."""
        minute, hour, *_ = self.text.split()
        return minute.startswith("*") or hour.startswith("*")


Rule = Every | Cron


def next_fire(rule: Rule, now: int, last_at: int | None) -> int | None:
    """Return the first fire after now, also where the clock was set back behind the last fire.

    As in Debian's cron: a rule that follows the clock fires by the new time; one with a fixed time
    does not fire again, unless the clock was wrong by more than three hours. A fire that was just
    made is not repeated.
    """
    if last_at is None or last_at <= now:
        return rule.after(now)
    if not rule.follows_the_clock and last_at - now <= CORRECTION:
        return rule.after(last_at)
    next_at = rule.after(now)
    return rule.after(last_at) if next_at == last_at else next_at


def _earliest_wall(since: datetime, zone: ZoneInfo) -> datetime:
    """Return a time on the wall that nothing after this instant comes before."""
    # Where the clock goes back within the day, times that it has shown will be shown again.
    return min(
        since.astimezone(zone).replace(tzinfo=None),
        (since + _DAY).astimezone(zone).replace(tzinfo=None) - _DAY,
    ).replace(fold=0)


def _end_of_leap(wall: datetime, zone: ZoneInfo) -> datetime:
    while True:
        at = wall.replace(tzinfo=zone).astimezone(UTC)
        if at.astimezone(zone).replace(tzinfo=None) == wall:
            return at
        wall += timedelta(minutes=1)


class Due(NamedTuple):
    """What is made of the fires of a schedule that are due."""

    fires: list[int]  # each becomes a job
    older: bool  # more of them were missed than are caught up
    next_at: int | None


def due(rule: Rule, catch_up: CatchUp, first: int, now: int) -> Due:
    """Say what becomes of the fires from the first one that is due until now."""
    next_at = rule.after(now)
    if catch_up == "all":
        fires = _last(rule, first, now, MOST_CAUGHT_UP + 1)
        return Due(fires[-MOST_CAUGHT_UP:], len(fires) > MOST_CAUGHT_UP, next_at)
    fires = _last(rule, first, now, 1)
    if catch_up == "skip":
        fires = [fire for fire in fires if now - fire < GRACE]
    return Due(fires, False, next_at)


def _last(rule: Rule, first: int, now: int, most: int) -> list[int]:
    """Return the last fires until now, without counting through a year of them."""
    window = most * _MINUTE
    while now - window > first:
        fires = list(_fires(rule, now - window, now))
        if len(fires) >= most:
            return fires[-most:]
        window *= 2
    return [first, *_fires(rule, first, now)][-most:]


def _fires(rule: Rule, since: int, until: int) -> Iterator[int]:
    at = rule.after(since)
    while at is not None and at <= until:
        yield at
        at = rule.after(at)


class Schedule(Struct, frozen=True, kw_only=True):
    """A rule that enqueues again and again, as it was when it was read."""

    name: str
    topic: str
    cron: str | None  # minute, hour, day, month and weekday
    tz: str | None  # of a cron rule
    every: timedelta | None  # instead of a cron rule
    catch_up: str
    body: str  # the payload as stored
    encoding: str
    paused: bool
    next_at: datetime | None  # when it fires next; None while it is paused
    last_at: datetime | None  # when it was to fire last
    error: str | None  # why it could not fire

    @property
    def payload(self) -> Any:
        """The data that its jobs are enqueued with."""
        return payload.decode(self.body, self.encoding)


def rule_of(cron: str | None, every: Duration | None, tz: str | None) -> Rule:
    """Read a rule: cron or every."""
    if (cron is None) == (every is None):
        msg = "a schedule has a cron rule or every: " + ("give one" if cron is None else "not both")
        raise Invalid(msg)
    if every is None:
        return _cron(cron, "UTC" if tz is None else tz)
    if tz is not None:
        msg = "every counts from 1970 in UTC; a time zone goes with a cron rule"
        raise Invalid(msg)
    us = microseconds(every, "every")
    if us < SHORTEST:
        msg = f"every {every!r} is less than a second"
        raise Invalid(msg)
    return Every(us)


def _cron(text: Any, tz: Any) -> Cron:
    if not isinstance(text, str) or len(text.split()) != _FIELDS:
        msg = f"cron {text!r} is not five fields: minute, hour, day, month, weekday"
        raise Invalid(msg)
    rule = Cron(" ".join(text.split()), tz)
    zone_named(tz)
    try:
        ever = rule.after(0)
    except (CronSimError, AssertionError) as error:  # some nonsense it only asserts against
        msg = f"cron {text!r} cannot be read: {error}"
        raise Invalid(msg) from error
    if ever is None:
        msg = f"cron {text!r} never fires"
        raise Invalid(msg)
    return rule


@lru_cache(256)
def zone_named(tz: str) -> ZoneInfo:
    """Return a time zone."""
    try:
        return ZoneInfo(tz)
    except (ValueError, TypeError, OSError, KeyError) as error:
        msg = f"there is no time zone {tz!r}: use a name such as Europe/Zurich"
        raise Invalid(msg) from error


def catch_up_of(word: Any) -> CatchUp:
    """Return what is made of missed fires if it is one of the words for that."""
    if word not in ("skip", "latest", "all"):
        msg = f"catch_up is skip, latest or all, not {word!r}"
        raise Invalid(msg)
    found: CatchUp = word
    return found


def name_of(name: Any) -> str:
    """Return the name of a schedule if it can be one."""
    if not isinstance(name, str) or not name or payload.clean_text(name, _MOST_NAME) != name:
        msg = f"a schedule's name is text of 1 to {_MOST_NAME} characters, not {name!r}"
        raise Invalid(msg)
    return name


def fire_id(name: str, epoch: int, fire_at: int) -> UUID:
    """Return the id of the job of one fire: always the same, so that there is never a second one.

    It is a UUIDv7 of the fire's time whose random bits are a hash. The schedule's epoch is part of
    it: a clock that was set back may show the time of another fire again.
    """
    random = int.from_bytes(sha256(f"{fire_at} {epoch} {name}".encode()).digest()[:10], "big")
    number = (max(fire_at, 0) // 1000) << 80 | random
    number = number & ~(0xF000 << 64) | (0x7000 << 64)  # version
    return UUID(int=number & ~(0xC000 << 48) | (0x8000 << 48))  # variant
