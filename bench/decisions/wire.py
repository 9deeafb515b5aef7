"""A statement, and a transaction of two, by psycopg's cursors and by libpq's own words.

Hot: one after the other. Cold: after a rest, as for a worker that had nothing to do.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import psycopg

from bench.decisions import show
from bench.places import DURABLE, PostgresPlace
from tests.servers import PostgresServer
from towpath.database.postgres_wire import Sent, Wire

INSERT: Final = "insert into probe values (1) returning n"
RESTS: Final = {"hot": 0.0, "cold": 0.03}  # seconds
COUNT: Final = {"hot": 500, "cold": 100}
ROUNDS: Final = 3


async def measured(call: Callable[[], Awaitable[Any]], count: int, rest: float) -> list[float]:
    """Return the milliseconds until it was done, and those of CPU, both the median."""
    took: list[float] = []
    cpu: list[float] = []
    for _ in range(count):
        if rest:
            await asyncio.sleep(rest)
        begun, used = time.perf_counter(), time.process_time()
        await call()
        took.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - used)
    return [statistics.median(each) * 1e3 for each in (took, cpu)]


async def compare(url: str) -> None:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    await connection.execute("create temp table probe (n integer)")
    other = await psycopg.AsyncConnection.connect(url, autocommit=True)
    await other.execute("create temp table probe (n integer)")
    wire = Wire(other)

    async def cursor() -> None:
        await (await connection.execute(INSERT)).fetchall()

    async def two_in_a_pipeline() -> None:
        async with connection.pipeline():
            await connection.execute("begin")
            both = [await connection.execute(INSERT) for _ in range(2)]
            for each in both:
                await each.fetchall()
        await connection.execute("commit")

    async def wired(*asked: str) -> None:
        await wire.aexchange(map(Sent, asked))

    ways: dict[str, Callable[[], Awaitable[Any]]] = {
        "one insert, psycopg": cursor,
        "one insert, wire": lambda: wired(INSERT),
        "two in a transaction, psycopg's pipeline": two_in_a_pipeline,
        "two in a transaction, wire": lambda: wired(INSERT, INSERT),
    }
    rows: list[list[str]] = []
    for name, call in ways.items():
        await measured(call, 20, 0)
        cells = [name]
        for state, rest in RESTS.items():
            every = [await measured(call, COUNT[state], rest) for _ in range(ROUNDS)]
            cells += [f"{min(each):.2f}" for each in zip(*every, strict=True)]
        rows.append(cells)
    show("ms, the best of three medians", ["", "hot", "CPU", "cold", "CPU"], rows)
    await connection.close()
    wire.close()


if __name__ == "__main__":
    with PostgresServer(DURABLE) as server, PostgresPlace(server).spot() as spot:
        asyncio.run(compare(spot.url))
