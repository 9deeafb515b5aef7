"""Schemas of PostgreSQL that tests hand on, clean: to make one takes longer than most tests."""

import itertools
import os
from typing import Any, NamedTuple

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
TABLES = "select tablename from pg_tables where schemaname = %s order by 1"
SEQUENCES = "select sequencename from pg_sequences where schemaname = %s order by 1"


class Schema(NamedTuple):
    """A schema with our tables, and what belongs in it."""

    name: str
    shape: str
    rows: dict[str, list[Any]]  # of each table, as they were when it was made
    sequences: list[str]


class Schemas:
    """The schemas of one server."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._clean: list[Schema] = []

    def borrow(self) -> Schema:
        """Return a schema in which nothing has happened."""
        return self._clean.pop() if self._clean else self._made()

    def give_back(self, schema: Schema) -> None:
        """Clean a schema, unless somebody has changed more than rows, or still holds some."""
        try:
            with self._connected(schema.name) as connection:
                connection.execute("set lock_timeout = 500")
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

    def _connected(self, name: str) -> psycopg.Connection[Any]:
        options = f"-c search_path={name}"
        return psycopg.connect(self._server.url(), autocommit=True, options=options)


def _clean(connection: psycopg.Connection[Any], schema: Schema) -> None:
    with connection.transaction(), connection.pipeline():
        for table, rows in schema.rows.items():
            connection.execute(_about("delete from {}", table))
            if rows:
                connection.execute(_about(AGAIN, table), [Jsonb(rows)])
        for sequence in schema.sequences:
            connection.execute(_about("alter sequence {} restart", sequence))


def _about(text: str, name: str) -> Composable:
    return SQL(text).format(Identifier(name))


def _asked(
    connection: psycopg.Connection[Any], text: str | Composable, params: Any = None
) -> list[Any]:
    return [row[0] for row in connection.execute(text, params)]
