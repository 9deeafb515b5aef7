"""Live events: fan-out to many WebSockets, their memory, and the time from a publish to one."""

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Self

from bench.http import Server, process, serving
from bench.live_load import CHANNEL
from bench.places import Place
from bench.rounds import Floor, Plan, Rate, Result, by_turns, compared, p50_p99

SOCKETS = 1_000
EVENTS = 200
STUCK = 50
PAUSE = 0.01  # seconds between two publishes whose latencies count


def measure(place: Place, plan: Plan) -> Iterator[Result]:
    sockets, events = plan.count(SOCKETS), plan.count(EVENTS)
    with place.spot() as spot, spot.app() as app, serving(spot) as ours, broadcasting() as bare:
        token = app.keys.create("bench", scopes=["publish", "subscribe"])[1]
        yield memory(place, sockets, (ours, token), (bare, None))
        quick = by_turns(
            plan.rounds,
            lambda: fan_out(ours, token, sockets, events),
            lambda: fan_out(bare, None, sockets, events),
        )
        what = f"fan-out to {sockets:,} WebSockets; bare = a broadcast loop"
        yield compared(place.name, what, *quick, floor=Floor("ratio", ">", 0.5))
        stuck = STUCK * sockets // SOCKETS
        slowed = [fan_out(ours, token, sockets - stuck, events, stuck) for _ in range(plan.rounds)]
        what = f"fan-out while {stuck} of {sockets:,} do not read; bare = all read"
        yield compared(place.name, what, slowed, quick[0], floor=Floor("ratio", ">", 0.5))
        yield heard(place, ours, token, plan.count(300), None)
        yield heard(place, ours, token, plan.count(300), app)


@contextlib.contextmanager
def broadcasting() -> Iterator[Server]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with process([sys.executable, "-m", "bench.broadcast", str(port)], {}) as started:
        for _ in range(500):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.01)
        yield Server(started, f"http://127.0.0.1:{port}")


class Load:
    """WebSockets of another process, attached to a server."""

    def __init__(self, server: Server, token: str | None, **spec: Any) -> None:
        given = {"port": server.port, "token": token, "stuck": 0, "pause": 0, "publishes": True}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.live_load", json.dumps({**given, **spec})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._hear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def _hear(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the load has failed"
        return line

    def go(self) -> None:
        assert self._process.stdin
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._hear())
        return found


def fan_out(server: Server, token: str | None, sockets: int, events: int, stuck: int = 0) -> Rate:
    """Publish over one socket; count what all others get. The CPU time is that of the server."""
    with Load(server, token, sockets=sockets, stuck=stuck, events=events) as load:
        before = server.cpu()
        load.go()
        seconds = load.result()["seconds"]
        return Rate(sockets * events / seconds, (server.cpu() - before) / sockets / events * 1e6)


def memory(
    place: Place, sockets: int, ours: tuple[Server, str | None], bare: tuple[Server, str | None]
) -> Result:
    """Measure what a server grows by for each socket that is attached and idle."""

    def of_each(server: Server, token: str | None) -> float:
        Load(server, token, sockets=1, events=1).__exit__()  # what only the first one needs
        before = server.memory()
        with Load(server, token, sockets=sockets, events=1, publishes=False):
            return (server.memory() - before) / sockets / 1_024

    return Result(
        database=place.name,
        what="memory of an idle WebSocket; bare = one that is broadcast to",
        unit="KiB",
        ours=[of_each(*ours)],
        bare=[of_each(*bare)],
        floor=Floor("ratio", "<", 2),
        less_is_better=True,
    )


def heard(place: Place, server: Server, token: str, count: int, other: Any) -> Result:
    """Measure from a publish, over another socket or by another process, to a WebSocket."""
    spec = {"sockets": 1, "events": count, "pause": PAUSE, "publishes": other is None}
    with Load(server, token, **spec) as load:
        load.go()
        for n in range(count if other else 0):
            other.events.publish(CHANNEL, {"n": n, "sent": time.monotonic()})
            time.sleep(PAUSE)
        found = p50_p99(load.result()["taken"])
    where = "another process" if other else "the same process"
    return Result(
        database=place.name,
        what=f"publish in {where} to a WebSocket, p50",
        unit="ms",
        ours=[found["p50_ms"]],
        floor=Floor("ours", "<", 10),
        less_is_better=True,
        note=f"p99 {found['p99_ms']:.2f}",
        details=found,
    )
