"""beanstalkd's protocol: our server, beside the real one where it is on the PATH.

On SQLite it is towpath-beanstalkd with -b, on PostgreSQL towpath serve, which has no peer.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
from msgspec import Struct

from bench.places import Place, disk_directory
from bench.rounds import Floor, Plan, Rate, Result, by_turns, compared

SCRIPT = Path(__file__).parent.parent / "src" / "towpath_beanstalkd.py"
OURS = (sys.executable, str(SCRIPT))
SYNCED = {"full": "-f0", "normal": "-f50"}


class Load(Struct, frozen=True):
    """What clients do."""

    what: str
    connections: int
    pipelined: int
    count: int

    def __str__(self) -> str:
        name = {"put": "put", "cycle": "reserve + delete"}[self.what]
        manner = f"{self.pipelined} at once" if self.pipelined > 1 else "one by one"
        plural = "s" if self.connections > 1 else ""
        return f"beanstalkd {name}, {self.connections} connection{plural}, {manner}"


LOADS = [
    Load(what, connections, pipelined, count)
    for connections, pipelined, count in ((1, 1, 2_000), (10, 1, 10_000), (10, 100, 20_000))
    for what in ("put", "cycle")
]


def measure(place: Place, plan: Plan) -> Iterator[Result]:
    if place.kind == "postgres":
        with place.spot() as spot, serving(spot) as ours:
            yield from rates(place.name, plan, [ours])
        return
    durability = place.name.removeprefix("SQLite ")
    yield from beside_the_real_one(f"{place.name} ({SYNCED[durability]})", plan, durability)
    if durability == "normal":
        yield from beside_the_real_one("in memory", plan, None)


def beside_the_real_one(name: str, plan: Plan, durability: str | None) -> Iterator[Result]:
    real = shutil.which("beanstalkd")
    with contextlib.ExitStack() as stack:
        servers: list[Server] = []
        for command in (OURS, (real,)) if real else (OURS,):
            directory = disk_directory()
            stack.callback(shutil.rmtree, directory)
            stored = () if durability is None else ("-b", str(directory), SYNCED[durability])
            servers.append(stack.enter_context(started(*command, *stored)))
        yield from rates(name, plan, servers)


def rates(name: str, plan: Plan, servers: Sequence["Server"]) -> Iterator[Result]:
    for load in LOADS:
        measures = [
            lambda server=server, load=load: asked(server, load, plan) for server in servers
        ]
        asked(servers[0], load, plan)  # warm
        if len(measures) == 1:
            ours, bare = [measures[0]() for _ in range(plan.rounds)], []
        else:
            ours, bare = by_turns(plan.rounds, *measures)
        durable_puts = "-f0" in name and load.what == "put" and load.connections > 1
        floor = Floor("ratio", ">", 1.0) if durable_puts and load.pipelined == 1 else None
        yield compared(name, f"{load}; peer = beanstalkd", ours, bare, floor=floor)


class Server:
    """A process that speaks the protocol, and what it has used."""

    def __init__(self, pid: int, port: int) -> None:
        self.port = port
        self._process = psutil.Process(pid)

    def cpu(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system


@contextlib.contextmanager
def started(*command: str) -> Iterator[Server]:
    port = free_port()
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parent)}
    process = subprocess.Popen(
        [*command, "-l", "127.0.0.1", "-p", str(port)], env=environment, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(500):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.01)
        yield Server(process.pid, port)
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def serving(spot) -> Iterator[Server]:  # noqa: ANN001 - any spot
    command = [sys.executable, "-m", "towpath", "serve", "--port", "0", "--json"]
    settings = {f"TOWPATH_{name.upper()}": str(value) for name, value in spot.settings.items()}
    process = subprocess.Popen(
        [*command, "--database", spot.url, "--beanstalkd", "127.0.0.1:0"],
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout
        said = json.loads(process.stdout.readline())
        yield Server(process.pid, int(said["beanstalkd"].rsplit(":", 1)[1]))
    finally:
        process.terminate()
        process.wait(30)


def asked(server: Server, load: Load, plan: Plan) -> Rate:
    """Run a load from a process of its own; the CPU time is that of the server."""
    count = plan.count(load.count, least=1_000)
    if load.what == "cycle":
        prepare(server, load, plan)
    before = server.cpu()
    said = run(server, load, count)
    return Rate(said, (server.cpu() - before) / count * 1e6)


def prepare(server: Server, load: Load, plan: Plan) -> None:
    """Put as many jobs as will be reserved."""
    run(server, Load("put", 10, 100, 0), plan.count(load.count, least=1_000))


def run(server: Server, load: Load, count: int) -> float:
    given = {
        "port": server.port,
        "what": load.what,
        "connections": load.connections,
        "pipelined": load.pipelined,
        "count": count,
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.beanstalkd_load", json.dumps(given)],
        stdout=subprocess.PIPE,
        check=True,
    )
    return float(json.loads(done.stdout)["per_second"])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
