"""Others, going through the same number of waiting jobs in the same run.

They are installed into an environment that is thrown away, and are never a dependency. A line's
`bare` is the peer. Both sides end when the last outcome is stored; Huey stores none.
"""

import functools
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg

from bench.bare import BODY
from bench.places import Place, disk_directory
from bench.rounds import Floor, Plan, Rate, Result, by_turns, compared
from bench.worker import JOBS, drained

PINNED: Final = ("pgqueuer==1.6.0", "huey==3.5.4", "asyncpg==0.32.0", "uvloop==0.23.0")
PROGRAMS: Final = Path(__file__).parent


def measure(place: Place, plan: Plan) -> Iterator[Result]:
    def ours() -> Rate:
        return drained(place, "nothing", JOBS)[0]

    if place.kind == "postgres":
        peer, floor, theirs = "PgQueuer 1.6", 1.0, functools.partial(_pgqueuer, place)
    else:
        peer, floor, theirs = "Huey 3.5", *_against_huey(place)
    _environment()  # ahead of the clock
    yield compared(
        place.name,
        f"worker: {JOBS:,} waiting jobs, against {peer}",
        *by_turns(plan.rounds, ours, theirs),
        floor=Floor("ratio", ">", floor),
    )


def _against_huey(place: Any) -> tuple[float, Any]:
    floor = 4.0 if place.durability == "full" else 2.0
    return floor, functools.partial(_huey, place.durability)


def _pgqueuer(place: Any) -> Rate:
    name = "pgqueuer"
    with psycopg.connect(place.server.url(), autocommit=True) as connection:
        connection.execute(f"create database {name}")
        try:
            return _measured("pgqueuer_worker.py", place.server.url(name), tidy=True)
        finally:
            connection.execute(f"drop database {name} with (force)")


def _huey(synchronous: str) -> Rate:
    directory = disk_directory()
    try:
        return _measured("huey_worker.py", str(directory / "huey.db"), synchronous)
    finally:
        shutil.rmtree(directory)


def _measured(program: str, where: str, *more: str, tidy: bool = False) -> Rate:
    """Have a peer fill its queue, and measure how it empties it."""
    command = [_environment(), "-I", PROGRAMS / program, where, str(JOBS), *more, BODY]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        if tidy:  # as before each of our own rounds
            with psycopg.connect(where, autocommit=True) as connection:
                connection.execute("vacuum analyze")
                connection.execute("checkpoint")
        found = json.loads(process.communicate("go\n")[0])
    return Rate(JOBS / found["seconds"], found["cpu"] / JOBS * 1e6)


@functools.cache
def _kept() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="towpath-peers-")  # until this process ends


@functools.cache
def _environment() -> Path:
    """Make an environment with the peers in it, once; return its Python."""
    python = Path(_kept().name) / "venv" / "bin" / "python"
    print("installing", *PINNED, file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True)
    pip = [python, "-m", "pip", "install", "-qq", "--no-input", "--disable-pip-version-check"]
    subprocess.run([*pip, *PINNED], check=True)
    return python
