"""kill -9 at any instant: nothing acknowledged is lost, nothing is completed twice."""

import time
from collections import Counter

import pytest

from tests.faults.chance import dice
from tests.faults.processes import wait_until
from tests.faults.programs import lines
from tests.faults.sizes import many

pytestmark = pytest.mark.chaos

PRODUCERS = ("produce", "aproduce")
WORKERS = ("work", "awork", "work")


def test_killed_producers_and_workers_lose_nothing_and_repeat_nothing(start, books, tmp_path):
    """SC-4, US5-1 to US5-4, DQ-12: each is killed and started again, from an empty database on."""
    chance = dice(4)
    each = many(400)

    def begin(nth):
        name = (*PRODUCERS, *WORKERS)[nth]
        if name in PRODUCERS:
            return start(name, record=str(tmp_path / f"acknowledged-{nth}"), number=each)
        return start(name, record=str(tmp_path / f"completed-{nth}"), seed=chance.random())

    living = {nth: begin(nth) for nth in range(len(PRODUCERS) + len(WORKERS))}
    for _ in range(many(20)):
        # Not a wait for anything: the instant is the point.
        time.sleep(chance.uniform(0.02, 0.4))
        victim = chance.choice(list(living))
        living[victim].kill_alive()
        living[victim] = begin(victim)
    for nth in range(len(PRODUCERS)):
        living[nth].finish()
    wait_until(lambda: all_are_done(books), many(30))
    for nth in range(len(PRODUCERS), len(living)):
        living[nth].kill_alive()

    books.check_completions()
    acknowledged = [words[0] for path in tmp_path.glob("acknowledged-*") for words in lines(path)]
    recorded = [tuple(words) for path in tmp_path.glob("completed-*") for words in lines(path)]
    done = {str(id): str(end.epoch) for id, end in books.done().items()}
    assert len(acknowledged) >= each * len(PRODUCERS)
    assert set(acknowledged) <= set(done)
    assert set(Counter(id for id, _ in recorded).values()) == {1}
    assert {id: done[id] for id, _ in recorded} == dict(recorded)


def all_are_done(books):
    return books.count("job") == books.count("done")
