"""towpath doctor: what is wrong, and what to do."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from towpath.app.doctor import Check, Verdict
from towpath.cli.apps import add_common, duration, open_app
from towpath.cli.output import Output, plain

if TYPE_CHECKING:
    from rich.console import RenderableType

EXAMPLES: Final = """\
The exit code is 1 if there is a problem. Looking changes nothing.

examples:
  towpath doctor
  towpath doctor --patience 10m --database postgresql://localhost/shop
"""
STYLES: Final = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.PROBLEM: "bold red"}


def define(parser: argparse.ArgumentParser) -> None:
    """Say what the command understands."""
    parser.description = "Look for what is wrong with the database and how its jobs are served."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--patience",
        type=duration,
        default=60.0,
        help="jobs and transactions that wait longer are worth a word; 60 s unless told",
    )
    add_common(parser)
    parser.set_defaults(run=doctor)


def doctor(given: argparse.Namespace) -> int:
    """Show what was found."""
    with open_app(given) as app:
        checks = app.doctor(given.patience)
        where = app.database
    healthy = not any(check.verdict is Verdict.PROBLEM for check in checks)
    Output(as_json=given.json).show(
        {"database": where, "healthy": healthy, "checks": checks}, lambda: shown(checks)
    )
    return 0 if healthy else 1


def shown(checks: list[Check]) -> "Iterator[RenderableType]":
    """Return what was found for people: what to do stands below."""
    from rich.padding import Padding  # noqa: PLC0415 - as in output.py
    from rich.table import Table  # noqa: PLC0415 - likewise
    from rich.text import Text  # noqa: PLC0415 - likewise

    grid = Table.grid(padding=(0, 2, 0, 0))
    for check in checks:
        verdict = Text(check.verdict, style=STYLES[check.verdict])
        grid.add_row(verdict, Text(check.name), Text(plain(check.message)))
        if check.advice:
            grid.add_row("", "", Padding(Text(f"→ {plain(check.advice)}"), 0))
    yield grid
