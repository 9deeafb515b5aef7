"""Memory: what waits in the database takes no room in the process."""

import json
import subprocess
import sys
from collections.abc import Iterator

from bench.places import Place
from bench.rounds import Floor, Plan, Result

MIB = 2**20


def measure(place: Place, plan: Plan) -> Iterator[Result]:
    count = plan.count(20_000)
    with place.spot() as spot:
        command = [sys.executable, "-m", "bench.child", "fill", spot.url, json.dumps(spot.settings)]
        done = subprocess.run([*command, str(count)], stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    yield Result(
        database=place.name,
        what=f"memory growth, {count:,} waiting jobs of 10 KB",
        unit="MiB",
        ours=[found["growth"] / MIB],
        floor=Floor("ours", "<", 20),
        less_is_better=True,
        note=f"from {found['before'] / MIB:.0f} MiB, at most +{found['most_growth'] / MIB:.1f}",
        details=found,
    )
