"""Tables, and results that are kept."""

import datetime as dt
import hashlib
import os
import platform
import sqlite3
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

import towpath
from bench.places import fsync_seconds
from bench.rounds import Result

RESULTS = Path(__file__).parent / "results"


class Report(Struct, kw_only=True):
    """A run, with all that is needed to read it later."""

    about: dict[str, Any]
    results: list[Result]


def about() -> dict[str, Any]:
    """Return what the numbers depend on."""
    root = Path(__file__).parent.parent
    source = Path(towpath.__file__).parent
    files = sorted(f for f in source.rglob("*") if f.suffix in {".py", ".sql"})
    return {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": _git(root, "rev-parse", "HEAD"),
        "changed": bool(_git(root, "status", "--porcelain", "src")),
        "source": hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:16],
        "python": platform.python_version(),
        "psycopg": version("psycopg"),
        "sqlite": sqlite3.sqlite_version,
        "msgspec": version("msgspec"),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "machine": platform.platform(),
        "fsync_ms": round(fsync_seconds() * 1e3, 3),
    }


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],  # noqa: S607 - whichever git there is
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def table(database: str, results: Iterable[Result]) -> Table:
    """Lay out the results of one database; each pair is best / median.

    CPU is that of this process for each job, ours : bare.
    """
    made = Table(title=database, title_justify="left")
    made.add_column("what")
    for name in ("ours (/s)", "bare, peer (/s)", "ratio", "CPU µs", "target"):
        made.add_column(name, justify="right")
    made.add_column("met?")
    made.add_column("note")
    for result in results:
        met = {True: "[green]yes", False: "[red]NO", None: ""}[result.met]
        made.add_row(
            result.what,
            _values(result.ours, result),
            _values(result.bare, result),
            _ratio(result),
            " : ".join(map(_number, result.cpu_us)),
            str(result.floor or ""),
            met,
            result.note,
        )
    return made


def _values(values: Sequence[float], result: Result) -> str:
    if not values:
        return ""
    best = min(values) if result.less_is_better else max(values)
    unit = "" if result.unit == "/s" else f" {result.unit}"
    if len(values) == 1:
        return f"{_number(best)}{unit}"
    return f"{_number(best)} / {_number(statistics.median(values))}{unit}"


def _ratio(result: Result) -> str:
    if result.ratio is None or result.median_ratio is None:
        return ""
    return f"{result.ratio:.2f} / {result.median_ratio:.2f}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def show(report: Report) -> None:
    console = Console(width=150)
    console.print(" · ".join(f"{name} {value}" for name, value in report.about.items()))
    for database in dict.fromkeys(result.database for result in report.results):
        console.print(table(database, [r for r in report.results if r.database == database]))


def save(report: Report, place: Path | None) -> Path:
    """Keep the results: at a place that was given, or under their time and as the latest."""
    text = msgspec.json.format(msgspec.json.encode(report), indent=2)
    stamp = report.about["date"].replace(":", "").replace("+0000", "Z")
    path = place or RESULTS / f"{stamp}.json"
    for each in (path,) if place else (path, RESULTS / "latest.json"):
        each.write_bytes(text)
    return path


def load(path: Path) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)


def compare(before: Path, after: Path) -> None:
    """Print what differs; the ratios count, the rates are only comparable on a quiet machine."""
    old, new = load(before), load(after)
    console = Console(width=150)
    for name, value in new.about.items():
        if old.about.get(name) != value:
            console.print(f"{name}: {old.about.get(name)} → {value}")
    known = {(r.database, r.what): r for r in old.results}
    made = Table()
    for name in (
        "database",
        "what",
        "ours before",
        "ours after",
        "factor",
        "ratio before",
        "ratio after",
    ):
        made.add_column(name, justify="left" if name in {"database", "what"} else "right")
    for result in new.results:
        was = known.pop((result.database, result.what), None)
        made.add_row(
            result.database,
            result.what,
            f"{_number(was.best)} {was.unit}" if was else "-",
            f"{_number(result.best)} {result.unit}",
            f"{result.best / was.best:.2f}" if was and was.best else "",
            f"{was.ratio:.2f}" if was and was.ratio else "",
            f"{result.ratio:.2f}" if result.ratio else "",
        )
    for was in known.values():
        made.add_row(was.database, was.what, f"{_number(was.best)} {was.unit}", "-", "", "", "")
    console.print(made)
