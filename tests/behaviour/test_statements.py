"""Every statement is prepared on both databases, and is what its declaration says."""

import ast
import importlib
import inspect
import pkgutil
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from towpath import App, store
from towpath.database.postgres import numbered
from towpath.database.sqlite import StatementChain
from towpath.statement import Statement, Statements, no_rows, rows, split

MODULES = {
    name: module
    for _, name, _ in pkgutil.iter_modules(store.__path__)
    if hasattr(module := importlib.import_module(f"towpath.store.{name}"), "sql")
}
STATEMENTS = {
    f"{module}.{name}": statement
    for module, found in MODULES.items()
    for name, statement in vars(found.sql).items()
    if not name.startswith("__")
}
# PostgreSQL reserves behind the marks of its callers, SQLite at the head of a line.
OF_ONE_DATABASE = {
    "reserving.reserve": {"topic", "ranges"},
    "reserving.candidates": {"topics", "ranges", "tried"},
}
ITEM_COLUMNS = re.compile(r"json_to_recordset\(cast\(:items as json\)\) as \w+\(([^()]*)\)")
GIVEN = {"now", "items"}
SCHEMA = "statements"

each_statement = pytest.mark.parametrize("name", STATEMENTS)


def test_the_statements_are_found():
    assert len(STATEMENTS) > 150


@pytest.fixture(scope="module")
def sqlite_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("statements") / "test.db"
    with App(f"sqlite:///{path}") as app:
        app.migrate()
    with sqlite3.connect(path) as connection:  # triggers refuse values that fit only by their types
        for (name,) in connection.execute("select name from sqlite_master where type = 'trigger'"):
            connection.execute(f"drop trigger {name}")
    return path


@pytest.fixture(scope="module")
def postgres_connection(postgres) -> Iterator[psycopg.Connection]:
    with App(postgres.url(), schema=SCHEMA) as app:
        app.migrate()
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        yield connection


def columns_on_sqlite(path: Path, statement: Statement) -> list[str]:
    """Run a chain with values that fit everywhere; return the columns of its answer."""
    found: list[str] = []
    how = "" if statement.columns else "explain "  # what returns nothing is only prepared
    with sqlite3.connect(path, isolation_level=None) as connection:
        for link in StatementChain(statement.text("sqlite")).links:
            connection.execute("begin")
            values = ["[]" if name == "items" else 1 for name in link.names]
            cursor = connection.execute(how + link.text, values)
            found = [column[0] for column in cursor.description or ()] or found
            connection.execute("rollback")
    return found


@pytest.mark.parametrize(
    "name", sorted(STATEMENTS.keys() - {"schema.create_migration"})
)  # it is there
def test_sqlite_prepares_it_and_returns_its_columns(name, sqlite_file):
    statement = STATEMENTS[name]

    found = columns_on_sqlite(sqlite_file, statement)

    if statement.text("sqlite"):
        check(found, statement.columns)


@each_statement
def test_postgres_prepares_it_and_returns_its_columns(name, postgres_connection):
    statement = STATEMENTS[name]
    text, _ = numbered(statement, SCHEMA)
    prepared = postgres_connection.pgconn.prepare(b"", text.encode())
    assert prepared.status == psycopg.pq.ExecStatus.COMMAND_OK, prepared.error_message.decode()
    described = postgres_connection.pgconn.describe_prepared(b"")

    check([described.fname(n).decode() for n in range(described.nfields)], statement.columns)


def check(found, declared):
    if not declared:
        return  # its rows are not read
    if tuple(declared) == ("value",):
        assert len(found) == 1
    else:
        assert found == list(declared)


@each_statement
def test_both_databases_take_the_same_parameters(name):
    statement = STATEMENTS[name]
    postgres = set(numbered(statement, "towpath")[1])
    fields = {
        column.split()[0]
        for columns in ITEM_COLUMNS.findall(statement.text("postgres"))
        for column in columns.split(",")
    }
    chain = StatementChain(statement.text("sqlite"))
    sqlite = {each for link in chain.links for each in link.names if not each.startswith("@")}
    apart = OF_ONE_DATABASE.get(name, set())

    assert sqlite - postgres - fields - GIVEN <= apart
    if sqlite:
        assert postgres - sqlite - GIVEN <= apart


def calls():
    """Every call of a statement in its own module, with the names of its parameters."""
    for module, found in MODULES.items():
        for node in ast.walk(ast.parse(inspect.getsource(found))):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func).startswith("sql.")
                and all(keyword.arg for keyword in node.keywords)
            ):
                yield f"{module}.{node.func.attr}", {keyword.arg for keyword in node.keywords}


@pytest.mark.parametrize(("name", "given"), list(calls()))
def test_a_call_names_the_parameters_of_its_statement(name, given):
    statement = STATEMENTS[name]
    chain = StatementChain(statement.text("sqlite"))
    taken = set(numbered(statement, "towpath")[1])
    if ":items" not in statement.text("postgres"):
        taken |= {each for link in chain.links for each in link.names if not each.startswith("@")}

    assert taken - GIVEN == given


@pytest.mark.parametrize("wrong", ["a declaration", "a text"])
def test_the_import_fails_where_declarations_and_texts_differ(wrong):
    declared = {"clock": rows(int), "prune": rows(int)} if wrong == "a declaration" else {}

    with pytest.raises(TypeError, match=r"clock|prune"):
        type("sql", (Statements,), {**declared, "__module__": "towpath.store.retention"})


def test_a_statement_without_rows_reads_none():
    assert no_rows().read([(1,)]) == []


@pytest.mark.parametrize(
    "text",
    [
        "select 'it''s; here', \"a;b\"",
        "create function f() returns trigger language plpgsql as $$ begin raise 'no;'; end $$",
        "create function f() returns int language sql as $body$ select 1; select $$;$$; $body$",
        "create trigger t before update on a when case when 1 then 0 end begin select 1; end",
        "create trigger t after insert on a begin update b set c = case when d then 1 end; end",
        "/* sqlite; only */ create trigger t after insert on a begin delete from b; end",
        "begin",  # of a transaction, not of a trigger's body
    ],
)
def test_a_semicolon_in_quotes_or_in_a_body_ends_no_statement(text):
    assert split(f"select 1;; {text}; -- a; comment\nselect 2") == ["select 1", text, "select 2"]
