"""towpath keys: API keys of programs."""

import argparse
from collections.abc import Iterable
from typing import Final

from towpath.cli.apps import add_common, duration, open_app
from towpath.cli.output import Columns, Output, Refused, Table, since, text
from towpath.model.keys import ApiKey, KeyScope

EXAMPLES: Final = """\
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
    "expires": "left",
    "last used": "right",
    "id": "left",
}


def define(parser: argparse.ArgumentParser) -> None:
    """Say what the command understands."""
    parser.description = "Create, list and revoke API keys. A secret is shown once."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "verb", nargs="?", choices=list(VERBS), default="list", help="list unless told"
    )
    parser.add_argument("names", nargs="*", metavar="NAME or ID")
    parser.add_argument(
        "--scope", action="append", default=[], choices=[*map(str, KeyScope)], help="what it may do"
    )
    parser.add_argument("--topic", action="append", default=[], help="where; all unless told")
    parser.add_argument("--expires", type=duration, metavar="90d", help="never unless told")
    add_common(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> None:
    """Do what the verb says."""
    if bool(given.names) == (given.verb == "list"):
        msg = "list shows all keys" if given.names else f"say which key to {given.verb}"
        raise Refused(msg)
    if given.verb != "create" and (given.scope or given.topic or given.expires is not None):
        msg = "--scope, --topic and --expires go with create"
        raise Refused(msg)
    VERBS[given.verb](given)


def list_keys(given: argparse.Namespace) -> None:
    """Show every key, but for its secret."""
    with open_app(given) as app:
        found = app.keys.list()
    Output(as_json=given.json).show({"keys": found}, lambda: [Table(COLUMNS, map(row, found))])


def row(key: ApiKey) -> tuple[object, ...]:
    """Return a key as a row of COLUMNS."""
    expires = key.expires_at or "never"
    topics = _list(key.topics) or "all"
    used = since(key.last_used_at)
    return f"{key.prefix}…", key.name, _list(key.scopes), topics, expires, used, key.id


def create(given: argparse.Namespace) -> None:
    """Make a key and show its secret."""
    if len(given.names) != 1:
        msg = "give the key one name"
        raise Refused(msg)
    if not given.scope:
        msg = f"say what the key may do: --scope {', '.join(KeyScope)}"
        raise Refused(msg)
    with open_app(given) as app:
        key, secret = app.keys.create(
            given.names[0], scopes=given.scope, topics=given.topic, expires_in=given.expires
        )
    Output(as_json=given.json).show({"key": key, "secret": secret}, lambda: [secret])


def revoke(given: argparse.Namespace) -> None:
    """End keys."""
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
