"""A transaction held open elsewhere keeps dead rows alive: does a reservation grow slower?"""

import statistics
import time
from collections.abc import Iterator

import psycopg

from bench.bare import PAYLOAD, TOPIC
from bench.places import Place
from bench.rounds import Floor, Plan, Result

BATCH = 100


def measure(place: Place, plan: Plan) -> Iterator[Result]:
    if place.kind == "postgres":
        yield curve(place, plan, held=True)
        yield curve(place, plan, held=False)


def curve(place: Place, plan: Plan, *, held: bool) -> Result:
    """Send 60,000 jobs through and compare the last tenth of the reservations with the first."""
    turns = plan.count(60_000, 6_000) // BATCH
    taken: list[float] = []
    with place.spot() as spot, spot.app() as app, psycopg.connect(spot.url) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        if held:
            reader.execute("select count(*) from pg_class")  # takes the snapshot
        for _ in range(turns):
            app.jobs.enqueue_many(TOPIC, [PAYLOAD] * BATCH)
            start = time.perf_counter()
            leases = app.jobs.reserve(TOPIC, limit=BATCH)
            taken.append(time.perf_counter() - start)
            assert app.jobs.complete_many(leases) == []
            assert len(leases) == BATCH
        reader.rollback()
    tenth = turns // 10
    deciles = [taken[nth * tenth : (nth + 1) * tenth] for nth in range(10)]
    means = [statistics.mean(decile) * 1e3 for decile in deciles]
    medians = [statistics.median(decile) * 1e3 for decile in deciles]
    return Result(
        database=place.name,
        what=f"reserve, last/first decile, {'a' if held else 'no'} transaction held open",
        unit="x",
        ours=[means[-1] / means[0]],
        floor=Floor("ours", "<", 2) if held else None,
        less_is_better=True,
        note="mean ms: " + " ".join(f"{mean:.2f}" for mean in means),
        details={"means_ms": means, "medians_ms": medians, "max_ms": max(taken) * 1e3},
    )
