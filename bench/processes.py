"""Four processes on one SQLite file: what they reach together, and whether each gets its share."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from bench.places import Place
from bench.rounds import Plan, Result

PROCESSES = 4


def measure(place: Place, plan: Plan) -> Iterator[Result]:
    """Measure full cycles; bare has no turn lock, only SQLite's own busy_timeout."""
    if place.kind != "sqlite":
        return
    seconds = max(1.0, 5.0 * plan.scale)
    ours: list[list[dict[str, Any]]] = []
    bare: list[list[dict[str, Any]]] = []
    for _ in range(plan.rounds):
        ours.append(together(place, "cycle", seconds, PROCESSES))
        bare.append(together(place, "bare-cycle", seconds, PROCESSES))
    yield Result(
        database=place.name,
        what=f"{PROCESSES} processes, full cycles, together",
        unit="/s",
        ours=[sum(one["jobs"] for one in run) / seconds for run in ours],
        bare=[sum(one["jobs"] for one in run) / seconds for run in bare],
        details={"ours": ours, "bare": bare},
    )
    yield Result(
        database=place.name,
        what=f"{PROCESSES} processes, fairness (least / most jobs)",
        unit="",
        ours=[_fairness(run) for run in ours],
        bare=[_fairness(run) for run in bare],
    )
    yield Result(
        database=place.name,
        what=f"{PROCESSES} processes, longest wait of one operation",
        unit="ms",
        ours=[max(one["longest"] for one in run) * 1e3 for run in ours],
        bare=[max(one["longest"] for one in run) * 1e3 for run in bare],
        less_is_better=True,
        note=f"p99 {max(one['p99'] for one in ours[-1]) * 1e3:.1f}",
    )


def together(place: Place, verb: str, seconds: float, count: int) -> list[dict[str, Any]]:
    """Have so many children do the same for a time, on one database; return what each says."""
    with place.spot() as spot:
        command = [sys.executable, "-m", "bench.child", verb, spot.url, json.dumps(spot.settings)]
        children = [
            subprocess.Popen(
                [*command, str(seconds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(count)
        ]
        for child in children:
            assert child.stdout
            child.stdout.readline()  # it has opened the file
        for child in children:
            assert child.stdin
            child.stdin.write("go\n")
            child.stdin.flush()
        return [json.loads(child.communicate()[0]) for child in children]


def _fairness(run: list[dict[str, Any]]) -> float:
    counts = [one["jobs"] for one in run]
    return min(counts) / max(counts)
