"""Which app a command is for: one that is made of a URL, or one of the user's own modules."""

import argparse
import os
import sys
import traceback
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from towpath import App, Settings, TowpathError
from towpath.cli.output import Refused
from towpath.model.instants import microseconds

FLAGS: Final = {
    "schema": "the PostgreSQL schema of our tables",
    "connect_timeout": "seconds to try to reach the database; 5 unless told",
    "busy_timeout": "seconds to wait for a lock that somebody else holds",
}
"""The settings that matter to a command; all others are for who enqueues and works."""

PATIENCE: Final = 5.0  # somebody waits for the answer


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add what every command understands: where the database is, and how to answer."""
    parser.add_argument("--json", action="store_true", help="answer in JSON, errors too")
    where = parser.add_argument_group("database")
    where.add_argument("--database", metavar="URL", help="else TOWPATH_DATABASE, else ./towpath.db")
    where.add_argument("--app", metavar="MODULE:APP", help="or take it from this app")
    for field in fields(Settings):
        if field.name in FLAGS:
            flag = f"--{field.name.replace('_', '-')}"
            kind = float if isinstance(field.default, float) else str
            where.add_argument(flag, type=kind, metavar=kind.__name__, help=FLAGS[field.name])


def open_app(given: argparse.Namespace, *, creates: bool = False) -> App:
    """Return the app that a command is for. Only one that `creates` makes tables or a file."""
    settings: dict[str, Any] = {
        name: getattr(given, name) for name in FLAGS if getattr(given, name) is not None
    }
    if given.app:
        if given.database or settings:
            msg = "--app brings its own database and settings: give one or the other"
            raise Refused(msg)
        return load_app(given.app)
    if "TOWPATH_CONNECT_TIMEOUT" not in os.environ:
        settings.setdefault("connect_timeout", PATIENCE)
    if not creates:
        settings["migrate"] = False
    return App(given.database, **settings)


def load_app(name: str) -> App:
    """Import `module:app`, from the working directory as well."""
    module_name, _, attribute = name.partition(":")
    if module_name.endswith(".py") or "/" in module_name:
        dotted = module_name.removesuffix(".py").removeprefix("./").replace("/", ".")
        msg = f"{name} is a file: name the module, {dotted}:{attribute or 'app'}"
        raise Refused(msg)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    app = _imported(module_name)
    for part in (attribute or "app").split("."):
        if not hasattr(app, part):
            apps = [each for each in dir(app) if isinstance(getattr(app, each, None), App)]
            msg = f"{module_name} has no {part}; its apps are: {', '.join(apps) or 'none'}"
            raise Refused(msg, "import", 1)
        app = getattr(app, part)
    if not isinstance(app, App):
        msg = f"{name} is a {type(app).__name__}, not an App"
        raise Refused(msg, "import", 1)
    return app


def duration(text: str) -> float | str:
    """Read a duration: seconds, or text such as 15m."""
    try:
        value: float | str = float(text)
    except ValueError:
        value = text
    try:
        microseconds(value)
    except TowpathError:
        msg = f"{text!r} is not a duration: use seconds, or 250ms, 15m, 1h30m"
        raise argparse.ArgumentTypeError(msg) from None
    return value


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except TowpathError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever their module raises
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{name}.".startswith(f"{missing}."):
            msg = f"there is no module {missing} in {Path.cwd()} or on the path"
            raise Refused(msg, "import", 1) from None
        # It is the user's own: where it happened is what helps.
        traceback.print_exception(error.with_traceback(_theirs(error.__traceback__)))
        msg = f"{name} could not be imported: {type(error).__name__}: {error}"
        raise Refused(msg, "import", 1) from None


def _theirs(at: TracebackType | None) -> TracebackType | None:
    """Leave out the frames that are ours or Python's import machinery."""
    ours = (__file__, "<frozen importlib")
    while at and at.tb_frame.f_code.co_filename.startswith((*ours, str(_IMPORTING))):
        at = at.tb_next
    return at


_IMPORTING: Final = Path(import_module("importlib").__file__ or "importlib")
