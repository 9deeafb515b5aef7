"""towpath COMMAND: what can be done from a shell."""

import argparse
import sys

from towpath import App, TowpathError


def main() -> None:
    """Do what the arguments say; an error is one line, and the exit code is 1."""
    parser = argparse.ArgumentParser(prog="towpath", description="Jobs in your database.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    migrating = commands.add_parser("migrate", help="create our tables, or bring them up to date")
    migrating.add_argument("database", nargs="?", help="its URL; else TOWPATH_DATABASE")
    migrating.set_defaults(run=migrate)
    given = parser.parse_args()
    try:
        given.run(given)
    except TowpathError as error:
        sys.exit(f"towpath: {error}")


def migrate(given: argparse.Namespace) -> None:
    """Create or upgrade the tables."""
    with App(given.database) as app:
        app.migrate()
