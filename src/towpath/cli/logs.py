"""The log of a command: lines on stderr, unless the app has configured logging itself."""

import argparse
import json
import logging
from datetime import UTC, datetime
from typing import Final

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")

_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonLines(logging.Formatter):
    """Writes each record as one line of JSON, with the fields that it was given by `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON."""
        shown = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        shown |= {name: value for name, value in vars(record).items() if name not in _USUAL}
        if record.exc_info:
            shown["traceback"] = self.formatException(record.exc_info)
        return json.dumps(shown, ensure_ascii=False)


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that run until a signal."""
    parser.add_argument(
        "--log-level",
        choices=LEVELS,
        default="info",
        help="default info; an app's own configuration of logging stands",
    )
    parser.add_argument("--log-format", choices=FORMATS, default="text", help="default text")


def configure_logging(level: str = "info", form: str = "text") -> None:
    """Log to stderr. Call it after the app is imported, as the app's own configuration stands."""
    root = logging.getLogger()
    own = [*root.handlers, *logging.getLogger("towpath").handlers]
    if any(not isinstance(each, logging.NullHandler) for each in own):  # `open_app` adds one
        return
    handler = logging.StreamHandler()
    as_text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else as_text)
    root.addHandler(handler)
    root.setLevel(level.upper())
