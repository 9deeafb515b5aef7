"""Waiting jobs cost no memory: bodies stay in the database."""

import subprocess
import sys

from tests.faults.sizes import many

PROGRAM = """
import gc, sys
import psutil
from towpath import App

url, schema, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
app = App(url, schema=schema)
body = "x" * 10_000


def resident():
    gc.collect()
    return psutil.Process().memory_info().rss


def enqueue(number):
    for _ in range(number // 100):
        app.jobs.enqueue_many("mail", [body] * 100)


enqueue(1_000)
before = resident()
enqueue(count)
assert app.jobs.stats().ready == count + 1_000
app.upkeep.run()
[lease] = app.jobs.reserve("mail")
assert len(lease.job.payload) == 10_000
print(resident() - before)
"""


def test_waiting_jobs_are_not_held_in_memory(durable_place):
    """DQ-11: 20,000 jobs of 10 KB, 200 MB in all: resident memory grows by less than 20 MB."""
    url, needed = durable_place
    count = min(many(20_000), 100_000)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, url, needed.get("schema", "towpath"), str(count)],
        check=True,
        capture_output=True,
        text=True,
    )

    assert int(done.stdout) < 20_000_000
