"""HTTP: one server process asked over 50 connections, beside a bare Starlette echo."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
import psutil
from msgspec import Struct

from bench.places import Place
from bench.rounds import Floor, Plan, Rate, Result, by_turns, compared, p50_p99

CONNECTIONS = 50
BODY = json.dumps(
    {"topic": "bench", "payload": {"to": "ada@example.org", "n": [1, 2, 3]}, "maxRetries": 3}
)


def measure(place: Place, plan: Plan) -> Iterator[Result]:
    with place.spot() as spot, spot.app() as app, serving(spot) as server, echoing() as echo:
        _, secret = app.keys.create("bench", scopes=["enqueue", "manage", "work"])
        jobs = app.jobs.enqueue_many("seen", [{"to": "ada@example.org", "n": [1, 2, 3]}] * 1_000)
        paths = [f"/api/jobs/{job.id}" for job in jobs]
        shown = httpx.get(f"{server.url}{paths[0]}", headers=_bearer(secret)).text
        for kind in (
            Load("enqueue", "POST", ["/api/jobs/enqueue"], BODY, BODY),
            Load("get", "GET", paths, "", shown),
        ):
            yield from _compared(place, plan, kind, secret, (server, echo))
        yield bulk(place, plan, server, secret)
        yield remote_worker(place, plan, server, secret)


class Server:
    """A process that answers, and what it has used."""

    def __init__(self, process: "subprocess.Popen[str]", url: str) -> None:
        self.url = url
        self.port = int(url.rsplit(":", 1)[1])
        self._process = psutil.Process(process.pid)

    def cpu(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system

    def memory(self) -> int:
        return int(self._process.memory_info().rss)


@contextlib.contextmanager
def serving(spot: Any) -> Iterator[Server]:
    command = [sys.executable, "-m", "towpath", "serve", "--port", "0", "--json"]
    settings = {f"TOWPATH_{name.upper()}": str(value) for name, value in spot.settings.items()}
    with process([*command, "--database", spot.url], settings) as started:
        assert started.stdout
        yield Server(started, json.loads(started.stdout.readline())["url"])


@contextlib.contextmanager
def echoing() -> Iterator[Server]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with process([sys.executable, "-m", "bench.echo", str(port)], {}) as started:
        for _ in range(500):
            with contextlib.suppress(httpx.TransportError):
                httpx.post(f"http://127.0.0.1:{port}/echo")
                break
            time.sleep(0.01)
        yield Server(started, f"http://127.0.0.1:{port}")


@contextlib.contextmanager
def process(command: list[str], environment: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    try:
        yield started
    finally:
        started.terminate()
        started.wait(30)


class Load(Struct, frozen=True):
    """A kind of request, and what the echo gets instead: a body of the same size."""

    what: str
    method: str
    paths: list[str]
    body: str
    echoed: str


def _compared(
    place: Place, plan: Plan, kind: Load, secret: str, sides: tuple[Server, Server]
) -> Iterator[Result]:
    """SC-6: Compare one kind of request with an echo."""
    count = plan.count(10_000)
    taken: list[float] = []
    server, echo = sides
    asked = {"method": kind.method, "paths": kind.paths, "body": kind.body, "token": secret}
    echoed = {"method": "POST", "paths": ["/echo"], "body": kind.echoed, "token": secret}
    load(server, count, [], **asked)
    found, by_hand = by_turns(
        plan.rounds,
        lambda: load(server, count, taken, **asked),
        lambda: load(echo, count, [], **echoed),
    )
    said = p50_p99(taken)
    yield compared(
        place.name,
        f"HTTP {kind.what}, {CONNECTIONS} connections; bare = Starlette echo",
        found,
        by_hand,
        floor=Floor("ratio", ">", 0.6),
        note=f"p50 {said['p50_ms']:.1f} ms, p99 {said['p99_ms']:.1f} ms",
        details=said,
    )
    yield Result(
        database=place.name,
        what=f"SC-6: HTTP {kind.what}, {CONNECTIONS} connections, p99",
        unit="ms",
        ours=[said["p99_ms"]],
        floor=Floor("ours", "<", 20),
        less_is_better=True,
    )


def load(server: Server, count: int, taken: list[float], **spec: Any) -> Rate:
    """Run a load from a process of its own; the CPU time is that of the server."""
    given = {
        **spec,
        "connections": CONNECTIONS,
        "count": count,
        "host": "127.0.0.1",
        "port": server.port,
    }
    before = server.cpu()
    done = subprocess.run(
        [sys.executable, "-m", "bench.http_load", json.dumps(given)],
        stdout=subprocess.PIPE,
        check=True,
    )
    said = json.loads(done.stdout)
    taken += said["taken"]
    return Rate(said["per_second"], (server.cpu() - before) / count * 1e6)


def bulk(place: Place, plan: Plan, server: Server, secret: str) -> Result:
    """Measure requests with a thousand jobs each, one after the other."""
    jobs = {"jobs": [{"topic": "bulk", "payload": {"n": n}} for n in range(1_000)]}
    rates: list[float] = []
    with httpx.Client(base_url=server.url, headers=_bearer(secret), timeout=60) as client:
        for _ in range(plan.count(10, least=2)):
            begun = time.perf_counter()
            assert client.post("/api/jobs/enqueue-many", json=jobs).status_code == 201
            rates.append(1_000 / (time.perf_counter() - begun))
    return Result(
        database=place.name, what="HTTP enqueue-many of 1,000, one caller", unit="/s", ours=rates
    )


def remote_worker(place: Place, plan: Plan, server: Server, secret: str) -> Result:
    """Measure one remote worker: reserve ten, complete each."""
    count = plan.count(1_000)
    with httpx.Client(base_url=server.url, headers=_bearer(secret), timeout=60) as client:
        for _ in range(count // 1_000 + 1):
            jobs = {"jobs": [{"topic": "remote"}] * min(count, 1_000)}
            client.post("/api/jobs/enqueue-many", json=jobs)
        done, begun = 0, time.perf_counter()
        while done < count:
            wanted = {"topics": ["remote"], "limit": 10}
            for lease in client.post("/api/jobs/reserve", json=wanted).json()["leases"]:
                path = f"/api/jobs/{lease['job']['id']}/complete"
                assert client.post(path, json={"epoch": lease["epoch"]}).status_code == 204
                done += 1
        rate = done / (time.perf_counter() - begun)
    return Result(
        database=place.name,
        what="HTTP reserve 10 + complete each, one remote worker",
        unit="/s",
        ours=[rate],
    )


def _bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}
