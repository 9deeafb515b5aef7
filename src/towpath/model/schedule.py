"""Schedules: when a rule fires, and what becomes of fires that were missed.

Instants are whole microseconds since 1970. Nothing here reads a clock.
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
from towpath.model.job import Options
from towpath.model.states import State

CatchUp = Literal["skip", "latest", "all"]
"""What missed fires become: nothing, one job for all of them, or one job for each."""

LOOK_BACK: Final = 100 * 86_400 * 10**6  # microseconds in which past fires are looked for
MOST_CRON: Final = 1_000  # characters
MOST_CAUGHT_UP: Final = 1_000  # fires of one schedule at once
GRACE: Final = 60 * 10**6  # a fire counts as missed when it is this late
SHORTEST: Final = 10**6
CORRECTION: Final = 3 * 3600 * 10**6  # a clock that is set back further was wrong before

_MINUTE: Final = 60 * 10**6
_DAY: Final = timedelta(days=1)
_FIELDS: Final = 5
_MOST_NAME: Final = 200


class Every(Struct, frozen=True):
    """Fires at each multiple of a duration since 1970, so that a restart does not shift it."""

    us: int
    follows_the_clock: ClassVar[bool] = True  # also when the clock is set back

    def after(self, at: int) -> int | None:
        """Return the first fire after an instant."""
        return (at // self.us + 1) * self.us


class Cron(Struct, frozen=True):
    """Fires by the local time of a time zone, as Debian's cron does.

    A rule with a fixed time fires once a day: if the clock skips that time, at the end of the gap;
    if the clock shows it twice, the first time. A rule whose minute or hour begins with * follows
    the clock: it does not fire in a gap, and fires twice if the clock goes back.
    """

    text: str
    tz: str

    def after(self, at: int) -> int | None:
        """Return the first fire after an instant, or None if there is none in 50 years."""
        zone = zone_named(self.tz)
        since = as_datetime(at)
        earliest: datetime | None = None
        for wall in CronSim(self.text, _earliest_wall(since, zone)):
            instants = self._instants(wall, zone)
            later = (each for each in (*instants, earliest) if each and each > since)
            earliest = min(later, default=None)
            # A later local time is the earlier instant only in an hour that the clock repeats.
            if earliest and instants and instants[0] >= earliest:
                break
        return None if earliest is None else instant(earliest)

    def _instants(self, wall: datetime, zone: ZoneInfo) -> list[datetime]:
        """Return the instants at which the rule fires for a local time: none, one or two."""
        first = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
        second = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
        if first < second:
            return [first, second] if self.follows_the_clock else [first]
        if first == second:
            return [first]
        return [] if self.follows_the_clock else [_end_of_gap(wall, zone)]

    @property
    def follows_the_clock(self) -> bool:
        """Whether the rule fires again if the clock shows its times again."""
        minute, hour, *_ = self.text.split()
        return minute.startswith("*") or hour.startswith("*")


Rule = Every | Cron


def next_fire(rule: Rule, now: int, last_at: int | None) -> int | None:
    """Return the first fire after now, also if the clock was set back to before the last fire.

    As in Debian's cron: a rule that follows the clock fires by the new time; a rule with a fixed
    time does not fire again, unless the clock was wrong by more than three hours. The last fire
    is never repeated.
    """
    if last_at is None or last_at <= now:
        return rule.after(now)
    if not rule.follows_the_clock and last_at - now <= CORRECTION:
        return rule.after(last_at)
    next_at = rule.after(now)
    return rule.after(last_at) if next_at == last_at else next_at


def _earliest_wall(since: datetime, zone: ZoneInfo) -> datetime:
    """Return a local time that is not later than any local time after this instant."""
    # If the clock goes back within a day, it shows some local times a second time.
    return min(
        since.astimezone(zone).replace(tzinfo=None),
        (since + _DAY).astimezone(zone).replace(tzinfo=None) - _DAY,
    ).replace(fold=0)


def _end_of_gap(wall: datetime, zone: ZoneInfo) -> datetime:
    while True:
        at = wall.replace(tzinfo=zone).astimezone(UTC)
        if at.astimezone(zone).replace(tzinfo=None) == wall:
            return at
        wall += timedelta(minutes=1)


class Due(NamedTuple):
    """What becomes of the due fires of a schedule."""

    fires: list[int]  # each becomes a job
    older: bool  # older fires were dropped, as more were missed than MOST_CAUGHT_UP
    next_at: int | None


def due(rule: Rule, catch_up: CatchUp, first: int, now: int) -> Due:
    """Return what becomes of the fires from the first due one until now."""
    next_at = rule.after(now)
    if catch_up == "all":
        fires = _last(rule, first, now, MOST_CAUGHT_UP + 1)
        return Due(fires[-MOST_CAUGHT_UP:], len(fires) > MOST_CAUGHT_UP, next_at)
    fires = _last(rule, first, now, 1)
    if catch_up == "skip":
        fires = [fire for fire in fires if now - fire < GRACE]
    return Due(fires, False, next_at)


def _last(rule: Rule, first: int, now: int, most: int) -> list[int]:
    """Return the last `most` fires until now, without going through all fires of a year."""
    window = most * _MINUTE
    while now - window > first:
        fires = list(_fires(rule, now - window, now))
        if len(fires) >= most:
            return fires[-most:]
        window *= 2
    return [first, *_fires(rule, first, now)][-most:]


def next_fires(rule: Rule, since: int, count: int) -> list[int]:
    """Return the next fires after an instant; fewer if there are no more in 50 years."""
    found: list[int] = []
    at = rule.after(since)
    while at is not None and len(found) < count:
        found.append(at)
        at = rule.after(at)
    return found


def last_fires(rule: Rule, until: int, count: int) -> list[int]:
    """Return the last fires up to an instant, the newest first, from at most 100 days before."""
    window = count * _MINUTE
    fires = list(_fires(rule, until - window, until))
    while len(fires) < count and window < LOOK_BACK:
        window = min(window * 4, LOOK_BACK)
        fires = list(_fires(rule, until - window, until))
    return fires[: -count - 1 : -1]


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
    tz: str | None  # of the cron rule
    every: timedelta | None  # instead of a cron rule
    catch_up: str
    body: str  # the payload as stored
    encoding: str
    paused: bool
    next_at: datetime | None  # when it fires next; None while it is paused
    last_at: datetime | None  # the time of its last fire
    error: str | None  # why its last fire failed
    priority: int = 50  # of its jobs; as are all that follow
    ttr: timedelta = timedelta(minutes=5)
    key: str | None = None
    options: Options = Options()

    @property
    def payload(self) -> Any:
        """The data that its jobs are enqueued with."""
        return payload.decode(self.body, self.encoding)


class Preview(Struct, frozen=True, kw_only=True):
    """When a rule fires next, and what it says in words."""

    fires: list[datetime]
    words: str


class Fire(Struct, frozen=True, kw_only=True):
    """A fire of a schedule, and what became of its job."""

    at: datetime
    job: UUID | None  # None: it has made no job, or the job is forgotten
    state: State | None  # of the job


def rule_of(cron: str | None, every: Duration | None, tz: str | None) -> Rule:
    """Read a rule: cron or every."""
    if (cron is None) == (every is None):
        both = "not both" if cron is not None else "one is required"
        msg = f"a schedule takes `cron` or `every`: {both}"
        raise Invalid(msg)
    if every is None:
        return _cron(cron, "UTC" if tz is None else tz)
    if tz is not None:
        msg = "`tz` requires `cron`; `every` counts from 1970 in UTC"
        raise Invalid(msg)
    us = microseconds(every, "every")
    if us < SHORTEST:
        msg = f"every {every!r} is less than a second; use a longer time"
        raise Invalid(msg)
    return Every(us)


def _cron(text: Any, tz: Any) -> Cron:
    if not isinstance(text, str) or len(text) > MOST_CRON or len(text.split()) != _FIELDS:
        msg = f"cron {str(text)[:100]!r} must have five fields: minute, hour, day, month, weekday"
        raise Invalid(msg)
    rule = Cron(" ".join(text.split()), tz)
    zone_named(tz)
    try:
        first = rule.after(0)
    except (CronSimError, AssertionError) as error:  # cronsim raises either for a wrong text
        msg = f"cron {text!r} cannot be read: {error}"
        raise Invalid(msg) from error
    if first is None:
        msg = f"cron {text!r} never fires; check its day and month"
        raise Invalid(msg)
    return rule


@lru_cache(256)
def zone_named(tz: str) -> ZoneInfo:
    """Return a time zone."""
    try:
        return ZoneInfo(tz)
    except (ValueError, TypeError, OSError, KeyError) as error:
        msg = f"unknown time zone {tz!r}; use a name such as Europe/Zurich"
        raise Invalid(msg) from error


def catch_up_of(word: Any) -> CatchUp:
    """Return the value of `catch_up`; raise Invalid if it is unknown."""
    if word not in ("skip", "latest", "all"):
        msg = f"catch_up must be skip, latest or all, not {word!r}"
        raise Invalid(msg)
    known: CatchUp = word
    return known


def name_of(name: Any) -> str:
    """Return the name of a schedule; raise Invalid if it cannot be one."""
    if not isinstance(name, str) or not name or payload.clean_text(name, _MOST_NAME) != name:
        msg = f"the name of a schedule must be text of 1 to {_MOST_NAME} characters, not {name!r}"
        raise Invalid(msg)
    return name


def fire_id(name: str, epoch: int, fire_at: int) -> UUID:
    """Return the id of the job of one fire: always the same, so that a fire never gets two jobs.

    It is a UUIDv7 of the fire's time whose random bits are a hash. The hash includes the schedule's
    epoch: after a clock was set back, another fire may have the same time.
    """
    random = int.from_bytes(sha256(f"{fire_at} {epoch} {name}".encode()).digest()[:10], "big")
    number = (max(fire_at, 0) // 1000) << 80 | random
    number = number & ~(0xF000 << 64) | (0x7000 << 64)  # version
    return UUID(int=number & ~(0xC000 << 48) | (0x8000 << 48))  # variant
