"""Rules of schedules in words, for people. What is not said simply is quoted as it is."""

import re
from collections.abc import Sequence
from typing import Final

from towpath.model.schedule import Cron, Every, Rule

MOST_LISTED: Final = 6  # values of one field that are named
_DAY: Final = 86_400
_UNITS: Final = ((_DAY, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_SHORT: Final = 3  # letters of a name in a rule
_NUMBERS: Final = re.compile(r"\d{1,2}(,\d{1,2}){0,5}", re.ASCII)
_STEP: Final = re.compile(r"\*/(\d{1,2})", re.ASCII)
_RANGE: Final = re.compile(r"(\d{1,2})-(\d{1,2})", re.ASCII)


def words_of(rule: Rule) -> str:
    """Say when a rule fires: "at 07:00 every day, Europe/Zurich"."""
    if isinstance(rule, Every):
        return f"every {_span(rule.us)}"
    return f"{_cron_words(rule) or f'by the cron rule {rule.text}'}, {rule.tz}"


def _span(us: int) -> str:
    if us % 10**6:
        return f"{us / 1e6:g} s"
    seconds = us // 10**6
    size, unit = next((size, unit) for size, unit in _UNITS if not seconds % size)
    return f"{seconds // size:,} {unit}"


def _cron_words(rule: Cron) -> str | None:
    """Return the words for a rule; None for one that a few words do not say."""
    minute, hour, day, month, weekday = rule.text.split()
    time = _time(minute, hour)
    days = _days(day, weekday)
    months = _months(month)
    if time is None or days is None or months is None:
        return None
    if not days and not months:
        days = "every day" if _NUMBERS.fullmatch(hour) else ""
    return " ".join(filter(None, (time, days, months)))


def _time(minute: str, hour: str) -> str | None:
    if hour == "*":
        return _minutes(minute, "of every hour")
    if step := _STEP.fullmatch(hour):
        return _minutes(minute, f"of every {_nth(int(step[1]))} hour")
    if span := _RANGE.fullmatch(hour):
        said = _minutes(minute, "of every hour")
        return said and f"{said} from {int(span[1]):02}:00 to {int(span[2]):02}:59"
    if _NUMBERS.fullmatch(hour) and _NUMBERS.fullmatch(minute):
        times = [f"{int(h):02}:{int(m):02}" for h in hour.split(",") for m in minute.split(",")]
        return f"at {_listed(times)}" if len(times) <= MOST_LISTED else None
    return None


def _minutes(minute: str, of: str) -> str | None:
    if minute == "*":
        return "every minute" if of == "of every hour" else f"every minute {of}"
    if step := _STEP.fullmatch(minute):
        every = "every minute" if int(step[1]) == 1 else f"every {int(step[1])} minutes"
        return every if of == "of every hour" else f"{every} {of}"
    if _NUMBERS.fullmatch(minute):
        numbers = minute.split(",")
        plural = "s" if len(numbers) > 1 else ""
        return f"at minute{plural} {_listed(numbers)} {of}"
    return None


def _days(day: str, weekday: str) -> str | None:
    by_day = _of_month(day)
    by_weekday = _named(weekday, _DAYS, 0)
    if by_day is None or by_weekday is None:
        return None
    on = f"on {by_weekday}" if by_weekday else ""
    if by_day and on:
        return f"{by_day} or {on}"  # as in Vixie's cron: either will do
    return by_day or on


def _of_month(day: str) -> str | None:
    if day == "*":
        return ""
    if day.upper() == "L":
        return "on the last day of the month"
    if _NUMBERS.fullmatch(day):
        numbers = day.split(",")
        plural = "s" if len(numbers) > 1 else ""
        return f"on day{plural} {_listed(numbers)} of the month"
    return None


def _months(month: str) -> str | None:
    said = _named(month, _MONTHS, 1)
    return said and f"in {said}"


def _named(field: str, names: Sequence[str], first: int) -> str | None:
    """Return the names of a field's values; empty for all of them, None if they are not plain."""
    if field == "*":
        return ""
    span = field.split("-")
    if len(span) == 2:  # noqa: PLR2004 - its begin and its end
        ends = [_name(each, names, first) for each in span]
        return None if None in ends else " to ".join(filter(None, ends))
    found = [_name(each, names, first) for each in field.split(",", MOST_LISTED)]
    return None if None in found else _listed([each for each in found if each])


def _name(value: str, names: Sequence[str], first: int) -> str | None:
    short = {name[:_SHORT].upper(): name for name in names}
    if value.upper() in short:
        return short[value.upper()]
    if not re.fullmatch(r"\d{1,2}", value, re.ASCII):
        return None
    place = int(value) - first
    if names is _DAYS:
        place %= len(_DAYS)  # 7 is Sunday, too
    return names[place] if 0 <= place < len(names) else None


def _listed(values: Sequence[str]) -> str:
    *before, last = values
    return f"{', '.join(before)} and {last}" if before else last


def _nth(number: int) -> str:
    return {1: "single", 2: "second", 3: "third"}.get(number, f"{number}th")
