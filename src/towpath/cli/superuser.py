"""towpath superuser: creates, lists and deletes superusers, which no rule restricts."""

import argparse
from typing import Final

from towpath.cli.apps import add_common, open_app
from towpath.cli.output import Output, text
from towpath.cli.passwords import add_password, new_password
from towpath.cli.users import check_named, document, show_accounts
from towpath.model.accounts import Collection

EXAMPLES: Final = """\
verbs:
  list      show every superuser (the default)
  create    create a superuser, and ask for a password
  password  set another password; tokens end at once
  delete    delete a superuser; tokens end at once

examples:
  towpath superuser
  towpath superuser create root@example.com
  towpath superuser password root@example.com
  towpath superuser delete root@example.com
  pass show towpath | towpath superuser create root@example.com --password-stdin
"""
SUPERUSERS: Final = Collection.SUPERUSERS


def define(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.description = "Create, list and delete superusers; set their passwords."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "verb", nargs="?", choices=list(VERBS), default="list", metavar="VERB", help="see below"
    )
    parser.add_argument("email", nargs="?", metavar="EMAIL", help="the address of a superuser")
    add_password(parser)
    add_common(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> None:
    """Run the verb."""
    check_named(given)
    VERBS[given.verb](given)


def list_superusers(given: argparse.Namespace) -> None:
    """Show every superuser."""
    show_accounts(given, SUPERUSERS, "superusers")


def create(given: argparse.Namespace) -> None:
    """Create a superuser, and the tables if they do not exist yet."""
    with open_app(given, creates=True) as app:
        made = app.accounts.create(SUPERUSERS, given.email, new_password(given))
    line = f"{made.email} is a superuser of {app.database}"
    Output(as_json=given.json).show({"superuser": document(made)}, lambda: [text(line)])


def set_password(given: argparse.Namespace) -> None:
    """Set a password."""
    with open_app(given) as app:
        found = app.accounts.get(SUPERUSERS, given.email)
        changed = app.accounts.update(SUPERUSERS, found.id, password=new_password(given))
    line = f"{changed.email} has a new password; all its logins have ended"
    Output(as_json=given.json).show({"superuser": document(changed)}, lambda: [text(line)])


def delete(given: argparse.Namespace) -> None:
    """Delete a superuser."""
    with open_app(given) as app:
        found = app.accounts.get(SUPERUSERS, given.email)
        app.accounts.delete(SUPERUSERS, found.id)
    line = f"{found.email} is deleted"
    Output(as_json=given.json).show({"superuser": document(found)}, lambda: [text(line)])


VERBS: Final = {
    "list": list_superusers,
    "create": create,
    "password": set_password,
    "delete": delete,
}
