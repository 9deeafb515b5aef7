"""towpath migrate: our tables."""

import argparse
from typing import Final

from towpath.cli.apps import add_common, open_app
from towpath.cli.output import Output, text

EXAMPLES: Final = """\
examples:
  towpath migrate postgresql://localhost/shop
  TOWPATH_DATABASE=sqlite:///app.db towpath migrate
"""


def define(parser: argparse.ArgumentParser) -> None:
    """Say what the command understands."""
    parser.description = "Create our tables, or bring them up to date. Doing it twice is harmless."
    parser.epilog = EXAMPLES
    parser.add_argument("url", nargs="?", metavar="URL", help="of the database, as --database")
    add_common(parser)
    parser.set_defaults(run=migrate)


def migrate(given: argparse.Namespace) -> None:
    """Create or upgrade the tables."""
    given.database = given.database or given.url
    with open_app(given, creates=True) as app:
        app.migrate()
        where = app.database
    said = f"the tables in {where} are up to date"
    Output(as_json=given.json).show({"database": where}, lambda: [text(said)])
