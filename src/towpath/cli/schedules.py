"""towpath schedules: lists schedules; pauses, resumes, runs and deletes them."""

import argparse
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from towpath import App, Schedule
from towpath.cli.apps import add_common, open_app
from towpath.cli.output import Columns, Output, Refused, Table, since, text

EXAMPLES: Final = """\
examples:
  towpath schedules
  towpath schedules pause nightly-report
  towpath schedules run nightly-report
"""
COLUMNS: Final[Columns] = {
    "schedule": "left",
    "topic": "left",
    "rule": "left",
    "next in": "right",
    "last": "right",
    "": "left",
}


def define(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.description = "List schedules; pause, resume, run and delete them."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "verb", nargs="?", choices=["list", *VERBS], default="list", help="default: list"
    )
    parser.add_argument("names", nargs="*", metavar="SCHEDULE")
    add_common(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> None:
    """Run the verb."""
    if bool(given.names) == (given.verb == "list"):
        msg = "list takes no names" if given.names else f"name the schedules to {given.verb}"
        raise Refused(msg)
    out = Output(as_json=given.json)
    with open_app(given) as app:
        if given.verb == "list":
            found = app.schedules.list()
            out.show(
                {"schedules": [document(each) for each in found]},
                lambda: [Table(COLUMNS, map(row, found))],
            )
            return
        act, result = VERBS[given.verb]
        for name in given.names:
            act(app, name)
    out.show(
        {"schedules": [{"name": name, "did": given.verb} for name in given.names]},
        lambda: [text(f"{name} {result}") for name in given.names],
    )


def document(schedule: Schedule) -> dict[str, Any]:
    """Return the JSON form of a schedule."""
    known = msgspec.structs.asdict(schedule)
    del known["body"], known["encoding"]
    return {**known, "payload": schedule.payload}


def row(schedule: Schedule) -> tuple[object, ...]:
    """Return a schedule as a row of COLUMNS."""
    rule = f"{schedule.cron} {schedule.tz or ''}"
    if schedule.every:
        rule = f"every {schedule.every.total_seconds():g} s"
    left = schedule.next_at and max(schedule.next_at - datetime.now(UTC), timedelta())
    state = schedule.error or ("paused" if schedule.paused else "")
    return schedule.name, schedule.topic, rule.strip(), left, since(schedule.last_at), state


VERBS: Final[dict[str, tuple[Callable[[App, str], object], str]]] = {
    "pause": (lambda app, name: app.schedules.pause(name), "is paused"),
    "resume": (lambda app, name: app.schedules.resume(name), "fires again"),
    "run": (lambda app, name: app.schedules.run(name), "is enqueued"),
    "delete": (lambda app, name: app.schedules.delete(name), "is deleted"),
}
