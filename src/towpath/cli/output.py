"""The output of commands: JSON for programs, tables for people, one line for an error.

Stored text is escaped, so that it cannot control the terminal.
"""

import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from towpath.model.instants import spoken

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

WRONG_USAGE: Final = 2
UNLIMITED: Final = 100_000  # columns, if stdout is no terminal
LEAST: Final = 10  # columns; a cell is not cut further
ROUNDED: Final = 10_000  # from here on a number is rounded if a table is too wide

# Control characters, and characters that change the direction of text.
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_UNSAFE_IN_JSON: Final = re.compile(r"[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_UNSAFE_LINES: Final = re.compile(r"(?![\n\t])" + _UNSAFE.pattern)

Cell: TypeAlias = object
Columns: TypeAlias = Mapping[str, Literal["left", "right"]]
"""The name and the alignment of each column."""


class Refused(Exception):
    """A command with wrong arguments, or one that needs a confirmation."""

    def __init__(self, message: str, code: str = "usage", status: int = WRONG_USAGE) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class Output:
    """Writes results to stdout, as JSON or as text."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def show(self, document: object, shown: "Callable[[], Iterable[RenderableType]]") -> None:
        """Write a document as JSON, or its text form."""
        if self.as_json:
            print(as_json(document), flush=True)
        else:
            self.write(shown())

    def write(self, shown: "Iterable[RenderableType]") -> None:
        """Write text and tables; they are cut to the width of a terminal only."""
        for each in shown:
            if isinstance(each, str):
                print(each)
                continue
            console = self.console()
            with console.capture() as captured:
                console.print(each)
            for line in captured.get().rstrip("\n").split("\n"):
                print(line.rstrip())

    def console(self) -> "Console":
        """Return a rich console for stdout."""
        from rich.console import Console  # noqa: PLC0415 - slow to import, and JSON does not need it

        width = None if sys.stdout.isatty() else UNLIMITED
        return Console(markup=False, highlight=False, emoji=False, width=width)


class Table:
    """A table without borders. If it is too wide, numbers are rounded and text is cut."""

    def __init__(self, columns: Columns, rows: Iterable[Sequence[Cell]]) -> None:
        self._columns = columns
        self._rows = [[str(each), *rest] for each, *rest in rows]

    def __rich_console__(
        self, console: "Console", options: "ConsoleOptions"
    ) -> "Iterator[RenderableType]":
        from rich import table  # noqa: PLC0415 - slow to import, and JSON does not need it
        from rich.text import Text  # noqa: PLC0415 - as above

        def drawn(show: Callable[[Cell], str], gap: int) -> "tuple[table.Table, int]":
            rows = [
                [Text(show(each), _STYLES.get(str(each), "")) for each in row] for row in self._rows
            ]
            heads = map(Text, self._columns)
            widths = [
                max(cell.cell_len for cell in each) for each in zip(heads, *rows, strict=True)
            ]
            excess = sum(widths) + gap * (len(widths) - 1) - options.max_width
            texts = [n for n, each in enumerate(self._columns.values()) if each == "left"]
            for _ in range(excess):
                widest = max(texts, key=lambda nth: widths[nth], default=0)
                if widths[widest] <= LEAST:
                    break
                excess -= 1
                widths[widest] -= 1
            grid = table.Table(
                box=None,
                pad_edge=False,
                header_style="bold",
                padding=(0, gap, 0, 0),
                show_header=bool("".join(self._columns).strip()),
            )
            for name, alignment in self._columns.items():
                grid.add_column(Text(name), justify=alignment, no_wrap=True)
            for row in rows:
                for cell, width in zip(row, widths, strict=True):
                    cell.truncate(width, overflow="ellipsis")
                grid.add_row(*row)
            return grid, excess

        whole, excess = drawn(plain, 2)
        yield drawn(_rounded, 1)[0] if excess > 0 else whole


def _rounded(value: Cell) -> str:
    """Return one line of text for a value, and a large number in five characters."""
    if isinstance(value, bool) or not isinstance(value, int) or value < ROUNDED:
        return plain(value)
    size, unit = next(
        each for each in ((10**9, "G"), (10**6, "M"), (10**3, "k")) if value >= each[0]
    )
    whole = value >= 10 * size
    return f"{value // size}{unit}" if whole else f"{value // (size // 10) / 10:g}{unit}"


_STYLES: Final = {
    "buried": "red",
    "failed": "red",
    "problem": "bold red",
    "warning": "yellow",
    "ok": "green",
    "paused": "yellow",
    "silent": "red",
}


def text(value: str) -> str:
    """Return lines of text with characters escaped that would control the terminal."""
    return _UNSAFE_LINES.sub(_escaped, value)


def plain(value: Cell) -> str:
    """Return one line of text for a value."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
        case timedelta():
            return spoken(value)
        case _:
            return _UNSAFE.sub(_escaped, str(value))


def jobs_are(count: int, of: str | None = None) -> str:
    """Return the beginning of a sentence about a number of jobs, perhaps of one topic."""
    noun, verb = ("job", "is") if count == 1 else ("jobs", "are")
    return f"{count:,} {noun}{f' of {of}' if of else ''} {verb}"


def since(instant: datetime | None) -> timedelta | None:
    """Return how long ago a time was."""
    return None if instant is None else max(datetime.now(UTC) - instant, timedelta())


def as_json(document: object) -> str:
    """Return a document as one line of JSON: times as ISO 8601, durations as seconds."""
    encoded = msgspec.json.encode(_simple(document)).decode()
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", encoded)


def complain(code: str, message: str, *, as_json: bool) -> None:
    """Write an error to stderr, as one line."""
    message = message.strip()
    if as_json:
        print(_error(code, message), file=sys.stderr)
    else:
        print(f"towpath: {_UNSAFE.sub(_escaped, ' '.join(message.split()))}", file=sys.stderr)


def _error(code: str, message: str) -> str:
    return as_json({"code": code, "message": message})


def _simple(value: Any) -> Any:
    match value:
        case timedelta():
            return value.total_seconds()
        case Struct():
            return _simple(msgspec.structs.asdict(value))
        case dict():
            known = cast("dict[str, Any]", value)
            return {key: _simple(each) for key, each in known.items()}
        case list() | tuple():
            return [_simple(each) for each in cast("list[Any]", value)]
        case _:
            return value


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def confirm(action: str, *, yes: bool) -> None:
    """Ask at the terminal for a confirmation; refuse the command without one."""
    if yes:
        return
    if not sys.stdin.isatty():
        msg = f"this would {action}; confirm with --yes"
        raise Refused(msg)
    print(f"{action}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        msg = "nothing was done"
        raise Refused(msg, "refused", 1)


@contextmanager
def counting(what: str) -> Generator[Callable[[int], object] | None]:
    """Return what shows a number that grows, on stderr while that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415 - as above

    columns = BarColumn(), TextColumn(f"{{task.completed:,}} {what}")
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        counted = shown.add_task(what, total=None)
        yield lambda number: shown.update(counted, completed=number)
