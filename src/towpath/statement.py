"""Named SQL, kept in a .sql file beside the Python that runs it.

    -- name: pause                  one text for every database
    -- name: complete [sqlite]      or one text for each
    -- name: complete [postgres]    alone: SQLite has nothing to do, and returns no rows

A class `sql` declares the statements of a module, and the rows that each returns; the import fails
where the declarations and the texts do not name the same statements.

    class sql(Statements):
        complete = rows(Ended)      # a NamedTuple: its fields name the columns, in order
        list_topics = rows(str)     # one column
        pause = no_rows()

    ended = yield from sql.complete(items)

Parameters are written :like_this, casts cast(x as type), tables towpath.like_this. Words in braces
are spelled for each database:

    {now}                       the database's clock
    {ticket} {ticket r}         the columns of a ticket, those of a table r
    {ticket :} {ticket @}       those given as parameters, those of the row before (see below)
    {leased_ticket r}           those of a table r, at the next epoch
    {located} {located l}       the columns of the view `located`: a job, wherever its ticket lies
    {reserved l j}              the same of a job that was just reserved: its lease and its body
    {bucket x}                  the bucket of a time in microseconds
    {names topics}              the values of a list parameter, as a subquery
    {values o.named}            those of a column with a JSON list, as a table
    {items i(seq bigint)}       the items of a query, as a table i
    {in select seq from t}      whether what stands before is in a subquery, which may hold words;
                                PostgreSQL reads it first, as an array, and then uses an index
    {in_items seq bigint}       the same of one column of the items
    {for_update} {skip_locked}  row locks, which SQLite does not need; {for_update of o}: of a table
    {index name}                the index that SQLite has to use
    {posted c.name}             whether events wait for their numbers in the channel of this name
    {alive c}                   whether the time of a channel c is not over
    {named x}                   the name of an index or a trigger; SQLite has them all in one place
    {window a, b from t}        the next rows of a table by number, in one of two directions
    {fits j} {fitting t}        whether a job, or the job of a ticket, is one that a list asks for
    {found}                     the jobs that fit among those `looked` at, and how far that was
    {size x}                    the bytes of a text
    {forget}                    forgets the jobs `gone`: all that is known of them but tickets;
                                the events of their streams go later, some at a time

On PostgreSQL a text is one statement, usually a chain of CTEs. SQLite has no writes in CTEs, so
there a text may be a chain of statements, which run in order. `@seq` is the column `seq` of the row
that the nearest statement before has returned: what follows such a statement and mentions an `@`
runs once for each row. The answer is the rows of the last statement that returns any columns.

A query may have items. PostgreSQL gets them as one JSON parameter, and so does SQLite where the
text mentions :items. A statement that begins with /* each */ takes the items one by one. Elsewhere
SQLite runs the chain once for each item.
"""

import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar

from msgspec import Struct

Dialect = Literal["sqlite", "postgres"]
Row = Sequence[Any]
R = TypeVar("R")

_HEADER: Final = re.compile(r"^-- name: (\w+)(?: \[(\w+)\])?$", re.MULTILINE)
_WORD: Final = re.compile(r"\{(\w+)\s?([^{}]*)\}")
_COMMENT: Final = re.compile(r"--.*")
_TOKEN: Final = re.compile(
    r"""(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*"|(?P<tag>\$\w*\$).*?(?P=tag)|/\*.*?\*/)
      | (?P<comment>--[^\n]*)
      | (?P<word>\w+)
      | (?P<end>;)
      | (?P<other>[\s(),.=<>]+|.)""",
    re.VERBOSE | re.DOTALL,
)
TICKET: Final = (
    "seq", "topic", "priority", "epoch", "key",
    "retries", "crashes", "timeouts", "releases", "buries", "kicks", "limit_key", "awaited",
    "streamed",
)  # fmt: skip
LOCATED: Final = (  # what the view `located` tells of a job
    "seq", "id", "topic", "state", "priority", "key", "payload", "encoding", "ttr", "options",
    "created_at", "run_at", "epoch", "retries", "crashes", "timeouts", "releases", "buries",
    "kicks", "reserved_at", "until", "cancel_requested", "finished_at", "duration", "result",
    "last_error", "session", "progress", "progress_message",
)  # fmt: skip
# The same of a job that was just reserved, from its lease {l} and its body {j}.
_RESERVED: Final = (
    "{l}.seq, {j}.id, {l}.topic, 'reserved' as state, {l}.priority, {l}.key, {j}.payload,"
    " {j}.encoding, {j}.ttr, {j}.options, {j}.created_at, {j}.run_at, {l}.epoch,"
    " coalesce({l}.retries, 0) as retries, coalesce({l}.crashes, 0) as crashes,"
    " coalesce({l}.timeouts, 0) as timeouts, coalesce({l}.releases, 0) as releases,"
    " coalesce({l}.buries, 0) as buries, coalesce({l}.kicks, 0) as kicks, {l}.reserved_at,"
    " {l}.until, false as cancel_requested, null as finished_at, null as duration,"
    " null as result, case when coalesce({l}.retries, 0) + coalesce({l}.crashes, 0) > 0"
    " then (select e.error from towpath.failure e where e.seq = {l}.seq"
    " order by e.epoch desc limit 1) end as last_error,"
    " {l}.session, null as progress, null as progress_message"
)
# Stable, so an index condition may use it; tests pass their own.
_POSTGRES_NOW: Final = (
    "coalesce(cast(:now as bigint), "
    "cast(extract(epoch from statement_timestamp()) * 1000000 as bigint))"
)
_FORGOTTEN: Final = (  # the tables that know a job, and the column that names it
    ("failure", "seq"),
    ("dependency", "child"),
    ("run", "offer"),
    ("note", "seq"),
    ("job", "seq"),
)
BUCKETS: Final = tuple(
    int(seconds * 10**6) for seconds in (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1_800, 3_600)
)
"""The upper bounds of the buckets of histograms, in microseconds."""

BEYOND: Final = 2**62
"""The bucket for what is beyond the last bound."""

_BOUNDS: Final = (*BUCKETS, BEYOND)
_BUCKET: Final = (
    "case "
    + " ".join(f"when {{}} <= {most} then {most}" for most in BUCKETS)
    + f" else {BEYOND} end"
)
_ALIVE: Final = (
    "not exists (select 1 from towpath.lifetime x where x.channel = {}.id and x.expires_at <= "
)
# In the order of the index, by a range of one name. Most posted events are of one channel: for any
# other PostgreSQL would read all of these, as it expects to find one among the first.
_POSTED: Final = (
    "((select x.no from towpath.posted x where x.name between {} and {}"
    " order by x.name, x.no limit 1) is not null)"
)
# A list looks at a window of numbers between :low and :high, from the top if it goes :down. The arm
# of the other direction reads nothing.
_WINDOW: Final = (
    "(select * from (select {columns} from towpath.{table} where cast(:down as boolean)"
    " and seq > cast(:low as bigint) and seq < cast(:high as bigint){more}"
    " order by seq desc limit cast(:window as bigint)) as downward"
    " union all"
    " select * from (select {columns} from towpath.{table} where not cast(:down as boolean)"
    " and seq > cast(:low as bigint) and seq < cast(:high as bigint){more}"
    " order by seq limit cast(:window as bigint)) as upward)"
)
_LAST_ERROR: Final = (
    "(select e.error from towpath.failure e where e.seq = {}.seq order by e.epoch desc limit 1)"
)
_FITS: Final = (
    "((cast(:since as bigint) is null or {}.created_at >= :since)"
    " and (cast(:until as bigint) is null or {}.created_at < :until)"
    " and (cast(:key as text) is null or coalesce({}.key = :key, false))"
    " and (cast(:error as text) is null"
    f" or coalesce({_LAST_ERROR} LIKE :error escape '\\', false))"
    " and (cast(:text as text) is null or {}.payload LIKE :text escape '\\'"
    " or coalesce({}.key LIKE :text escape '\\', false)"
    f" or coalesce({_LAST_ERROR} LIKE :text escape '\\', false)))"
)
# The job is read only if the list asks for more than a ticket knows.
_FITTING: Final = (
    "((cast(:topic as text) is null or {}.topic = :topic) and (not cast(:deep as boolean)"
    f" or coalesce((select {_FITS.replace('{}', 'j')} from towpath.job j where j.seq = {{}}.seq),"
    " false)))"
)
_FOUND: Final = (
    "select f.seq, e.low, e.high, e.number"
    " from (select min(seq) as low, max(seq) as high, count(*) as number from looked) as e"
    " left join (select seq from looked where matches"
    " order by case when cast(:down as boolean) then -seq else seq end"
    " limit cast(:limit as bigint)) as f on true"
    " order by case when cast(:down as boolean) then -f.seq else f.seq end"
)
_COLUMNS: Final = {"ticket": TICKET, "located": LOCATED}
_WORDS: Final[Mapping[Dialect, Mapping[str, str]]] = {
    "sqlite": {
        "now": ":now",
        "alive": f"{_ALIVE}:now)",
        "posted": _POSTED,
        "like": "like",
        "identity": "integer primary key autoincrement",
        "number": "integer",  # just so a primary key is the row's own place, not an index beside it
        "uuid": "blob",
        "without_rowid": "without rowid",
        "hot": "without rowid",
        "hot_by_number": "",
        "by_age": "",
        "by_bytes": "",
        "timestamp": "strftime('%Y-%m-%dT%H:%M:%fZ', {} / 1e6, 'unixepoch')",
        "names": "(select value from json_each(:{}))",
        "values": "json_each({})",
        "index": "indexed by {}",
        "named": "towpath_{}",
        "for_update": "",
        "skip_locked": "",
        "bucket": _BUCKET,
        "fits": _FITS.replace("LIKE", "like"),
        "fitting": _FITTING.replace("LIKE", "like"),
        "found": _FOUND,
        "size": "length(cast({} as blob))",
        "forget": "; ".join(
            f"delete from towpath.{table} where {column} = @seq" for table, column in _FORGOTTEN
        )
        + "; update towpath.channel set name = null, closed_at = coalesce(closed_at, :now)"
        " where job = @seq and name is not null",
    },
    "postgres": {
        "now": _POSTGRES_NOW,
        "alive": f"{_ALIVE}{_POSTGRES_NOW})",
        "posted": _POSTED,
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
        "by_bytes": 'collate "C"',  # so that an index finds what begins with a text
        "timestamp": "to_timestamp({} / 1e6)",
        "schema": "{schema}",  # the driver knows its name
        "names": "(select value from json_array_elements_text(cast(cast(:{} as text) as json)))",
        "values": "json_array_elements_text(cast({} as json))",
        "index": "",
        "named": "{}",
        "bucket": _BUCKET,
        "fits": _FITS.replace("LIKE", "ilike"),
        "fitting": _FITTING.replace("LIKE", "ilike"),
        "found": _FOUND,
        "size": "octet_length({})",
        "for_update": "for update {}",
        "skip_locked": "for update {} skip locked",
        "forget": ", ".join(
            f"forgotten_{table} as (delete from towpath.{table} t using gone g"
            f" where t.{column} = g.seq)"
            for table, column in _FORGOTTEN
        )
        + ", forgotten_stream as (update towpath.channel set name = null,"
        f" closed_at = coalesce(closed_at, {_POSTGRES_NOW})"
        " where job = any(array(select seq from gone)) and job is not null and name is not null)",
    },
}


class Query(Struct, Generic[R], frozen=True):
    """A statement with its parameters, ready to run.

    `yield` gives the rows as the driver returns them, `yield from` as the statement declares them.
    """

    statement: "Statement[R]"
    params: Mapping[str, Any]
    items: Sequence[Mapping[str, Any]] | None = None

    def __iter__(self) -> Generator["Query[Any]", list[Row], list[R]]:
        return self.statement.read((yield self))


class Statement(Generic[R]):
    """One named statement, in one text or in one text for each database."""

    __slots__ = ("columns", "name", "read", "texts")

    def __init__(
        self,
        name: str,
        texts: Mapping[str, str],
        columns: Sequence[str] = (),
        read: Callable[[list[Row]], list[R]] = lambda _: [],
    ) -> None:
        self.name = name
        self.texts = texts
        self.columns = columns  # of the rows that are read
        self.read = read

    def __call__(
        self, items: Sequence[Mapping[str, Any]] | None = None, /, **params: Any
    ) -> Query[R]:
        """Bind parameters."""
        return Query(self, params, items)

    def text(self, dialect: Dialect) -> str:
        """Return the SQL in the words of one database; nothing if it needs none there."""
        return spelled(self.texts.get(dialect) or self.texts.get("any", ""), dialect)

    def __repr__(self) -> str:
        return f"<Statement {self.name}>"


def rows(row: Callable[..., R]) -> Statement[R]:
    """Declare a statement that returns rows: a NamedTuple, or the type of the only column."""
    columns, make = _columns(row)
    if make is None:
        return Statement("", {}, columns, lambda found: [value for (value,) in found])
    return Statement("", {}, columns, lambda found: list(map(make, found)))


def pairs(first: str, row: Callable[..., R]) -> Statement[tuple[int, R]]:
    """Declare a statement whose rows have one column, a number, before those of `row`."""
    columns, make = _columns(row)

    def read(found: list[Row]) -> list[tuple[int, R]]:
        return [(each[0], make(each[1:]) if make else each[1]) for each in found]

    return Statement("", {}, (first, *columns), read)


def no_rows() -> Statement[None]:
    """Declare a statement whose rows, if any, say nothing."""
    return Statement("", {})


def _columns(row: Callable[..., R]) -> tuple[Sequence[str], Callable[[Row], R] | None]:
    """Return the columns of a NamedTuple and what makes one; of another type, one column."""
    return getattr(row, "_fields", ("value",)), getattr(row, "_make", None)


class Statements:
    """The statements of a module: a subclass declares those of the .sql file beside it."""

    def __init_subclass__(cls) -> None:
        texts = _texts(cls.__module__)
        declared: dict[str, Statement[Any]] = {
            name: each for name, each in vars(cls).items() if isinstance(each, Statement)
        }
        if texts.keys() != declared.keys():
            differing = ", ".join(sorted(texts.keys() ^ declared.keys()))
            msg = f"{cls.__module__}: declared without a text, or the other way round: {differing}"
            raise TypeError(msg)
        for name, statement in declared.items():
            statement.name, statement.texts = name, texts[name]


def _texts(module: str) -> dict[str, dict[str, str]]:
    source = Path(sys.modules[module].__file__ or "").with_suffix(".sql")
    _, *parts = _HEADER.split(source.read_text(encoding="utf-8"))
    texts: dict[str, dict[str, str]] = {}
    for title, dialect, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        texts.setdefault(title, {})[dialect or "any"] = _COMMENT.sub("", text).strip()
    return texts


def split(text: str) -> list[str]:
    """Split SQL into its statements, without their comments.

    A semicolon in quotes, in a function between $$ or in the body of a trigger does not end one.
    """
    statements: list[str] = []
    parts: list[str] = []
    words: list[str] = []
    depth = 0  # of `begin` and `case` in the body of a trigger
    for token in _TOKEN.finditer(text):
        kind, part = token.lastgroup, token[0]
        if kind == "end" and not depth:
            statements.append("".join(parts))
            parts, words = [], []
            continue
        if kind == "word":
            words.append(part.lower())
            is_body = depth or (words[-1] == "begin" and "trigger" in words[:3])
            depth += {"begin": 1, "case": 1, "end": -1}.get(words[-1], 0) if is_body else 0
        if kind != "comment":
            parts.append(part)
    return [each for part in (*statements, "".join(parts)) if (each := part.strip())]


@cache
def spelled(text: str, dialect: Dialect) -> str:
    """Write a text in the words of one database."""

    def spell(word: re.Match[str]) -> str:
        return _spelled(word[1], word[2].strip(), dialect)

    before = ""
    while before != text:  # the words within others come first
        before, text = text, _WORD.sub(spell, text)
    return text.replace("towpath.", "towpath_") if dialect == "sqlite" else text


def bucket_of(time: int) -> int:
    """Return the bucket of a time in microseconds, as the word {bucket} does."""
    return _BOUNDS[bisect_left(BUCKETS, time)]


def _spelled(word: str, argument: str, dialect: Dialect) -> str:
    if word in _COLUMNS:
        prefix = argument if argument in {"", ":", "@"} else f"{argument}."
        return ", ".join(prefix + column for column in _COLUMNS[word])
    if word in _MADE:
        return _MADE[word](argument, dialect)
    return _WORDS[dialect][word].replace("{}", argument)


def _leased_ticket(table: str, _: Dialect) -> str:
    columns = [f"{table}.{column}" for column in TICKET]
    columns[TICKET.index("epoch")] += " + 1 as epoch"
    return ", ".join(columns)


def _reserved(tables: str, _: Dialect) -> str:
    lease, _space, job = tables.partition(" ")
    return _RESERVED.replace("{l}", lease).replace("{j}", job)


def _in_items(typed: str, dialect: Dialect) -> str:
    return _in(f"select i.{typed.partition(' ')[0]} from {_items(f'i({typed})', dialect)}", dialect)


def _in(query: str, dialect: Dialect) -> str:
    return f"in ({query})" if dialect == "sqlite" else f"= any(array({query}))"


def _window(what: str, _: Dialect) -> str:
    columns, _from, table = what.partition(" from ")
    table, _where, more = table.partition(" where ")
    named = _WINDOW.replace("{columns}", columns).replace("{table}", table)
    return named.replace("{more}", more and f" and {more}")


def _items(table: str, dialect: Dialect) -> str:
    """Return a query's items as a table that is written name(column type, column type)."""
    if dialect == "postgres":
        return f"json_to_recordset(cast(:items as json)) as {table}"
    name, _, columns = table.rstrip(")").partition("(")
    read = [
        f"value ->> '{column}' as {column}" for column, *_ in map(str.split, columns.split(","))
    ]
    return f"(select {', '.join(read)} from json_each(:items)) as {name}"


_MADE: Final[Mapping[str, Callable[[str, Dialect], str]]] = {
    "leased_ticket": _leased_ticket,
    "reserved": _reserved,
    "items": _items,
    "in": _in,
    "in_items": _in_items,
    "window": _window,
}
