"""towpath doctor: looks for problems, and says how to solve them."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from towpath.app.checkup import Check, Verdict
from towpath.cli.apps import add_common, duration, open_app
from towpath.cli.output import Output, plain

if TYPE_CHECKING:
    from rich.console import RenderableType

EXAMPLES: Final = """\
The exit code is 1 if there is a problem. The command changes nothing.

examples:
  towpath doctor
  towpath doctor --patience 10m --database postgresql://localhost/shop
"""
STYLES: Final = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.PROBLEM: "bold red"}


def define(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.description = "Look for problems of the database and of the workers."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--patience",
        metavar="TIME",
        type=duration,
        default=60.0,
        help="warn about jobs and transactions that wait longer (default 60 s)",
    )
    add_common(parser)
    parser.set_defaults(run=doctor)


def doctor(given: argparse.Namespace) -> int:
    """Show the results of all checks."""
    with open_app(given) as app:
        checks = app.doctor(given.patience)
        database = app.database
    healthy = not any(check.verdict is Verdict.PROBLEM for check in checks)
    Output(as_json=given.json).show(
        {"database": database, "healthy": healthy, "checks": checks}, lambda: shown(checks)
    )
    return 0 if healthy else 1


def shown(checks: list[Check]) -> "Iterator[RenderableType]":
    """Return the results as a table, with the advice below each."""
    from rich.padding import Padding  # noqa: PLC0415 - as in output.py
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    grid = Table.grid(padding=(0, 2, 0, 0))
    for check in checks:
        verdict = Text(check.verdict, style=STYLES[check.verdict])
        grid.add_row(verdict, Text(check.name), Text(plain(check.message)))
        if check.advice:
            grid.add_row("", "", Padding(Text(f"→ {plain(check.advice)}"), 0))
    yield grid
