"""Access rules, in PocketBase's filter language. No I/O, no clock, no `eval`.

`rule_syntax` reads a rule, `rule_values` compares two values. Of a list, every item is compared:
all comparisons must hold, or one of them if the operator begins with ?. An empty list counts as
one empty item.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import product
from typing import Final, Protocol, Self, TypeAlias, TypeGuard

from towpath.model.rule_syntax import (
    OF_ACCESS,
    Both,
    Comparison,
    Constant,
    Either,
    Field,
    Macro,
    Operand,
    Root,
    Term,
    Tree,
    parse,
    terms,
)
from towpath.model.rule_values import (
    COMPARE,
    Compare,
    are_texts,
    equal_fields,
    folded,
    in_utc,
    matches,
    plain,
)

MOST_PAIRS: Final = 10_000  # in one comparison of lists, which the caller may have sent


class RuleValues(Protocol):
    """The values of the names in a rule: JSON values and datetimes."""

    def value(self, root: str, path: tuple[str, ...]) -> object:
        """Return the value at `path` in what `root` names; None if there is none."""
        ...


_Test: TypeAlias = Callable[[RuleValues, datetime], bool]
_Value: TypeAlias = Callable[[RuleValues, datetime], object]


def _never(_scope: RuleValues, _now: datetime) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class RulePart:
    """A comparison of a rule, with the values that it has in one case."""

    text: str  # as it is written
    position: int  # in the rule
    left: object
    operator: str  # empty for `true` and `false` alone
    right: object
    holds: bool
    names: tuple[Field | None, Field | None]  # the fields on the left and on the right


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on a request, and on a job, a channel or a subscription; or on an event."""

    text: str
    is_closed: bool = True  # for superusers only
    is_public: bool = False  # it allows every request
    job_fields: frozenset[str] = frozenset()  # the fields of a job that it reads
    channel_fields: frozenset[str] = frozenset()  # the fields of a channel that it reads
    subscription_fields: frozenset[str] = frozenset()  # the fields of a subscription that it reads
    roots: tuple[Root, ...] = field(default=OF_ACCESS, compare=False, repr=False)
    _test: _Test = field(default=_never, compare=False, repr=False)

    @classmethod
    def parse(cls, text: str, roots: tuple[Root, ...] = OF_ACCESS) -> Self:
        """Read a rule. InvalidRule names the position and what was expected there."""
        tree = parse(text, roots)
        if tree is None:
            return cls(text, roots=roots)
        return cls(
            text,
            roots=roots,
            is_closed=False,
            is_public=isinstance(tree, Constant) and tree.value is True,
            job_fields=frozenset(_fields(tree, "job")),
            channel_fields=frozenset(_fields(tree, "channel")),
            subscription_fields=frozenset(_fields(tree, "subscription")),
            _test=_compiled(tree),
        )

    @property
    def needs_job(self) -> bool:
        """Whether it reads fields of a job."""
        return bool(self.job_fields)

    def allows(self, scope: RuleValues, now: datetime) -> bool:
        """Say whether the rule holds. No value makes this raise."""
        return self._test(scope, now)

    def explain(self, scope: RuleValues, now: datetime) -> list[RulePart]:
        """Return each comparison of the rule with its values, and whether it holds."""
        return [_explained(term, scope, now) for term in terms(self.text, self.roots)]


class Names:
    """Values in mappings and lists. If `job` is a function, it is called at most once."""

    def __init__(
        self,
        request: Mapping[str, object] | None = None,
        job: Mapping[str, object] | Callable[[], Mapping[str, object] | None] | None = None,
        channel: Mapping[str, object] | None = None,
        event: Mapping[str, object] | None = None,
        subscription: Mapping[str, object] | None = None,
    ) -> None:
        self._request = request
        self._job = job
        self._channel = channel
        self._event = event
        self._subscription = subscription

    def value(self, root: str, path: tuple[str, ...]) -> object:
        """Follow the path; through a list, it gives the values of all its items."""
        if root == "request":
            return _at(self._request, path)
        if root == "channel":
            return _at(self._channel, path)
        if root == "event":
            return _at(self._event, path)
        if root == "subscription":
            return _at(self._subscription, path)
        if callable(self._job):
            self._job = self._job()
        return _at(self._job, path)


def _at(value: object, path: tuple[str, ...]) -> object:
    for depth, key in enumerate(path):
        if _is_list(value):
            return _through(value, path[depth:])
        value = _part(value, key)
    return value


def _through(items: object, path: tuple[str, ...]) -> object:
    # A loop, not recursion: the path and the value may both be a thousand levels deep.
    values: list[object] = [items]
    many = False
    for key in path:
        parts: list[object] = []
        for value in values:
            if _is_list(value) and not key.isdecimal():
                many = True
                parts += [_part(item, key) for item in _items(value)]
            else:
                parts.append(_part(value, key))
        values = parts
    return [item for value in values for item in _items(value)] if many else values[0]


def _part(value: object, key: str) -> object:
    if _is_object(value):
        return value.get(key)
    if _is_list(value) and key.isdecimal():
        return value[int(key)] if int(key) < len(value) else None
    return None


def _items(value: object) -> Sequence[object]:
    """Return the values to compare; an empty list gives one None."""
    if _is_list(value):
        return value or (None,)
    return (value,)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, _LISTS)


def _is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, _OBJECTS)


_LISTS: Final = (list, tuple)
_OBJECTS: Final = (dict, Mapping)  # dict first: the check is faster


def _fields(tree: Tree, root: Root) -> Iterator[str]:
    match tree:
        case Both(parts) | Either(parts):
            for part in parts:
                yield from _fields(part, root)
        case Comparison(left, _, right):
            for each in (left, right):
                if isinstance(each, Field) and each.root == root:
                    yield each.path[0]
        case Constant():
            return


def _explained(term: Term, scope: RuleValues, now: datetime) -> RulePart:
    tree = term.tree
    if isinstance(tree, Constant):
        holds = tree.value is True
        return RulePart(term.text, term.position, tree.value, "", None, holds, (None, None))
    left, right = tree.left, tree.right
    return RulePart(
        text=term.text,
        position=term.position,
        left=_value(left)(scope, now),
        operator=f"?{tree.operator}" if tree.any_of else tree.operator,
        right=_value(right)(scope, now),
        holds=_comparison(tree)(scope, now),
        names=(_named(left), _named(right)),
    )


def _named(operand: Operand) -> Field | None:
    return operand if isinstance(operand, Field) else None


# A rule is compiled to nested functions, so that a request does not walk the tree.


def _compiled(tree: Tree) -> _Test:
    match tree:
        case Constant(value):
            return lambda _scope, _now: value is True
        case Both(parts):
            return _joined([_compiled(part) for part in parts], until=False)
        case Either(parts):
            return _joined([_compiled(part) for part in parts], until=True)
        case Comparison():
            return _comparison(tree)


def _joined(tests: list[_Test], *, until: bool) -> _Test:
    def joined(scope: RuleValues, now: datetime) -> bool:
        for test in tests:
            if test(scope, now) is until:
                return until
        return not until

    return joined


def _comparison(comparison: Comparison) -> _Test:
    left, right = _value(comparison.left), _value(comparison.right)
    compare = _compare(comparison)
    enough = any if comparison.any_of else all

    def test(scope: RuleValues, now: datetime) -> bool:
        one, other = left(scope, now), right(scope, now)
        if not _is_list(one) and not _is_list(other):
            return compare(plain(one), plain(other))
        ones, others = _items(one), _items(other)
        if len(ones) * len(others) > MOST_PAIRS:
            return False
        pairs = product(map(plain, ones), map(plain, others))
        return enough(compare(*pair) for pair in pairs)

    return test


def _compare(comparison: Comparison) -> Compare:
    left, right = comparison.left, comparison.right
    if isinstance(right, Constant) and comparison.operator in {"~", "!~"}:
        like = matches(str(right.value))
        if comparison.operator == "~":
            return like
        return lambda one, other: are_texts(one, other) and not like(one, other)
    if comparison.operator == "=" and isinstance(left, Field) and isinstance(right, Field):
        return equal_fields
    return COMPARE[comparison.operator]


def _value(operand: Operand) -> _Value:
    match operand:
        case Constant(value):
            return lambda _scope, _now: value
        case Macro(name):
            macro = _MACROS[name]
            return lambda _scope, now: macro(in_utc(now) or now)
        case Field(root, path, "isset"):
            return lambda scope, _now: _is_set(scope, root, path)
        case Field(root, path, "length"):
            return lambda scope, _now: _length(scope.value(root, path))
        case Field(root, path, "lower"):
            return lambda scope, _now: _lower(scope.value(root, path))
        case Field(root, path):  # also with :each, which is the default
            return lambda scope, _now: scope.value(root, path)


def _is_set(scope: RuleValues, root: str, path: tuple[str, ...]) -> bool:
    """Say whether the field exists, even if it is null."""
    holder, key = scope.value(root, path[:-1]), path[-1]
    if _is_list(holder) and key.isdecimal():
        return int(key) < len(holder)
    if _is_list(holder) or _is_object(holder):
        return any(_is_object(each) and key in each for each in _items(holder))
    return scope.value(root, path) is not None  # the scope has values for whole paths only


def _length(value: object) -> int:
    if _is_list(value):
        return len(value)
    return 0 if value is None or value == "" else 1


def _lower(value: object) -> object:
    texts = [folded(each) if isinstance(each, str) else each for each in _items(value)]
    return texts if _is_list(value) else texts[0]


def _start(day: datetime) -> datetime:
    return day.replace(hour=0, minute=0, second=0, microsecond=0)


def _end(day: datetime) -> datetime:
    return day.replace(hour=23, minute=59, second=59, microsecond=999_999)


_DAY: Final = timedelta(days=1)
_MACROS: Final[dict[str, Callable[[datetime], object]]] = {
    "@now": lambda now: now,
    "@second": lambda now: now.second,
    "@minute": lambda now: now.minute,
    "@hour": lambda now: now.hour,
    "@weekday": lambda now: now.isoweekday() % 7,  # Sunday is 0
    "@day": lambda now: now.day,
    "@month": lambda now: now.month,
    "@year": lambda now: now.year,
    "@yesterday": lambda now: now - _DAY,
    "@tomorrow": lambda now: now + _DAY,
    "@todayStart": _start,
    "@todayEnd": _end,
    "@monthStart": lambda now: _start(now.replace(day=1)),
    # Four days after the 28th is in the next month, for every month.
    "@monthEnd": lambda now: _end((now.replace(day=28) + 4 * _DAY).replace(day=1) - _DAY),
    "@yearStart": lambda now: _start(now.replace(month=1, day=1)),
    "@yearEnd": lambda now: _end(now.replace(month=12, day=31)),
}
