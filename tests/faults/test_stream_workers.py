"""The streams of jobs whose workers die, freeze, or lose their database for a while."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import time

import pytest

from tests.faults.chance import dice
from tests.faults.processes import wait_until
from towpath import App, StreamEnd
from towpath.errors import DatabaseBusy
from towpath.operation import Operation
from towpath.statement import Statement

TEXT = "the quick brown fox jumps over the lazy dog " * 2
JOBS = 200
FOREVER = {"max_crashes": 10_000}  # what befalls them is not their fault


@pytest.fixture
def app(durable_place):
    url, needed = durable_place
    with App(url, beat_every=0.2, dead_after=1.0, **needed) as app:
        app.upkeep.start()
        yield app


@pytest.fixture
def errors(tmp_path):
    """The log lines of all workers."""
    path = tmp_path / "errors"
    path.touch()
    return path


@pytest.fixture
def start(durable_place, errors):
    """Start workers, and kill those that are left."""
    url, needed = durable_place
    with contextlib.ExitStack() as stack:
        to = stack.enter_context(errors.open("ab"))

        def begin():
            words = [*("-m", "tests.faults.worker_program"), url, needed.get("schema", "towpath")]
            process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=to)
            stack.callback(process.wait)
            stack.callback(process.kill)
            stack.callback(process.stdout.close)
            assert process.stdout.readline() == b"working\n"
            return process

        yield begin


class Reader:
    """Follows the stream of a job, and drops what a lost try has said."""

    def __init__(self, app, loop, job):
        self.events, self.tries, self.cursors, self.ended = [], [], [], None
        self._reading = asyncio.run_coroutine_threadsafe(self._read(app.jobs.astream(job)), loop)

    async def _read(self, pieces):
        async for piece in pieces:
            self.take(piece)

    def take(self, piece):
        self.cursors.append(piece.cursor)
        if isinstance(piece, StreamEnd):
            self.ended = piece.ended
        elif piece.type == "towpath.try":
            told = piece.payload["towpath"]
            self.tries.append((told["try"], told["after"]))
            self.events = [each for each in self.events if each.cursor <= told["since"]]
        else:
            self.events.append(piece)

    @property
    def text(self):
        return "".join(event.payload for event in self.events)

    def check(self, text, ended="completed"):
        """Wait for the end: the whole text of the last try has come, in order and once."""
        self._reading.result(120)
        assert (self.text, self.ended) == (text, ended)
        *cursors, end = self.cursors
        assert cursors == sorted(set(cursors))
        assert end == cursors[-1]


def test_the_text_of_the_last_try_is_whole_though_a_worker_is_killed(app, loop, start):
    """EV-4: the words of a sandbox go through its worker."""
    job = app.jobs.enqueue("tell_in_sandbox", {"text": TEXT, "pause": 0.03})
    reader = Reader(app, loop, job)
    first = start()
    wait_until(lambda: len(reader.text) > len(TEXT) // 2)
    first.kill()
    start()

    reader.check(TEXT)
    assert reader.tries == [(2, "crash")]


def is_started(app):
    """Say whether a worker has told by its heartbeat that it runs the job."""

    def steps():
        text = "select count(*) from towpath.lease where started"
        return (yield Statement("started", {"any": text})())[0][0]

    return app.run(Operation("started", steps))


def test_a_stream_whose_only_worker_is_killed_for_good_ends_as_failed(app, loop, start):
    """EV-4: no worker is left; the upkeep of the reader's process buries the job."""
    job = app.jobs.enqueue("tell", {"text": TEXT, "pause": 0.03}, max_crashes=1)
    reader = Reader(app, loop, job)
    worker = start()
    wait_until(lambda: reader.text and is_started(app))  # else it is no crash of this job
    worker.kill()
    worker.wait()
    said = "".join(event.payload for event in app.events.read(f"job:{job.id}").events)

    reader.check(said, "failed")
    assert TEXT.startswith(said)
    assert reader.tries == []


def speak(readers):
    """Say whether any of them has heard a part of its text."""
    return any(reader.text and not reader.ended for reader in readers)


@pytest.mark.chaos
@pytest.mark.soak
def test_every_text_is_whole_though_workers_are_killed_at_random(app, loop, start):
    """EV-4: for readers that follow, and for one that comes in the end."""
    chance = dice(16)
    jobs, texts, readers = [], [], []

    def enqueue():
        for _ in range(chance.randrange(10, 40)):
            texts.append(f"{len(texts)} " + TEXT[: chance.randrange(20, len(TEXT))])
            payload = {"text": texts[-1], "pause": chance.choice([0, 0.01, 0.03])}
            jobs.append(app.jobs.enqueue("tell", payload, **FOREVER))
            readers.append(Reader(app, loop, jobs[-1]))

    workers = [start() for _ in range(3)]
    while len(jobs) < JOBS or not any(reader.tries for reader in readers):
        enqueue()
        wait_until(lambda: speak(readers) or all(reader.ended for reader in readers))
        time.sleep(chance.uniform(0, 0.3))  # not a wait for anything: the instant is the point
        nth = chance.randrange(len(workers))
        workers[nth].kill()
        workers[nth] = start()

    for reader, text in zip(readers, texts, strict=True):
        reader.check(text)
    for job, text in zip(jobs, texts, strict=True):
        Reader(app, loop, job).check(text)


def test_what_a_frozen_worker_says_late_is_refused(app, loop, start, errors, durable_place):
    """EV-4: it was stopped for longer than `dead_after`, and has words that are not written."""
    job = app.jobs.enqueue("tell", {"text": TEXT, "pause": 0.03})
    reader = Reader(app, loop, job)
    first = start()
    wait_until(lambda: len(reader.text) > len(TEXT) // 2)
    freeze(first, *durable_place)
    start()
    wait_until(lambda: reader.tries and reader.text)

    first.send_signal(signal.SIGCONT)

    wait_until(lambda: "the words of a job were refused: the lease" in errors.read_text())
    reader.check(TEXT)
    assert len(reader.tries) == 1


def freeze(process, url, needed):
    """Stop a process outside of its transactions, in which it may hold the lock of a file."""
    with App(url, busy_timeout=1, **needed) as app:
        while True:
            process.send_signal(signal.SIGSTOP)
            try:
                app.probe()
            except DatabaseBusy:
                process.send_signal(signal.SIGCONT)
            else:
                return
