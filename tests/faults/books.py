"""The books: what the database really holds, read past the app and its code."""

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

TICKETS = ("ready", "delayed", "lease", "buried", "done")
TABLES = (
    "topic",
    "job",
    *TICKETS,
    "failure",
    "unique_key",
    "tally",
    "minute",
    "histogram",
    "session",
    "schedule",
)


class Done(NamedTuple):
    """One line of the table `done`."""

    epoch: int
    cancelled: bool


class Books:
    """A database, read with its own driver."""

    def __init__(self, url: str, schema: str = "") -> None:
        self._url = url
        self._schema = schema

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Run a query whose tables are written towpath.like_this."""
        if self._url.startswith("sqlite"):
            path = self._url.removeprefix("sqlite:///")
            with contextlib.closing(sqlite3.connect(path, timeout=30)) as connection:
                return connection.execute(text.replace("towpath.", "towpath_")).fetchall()
        with psycopg.connect(self._url) as connection:
            return connection.execute(text.replace("towpath.", f'"{self._schema}".')).fetchall()  # type: ignore[arg-type]

    def count(self, table: str) -> int:
        """Count the rows of a table."""
        return self.rows(f"select count(*) from towpath.{table}")[0][0]  # noqa: S608 - our own name

    def ids(self) -> set[UUID]:
        """Return the id of every job."""
        return {_uuid(id) for (id,) in self.rows("select id from towpath.job")}

    def done(self) -> dict[UUID, Done]:
        """Return how each finished job ended."""
        text = (
            "select j.id, d.epoch, d.cancelled from towpath.done d join towpath.job j using (seq)"
        )
        return {_uuid(id): Done(epoch, bool(stopped)) for id, epoch, stopped in self.rows(text)}

    def everything(self) -> dict[str, list[str]]:
        """Return all rows of all tables, so that two moments can be compared."""
        return {
            table: sorted(map(repr, self.rows(f"select * from towpath.{table}")))  # noqa: S608
            for table in TABLES
        }

    def check(self) -> None:
        """Assert that each job has exactly one ticket, and each ticket its job."""
        jobs = Counter(seq for (seq,) in self.rows("select seq from towpath.job"))
        tickets: Counter[int] = Counter()
        for table in TICKETS:
            tickets.update(seq for (seq,) in self.rows(f"select seq from towpath.{table}"))  # noqa: S608
        assert jobs == tickets

    def check_completions(self) -> None:
        """Assert that every job is completed, and that each was counted once when it was."""
        self.check()
        unfinished = {table: self.count(table) for table in TICKETS if table != "done"}
        assert not any(unfinished.values()), unfinished
        counted = self.rows(
            "select coalesce(sum(completed), 0) from (select completed from towpath.minute"
            " union all select completed from towpath.tally"
            " union all select completed from towpath.histogram where minute > 0) as counted"
        )
        assert int(counted[0][0]) == self.count("done") == self.count("job")


@contextlib.contextmanager
def unchanged(books: Books) -> Iterator[None]:
    """Assert that the block changes nothing in the database."""
    before = books.everything()
    yield
    assert books.everything() == before


def _uuid(value: UUID | bytes) -> UUID:
    return UUID(bytes=value) if isinstance(value, bytes) else value
