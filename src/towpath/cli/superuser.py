"""towpath superuser: those to whom no rule applies."""

import argparse
from typing import Final

from towpath.cli.apps import add_common, open_app
from towpath.cli.output import Output, text
from towpath.cli.passwords import add_password, new_password
from towpath.cli.users import check_named, document, show_accounts
from towpath.model.accounts import Collection

EXAMPLES: Final = """\
examples:
  towpath superuser create root@example.com
  towpath superuser password root@example.com
  pass show towpath | towpath superuser create root@example.com --password-stdin
"""
SUPERUSERS: Final = Collection.SUPERUSERS


def define(parser: argparse.ArgumentParser) -> None:
    """Say what the command understands."""
    parser.description = "Create, list and delete superusers; set their passwords."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "verb", nargs="?", choices=list(VERBS), default="list", help="list unless told"
    )
    parser.add_argument("email", nargs="?", metavar="EMAIL")
    add_password(parser)
    add_common(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> None:
    """Do what the verb says."""
    check_named(given)
    VERBS[given.verb](given)


def list_superusers(given: argparse.Namespace) -> None:
    """Show every superuser."""
    show_accounts(given, SUPERUSERS, "superusers")


def create(given: argparse.Namespace) -> None:
    """Add a superuser, and our tables if they are not there yet."""
    with open_app(given, creates=True) as app:
        made = app.accounts.create(SUPERUSERS, given.email, new_password(given))
    said = f"{made.email} is a superuser of {app.database}"
    Output(as_json=given.json).show({"superuser": document(made)}, lambda: [text(said)])


def set_password(given: argparse.Namespace) -> None:
    """Set a password."""
    with open_app(given) as app:
        found = app.accounts.get(SUPERUSERS, given.email)
        changed = app.accounts.update(SUPERUSERS, found.id, password=new_password(given))
    said = f"{changed.email} has a new password; what was logged in is logged out"
    Output(as_json=given.json).show({"superuser": document(changed)}, lambda: [text(said)])


def delete(given: argparse.Namespace) -> None:
    """Delete a superuser."""
    with open_app(given) as app:
        found = app.accounts.get(SUPERUSERS, given.email)
        app.accounts.delete(SUPERUSERS, found.id)
    said = f"{found.email} is deleted"
    Output(as_json=given.json).show({"superuser": document(found)}, lambda: [text(said)])


VERBS: Final = {
    "list": list_superusers,
    "create": create,
    "password": set_password,
    "delete": delete,
}
