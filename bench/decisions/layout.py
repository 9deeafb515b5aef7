"""Where a job's state lives: in the table its ticket lies in, or in a column of one wide row.

Write-ahead log per job and verb, batches of 100, without page images.
"""

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
import psycopg

from bench.bare import PRIORITY, RETENTION, TOPIC, BarePostgres, items
from bench.decisions import show
from bench.places import PostgresPlace
from bench.wal import EXACT
from tests.servers import PostgresServer

BATCH: Final = 100
COUNT: Final = 10_000
BODIES: Final = (2, 100, 1_000)

WIDE: Final = (
    """create table wide.job (
        seq bigint generated always as identity primary key,
        created_at bigint not null, run_at bigint not null, priority bigint not null,
        ttr bigint not null, epoch bigint not null default 0, until bigint, reserved_at bigint,
        token bigint, session bigint, finished_at bigint, prune_at bigint, duration bigint,
        id uuid not null unique,
        retries integer not null default 0, crashes integer not null default 0,
        timeouts integer not null default 0, releases integer not null default 0,
        buries integer not null default 0, kicks integer not null default 0,
        state text not null, topic text not null, key text, encoding text not null,
        options text, payload text not null, result text)""",
    "create index on wide.job (topic, priority, seq) where state = 'ready'",
    "create index on wide.job (topic, run_at) where state = 'delayed'",
    "create index on wide.job (topic, until) where state = 'reserved' and until is not null",
    "create index on wide.job (prune_at) where state = 'completed'",
)
ENQUEUE: Final = """
    insert into wide.job (id, topic, priority, payload, encoding, ttr, created_at, run_at, state)
    select id, topic, priority, payload, encoding, ttr, %(now)s, %(now)s, 'ready'
      from json_to_recordset(%(items)s::json) as i(nth integer, id uuid, topic text,
           priority bigint, payload text, encoding text, ttr bigint) order by nth returning seq"""
RESERVE: Final = """
    with picked as materialized (
        select seq from wide.job where topic = %(topic)s and state = 'ready'
         order by priority, seq limit 100 for update skip locked)
    update wide.job j set state = 'reserved', epoch = epoch + 1, until = %(now)s + ttr,
           reserved_at = %(now)s, token = 1
      from picked p where j.seq = p.seq returning j.*"""
COMPLETE: Final = """
    update wide.job j set state = 'completed', finished_at = %(now)s, prune_at = %(now)s + %(keep)s,
           duration = %(now)s - reserved_at, until = null
      from json_to_recordset(%(items)s::json) as i(seq bigint, epoch bigint)
     where j.seq = i.seq and j.epoch = i.epoch and j.state = 'reserved' returning j.seq"""


class WideRow:
    """The same verbs on one wide row."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        connection.execute("drop schema if exists wide cascade")
        connection.execute("create schema wide")
        for statement in WIDE:
            connection.execute(statement.encode())

    def prepared(self, new: list[dict[str, Any]]) -> str:
        return msgspec.json.encode(new).decode()

    def enqueue(self, new: str) -> list[Any]:
        return self._run(ENQUEUE, items=new)

    def reserve(self, _: int) -> list[Any]:
        rows = self._run(RESERVE, topic=TOPIC)
        return [(row[0], row[5]) for row in rows]

    def complete(self, rows: list[Any]) -> list[Any]:
        said = [{"seq": seq, "epoch": epoch} for seq, epoch in rows]
        return self._run(COMPLETE, items=msgspec.json.encode(said).decode(), keep=RETENTION)

    def _run(self, text: str, **params: object) -> list[Any]:
        now = time.time_ns() // 1_000
        return self._connection.execute(text.encode(), {**params, "now": now}).fetchall()


def written(log: psycopg.Connection[Any], verb: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return what a verb returned, the bytes that it logged and the seconds that it took."""
    position = "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
    [before] = log.execute(position.encode()).fetchone() or (0,)
    start = time.perf_counter()
    result = verb()
    taken = time.perf_counter() - start
    [after] = log.execute(position.encode()).fetchone() or (0,)
    return result, float(after - before), taken


def measured(driver: Any, log: psycopg.Connection[Any], body: int) -> list[float]:
    text = '"' + "x" * (body - 2) + '"'
    new = [driver.prepared(items(BATCH, text)) for _ in range(COUNT // BATCH + 1)]
    driver.enqueue(new.pop())
    assert len(driver.complete(driver.reserve(BATCH))) == BATCH
    _, enqueue, t1 = written(log, lambda: [driver.enqueue(batch) for batch in new])
    leases, reserve, t2 = written(log, lambda: [driver.reserve(BATCH) for _ in new])
    assert sum(map(len, leases)) == COUNT
    _, complete, t3 = written(log, lambda: [driver.complete(some) for some in leases])
    total = enqueue + reserve + complete
    return [
        *(round(b / COUNT) for b in (enqueue, reserve, complete, total)),
        COUNT / (t1 + t2 + t3),
    ]


def main() -> None:
    assert PRIORITY
    rows: list[list[object]] = []
    with PostgresServer(EXACT) as server, psycopg.connect(server.url(), autocommit=True) as log:
        for body in BODIES:
            with PostgresPlace(server).spot() as spot:
                driver = spot.bare()
                assert isinstance(driver, BarePostgres)
                rows.append([f"tickets, body {body} B", *measured(driver, log, body)])
                driver.close()
            with psycopg.connect(server.url(), autocommit=True) as connection:
                rows.append(
                    [f"one wide row, body {body} B", *measured(WideRow(connection), log, body)]
                )
    columns = ["layout", "enqueue B", "reserve B", "complete B", "total B", "cycles/s"]
    show("write-ahead log per job, batches of 100", columns, rows)


if __name__ == "__main__":
    main()
