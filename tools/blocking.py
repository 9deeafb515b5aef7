"""Write the blocking half of every verb from its async half. With --check, name what is stale.

    python tools/blocking.py [--check]

A class whose body ends with the line MARK gets, behind that line, one blocking method for each of
its async methods `averb` (or `_averb`): the same body without `await`, calling `verb` wherever the
async one awaits `averb`. An async method of another name has no twin. Nothing behind the mark is
written by hand.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "towpath"
MARK = "    # From here on written by tools/blocking.py out of the async verbs above: do not edit."
_TWIN = re.compile(r"(_*)a(\w+)")


def blocking_name(name: str) -> str:
    """Return the name of the blocking twin."""
    match = _TWIN.fullmatch(name)
    if match is None:
        sys.exit(f"{name} is awaited, but its name does not begin with `a`")
    return match[1] + match[2].rstrip("_")  # `await_` is the twin of `wait`


class Blocking(ast.NodeTransformer):
    """Turns an async method into its blocking twin."""

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        """Make a plain method of it."""
        self.generic_visit(node)
        fields: dict[str, Any] = {name: getattr(node, name) for name in node._fields}
        return ast.FunctionDef(**{**fields, "name": blocking_name(node.name)})

    def visit_Await(self, node: ast.Await) -> ast.AST:
        """Call the blocking twin instead."""
        call = node.value
        if not isinstance(call, ast.Call):
            sys.exit(f"line {node.lineno}: only a call can be awaited here")
        self.generic_visit(call)
        name = ast.unparse(call.func)
        if name == "asyncio.to_thread":  # what is blocking needs no thread
            return ast.Call(call.args[0], call.args[1:], call.keywords)
        if name == "asyncio.sleep":
            return ast.Call(ast.parse("time.sleep", mode="eval").body, call.args, [])
        if isinstance(call.func, ast.Attribute):
            call.func.attr = blocking_name(call.func.attr)
        elif isinstance(call.func, ast.Name):
            call.func.id = blocking_name(call.func.id)
        return call

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        """Enter it blocking."""
        self.generic_visit(node)
        return ast.With(node.items, node.body)


def written(source: str) -> str:
    """Return a module's text with the blocking halves as they should be."""
    lines = source.splitlines()
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    # From the last mark to the first, so that the lines above keep their numbers.
    for mark in reversed([number for number, line in enumerate(lines) if line == MARK]):
        cls = [each for each in classes if each.lineno <= mark][-1]
        lines[mark + 1 : max(cls.end_lineno or 0, mark + 1)] = _twins(cls, mark)
    return _formatted("\n".join(lines) + "\n")


def _twins(cls: ast.ClassDef, mark: int) -> Iterator[str]:
    for method in cls.body:
        is_verb = isinstance(method, ast.AsyncFunctionDef) and _TWIN.fullmatch(method.name)
        if is_verb and method.lineno <= mark:
            text = ast.unparse(ast.fix_missing_locations(Blocking().visit(method)))
            yield ""
            yield from (f"    {line}" if line else "" for line in text.splitlines())


def _formatted(text: str) -> str:
    """Lay the text out as `ruff format` wants it, with docstrings as they were."""
    for command in (("check", "--select=UP034,D", "--fix-only"), ("format",)):
        ruff = [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename=x.py", "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> None:
    """Write what is stale, or name it."""
    stale: list[Path] = []
    for path in sorted(SOURCE.rglob("*.py")):
        source = path.read_text()
        if MARK in source and (new := written(source)) != source:
            stale.append(path)
            if "--check" not in sys.argv:
                path.write_text(new)
    for path in stale:
        print(path.relative_to(ROOT), "is stale" if "--check" in sys.argv else "is written")
    if stale and "--check" in sys.argv:
        sys.exit("run ./dev generate")


if __name__ == "__main__":
    main()
