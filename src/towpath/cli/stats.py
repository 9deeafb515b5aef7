"""towpath stats: counts jobs by state and topic, once or live."""

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from towpath import App
from towpath.cli.apps import add_common, open_app
from towpath.cli.output import Output, Table
from towpath.cli.topics import COLUMNS, row
from towpath.model.stats import Stats, TopicStats

if TYPE_CHECKING:
    from rich.console import RenderableType

EXAMPLES: Final = """\
examples:
  towpath stats
  towpath stats --watch
  towpath stats --json --watch | jq .ready
"""
EVERY: Final = 1.0  # seconds


def define(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.description = "Count jobs by state and topic."
    parser.epilog = EXAMPLES
    parser.add_argument("--watch", action="store_true", help="update every second until Ctrl-C")
    add_common(parser)
    parser.set_defaults(run=stats)


def stats(given: argparse.Namespace) -> None:
    """Show the counts."""
    out = Output(as_json=given.json)
    with open_app(given) as app:
        if given.watch:
            watch(app, out)
        else:
            show(app, out)


def show(app: App, out: Output) -> None:
    """Show the counts once."""
    overall, topics = app.jobs.stats(), app.topics.stats()
    out.show(document(overall, topics), lambda: shown(overall, topics))


def watch(app: App, out: Output) -> None:
    """Show the counts every second; Ctrl-C ends it without an error."""
    try:
        if out.as_json or not sys.stdout.isatty():
            while True:
                show(app, out)
                sys.stdout.flush()
                time.sleep(EVERY)
        _watch_live(app, out)
    except KeyboardInterrupt:
        return


def _watch_live(app: App, out: Output) -> None:
    from rich.console import Group  # noqa: PLC0415 - as in output.py
    from rich.live import Live  # noqa: PLC0415 - as above

    with Live(console=out.console(), auto_refresh=False) as live:
        while True:
            live.update(Group(*shown(app.jobs.stats(), app.topics.stats())), refresh=True)
            time.sleep(EVERY)


def document(overall: Stats, topics: list[TopicStats]) -> dict[str, Any]:
    """Return the JSON form of the counts."""
    counted = msgspec.structs.asdict(overall)
    counted["topics"] = topics
    return counted


def shown(overall: Stats, topics: list[TopicStats]) -> "list[RenderableType]":
    """Return the counts as tables."""
    rate, pace = overall.success_rate, overall.avg_duration_ms
    now = {
        "ready": overall.ready,
        "delayed": overall.delayed,
        "blocked": overall.blocked,
        "reserved": overall.reserved,
        "buried": overall.buried,
        "cancelled": overall.cancelled,
    }
    outcomes = {
        "completed": overall.completed,
        "failed": overall.failed_total,
        "success": "-" if rate is None else f"{rate:.1%}",
        "average": "-" if pace is None else f"{pace:,.0f} ms",
    }
    return [
        *(
            Table({"": "left", **dict.fromkeys(counts, "right")}, [(name, *counts.values())])
            for name, counts in (("jobs", now), ("ended", outcomes))
        ),
        "",
        Table(COLUMNS, map(row, topics)),
    ]
