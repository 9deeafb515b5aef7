"""SQLite: how to open a file, to run our statements on it, and to understand errors."""

import contextlib
import fcntl
import itertools
import os
import re
import sqlite3
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache
from operator import itemgetter
from pathlib import Path
from types import NoneType, TracebackType
from typing import Any, Final
from uuid import UUID

import msgspec

from towpath.database import turns
from towpath.database.file_locks import guard
from towpath.errors import (
    DatabaseBusy,
    DatabaseDenied,
    DatabaseError,
    DatabaseFull,
    DatabaseReadOnly,
    DatabaseUnavailable,
    Invalid,
    NotADatabase,
    SchemaMissing,
)
from towpath.settings import Settings
from towpath.statement import Query, Row, Statement, split

_ERRORS: Final[Mapping[int, type[DatabaseError]]] = {
    sqlite3.SQLITE_BUSY: DatabaseBusy,
    sqlite3.SQLITE_LOCKED: DatabaseBusy,
    sqlite3.SQLITE_FULL: DatabaseFull,
    sqlite3.SQLITE_READONLY: DatabaseReadOnly,
    sqlite3.SQLITE_NOTADB: NotADatabase,
    sqlite3.SQLITE_CORRUPT: NotADatabase,
    sqlite3.SQLITE_CANTOPEN: DatabaseUnavailable,
    sqlite3.SQLITE_PERM: DatabaseDenied,
    sqlite3.SQLITE_IOERR: DatabaseUnavailable,
}
# A connection may stay in these states after their cause is gone; a new one does not.
_STICKING: Final = {
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_CANTOPEN,
}
_PRIMARY: Final = 0xFF  # the low byte of an extended error code
_HALF: Final = ".towpath-backup-"  # how the names of unfinished backups begin
_EFFECTIVE: Final = os.access in os.supports_effective_ids


def _as_it_is(value: Any) -> Any:
    return value


# sqlite3 searches for an adapter of every None, bytes and bool, which is slow. Identity adapters
# end the search; adapters that are registered already stay.
for _kind in (NoneType, bytes, bool):
    sqlite3.adapters.setdefault((_kind, sqlite3.PrepareProtocol), _as_it_is)


Identity = tuple[int, int]
"""The device and the inode of a file."""


class SqliteConnection(sqlite3.Connection):
    """A connection that knows which file it has open."""

    path: str | None = None  # None: in memory
    file: Identity | None = None
    owns_log: Callable[[], bool] = staticmethod(lambda: False)  # unless it is known

    def is_in_place(self) -> bool:
        """Say whether its path still names the file that it has open."""
        return self.path is None or identity(self.path) == self.file

    def close(self) -> None:
        """Close the file. If it was moved away, empty its log, so that it is whole without it.

        Not where another process may have taken this log for its own.
        """
        if not self.is_in_place() and self.owns_log():
            with contextlib.suppress(sqlite3.Error):
                self.execute("pragma busy_timeout = 0")
                self.execute("pragma wal_checkpoint(truncate)").fetchall()
        super().close()


def identity(path: str) -> Identity | None:
    """Return which file a path names, if any."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path takes longer, and this is done at each commit
    except OSError:
        return None
    return found.st_dev, found.st_ino


class FileReplaced(Exception):
    """The path came to name another file while it was being opened."""


def connect(
    path: Path | None,
    settings: Settings,
    *,
    may_create: bool = True,
    expected: Identity | None = None,
) -> SqliteConnection:
    """Open the file, creating it if needed. Raise FileReplaced if it is not the expected one."""
    if path:
        try:
            _check(path, may_create=may_create and settings.migrate)
            _create(path)
        except OSError as error:
            raise of_file(error, path) from error
    file = identity(str(path)) if path else None
    with guard:
        connection = sqlite3.connect(
            ":memory:" if path is None else path,
            factory=SqliteConnection,
            isolation_level=None,
            check_same_thread=False,
            timeout=0,  # we wait by ourselves
            cached_statements=512,
        )
    if path:
        connection.path, connection.file = str(path.absolute()), file
        # Before SQLite looks at the log beside it, which may be that of the file before.
        if file != (expected or file) or not connection.is_in_place():
            sqlite3.Connection.close(connection)
            raise FileReplaced
    try:
        # SQLite itself would not wait here: two that open a new file at once refuse each other.
        patiently(connection, "pragma journal_mode = wal", settings.busy_timeout)
        patiently(connection, f"pragma synchronous = {settings.durability}", settings.busy_timeout)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def backup(path: Path, target: Path, opened: Callable[[], SqliteConnection]) -> None:
    """Copy the file as it is at one instant to a new one. No writer waits for it."""
    _check(path, may_create=False)
    try:
        _remove_leftovers(target.parent)
        with _half(target.parent) as half:
            with (
                translated(target),
                contextlib.closing(opened()) as source,
                contextlib.closing(sqlite3.connect(half)) as copy,
            ):
                copy.execute("pragma journal_mode = off")  # it would lie beside the half
                source.backup(copy)
            half.chmod(path.stat().st_mode & 0o777)
            _sync(half)
            os.link(half, target)  # which, unlike a rename, replaces nothing
            _sync(target.parent)
    except OSError as error:
        raise _not_written(target, error) from error


@contextlib.contextmanager
def _half(directory: Path) -> Generator[Path]:
    """Make a file for our eyes only; its lock shows that it is no leftover."""
    from tempfile import mkstemp  # noqa: PLC0415 - slow to import

    descriptor, name = mkstemp(prefix=_HALF, dir=directory)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if identity(name) is None:  # another backup was quicker, and took it for a leftover
            with _half(directory) as half:
                yield half
        else:
            yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)
        os.close(descriptor)


def _remove_leftovers(directory: Path) -> None:
    """Remove the halves of backups whose processes were killed."""
    for half in directory.glob(f"{_HALF}*"):
        with contextlib.suppress(OSError), half.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            half.unlink(missing_ok=True)


def _not_written(target: Path, error: OSError) -> Invalid:
    if isinstance(error, FileExistsError):
        return Invalid(f"{target} already exists; name a new file")
    return Invalid(f"{target} cannot be written: {error.strerror or error}")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lockable(path: Path, patience: float) -> bool:
    """Say whether the locks that a writer needs can be had in time. Nothing is written."""
    deadline = time.monotonic() + patience
    beside = turns.lock_file(path)
    if beside.exists() and may(beside, os.W_OK):
        with contextlib.closing(turns.Turn(path)) as turn:
            return turn.take(patience) and _lockable(path, max(0, deadline - time.monotonic()))
    return _lockable(path, patience)


def _lockable(path: Path, patience: float) -> bool:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=0)
    try:
        patiently(connection, "begin immediate", patience)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & _PRIMARY != sqlite3.SQLITE_BUSY:
            raise as_ours(error, path) from error
        return False
    finally:
        connection.close()
    return True


def _check(path: Path, *, may_create: bool) -> None:
    """Refuse what SQLite would only call unable to open."""
    if path.is_dir():
        msg = f"{path} is a directory; name a file in it"
        raise NotADatabase(msg)
    if not path.parent.is_dir():
        msg = f"the directory {path.parent} does not exist; create it, or name another file"
        raise DatabaseUnavailable(msg)
    if not may_create and not path.exists():
        msg = f"there is no file {path}; correct the URL, or create it by `towpath migrate`"
        raise SchemaMissing(msg)
    if not path.exists() and not may(path.parent, os.W_OK):
        msg = f"{path} may not be created: check user and rights of {path.parent}"
        raise DatabaseDenied(msg)
    # Not by opening it: closing it again would drop the locks of SQLite's own connections.
    if path.exists() and not may(path, os.R_OK):
        msg = f"{path} may not be read; check user and rights"
        raise DatabaseDenied(msg)


def _create(path: Path) -> None:
    """Create an empty file for its owner alone, unless it is there: SQLite follows the umask.

    SQLite gives its log the same mode.
    """
    with guard, contextlib.suppress(FileExistsError):
        if not path.exists():
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(path.resolve(), flags, 0o600))


def may(path: Path, right: int) -> bool:
    """Say whether this process has a right to a file."""
    return os.access(path, right, effective_ids=_EFFECTIVE)


def patiently(connection: sqlite3.Connection, text: str, patience: float) -> None:
    """Execute what needs a lock, waiting while another connection has it."""
    deadline: float | None = None
    pause = 0.0005
    while True:
        try:
            connection.execute(text).fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & _PRIMARY != sqlite3.SQLITE_BUSY:
                raise
            deadline = deadline or time.monotonic() + patience
            if time.monotonic() > deadline:
                raise
            time.sleep(pause)
            pause = min(pause * 2, 0.02)
        else:
            return


def execute(cursor: sqlite3.Cursor, query: Query[Any], now: int) -> list[Row]:
    """Run a query: its chain of statements, for each item or for all of them together."""
    chain = _chain(query.statement)
    # Only what it mentions: a list that is for PostgreSQL is not encoded.
    params = {name: _bound(query.params[name]) for name in query.params.keys() & chain.names}
    params["now"] = now
    if query.items is None:
        return chain.run(cursor, params) or []
    if chain.takes_all:
        params["items"] = msgspec.json.encode(query.items).decode()
        return chain.run(cursor, params) or []
    items = [{**params, **item} for item in query.items]
    for name in [name for item in items[:1] for name in item if isinstance(item[name], UUID)]:
        for item in items:
            item[name] = item[name].bytes
    if chain.takes_each:
        return chain.run(cursor, params, items) or []
    return [row for item in items for row in chain.run(cursor, item) or ()]


class StatementChain:
    """The statements of one text; `towpath.statement` says how they run."""

    __slots__ = ("links", "names", "takes_all", "takes_each")

    def __init__(self, text: str) -> None:
        self.links = [Link(part) for part in split(text)]
        for link, following in itertools.pairwise(reversed(self.links)):
            following.repeats_rest = link.repeats_rest or link.uses_row
        self.names = frozenset(name for link in self.links for name in link.names)
        self.takes_all = "items" in self.names
        self.takes_each = any(link.each for link in self.links)

    def run(
        self,
        cursor: sqlite3.Cursor,
        params: dict[str, Any],
        items: Sequence[Mapping[str, Any]] = (),
        start: int = 0,
    ) -> list[Row] | None:
        """Run the statements from `start` on; return the rows of the last that returns any."""
        rows: list[Row] | None = None
        for place in range(start, len(self.links)):
            link = self.links[place]
            if link.each:
                # Once for each different set of values: many items name the same topic.
                cursor.executemany(link.text, list(dict.fromkeys(map(link.values_of, items))))
                continue
            cursor.execute(link.text, link.values_of(params))
            if cursor.description is None:
                continue
            rows = cursor.fetchall()
            if link.repeats_rest:
                names = link.columns = link.columns or [f"@{c[0]}" for c in cursor.description]
                found: list[Row] = []
                for row in rows:
                    params.update(zip(names, row, strict=True))
                    answer = self.run(cursor, params, items, place + 1)
                    found += [row] if answer is None else answer
                return found
        return rows


_NAME: Final = re.compile(r"(?<!\w)(?::(\w+)|(@\w+))")


class Link:
    """One statement of a chain."""

    __slots__ = ("columns", "each", "names", "repeats_rest", "text", "uses_row", "values_of")

    def __init__(self, text: str) -> None:
        mark, _, text = text.rpartition("*/")
        self.each = "each" in mark
        found = [name or column for name, column in _NAME.findall(text)]
        self.names = names = list(dict.fromkeys(found))
        self.uses_row = any(name.startswith("@") for name in names)
        self.repeats_rest = False  # a statement behind it mentions a column of the row before
        self.columns: list[str] = []  # that it returns, once it has run
        self.values_of = _values_of(names)
        # By number: SQLite's driver looks up each name each time.
        numbers = {name: f"?{number}" for number, name in enumerate(names, 1)}
        self.text = _NAME.sub(lambda match: numbers[match[1] or match[2]], text.strip())


def _values_of(names: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda params: tuple(params[name] for name in names)  # of one alone that makes no tuple


@cache
def _chain(statement: Statement[Any]) -> StatementChain:
    return StatementChain(statement.text("sqlite"))


_SEQUENCES: Final = (list, tuple)


def _bound(value: Any) -> Any:
    if isinstance(value, _SEQUENCES):
        return msgspec.json.encode(value).decode()
    return value.bytes if isinstance(value, UUID) else value


class translated:  # noqa: N801 - reads as a word in `with`
    """Raise SQLite's errors as ours."""

    __slots__ = ("_where",)

    def __init__(self, where: Path | str | None) -> None:
        self._where = where

    def __enter__(self) -> None:
        return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        # Not those of the system: a file of our own that cannot be read is no database.
        if isinstance(error, sqlite3.Error):
            raise as_ours(error, self._where) from error


def is_spent(error: BaseException) -> bool:
    """Say whether the connection that raised this is of no more use."""
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY in _STICKING


def as_ours(error: sqlite3.Error, where: Path | str | None) -> DatabaseError:
    """Return SQLite's error as ours."""
    if "no such table: towpath_" in str(error):
        advice = "Towpath's tables are missing; check the URL or run `towpath migrate`"
        msg = f"{where}: {error}. {advice}"
        return SchemaMissing(msg)
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
    ours = _ERRORS.get(code, DatabaseError)
    return ours(f"{where or 'memory'}: {error}. {(ours.__doc__ or '').splitlines()[0]}")


def of_file(error: OSError, path: Path | None) -> DatabaseError:
    """Return the system's error about a file of the database as ours."""
    ours = DatabaseDenied if isinstance(error, PermissionError) else DatabaseUnavailable
    return ours(f"{path}: {error}. {(ours.__doc__ or '').splitlines()[0]}")
