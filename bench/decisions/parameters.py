"""How a batch travels to PostgreSQL: one JSON parameter, arrays, or another driver.

The statement is our own enqueue; only where its items come from differs. Parameters are made
within the clock, for that is what is compared.
"""

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import asyncpg
import msgspec
import psycopg

from bench.bare import items
from bench.decisions import show
from bench.places import DURABLE, PostgresPlace, PostgresSpot
from bench.rounds import Stopwatch
from tests.servers import PostgresServer
from towpath.database.postgres import numbered
from towpath.store.jobs import sql

SIZES: Final = {1: 2_000, 100: 200, 1_000: 20}
ROUNDS: Final = 3
COLUMNS: Final = {
    "nth": "integer", "id": "uuid", "topic": "text", "priority": "bigint", "payload": "text",
    "encoding": "text", "ttr": "bigint", "options": "text", "run_at": "bigint", "delay": "bigint",
}  # fmt: skip
Send = Callable[[list[dict[str, Any]]], Awaitable[Any]]
Driver = Callable[[PostgresSpot], Awaitable[tuple[Send, Any]]]


def json_text(schema: str) -> str:
    text, names = numbered(sql.enqueue, schema)
    assert set(names) == {"now", "items"}
    # One order for all: $1 the clock, $2 the items.
    return text if names == ("now", "items") else text.translate({49: 50, 50: 49})


def unnest_text(schema: str) -> str:
    arrays = ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(COLUMNS.values(), start=2))
    source = f"unnest({arrays}) as i({', '.join(COLUMNS)})"
    return re.sub(
        r"json_to_recordset\(.*?\) as i\(.*?\)", source, json_text(schema), flags=re.DOTALL
    )


def arrays(new: list[dict[str, Any]]) -> list[list[Any]]:
    return [[item[name] for item in new] for name in COLUMNS]


def for_psycopg(text: str) -> bytes:
    return re.sub(r"\$(\d+)", lambda m: f"%(p{m[1]})s", text.replace("%", "%%")).encode()


async def psycopg_json(spot: PostgresSpot) -> tuple[Send, Any]:
    connection = await psycopg.AsyncConnection.connect(spot.url, autocommit=True)
    text, cursor = for_psycopg(json_text(spot.settings["schema"])), connection.cursor()

    async def send(new: list[dict[str, Any]]) -> None:
        params = {"p1": None, "p2": msgspec.json.encode(new).decode()}
        await (await cursor.execute(text, params)).fetchall()

    return send, connection


async def psycopg_unnest(spot: PostgresSpot) -> tuple[Send, Any]:
    connection = await psycopg.AsyncConnection.connect(spot.url, autocommit=True)
    text, cursor = for_psycopg(unnest_text(spot.settings["schema"])), connection.cursor()

    async def send(new: list[dict[str, Any]]) -> None:
        params: dict[str, Any] = {f"p{n}": each for n, each in enumerate(arrays(new), start=2)}
        await (await cursor.execute(text, {"p1": None, **params})).fetchall()

    return send, connection


async def psycopg_unnest_binary(spot: PostgresSpot) -> tuple[Send, Any]:
    connection = await psycopg.AsyncConnection.connect(spot.url, autocommit=True)
    text = re.sub(rb"%\((p\d+)\)s", rb"%(\1)b", for_psycopg(unnest_text(spot.settings["schema"])))
    cursor = connection.cursor(binary=True)

    async def send(new: list[dict[str, Any]]) -> None:
        params: dict[str, Any] = {f"p{n}": each for n, each in enumerate(arrays(new), start=2)}
        await (await cursor.execute(text, {"p1": None, **params})).fetchall()

    return send, connection


async def asyncpg_json(spot: PostgresSpot) -> tuple[Send, Any]:
    connection = await asyncpg.connect(spot.url)
    statement = await connection.prepare(json_text(spot.settings["schema"]))

    async def send(new: list[dict[str, Any]]) -> None:
        await statement.fetch(None, msgspec.json.encode(new).decode())

    return send, connection


async def asyncpg_unnest(spot: PostgresSpot) -> tuple[Send, Any]:
    connection = await asyncpg.connect(spot.url)
    statement = await connection.prepare(unnest_text(spot.settings["schema"]))

    async def send(new: list[dict[str, Any]]) -> None:
        await statement.fetch(None, *arrays(new))

    return send, connection


DRIVERS: Final[dict[str, Driver]] = {
    "psycopg, JSON": psycopg_json,
    "psycopg, unnest": psycopg_unnest,
    "psycopg, unnest, binary": psycopg_unnest_binary,
    "asyncpg, JSON": asyncpg_json,
    "asyncpg, unnest": asyncpg_unnest,
}


async def rate(place: PostgresPlace, driver: Driver, size: int, count: int) -> float:
    with place.spot() as spot:
        send, connection = await driver(spot)
        batches = [items(size) for _ in range(count + 10)]
        for batch in batches[:10]:
            await send(batch)
        watch = Stopwatch()
        for batch in batches[10:]:
            await send(batch)
        found = watch.rate(size * count).per_second
        await connection.close()
        return found


def main() -> None:
    best: dict[tuple[str, int], float] = {}
    with PostgresServer(DURABLE) as server:
        place = PostgresPlace(server)
        for _, size, name in itertools.product(range(ROUNDS), SIZES, DRIVERS):
            found = asyncio.run(rate(place, DRIVERS[name], size, SIZES[size]))
            best[name, size] = max(found, best.get((name, size), 0))
    first = next(iter(DRIVERS))
    rows = [
        [name, *(f"{best[name, s]:,.0f} ({best[name, s] / best[first, s]:.2f})" for s in SIZES)]
        for name in DRIVERS
    ]
    show("enqueue /s by batch (against psycopg, JSON)", ["", *(f"of {s:,}" for s in SIZES)], rows)


if __name__ == "__main__":
    main()
