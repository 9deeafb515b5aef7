"""Rounds: ours and bare by turns, and what came of them."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec import Struct


class Rate(Struct, frozen=True):
    """How fast something was done, and what it cost this process."""

    per_second: float
    cpu_us: float  # for each; a busy machine disturbs it far less than the rate


Measure = Callable[[], Rate]


class Floor(Struct, frozen=True):
    """What must hold before a change may land."""

    of: Literal["ours", "ratio"]
    sign: Literal["<", ">"]
    value: float

    def __str__(self) -> str:
        word = "≤" if self.sign == "<" else "≥"
        return f"{word} {self.value:,g}{' x' if self.of == 'ratio' else ''}"


class Result(Struct, frozen=True, kw_only=True):
    """One line of a table."""

    database: str
    what: str
    unit: str
    ours: list[float]  # one for each round
    bare: list[float] = []
    cpu_us: list[float] = []  # of this process for each, at best: ours, bare
    floor: Floor | None = None
    less_is_better: bool = False
    note: str = ""
    details: dict[str, Any] = {}

    @property
    def best(self) -> float:
        return self._best(self.ours)

    @property
    def best_bare(self) -> float | None:
        return self._best(self.bare) if self.bare else None

    @property
    def ratio(self) -> float | None:
        """Best against best: noise only ever slows down."""
        return self.best / self.best_bare if self.best_bare else None

    @property
    def median_ratio(self) -> float | None:
        return statistics.median(self.ours) / statistics.median(self.bare) if self.bare else None

    @property
    def met(self) -> bool | None:
        if self.floor is None:
            return None
        value = self.best if self.floor.of == "ours" else self.ratio
        if value is None:
            return None
        return value <= self.floor.value if self.floor.sign == "<" else value >= self.floor.value

    def _best(self, values: Sequence[float]) -> float:
        return min(values) if self.less_is_better else max(values)


class Plan(Struct, frozen=True):
    """How much to measure."""

    rounds: int = 3
    scale: float = 1.0

    def count(self, full: int, least: int = 20) -> int:
        """Return how many to do, of so many in a full run."""
        return max(least, int(full * self.scale))


def by_turns(rounds: int, ours: Measure, bare: Measure) -> tuple[list[Rate], list[Rate]]:
    """Measure both in alternating rounds; the side that begins alternates too."""
    measured: tuple[list[Rate], list[Rate]] = [], []
    for nth in range(rounds):
        sides = [(measured[0], ours), (measured[1], bare)]
        for rates, measure in sides if nth % 2 == 0 else reversed(sides):
            rates.append(measure())
    return measured


def compared(
    database: str,
    what: str,
    ours: Sequence[Rate],
    bare: Sequence[Rate],
    *,
    floor: Floor | None = None,
    note: str = "",
    details: dict[str, Any] | None = None,
) -> Result:
    """Make a line of rates."""
    return Result(
        database=database,
        what=what,
        unit="/s",
        ours=[rate.per_second for rate in ours],
        bare=[rate.per_second for rate in bare],
        cpu_us=[min(rate.cpu_us for rate in side) for side in (ours, bare) if side],
        floor=floor,
        note=note,
        details=details or {},
    )


class Stopwatch:
    """Says at what rate something was done."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._cpu = time.process_time()

    def rate(self, count: int) -> Rate:
        taken = time.perf_counter() - self._start
        return Rate(count / taken, (time.process_time() - self._cpu) / count * 1e6)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def p50_p99(seconds: Sequence[float]) -> dict[str, float]:
    """Return what to say of latencies, in milliseconds."""
    return {
        "p50_ms": percentile(seconds, 0.5) * 1e3,
        "p99_ms": percentile(seconds, 0.99) * 1e3,
        "max_ms": max(seconds) * 1e3,
    }
