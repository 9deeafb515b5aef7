"""The result of a check by the doctor."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from msgspec import Struct

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


def ok(name: str, message: str) -> Check:
    """Return a check that found nothing wrong."""
    return Check(name=name, verdict=Verdict.OK, message=message)


def warning(name: str, message: str, advice: str) -> Check:
    """Return a check that found something that may fail soon or breaks a promise."""
    return Check(name=name, verdict=Verdict.WARNING, message=message, advice=advice)


def problem(name: str, message: str, advice: str | None = None) -> Check:
    """Return a check that found something that does not work; an error contains its advice."""
    return Check(name=name, verdict=Verdict.PROBLEM, message=message, advice=advice)


def some(things: Iterable[str]) -> str:
    """Name the first few and count the others."""
    names = list(things)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
