r"""How two values compare in an access rule.

Rules have no "not", so a comparison that is false never allows a request. A comparison that makes
no sense is therefore false:

| left and right                             | = and !=               | > >= < <=    | ~ and !~ |
|--------------------------------------------|------------------------|--------------|----------|
| one is empty: missing, null, '' or []      | equal to '' and null   | false        | false    |
| two fields, both empty                     | **both false**         | false        | false    |
| two texts                                  | by character           | by character | contains |
| two texts that are both RFC 3339           | as instants            | as instants  | contains |
| an instant (@now) and a text in RFC 3339   | as instants            | as instants  | false    |
| two numbers                                | as numbers             | as numbers   | false    |
| a number and a text such as "12" or "-1.5" | as numbers             | as numbers   | false    |
| true or false, and anything                | equal only to the same | false        | false    |
| anything else: objects, lists in lists     | unequal                | false        | false    |

`~` searches for a text in another and ignores the case of the letters a to z. In a text that is
written in the rule, % matches anything, and then the whole text must match; `\%` is a percent sign.
"""

import operator
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, cast

Compare: TypeAlias = Callable[[object, object], bool]

_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,39})(?:\.[0-9]{1,40})?")  # as in JSON
_INSTANT: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})?)?"
)
_PATTERN: Final = re.compile(r"\\[%\\]|%|[^%\\]+|\\")
_NUMBERS: Final = (int, float)


def plain(value: object) -> object:
    """Return the value as it is compared: None becomes an empty text, an instant is in UTC."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    if isinstance(value, datetime):
        return in_utc(value)
    return str.__str__(value) if isinstance(value, str) else value


def in_utc(at: datetime) -> datetime | None:
    """Return the instant in UTC, which is also its default time zone; None if out of range."""
    if at.tzinfo is UTC:
        return at
    try:
        return at.replace(tzinfo=UTC) if at.utcoffset() is None else at.astimezone(UTC)
    except OverflowError:  # in the first hours of the year 1 or the last hours of 9999
        return None


def _instant(text: str) -> datetime | None:
    if not _INSTANT.fullmatch(text):
        return None
    try:
        return in_utc(datetime.fromisoformat(text.upper()))
    except ValueError:  # such as the 30th of February
        return None


def _number(text: str) -> float | None:
    if not _NUMBER.fullmatch(text):
        return None
    return float(text) if "." in text else int(text)


def _alike(one: object, other: object) -> tuple[object, object] | None:
    """Convert two values to one type; None if there is no such type."""
    if isinstance(one, str):
        if isinstance(other, str):
            return _texts(one, other)
        one = _instant(one) if isinstance(other, datetime) else _number(one)
    elif isinstance(other, str):
        other = _instant(other) if isinstance(one, datetime) else _number(other)
    if isinstance(one, bool) or isinstance(other, bool):
        return None  # for Python, True is a number
    for kind in (_NUMBERS, datetime):
        if isinstance(one, kind) and isinstance(other, kind):
            return one, other
    return None


def _texts(one: str, other: str) -> tuple[object, object]:
    if one == other or (left := _instant(one)) is None or (right := _instant(other)) is None:
        return one, other
    return left, right


def _equal(one: object, other: object) -> bool:
    if one == "" or other == "":  # first, as it is the most common comparison
        return one == other
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    pair = _alike(one, other)
    return pair is not None and pair[0] == pair[1]


def _unequal(one: object, other: object) -> bool:
    return not _equal(one, other)


def equal_fields(one: object, other: object) -> bool:
    """Compare two fields. Empty ones differ: an anonymous caller owns no job without an owner."""
    return one != "" and _equal(one, other)


def _ordered(sign: Callable[[Any, Any], bool]) -> Compare:
    def compare(one: object, other: object) -> bool:
        if one == "" or other == "":
            return False
        pair = _alike(one, other)
        return pair is not None and sign(*pair)

    return compare


def are_texts(one: object, other: object) -> bool:
    """Say whether both are texts that are not empty."""
    return isinstance(one, str) and isinstance(other, str) and one != "" and other != ""


def _contains(one: object, other: object) -> bool:
    return are_texts(one, other) and folded(cast("str", other)) in folded(cast("str", one))


def _lacks(one: object, other: object) -> bool:
    return are_texts(one, other) and not _contains(one, other)


def matches(pattern: str) -> Compare:
    """Return a test for a pattern. It takes time proportional to the length of the text."""
    pieces = [""]
    for part in _PATTERN.findall(folded(pattern)):
        if part == "%":
            pieces.append("")
        else:
            pieces[-1] += part[1:] if part in {r"\%", r"\\"} else part
    first, *middle, last = pieces if len(pieces) > 1 else ["", *pieces, ""]

    def test(one: object, _pattern: object) -> bool:
        if not isinstance(one, str) or not one:
            return False
        text = folded(one)
        if not text.startswith(first):
            return False
        end = len(first)
        for piece in middle:
            # The first match is the best one: it leaves the longest rest to the next pieces.
            start = text.find(piece, end)
            if start < 0:
                return False
            end = start + len(piece)
        return len(text) - end >= len(last) and text.endswith(last)

    return test


def folded(text: str) -> str:
    """Return the text with A to Z in lower case; other letters (the Kelvin sign) are kept."""
    if text.isascii():
        return text.lower()
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


COMPARE: Final[dict[str, Compare]] = {
    "=": _equal,
    "!=": _unequal,
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    "~": _contains,
    "!~": _lacks,
}
