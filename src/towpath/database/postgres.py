"""PostgreSQL, through psycopg: connections, the form of our statements, and errors."""

import asyncio
import contextlib
import logging
import random
import re
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache, partial
from threading import Lock, Thread
from typing import Any, Final, NamedTuple

import msgspec
import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.errors import ConnectionTimeout, PipelineAborted

from towpath.database.clock import Clock
from towpath.database.postgres_wire import Sent, Wire
from towpath.errors import (
    DatabaseBusy,
    DatabaseDenied,
    DatabaseError,
    DatabaseFull,
    DatabaseReadOnly,
    DatabaseUnavailable,
    SchemaMissing,
    TowpathError,
)
from towpath.operation import Mode, Operation, adrive, drive
from towpath.settings import Settings
from towpath.statement import Query, Row, Statement

log: Final = logging.getLogger("towpath")

# Our statements find rows by key, a batch at a time. A plan made while the tables were small would
# read them whole, and a prepared statement keeps its plan: so we ask for the one that stays right.
BY_KEY: Final[Mapping[str, str]] = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
LONGEST_SILENCE: Final = 3_600.0  # seconds; a limit of `poll`
IN_TIME: Final = 0.97  # of `connect_timeout`; the rest is for the way of the error to the caller
# Seconds between two statements of a transaction. A process that is stopped there would hold its
# rows for good: a worker that of its session, so that no other could take its jobs back.
LONGEST_PAUSE: Final = 5.0
NO_CONNECTION: Final = "no connection was made in time"
RETRIES: Final = 10  # of a transaction that lost against another
_AGAIN: Final = {"40001", "40P01"}  # serialization failure, deadlock
# Connection trouble, shutdown, system error, a transaction that stood still.
_GONE: Final = ("08", "57P", "58", "25P03")
_ERRORS: Final[Mapping[str, type[DatabaseError]]] = {
    "25006": DatabaseReadOnly,
    "28000": DatabaseDenied,
    "28P01": DatabaseDenied,
    "42501": DatabaseDenied,
    "3D000": DatabaseUnavailable,
    "3F000": SchemaMissing,
    "42P01": SchemaMissing,
    "53100": DatabaseFull,
    "53300": DatabaseUnavailable,
    "55P03": DatabaseBusy,
    "57014": DatabaseBusy,
}
# libpq gives no code for a refusal before the connection stands, only its words.
_DENIED: Final = re.compile(
    r"authentication failed|no password supplied|pg_hba|role .* does not exist"
)
_NO_DATABASE: Final = re.compile(r"database .* does not exist")
_HOPELESS: Final = re.compile(r"database .* does not exist|invalid|missing")
_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z]\w*)")
_JSON_PARAMETER: Final = re.compile(r"cast\((:[a-z]\w*) as json\)")
# The state of a process of another role is hidden. One that is idle since a moment ago has answered
# a moment ago: that answer is on its way. Processes without a role are the server's own.
_WORKS: Final = """
select current_setting('track_activities') = 'off' or exists (
    select from pg_stat_activity
     where (pid = cast($1 as int) or left(query, length($2)) = $2) and usesysid is not null
       and (coalesce(state, 'hidden') not like 'idle%'
            or state_change > clock_timestamp() - interval '1 second'))
"""

_WRITES: Final = frozenset({Mode.WRITE, Mode.APPEND})

Operations = Sequence[Operation[Any]]


class Outage:
    """Logs that a server is lost, and that it is back: once each, for all lanes."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._lock = Lock()

    def begin(self, error: DatabaseError) -> None:
        """Log that the server is lost, unless that is known."""
        with self._lock:
            if self._since is None:
                self._since = time.monotonic()
                why = " ".join(str(error).split())  # libpq's words have several lines
                log.warning("the database is lost, trying to reach it: %s", why)

    def end(self) -> None:
        """Log that the server is back, if it was lost."""
        with self._lock:
            since, self._since = self._since, None
        if since is not None:
            log.info("the database is back after %.1f s", time.monotonic() - since)


class Lost(NamedTuple):
    """A server that could not be reached."""

    since: float
    why: str


class Trouble:
    """What to do about an error: wait and try again, or give up.

    It gives up `connect_timeout` after the call began. Honest work may take longer: an answer, or
    the word that the server works on one, starts that time again until the server is first lost.
    """

    def __init__(self, settings: Settings, outage: Outage, began: float, lost: Lost | None) -> None:
        self._patience = settings.connect_timeout * IN_TIME
        self._outage = outage
        self._tries = 0
        self.lost = lost  # by the call before on this connection, then by this one
        # A wait for the connection counts only if the server was lost meanwhile.
        self._alive_at = max(began, lost.since) if lost else time.monotonic()
        self._was_lost = False  # by this call
        self._asked = False  # in this try
        self.seen = False
        self.doubtful = False  # it may have been done: the commit was on its way
        self._answer_lost = False

    @property
    def until(self) -> float:
        """When to give up."""
        return self._alive_at + self._patience

    def check(self) -> None:
        """Raise if the time was over before the first try."""
        if self.lost and time.monotonic() >= self.until:
            raise DatabaseUnavailable(self.lost.why)

    def begin(self) -> None:
        """Begin a try."""
        self.doubtful = self._asked = False  # while it connects

    def patience(self) -> float:
        """Return how long the server may be silent about what is asked now.

        A third of the time: another third is for a question over a new connection, and the last
        for another try.
        """
        if self._asked:  # and answered
            self.note_life(time.monotonic())
            return silence(self._patience)
        self._asked = True
        return silence(self.until - time.monotonic())

    def note_life(self, at: float) -> None:
        """Note that the server answered then, or worked on an answer."""
        if not self._was_lost:
            self._alive_at = max(at, self._alive_at)

    def end(self) -> None:
        """Note that all went well."""
        self.lost = None
        self._outage.end()

    def pause(self, error: psycopg.Error, operations: Operations) -> float:
        """Return how long to wait before the next try, or raise."""
        ours = translated(error)
        self._tries += 1
        if error.sqlstate in _AGAIN and self._tries <= RETRIES:
            self.seen = True  # an earlier statement of it may have been committed by itself
            return random.uniform(0, 0.01 * self._tries)  # noqa: S311 - jitter
        if not _passing(error, ours):
            raise self.shared(ours, operations) from error
        self.lost = Lost(self._alive_at, str(ours))
        self._answer_lost = self._answer_lost or self.doubtful
        writes = any(operation.mode in _WRITES for operation in operations)
        if writes and self.doubtful and not all(each.is_repeatable for each in operations):
            msg = f"the answer was lost: {error}. It may have been done; look before you try again."
            raise DatabaseUnavailable(msg) from error
        self.seen = True
        pause = min(0.05 * 2.0 ** min(self._tries, 6), 1.0) * random.uniform(0.5, 1)  # noqa: S311
        gives_up = time.monotonic() + pause >= self.until
        if self._was_lost or gives_up:  # else a new connection may be all that is needed
            self._outage.begin(ours)
        if gives_up:
            raise ours from error
        self._was_lost = True
        return pause

    def shared(self, error: TowpathError, operations: Operations) -> TowpathError:
        """Return the error of one operation as all that shared its transaction raise it.

        If that may have been committed before, none of them may run alone as if for the first time.
        """
        self.lost = None  # the server has answered
        if not self._answer_lost or len(operations) == 1:
            return error
        return DatabaseUnavailable(
            f"the answer was lost, then: {error}. It may have been done; look before you try again."
        )


def _passing(error: psycopg.Error, ours: DatabaseError) -> bool:
    """Say whether the error may go away by itself."""
    if not isinstance(ours, DatabaseUnavailable) or isinstance(error, PipelineAborted):
        return False
    return error.sqlstate is not None or not _HOPELESS.search(str(error))


def translated(error: BaseException) -> DatabaseError:
    """Return a driver's error as ours."""
    code: str = getattr(error, "sqlstate", None) or ""
    ours = _ERRORS.get(code)
    if ours is None:
        if code.startswith(_GONE):
            ours = DatabaseUnavailable
        elif isinstance(error, PipelineAborted):
            ours = DatabaseError
        elif not code and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            ours = DatabaseDenied if _DENIED.search(str(error)) else DatabaseUnavailable
        else:
            ours = DatabaseError
    text = str(error).strip()
    if code == "3D000" or _NO_DATABASE.search(text):
        return DatabaseUnavailable(f"{text}. Correct the URL, or create it: createdb.")
    return ours(f"{text}. {(ours.__doc__ or '').splitlines()[0]}")


def connect(
    url: str,
    settings: Settings,
    *,
    until: float | None = None,
    by_key: bool = True,
    at: Mapping[str, str] | None = None,
) -> Wire:
    """Open a connection that keeps no session state of ours, but for how it plans.

    Behind a pooler it keeps none at all. `at` chooses one of several addresses. All of it, until
    the connection is set up, ends in time.
    """
    left = _countdown(until, settings)
    options = {**_connect_options(settings), **(at or {})}
    connection = _in_time(left(), partial(psycopg.connect, url, autocommit=True, **options))
    wire = Wire(connection, silence(settings.connect_timeout))
    try:
        drive(
            _set_up(wire, settings, by_key=by_key),
            lambda asked: wire.exchange(asked, min(left(), wire.patience)),
        )
    except BaseException:
        wire.close()
        raise
    return wire


async def aconnect(url: str, settings: Settings, *, until: float, by_key: bool = True) -> Wire:
    """Open a connection that keeps no session state of ours, but for how it plans."""
    left = _countdown(until, settings)
    options = _connect_options(settings)
    try:
        async with asyncio.timeout(left()):
            connection = await AsyncConnection.connect(url, autocommit=True, **options)
    except TimeoutError as error:
        raise ConnectionTimeout(NO_CONNECTION) from error
    wire = Wire(connection, silence(settings.connect_timeout))
    try:
        await adrive(
            _set_up(wire, settings, by_key=by_key),
            lambda asked: wire.aexchange(asked, min(left(), wire.patience)),
        )
    except BaseException:
        wire.close()  # without another await, for its loop may be ending
        raise
    return wire


def _in_time(seconds: float, connect: Callable[[], Connection[Any]]) -> Connection[Any]:
    """Connect in a thread that can be left alone.

    psycopg limits the time of each address, but neither their sum nor the search for a name.
    """
    connecting: Future[Connection[Any]] = Future()

    def run() -> None:
        try:
            connecting.set_result(connect())
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            connecting.set_exception(error)

    try:
        Thread(target=run, name="towpath-connect", daemon=True).start()
    except RuntimeError:  # the interpreter is about to end, or has too many threads
        return connect()
    try:
        return connecting.result(seconds)
    except BaseException as error:
        connecting.add_done_callback(_close)
        if isinstance(error, TimeoutError):
            raise ConnectionTimeout(NO_CONNECTION) from error
        raise


def _close(connecting: "Future[Connection[Any]]") -> None:
    if not connecting.exception():
        connecting.result().close()


def _countdown(until: float | None, settings: Settings) -> Callable[[], float]:
    """Return a function that gives the seconds that are left."""
    end = time.monotonic() + settings.connect_timeout if until is None else until
    return lambda: max(0.0, end - time.monotonic())


def silence(left: float) -> float:
    """Return how much of the time that is left a server may be silent before it is doubted."""
    return max(0.0, min(left / 3, LONGEST_SILENCE))


def _set_up(
    wire: Wire, settings: Settings, *, by_key: bool
) -> Generator[Iterable[Sent], list[list[Row]], None]:
    """Set up a session, unless PgBouncer or the like, with process ids of its own, lends it."""
    [[[pid]]] = yield [Sent("select pg_backend_pid()")]
    if pid == wire.pid:
        yield [_set_up_statement(settings, by_key=by_key)]
        wire.is_pooled = False


def _set_up_statement(settings: Settings, *, by_key: bool) -> Sent:
    """Return the statement that sets up a session: its limits of time, and how it plans."""
    return _configured({**_limits(settings), **(BY_KEY if by_key else {})}, "false")


def limit_transaction(settings: Settings) -> Sent:
    """Return the statement that sets the limits of time for one transaction."""
    return _configured(_limits(settings), "true")


def _limits(settings: Settings) -> dict[str, str]:
    return {
        "lock_timeout": _milliseconds(settings.busy_timeout),
        "idle_in_transaction_session_timeout": _milliseconds(LONGEST_PAUSE),
    }


def _milliseconds(seconds: float) -> str:
    return str(round(seconds * 1000))


def _configured(options: Mapping[str, str], is_local: str) -> Sent:
    calls = [f"set_config(${n}, ${n + 1}, {is_local})" for n in range(1, 2 * len(options), 2)]
    return Sent(f"select {', '.join(calls)}", [word for pair in options.items() for word in pair])


def watch(wire: Wire, url: str, settings: Settings) -> Wire:
    """Let the statements of a wire take their time, for as long as the server works on them."""
    wire.is_worked_on = partial(_is_worked_on, wire, url, settings)
    return wire


def _is_worked_on(wire: Wire, url: str, settings: Settings, patience: float) -> bool:
    """Ask over another connection whether the server works on the statements of this one.

    No, if that gets no answer either, or if they have ended and the answer must have been lost.
    """
    pid = None if wire.is_pooled else wire.pid
    left = _countdown(until := time.monotonic() + patience, settings)
    try:
        with contextlib.closing(connect(url, settings, until=until, at=wire.address)) as other:
            [[[works]]] = other.exchange([Sent(_WORKS, [pid, wire.mark])], left())
    except psycopg.Error as error:
        return "FATAL" in str(error)  # a refusal is an answer, too: the server lives
    return bool(works)


def _connect_options(settings: Settings) -> dict[str, Any]:
    return {
        # For each address, so that there is time for another; libpq takes no less than 2.
        "connect_timeout": max(2, int(min(settings.connect_timeout, 20) / 2)),
        "application_name": "towpath",
        # A cut cable is noticed in half a minute instead of hours.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 25_000,  # keepalives rest while a statement is on its way
    }


@lru_cache(1024)
def rendered(statement: Statement[Any], schema: str) -> bytes:
    """Return a statement's text as psycopg takes it."""
    text = qualified(statement, schema).replace("%", "%%")
    return _PARAMETER.sub(r"%(\1)s", text).encode()


@lru_cache(1024)
def numbered(statement: Statement[Any], schema: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement's text with $1, $2 …, and the names they stand for."""
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"${names.setdefault(match[1], len(names) + 1)}"

    # As text, for many an asyncpg connection has a JSON codec that would encode it once more.
    text = qualified(statement, schema)
    text = _JSON_PARAMETER.sub(r"cast(cast(\1 as text) as json)", text)
    return _PARAMETER.sub(number, text), tuple(names)


def qualified(statement: Statement[Any], schema: str) -> str:
    """Return a statement's text with our schema's name."""
    text = statement.text("postgres").rstrip("; \n")
    return text.replace("towpath.", f'"{schema}".').replace("{schema}", f'"{schema}"')


def bound(query: Query[Any], clock: Clock | None) -> dict[str, Any]:
    """Return a query's parameters; sequences travel as one JSON text."""
    params = {
        name: msgspec.json.encode(value).decode() if isinstance(value, list | tuple) else value
        for name, value in query.params.items()
    }
    if query.items is not None:
        params["items"] = msgspec.json.encode(query.items).decode()
    params["now"] = clock() if clock else None
    return params


@contextlib.contextmanager
def translating(*errors: type[Exception]) -> Generator[None]:
    """Raise a driver's errors as ours."""
    try:
        yield
    except errors as error:
        raise translated(error) from error
