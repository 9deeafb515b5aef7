"""The app of a command: opened by a URL, or imported from the user's module."""

import argparse
import contextlib
import logging
import os
import sys
import traceback
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, cast

from towpath import App, Settings, TowpathError
from towpath.cli.output import Refused
from towpath.model.instants import microseconds

FLAGS: Final = {
    "schema": "the PostgreSQL schema of Towpath's tables (default towpath)",
    "connect_timeout": "how long to try to reach the database (default 5)",
    "busy_timeout": "how long to wait for a lock of another process (default 5)",
}
"""The settings that matter to a command; the others concern producers and workers."""

CONNECT_TIMEOUT: Final = 5.0  # seconds; shorter than for an app, as a person waits
NO_APP: Final = (
    "name the app as MODULE:APP, in TOWPATH_APP, or as `app` under [tool.towpath] in pyproject.toml"
)


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command: its database, and JSON output."""
    parser.add_argument("--json", action="store_true", help="print results and errors as JSON")
    group = parser.add_argument_group("database")
    group.add_argument(
        "--database", metavar="URL", help="default: TOWPATH_DATABASE, then ./towpath.db"
    )
    group.add_argument(
        "--app",
        metavar="MODULE:APP",
        help="use the database and the tasks of this app instead (default: TOWPATH_APP, then `app` "
        "under [tool.towpath] in pyproject.toml)",
    )
    for field in fields(Settings):
        if field.name in FLAGS:
            flag = f"--{field.name.replace('_', '-')}"
            kind, unit = (float, "SECONDS") if isinstance(field.default, float) else (str, "NAME")
            group.add_argument(flag, type=kind, metavar=unit, help=FLAGS[field.name])


def add_limit(parser: argparse.ArgumentParser, default: int) -> None:
    """Add the number of lines of a list."""
    parser.add_argument(
        "--limit",
        metavar="NUMBER",
        type=int,
        default=default,
        help=f"default {default}, at most 1000",
    )


def open_app(given: argparse.Namespace, *, creates: bool = False) -> App:
    """Return the app of a command. Without `creates` it creates no tables and no file."""
    # Without a handler Python would print warnings beside the one line of an error.
    logging.getLogger("towpath").addHandler(logging.NullHandler())
    settings: dict[str, Any] = {
        name: getattr(given, name) for name in FLAGS if getattr(given, name) is not None
    }
    if given.app and (given.database or settings):
        msg = "give --app, or --database and settings, not both; an app has its own"
        raise Refused(msg)
    named = None if given.database else find_app(given.app)
    if named:
        if settings:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in settings)
            msg = f"the app {named.name} ({named.origin}) has its own settings; omit {flags}"
            raise Refused(msg)
        return load_app(named)
    if "TOWPATH_CONNECT_TIMEOUT" not in os.environ:
        settings.setdefault("connect_timeout", CONNECT_TIMEOUT)
    if not creates:
        settings["migrate"] = False
    return App(given.database, **settings)


class AppName(NamedTuple):
    """An app as `module:app`, and where it is named."""

    name: str
    origin: str | None = None  # for messages; None: the command line
    directory: Path | None = None  # of pyproject.toml; its modules can be imported


def find_app(given: str | None) -> AppName | None:
    """Return the app that is given, or that the environment or pyproject.toml names."""
    if given:
        return AppName(given)
    if named := os.environ.get("TOWPATH_APP"):
        return AppName(named, "from TOWPATH_APP")
    here = Path.cwd()
    for directory in (here, *here.parents):
        if named := _app_in(directory / "pyproject.toml"):
            return AppName(named, f"from {directory / 'pyproject.toml'}", directory)
    return None


def _app_in(file: Path) -> str | None:
    """Return the app that a pyproject.toml names."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError):
        return None
    if "towpath" not in text:
        return None
    import tomllib  # noqa: PLC0415 - slow to import, and few commands need it

    try:
        own = tomllib.loads(text).get("tool", {}).get("towpath", {})
    except tomllib.TOMLDecodeError as error:
        msg = f"{file} is not valid TOML: {error}"
        raise Refused(msg) from None
    if not isinstance(own, dict):
        msg = f"{file}: [tool.towpath] must be a table"
        raise Refused(msg)
    keys = cast("dict[str, object]", own)
    app = keys.pop("app", None)
    if keys or not isinstance(app, str | None):
        wrong = f"unknown key `{next(iter(keys))}`" if keys else f"app = {app!r}"
        msg = f'{file}: {wrong} under [tool.towpath]; write app = "module:app"'
        raise Refused(msg)
    return app


def load_app(named: AppName) -> App:
    """Import `module:app`; the working directory is on the import path."""
    for directory in (named.directory, Path.cwd()):
        if directory and str(directory) not in sys.path:
            sys.path.insert(0, str(directory))
    try:
        return _loaded(named.name)
    except Refused as error:
        if named.origin is None:
            raise
        msg = f"{error} ({named.name} is {named.origin})"
        raise Refused(msg, error.code, error.status) from None


def _loaded(name: str) -> App:
    module_name, _, attribute = name.partition(":")
    if module_name.endswith(".py") or "/" in module_name:
        dotted = module_name.removesuffix(".py").removeprefix("./").replace("/", ".")
        msg = f"{name} is a file; give the module: {dotted}:{attribute or 'app'}"
        raise Refused(msg)
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
        msg = (
            f"{text!r} is not a duration; give seconds, or text with the units ms, s, m, h and d, "
            "such as 1h30m"
        )
        raise argparse.ArgumentTypeError(msg) from None
    return value


def instant(text: str) -> datetime:
    """Read an instant: in ISO 8601, local without an offset, or how long ago, such as 1h."""
    with contextlib.suppress(ValueError, OverflowError):
        return datetime.fromisoformat(text).astimezone()
    try:
        ago = microseconds(duration(text))
    except argparse.ArgumentTypeError:
        msg = f"{text!r} is no instant; give 2026-01-31T12:00, or how long ago, such as 1h"
        raise argparse.ArgumentTypeError(msg) from None
    return datetime.now(UTC) - timedelta(microseconds=ago)


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except TowpathError:
        raise
    except Exception as error:  # noqa: BLE001 - the user's module may raise anything
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{name}.".startswith(f"{missing}."):
            msg = f"module {missing} is neither in {Path.cwd()} nor on the import path"
            raise Refused(msg, "import", 1) from None
        traceback.print_exception(error.with_traceback(_user_frames(error.__traceback__)))
        msg = f"{name} could not be imported: {type(error).__name__}: {error}"
        raise Refused(msg, "import", 1) from None


def _user_frames(at: TracebackType | None) -> TracebackType | None:
    """Leave out the frames of this module and of Python's import machinery."""
    ours = (__file__, "<frozen importlib")
    while at and at.tb_frame.f_code.co_filename.startswith((*ours, str(_IMPORTING))):
        at = at.tb_next
    return at


_IMPORTING: Final = Path(import_module("importlib").__file__ or "importlib")
