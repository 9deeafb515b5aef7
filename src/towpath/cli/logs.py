"""The log of a command: lines on stderr, unless the app has configured logging itself."""

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


def configure_logging(level: str = "info", form: str = "text") -> None:
    """Log to stderr. Call it after the app is imported, as the app's own configuration stands."""
    root = logging.getLogger()
    if root.handlers or logging.getLogger("towpath").handlers:
        return
    handler = logging.StreamHandler()
    as_text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else as_text)
    root.addHandler(handler)
    root.setLevel(level.upper())
