"""towpath users: creates, lists, shows, updates and deletes users of the HTTP API."""

import argparse
from typing import Any, Final

import msgspec

from towpath.cli.apps import add_common, open_app
from towpath.cli.output import Columns, Output, Refused, Table, as_json, since, text
from towpath.cli.passwords import add_password, new_password
from towpath.model.accounts import Account, Collection

EXAMPLES: Final = """\
verbs:
  list      show every user (the default)
  create    create a user, and ask for a password
  show      show one user in full
  update    change the name, the address, the fields or the password
  delete    delete a user; tokens end at once

examples:
  towpath users
  towpath users create ada@example.com --name Ada --field role=editor
  towpath users update ada@example.com --field role=
  towpath users update ada@example.com --password
  towpath users show ada@example.com
  towpath users delete ada@example.com
"""
USERS: Final = Collection.USERS
COLUMNS: Final[Columns] = {
    "email": "left",
    "name": "left",
    "fields": "left",
    "created": "right",
    "id": "left",
}
AT_ONCE: Final = 1_000


def define(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.description = "Create, list, show, update and delete users of the HTTP API."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "verb", nargs="?", choices=list(VERBS), default="list", metavar="VERB", help="see below"
    )
    parser.add_argument("email", nargs="?", metavar="EMAIL", help="the address of a user")
    parser.add_argument("--name", metavar="NAME", help="the user's name")
    parser.add_argument("--email", dest="new_email", metavar="EMAIL", help="update: a new address")
    parser.add_argument(
        "--field",
        action="append",
        default=[],
        metavar="NAME=TEXT",
        help="a custom field; an empty text removes it",
    )
    parser.add_argument("--password", action="store_true", help="update: ask for a new password")
    add_password(parser)
    add_common(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> None:
    """Run the verb."""
    check_named(given)
    changes = given.name is not None or given.field or given.password or given.new_email
    if changes and given.verb not in {"create", "update"}:
        msg = "--name, --email, --field and --password are options of create and update"
        raise Refused(msg)
    VERBS[given.verb](given)


def check_named(given: argparse.Namespace) -> None:
    """Refuse a verb without an e-mail address, and `list` with one."""
    if (given.email is None) != (given.verb == "list"):
        is_list = given.verb == "list"
        msg = "list takes no EMAIL" if is_list else f"give the EMAIL of the account to {given.verb}"
        raise Refused(msg)


def list_users(given: argparse.Namespace) -> None:
    """Show every user."""
    show_accounts(given, USERS, "users")


def create(given: argparse.Namespace) -> None:
    """Create a user."""
    fields = {name: value for name, value in _fields(given.field).items() if value is not None}
    with open_app(given) as app:
        made = app.accounts.create(
            USERS, given.email, new_password(given), name=given.name or "", fields=fields
        )
    _show(given, made, f"{made.email} is a user")


def show(given: argparse.Namespace) -> None:
    """Show one user."""
    with open_app(given) as app:
        found = app.accounts.get(USERS, given.email)
    Output(as_json=given.json).show(
        {"user": document(found)},
        lambda: [text(f"{name}: {_shown(value)}") for name, value in document(found).items()],
    )


def update(given: argparse.Namespace) -> None:
    """Change a user."""
    sets_password = given.password or given.password_stdin
    if given.name is None and not (given.field or given.new_email or sets_password):
        msg = "give --name, --email, --field or --password"
        raise Refused(msg)
    with open_app(given) as app:
        found = app.accounts.get(USERS, given.email)
        changed = app.accounts.update(
            USERS,
            found.id,
            email=given.new_email,
            password=new_password(given) if sets_password else None,
            name=given.name,
            fields=_fields(given.field),
        )
    _show(given, changed, f"{changed.email} is updated")


def delete(given: argparse.Namespace) -> None:
    """Delete a user."""
    with open_app(given) as app:
        found = app.accounts.get(USERS, given.email)
        app.accounts.delete(USERS, found.id)
    _show(given, found, f"{found.email} is deleted")


def show_accounts(given: argparse.Namespace, collection: Collection, title: str) -> None:
    """Show every account of a collection."""
    found: list[Account] = []
    with open_app(given) as app:
        while page := app.accounts.list(collection, limit=AT_ONCE, offset=len(found)):
            found += page
            if len(page) < AT_ONCE:
                break
    Output(as_json=given.json).show(
        {title: [document(each) for each in found]}, lambda: [Table(COLUMNS, map(row, found))]
    )


def document(account: Account) -> dict[str, Any]:
    """Return the JSON form of an account."""
    known = msgspec.structs.asdict(account)
    del known["generation"], known["collection"]
    return known


def row(account: Account) -> tuple[object, ...]:
    """Return an account as a row of COLUMNS."""
    fields = as_json(account.fields) if account.fields else ""
    return account.email, account.name, fields, since(account.created_at), account.id


def _show(given: argparse.Namespace, account: Account, line: str) -> None:
    Output(as_json=given.json).show({"user": document(account)}, lambda: [text(line)])


def _shown(value: object) -> str:
    return value if isinstance(value, str) else as_json(value)


def _fields(given: list[str]) -> dict[str, str | None]:
    """Read custom fields; an empty one is None, which removes it."""
    fields: dict[str, str | None] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            msg = f"--field {each!r} has no `=`; write NAME=TEXT"
            raise Refused(msg)
        fields[name] = value or None
    return fields


VERBS: Final = {
    "list": list_users,
    "create": create,
    "show": show,
    "update": update,
    "delete": delete,
}
