"""towpath users: who may log in to the HTTP API, within its rules."""

import argparse
from typing import Any, Final

import msgspec

from towpath.cli.apps import add_common, open_app
from towpath.cli.output import Columns, Output, Refused, Table, as_json, since, text
from towpath.cli.passwords import add_password, new_password
from towpath.model.accounts import Account, Collection

EXAMPLES: Final = """\
examples:
  towpath users
  towpath users create ada@example.com --name Ada --field role=editor
  towpath users update ada@example.com --field role=
  towpath users update ada@example.com --password
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
    """Say what the command understands."""
    parser.description = "Create, list, show, update and delete users of the HTTP API."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "verb", nargs="?", choices=list(VERBS), default="list", help="list unless told"
    )
    parser.add_argument("email", nargs="?", metavar="EMAIL")
    parser.add_argument("--name", help="what the user is called")
    parser.add_argument("--email", dest="new_email", metavar="EMAIL", help="another address")
    parser.add_argument(
        "--field", action="append", default=[], metavar="NAME=TEXT", help="a field; empty: none"
    )
    parser.add_argument("--password", action="store_true", help="update: ask for a new password")
    add_password(parser)
    add_common(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> None:
    """Do what the verb says."""
    check_named(given)
    changes = given.name is not None or given.field or given.password or given.new_email
    if changes and given.verb not in {"create", "update"}:
        msg = "--name, --email, --field and --password go with create and update"
        raise Refused(msg)
    VERBS[given.verb](given)


def check_named(given: argparse.Namespace) -> None:
    """Refuse a verb that does not say whom it is about, or says so in vain."""
    if (given.email is None) != (given.verb == "list"):
        msg = "list shows all" if given.verb == "list" else f"name whom to {given.verb}"
        raise Refused(msg)


def list_users(given: argparse.Namespace) -> None:
    """Show every user."""
    show_accounts(given, USERS, "users")


def create(given: argparse.Namespace) -> None:
    """Add a user."""
    fields = {name: value for name, value in _fields(given.field).items() if value is not None}
    with open_app(given) as app:
        made = app.accounts.create(
            USERS, given.email, new_password(given), name=given.name or "", fields=fields
        )
    _tell(given, made, f"{made.email} is a user")


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
    asks = given.password or given.password_stdin
    if given.name is None and not (given.field or given.new_email or asks):
        msg = "say what to change: --name, --email, --field or --password"
        raise Refused(msg)
    with open_app(given) as app:
        found = app.accounts.get(USERS, given.email)
        changed = app.accounts.update(
            USERS,
            found.id,
            email=given.new_email,
            password=new_password(given) if asks else None,
            name=given.name,
            fields=_fields(given.field),
        )
    _tell(given, changed, f"{changed.email} is changed")


def delete(given: argparse.Namespace) -> None:
    """Delete a user."""
    with open_app(given) as app:
        found = app.accounts.get(USERS, given.email)
        app.accounts.delete(USERS, found.id)
    _tell(given, found, f"{found.email} is deleted")


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
    """Return an account for programs."""
    known = msgspec.structs.asdict(account)
    del known["generation"], known["collection"]
    return known


def row(account: Account) -> tuple[object, ...]:
    """Return an account as a row of COLUMNS."""
    fields = as_json(account.fields) if account.fields else ""
    return account.email, account.name, fields, since(account.created_at), account.id


def _tell(given: argparse.Namespace, account: Account, said: str) -> None:
    Output(as_json=given.json).show({"user": document(account)}, lambda: [text(said)])


def _shown(value: object) -> str:
    return value if isinstance(value, str) else as_json(value)


def _fields(given: list[str]) -> dict[str, str | None]:
    """Read fields; an empty one is to be taken away."""
    fields: dict[str, str | None] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            msg = f"--field {each}: write NAME=TEXT"
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
