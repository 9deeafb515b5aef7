"""Workers under all faults together, at random; at the end every job and every run is counted."""

import contextlib
import itertools
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from tests.faults.chance import dice
from tests.faults.processes import wait_until
from tests.faults.sizes import many
from tests.servers import PostgresServer

pytestmark = [pytest.mark.soak, pytest.mark.chaos]

SECONDS = 8 if many(1) == 1 else 240
TOPICS = ("record", "record", "record", "record_in_thread", "record_in_sandbox")
FOREVER = {"max_retries": 10_000, "max_crashes": 10_000}  # what befalls them is not their fault
_numbers = itertools.count(1)


@pytest.fixture
def server(kind):
    """A server that may be crashed, where there is one."""
    if kind == "sqlite":
        yield None
    else:
        with PostgresServer() as server:
            yield server


@pytest.fixture
def place(kind, server, tmp_path):
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/test.db", {}
    return server.url(), {"schema": f"worker_soak_{next(_numbers)}"}


@pytest.fixture
def begin(place):
    """Start workers, and kill those that are left."""
    url, needed = place
    words = ["-m", "tests.faults.worker_program", url, needed.get("schema", "towpath")]
    with contextlib.ExitStack() as stack:

        def begin():
            worker = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
            stack.callback(worker.wait)
            stack.callback(worker.kill)
            return worker

        yield begin


def test_whatever_befalls_workers_every_job_is_done_once(begin, server, make_app, books, tmp_path):
    """US10-4, US2-5, US5-4, MS-4: no lease is run twice, no job is lost or completed twice."""
    chance, record = dice(11), tmp_path / "record"
    record.touch()
    app = make_app(dead_after=1.0)
    app.upkeep.start()
    workers = [begin() for _ in range(3)]
    jobs, faults = [], Counter()

    def enqueue():
        for topic in chance.choices(TOPICS, k=chance.randrange(1, 20)):
            payload = {"file": str(record), "pause": chance.choice([0, 0, 0.01, 0.3])}
            jobs.append(app.jobs.enqueue(topic, payload, **FOREVER))

    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline or len(faults) < 4:
        enqueue()
        time.sleep(chance.uniform(0.05, 0.5))  # not a wait for anything: the instant is the point
        nth = chance.randrange(len(workers))
        fault = chance.choice(["kill", "kill", "pause", "stop", "crash"])
        faults[fault] += 1
        if fault == "kill":
            workers[nth].kill()
            workers[nth] = begin()
        elif fault == "pause":
            workers[nth].send_signal(signal.SIGSTOP)
            time.sleep(chance.uniform(0, 1.5))  # longer than `dead_after`, at times
            workers[nth].send_signal(signal.SIGCONT)
        elif fault == "stop":
            workers[nth].send_signal(signal.SIGTERM)
            workers[nth] = begin()
        elif server:
            server.restart("immediate")

    wait_until(lambda: app.jobs.stats().completed == len(jobs))
    books.check_completions()
    done = books.done()
    assert set(done) == {job.id for job in jobs}
    runs = Counter(line for line in record.read_text().splitlines())
    assert set(runs.values()) == {1}, "a lease was run twice"
    last = {f"{id} {end.epoch}" for id, end in done.items()}
    assert last <= runs.keys()
