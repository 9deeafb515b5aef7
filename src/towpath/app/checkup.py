"""The result of a check by the doctor."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from typing import Final, Literal
from urllib.parse import quote

from msgspec import Struct

from towpath.model.reasons import Remedy

NAMED: Final = 3  # items of a list that are named; the others are counted


class Verdict(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"  # it works, but maybe not for long or not as promised
    PROBLEM = "problem"  # it does not work


class Check(Struct, frozen=True, kw_only=True):
    """One check and its result."""

    name: str
    verdict: Verdict
    message: str
    advice: str | None = None  # what to do about it
    code: str = ""  # of what was found
    about: tuple[str, ...] = ()  # the topics, workers, schedules or channels that it is about
    remedies: tuple[Remedy, ...] = ()  # requests to a server that help


def ok(name: str, message: str) -> Check:
    """Return a check that found nothing wrong."""
    return Check(name=name, verdict=Verdict.OK, message=message, code="ok")


def warning(
    name: str,
    message: str,
    advice: str,
    *,
    code: str | None = None,
    about: Iterable[str] = (),
    remedies: Iterable[Remedy] = (),
) -> Check:
    """Return a check that found something that may fail soon or breaks a promise."""
    return Check(
        name=name,
        verdict=Verdict.WARNING,
        message=message,
        advice=advice,
        code=code or name,
        about=tuple(about),
        remedies=tuple(remedies),
    )


def problem(
    name: str,
    message: str,
    advice: str | None = None,
    *,
    code: str | None = None,
    about: Iterable[str] = (),
    remedies: Iterable[Remedy] = (),
) -> Check:
    """Return a check that found something that does not work; an error contains its advice."""
    return Check(
        name=name,
        verdict=Verdict.PROBLEM,
        message=message,
        advice=advice,
        code=code or name,
        about=tuple(about),
        remedies=tuple(remedies),
    )


def remedies_for(
    names: Iterable[str], label: str, path: str, *, method: Literal["POST", "DELETE"] = "POST"
) -> Iterator[Remedy]:
    """Return a remedy for each of the first names; `{}` in label and path stands for it."""
    for name in islice(names, NAMED):
        yield Remedy(
            label=label.format(name), method=method, path=path.format(quote(name, safe=""))
        )


def some(things: Iterable[str]) -> str:
    """Name the first few and count the others."""
    names = list(things)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
