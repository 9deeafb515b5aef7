"""towpath backup: a copy of the SQLite file."""

import argparse
from pathlib import Path
from typing import Final

from towpath.cli.apps import add_common, open_app
from towpath.cli.output import Output, text

EXAMPLES: Final = """\
examples:
  towpath backup copy.db
  towpath backup "backups/$(date +%F).db" --database sqlite:///app.db
"""
MIB: Final = 2**20


def define(parser: argparse.ArgumentParser) -> None:
    """Say what the command understands."""
    parser.description = (
        "Copy the SQLite file, with your own tables in it, as it is at one instant. Nobody waits "
        "for it. The copy is whole, or it is not there; a file that is there is not replaced. What "
        "a killed backup leaves (.towpath-backup-…) is removed by the next one into the same "
        "directory."
    )
    parser.epilog = EXAMPLES
    parser.add_argument("file", type=Path, metavar="FILE", help="of the copy")
    add_common(parser)
    parser.set_defaults(run=backup)


def backup(given: argparse.Namespace) -> None:
    """Copy the file."""
    with open_app(given) as app:
        app.backup(given.file)
    size = given.file.stat().st_size
    said = f"{given.file} is a copy of {app.database} ({size / MIB:.1f} MiB)"
    document = {"file": str(given.file), "bytes": size, "database": app.database}
    Output(as_json=given.json).show(document, lambda: [text(said)])
