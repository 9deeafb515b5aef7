"""The bare driver doing our SQL: no app, no lanes, no Job built; rows are fetched, that is all.

Parameters are made ahead of the clock wherever they do not depend on an answer.
"""

import itertools
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from psycopg import AsyncConnection, Connection

from towpath import Settings
from towpath.database import sqlite
from towpath.database.postgres import bound, rendered
from towpath.database.sqlite import StatementChain
from towpath.model.ids import uuid7
from towpath.statement import Query, Row
from towpath.store import jobs, leases, reserving
from towpath.store.jobs import NewJob
from towpath.store.leases import Completion
from towpath.store.reserving import Range

TOPIC: Final = "mail"
PAYLOAD: Final = {"to": "somebody@example.org", "text": "x" * 56}  # about 100 bytes of JSON
BODY: Final = msgspec.json.encode(PAYLOAD).decode()
RETENTION: Final = 3 * 86_400 * 10**6
PRIORITY: Final = 50

Prepared = Any
_tokens: Final = itertools.count(1)
_SQL: Final = {
    "enqueue_one": jobs.sql.enqueue_one,
    "enqueue": jobs.sql.enqueue,
    "reserve": reserving.sql.reserve,
    "complete": leases.sql.complete,
}


def items(count: int, body: str = BODY) -> list[dict[str, Any]]:
    """Make what the enqueue statement takes."""
    return [
        NewJob(
            id=uuid7(),
            topic=TOPIC,
            body=body,
            encoding="json",
            priority=PRIORITY,
            ttr=300 * 10**6,
        ).as_item(nth)
        for nth in range(count)
    ]


def completions(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Make what the complete statement takes, from the rows of a reservation."""
    waited = {"waited": 0, "wait_bucket": 0}
    return [
        {"seq": row[0], "epoch": row[12], "retention": RETENTION, "result": None, **waited}
        for row in rows
    ]


assert completions([[0] * 13])[0].keys() == Completion(seq=0, epoch=0).as_item().keys()


class Bare(Protocol):
    """Our verbs, by hand."""

    def prepared(self, new: list[dict[str, Any]]) -> Prepared: ...

    def enqueue(self, new: Prepared) -> list[Row]: ...

    def reserve(self, limit: int) -> list[Row]: ...

    def complete(self, rows: Sequence[Row]) -> list[Row]: ...

    def alone(self, verb: Callable[[Any], list[Row]], argument: object) -> list[Row]: ...

    def begin(self) -> None: ...

    def commit(self) -> None: ...

    def close(self) -> None: ...


class _Postgres:
    """The texts and parameters of PostgreSQL."""

    def __init__(self, schema: str) -> None:
        self._texts = {name: rendered(statement, schema) for name, statement in _SQL.items()}
        self._ranges = self._everywhere = _json([Range(TOPIC)])

    def prepared(self, new: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
        if len(new) == 1:
            return "enqueue_one", bound(Query(_SQL["enqueue_one"], new[0]), None)
        return "enqueue", bound(Query(_SQL["enqueue"], {}, new), None)

    def _reserving(self, limit: int) -> dict[str, Any]:
        return {
            "topic": TOPIC, "ranges": self._ranges, "limit": limit,
            "token": next(_tokens), "session": None, "worker": None, "expires": False,
            "limited": False, "now": None,
        }  # fmt: skip

    def _completing(self, rows: Sequence[Row]) -> dict[str, Any]:
        return {"items": _json(completions(rows)), "now": None}

    def _marked(self, rows: list[Row], limit: int) -> list[Row]:
        """Keep the low-water mark, as the app does."""
        if len(rows) < limit:
            self._ranges = self._everywhere
        else:
            seq, now = max(row[0] for row in rows), rows[0][19]
            self._ranges = _json(
                [
                    Range(TOPIC, upto=PRIORITY - 1, due_from=now),
                    Range(TOPIC, PRIORITY, seq, due_from=now),
                ]
            )
        return rows


class BarePostgres(_Postgres):
    """psycopg, blocking."""

    def __init__(self, connection: Connection[Any], schema: str) -> None:
        super().__init__(schema)
        self.connection = connection
        self._cursor = connection.cursor()
        self.close = connection.close

    def enqueue(self, new: Prepared) -> list[Row]:
        return self._run(*new)

    def reserve(self, limit: int) -> list[Row]:
        return self._marked(self._run("reserve", self._reserving(limit)), limit)

    def complete(self, rows: Sequence[Row]) -> list[Row]:
        return self._run("complete", self._completing(rows))

    def alone(self, verb: Callable[[Any], list[Row]], argument: object) -> list[Row]:
        return verb(argument)

    def begin(self) -> None:
        self._cursor.execute("begin")

    def commit(self) -> None:
        self._cursor.execute("commit")

    def _run(self, name: str, params: dict[str, Any]) -> list[Row]:
        return self._cursor.execute(self._texts[name], params).fetchall()


class AsyncBarePostgres(_Postgres):
    """psycopg, async."""

    def __init__(self, connection: AsyncConnection[Any], schema: str) -> None:
        super().__init__(schema)
        self.connection = connection
        self._cursor = connection.cursor()
        self.close = connection.close

    async def enqueue(self, new: Prepared) -> list[Row]:
        return await self._run(*new)

    async def reserve(self, limit: int) -> list[Row]:
        return self._marked(await self._run("reserve", self._reserving(limit)), limit)

    async def complete(self, rows: Sequence[Row]) -> list[Row]:
        return await self._run("complete", self._completing(rows))

    async def begin(self) -> None:
        await self._cursor.execute("begin")

    async def commit(self) -> None:
        await self._cursor.execute("commit")

    async def _run(self, name: str, params: dict[str, Any]) -> list[Row]:
        cursor = await self._cursor.execute(self._texts[name], params)
        return await cursor.fetchall()


class BareSqlite:
    """The sqlite3 of the standard library, with our PRAGMAs."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.connection = sqlite.connect(path, settings)
        self._cursor: sqlite3.Cursor = self.connection.cursor()
        self._execute = self._cursor.execute
        self._chains = {name: StatementChain(each.text("sqlite")) for name, each in _SQL.items()}
        self.close = self.connection.close

    def prepared(self, new: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**item, "id": item["id"].bytes} for item in new]

    def enqueue(self, new: Prepared) -> list[Row]:
        now = _now()
        if len(new) == 1:
            return self._chains["enqueue_one"].run(self._cursor, {**new[0], "now": now}) or []
        for item in new:
            item["now"] = now
        return self._chains["enqueue"].run(self._cursor, {"now": now}, new) or []

    def reserve(self, limit: int) -> list[Row]:
        params = {
            "topic": TOPIC, "limit": limit, "token": next(_tokens), "session": None,
            "worker": None, "expires": False, "limited": False, "now": _now(),
        }  # fmt: skip
        return self._chains["reserve"].run(self._cursor, params) or []

    def complete(self, rows: Sequence[Row]) -> list[Row]:
        params = {"items": _json(completions(rows)), "now": _now()}
        return self._chains["complete"].run(self._cursor, params) or []

    def alone(self, verb: Callable[[Any], list[Row]], argument: object) -> list[Row]:
        self._execute("begin immediate")
        rows = verb(argument)
        self._execute("commit")
        return rows

    def begin(self) -> None:
        self._execute("begin immediate")

    def commit(self) -> None:
        self._execute("commit")


def _now() -> int:
    return time.time_ns() // 1_000


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
