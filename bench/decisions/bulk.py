"""Many jobs of one call: how they get to PostgreSQL soonest.

Each way stores 10,000 jobs in one transaction, a thousand in each statement, and learns their
numbers.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any, Final

from bench.bare import BODY, TOPIC, items
from bench.decisions import show
from bench.places import DURABLE, PostgresPlace, PostgresSpot
from tests.servers import PostgresServer
from towpath.database.postgres import bound, rendered
from towpath.store.jobs import sql

COUNT: Final = 10_000
PART: Final = 1_000
ROUNDS: Final = 20


def parts() -> list[list[dict[str, Any]]]:
    new = items(COUNT)
    return [new[start : start + PART] for start in range(0, COUNT, PART)]


def by_statement(spot: PostgresSpot, connection: Any) -> None:
    schema = spot.settings["schema"]
    with connection.transaction(), connection.pipeline():
        asked: list[Any] = []
        for part in parts():
            query = sql.enqueue(part)
            text = rendered(query.statement, schema)
            asked.append(connection.cursor().execute(text, bound(query, None)))
        assert sum(len(each.fetchall()) for each in asked) == COUNT


def by_copy(spot: PostgresSpot, connection: Any) -> None:
    """Two COPYs, of jobs and of tickets, with numbers that were asked for before."""
    schema = spot.settings["schema"]
    columns = "seq, id, topic, priority, payload, encoding, ttr, created_at, run_at"
    now = time.time_ns() // 1_000
    numbers = (
        "select array_agg(nextval(pg_get_serial_sequence(%s, 'seq'))) from generate_series(1, %s)"
    )
    with connection.transaction():
        [[seqs]] = connection.execute(numbers, (f'"{schema}".job', COUNT)).fetchall()
        new = items(COUNT)
        with connection.cursor().copy(f'copy "{schema}".job ({columns}) from stdin') as stream:
            for seq, item in zip(seqs, new, strict=True):
                stream.write_row(
                    (seq, item["id"], TOPIC, item["priority"], BODY, "json", item["ttr"], now, now)
                )
        ready = f'copy "{schema}".ready (seq, topic, priority) from stdin'
        with connection.cursor().copy(ready) as stream:
            for seq, item in zip(seqs, new, strict=True):
                stream.write_row((seq, TOPIC, item["priority"]))


def main() -> None:
    ways: dict[str, Callable[[PostgresSpot, Any], None]] = {
        "statements with one JSON parameter": by_statement,
        "two COPYs": by_copy,
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    with PostgresServer(DURABLE) as server, PostgresPlace(server).spot() as spot:
        with spot.app() as app:
            app.jobs.enqueue(TOPIC)
        connection = spot.bare().connection
        for turn in range(ROUNDS + 1):
            for name, store in ways.items():
                begun = time.perf_counter()
                store(spot, connection)
                if turn:
                    taken[name].append((time.perf_counter() - begun) / COUNT * 1e6)
        connection.close()
    rows = [[name, min(each), statistics.median(each)] for name, each in taken.items()]
    show(f"{COUNT:,} jobs in one transaction", ["way", "µs a job, best", "median"], rows)


if __name__ == "__main__":
    main()
