"""Places to measure: a PostgreSQL server, and SQLite files on a real disk."""

import contextlib
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import psycopg

from bench.bare import AsyncBarePostgres, Bare, BarePostgres, BareSqlite
from tests.servers import PostgresServer
from towpath import App, Settings

DURABLE: Final[Mapping[str, str | int]] = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_wal_size": "4GB",  # no checkpoint in the middle of a round
}
_numbers: Final = itertools.count(1)


class Spot(Protocol):
    """A database with our tables and nothing in them."""

    url: str
    settings: dict[str, Any]

    def app(self, **settings: object) -> App: ...

    def bare(self) -> Bare: ...

    def tidy(self) -> None:
        """Do now what the database might otherwise do in the middle of a measurement."""
        ...


class Place(Protocol):
    """Where databases are made."""

    name: str
    kind: str

    def spot(self) -> contextlib.AbstractContextManager[Any]: ...


class PostgresSpot:
    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        self.settings: dict[str, Any] = {"schema": schema}
        with App(url, **self.settings) as app:
            app.migrate()

    def app(self, **settings: object) -> App:
        return App(self.url, **{**self.settings, **settings})

    def bare(self) -> BarePostgres:
        return BarePostgres(psycopg.connect(self.url, autocommit=True), self.settings["schema"])

    async def abare(self) -> AsyncBarePostgres:
        connection = await psycopg.AsyncConnection.connect(self.url, autocommit=True)
        return AsyncBarePostgres(connection, self.settings["schema"])

    def tidy(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("vacuum analyze")
            connection.execute("checkpoint")


class PostgresPlace:
    name = "PostgreSQL"
    kind = "postgres"

    def __init__(self, server: PostgresServer) -> None:
        self.server = server

    @contextlib.contextmanager
    def spot(self) -> Iterator[PostgresSpot]:
        spot = PostgresSpot(self.server.url(), f"bench{os.getpid()}_{next(_numbers)}")
        try:
            yield spot
        finally:
            with psycopg.connect(spot.url, autocommit=True) as connection:
                connection.execute(f'drop schema "{spot.settings["schema"]}" cascade'.encode())


class SqliteSpot:
    def __init__(self, path: Path, durability: str) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        self.settings: dict[str, Any] = {"durability": durability}
        with App(self.url, **self.settings) as app:
            app.migrate()

    def app(self, **settings: object) -> App:
        return App(self.url, **{**self.settings, **settings})

    def bare(self) -> BareSqlite:
        return BareSqlite(self.path, Settings(**self.settings))

    def tidy(self) -> None:
        bare = self.bare()
        bare.connection.execute("pragma wal_checkpoint(truncate)").fetchall()
        bare.close()


class SqlitePlace:
    kind = "sqlite"

    def __init__(self, durability: str) -> None:
        self.durability = durability
        self.name = f"SQLite {durability}"

    @contextlib.contextmanager
    def spot(self) -> Iterator[SqliteSpot]:
        directory = disk_directory()
        try:
            yield SqliteSpot(directory / "bench.db", self.durability)
        finally:
            shutil.rmtree(directory)


def disk_directory() -> Path:
    """Make a directory on a real disk, for memory makes every commit look durable."""
    for parent in (tempfile.gettempdir(), "/var/tmp", str(Path.home())):  # noqa: S108 - one of them
        if os.access(parent, os.W_OK) and _file_system(parent) not in {"tmpfs", "ramfs"}:
            return Path(tempfile.mkdtemp(prefix="towpath-bench-", dir=parent))
    raise RuntimeError("there is no directory on a real disk: set TMPDIR to one")


def _file_system(path: str) -> str:
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    above = [(len(point), kind) for point, kind in mounts if Path(path).is_relative_to(point)]
    return max(above)[1] if above else ""


def fsync_seconds(times: int = 200) -> float:
    """Return how long an fsync of 4 KiB takes here, as a median."""
    directory = disk_directory()
    taken: list[float] = []
    try:
        with (directory / "file").open("wb", buffering=0) as file:
            for _ in range(times):
                file.write(b"x" * 4096)
                start = time.perf_counter()
                os.fsync(file)
                taken.append(time.perf_counter() - start)
    finally:
        shutil.rmtree(directory)
    return sorted(taken)[times // 2]
