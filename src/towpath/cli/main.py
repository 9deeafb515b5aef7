"""towpath COMMAND: the command line.

Exit codes: 0 done (a worker: stopped by a signal), 1 an error or a problem that `doctor` found,
2 wrong usage, 130 interrupted, 141 the reader of our output has closed it.

A command uses the app of --app, of TOWPATH_APP, or of `app = "shop.tasks:app"` under [tool.towpath]
in the pyproject.toml of the working directory or a parent; --database is used without an app.

Results go to stdout; with --json as one JSON document, with --watch as one per line.
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
from towpath.names import hint

# Each is a module in this package, imported only when its command is used.
COMMANDS: Final = {
    "serve": "serve the HTTP API, and run the tasks of an app",
    "worker": "run the tasks of an app until SIGTERM or Ctrl-C",
    "jobs": "list, show, enqueue, requeue, kick, cancel and delete jobs",
    "topics": "list topics; pause, resume and purge them",
    "events": "list channels; publish, read and follow events; list consumers",
    "webhooks": "make and change webhooks; see what is delivered, and deliver",
    "schedules": "list and set schedules; pause, resume, run and delete them",
    "users": "create, list, show, update and delete users of the HTTP API",
    "superuser": "create, list and delete superusers; set their passwords",
    "keys": "create, list and revoke API keys",
    "access": "show and set the access rules of the HTTP API",
    "stats": "count jobs by state and topic, once or live",
    "workers": "list the live workers and their leases",
    "doctor": "look for problems, and say how to solve them",
    "backup": "copy the SQLite file while it is in use",
    "restored": "reset cursors of before, after a backup was restored",
    "migrate": "create Towpath's tables, or bring them up to date",
}
INTERRUPTED: Final = 130
OUTPUT_CLOSED: Final = 141


class CommandParser(argparse.ArgumentParser):
    """Parses arguments; an error is one line that names the help."""

    def parse_known_args(  # type: ignore[override] # without its overloads
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse; refuse an unknown option of a command, with a suggestion."""
        given, rest = super().parse_known_args(args, namespace)
        for word in rest if self._subparsers is None else ():
            name = word.partition("=")[0].removeprefix("--").replace("-", "_")
            if word.startswith("--"):
                known = {each.dest for each in self._actions if each.option_strings}
                self.error(f"unknown option {word.partition('=')[0]}{hint(name, known)}")
        return given, rest

    def error(self, message: str) -> NoReturn:
        """Print an error and exit."""
        complain("usage", f"{message} (see {self.prog} --help)", as_json="--json" in sys.argv)
        raise SystemExit(WRONG_USAGE)


class Version(argparse.Action):
    """Prints the version; it is read only then, as that takes long."""

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Print the version and exit."""
        print(f"towpath {version('towpath')}")
        raise SystemExit(0)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a replaced stream may not have it
            # Whole lines, also under PYTHONUNBUFFERED: what tasks print at once does not mix.
            stream.reconfigure(  # type: ignore[union-attr]
                errors="backslashreplace", line_buffering=True, write_through=False
            )
    given = parser(arguments).parse_args(arguments)
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
        # Otherwise flushing the buffer at exit would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = OUTPUT_CLOSED
    raise SystemExit(code)


def parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser; a command has its options only if `arguments` name it."""
    root = CommandParser(
        prog="towpath",
        description="Jobs, event streams and webhooks in the database you already have.",
        epilog="towpath COMMAND --help shows the options and examples of a command. The app is "
        "that of --app, of TOWPATH_APP, or of `app` under [tool.towpath] in pyproject.toml. "
        "Without an app, --database or TOWPATH_DATABASE names the database.",
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
        if name in arguments:
            import_module(f"towpath.cli.{name}").define(command)
    return root
