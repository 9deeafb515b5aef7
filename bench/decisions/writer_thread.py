"""Group commit on SQLite: in the event loop's own tick, or in one writer thread.

Each caller inserts a row and awaits its commit. Bare commits as many rows at once as there are
callers.
"""

import asyncio
import itertools
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final

from bench.decisions import show
from bench.places import disk_directory
from bench.rounds import Stopwatch
from towpath import Settings
from towpath.database.sqlite import connect

COUNTS: Final = {1: 3_000, 10: 10_000, 100: 30_000}
INSERT: Final = "insert into job (topic, payload) values ('mail', ?)"
BODY: Final = "x" * 100
ROUNDS: Final = 3


def commit(connection: sqlite3.Connection, bodies: list[str]) -> None:
    execute = connection.execute
    execute("begin immediate")
    for body in bodies:
        execute(INSERT, (body,))
    execute("commit")


class Inline:
    """One transaction per tick: all calls that are ready now share it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._inbox: list[tuple[str, asyncio.Future[None]]] = []

    def put(self, body: str) -> asyncio.Future[None]:
        future = self._loop.create_future()
        if not self._inbox:
            self._loop.call_soon(self._flush)
        self._inbox.append((body, future))
        return future

    def _flush(self) -> None:
        batch, self._inbox = self._inbox, []
        commit(self._connection, [body for body, _ in batch])
        for _, future in batch:
            future.set_result(None)

    def close(self) -> None:
        pass


class WriterThread:
    """All go through one thread, which takes whatever has gathered."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._inbox: SimpleQueue[tuple[str, asyncio.Future[None]] | None] = SimpleQueue()
        self._thread = Thread(target=self._write)
        self._thread.start()

    def put(self, body: str) -> asyncio.Future[None]:
        future = self._loop.create_future()
        self._inbox.put((body, future))
        return future

    def _write(self) -> None:
        while (first := self._inbox.get()) is not None:
            batch = [first]
            while not self._inbox.empty() and (more := self._inbox.get()) is not None:
                batch.append(more)
            commit(self._connection, [body for body, _ in batch])
            self._loop.call_soon_threadsafe(self._settle, [future for _, future in batch])

    def _settle(self, futures: list[asyncio.Future[None]]) -> None:
        for future in futures:
            future.set_result(None)

    def close(self) -> None:
        self._inbox.put(None)
        self._thread.join()


def on_a_file(durability: str, measure: Callable[[sqlite3.Connection], float]) -> float:
    directory: Path = disk_directory()
    connection = connect(directory / "file.db", Settings(durability=durability))
    connection.execute("create table job (seq integer primary key, topic text, payload text)")
    try:
        return measure(connection)
    finally:
        connection.close()
        shutil.rmtree(directory)


def concurrent(kind: Callable[[sqlite3.Connection], Any], callers: int) -> Any:
    each = COUNTS[callers] // callers

    async def measure(connection: sqlite3.Connection) -> float:
        lane = kind(connection)

        async def call() -> None:
            for _ in range(each):
                await lane.put(BODY)

        watch = Stopwatch()
        await asyncio.gather(*(call() for _ in range(callers)))
        rate = watch.rate(each * callers).per_second
        lane.close()
        return rate

    return lambda connection: asyncio.run(measure(connection))


def bare(callers: int) -> Callable[[sqlite3.Connection], float]:
    def measure(connection: sqlite3.Connection) -> float:
        bodies = [BODY] * callers
        watch = Stopwatch()
        for _ in range(COUNTS[callers] // callers):
            commit(connection, bodies)
        return watch.rate(COUNTS[callers]).per_second

    return measure


def main() -> None:
    rows: list[list[object]] = []
    for durability, callers in itertools.product(("full", "normal"), COUNTS):
        sides = (bare(callers), concurrent(Inline, callers), concurrent(WriterThread, callers))
        rounds = [[on_a_file(durability, side) for side in sides] for _ in range(ROUNDS)]
        by_hand, inline, thread = (max(rates) for rates in zip(*rounds, strict=True))
        rows.append(
            [f"{durability}, {callers} callers", by_hand, inline, inline / by_hand, thread,
             thread / by_hand]
        )  # fmt: skip
    columns = ["", "bare /s", "inline /s", "ratio", "writer thread /s", "ratio"]
    show("group commit on SQLite, inserts", columns, rows)


if __name__ == "__main__":
    main()
