"""Random rules over random data, against a model that is written another way."""

import json
import re
import string
from datetime import UTC, datetime

from hypothesis import example, given
from hypothesis import strategies as st

from towpath.model.rules import Names, Rule

NOW = datetime(2026, 2, 15, 17, 30, 5, tzinfo=UTC)
INSTANTS = {  # every text below that is one
    "2026-02-15T17:30:05Z": NOW,
    "2026-02-15 18:30:05.000+01:00": NOW,
    "2026-02-15": datetime(2026, 2, 15, tzinfo=UTC),
}
TEXTS = [
    "",
    "a",
    "A",
    "ab",
    "a%b",
    "b\\",
    "\u212a",
    "k",
    "1",
    "1.0",
    "-2.5",
    "01",
    "true",
    *INSTANTS,
]
NUMBERS = [0, 1, 1.0, -2.5, 17]

scalars = st.sampled_from([*TEXTS, *NUMBERS, True, False, None])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("ab"), values)
requests = st.fixed_dictionaries({"auth": objects, "body": objects})
jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.datetimes() | scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text() | st.sampled_from("ab"), inner, max_size=4)
    ),
    max_leaves=12,
)

# A rule is a tree of tuples: ("value", x), ("macro", name), ("field", "job.a.b", modifier),
# ("compare", left, operator, right), ("and", parts), ("or", parts), or a bool.
paths = st.builds(
    ".".join,
    st.tuples(
        st.sampled_from(["job", "request.auth", "request.body"]),
        st.sampled_from(["a", "b", "a.a", "a.b", "a.0", "a.a.b", "a.b.1"]),
    ),
)
modifiers = st.sampled_from(["", "", "", "each", "lower", "length", "isset"])
fields = st.tuples(st.just("field"), paths, modifiers)
constants = st.tuples(st.just("value"), scalars)
operands = fields | fields | constants | st.sampled_from([("macro", "@now"), ("macro", "@hour")])
signs = st.sampled_from(["", "?"])
orders = st.tuples(
    st.just("compare"),
    operands,
    st.builds(str.__add__, signs, st.sampled_from(["=", "!=", "<", "<=", ">", ">="])),
    operands,
)
patterns = st.text("abAK%\\1", min_size=1, max_size=6).map(lambda text: ("value", text))
likes = st.tuples(
    st.just("compare"),
    operands,
    st.builds(str.__add__, signs, st.sampled_from(["~", "!~"])),
    patterns | fields,
)
trees = st.recursive(
    orders | orders | likes | st.booleans(),
    lambda inner: st.tuples(
        st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=4)
    ),
    max_leaves=12,
)


def printed(tree, inside=""):  # noqa: PLR0911 - a case for each node
    match tree:
        case bool():
            return str(tree).lower()
        case "value", str(text):
            return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case "value", value:
            return json.dumps(value)
        case "macro", name:
            return name
        case "field", path, modifier:
            return f"@{path}:{modifier}" if modifier else f"@{path}"
        case "compare", left, sign, right:
            return f"{printed(left)} {sign} {printed(right)}"
        case join, parts:
            text = {"and": " && ", "or": " || "}[join].join(printed(part, join) for part in parts)
            return f"({text})" if (inside, join) == ("and", "or") else text


# The model: a value is what it can be read as, and two are compared in what they share.


def items(value, path):
    if not path:
        return (value or [None]) if isinstance(value, list) else [value]
    key, *rest = path
    if isinstance(value, list) and not key.isdigit():
        held = [item.get(key) if isinstance(item, dict) else None for item in value or [None]]
        return [each for item in held for each in items(item, rest)]
    return items(one_part(value, key), rest)


def one_part(value, key):
    if isinstance(value, list):
        return dict(enumerate(value)).get(int(key)) if key.isdigit() else None
    return value.get(key) if isinstance(value, dict) else None


def passes_a_list(value, path):
    for key in path:
        if isinstance(value, list) and not key.isdigit():
            return True
        value = one_part(value, key)
    return False


def length(value, path):
    found = items(value, path)
    if passes_a_list(value, path) or len(found) > 1:
        return len(found)
    for key in path:
        value = one_part(value, key)
    return len(value) if isinstance(value, list) else int(value not in (None, ""))


def is_set(value, path):
    *before, key = path
    if not passes_a_list(value, before):
        for part in before:
            value = one_part(value, part)
        if isinstance(value, list) and key.isdigit():
            return int(key) < len(value)
        before = []
    held = items(value, before)
    if key.isdigit() and passes_a_list(value, before):
        return int(key) < len(held)
    return any(isinstance(each, dict) and key in each for each in held)


def small(text):
    return text.translate(str.maketrans(string.ascii_uppercase, string.ascii_lowercase))


def resolved(operand, data):  # noqa: PLR0911 - likewise
    match operand:
        case "value", value:
            return [value]
        case "macro", "@now":
            return [NOW]
        case "macro", "@hour":
            return [17]
        case "field", name, modifier:
            root, *path = name.split(".")
            if modifier == "isset":
                return [is_set(data[root], path)]
            if modifier == "length":
                return [length(data[root], path)]
            found = items(data[root], path)
            if modifier == "lower":
                return [small(each) if isinstance(each, str) else each for each in found]
            return found


def readings(value):
    if value is None or value == "":
        return {"empty": True}
    if isinstance(value, bool):
        return {"truth": value}
    if isinstance(value, int | float):
        return {"number": value}
    if isinstance(value, datetime):
        return {"instant": value}
    if not isinstance(value, str):
        return {}
    found = {"text": value}
    if value in INSTANTS:
        found["instant"] = INSTANTS[value]
    elif value in {"1", "1.0", "-2.5"}:
        found["number"] = float(value)
    return found


def shared(left, right):
    """The two values as the kind that they are compared in."""
    one, other = readings(left), readings(right)
    both_texts = "text" in one and "text" in other
    for kind in ("empty", "truth", "instant", "text", *(() if both_texts else ("number",))):
        if kind in one and kind in other:
            return kind, one[kind], other[kind]
    return None, None, None


def holds(left, sign, right, of_fields, is_pattern):
    kind, one, other = shared(left, right)
    match sign:
        case "=":
            return kind is not None and one == other and not (of_fields and kind == "empty")
        case "!=":
            return kind is None or one != other
        case "~" | "!~":
            if not (isinstance(left, str) and left and isinstance(right, str) and right):
                return False
            return like(left, right, is_pattern) is (sign == "~")
    if kind not in {"text", "number", "instant"}:
        return False
    return {"<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other}[sign]


def like(text, wanted, is_pattern):
    if not is_pattern:
        return small(wanted) in small(text)
    parts = re.findall(r"\\\\|\\%|.", small(wanted), re.DOTALL)
    if "%" not in parts:
        parts = ["%", *parts, "%"]
    written = [".*" if part == "%" else re.escape(part[-1]) for part in parts]
    return re.fullmatch("".join(written), small(text), re.DOTALL) is not None


def verdict(tree, data):
    match tree:
        case bool():
            return tree
        case "and", parts:
            return all(verdict(part, data) for part in parts)
        case "or", parts:
            return any(verdict(part, data) for part in parts)
        case "compare", left, sign, right:
            of_fields = left[0] == right[0] == "field"
            results = [
                holds(one, sign.lstrip("?"), other, of_fields, right[0] == "value")
                for one in resolved(left, data)
                for other in resolved(right, data)
            ]
            return any(results) if sign[0] == "?" else all(results)


@given(trees, requests, objects)
def test_a_rule_says_what_the_model_says(tree, request, job):
    rule = Rule.parse(printed(tree))

    assert rule.allows(Names(request=request, job=job), NOW) is verdict(
        tree, {"request": request, "job": job}
    )


@given(trees, requests, objects, st.sampled_from([" ", "\n\t", " // so\n"]))
def test_blanks_comments_and_parentheses_change_nothing(tree, request, job, blank):
    text = printed(tree)
    spaced = re.sub(r"(?<= )(&&|\|\|)(?= )", rf"{blank}\1{blank}", f"({text})")
    names = Names(request=request, job=job)

    assert Rule.parse(spaced).allows(names, NOW) is Rule.parse(text).allows(names, NOW)


@given(trees, jsons, jsons)
@example(("compare", ("field", "job.a", ""), "<", ("value", "1")), {}, {"a": 10**5000})
@example(("compare", ("field", "job.a", ""), "=", ("value", 1.5)), {}, {"a": 10**5000})
@example(("compare", ("field", "job.a", ""), "<", ("value", 1)), {}, {"a": "9" * 5000})
@example(("compare", ("field", "job.a", ""), "~", ("value", "x")), {}, {"a": "\ud800X"})
@example(
    ("compare", ("field", "job.a", ""), ">", ("macro", "@now")), {}, {"a": "9999-12-31T23:59-23:59"}
)
@example(("compare", ("field", "job.a", "isset"), "=", ("value", True)), [], [])
def test_no_data_makes_a_rule_raise(tree, request, job):
    assert Rule.parse(printed(tree)).allows(Names(request=request, job=job), NOW) in {True, False}
