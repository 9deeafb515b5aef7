"""What was measured before a decision: python -m bench.decisions.NAME prints its table."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table."""
    table = Table(title=title, title_justify="left")
    for nth, column in enumerate(columns):
        table.add_column(column, justify="left" if nth == 0 else "right")
    for row in rows:
        table.add_row(*map(_cell, row))
    Console(width=140).print(table)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return str(value)
