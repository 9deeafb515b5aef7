"""Our tables: numbered migrations, additive, the same on every database.

Each records the oldest version of Towpath that can still work with it, so that old processes go
on during a rolling deploy, and refuse clearly when they cannot. A statement that begins with
/* sqlite */ or /* postgres */ runs on that database alone.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from towpath.errors import SchemaMissing, SchemaTooNew
from towpath.operation import Mode, Operation, Steps
from towpath.statement import Statement, Statements, no_rows, rows, split

VERSION: Final = 8
"""The newest migration that this code knows."""

# Read together with this module: a process may give up the right to read it later.
_TEXTS: Final = {
    version: (Path(__file__).parent / "migrations" / f"{version:04}.sql").read_text("utf-8")
    for version in range(1, VERSION + 1)
}
_ONLY: Final = re.compile(r"/\* (sqlite|postgres) \*/")


class Applied(NamedTuple):
    """The tables that are there."""

    version: int
    oldest: int  # version of the code that can still work with them


class sql(Statements):
    """The statements of schema.sql."""

    schema_exists = rows(int)
    namespace_exists = rows(int)
    may_create = rows(int)
    create_namespace = no_rows()
    applied = rows(Applied)
    create_migration = no_rows()
    record = no_rows()
    take_turns = no_rows()
    limit_patience = rows(str)
    restore_patience = no_rows()
    tables = rows(str)


def is_current() -> Operation[bool]:
    """Say whether our tables are here and up to date; raise SchemaTooNew if they are newer."""

    def steps() -> Steps[bool]:
        return (yield from _version()) >= VERSION

    return Operation("is_current", steps, Mode.READ)


def require_current() -> Operation[None]:
    """Raise unless our tables are here and up to date."""

    def steps() -> Steps[None]:
        version = yield from _version()
        if version < VERSION:
            msg = (
                f"the tables of Towpath are at version {version} and {VERSION} is needed: run "
                "`towpath migrate` as a role that may create them"
            )
            raise SchemaMissing(msg)

    return Operation("require_current", steps, Mode.READ)


def migrate() -> Operation[int]:
    """Bring our tables up to date; return the version that was there before."""

    def steps() -> Steps[int]:
        yield sql.take_turns()
        before = yield from _version()
        if before >= VERSION:
            return before
        if not (yield from sql.may_create()):
            msg = (
                "the tables of Towpath are not there or too old, and this role may not create "
                "them: run `towpath migrate` as one that may, or grant it"
            )
            raise SchemaMissing(msg)
        patience = yield from sql.limit_patience()
        if not before:
            if not (yield from sql.namespace_exists()):
                yield sql.create_namespace()
            yield sql.create_migration()
        for version in range(before + 1, VERSION + 1):
            oldest, statements = _migration(version)
            for statement in statements:
                yield statement()
            yield sql.record(version=version, oldest=oldest)
        yield sql.restore_patience(patience=patience[0] if patience else None)
        return before

    return Operation("migrate", steps)


def empty() -> Operation[None]:
    """Delete every row of our tables; the tables stay."""

    def steps() -> Steps[None]:
        found = yield from sql.tables()
        names = ", ".join(f"towpath.{name}" for name in found)
        if names:
            texts = {"sqlite": "select 1", "postgres": f"truncate {names}"}
            yield Statement[Any]("truncate", texts)()
        for name in found:
            texts = {"sqlite": f"delete from {name}", "postgres": "select 1"}  # noqa: S608 - our own
            yield Statement[Any]("delete_all", texts)()

    return Operation("empty", steps, locks=True)


def applied() -> Operation[Applied | None]:
    """Read which tables are there, whether this code can work with them or not."""
    return Operation("applied", _applied, Mode.READ)


def _applied() -> Steps[Applied | None]:
    if not (yield from sql.schema_exists()):
        return None
    found = yield from sql.applied()
    return found[0] if found else None


def _version() -> Steps[int]:
    found = yield from _applied()
    if found is None:
        return 0
    if found.oldest > VERSION:
        msg = (
            f"the tables of Towpath are at version {found.version}, which needs code of version "
            f"{found.oldest} or newer; this is {VERSION}: upgrade this process"
        )
        raise SchemaTooNew(msg)
    return found.version


@cache
def _migration(version: int) -> tuple[int, list[Statement[Any]]]:
    text = _TEXTS[version]
    oldest = re.search(r"^-- oldest: (\d+)$", text, re.MULTILINE)
    assert oldest, f"migration {version} names no oldest version that works with it"  # noqa: S101 - ours
    return int(oldest[1]), [_statement(f"migration {version}", part) for part in split(text)]


def _statement(name: str, text: str) -> Statement[Any]:
    only = _ONLY.match(text)
    if only is None:
        return Statement(name, {"any": text})
    return Statement(name, {only[1]: text[only.end() :].strip(), "any": "select 1"})
