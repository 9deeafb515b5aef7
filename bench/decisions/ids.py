"""Ids: what making one costs, and what a key costs SQLite by its kind."""

import os
import shutil
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import uuid_utils
from uuid_utils import compat

from bench.decisions import show
from bench.places import disk_directory
from bench.rounds import Stopwatch
from towpath import Settings
from towpath.database.sqlite import connect

MAKE: Final = 100_000
INSERT: Final = 200_000
ROUNDS: Final = 3


def pure_python_uuid7() -> uuid.UUID:
    random = int.from_bytes(os.urandom(10))
    value = (time.time_ns() // 1_000_000) << 80 | random
    value = value & ~(0xF000 << 64) & ~(0xC000 << 48) | 0x7000 << 64 | 0x8000 << 48
    return uuid.UUID(int=value)


MAKERS: Final[dict[str, Callable[[], Any]]] = {
    "uuid_utils.compat.uuid7 (ours)": compat.uuid7,
    "uuid_utils.uuid7 (its own type)": uuid_utils.uuid7,
    "uuid.uuid4": uuid.uuid4,
    "pure Python uuid7": pure_python_uuid7,
}
KEYS: Final[dict[str, tuple[str, Callable[[int], Any]]]] = {
    "integer": ("integer primary key", lambda n: n),
    "integer + unique uuid7 of 16 bytes (ours)": (
        "blob not null unique, seq integer primary key",
        lambda _: compat.uuid7().bytes,
    ),
    "uuid7, 16 bytes": ("blob not null primary key", lambda _: compat.uuid7().bytes),
    "uuid7, text": ("text not null primary key", lambda _: str(compat.uuid7())),
    "uuid4, 16 bytes": ("blob not null primary key", lambda _: uuid.uuid4().bytes),
    "uuid4, text": ("text not null primary key", lambda _: str(uuid.uuid4())),
}


def making(make: Callable[[], Any]) -> float:
    watch = Stopwatch()
    for _ in range(MAKE):
        make()
    return 1e6 / watch.rate(MAKE).per_second


def inserting(column: str, keys: list[Any]) -> tuple[float, float]:
    """Return insert and delete-by-key rates, 100 a commit, durability normal."""
    directory = disk_directory()
    connection = connect(directory / "file.db", Settings(durability="normal"))
    rowid = "" if "seq" in column or "integer" in column else " without rowid"
    connection.execute(f"create table job (id {column}, payload text){rowid}")
    try:
        watch = Stopwatch()
        for batch in in_batches(connection, keys):
            connection.executemany(
                "insert into job (id, payload) values (?, ?)", [(key, "x" * 100) for key in batch]
            )
        inserted = watch.rate(len(keys)).per_second
        watch = Stopwatch()
        for batch in in_batches(connection, keys):
            connection.executemany("delete from job where id = ?", [(key,) for key in batch])
        return inserted, watch.rate(len(keys)).per_second
    finally:
        connection.close()
        shutil.rmtree(directory)


def in_batches(connection: sqlite3.Connection, keys: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(keys), 100):
        connection.execute("begin immediate")
        yield keys[start : start + 100]
        connection.execute("commit")


def main() -> None:
    made = {name: min(making(make) for _ in range(ROUNDS)) for name, make in MAKERS.items()}
    show("making an id", ["", "µs"], [[name, taken] for name, taken in made.items()])
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in KEYS}
    for _ in range(ROUNDS):
        for name, (column, key) in KEYS.items():
            found[name].append(inserting(column, [key(n) for n in range(INSERT)]))
    best = {name: [max(rates) for rates in zip(*some, strict=True)] for name, some in found.items()}
    rows = [
        [name, i, i / best["integer"][0], d, d / best["integer"][1]]
        for name, (i, d) in best.items()
    ]
    show(
        f"SQLite by kind of key, {INSERT:,} rows of 100 B, 100 a commit",
        ["key", "insert /s", "ratio", "delete /s", "ratio"],
        rows,
    )


if __name__ == "__main__":
    main()
