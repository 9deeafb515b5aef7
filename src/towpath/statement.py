"""Named SQL, kept in a .sql file beside the Python that runs it.

    -- name: pause                  one text for every database
    -- name: complete [sqlite]      or one text for each
    -- name: complete [postgres]

Parameters are written :like_this, casts cast(x as type), tables towpath.like_this. `{now}` is the
database's clock, `{ticket}` the columns that a ticket takes along wherever it moves, `{ticket r}`
those of a table r, `{ticket :}` those given as parameters.

On PostgreSQL a text is one statement, usually a chain of CTEs. SQLite has no writes in CTEs, so
there a text is a chain of statements: for each row that one returns, the rest of the chain runs
with that row's columns as parameters; one that returns no row ends the chain. The rows of the last
one are the answer; or of the one that begins with /* answer */, after which the chain goes on once.
One that begins with /* if key */ is left out where that parameter is null or false, one with
/* if goal is ready, delayed */ where it is none of these; `and` joins two such.

A query with `items` gives PostgreSQL all of them as one JSON parameter, and so it does SQLite where
the text mentions :items, or where a statement begins with /* each */: that one takes the items one
by one. Elsewhere the chain of SQLite runs once for each item.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal, NamedTuple

Dialect = Literal["sqlite", "postgres"]

_HEADER: Final = re.compile(r"^-- name: (\w+)(?: \[(\w+)\])?$", re.MULTILINE)
_COMMENT: Final = re.compile(r"--.*")
TICKET: Final = (
    "seq", "topic", "priority", "epoch", "key",
    "retries", "crashes", "timeouts", "releases", "buries", "kicks", "limit_key", "awaited",
)  # fmt: skip
_WORDS: Final[Mapping[Dialect, Mapping[str, str]]] = {
    "sqlite": {
        "now": ":now",
        "like": "like",
        "identity": "integer primary key autoincrement",
        "number": "integer",  # just so a primary key is the row's own place, not an index beside it
        "uuid": "blob",
        "without_rowid": "without rowid",
        "hot": "without rowid",
        "hot_by_number": "",
        "by_age": "",
        "timestamp": "strftime('%Y-%m-%dT%H:%M:%fZ', {} / 1e6, 'unixepoch')",
    },
    "postgres": {
        # Stable, so an index condition may use it; tests pass their own.
        "now": (
            "coalesce(cast(:now as bigint), "
            "cast(extract(epoch from statement_timestamp()) * 1000000 as bigint))"
        ),
        "like": "ilike",
        "identity": "bigint generated always as identity primary key",
        "number": "bigint",
        "uuid": "uuid",
        "without_rowid": "",
        # Rows live for moments here: vacuum by number of dead rows, not by share of the table.
        "hot": "with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,"
        " autovacuum_vacuum_cost_delay = 0, fillfactor = 100)",
        "hot_by_number": "with (autovacuum_vacuum_scale_factor = 0,"
        " autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0)",
        # Rows come in the order of their age, so a few bytes for each hundred pages will do.
        "by_age": "using brin",
        "timestamp": "to_timestamp({} / 1e6)",
        "schema": "{schema}",  # the driver knows its name
    },
}


class Query(NamedTuple):
    """A statement with its parameters, ready to run."""

    statement: "Statement"
    params: Mapping[str, Any]
    items: Sequence[Mapping[str, Any]] | None = None


class Statement:
    """One named statement, in one text or in one text for each database."""

    __slots__ = ("name", "texts")

    def __init__(self, name: str, texts: Mapping[str, str]) -> None:
        self.name = name
        self.texts = texts

    def __call__(self, items: Sequence[Mapping[str, Any]] | None = None, /, **params: Any) -> Query:
        """Bind parameters."""
        return Query(self, params, items)

    def text(self, dialect: Dialect) -> str:
        """Return the SQL in the words of one database."""
        return spelled(self.texts.get(dialect) or self.texts["any"], dialect)

    def __repr__(self) -> str:
        return f"<Statement {self.name}>"


def load(module: str) -> Mapping[str, Statement]:
    """Read the .sql file beside a module."""
    package, _, name = module.rpartition(".")
    source = files(package).joinpath(f"{name}.sql").read_text(encoding="utf-8")
    _, *parts = _HEADER.split(source)
    texts: dict[str, dict[str, str]] = {}
    for title, dialect, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        texts.setdefault(title, {})[dialect or "any"] = _COMMENT.sub("", text).strip()
    return {title: Statement(title, by_dialect) for title, by_dialect in texts.items()}


@cache
def spelled(text: str, dialect: Dialect) -> str:
    """Write a text in the words of one database."""

    def word(match: re.Match[str]) -> str:
        name, _, argument = match[1].partition(" ")
        if name == "ticket":
            prefix = argument if argument in {"", ":"} else f"{argument}."
            return ", ".join(prefix + column for column in TICKET)
        return _WORDS[dialect][name].replace("{}", argument)

    text = re.sub(r"\{(\w[^}]*)\}", word, text)
    return text.replace("towpath.", "towpath_") if dialect == "sqlite" else text
