"""towpath schedules: lists and sets schedules; pauses, resumes, runs and deletes them."""

import argparse
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast, get_args

import msgspec

from towpath import App, Schedule
from towpath.app.checks import EnqueueOptions
from towpath.cli.apps import add_common, duration, open_app
from towpath.cli.output import Columns, Output, Refused, Table, since, text
from towpath.model.schedule import CatchUp

EXAMPLES: Final = """\
verbs:
  list      show every schedule, and when it fires next (the default)
  set       store a schedule, or replace the one of this name
  pause     stop its fires; they are not caught up
  resume    fire again, from now on
  run       enqueue its job now; the next fire stays
  delete    delete the schedule, not its jobs

examples:
  towpath schedules
  towpath schedules set nightly-report --topic report --cron "0 3 * * *" --tz Europe/Berlin
  towpath schedules set poll --topic fetch --every 5m --payload '{"shop": 7}'
  towpath schedules pause nightly-report
  towpath schedules resume nightly-report
  towpath schedules run nightly-report
  towpath schedules delete nightly-report
"""
OF_RULE: Final = ("cron", "every", "tz", "catch_up")
OF_SET: Final = ("topic", "payload", *OF_RULE, "priority", "max_retries", "expires_after")
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
    parser.description = (
        "List and set schedules; pause, resume, run and delete them. A schedule that is declared "
        "in code is set again by every worker that starts."
    )
    parser.epilog = EXAMPLES
    parser.add_argument(
        "verb",
        nargs="?",
        choices=["list", "set", *VERBS],
        default="list",
        metavar="VERB",
        help="see below",
    )
    parser.add_argument("names", nargs="*", metavar="SCHEDULE", help="the name of a schedule")
    setting = parser.add_argument_group("options of set")
    setting.add_argument("--topic", metavar="TOPIC", help="of its jobs")
    setting.add_argument("--payload", metavar="JSON", help="of its jobs (default null)")
    setting.add_argument(
        "--cron", metavar="RULE", help='fire at these times, such as "0 8 * * MON"'
    )
    setting.add_argument("--every", metavar="TIME", type=duration, help="or this often, such as 5m")
    setting.add_argument("--tz", metavar="ZONE", help="of --cron, such as Europe/Berlin")
    setting.add_argument(
        "--catch-up",
        choices=get_args(CatchUp),
        help="which missed fires become jobs: one for all of them (latest, the default), one each "
        "(all) or none (skip)",
    )
    setting.add_argument("--priority", metavar="NUMBER", type=int, help="0 is the most urgent")
    setting.add_argument(
        "--max-retries", metavar="NUMBER", type=int, help="bury a job after so many failures"
    )
    setting.add_argument(
        "--expires-after", metavar="TIME", type=duration, help="cancel a job not started by then"
    )
    add_common(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> None:
    """Run the verb."""
    if bool(given.names) == (given.verb == "list"):
        msg = "list takes no names" if given.names else f"name the schedules to {given.verb}"
        raise Refused(msg)
    options = {name: value for name in OF_SET if (value := getattr(given, name)) is not None}
    if given.verb == "set":
        set_schedule(given, options)
        return
    if options:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in options)
        msg = f"options of set, not of {given.verb}: {flags}"
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


def set_schedule(given: argparse.Namespace, options: dict[str, Any]) -> None:
    """Store a schedule; the task of its topic checks the payload and adds its options."""
    if len(given.names) != 1 or not given.topic:
        msg = "set takes one name, and --topic"
        raise Refused(msg)
    topic, payload = options.pop("topic"), msgspec.Raw(options.pop("payload", "null").encode())
    rule = {name: options.pop(name) for name in OF_RULE if name in options}
    of_jobs = cast("EnqueueOptions", options)
    with open_app(given, creates=True) as app:
        task = app.tasks.for_call(topic, None)
        if task:
            payload, of_jobs = task.from_outside(payload, of_jobs)
        stored = app.schedules.set(given.names[0], topic=topic, payload=payload, **rule, **of_jobs)
    Output(as_json=given.json).show(
        {"schedules": [document(stored)]}, lambda: [Table(COLUMNS, [row(stored)])]
    )


def document(schedule: Schedule) -> dict[str, Any]:
    """Return the JSON form of a schedule."""
    known = msgspec.structs.asdict(schedule)
    del known["body"], known["encoding"], known["ttr"], known["options"]
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
