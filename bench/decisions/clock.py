"""The clock in a statement: our coalesce over a parameter, against now()."""

from typing import Any, Final

import psycopg

from bench.decisions import show
from bench.rounds import Stopwatch
from tests.servers import PostgresServer
from towpath.statement import spelled

OURS: Final = spelled("{now}", "postgres").replace(":now", "%(now)s")
FORMS: Final = {
    "nothing": "1",
    "now()": "now()",
    "extract(epoch from now())": "cast(extract(epoch from now()) * 1000000 as bigint)",
    "ours: coalesce(:now, extract(…))": OURS,
}
STATEMENTS: Final = 5_000
EVALUATIONS: Final = 300_000
ROUNDS: Final = 5


def statement(connection: psycopg.Connection[Any], form: str) -> float:
    """Return microseconds of a statement that says the time once."""
    text = f"select {form}".encode()
    params = {"now": None} if "%(now)s" in form else {}
    watch = Stopwatch()
    for _ in range(STATEMENTS):
        connection.execute(text, params or None, prepare=True).fetchone()
    return 1e6 / watch.rate(STATEMENTS).per_second


def evaluation(connection: psycopg.Connection[Any], form: str) -> float:
    """Return nanoseconds that saying it once more takes, in the server."""
    params = {"now": None} if "%(now)s" in form else {}
    text = f"select count({form}) from generate_series(1, {EVALUATIONS})".encode()  # noqa: S608 - our own text
    connection.execute(text, params or None, prepare=True).fetchone()
    watch = Stopwatch()
    connection.execute(text, params or None, prepare=True).fetchone()
    return 1e9 / watch.rate(EVALUATIONS).per_second


def main() -> None:
    with PostgresServer() as server, psycopg.connect(server.url(), autocommit=True) as connection:
        once = {n: min(statement(connection, f) for _ in range(ROUNDS)) for n, f in FORMS.items()}
        each = {n: min(evaluation(connection, f) for _ in range(ROUNDS)) for n, f in FORMS.items()}
    rows = [
        [name, once[name], once[name] - once["nothing"], each[name] - each["nothing"]]
        for name in FORMS
    ]
    columns = ["form", "statement µs", "more µs", "each evaluation ns"]
    show("what the clock costs in a statement", columns, rows)


if __name__ == "__main__":
    main()
