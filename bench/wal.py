"""Write-ahead log per job on PostgreSQL, from enqueue to done, verb by verb."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg

from bench.bare import TOPIC
from bench.places import DURABLE, Place, PostgresPlace
from bench.rounds import Floor, Plan, Result
from tests.servers import PostgresServer

# Exact to the byte: no page images, and no other process that writes.
EXACT = {**DURABLE, "full_page_writes": "off", "autovacuum": "off"}


def measure(place: Place, plan: Plan) -> Iterator[Result]:
    if place.kind != "postgres":
        return
    with PostgresServer(EXACT) as server:
        yield bytes_per_job(PostgresPlace(server), plan.count(10_000, 1_000), 100)
        yield bytes_per_job(PostgresPlace(server), plan.count(10_000, 1_000), 100, in_session=True)
        yield bytes_per_job(PostgresPlace(server), plan.count(1_000, 100), 1)


def bytes_per_job(
    place: PostgresPlace, count: int, batch: int, *, in_session: bool = False
) -> Result:
    with place.spot() as spot, spot.app() as app, psycopg.connect(spot.url, autocommit=True) as log:
        log.execute("checkpoint")
        session = app.sessions.start() if in_session else None
        # So that neither the first pages nor the topic are counted.
        app.jobs.enqueue_many(TOPIC, [{}] * batch)
        app.jobs.complete_many(app.jobs.reserve(TOPIC, limit=batch))

        def written(verb: Callable[[], Any]) -> tuple[Any, float]:
            before = position(log)
            result = verb()
            return result, (position(log) - before) / count

        batches = range(count // batch)
        _, enqueue = written(lambda: [app.jobs.enqueue_many(TOPIC, [{}] * batch) for _ in batches])
        leases, reserve = written(
            lambda: [app.jobs.reserve(TOPIC, limit=batch, session=session) for _ in batches]
        )
        assert sum(map(len, leases)) == count
        _, complete = written(lambda: [app.jobs.complete_many(some) for some in leases])
    return Result(
        database=place.name,
        what=f"WAL per job, batches of {batch}{', in a session' if in_session else ''}",
        unit="B",
        ours=[enqueue + reserve + complete],
        floor=Floor("ours", "<", 1_200) if batch == 100 else None,
        less_is_better=True,
        note=f"enqueue {enqueue:.0f} + reserve {reserve:.0f} + complete {complete:.0f}",
        details={"enqueue": enqueue, "reserve": reserve, "complete": complete},
    )


def position(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    assert row
    return int(row[0])
