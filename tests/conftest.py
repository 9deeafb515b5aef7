"""One app fixture, over every database and both colours."""

import asyncio
import gc
import inspect
import itertools
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from zlib import crc32

import pytest
from argon2 import PasswordHasher
from hypothesis import HealthCheck, settings

from tests.schemas import GivenPostgres, Schemas
from tests.servers import PostgresServer
from towpath import App
from towpath.app.delay_queue import Queue, Reservation
from towpath.model import passwords
from towpath.model.instants import instant, microseconds

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in the background of a shell; the programs that tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Test processes, and the programs that tests start, would compile all that they import each time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Both measure the machine, which other programs may load, and not what is tested.
settings.register_profile("towpath", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("towpath")

LONG = {"browser", "clients", "conformance"}  # directories whose tests take seconds each

_numbers = itertools.count(1)
Place = tuple[str, dict[str, str]]


class Clock:
    """A clock that moves only when told to."""

    def __init__(self) -> None:
        self.us = instant(datetime(2026, 11, 15, 12, 0, tzinfo=UTC))

    def __call__(self) -> int:
        return self.us

    def advance(self, duration: timedelta | float | str) -> None:
        self.us += microseconds(duration)

    def set_back(self, duration: timedelta | float | str) -> None:
        self.us -= microseconds(duration)

    @property
    def now(self) -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.us)


def pytest_addoption(parser) -> None:
    parser.addoption(
        "--all-pairs",
        action="store_true",
        help="run every behaviour blocking and async on every database",
    )


def pytest_xdist_auto_num_workers(config) -> int:
    """Many tests wait for what happens in other processes, so a core can serve three of them."""
    return 3 * (os.cpu_count() or 1)


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc) -> None:
    """Give a test of one database, where processes share it, the one that its name decides."""
    test = metafunc.definition
    asked = {mark.args[0] for mark in test.iter_markers("parametrize")}
    if (
        "durable_place" in metafunc.fixturenames
        and test.get_closest_marker("one_database")
        and not any("durable_place" in names for names in asked)
        and not metafunc.config.getoption("--all-pairs")
    ):
        number = crc32(metafunc.function.__name__.encode())
        chosen = ("sqlite", "postgres")[number % 2]
        test.add_marker(pytest.mark.parametrize("durable_place", [chosen], indirect=True))


def pytest_collection_modifyitems(items) -> None:
    """Let half of the test processes begin with what takes long, so that it does not end alone.

    A process gets a run of neighbours, and those that have done theirs take from its end.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    size = -(-len(items) // processes)
    long = [item for item in items if item.path.parent.name in LONG]
    rest = [item for item in items if item.path.parent.name not in LONG]
    first = max(1, processes // 2)  # not all: a browser needs a good part of the machine
    items.clear()
    for number in range(processes):
        here = long[number::first] if number < first else []
        share = max(0, size - len(here))
        items += here + rest[:share]
        del rest[:share]
    items += rest


def pytest_collection_finish(session) -> None:
    """Keep the thousands of tests, which stay, out of each garbage collection."""
    gc.collect()
    gc.freeze()


VERBS = {
    "jobs",
    "webhooks",
    "sagas",
    "dead_letters",
    "queues",
    "topics",
    "sessions",
    "limits",
    "schedules",
    "accounts",
    "keys",
    "access",
    "events",
}


class InLoop:
    """Lets a blocking test drive the async twins: `x.verb(…)` runs `x.averb(…)` in a loop."""

    def __init__(self, thing: object, loop: asyncio.AbstractEventLoop) -> None:
        self._thing = thing
        self._loop = loop

    def __getattr__(self, name: str):
        twin = getattr(self._thing, f"a{name}", None)
        if inspect.iscoroutinefunction(twin):
            return lambda *args, **kwargs: self._wrapped(
                asyncio.run_coroutine_threadsafe(twin(*args, **kwargs), self._loop).result()
            )
        found = getattr(self._thing, name)
        if name == "queue":
            return lambda *args: self._wrapped(found(*args))
        return InLoop(found, self._loop) if name in VERBS else found

    def _wrapped(self, result):
        return InLoop(result, self._loop) if isinstance(result, Queue | Reservation) else result


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(scope="session")
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server that this test process started."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def postgres(request) -> Iterator[PostgresServer | GivenPostgres]:
    """A PostgreSQL server for this test process: its own, or the one that a variable names.

    Tests of what only a server of their own can do set this fixture to `own_postgres`.
    """
    if url := os.environ.get("TOWPATH_TEST_POSTGRES"):
        with GivenPostgres(url) as given:
            yield given
    else:
        yield request.getfixturevalue("own_postgres")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def schemas(postgres) -> Schemas:
    """Schemas that tests hand on."""
    return Schemas.of(postgres)


@pytest.fixture
def postgres_schema(request, schemas) -> Iterator[str]:
    """The name of a schema: with our tables and nothing in them where a test takes any `place`."""
    if "place" in request.fixturenames and "untouched" not in request.fixturenames:
        schema = schemas.borrow()
        yield schema.name
        schemas.give_back(schema)
        return
    name = f"t{os.getpid()}_new{next(_numbers)}"
    yield name
    schemas.drop(name)


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory) -> Path:
    """A SQLite file with our tables: to make one takes longer than most tests."""
    file = tmp_path_factory.mktemp("empty") / "test.db"
    with App(f"sqlite:///{file}") as app:
        app.migrate()
    return file


@pytest.fixture
def untouched() -> None:
    """Asks for a database in which our tables are not made yet."""


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def kind(request) -> str:
    """The kind of database."""
    return request.param


@pytest.fixture
def place(kind, tmp_path, request) -> Place:
    """A new database: its URL, and the settings that it needs."""
    return new_place(kind, tmp_path, request)


@pytest.fixture(params=["sqlite", "postgres"])
def durable_place(request, tmp_path) -> Place:
    """A new database that outlives its app and that several processes can share."""
    return new_place(request.param, tmp_path, request)


def new_place(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    if kind == "memory":
        return "memory://", {}
    if kind == "sqlite":
        if "untouched" not in request.fixturenames:
            shutil.copy(request.getfixturevalue("empty_file"), tmp_path / "test.db")
        return f"sqlite:///{tmp_path}/test.db", {}
    server = request.getfixturevalue("postgres")
    return server.url(), {"schema": request.getfixturevalue("postgres_schema")}


def eventually(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


@pytest.fixture
def make_app(place) -> Iterator[Callable[..., App]]:
    """Make apps on one new database; they are closed after the test."""
    url, needed = place
    made: list[App] = []

    def make(**settings) -> App:
        made.append(App(url, **{**needed, **settings}))
        return made[-1]

    yield make
    for app in made:
        app.close()


@pytest.fixture
def quick_passwords(monkeypatch) -> None:
    """Hash passwords with parameters that are quick, and would be far too cheap."""
    quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    unknown = quick.hash(b"nobody")
    monkeypatch.setattr(passwords, "_hasher", lambda: quick)
    monkeypatch.setattr(passwords, "_hash_of_unknown", lambda: unknown)


@pytest.fixture(params=["blocking", "async"])
def colour(request, loop) -> Callable[[App], App]:
    """Make an app blocking or async; the test reads the same."""
    return (lambda app: app) if request.param == "blocking" else (lambda app: InLoop(app, loop))


@pytest.fixture
def app(make_app, colour, clock) -> App:
    """An app on every database, in both colours, whose clock the test moves."""
    return colour(make_app(clock=clock))


@pytest.fixture
def live(make_app, colour) -> App:
    """An app on every database, in both colours, on real time."""
    return colour(make_app())
