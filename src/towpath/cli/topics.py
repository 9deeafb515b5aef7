"""towpath topics: lists topics; pauses, resumes and purges them."""

import argparse
from collections.abc import Callable
from typing import Final

from towpath import App
from towpath.cli.apps import add_common, duration, open_app
from towpath.cli.output import Columns, Output, Refused, Table, confirm, jobs_are, since, text
from towpath.model.stats import TopicStats

EXAMPLES: Final = """\
verbs:
  list      show the counts of every topic (the default)
  pause     let no job be reserved, until a resume or for a time
  resume    let jobs be reserved again
  purge     delete the pending and failed jobs, after a confirmation

examples:
  towpath topics
  towpath topics pause mail --for 15m
  towpath topics resume mail
  towpath topics purge mail --yes
"""
COLUMNS: Final[Columns] = {
    "topic": "left",
    "ready": "right",
    "oldest": "right",
    "delayed": "right",
    "blocked": "right",
    "reserved": "right",
    "buried": "right",
    "completed": "right",
    "failed": "right",
    "": "left",
}


def define(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.description = "List topics; pause, resume and purge them."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "verb", nargs="?", choices=list(VERBS), default="list", metavar="VERB", help="see below"
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="the name of a topic")
    parser.add_argument(
        "--for",
        dest="duration",
        metavar="TIME",
        type=duration,
        help="how long to pause, such as 15m (default: until it is resumed)",
    )
    parser.add_argument("--yes", action="store_true", help="purge without a confirmation")
    add_common(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> None:
    """Run the verb."""
    if bool(given.topics) == (given.verb == "list"):
        msg = "list takes no names" if given.topics else f"name the topics to {given.verb}"
        raise Refused(msg)
    if given.duration is not None and given.verb != "pause":
        msg = "--for is an option of pause"
        raise Refused(msg)
    VERBS[given.verb](given)


def list_topics(given: argparse.Namespace) -> None:
    """Show the counts of every topic."""
    with open_app(given) as app:
        found = app.topics.stats()
    Output(as_json=given.json).show({"topics": found}, lambda: [Table(COLUMNS, map(row, found))])


def row(topic: TopicStats) -> tuple[object, ...]:
    """Return a topic as a row of COLUMNS."""
    return (
        topic.topic,
        topic.ready,
        since(topic.oldest_at),
        topic.delayed,
        topic.blocked,
        topic.reserved,
        topic.buried,
        topic.completed,
        topic.failed_total,
        "paused" if topic.paused else "",
    )


def pause(given: argparse.Namespace) -> None:
    """Pause topics."""
    _each(given, lambda app, topic: app.topics.pause(topic, given.duration), "paused")


def resume(given: argparse.Namespace) -> None:
    """Resume topics."""
    _each(given, lambda app, topic: app.topics.resume(topic), "resumed")


def purge(given: argparse.Namespace) -> None:
    """Delete the pending and failed jobs of topics."""
    named = ", ".join(given.topics)
    confirm(f"delete the pending and failed jobs of {named}", yes=given.yes)
    with open_app(given) as app:
        counts = {topic: app.jobs.purge(topic) for topic in given.topics}
    Output(as_json=given.json).show(
        {"topics": [{"topic": topic, "purged": count} for topic, count in counts.items()]},
        lambda: [text(f"{jobs_are(count, topic)} deleted") for topic, count in counts.items()],
    )


def _each(given: argparse.Namespace, act: Callable[[App, str], None], result: str) -> None:
    with open_app(given) as app:
        for topic in given.topics:
            act(app, topic)
    Output(as_json=given.json).show(
        {"topics": [{"topic": topic, "paused": result == "paused"} for topic in given.topics]},
        lambda: [text(f"{topic} is {result}") for topic in given.topics],
    )


VERBS: Final = {"list": list_topics, "pause": pause, "resume": resume, "purge": purge}
