"""towpath restored: says that a backup was restored, so that old cursors are reset."""

import argparse
from typing import Final

from towpath.cli.apps import add_common, open_app
from towpath.cli.output import Output, confirm, text

EXAMPLES: Final = """\
examples:
  towpath restored
  towpath restored --yes --database sqlite:///app.db
"""


def define(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.description = (
        "Begin a new era of cursors. Run this once after you restored a backup, before any process "
        "publishes: what was published after the backup is gone, and its numbers are given again. "
        "A reader with a cursor of before is then reset, and does not take other events for those "
        "that it knows. Durable consumers go on from the acks that the backup has."
    )
    parser.epilog = EXAMPLES
    parser.add_argument("--yes", action="store_true", help="do not ask for a confirmation")
    add_common(parser)
    parser.set_defaults(run=restored)


def restored(given: argparse.Namespace) -> None:
    """Raise the era."""
    confirm("reset all readers of all channels", yes=given.yes)
    with open_app(given) as app:
        era = app.events.restored()
    line = f"era {era} has begun; cursors of before are reset"
    Output(as_json=given.json).show({"era": era}, lambda: [text(line)])
