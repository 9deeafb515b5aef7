"""Faults are real: real processes, real signals, real servers. Nothing outlives its test."""

import faulthandler
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import NoReturn

import pytest

from tests.faults.books import Books
from tests.faults.processes import Program
from tests.faults.sizes import many
from tests.servers import PostgresServer
from towpath.database import sqlite_writer

MOST_SECONDS = 300  # that one test may take before it counts as hanging, on a loaded machine


@pytest.fixture(scope="session")
def postgres(own_postgres) -> PostgresServer:
    """A server that no other program uses: tests read its log and cut off all its clients."""
    return own_postgres


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request) -> str:
    """The kind of database; one in memory has no processes to lose."""
    return request.param


@pytest.fixture(params=["sqlite", "sqlite on a slow disk", "postgres"])
def kind_and_disk(request, monkeypatch) -> str:
    """The kind, and both ways on SQLite: a loop leaves commits to a thread where they are slow."""
    name, _, slow = request.param.partition(" ")
    if slow:
        monkeypatch.setattr(sqlite_writer, "SLOW_COMMIT", 0)
    return name


@pytest.fixture
def books(place) -> Books:
    """What the database of this test really holds."""
    url, needed = place
    return Books(url, **needed)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """Threads for calls that have to wait for each other."""
    with ThreadPoolExecutor(4) as threads:
        yield threads


@pytest.fixture
def start(place) -> Iterator[Callable[..., Program]]:
    """Start programs on the database of this test; they end with it at the latest."""
    url, needed = place
    started: list[Program] = []

    def begin(name: str, *, settings: dict[str, object] | None = None, **arguments) -> Program:
        given = {"url": url, "settings": {**needed, **(settings or {})}, **arguments}
        started.append(Program(name, **given))
        return started[-1]

    yield begin
    for program in started:
        program.end()


@pytest.fixture(autouse=True)
def _no_test_hangs() -> Iterator[None]:
    """Fail a test that takes too long: what we look for often shows itself by waiting for ever."""

    def give_up(number: int, frame: FrameType | None) -> NoReturn:
        raise AssertionError(f"the test took longer than {many(MOST_SECONDS)} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(many(MOST_SECONDS))
    # What hangs may hang again while it is cleaned up: then the whole test process ends. This takes
    # the place of pytest's own limit, which is too short for a soak.
    faulthandler.dump_traceback_later(many(MOST_SECONDS) + 15, exit=True)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    faulthandler.cancel_dump_traceback_later()
