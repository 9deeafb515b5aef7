"""Schemas of PostgreSQL that tests hand on, clean: to make one takes longer than most tests."""

import functools
import itertools
import os
import secrets
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

import psycopg
from psycopg.sql import SQL, Composable, Identifier
from psycopg.types.json import Jsonb

from tests.servers import PostgresServer
from towpath import App

_numbers = itertools.count(1)

SHAPE = """
select md5(string_agg(line, ',' order by line)) from (
    select concat_ws(' ', 'column', c.relname, c.relkind, c.relacl, c.relowner, c.reltriggers_seen,
                     a.attname, a.atttypid, a.attnotnull) as line
      from (select *, (select count(*) from pg_trigger t where t.tgrelid = pg_class.oid)
                as reltriggers_seen from pg_class) c
      join pg_namespace n on n.oid = c.relnamespace
      left join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
     where n.nspname = %(name)s
    union all
    select concat_ws(' ', 'function', p.proname) from pg_proc p
      join pg_namespace n on n.oid = p.pronamespace where n.nspname = %(name)s
    union all
    select concat_ws(' ', 'schema', n.nspowner, n.nspacl) from pg_namespace n
     where n.nspname = %(name)s) lines
"""
AGAIN = """
insert into {0} overriding system value select * from jsonb_populate_recordset(null::{0}, %s)
"""
ABANDONED = r"""
select datname from pg_database database
 where datname like 'towpath\_test\_%' and datdba = current_user::regrole
   and not exists (select from pg_stat_activity where datname = database.datname)
"""
TABLES = "select tablename from pg_tables where schemaname = %s order by 1"
SEQUENCES = "select sequencename from pg_sequences where schemaname = %s order by 1"
RESTART = "select setval(format('%%I.%%I', %s::text, %s::text), 1, false)"


class GivenPostgres:
    """A database of its own on the server at a URL, dropped at the end with all that is in it.

    What a killed run left behind is dropped by the next run.
    """

    def __init__(self, server: str) -> None:
        self._server: Final = server
        self._database: Final = f"towpath_test_{secrets.token_hex(8)}"

    def url(self) -> str:
        """Return where clients connect to the database."""
        return urlsplit(self._server)._replace(path=f"/{self._database}").geturl()

    def __enter__(self) -> Self:
        with psycopg.connect(self._server, autocommit=True) as admin:
            # One process at a time: a database that is made but not yet used looks abandoned.
            admin.execute("select pg_advisory_lock(hashtext('towpath_test'))")
            for name in _asked(admin, ABANDONED):
                admin.execute(_about("drop database if exists {}", name))
            admin.execute(_about("create database {}", self._database))
            self._in_use = psycopg.connect(self.url())
        return self

    def __exit__(self, *_: object) -> None:
        self._in_use.close()
        with psycopg.connect(self._server, autocommit=True) as admin:
            admin.execute(_about("drop database if exists {} with (force)", self._database))


class Schema(NamedTuple):
    """A schema with our tables, and what belongs in it."""

    name: str
    shape: str
    rows: dict[str, list[Any]]  # of each table, as they were when it was made
    sequences: list[str]


class Schemas:
    """The schemas of one server."""

    @classmethod
    @functools.cache
    def of(cls, server: PostgresServer | GivenPostgres) -> Self:
        """Return the same ones for every test on a server."""
        return cls(server)

    def __init__(self, server: PostgresServer | GivenPostgres) -> None:
        self._server = server
        self._clean: list[Schema] = []
        self._cleaner: psycopg.Connection[Any] | None = None

    def borrow(self) -> Schema:
        """Return a schema in which nothing has happened."""
        return self._clean.pop() if self._clean else self._made()

    def give_back(self, schema: Schema) -> None:
        """Clean a schema, unless a test has changed more than rows, or still holds some."""
        try:
            connection = self._cleaning()
            if _asked(connection, SHAPE, {"name": schema.name}) == [schema.shape]:
                _clean(connection, schema)
                self._clean.append(schema)
                return
        except psycopg.Error:
            pass
        self.drop(schema.name)

    def drop(self, name: str) -> None:
        with self._connected(name) as connection:
            connection.execute(SQL("drop schema if exists {} cascade").format(Identifier(name)))

    def _made(self) -> Schema:
        name = f"t{os.getpid()}_{next(_numbers)}"
        with App(self._server.url(), schema=name) as app:
            app.migrate()
        with self._connected(name) as connection:
            [shape] = _asked(connection, SHAPE, {"name": name})
            rows = {
                table: _asked(connection, _about("select to_jsonb(t) from {} t", table))
                for table in _asked(connection, TABLES, [name])
            }
            return Schema(name, shape, rows, _asked(connection, SEQUENCES, [name]))

    def _cleaning(self) -> psycopg.Connection[Any]:
        """Return the connection that cleans: a new one for each test would plan it all again."""
        if self._cleaner is None or self._cleaner.closed:
            options = "-c lock_timeout=500"
            self._cleaner = psycopg.connect(self._server.url(), autocommit=True, options=options)
        return self._cleaner

    def _connected(self, name: str) -> psycopg.Connection[Any]:
        options = f"-c search_path={name}"
        return psycopg.connect(self._server.url(), autocommit=True, options=options)


def _clean(connection: psycopg.Connection[Any], schema: Schema) -> None:
    with connection.transaction(), connection.pipeline():
        for table, rows in schema.rows.items():
            connection.execute(_about("delete from {}", schema.name, table))
            if rows:
                connection.execute(_about(AGAIN, schema.name, table), [Jsonb(rows)])
        for sequence in schema.sequences:
            connection.execute(RESTART, [schema.name, sequence])


def _about(text: str, *name: str) -> Composable:
    return SQL(text).format(Identifier(*name))


def _asked(
    connection: psycopg.Connection[Any], text: str | Composable, params: Any = None
) -> list[Any]:
    return [row[0] for row in connection.execute(text, params)]
