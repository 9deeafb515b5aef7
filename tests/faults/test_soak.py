"""All faults together, at random; at the end every job is counted."""

import itertools
import time
from collections import Counter

import pytest

from tests.faults.chance import dice
from tests.faults.processes import wait_until
from tests.faults.programs import lines
from tests.faults.sizes import many
from tests.servers import PostgresServer
from towpath.errors import LeaseLost

pytestmark = [pytest.mark.soak, pytest.mark.chaos]

SECONDS = 3 if many(1) == 1 else 120
EVENTS = ("enqueued", "completed", "released", "failed", "buried", "kicked", "cancelled", "gave-up")
ENOUGH = many(5)  # of each: a run in which little happens proves little
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
    return server.url(), {"schema": f"soak_{next(_numbers)}"}


def test_whatever_happens_every_job_is_accounted_for(start, server, make_app, books, tmp_path):
    chance = dice(9)
    records = {}

    def begin():
        record = tmp_path / f"record-{len(records)}"
        # A loaded machine may take long to start the server again.
        patient: dict[str, object] = {"connect_timeout": 60} if server else {}
        program = start("juggle", settings=patient, record=str(record), seed=chance.random())
        records[program] = record
        return program

    def happened():
        return Counter(words[0] for record in records.values() for words in lines(record))

    def enough():
        events = happened()
        return len(faults) == 3 and all(events[each] >= ENOUGH for each in EVENTS)

    living = [begin() for _ in range(4)]
    faults = set()
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline or not enough():
        time.sleep(chance.uniform(0.05, 0.4))  # not a wait for anything: the instant is the point
        nth = chance.randrange(len(living))
        fault = chance.choice(["crash", "pause", "kill", "kill"])
        faults.add(fault)
        if fault == "crash" and server:
            server.restart("immediate")
        elif fault == "pause":
            wait_until(records[living[nth]].exists)  # from then on it ends with the test process
            living[nth].pause()
            time.sleep(chance.uniform(0, 0.7))  # longer than a lease, at times
            living[nth].resume()
        elif fault == "kill":
            living[nth].kill_alive()
            living[nth] = begin()
    for program in living:
        program.kill_alive()

    app = make_app()
    books.check()
    finish_everything(app)

    said = [words for record in records.values() for words in lines(record)]
    enqueued = {words[1] for words in said if words[0] == "enqueued"}
    completed = [(words[1], int(words[2])) for words in said if words[0] == "completed"]
    ends = {str(id): end for id, end in books.done().items()}
    assert enqueued <= ends.keys() == {str(id) for id in books.ids()}
    assert set(Counter(id for id, _ in completed).values()) == {1}
    for id, epoch in completed:
        assert ends[id].epoch == epoch
    books.check()
    stats = app.jobs.stats()
    assert stats.completed == sum(not end.cancelled for end in ends.values())
    assert stats.cancelled == sum(end.cancelled for end in ends.values())
    assert (stats.pending, stats.reserved, stats.buried) == (0, 0, 0)


def finish_everything(app):
    def is_finished():
        while app.jobs.kick("mail", 1_000):
            pass
        for lease in app.jobs.reserve("mail", limit=1_000):
            try:
                app.jobs.complete(lease)
            except LeaseLost:
                continue
        stats = app.jobs.stats()
        return not (stats.pending or stats.reserved or stats.buried)

    wait_until(is_finished)
