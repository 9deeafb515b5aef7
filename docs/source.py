"""Read signatures, types and remarks from the source, as the reference shows them.

Python's own text for a type differs from version to version; the source does not.
"""

import ast
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from enum import StrEnum
from importlib import import_module
from typing import Any, NamedTuple


class Named(NamedTuple):
    """A field or a parameter, as the source shows it."""

    name: str
    type: str
    default: str | None
    said: str


def class_fields(kind: type, *, strict: bool = True) -> list[Named]:
    """Read the fields of a class, and what the source says beside each."""
    lines, definition = parsed(kind)
    found = [
        Named(node.target.id, typed(node.annotation), value(kind, node.value), remark(lines, node))
        for node in definition.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    missing = [each.name for each in found if not each.said]
    if missing and strict:
        sys.exit(f"{kind.__name__} says nothing about {', '.join(missing)}")
    return [each._replace(default=None) for each in found] if not strict else found


def enum_remarks(kind: type[StrEnum]) -> Iterator[tuple[str, str]]:
    """Read what the source says beside each member."""
    lines, definition = parsed(kind)
    for node in definition.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            yield str(node.value.value), remark(lines, node)


def parameters(function: Any) -> list[Named]:
    """Read the parameters of a function that the source says something about."""
    if function is None:
        return []
    lines, definition = parsed(function)
    return [
        Named(each.arg, typed(each.annotation), default, said)
        for each, default in arguments(function, definition)
        if (said := remark(lines, each))
    ]


def signature(function: Callable[..., Any]) -> str:
    """Write the parameters of a function without their types, and what it returns."""
    _, definition = parsed(function)
    named_only = {each.arg for each in definition.args.kwonlyargs}
    words: list[str] = []
    rest = definition.args.vararg
    star = f"*{rest.arg}" if rest and typed(rest.annotation) != "Never" else "*"
    for each, default in arguments(function, definition):
        if each.arg in named_only and star not in words:
            words.append(star)
        words.append(each.arg if default is None else f"{each.arg}={default}")
    if star != "*" and star not in words:
        words.append(star)
    rest = definition.args.kwarg
    if rest and typed(rest.annotation) != "Never":
        words.append("…" if rest.arg != "kwargs" else "**kwargs")
    returned = typed(definition.returns)
    inner = re.fullmatch(r"(?:Generator|Iterator)\[(.*)\]", returned)  # of a context manager
    returned = inner[1] if inner else returned
    shown = "" if returned in {"", "None", "NoReturn"} else f" → {returned}"
    return f"({', '.join(words)}){shown}"


def alias(name: str) -> str:
    """Describe a type that has a name of its own by the text below it."""
    module, _, attribute = name.rpartition(".")
    body = ast.parse(inspect.getsource(import_module(module))).body
    for node, after in itertools.pairwise(body):
        target = (
            node.target if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [0])[0]
        )
        if isinstance(target, ast.Name) and target.id == attribute:
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                return (
                    f"- `{attribute}`: `{typed(node.value)}`. {' '.join(after.value.value.split())}"  # type: ignore[attr-defined]
                )
            break
    sys.exit(f"{name} has no text below it")


def doc(thing: Any) -> str:
    """Return a docstring as one line."""
    return " ".join(inspect.cleandoc(thing.__doc__ or "").split())


def arguments(function: Any, definition: Any) -> Iterator[tuple[ast.arg, str | None]]:
    """Walk the parameters of a function and their defaults."""
    given = definition.args
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + given.defaults
    for each, default in (*zip(plain, defaults, strict=True),
                          *zip(given.kwonlyargs, given.kw_defaults, strict=True)):  # fmt: skip
        if each.arg not in {"self", "cls"}:
            yield each, value(function, default)


def parsed(thing: Any) -> tuple[list[str], Any]:
    """Return the lines and the definition of a class or a function."""
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(thing)))
    return source.splitlines(), ast.parse(source).body[0]


def typed(annotation: ast.expr | None) -> str:
    """Return an annotation as text."""
    return "" if annotation is None else ast.unparse(annotation).replace('"', "").replace("'", "")


def value(thing: Any, default: ast.expr | None) -> str | None:
    """Return a default as text; that of a constant is its value."""
    if isinstance(default, ast.Name):
        return repr(getattr(sys.modules[thing.__module__], default.id))
    return None if default is None else ast.unparse(default)


def remark(lines: list[str], node: ast.stmt | ast.arg) -> str:
    """Return the comment beside a field, a member or a parameter."""
    return lines[(node.end_lineno or node.lineno) - 1].partition("  # ")[2]
