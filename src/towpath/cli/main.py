"""towpath COMMAND: what can be done from a shell.

Exit codes: 0 done (a worker: stopped as asked), 1 an error or a problem that `doctor` found,
2 wrong usage, 130 interrupted, 141 nobody reads our output any more.

Results go to stdout; with --json they are one JSON document, or one line for each while watching.
Errors go to stderr: one line, with --json as {"code": …, "message": …}.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final, NoReturn

from towpath.cli.output import WRONG_USAGE, Refused, complain
from towpath.errors import TowpathError

# Each is a module beside this one, which is imported only where it is asked for.
COMMANDS: Final = {
    "serve": "serve the HTTP API, and run the tasks of an app",
    "worker": "run the tasks of an app until SIGTERM or Ctrl-C",
    "jobs": "list, show, enqueue, requeue, kick, cancel and delete jobs",
    "topics": "list topics; pause, resume and purge them",
    "schedules": "list schedules; pause, resume, run and delete them",
    "users": "create, list, show, update and delete users of the HTTP API",
    "superuser": "create, list and delete superusers; set their passwords",
    "keys": "create, list and revoke API keys",
    "access": "show and set who may do what over HTTP",
    "stats": "count what waits and what is done, once or live",
    "workers": "list the workers that live, and what they hold",
    "doctor": "look for what is wrong, and say what to do",
    "backup": "copy the SQLite file while everybody goes on with their work",
    "migrate": "create our tables, or bring them up to date",
}
INTERRUPTED: Final = 130
UNREAD: Final = 141


class CommandParser(argparse.ArgumentParser):
    """Reads arguments; what it does not understand is one line and where to find help."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end."""
        complain("usage", f"{message} (see {self.prog} --help)", as_json="--json" in sys.argv)
        raise SystemExit(WRONG_USAGE)


class Version(argparse.Action):
    """Prints the version; looking it up takes a while, so only when it is asked for."""

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Print it, and end."""
        print(f"towpath {version('towpath')}")
        raise SystemExit(0)


def main(words: Sequence[str] | None = None) -> NoReturn:
    """Do what the arguments say."""
    words = sys.argv[1:] if words is None else words
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # it may have been replaced
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    given = parser(words).parse_args(words)
    try:
        code = given.run(given) or 0
        sys.stdout.flush()
    except TowpathError as error:
        complain(error.code, str(error), as_json=given.json)
        code = 1
    except Refused as error:
        complain(error.code, str(error), as_json=given.json)
        code = error.status
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # What is left in the buffer must not complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = UNREAD
    raise SystemExit(code)


def parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser; the options of a command are known to it where the words name it."""
    root = CommandParser(
        prog="towpath",
        description="Jobs, event streams and webhooks in the database you already have.",
        epilog="towpath COMMAND --help shows a command's options and examples. The database is "
        "given by --database or TOWPATH_DATABASE.",
    )
    root.add_argument("--version", action=Version, nargs=0, help="show the version and exit")
    commands = root.add_subparsers(
        title="commands",
        required=True,
        dest="command",
        metavar="COMMAND",
        parser_class=CommandParser,
    )
    for name, summary in COMMANDS.items():
        command = commands.add_parser(
            name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name in words:
            import_module(f"towpath.cli.{name}").define(command)
    return root
