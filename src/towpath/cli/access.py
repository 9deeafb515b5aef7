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
  set       change the rules that are given, of all topics, of one, or of channels
  unset     remove the rules of a topic or of channels, so that more general ones hold

examples:
  towpath access
  towpath access set --access-rule "@request.auth.id != ''"
  towpath access set --topic mail --enqueue-rule true
  towpath access set --http off
  towpath access set --webhook-rule "@subscription.owner = @request.auth.id"
  towpath access unset --topic mail
  towpath access set --channel user: --subscribe-rule "@channel.rest = @request.auth.id"
"""
WEBHOOK_RULE: Final = "webhook_rule"
COLUMNS: Final[Columns] = {"": "left", "enqueue": "left", "manage": "left", "work": "left"}
CHANNEL_COLUMNS: Final[Columns] = {
    "channels": "left",
    "publish": "left",
    "subscribe": "left",
    "manage": "left",
}
RULES: Final = ("enqueue_rule", "manage_rule", "work_rule")
CHANNEL_RULES: Final = ("publish_rule", "subscribe_rule", "manage_rule")
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
        ("manage", "rule for reading, requeueing, cancelling, deleting jobs; deleting channels"),
        ("work", "rule for reserving jobs"),
        ("access", "sets the rules of enqueue and manage"),
        ("webhook", "rule for making and managing webhooks"),
        ("publish", "with --channel: rule for publishing events"),
        ("subscribe", "with --channel: rule for reading events"),
    ):
        parser.add_argument(f"--{rule}-rule", metavar="RULE", help=summary)
    parser.add_argument("--http", choices=list(SWITCH), help="off: superusers only")
    parser.add_argument(
        "--allowed-topics",
        metavar="TOPICS",
        help='topics that users may enqueue, such as a,b; "": all',
    )
    parser.add_argument("--topic", metavar="TOPIC", help="set or unset the rules of this topic")
    parser.add_argument(
        "--channel",
        metavar="PREFIX",
        help='set or unset the rules of channels that begin so; "": all',
    )
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
        for name in (*RULES, WEBHOOK_RULE, "access_rule", "publish_rule", "subscribe_rule")
        if getattr(given, name) is not None
    }
    switches: dict[str, Any] = {}
    if given.http:
        switches["http_enabled"] = SWITCH[given.http]
    if given.allowed_topics is not None:
        words = given.allowed_topics.split(",")
        switches["allowed_topics"] = [word.strip() for word in words if word.strip()]
    changes: dict[str, Any] | None = None
    match given.verb:
        case "show" if not (rules or switches) and given.topic is given.channel is None:
            changes = {}
        case "set" if given.channel is not None:
            if given.topic is None and rules and not switches and rules.keys() <= {*CHANNEL_RULES}:
                own = found.channels.get(given.channel)
                changes = {"channels": {given.channel: _before(own, CHANNEL_RULES) | rules}}
        case "set" if rules.keys().isdisjoint({"publish_rule", "subscribe_rule"}):
            changes = _of_topics(given.topic, rules, switches, found)
        case "unset" if not (rules or switches) and (given.topic is None) != (
            given.channel is None
        ):
            changes = {"topics": {given.topic: None}}
            if given.channel is not None:
                changes = {"channels": {given.channel: None}}
        case _:
            pass
    if changes is None:
        raise Refused(_ADVICE[given.verb])
    return changes


def _of_topics(
    topic: str | None, rules: dict[str, str], switches: dict[str, Any], found: Access
) -> dict[str, Any] | None:
    if topic is None:
        return rules | switches or None
    if switches or not rules or WEBHOOK_RULE in rules:
        return None
    both = rules.pop("access_rule", None)
    shared = {} if both is None else {"enqueue_rule": both, "manage_rule": both}
    return {"topics": {topic: _before(found.topics.get(topic), RULES) | shared | rules}}


def _before(own: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(own, name) for name in names} if own else {}


_ADVICE: Final = {
    "show": "show takes no options; did you mean `towpath access set`?",
    "set": (
        "give rules, --http or --allowed-topics to set; with --topic, give rules only; "
        "with --channel, give --publish-rule, --subscribe-rule or --manage-rule"
    ),
    "unset": "give --topic TOPIC or --channel PREFIX, and no other option",
}


def _shown(access: Access) -> list[Any]:
    rows = [("all topics", *(_rule(getattr(access, name)) for name in RULES))]
    rows += [
        (topic, *(_rule(getattr(own, name)) for name in RULES))
        for topic, own in sorted(access.topics.items())
    ]
    of_channels = [
        (prefix or "all channels", *(_rule(getattr(own, name)) for name in CHANNEL_RULES))
        for prefix, own in sorted(access.channels.items())
    ]
    return [
        text(f"HTTP is {'on' if access.http_enabled else 'off for all but superusers'}"),
        text(f"topics that users may enqueue: {', '.join(access.allowed_topics) or 'all'}"),
        text(f"webhooks: {_rule(access.webhook_rule)}"),
        "",
        Table(COLUMNS, rows),
        *(["", Table(CHANNEL_COLUMNS, of_channels)] if of_channels else []),
    ]


def _rule(rule: str | None) -> str:
    if rule is None:
        return "-"
    return rule or "superusers only"
