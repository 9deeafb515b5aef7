"""towpath migrate: creates Towpath's tables, or brings them up to date."""

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
    """Define the arguments of the command."""
    parser.description = (
        "Create Towpath's tables, or bring them up to date. It is safe to repeat this."
    )
    parser.epilog = EXAMPLES
    parser.add_argument("url", nargs="?", metavar="URL", help="the same as --database URL")
    add_common(parser)
    parser.set_defaults(run=migrate)


def migrate(given: argparse.Namespace) -> None:
    """Create or upgrade the tables."""
    given.database = given.database or given.url
    with open_app(given, creates=True) as app:
        app.migrate()
        database = app.database
    line = f"the tables in {database} are up to date"
    Output(as_json=given.json).show({"database": database}, lambda: [text(line)])
