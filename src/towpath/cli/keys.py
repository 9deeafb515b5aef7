"""towpath keys: creates, lists and revokes API keys."""

import argparse
from collections.abc import Iterable
from typing import Final

from towpath.cli.apps import add_common, duration, open_app
from towpath.cli.output import Columns, Output, Refused, Table, since, text
from towpath.model.keys import ApiKey, KeyScope

EXAMPLES: Final = """\
verbs:
  list      show every key, without its secret (the default)
  create    create a key, and show its secret once
  revoke    make a key useless at once

examples:
  towpath keys create ci --scope enqueue --topic mail --expires 90d
  towpath keys
  towpath keys revoke 0190c0de-0000-7000-8000-000000000000
"""
COLUMNS: Final[Columns] = {
    "key": "left",
    "name": "left",
    "scopes": "left",
    "topics": "left",
    "channels": "left",
    "expires": "left",
    "last used": "right",
    "id": "left",
}


def define(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.description = "Create, list and revoke API keys. A secret is shown once."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "verb", nargs="?", choices=list(VERBS), default="list", metavar="VERB", help="see below"
    )
    parser.add_argument("names", nargs="*", metavar="KEY", help="create: a name; revoke: an id")
    parser.add_argument(
        "--scope", action="append", default=[], choices=[*map(str, KeyScope)], help="what it may do"
    )
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC",
        help="only this topic (default: all)",
    )
    parser.add_argument(
        "--channel",
        action="append",
        default=[],
        metavar="CHANNEL",
        help="only channels whose names begin so (default: all)",
    )
    parser.add_argument(
        "--expires",
        type=duration,
        metavar="TIME",
        help="until it ends, such as 90d (default: never)",
    )
    add_common(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> None:
    """Run the verb."""
    if bool(given.names) == (given.verb == "list"):
        msg = "list takes no names" if given.names else f"name the key to {given.verb}"
        raise Refused(msg)
    if given.verb != "create" and (
        given.scope or given.topic or given.channel or given.expires is not None
    ):
        msg = "--scope, --topic, --channel and --expires are options of create"
        raise Refused(msg)
    VERBS[given.verb](given)


def list_keys(given: argparse.Namespace) -> None:
    """Show all keys, without their secrets."""
    with open_app(given) as app:
        found = app.keys.list()
    Output(as_json=given.json).show({"keys": found}, lambda: [Table(COLUMNS, map(row, found))])


def row(key: ApiKey) -> tuple[object, ...]:
    """Return a key as a row of COLUMNS."""
    expires = key.expires_at or "never"
    topics, channels = _list(key.topics) or "all", _list(key.channels) or "all"
    used = since(key.last_used_at)
    return f"{key.prefix}…", key.name, _list(key.scopes), topics, channels, expires, used, key.id


def create(given: argparse.Namespace) -> None:
    """Create a key and show its secret."""
    if len(given.names) != 1:
        msg = "create takes one name"
        raise Refused(msg)
    if not given.scope:
        msg = f"--scope is required: {', '.join(KeyScope)}"
        raise Refused(msg)
    with open_app(given) as app:
        key, secret = app.keys.create(
            given.names[0],
            scopes=given.scope,
            topics=given.topic,
            channels=given.channel,
            expires_in=given.expires,
        )
    Output(as_json=given.json).show({"key": key, "secret": secret}, lambda: [secret])


def revoke(given: argparse.Namespace) -> None:
    """Revoke keys."""
    with open_app(given) as app:
        for id in given.names:
            app.keys.revoke(id)
    Output(as_json=given.json).show(
        {"keys": [{"id": id, "did": "revoke"} for id in given.names]},
        lambda: [text(f"{id} is revoked") for id in given.names],
    )


def _list(words: Iterable[str]) -> str:
    return ", ".join(words)


VERBS: Final = {"list": list_keys, "create": create, "revoke": revoke}
