"""towpath backup: copies the SQLite file."""

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
    """Define the arguments of the command."""
    parser.description = (
        "Copy the SQLite file, your own tables included, as it is at one moment. Other processes "
        "can use it meanwhile. The copy appears only when it is complete, and never replaces a "
        "file. The next backup into the same directory removes what a killed one left "
        "(.towpath-backup-…)."
    )
    parser.epilog = EXAMPLES
    parser.add_argument("file", type=Path, metavar="FILE", help="the copy to write")
    add_common(parser)
    parser.set_defaults(run=backup)


def backup(given: argparse.Namespace) -> None:
    """Copy the file."""
    with open_app(given) as app:
        app.backup(given.file)
    size = given.file.stat().st_size
    line = f"{given.file} is a copy of {app.database} ({size / MIB:.1f} MiB)"
    document = {"file": str(given.file), "bytes": size, "database": app.database}
    Output(as_json=given.json).show(document, lambda: [text(line)])
