"""Workers that are killed, stopped and frozen: nothing is lost, and nobody else is punished."""

import contextlib
import signal
import subprocess
import sys

import pytest

from tests.faults.processes import wait_until
from towpath import App


@pytest.fixture
def app(durable_place):
    url, needed = durable_place
    with App(url, beat_every=0.2, dead_after=1.0, **needed) as app:
        app.upkeep.start()
        yield app


@pytest.fixture
def start(durable_place):
    """Start workers, and kill those that are left."""
    url, needed = durable_place
    words = [sys.executable, "-m", "tests.faults.worker_program", url]
    with contextlib.ExitStack() as stack:

        def start():
            process = subprocess.Popen(
                [*words, needed.get("schema", "towpath")], stdout=subprocess.PIPE
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            stack.callback(process.stdout.close)
            assert process.stdout.readline() == b"working\n"
            return process

        yield start


def state(app, job):
    return app.jobs.get(job.id).state


def test_us5_4_the_job_of_a_killed_worker_is_taken_over(app, start):
    job = app.jobs.enqueue("sleep", {"seconds": 3})
    first = start()
    wait_until(lambda: state(app, job) == "reserved")
    first.kill()
    start()

    wait_until(lambda: state(app, job) == "completed", 30)
    found = app.jobs.get(job.id)
    assert (found.returned, found.epoch) == ("slept", 2)
    assert found.crashes <= 1


def test_a_job_that_kills_its_workers_is_buried_and_its_neighbours_are_done(app, start):
    poison = app.jobs.enqueue("kill_me", {}, priority=0, max_crashes=2)
    others = [app.jobs.enqueue("note", {"number": n}) for n in range(20)]
    for _ in range(5):
        worker = start()
        wait_until(lambda w=worker: w.poll() is not None or state(app, poison) == "buried", 30)
        if worker.poll() is None:
            break
        wait_until(lambda: app.jobs.stats().reserved == 0, 30)  # its session was called dead

    wait_until(lambda: all(state(app, job) == "completed" for job in others), 30)
    assert state(app, poison) == "buried"
    assert app.jobs.get(poison.id).crashes == 2


def test_a_task_that_keeps_the_loop_busy_does_not_look_dead(app, start):
    job = app.jobs.enqueue("spin", {"seconds": 4})
    start()

    wait_until(lambda: state(app, job) == "completed", 30)
    assert app.jobs.get(job.id).epoch == 1


def test_dq_14_sigterm_lets_a_running_job_end_and_the_process_with_it(app, start):
    job = app.jobs.enqueue("sleep", {"seconds": 1})
    worker = start()
    wait_until(lambda: state(app, job) == "reserved")
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(20) == 0
    assert app.jobs.get(job.id).returned == "slept"


def test_a_second_signal_ends_a_worker_at_once_and_gives_its_job_back(app, start):
    job = app.jobs.enqueue("sleep", {"seconds": 60})
    worker = start()
    wait_until(lambda: state(app, job) == "reserved")
    worker.send_signal(signal.SIGTERM)
    worker.send_signal(signal.SIGINT)

    assert worker.wait(20) == 0
    found = app.jobs.get(job.id)
    assert (found.state, found.retries, found.crashes) == ("ready", 0, 0)


@pytest.mark.parametrize("durable_place", ["postgres"], indirect=True)
def test_a_worker_that_was_frozen_and_called_dead_begins_anew(app, start):
    """Its old words are refused; it goes on with a new session.

    Frozen inside a transaction on SQLite it would hold up everybody: there is one writer.
    """
    job = app.jobs.enqueue("sleep", {"seconds": 60})
    worker = start()
    wait_until(lambda: state(app, job) == "reserved")
    worker.send_signal(signal.SIGSTOP)
    wait_until(lambda: state(app, job) == "ready", 30)
    app.jobs.delete(job.id)
    worker.send_signal(signal.SIGCONT)

    later = app.jobs.enqueue("note", {"number": 7})
    wait_until(lambda: state(app, later) == "completed", 30)
    assert worker.poll() is None
