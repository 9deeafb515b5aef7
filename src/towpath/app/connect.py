"""From a URL to a database and its wakeups. Only this module knows every kind of database."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from towpath.database.bells import Bell, PostgresBell, QuietBell, SqliteBell
from towpath.database.borrowed import Address
from towpath.database.clock import Clock
from towpath.database.sqlite_database import SqliteDatabase
from towpath.database.wakeups import Wakeups
from towpath.errors import InvalidUrl
from towpath.operation import OnCommit, Operation
from towpath.settings import Settings
from towpath.statement import Dialect

T = TypeVar("T")

MOST_SHOWN: Final = 200  # characters of a wrong URL


class Database(Protocol):
    """A database that runs operations, blocking or async."""

    @property
    def dialect(self) -> Dialect | None:
        """The dialect of a borrowed connection; None if no other connection can reach it."""
        ...

    @property
    def address(self) -> Address | None:
        """The address of a server; None if there is none."""
        ...

    def run(self, operation: Operation[T]) -> T:
        """Run an operation and block until it is committed."""
        ...

    async def arun(self, operation: Operation[T]) -> T:
        """Run an operation and await its commit."""
        ...

    async def aquiet(self) -> None:
        """Wait for all operations that this event loop has started, also abandoned ones."""
        ...

    def leads_here(self, place: str) -> bool:
        """Say whether a caller's connection leads to this database; see `borrowed.WHERE`."""
        ...

    def reconnect(self) -> None:
        """Close the connections; calls that wait for an answer are repeated on new ones."""
        ...

    def close(self, patience: float) -> None:
        """Close it; a server gets `patience` seconds to answer the calls in progress."""
        ...

    async def aclose(self, patience: float) -> None:
        """Close it, from an event loop."""
        ...


def open_database(
    url: str,
    settings: Settings,
    clock: Clock | None,
    on_commit: OnCommit,
    on_leave: Callable[[], None],
) -> tuple[Database, Wakeups]:
    """Return the database of a URL, and its wakeups. Nothing is opened yet.

    `on_leave` is called when the file was deleted or replaced: the next file may lack the tables.
    """

    def heard(bell: Callable[[], Bell], *, announces: bool = False) -> Wakeups:
        return Wakeups(bell, announces=announces, poll_interval=settings.poll_interval)

    scheme = url.partition(":")[0].lower() if isinstance(url, str) else ""  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
    if url in {"memory://", "memory:"}:
        return SqliteDatabase(None, settings, clock, on_commit, on_leave), heard(QuietBell)
    if scheme == "sqlite":
        path = sqlite_path(url)
        database = SqliteDatabase(path, settings, clock, on_commit, on_leave)
        return database, heard(lambda: SqliteBell(database.opener))
    if scheme in {"postgresql", "postgres"}:
        postgres = _postgres(url, settings, clock, on_commit)
        return postgres, heard(lambda: PostgresBell(url, settings), announces=True)
    msg = f"{_quoted(url)} is not a database; use sqlite:///app.db, memory:// or postgresql://…"
    raise InvalidUrl(msg)


def without_driver(url: str) -> str:
    """Return a URL without SQLAlchemy's driver, such as `+psycopg` in postgresql+psycopg://…."""
    return _DRIVER.sub(r"\1", url) if isinstance(url, str) else url  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped


def without_password(url: str) -> str:
    """Return a URL without its passwords."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    options = [(name, value) for name, value in parse_qsl(parts.query) if "password" not in name]
    netloc = f"{user.partition(':')[0]}{at}{hosts}"
    # urlunsplit would remove slashes from sqlite:///app.db and memory://.
    return f"{parts.scheme}://{netloc}{parts.path}{'?' if options else ''}{urlencode(options)}"


def sqlite_path(url: str) -> Path:
    """Return the file of a SQLite URL."""
    # By common convention three slashes begin a relative path and four an absolute one.
    parts = urlsplit(url)
    path = unquote(parts.path[1:])
    if path == ":memory:":
        msg = f"{url!r} would be a separate database for each connection; use memory://"
        raise InvalidUrl(msg)
    if not url[7:].startswith("///") or not path or parts.query:
        msg = (
            f"{_quoted(url)} is not a SQLite URL; use sqlite:///relative.db or "
            "sqlite:////absolute.db"
        )
        raise InvalidUrl(msg)
    return Path(path)


def _postgres(url: str, settings: Settings, clock: Clock | None, on_commit: OnCommit) -> Database:
    try:
        import psycopg  # noqa: PLC0415 - an extra that SQLite does not need
        from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - the same

        from towpath.database.postgres_database import PostgresDatabase  # noqa: PLC0415 - needs the extra
    except ImportError as error:
        msg = "PostgreSQL needs psycopg: pip install 'towpath[postgres]'"
        raise InvalidUrl(msg) from error
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        parts = None
    # If the password contains a slash, part of it ends up in the port or in the database name.
    port = str((parts or {}).get("port") or "")
    if parts is None or "@" in urlsplit(url).path or not re.fullmatch(r"[\d,]*", port):
        # The driver's own message may quote a part of the password.
        msg = (
            f"{_quoted(url)} is not a PostgreSQL URL; use "
            "postgresql://user:password@host:port/database, and %2F for a slash in the password"
        )
        raise InvalidUrl(msg)
    return PostgresDatabase(url, settings, clock, on_commit)


def _quoted(url: object) -> str:
    """Return a wrong URL without all that may be a password: of options only the names."""
    if not _SHOWABLE.match(str(url)):
        return "this"
    text = _UP_TO_HOST.sub(r"\1:***@", str(url))
    address, mark, query = text.partition("?")
    address = _NO_PORT.sub(r"\1:***", address)
    if mark:
        options = (each.partition("=") for each in query.split("&"))
        address += "?" + "&".join(f"{name}=***" if equals else "***" for name, equals, _ in options)
    elif "=" in address:  # such as "host=db password=…"
        address = address.partition("=")[0] + "=***"
    return repr(address[:MOST_SHOWN]) if isinstance(url, str) else address[:MOST_SHOWN]


# Other text may have a password anywhere.
_SHOWABLE: Final = re.compile(
    r"^[\w+.-]+://[^\s=&?/][^\s=&?]*(\?|$)|^[\w+.-]+:///?[\w./-]*$|^[\w./-]*$|^host=|^[\w.-]+:[^/=]*@"
)
_DRIVER: Final = re.compile(r"^(postgres|postgresql|sqlite)\+\w+(?=:)", re.IGNORECASE)
# To the last @, as a password may contain a slash or another @.
_UP_TO_HOST: Final = re.compile(r"^((?:[\w+.-]*://)?[^:@?]*):(?!//).*@", re.DOTALL)
# What follows a colon is a port, or else a password without its host.
_NO_PORT: Final = re.compile(r"^([\w+.-]*://[^:@/]*):(?!\d*(?:[/,]|$)|\*).*", re.DOTALL)
