"""towpath access: shows and sets the access rules of the HTTP API."""

import argparse
from typing import Any, Final

import msgspec

from towpath.cli.apps import add_common, open_app
from towpath.cli.output import Columns, Output, Refused, Table, text
from towpath.model.access import Access

EXAMPLES: Final = """\
verbs:
  show      show the rules (the default)
  set       change the rules that are given, of all topics or of one
  unset     remove the rules of a topic, so that those of all topics hold

examples:
  towpath access
  towpath access set --access-rule "@request.auth.id != ''"
  towpath access set --topic mail --enqueue-rule true
  towpath access set --http off
  towpath access unset --topic mail
"""
COLUMNS: Final[Columns] = {"": "left", "enqueue": "left", "manage": "left", "work": "left"}
RULES: Final = ("enqueue_rule", "manage_rule", "work_rule")
SWITCH: Final = {"on": True, "off": False}


def define(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.description = (
        'Show and set the access rules of the HTTP API. The rule "" allows superusers only.'
    )
    parser.epilog = EXAMPLES
    parser.add_argument(
        "verb",
        nargs="?",
        choices=["show", "set", "unset"],
        default="show",
        metavar="VERB",
        help="see below",
    )
    for rule, summary in (
        ("enqueue", "rule for enqueueing jobs"),
        ("manage", "rule for reading, requeueing, cancelling and deleting jobs"),
        ("work", "rule for reserving jobs"),
        ("access", "sets the rules of enqueue and manage"),
    ):
        parser.add_argument(f"--{rule}-rule", metavar="RULE", help=summary)
    parser.add_argument("--http", choices=list(SWITCH), help="off: superusers only")
    parser.add_argument(
        "--allowed-topics",
        metavar="TOPICS",
        help='topics that users may enqueue, such as a,b; "": all',
    )
    parser.add_argument("--topic", metavar="TOPIC", help="set or unset the rules of this topic")
    add_common(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> None:
    """Run the verb."""
    _changes(given, Access())  # refuse wrong usage before opening a database
    with open_app(given) as app:
        found = app.access.get()
        if given.verb != "show":
            found = app.access.set(**_changes(given, found))
    Output(as_json=given.json).show({"access": document(found)}, lambda: _shown(found))


def document(access: Access) -> dict[str, Any]:
    """Return the JSON form of the rules."""
    known: dict[str, Any] = msgspec.to_builtins(access)
    return known


def _changes(given: argparse.Namespace, found: Access) -> dict[str, Any]:
    rules = {
        name: getattr(given, name)
        for name in (*RULES, "access_rule")
        if getattr(given, name) is not None
    }
    switches: dict[str, Any] = {}
    if given.http:
        switches["http_enabled"] = SWITCH[given.http]
    if given.allowed_topics is not None:
        words = given.allowed_topics.split(",")
        switches["allowed_topics"] = [word.strip() for word in words if word.strip()]
    if given.verb == "set" and given.topic is None and (rules or switches):
        return rules | switches
    if given.verb == "set" and given.topic is not None and rules and not switches:
        both = rules.pop("access_rule", None)
        shared = {} if both is None else {"enqueue_rule": both, "manage_rule": both}
        own = found.topics.get(given.topic)
        before = {name: getattr(own, name) for name in RULES} if own else {}
        return {"topics": {given.topic: before | shared | rules}}
    if given.verb == "unset" and given.topic is not None and not (rules or switches):
        return {"topics": {given.topic: None}}
    if given.verb == "show" and not (rules or switches) and given.topic is None:
        return {}
    raise Refused(_ADVICE[given.verb])


_ADVICE: Final = {
    "show": "show takes no options; did you mean `towpath access set`?",
    "set": "give rules, --http or --allowed-topics to set; with --topic, give rules only",
    "unset": "give --topic TOPIC and no other option",
}


def _shown(access: Access) -> list[Any]:
    rows = [("all topics", *(_rule(getattr(access, name)) for name in RULES))]
    rows += [
        (topic, *(_rule(getattr(own, name)) for name in RULES))
        for topic, own in sorted(access.topics.items())
    ]
    return [
        text(f"HTTP is {'on' if access.http_enabled else 'off for all but superusers'}"),
        text(f"topics that users may enqueue: {', '.join(access.allowed_topics) or 'all'}"),
        "",
        Table(COLUMNS, rows),
    ]


def _rule(rule: str | None) -> str:
    if rule is None:
        return "-"
    return rule or "superusers only"
