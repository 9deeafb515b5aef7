"""towpath topics: what waits in each, and whether it is handed out."""

import argparse
from collections.abc import Callable
from typing import Final

from towpath import App
from towpath.cli.apps import add_common, duration, open_app
from towpath.cli.output import Columns, Output, Refused, Table, confirm, since, text
from towpath.model.stats import TopicStats

EXAMPLES: Final = """\
examples:
  towpath topics
  towpath topics pause mail --for 15m
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
    """Say what the command understands."""
    parser.description = "List topics; pause, resume and purge them."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "verb", nargs="?", choices=list(VERBS), default="list", help="list unless told"
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC")
    parser.add_argument("--for", dest="duration", type=duration, help="pause it for so long")
    parser.add_argument("--yes", action="store_true", help="purge without asking")
    add_common(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> None:
    """Do what the verb says."""
    if bool(given.topics) == (given.verb == "list"):
        msg = "list shows all topics" if given.topics else f"name the topics to {given.verb}"
        raise Refused(msg)
    if given.duration is not None and given.verb != "pause":
        msg = "--for says how long to pause"
        raise Refused(msg)
    VERBS[given.verb](given)


def list_topics(given: argparse.Namespace) -> None:
    """Show every topic in numbers."""
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
        topic.failed,
        "paused" if topic.paused else "",
    )


def pause(given: argparse.Namespace) -> None:
    """Pause topics."""
    _each(given, lambda app, topic: app.topics.pause(topic, given.duration), "paused")


def resume(given: argparse.Namespace) -> None:
    """Resume topics."""
    _each(given, lambda app, topic: app.topics.resume(topic), "resumed")


def purge(given: argparse.Namespace) -> None:
    """Forget what is in topics."""
    named = ", ".join(given.topics)
    confirm(f"forget the pending and failed jobs of {named}", yes=given.yes)
    with open_app(given) as app:
        gone = {topic: app.jobs.purge(topic) for topic in given.topics}
    Output(as_json=given.json).show(
        {"topics": [{"topic": topic, "purged": count} for topic, count in gone.items()]},
        lambda: [text(f"{count} jobs of {topic} are gone") for topic, count in gone.items()],
    )


def _each(given: argparse.Namespace, act: Callable[[App, str], None], now: str) -> None:
    with open_app(given) as app:
        for topic in given.topics:
            act(app, topic)
    Output(as_json=given.json).show(
        {"topics": [{"topic": topic, "paused": now == "paused"} for topic in given.topics]},
        lambda: [text(f"{topic} is {now}") for topic in given.topics],
    )


VERBS: Final = {"list": list_topics, "pause": pause, "resume": resume, "purge": purge}
