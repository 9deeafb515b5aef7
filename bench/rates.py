"""Rates: which share of a limit's rate a worker reaches, and the most starts in any one second."""

import time
from bisect import bisect_right
from collections.abc import Iterator

from bench.places import Place
from bench.rounds import Floor, Plan, Result
from bench.worker import serving
from towpath import Limit

RATE = 100  # starts in a second
SECONDS = 10.0
ENOUGH = 0.95  # of the rate


def measure(place: Place, plan: Plan) -> Iterator[Result]:
    yield reached(place, max(2.0, SECONDS * plan.scale))


def reached(place: Place, seconds: float) -> Result:
    """Count the starts of no-op jobs of one key, with more of them waiting than may start."""
    waiting = int(2 * RATE * (seconds + 1))
    with place.spot() as spot:
        with spot.app() as app:
            limit = Limit("measured", rate=f"{RATE}/s")
            app.jobs.enqueue_many("stamped", [{"at": 0.0}] * waiting, limit=limit)
        with serving(spot, "stamped", waiting) as worker:
            time.sleep(seconds + 0.5)
            worker.go()
            starts = sorted(worker.hear())  # a job that was enqueued at 0 says when it starts
    within = bisect_right(starts, starts[0] + seconds)
    share = (within - 1) / (RATE * seconds)
    most = max(bisect_right(starts, at + 1) - nth for nth, at in enumerate(starts))
    return Result(
        database=place.name,
        what=f"share reached of a rate of {RATE}/s, {seconds:g} s",
        unit="of the rate",
        ours=[share],
        floor=Floor("ours", ">", ENOUGH),
        note=f"most starts in any second: {most}",
        details={"starts": within, "most_in_a_second": most},
    )
